//! Individual objects of programs, as the `rdma` tool requests them over NETLINK_RDMA.

use crate::support;

use bareverbs_uverbs::netlink::{
    self, Inventory, InventoryDevice, ListedObject, ListedObjects, ObjectKind, ObjectOwner,
};
use bareverbs_uverbs::uapi::*;
use bareverbs_uverbs::{Connections, DeviceIndex};
use std::collections::BTreeMap;
use support::libmlx5::*;
use zerocopy::{FromZeros, IntoBytes};

const OWNER: ObjectOwner = ObjectOwner { process_id: 4711, number: 3 };
/// Upper bits of the numbers of its objects.
const PROCESS: u32 = 3 << 24;
const DUMP: u16 = 0x301;
const REQUEST: u16 = 1;
const TYPE: u16 = 5 << 10;
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Attributes by their numbers.
type Found = BTreeMap<u16, Vec<u8>>;

fn parse(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let length = usize::from(half(0));
        found.push((half(2), bytes[4..length].to_vec()));
        bytes = &bytes[length.next_multiple_of(4)..];
    }
    found
}

fn number(found: &Found, attribute: u16) -> u64 {
    let bytes = &found[&attribute];
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Answers about one device: message types with the data after the header.
fn ask(
    peer: &Peer,
    listed: &ListedObjects,
    command: u16,
    flags: u16,
    named: &[(u16, u32)],
) -> Vec<(u16, Vec<u8>)> {
    let attributes = [(RDMA_NLDEV_ATTR_DEV_INDEX, 0)].iter().chain(named);
    let mut request = vec![0; 16];
    for (attribute, value) in attributes {
        request.extend([8_u16, *attribute].iter().flat_map(|half| half.to_ne_bytes()));
        request.extend(value.to_ne_bytes());
    }
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&(TYPE | command).to_ne_bytes());
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    let device = InventoryDevice {
        attributes: peer.uverbs.attributes(),
        has_cable: true,
        objects: Default::default(),
        listed,
    };
    let responses = netlink::answer(&request, 9, &Inventory(&[device]));
    let part = |bytes: Vec<u8>| (u16::from_ne_bytes([bytes[4], bytes[5]]), bytes[16..].to_vec());
    responses.into_iter().map(part).collect()
}

fn listed(peer: &mut Peer, kind: ObjectKind) -> ListedObjects {
    let all = peer.uverbs.list(&mut peer.program, kind, OWNER);
    // As another process would send it.
    let told = ListedObject::decode(&ListedObject::encode(all.clone(), 0, 1 << 15));
    assert_eq!(told.len(), all.len());
    [(kind, told)].into()
}

/// Objects of a dump.
fn dumped(peer: &mut Peer, kind: ObjectKind, command: u16, tables: [u16; 2]) -> Vec<Found> {
    let listed = listed(peer, kind);
    let responses = ask(peer, &listed, command, DUMP, &[]);
    assert_eq!(responses.last().map(|(kind, _)| *kind), Some(DONE));
    let messages = &responses[..responses.len() - 1];
    let tables_of = |(_, bytes): &(u16, Vec<u8>)| {
        let message: Found = parse(bytes).into_iter().collect();
        assert_eq!(message[&RDMA_NLDEV_ATTR_DEV_NAME], b"mlx5_0\0");
        assert!(bytes.len() < 4096, "a message fits a page");
        parse(&message[&tables[0]])
    };
    let entries = messages.iter().flat_map(tables_of);
    entries
        .map(|(entry, bytes)| {
            assert_eq!(entry, tables[1]);
            parse(&bytes).into_iter().collect()
        })
        .collect()
}

fn queue_pairs(peer: &mut Peer) -> Vec<Found> {
    let tables = [RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY];
    dumped(peer, ObjectKind::QueuePair, RDMA_NLDEV_CMD_RES_QP_GET, tables)
}

/// A program with a domain, a region, two completion queues and two queue pairs, one of them connected.
fn program() -> (Peer, [Qp; 2]) {
    let mut peer = Peer::new("a");
    let cq = peer.create_cq(0, None);
    let requested = || QpInitAttributes {
        kind: IB_UVERBS_QPT_RC,
        send: cq.handle,
        receive: cq.handle,
        ..QpInitAttributes::default()
    };
    let pairs = [peer.create_qp(requested()).unwrap(), peer.create_qp(requested()).unwrap()];
    let gid = peer.gid();
    peer.connect(&pairs[0], IB_UVERBS_QPT_RC, gid, pairs[1].number).unwrap();
    let data = peer.allocate(5000);
    peer.reg_mr(data, 5000, REMOTE).unwrap();
    (peer, pairs)
}

