//! Datagrams, groups, shared receive queues, XRC, windows, and queues that change while they are in use.

use crate::support;

use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::wqe::{AddressVector, DataSegment};
use bareverbs_uverbs::uapi::*;
use bareverbs_uverbs::{Errno, VirtualHost};
use support::attribute;
use support::libmlx5::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const Q_KEY: u32 = 0x1111_1111;
const GRH: u32 = 40;
const MESSAGE: &[u8; 16] = b"a datagram, sent";

fn ah_attr(gid: [u8; 16]) -> AhAttr {
    let grh = GlobalRoute { dgid: gid, hop_limit: 64, ..GlobalRoute::new_zeroed() };
    AhAttr { grh, is_global: 1, port_num: 1, ..AhAttr::new_zeroed() }
}

fn create_ah(peer: &mut Peer, attr: AhAttr) -> Result<(u32, MacAddress), Errno> {
    let requested = CreateAh { pd_handle: peer.pd, attr, ..CreateAh::new_zeroed() };
    let response =
        peer.command::<_, CreateAhResp, Mlx5CreateAhResp>(IB_USER_VERBS_CMD_CREATE_AH, &requested, &[])?;
    Ok((response.0.ah_handle, MacAddress(response.1.dmac)))
}

#[test]
fn a_request_that_waits_for_a_neighbour_changes_nothing_and_succeeds_later() {
    let mut peer = Peer::new("a");
    let gid = Gid::from_ipv4(VirtualHost::new("b").unwrap().ipv4()).0;
    let cq = peer.create_cq(1, None);
    let requested = QpInitAttributes {
        kind: IB_UVERBS_QPT_RC,
        send: cq.handle,
        receive: cq.handle,
        ..QpInitAttributes::default()
    };
    let qp = peer.create_qp(requested).unwrap();
    peer.program.is_slow_to_find = true;
    assert_eq!(create_ah(&mut peer, ah_attr(gid)), Err(Errno::Again));
    assert_eq!(peer.connect(&qp, IB_UVERBS_QPT_RC, gid, 9), Err(Errno::Again));
    let initialized = peer.query_qp(&qp).qp_state;
    peer.program.is_slow_to_find = false;
    let (first, mac) = create_ah(&mut peer, ah_attr(gid)).unwrap();
    assert_eq!(mac, VirtualHost::new("b").unwrap().mac());
    let second = create_ah(&mut peer, ah_attr(gid)).unwrap().0;
    assert_eq!(second, first + 1, "the request that had to wait has left no handle");
    assert_eq!(initialized, 1, "INIT: the transition that had to wait was not done");
}

/// A peer with a datagram queue pair, and memory for sending and receiving.
struct Station {
    peer: Peer,
    cq: Cq,
    qp: Qp,
    data: u64,
    key: u32,
}

impl Station {
    fn new(name: &'static str) -> Self {
        let mut peer = Peer::new(name);
        let cq = peer.create_cq(1, None);
        let (kind, queue) = (IB_UVERBS_QPT_UD, cq.handle);
        let requested = QpInitAttributes {
            kind,
            send: queue,
            receive: queue,
            user_handle: 2,
            ..QpInitAttributes::default()
        };
        let qp = peer.create_qp(requested).unwrap();
        peer.connect(&qp, kind, [0; 16], 0).unwrap();
        let data = peer.allocate(4096);
        let key = peer.reg_mr(data, 4096, LOCAL_WRITE).unwrap().lkey;
        Self { peer, cq, qp, data, key }
    }

    fn send(&mut self, gid: [u8; 16], mac: MacAddress, qpn: u32) {
        self.peer.program.put(self.data, MESSAGE);
        let mut address = AddressVector::new();
        address.set_qkey(Q_KEY).set_extended(true).set_dqpn(Qpn::from_low_bits(qpn));
        address.set_udp_sport(0xc123).set_remote_mac(mac).set_hop_limit(64).set_grh(true).set_rgid(gid);
        let data = data_segment(self.key, self.data, MESSAGE.len() as u32);
        self.peer.post_send(&mut self.qp, ENTRIES, SEND, &[address.as_bytes(), &data].concat());
    }

