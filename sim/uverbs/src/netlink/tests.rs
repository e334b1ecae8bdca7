use super::*;
use crate::uapi::RDMA_NLDEV_ATTR_DEV_INDEX;
use crate::{NullProcess, Uverbs, VirtualHost};
use alloc::string::ToString;

const SEQUENCE: u32 = 77;
const SOCKET: u32 = 4711;

fn attributes() -> DeviceAttributes {
    let host = VirtualHost::new("a").unwrap();
    Uverbs::boot(host.nic_config(0), &host.port_addresses(), &mut NullProcess).unwrap().attributes().clone()
}

/// A request with attributes (type, payload).
fn request(command: u16, flags: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend((RDMA_NL_NLDEV << CLIENT_SHIFT | command).to_ne_bytes());
    bytes.extend((flag::REQUEST | flags).to_ne_bytes());
    bytes.extend(SEQUENCE.to_ne_bytes());
    bytes.extend([0; 4]);
    for (kind, payload) in attributes {
        bytes.extend((payload.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// The responses to a request, checked to be complete and addressed to the sender.
fn ask(request: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let attributes = attributes();
    let objects = ObjectCounts { queue_pairs: 3, ..ObjectCounts::default() };
    ask_of(
        &[InventoryDevice {
            attributes: &attributes,
            has_cable: true,
            objects,
            listed: &ListedObjects::new(),
        }],
        request,
    )
}

/// The same for these devices.
fn ask_of(devices: &[InventoryDevice<'_>], request: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let responses = answer(request, SOCKET, &Inventory(devices));
    let whole = |bytes: &Vec<u8>| {
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0) as usize, word(8), word(12)), (bytes.len(), SEQUENCE, SOCKET));
        (u16::from_ne_bytes([bytes[4], bytes[5]]), bytes[16..].to_vec())
    };
    responses.iter().map(whole).collect()
}

fn error(number: i32) -> Vec<u8> {
    (-number).to_ne_bytes().to_vec()
}

#[test]
fn a_dump_of_devices_has_ours_and_an_end() {
    let responses = ask(&request(RDMA_NLDEV_CMD_GET, flag::DUMP, &[]));
    assert_eq!(responses.len(), 2);
    assert_eq!(responses[0].0, 0x1401);
    let name = responses[0].1.windows(7).any(|window| window == b"mlx5_0\0");
    assert!(name && responses[0].1.windows(8).any(|window| window == attributes().node_guid.to_ne_bytes()));
    assert_eq!(responses[1], (3, error(0)), "NLMSG_DONE");
}

#[test]
fn a_dump_lists_all_devices_and_a_request_only_the_named_one() {
    let (attributes, listed) = (attributes(), ListedObjects::new());
    let with = |queue_pairs| {
        let objects = ObjectCounts { queue_pairs, ..ObjectCounts::default() };
        InventoryDevice { attributes: &attributes, has_cable: true, objects, listed: &listed }
    };
    let devices = [with(3), with(4)];
    let has =
        |response: &(u16, Vec<u8>), name: &[u8]| response.1.windows(name.len()).any(|window| window == name);
    for command in [RDMA_NLDEV_CMD_GET, RDMA_NLDEV_CMD_RES_GET] {
        let responses = ask_of(&devices, &request(command, flag::DUMP, &[]));
        assert_eq!(responses.len(), 3);
        assert!(has(&responses[0], b"mlx5_0\0") && has(&responses[1], b"mlx5_1\0"), "{responses:?}");
        assert_eq!(responses[2], (3, error(0)));
    }
    let named = [(RDMA_NLDEV_ATTR_DEV_INDEX, &[1, 0, 0, 0][..]), (RDMA_NLDEV_ATTR_CHARDEV_TYPE, b"uverbs\0")];
    let file = ask_of(&devices, &request(RDMA_NLDEV_CMD_GET_CHARDEV, 0, &named));
    assert!(file.len() == 1 && has(&file[0], b"uverbs1\0"), "{file:?}");
    let third = [(RDMA_NLDEV_ATTR_DEV_INDEX, &[2, 0, 0, 0][..])];
    assert_eq!(&ask_of(&devices, &request(RDMA_NLDEV_CMD_GET, 0, &third))[0].1[..4], error(19));
}

#[test]
fn get_chardev_finds_a_device_file_by_its_kind() {
    let index = 0_u32.to_ne_bytes();
    let file = |kind: &[u8]| {
        let named = [(RDMA_NLDEV_ATTR_DEV_INDEX, &index[..]), (RDMA_NLDEV_ATTR_CHARDEV_TYPE, kind)];
        ask(&request(RDMA_NLDEV_CMD_GET_CHARDEV, 0, &named)).remove(0)
    };
    let (kind, attributes) = file(b"uverbs\0");
    assert_eq!(kind, 0x140f);
    assert!(attributes.windows(8).any(|window| window == b"uverbs0\0"));
    assert_eq!(&file(b"umad\0").1[..4], error(95));
}

#[test]
fn a_port_is_down_while_its_cable_is_out() {
    let (attributes, listed) = (attributes(), ListedObjects::new());
    let named = [(RDMA_NLDEV_ATTR_DEV_INDEX, &[0; 4][..]), (RDMA_NLDEV_ATTR_PORT_INDEX, &[1, 0, 0, 0])];
    let asked = request(RDMA_NLDEV_CMD_PORT_GET, 0, &named);
    let has = |response: &[u8], kind: u16, state: u8| {
        let [low, high] = kind.to_ne_bytes();
        response.windows(5).any(|window| window == [5, 0, low, high, state])
    };
    for (has_cable, logical, physical) in [(true, 4, 5), (false, 1, 3)] {
        let objects = ObjectCounts::default();
        let device = InventoryDevice { attributes: &attributes, has_cable, objects, listed: &listed };
        let (_, response) = ask_of(&[device], &asked).remove(0);
        assert!(has(&response, RDMA_NLDEV_ATTR_PORT_STATE, logical), "{response:?}");
        assert!(has(&response, RDMA_NLDEV_ATTR_PORT_PHYS_STATE, physical), "{response:?}");
    }
}

#[test]
fn requests_for_missing_objects_are_refused() {
    let wrong = request(RDMA_NLDEV_CMD_GET, 0, &[(RDMA_NLDEV_ATTR_DEV_INDEX, &[9, 0, 0, 0])]);
    let (kind, says) = ask(&wrong).remove(0);
    assert_eq!((kind, &says[..4]), (2, &error(19)[..]));
    assert_eq!(says[4..], wrong, "the error carries the request");
    assert_eq!(&ask(&request(RDMA_NLDEV_CMD_GET, 0, &[])).remove(0).1[..4], error(22), "without an index");
    assert_eq!(&ask(&request(2, 0, &[])).remove(0).1[..4], error(95), "a name cannot be set");
    assert_eq!(ask(&request(RDMA_NLDEV_CMD_PORT_GET, flag::DUMP, &[])), [(3, error(22))]);
}

#[test]
fn objects_are_counted_over_processes() {
    let counts = ObjectCounts { queue_pairs: 2, memory_regions: 1, ..ObjectCounts::default() };
    assert_eq!(ObjectCounts::from_lines(&counts.to_lines()), counts);
    assert_eq!(
        ObjectCounts::from_lines(&("pid 7\n".to_string() + &counts.to_lines())).and(&counts).queue_pairs,
        4
    );
    let asked = request(RDMA_NLDEV_CMD_RES_GET, flag::DUMP, &[]);
    assert!(asks_for_objects(&asked) && !asks_for_objects(&request(RDMA_NLDEV_CMD_GET, flag::DUMP, &[])));
    assert!(ask(&asked)[0].1.windows(3).any(|window| window == b"qp\0"));
}

#[test]
fn requests_that_no_library_sends_do_no_harm() {
    let whole = request(RDMA_NLDEV_CMD_GET_CHARDEV, 0, &[(RDMA_NLDEV_ATTR_CHARDEV_TYPE, b"uverbs\0")]);
    for end in 0..whole.len() {
        ask_anything(&whole[..end]);
        for bit in 0..8 {
            let mut spoilt = whole.clone();
            spoilt[end] ^= 1 << bit;
            ask_anything(&spoilt);
        }
    }
}

fn ask_anything(bytes: &[u8]) {
    let attributes = attributes_once();
    let listed = ListedObjects::new();
    let device =
        InventoryDevice { attributes, has_cable: true, objects: ObjectCounts::default(), listed: &listed };
    answer(bytes, SOCKET, &Inventory(&[device]));
}

fn attributes_once() -> &'static DeviceAttributes {
    extern crate std;
    static ONCE: std::sync::OnceLock<DeviceAttributes> = std::sync::OnceLock::new();
    ONCE.get_or_init(attributes)
}
