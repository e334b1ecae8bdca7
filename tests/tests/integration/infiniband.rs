//! The driver on an InfiniBand port: peers are reached by LID, with and without global route header.
//!
//! The port is a subnet of its own, so that both ends of every conversation are queue pairs of one device.

use bareverbs_core::address_handle::{self, AddressHandle, ROUTE_HEADER};
use bareverbs_core::completion_queue::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::MemoryRegion;
use bareverbs_core::port::PortState;
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{
    AddressError, AddressVector, ConnectError, ConnectOptions, Connected, Diagnosis, Mismatch,
    PreparedQueuePair, QueuePair, QueuePairBuilder, RemoteEndpoint, Uc, Ud,
};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_hal_sim::{MemoryConfig, SimWorld};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::PortType;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::LinkConfig;
use bareverbs_sim::nic::{Nic, NicConfig};
use bareverbs_sim::run::Latency;
use bareverbs_tests::node::{Handle, all_access};
use std::rc::Rc;

const Q_KEY: u32 = 0x0bad_cafe;
const BYTES: &[u8] = b"by local identifier";
/// LID of a port that is a subnet of its own.
const LID: u16 = 1;
/// Where messages arrive, after the memory that is sent from.
const THERE: usize = 4096;

struct Port {
    sends: CompletionQueue<Handle>,
    receives: CompletionQueue<Handle>,
    memory: MemoryRegion<Handle>,
    domain: ProtectionDomain<Handle>,
    device: Handle,
}

impl Port {
    fn new() -> Self {
        let world = SimWorld::new(1);
        let node = |name, number| {
            let mac = MacAddress([2, 0, 0, 0, 0, number]);
            let nic = Nic::new(NicConfig { strict: true, ..NicConfig::infiniband(mac) });
            world.add_node(name, nic, Latency::default(), MemoryConfig::unforgiving())
        };
        // The other port exists so that the link can be up.
        let (ours, other) = (node("ours", 1), node("other", 2));
        world.connect(ours, other, LinkConfig::gigabits(100)).unwrap();
        let device = Device::open(world.hal(ours), DeviceConfig::default());
        let device = Rc::new(device.unwrap_or_else(|error| panic!("{error}")));
        let domain = ProtectionDomain::allocate(device.clone()).unwrap();
        let queue =
            || CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 16 }).unwrap();
        let (sends, receives) = (queue(), queue());
        let memory = MemoryRegion::allocate(&domain, 2 * THERE, all_access()).unwrap();
        memory.copy_in(0, BYTES).unwrap();
        Self { sends, receives, memory, domain, device }
    }

    fn builder(&self) -> QueuePairBuilder<'_, Handle> {
        QueuePairBuilder::new(&self.domain, &self.sends, &self.receives)
    }

    fn sent(&mut self) -> WorkCompletion {
        wait(&self.device, &mut self.sends)
    }

    fn received(&mut self) -> WorkCompletion {
        wait(&self.device, &mut self.receives)
    }

    fn bytes(&self, offset: usize) -> Vec<u8> {
        let mut bytes = vec![0; BYTES.len()];
        self.memory.copy_out(offset, &mut bytes).unwrap();
        bytes
    }

    /// SEND from one queue pair to another.
    fn send<S: Connected>(&mut self, from: &mut QueuePair<Handle, S>, to: &mut QueuePair<Handle, S>) {
        let into = [self.memory.slice(THERE, 100).unwrap()];
        to.post_receive(&ReceiveRequest::new(1, &into)).unwrap();
        let slice = [self.memory.slice(0, BYTES.len()).unwrap()];
        from.post_send(&WorkRequest::send(2, &slice)).unwrap();
        assert_eq!((self.sent().wr_id, self.received().byte_count as usize), (2, BYTES.len()));
        assert_eq!(self.bytes(THERE), BYTES);
    }
}

#[track_caller]
fn wait(device: &Handle, queue: &mut CompletionQueue<Handle>) -> WorkCompletion {
    let deadline = device.hal().now() + Duration::from_millis(10);
    loop {
        if let Some(completion) = queue.poll_one().unwrap() {
            assert!(completion.is_success(), "{}", completion.status);
            return completion;
        }
        assert!(device.hal().now() < deadline, "no completion");
        device.hal().relax(deadline);
    }
}