    fn receive(&mut self) -> Option<Completion> {
        let done = self.peer.poll(&mut self.cq)?;
        assert_eq!(self.peer.bytes(self.data + u64::from(GRH), MESSAGE.len()), MESSAGE);
        Some(done)
    }
}

#[test]
fn a_datagram_finds_its_queue_pair_by_an_address_handle() {
    let (mut a, mut b) = (Station::new("a"), Station::new("b"));
    let gid = b.peer.gid();
    let (handle, mac) = create_ah(&mut a.peer, ah_attr(gid)).unwrap();
    assert_eq!(mac, VirtualHost::new("b").unwrap().mac());
    b.peer.post_receive(&mut b.qp, b.key, b.data, GRH + 16);
    a.send(gid, mac, b.qp.number);
    settle(&mut a.peer, &mut b.peer);
    assert_eq!(b.receive().map(|done| done.bytes), Some(GRH + 16));
    assert!(a.peer.poll(&mut a.cq).is_some_and(|done| done.opcode == 0));
    a.peer.destroy(UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, handle.into(), 0).unwrap();
}

#[test]
fn addresses_that_lead_nowhere_are_refused() {
    let mut peer = Peer::new("a");
    let good = ah_attr(VirtualHost::new("b").unwrap().gids()[0].0);
    let wrong_index = GlobalRoute { sgid_index: 9, ..good.grh };
    let cases = [
        (AhAttr { is_global: 0, ..good }, Errno::Invalid),
        (AhAttr { port_num: 2, ..good }, Errno::Invalid),
        (AhAttr { grh: wrong_index, ..good }, Errno::Invalid),
        (ah_attr(Gid::from_ipv4([198, 18, 0, 1]).0), Errno::TimedOut),
    ];
    for (attr, error) in cases {
        assert_eq!(create_ah(&mut peer, attr).err(), Some(error), "{attr:?}");
    }
    let far = MacAddress([2, 3, 4, 5, 6, 7]);
    let link_local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 3, 4, 0xff, 0xfe, 5, 6, 7];
    assert_eq!(create_ah(&mut peer, ah_attr(link_local)).map(|(_, mac)| mac), Ok(far));
}

#[test]
fn members_of_a_group_get_what_is_sent_to_it() {
    let (mut a, mut b) = (Station::new("a"), Station::new("b"));
    let group = Gid::from_ipv4([239, 1, 2, 3]);
    let member = AttachMcast { gid: group.0, qp_handle: b.qp.handle, ..AttachMcast::new_zeroed() };
    for _ in 0..2 {
        b.peer.command::<_, (), ()>(IB_USER_VERBS_CMD_ATTACH_MCAST, &member, &[]).unwrap();
    }
    let (_, mac) = create_ah(&mut a.peer, ah_attr(group.0)).unwrap();
    assert_eq!(Some(mac), group.multicast_mac());
    b.peer.post_receive(&mut b.qp, b.key, b.data, GRH + 16);
    a.send(group.0, mac, 0xff_ffff);
    settle(&mut a.peer, &mut b.peer);
    assert!(b.receive().is_some());
    let handle = b.qp.handle.into();
    let busy = b.peer.destroy(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, handle, 4);
    assert_eq!(busy.err(), Some(Errno::Busy));
    let detach = IB_USER_VERBS_CMD_DETACH_MCAST;
    b.peer.command::<_, (), ()>(detach, &member, &[]).unwrap();
    assert_eq!(b.peer.command::<_, (), ()>(detach, &member, &[]).err(), Some(Errno::Invalid));
    b.peer.destroy(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, handle, 4).unwrap();
}

/// A shared receive queue of 16 entries with one segment each.
struct Shared {
    handle: u64,
    number: u32,
    buffer: u64,
    record: u64,
    posted: u16,
}