#[test]
fn queue_pairs_are_listed_as_the_kernel_lists_them() {
    let (mut peer, pairs) = program();
    let found = queue_pairs(&mut peer);
    assert_eq!(found.len(), 2);
    let [connected, fresh] = [0, 1].map(|at| &found[at]);
    let told = [
        (RDMA_NLDEV_ATTR_PORT_INDEX, 1),
        (RDMA_NLDEV_ATTR_RES_LQPN, pairs[0].number.into()),
        (RDMA_NLDEV_ATTR_RES_RQPN, pairs[1].number.into()),
        (RDMA_NLDEV_ATTR_RES_TYPE, IB_UVERBS_QPT_RC),
        (RDMA_NLDEV_ATTR_RES_STATE, peer.query_qp(&pairs[0]).qp_state.into()),
        (RDMA_NLDEV_ATTR_RES_SQ_PSN, peer.query_qp(&pairs[0]).sq_psn.into()),
        (RDMA_NLDEV_ATTR_RES_RQ_PSN, peer.query_qp(&pairs[0]).rq_psn.into()),
        (RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, 0),
        (RDMA_NLDEV_ATTR_RES_PID, 4711),
    ];
    for (attribute, wanted) in told {
        assert_eq!(number(connected, attribute), wanted, "attribute {attribute}");
    }
    assert_eq!(number(connected, RDMA_NLDEV_ATTR_RES_STATE), 3, "ready to send");
    assert_eq!((number(fresh, RDMA_NLDEV_ATTR_RES_STATE), fresh.get(&RDMA_NLDEV_ATTR_PORT_INDEX)), (0, None));
}

#[test]
fn a_request_by_number_returns_exactly_that_object() {
    let (mut peer, pairs) = program();
    let listed = listed(&mut peer, ObjectKind::QueuePair);
    let ask = |named: &[(u16, u32)]| {
        let (kind, bytes) = ask(&peer, &listed, RDMA_NLDEV_CMD_RES_QP_GET, REQUEST, named).remove(0);
        if kind == ERROR {
            return Err(i32::from_ne_bytes(bytes[..4].try_into().unwrap()));
        }
        Ok(parse(&bytes).into_iter().collect::<Found>())
    };
    let port = (RDMA_NLDEV_ATTR_PORT_INDEX, 1);
    let of = |number| (RDMA_NLDEV_ATTR_RES_LQPN, number);
    let found = ask(&[port, of(pairs[0].number)]).unwrap();
    assert_eq!(number(&found, RDMA_NLDEV_ATTR_RES_RQPN), pairs[1].number.into());
    assert_eq!(found[&RDMA_NLDEV_ATTR_DEV_NAME], b"mlx5_0\0");
    // ENOENT; EINVAL without a port and with another one; EAGAIN for an object that uses no port yet.
    assert_eq!(ask(&[port, of(0x77)]).err(), Some(-2));
    assert_eq!(ask(&[of(pairs[0].number)]).err(), Some(-22));
    assert_eq!(ask(&[(RDMA_NLDEV_ATTR_PORT_INDEX, 2), of(pairs[0].number)]).err(), Some(-22));
    assert_eq!(ask(&[port, of(pairs[1].number)]).err(), Some(-11));
    assert_eq!(ask(&[port]).err(), Some(-22));
}

#[test]
fn objects_name_the_ones_that_they_use() {
    let (mut peer, _) = program();
    let qp = queue_pairs(&mut peer).remove(0);
    let tables = [RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY];
    let domains = dumped(&mut peer, ObjectKind::ProtectionDomain, RDMA_NLDEV_CMD_RES_PD_GET, tables);
    let tables = [RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY];
    let queues = dumped(&mut peer, ObjectKind::CompletionQueue, RDMA_NLDEV_CMD_RES_CQ_GET, tables);
    let tables = [RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY];
    let regions = dumped(&mut peer, ObjectKind::MemoryRegion, RDMA_NLDEV_CMD_RES_MR_GET, tables);
    let tables = [RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY];
    let contexts = dumped(&mut peer, ObjectKind::Context, RDMA_NLDEV_CMD_RES_CTX_GET, tables);
    let counts = [domains.len(), queues.len(), regions.len(), contexts.len()];
    assert_eq!(counts, [1; 4]);
    let domain = number(&domains[0], RDMA_NLDEV_ATTR_RES_PDN);
    assert_eq!(domain >> 24, u64::from(PROCESS >> 24), "no other process has this number");
    assert_eq!(number(&qp, RDMA_NLDEV_ATTR_RES_PDN), domain);
    assert_eq!(number(&regions[0], RDMA_NLDEV_ATTR_RES_PDN), domain);
    assert_eq!(number(&regions[0], RDMA_NLDEV_ATTR_RES_MRLEN), 5000);
    // Two queue pairs and a region; two queue pairs with both of their queues.
    assert_eq!(number(&domains[0], RDMA_NLDEV_ATTR_RES_USECNT), 3);
    assert_eq!(number(&queues[0], RDMA_NLDEV_ATTR_RES_USECNT), 4);
    let context = number(&contexts[0], RDMA_NLDEV_ATTR_RES_CTXN);
    for object in [&domains[0], &queues[0]] {
        assert_eq!(number(object, RDMA_NLDEV_ATTR_RES_CTXN), context);
    }
}