/// Connects two queue pairs to each other; `edit` changes what each knows about the other.
fn connect<S: Connected>(
    (a, b): (PreparedQueuePair<Handle, S>, PreparedQueuePair<Handle, S>),
    edit: impl Fn(RemoteEndpoint) -> RemoteEndpoint,
) -> (QueuePair<Handle, S>, QueuePair<Handle, S>) {
    let (to_a, to_b) = (edit(a.endpoint(0).unwrap()), edit(b.endpoint(0).unwrap()));
    let join = |pair: PreparedQueuePair<Handle, S>, to| {
        pair.connect(&to, ConnectOptions::default()).unwrap_or_else(|error| panic!("{error}"))
    };
    (join(a, to_b), join(b, to_a))
}

/// A peer in our subnet that wants no global route header.
fn local(peer: RemoteEndpoint) -> RemoteEndpoint {
    RemoteEndpoint { gid: Gid::default(), ..peer }
}

#[test]
fn the_port_has_a_lid_and_a_gid_and_no_mac_address() {
    let port = Port::new();
    let attributes = port.device.port().unwrap();
    assert_eq!((attributes.link_layer, attributes.state), (PortType::Ib, PortState::Active));
    assert_eq!((attributes.lid, attributes.lmc, attributes.mac), (LID, 0, MacAddress::default()));
    let gid = port.device.infiniband_gid(0).unwrap();
    assert_eq!(gid.0, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    port.device.infiniband_gid(8).expect_err("the table has eight entries");
    let endpoint = port.builder().build().unwrap().endpoint(0).unwrap();
    assert_eq!((endpoint.lid, endpoint.gid, endpoint.mac), (LID, gid, MacAddress::default()));
}

/// Requirement: IBTA v1.4 §8.3: within a subnet the global route header is optional
#[test]
fn reliable_connections_work_with_and_without_route_header() {
    for edit in [local, |peer| peer] {
        let mut port = Port::new();
        let pairs = connect((port.builder().build().unwrap(), port.builder().build().unwrap()), edit);
        let (mut a, mut b) = pairs;
        port.send(&mut a, &mut b);
        port.send(&mut b, &mut a);
        let (near, remote) = ([port.memory.slice(0, BYTES.len()).unwrap()], port.memory.remote(6000));
        a.post_send(&WorkRequest::write(3, &near, remote)).unwrap();
        assert_eq!((port.sent().wr_id, port.bytes(6000)), (3, BYTES.to_vec()));
        let back = [port.memory.slice(7000, BYTES.len()).unwrap()];
        b.post_send(&WorkRequest::read(4, &back, remote)).unwrap();
        assert_eq!((port.sent().wr_id, port.bytes(7000)), (4, BYTES.to_vec()));
        let seen = a.diagnose().unwrap();
        assert_eq!((seen.suspects().next(), seen.path.lid), (None, LID), "{seen}");
    }
}

#[test]
fn comparing_two_diagnoses_finds_a_wrong_lid() {
    let port = Port::new();
    let build = || port.builder().build().unwrap();
    let (mut a, mut b) = connect((build(), build()), local);
    let (at_a, mut at_b) = (a.diagnose().unwrap(), b.diagnose().unwrap());
    assert_eq!(at_a.mismatches(&at_b).chain(at_b.mismatches(&at_a)).next(), None);
    let apart = |peer| RemoteEndpoint { lid: LID + 4, ..local(peer) };
    let (mut a, _b) = connect((build(), build()), apart);
    let at_a = Diagnosis { remote_qpn: at_b.qpn, ..a.diagnose().unwrap() };
    let believed = LID + 4;
    let found: Vec<Mismatch> = at_a.mismatches(&at_b).collect();
    assert_eq!(found, [Mismatch::Lid { believed, first: LID, lmc: 0 }]);
    assert!(found[0].to_string().contains("sends to LID 0x0005"), "{}", found[0]);
    for (lmc, is_its) in [(2, false), (3, true)] {
        at_b.port.lmc = lmc;
        assert_eq!(at_a.mismatches(&at_b).next().is_none(), is_its, "2^{lmc} LIDs");
    }
    at_b.port.link_layer = PortType::Ethernet;
    let (here, there) = (PortType::Ib, PortType::Ethernet);
    assert_eq!(at_a.mismatches(&at_b).next(), Some(Mismatch::LinkLayer { here, there }));
}

#[test]
fn unreliable_connections_work_by_lid() {
    let mut port = Port::new();
    let build = || port.builder().service::<Uc>().build().unwrap();
    let (mut a, mut b) = connect((build(), build()), local);
    port.send(&mut a, &mut b);
}

/// Requirement: IBTA v1.4 §11.4.1.2: the payload is preceded by 40 bytes with or without a global route header, and the
/// completion says which.
#[test]
fn datagrams_go_to_a_lid() {
    let mut port = Port::new();
    let build = || port.builder().service::<Ud>().q_key(Q_KEY).build().unwrap().ready_to_send().unwrap();
    let (mut a, mut b) = (build(), build());
    for gid in [Gid::default(), port.device.infiniband_gid(0).unwrap()] {
        let into = [port.memory.slice(THERE, 100).unwrap()];
        b.post_receive(&ReceiveRequest::new(1, &into)).unwrap();
        let handle = AddressHandle::new(&port.device, &AddressVector { gid, ..to_lid(LID) }).unwrap();
        let slice = [port.memory.slice(0, BYTES.len()).unwrap()];
        a.post_send_to(&WorkRequest::send(2, &slice), &handle.destination(b.qpn(), Q_KEY)).unwrap();
        port.sent();
        let received = port.received();
        assert_eq!(received.byte_count as usize, ROUTE_HEADER + BYTES.len());
        assert_eq!(port.bytes(THERE + ROUTE_HEADER), BYTES);
        assert_eq!(
            (received.origin.qpn(), received.origin.has_route_header(), received.origin.service_level()),
            (a.qpn(), !gid.is_zero(), 5)
        );
        assert_eq!(received.origin.lid(), LID);
    }
}

/// An answer needs only the completion and the bytes before the payload.
#[test]
fn a_datagram_is_answered_by_what_its_completion_says() {
    let mut port = Port::new();
    let build = || port.builder().service::<Ud>().q_key(Q_KEY).build().unwrap().ready_to_send().unwrap();
    let (mut a, mut b) = (build(), build());
    for gid in [Gid::default(), port.device.infiniband_gid(0).unwrap()] {
        let there = AddressHandle::new(&port.device, &AddressVector { gid, ..to_lid(LID) }).unwrap();
        let (slice, into) =
            ([port.memory.slice(0, BYTES.len()).unwrap()], [port.memory.slice(THERE, 100).unwrap()]);
        b.post_receive(&ReceiveRequest::new(1, &into)).unwrap();
        a.post_send_to(&WorkRequest::send(2, &slice), &there.destination(b.qpn(), Q_KEY)).unwrap();
        port.sent();
        let received = port.received();
        let mut header = [0; ROUTE_HEADER];
        port.memory.copy_out(THERE, &mut header).unwrap();
        let to = |header: &[u8; ROUTE_HEADER]| {
            AddressHandle::to_sender(&port.device, &received, header, MacAddress::default())
        };
        let mut stranger = header;
        stranger[24] ^= 1;
        let refused = to(&stranger).map(|_| ());
        let is_not_ours = matches!(refused, Err(address_handle::AddressHandleError::NotOurs { .. }));
        assert_eq!(is_not_ours, !gid.is_zero(), "{refused:?}");
        let back = to(&header).unwrap();
        a.post_receive(&ReceiveRequest::new(3, &into)).unwrap();
        let answer = back.destination(received.origin.qpn(), Q_KEY);
        b.post_send_to(&WorkRequest::send(4, &slice), &answer).unwrap();
        port.sent();
        let received = port.received();
        assert_eq!(
            (received.wr_id, received.origin.has_route_header(), received.origin.service_level()),
            (3, !gid.is_zero(), 5)
        );
    }
}

fn to_lid(lid: u16) -> AddressVector {
    AddressVector {
        gid_index: 0,
        gid: Gid::default(),
        mac: MacAddress::default(),
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
        service_level: 5,
        udp_source_port: 0,
        lid,
    }
}

/// Requirement: IBTA v1.4 §4.1.3: a port's LID is between 0x0001 and 0xbfff.
#[test]
fn a_peer_without_a_lid_of_a_port_is_refused_before_a_command_is_sent() {
    let port = Port::new();
    for lid in [0, 0xc000, 0xffff] {
        let prepared = port.builder().build().unwrap();
        let remote = RemoteEndpoint { lid, ..prepared.endpoint(0).unwrap() };
        let refused = prepared.connect(&remote, ConnectOptions::default()).map(|_| ()).unwrap_err();
        assert_eq!(refused, ConnectError::Address(AddressError::Lid { lid }));
    }
    let refused = AddressHandle::new(&port.device, &to_lid(0)).unwrap_err();
    assert_eq!(refused, address_handle::AddressHandleError::NoLid);
    let refused = AddressHandle::new(&port.device, &to_lid(0xc001)).unwrap_err();
    assert_eq!(refused, address_handle::AddressHandleError::NoPeer, "a multicast LID needs a GID");
}