impl Shared {
    fn new(peer: &mut Peer, kind: u64, xrc: Option<(u64, u64)>) -> Self {
        let (buffer, record) = (peer.allocate(4096), peer.allocate(64));
        for slot in 0..16_u16 {
            let next = (slot + 1) & 15;
            peer.program.put(buffer + u64::from(slot) * 32 + 2, &next.to_be_bytes());
        }
        let provider =
            Mlx5CreateSrq { buf_addr: buffer, db_addr: record, uidx: 0x51, ..Mlx5CreateSrq::new_zeroed() };
        let scratch = peer.allocate(4096);
        peer.program.put(scratch, provider.as_bytes());
        let domain = peer.pd.into();
        let mut attributes = vec![
            attribute(UVERBS_ATTR_CREATE_SRQ_HANDLE, 0, 0),
            attribute(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, 0, domain),
            attribute(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 8, 0x5e),
            attribute(UVERBS_ATTR_CREATE_SRQ_MAX_WR, 4, 15),
            attribute(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 4, 1),
            attribute(UVERBS_ATTR_CREATE_SRQ_LIMIT, 4, 0),
            attribute(UVERBS_ATTR_CREATE_SRQ_TYPE, 8, kind),
            attribute(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4, scratch + 0x100),
            attribute(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4, scratch + 0x108),
            attribute(UVERBS_ATTR_UHW_IN, 32, scratch),
            attribute(UVERBS_ATTR_UHW_OUT, 8, scratch + 0x110),
        ];
        if let Some((domain, completions)) = xrc {
            attributes.push(attribute(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, 0, domain));
            attributes.push(attribute(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, 0, completions));
        }
        let response = peer.call(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, &attributes).unwrap();
        assert_eq!((peer.read::<u32>(scratch + 0x100), peer.read::<u32>(scratch + 0x108)), (15, 1));
        Self { handle: response[0].data, number: peer.read(scratch + 0x110), buffer, record, posted: 0 }
    }

    fn post(&mut self, peer: &mut Peer, key: u32, address: u64) {
        let at = self.buffer + u64::from(self.posted & 15) * 32 + 16;
        peer.program.put(at, &data_segment(key, address, 64));
        self.posted += 1;
        peer.program.put(self.record, &u32::from(self.posted).to_be_bytes());
    }

    fn limit(&self, peer: &mut Peer) -> u32 {
        let requested = QuerySrq { srq_handle: self.handle as u32, ..QuerySrq::new_zeroed() };
        let response = peer.command::<_, QuerySrqResp, ()>(IB_USER_VERBS_CMD_QUERY_SRQ, &requested, &[]);
        response.unwrap().0.srq_limit
    }
}

/// A sender, and memory that it may send from.
fn sender(kind: u64) -> (Peer, Cq, Qp, [u8; 16]) {
    let mut peer = Peer::new("a");
    let cq = peer.create_cq(1, None);
    let qp = peer
        .create_qp(QpInitAttributes {
            kind,
            send: cq.handle,
            receive: cq.handle,
            ..QpInitAttributes::default()
        })
        .unwrap();
    let data = peer.allocate(4096);
    let region = peer.reg_mr(data, 4096, LOCAL_WRITE).unwrap();
    (peer, cq, qp, data_segment(region.lkey, data, 8))
}