#[test]
fn a_list_of_objects_is_read_in_parts_and_ends_at_a_malformed_attribute() {
    let mut peer = Peer::new("a");
    let cq = peer.create_cq(0, None);
    for _ in 0..60 {
        let requested = QpInitAttributes {
            kind: IB_UVERBS_QPT_UD,
            send: cq.handle,
            receive: cq.handle,
            ..QpInitAttributes::default()
        };
        peer.create_qp(requested).unwrap();
    }
    assert_eq!(queue_pairs(&mut peer).len(), 60, "several messages");
    let all = peer.uverbs.list(&mut peer.program, ObjectKind::QueuePair, OWNER);
    let first = ListedObject::decode(&ListedObject::encode(all.clone(), 0, 1000));
    assert!((1..60).contains(&first.len()));
    let next = first.last().unwrap().number() + 1;
    let rest = ListedObject::decode(&ListedObject::encode(all.clone(), next, 1 << 15));
    assert_eq!([first, rest].concat(), all);
    let bytes = ListedObject::encode(all.clone(), 0, 1 << 15);
    for end in 0..200 {
        assert!(ListedObject::decode(&bytes[..end]).len() <= end / 7);
    }
    let mut spoilt = bytes;
    spoilt[7] = 3;
    assert_eq!(ListedObject::decode(&spoilt), [], "an attribute shorter than its header");
}

#[test]
fn an_identifier_that_listens_on_any_address_is_at_every_device() {
    let mut peer = Peer::new("a");
    let mut connections = Connections::new(core::slice::from_ref(&peer.uverbs), &mut peer.program);
    let file = connections.open();
    let mut write = |command: u32, body: &[u8], out: usize| {
        let header = CmHeader { cmd: command, r#in: body.len() as u16, out: out as u16 };
        let bytes = [header.as_bytes(), body].concat();
        let devices = core::slice::from_mut(&mut peer.uverbs);
        connections.write(devices, &mut peer.program, file, &bytes).unwrap();
    };
    let create =
        CmCreateId { uid: 1, response: support::BASE, ps: RDMA_PS_TCP, qp_type: 0, reserved: [0; 5] };
    write(RDMA_USER_CM_CMD_CREATE_ID, create.as_bytes(), 4);
    let mut addr = [0; SOCKADDR_STORAGE];
    addr[..4].copy_from_slice(&[2, 0, 0x1c, 0x06]);
    let bind = CmBind { id: 0, addr_size: 16, addr, ..CmBind::new_zeroed() };
    write(RDMA_USER_CM_CMD_BIND, bind.as_bytes(), 0);
    write(RDMA_USER_CM_CMD_LISTEN, CmListen { id: 0, backlog: 1 }.as_bytes(), 0);
    let device = DeviceIndex::new(0).unwrap();
    assert_eq!(connections.count(device), 1);
    let kind = ObjectKind::ConnectionIdentifier;
    let listed: ListedObjects = [(kind, connections.list(device, OWNER))].into();
    let responses = ask(&peer, &listed, RDMA_NLDEV_CMD_RES_CM_ID_GET, DUMP, &[]);
    let message: Found = parse(&responses[0].1).into_iter().collect();
    let entry = parse(&message[&RDMA_NLDEV_ATTR_RES_CM_ID]).remove(0);
    let found: Found = parse(&entry.1).into_iter().collect();
    assert_eq!(number(&found, RDMA_NLDEV_ATTR_RES_CM_IDN), PROCESS.into());
    assert_eq!(number(&found, RDMA_NLDEV_ATTR_RES_STATE), 8, "LISTEN");
    assert_eq!(number(&found, RDMA_NLDEV_ATTR_RES_PS), RDMA_PS_TCP.into());
    let source = &found[&RDMA_NLDEV_ATTR_RES_SRC_ADDR];
    assert_eq!((source.len(), &source[..4]), (SOCKADDR_STORAGE, &[2, 0, 0x1c, 0x06][..]));
    assert!(
        !found.contains_key(&RDMA_NLDEV_ATTR_RES_DST_ADDR)
            && !found.contains_key(&RDMA_NLDEV_ATTR_PORT_INDEX)
    );
    let at_port = ask(&peer, &listed, RDMA_NLDEV_CMD_RES_CM_ID_GET, DUMP, &[(RDMA_NLDEV_ATTR_PORT_INDEX, 1)]);
    assert_eq!(at_port.len(), 1, "an ID without a port is not listed");
}
