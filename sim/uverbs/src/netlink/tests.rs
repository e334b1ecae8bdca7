use super::*;
use crate::uapi::RDMA_NLDEV_ATTR_DEV_INDEX;
use crate::{Nobody, Uverbs, VirtualHost};
use alloc::string::ToString;

const SEQUENCE: u32 = 77;
const SOCKET: u32 = 4711;

fn attributes() -> DeviceAttributes {
    let host = VirtualHost::new("a").unwrap();
    Uverbs::boot(host.nic_config(0), &host.port_addresses(), &mut Nobody).unwrap().attributes().clone()
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

/// Answers, checked to be whole and for the one who asked.
fn ask(request: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let attributes = attributes();
    let objects = ObjectCounts { queue_pairs: 3, ..ObjectCounts::default() };
    let answers = answer(request, SOCKET, &Inventory { attributes: &attributes, objects });
    let whole = |bytes: &Vec<u8>| {
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0) as usize, word(8), word(12)), (bytes.len(), SEQUENCE, SOCKET));
        (u16::from_ne_bytes([bytes[4], bytes[5]]), bytes[16..].to_vec())
    };
    answers.iter().map(whole).collect()
}

fn error(number: i32) -> Vec<u8> {
    (-number).to_ne_bytes().to_vec()
}

#[test]
fn a_dump_of_devices_has_ours_and_an_end() {
    let answers = ask(&request(RDMA_NLDEV_CMD_GET, flag::DUMP, &[]));
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0].0, 0x1401);
    let name = answers[0].1.windows(7).any(|window| window == b"mlx5_0\0");
    assert!(name && answers[0].1.windows(8).any(|window| window == attributes().node_guid.to_ne_bytes()));
    assert_eq!(answers[1], (3, error(0)), "NLMSG_DONE");
}

#[test]
fn a_device_file_is_told_of_by_kind() {
    let index = INDEX.to_ne_bytes();
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
fn what_is_not_there_is_refused_with_the_request() {
    let wrong = request(RDMA_NLDEV_CMD_GET, 0, &[(RDMA_NLDEV_ATTR_DEV_INDEX, &[9, 0, 0, 0])]);
    let (kind, says) = ask(&wrong).remove(0);
    assert_eq!((kind, &says[..4]), (2, &error(19)[..]));
    assert_eq!(says[4..], wrong, "the request comes back");
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
fn what_no_library_sends_does_no_harm() {
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
    answer(bytes, SOCKET, &Inventory { attributes, objects: ObjectCounts::default() });
}

fn attributes_once() -> &'static DeviceAttributes {
    extern crate std;
    static ONCE: std::sync::OnceLock<DeviceAttributes> = std::sync::OnceLock::new();
    ONCE.get_or_init(attributes)
}