#[test]
fn a_shared_queue_tells_when_few_receives_are_left() {
    let kind = IB_UVERBS_QPT_RC;
    let (mut a, mut sent, mut qp, local) = sender(kind);
    let mut b = Peer::new("b");
    let (cq, data) = (b.create_cq(2, None), b.allocate(4096));
    let key = b.reg_mr(data, 4096, LOCAL_WRITE).unwrap().lkey;
    let mut shared = Shared::new(&mut b, IB_UVERBS_SRQT_BASIC, None);
    let requested = QpInitAttributes {
        kind,
        send: cq.handle,
        receive: cq.handle,
        shared: Some(shared.handle),
        ..QpInitAttributes::default()
    };
    let other = b.create_qp(requested).unwrap();
    let (gid_a, gid_b) = (a.gid(), b.gid());
    a.connect(&qp, kind, gid_b, other.number).unwrap();
    b.connect(&other, kind, gid_a, qp.number).unwrap();
    (0..3).for_each(|_| shared.post(&mut b, key, data));
    let srq_handle = shared.handle as u32;
    let limit = |srq_limit| ModifySrq { srq_handle, attr_mask: 2, max_wr: 0, srq_limit };
    let modify = IB_USER_VERBS_CMD_MODIFY_SRQ;
    assert_eq!(b.command::<_, (), ()>(modify, &limit(16), &[]).err(), Some(Errno::Invalid));
    let grow = ModifySrq { attr_mask: 1, ..limit(0) };
    assert_eq!(b.command::<_, (), ()>(modify, &grow, &[]).err(), Some(Errno::Invalid));
    b.command::<_, (), ()>(modify, &limit(2), &[]).unwrap();
    assert_eq!(shared.limit(&mut b), 2);
    for message in 0..3 {
        let events = b.program.event_files[0].records.len();
        assert_eq!(events, usize::from(message > 1), "before message {message}");
        a.post_send(&mut qp, ENTRIES, SEND, &local);
        settle(&mut a, &mut b);
        assert!(a.poll(&mut sent).is_some_and(|done| done.opcode == 0));
    }
    let event = b.program.event_files[0].records.pop_front().unwrap();
    assert_eq!((event.element(), event.bytes()[8]), (0x5e, 15));
    assert_eq!(shared.limit(&mut b), 0, "told once");
    let busy = b.destroy(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, shared.handle, 4);
    assert_eq!(busy.err(), Some(Errno::Busy));
    b.destroy(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, other.handle.into(), 4).unwrap();
    let told = b.destroy(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, shared.handle, 4).unwrap();
    assert_eq!(told[0], 1, "one event, and it was read");
}

#[test]
fn xrc_delivers_into_the_queue_that_the_message_names() {
    let (mut a, mut sent, mut qp, local) = sender(IB_UVERBS_QPT_XRC_INI);
    let mut b = Peer::new("b");
    let open = OpenXrcd { response: 0, fd: u32::MAX, oflags: 0o100 };
    let number = IB_USER_VERBS_CMD_OPEN_XRCD;
    let domain = u64::from(b.command::<_, u32, ()>(number, &open, &[]).unwrap().0);
    let (mut cq, data) = (b.create_cq(2, None), b.allocate(4096));
    let key = b.reg_mr(data, 4096, LOCAL_WRITE).unwrap().lkey;
    let mut shared = Shared::new(&mut b, IB_UVERBS_SRQT_XRC, Some((domain, cq.handle)));
    let kind = IB_UVERBS_QPT_XRC_TGT;
    let target = b
        .create_qp(QpInitAttributes { kind, xrc_domain: Some(domain), ..QpInitAttributes::default() })
        .unwrap();
    let (gid_a, gid_b) = (a.gid(), b.gid());
    a.connect(&qp, IB_UVERBS_QPT_XRC_INI, gid_b, target.number).unwrap();
    b.connect(&target, kind, gid_a, qp.number).unwrap();
    shared.post(&mut b, key, data);
    let mut named = [0; 16];
    named[..4].copy_from_slice(&shared.number.to_be_bytes());
    // Initiators have no receives, so their send queue begins the buffer.
    a.post_send(&mut qp, 0, SEND, &[named, local].concat());
    settle(&mut a, &mut b);
    assert!(a.poll(&mut sent).is_some_and(|done| done.opcode == 0));
    assert_eq!(b.poll(&mut cq).map(|done| (done.bytes, done.user_index)), Some((8, 0x51)));
    let busy = b.destroy(UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, domain, 0);
    assert_eq!(busy.err(), Some(Errno::Busy));
}

#[test]
fn an_xrc_domain_is_shared_by_the_file_that_names_it() {
    let mut peer = Peer::new("a");
    let fd = 3;
    let mut open = |oflags| {
        let requested = OpenXrcd { response: 0, fd, oflags };
        peer.command::<_, u32, ()>(IB_USER_VERBS_CMD_OPEN_XRCD, &requested, &[]).map(|(handle, ())| handle)
    };
    assert_eq!(open(0).err(), Some(Errno::Again), "no such domain, and no O_CREAT");
    let first = open(0o100).unwrap();
    assert_eq!(open(0o300).err(), Some(Errno::Invalid), "the domain exists, and O_EXCL was given");
    let second = open(0).unwrap();
    for handle in [first, second] {
        peer.destroy(UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, handle.into(), 0).unwrap();
    }
}

