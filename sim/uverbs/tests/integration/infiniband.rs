//! Hosts with InfiniBand ports: LIDs from the subnet manager, connections by LID, with and without a global
//! route header.

use crate::support;

use bareverbs_sim::net::MANAGER_LID;
use bareverbs_sim::wire::infiniband::{destination_lid, destination_qpn, virtual_lane};
use bareverbs_uverbs::uapi::*;
use bareverbs_uverbs::{Errno, VirtualHost};
use support::libmlx5::*;
use support::{BASE, attribute};
use zerocopy::FromZeros;

const LENGTH: u32 = 5000;
const REQUESTER_DONE: u8 = 0;
const RESPONDER_SEND: u8 = 2;

fn host(name: &str, lid: u16) -> VirtualHost {
    VirtualHost::new(name).unwrap().with(format!("lid {lid}").parse().unwrap())
}

struct End {
    peer: Peer,
    cq: Cq,
    qp: Qp,
    data: u64,
    region: RegMrResp,
}

impl End {
    fn new(host: VirtualHost, number: u8) -> Self {
        let mut peer = Peer::on(host, number);
        let cq = peer.create_cq(0xc0, None);
        let requested = QpInitAttributes {
            kind: IB_UVERBS_QPT_RC,
            send: cq.handle,
            receive: cq.handle,
            ..QpInitAttributes::default()
        };
        let qp = peer.create_qp(requested).unwrap();
        let data = peer.allocate(2 * u64::from(LENGTH));
        let region = peer.reg_mr(data, 2 * u64::from(LENGTH), REMOTE).unwrap();
        Self { peer, cq, qp, data, region }
    }

    fn connect(&mut self, dest: QpDest, number: u32) -> Result<(), Errno> {
        self.peer.connect_by(&self.qp, IB_UVERBS_QPT_RC, dest, number)
    }
}

fn way(lid: u16, gid: Option<[u8; 16]>) -> QpDest {
    let is_global = u8::from(gid.is_some());
    QpDest { dlid: lid, sl: 3, dgid: gid.unwrap_or_default(), is_global, port_num: 1, ..QpDest::new_zeroed() }
}

/// Requirement: IBTA v1.4 §14.2.5.6: the port has the LID that the subnet manager assigned, and is active.
#[test]
fn a_port_of_infiniband_has_the_lid_of_its_host() {
    let mut peer = Peer::on(host("a", 7), 2);
    let attributes = [attribute(0, 1, 1), attribute(1, size_of::<QueryPortRespEx>(), BASE)];
    peer.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, &attributes).unwrap();
    let port = peer.read::<QueryPortRespEx>(BASE).legacy_resp;
    assert_eq!((port.lid, port.sm_lid, port.state, port.phys_state), (7, MANAGER_LID, 4, 5));
    assert_eq!((port.link_layer, port.flags, port.active_width, port.active_speed), (1, 0, 2, 32));
    assert_eq!((port.gid_tbl_len, port.pkey_tbl_len, port.active_mtu), (8, 128, 5));
}

#[test]
fn data_go_by_lid_with_and_without_a_global_route_header() {
    for is_global in [false, true] {
        let (mut a, mut b) = (End::new(host("a", 1), 0), End::new(host("b", 2), 1));
        let gid = |end: &End| Some(end.peer.gid()).filter(|_| is_global);
        let (way_a, way_b) = (way(1, gid(&a)), way(2, gid(&b)));
        a.connect(way_b, b.qp.number).unwrap();
        b.connect(way_a, a.qp.number).unwrap();
        let shown = a.peer.query_qp(&a.qp).dest;
        assert_eq!((shown.dlid, shown.sl, shown.is_global), (2, 3, u8::from(is_global)));
        let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * 7 % 251) as u8).collect();
        a.peer.program.put(a.data, &bytes);
        let local = data_segment(a.region.lkey, a.data, LENGTH);
        a.peer.post_send(&mut a.qp, ENTRIES, WRITE, &remote(b.data, b.region.rkey, local));
        let target = b.data + u64::from(LENGTH);
        b.peer.post_receive(&mut b.qp, b.region.lkey, target, LENGTH);
        a.peer.post_send(&mut a.qp, ENTRIES, SEND, &local);
        settle(&mut a.peer, &mut b.peer);
        assert_eq!(a.peer.poll(&mut a.cq).map(|done| done.opcode), Some(REQUESTER_DONE));
        assert_eq!(b.peer.poll(&mut b.cq).map(|done| done.opcode), Some(RESPONDER_SEND));
        assert_eq!(b.peer.bytes(b.data, LENGTH as usize), bytes, "written");
        assert_eq!(b.peer.bytes(target, LENGTH as usize), bytes, "sent");
    }
}

/// Processes of a host share its LID. A packet for another process's queue pair leaves the device; a
/// management packet for the port does not.
#[test]
fn a_packet_for_another_process_of_the_host_leaves_by_the_port() {
    let (mut one, mut other) = (End::new(host("a", 4), 0), End::new(host("a", 4), 1));
    one.connect(way(4, None), other.qp.number).unwrap();
    other.connect(way(4, None), one.qp.number).unwrap();
    let local = data_segment(one.region.lkey, one.data, 8);
    one.peer.post_send(&mut one.qp, ENTRIES, WRITE, &remote(other.data, other.region.rkey, local));
    let frames = one.peer.turn();
    let [frame] = &frames[..] else { panic!("{} frames", frames.len()) };
    assert_eq!((destination_lid(frame), destination_qpn(frame)), (Some(4), Some(other.qp.number)));
    assert_eq!(virtual_lane(frame), Some(0), "data, not management");
    let Peer { uverbs, program, now, .. } = &mut other.peer;
    uverbs.handle_frame(*now, program, frame);
    settle(&mut one.peer, &mut other.peer);
    assert_eq!(one.peer.poll(&mut one.cq).map(|done| done.opcode), Some(REQUESTER_DONE));
}

#[test]
fn a_path_needs_a_lid() {
    let mut end = End::new(host("a", 1), 0);
    let gid = end.peer.gid();
    assert_eq!(end.connect(way(0, Some(gid)), 0x41), Err(Errno::Invalid));
}