#[test]
fn a_completion_queue_goes_on_in_another_buffer() {
    let (mut a, mut cq, mut qp, local) = sender(IB_UVERBS_QPT_RC);
    let gid = a.gid();
    let requested = QpInitAttributes {
        kind: IB_UVERBS_QPT_RC,
        send: cq.handle,
        receive: cq.handle,
        ..QpInitAttributes::default()
    };
    let mut other = a.create_qp(requested).unwrap();
    a.connect(&qp, IB_UVERBS_QPT_RC, gid, other.number).unwrap();
    a.connect(&other, IB_UVERBS_QPT_RC, gid, qp.number).unwrap();
    let buffer = a.allocate(64 * 64);
    a.clear_cq(buffer, 64);
    let requested = ResizeCq { response: 0, cq_handle: cq.handle as u32, cqe: 63 };
    let provider = Mlx5ResizeCq { buf_addr: buffer, cqe_size: 64, reserved0: 0, reserved1: 0 };
    let number = IB_USER_VERBS_CMD_RESIZE_CQ;
    let response = a.command::<_, ResizeCqResp, ()>(number, &requested, provider.as_bytes()).unwrap().0;
    assert_eq!(response.cqe, 63);
    assert_eq!(a.poll(&mut cq).map(|end| end.opcode), Some(5), "the entry that ends the old buffer");
    cq = Cq { buffer, entries: 64, ..cq };
    let memory = DataSegment::ref_from_bytes(&local).unwrap();
    a.post_receive(&mut other, memory.lkey().value(), memory.address() + 64, 8);
    a.post_send(&mut qp, ENTRIES, SEND, &local);
    (0..20).for_each(|_| drop(a.turn()));
    assert!(a.poll(&mut cq).is_some() && a.poll(&mut cq).is_some());
    let moderation = |attr| ExModifyCq { cq_handle: cq.handle as u32, attr_mask: 1, attr, reserved: 0 };
    let number = IB_USER_VERBS_EX_CMD_MODIFY_CQ | 1 << 31;
    assert!(a.command::<_, (), ()>(number, &moderation([10, 0xfff]), &[]).is_ok());
    assert_eq!(a.command::<_, (), ()>(number, &moderation([10, 0x1000]), &[]).err(), Some(Errno::Invalid));
}

#[test]
fn windows_are_made_of_both_types() {
    let mut peer = Peer::new("a");
    let keys = peer.uverbs.nic().live_objects()[1];
    let pd_handle = peer.pd;
    let mut alloc = |mw_type| {
        let requested = AllocMw { response: 0, pd_handle, mw_type, reserved: [0; 3] };
        let response = peer.command::<_, AllocMwResp, ()>(IB_USER_VERBS_CMD_ALLOC_MW, &requested, &[0; 8]);
        response.map(|(response, ())| response)
    };
    let (first, second) = (alloc(1).unwrap(), alloc(2).unwrap());
    assert_ne!(first.rkey, second.rkey);
    assert_eq!(alloc(3).err(), Some(Errno::Invalid));
    assert_eq!(peer.uverbs.nic().live_objects()[1], keys + 2);
    for window in [first, second] {
        peer.destroy(UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, window.mw_handle.into(), 0).unwrap();
    }
}

#[test]
fn requests_rung_before_a_resize_complete_before_it() {
    let (mut a, b) = (Station::new("a"), Station::new("b"));
    let (gid, mac) = (b.peer.gid(), VirtualHost::new("b").unwrap().mac());
    (0..3).for_each(|_| a.send(gid, mac, b.qp.number));
    let buffer = a.peer.allocate(128);
    let requested = ResizeCq { response: 0, cq_handle: a.cq.handle as u32, cqe: 1 };
    let provider = Mlx5ResizeCq { buf_addr: buffer, cqe_size: 64, reserved0: 0, reserved1: 0 };
    let small =
        a.peer.command::<_, ResizeCqResp, ()>(IB_USER_VERBS_CMD_RESIZE_CQ, &requested, provider.as_bytes());
    assert_eq!(small.err(), Some(Errno::Invalid), "it holds three completions");
    assert_eq!(a.peer.turn().len(), 3, "the datagrams go out all the same");
}
