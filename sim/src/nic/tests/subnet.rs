//! Two InfiniBand ports at a switch with an SM: LIDs, states, packets between devices, partitions.

use super::host::Host;
use super::management::{make_management, post_mad, post_receive, received};
use super::verbs::{Node, create_qp, data, vector_to};
use crate::net::{Egress, MANAGER_LID, Partitions, PortSet, SubnetConfig, Switch};
use crate::nic::{NicConfig, SubnetMembership};
use crate::wire::infiniband::parse;
use crate::wire::management::administration::{AdministrationPacket, McMemberRecord, PathRecord, record};
use crate::wire::management::attributes::{KeyDetails, Notice};
use crate::wire::management::{Method, SIZE, SubnetPacket, attribute, class};
use bareverbs_prm::command::hca::{AccessRegisterIn, AccessRegisterOut};
use bareverbs_prm::command::ib_port::{
    HcaVportContext, QueryHcaVportContextIn, QueryHcaVportContextOut, QueryVportCounterIn,
    QueryVportCounterOut,
};
use bareverbs_prm::command::multicast::{AttachToMcgIn, AttachToMcgOut};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::{
    CommandOpcode as Op, CqeOpcode, EventType, PortChange, RegisterId, ServiceType, WqeOpcode,
};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const QKEY: u32 = 0x1111_1111;

struct Pair {
    switch: Switch,
    nodes: [Node; 2],
}

fn config() -> NicConfig {
    NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(MacAddress::default()) }
}

fn node(number: u8) -> Node {
    let mut node = Node::new(number, config());
    node.host.nic.set_link_up(false);
    node
}

impl Pair {
    /// Two ports with cables, after everything that follows from plugging them in.
    fn new(subnet: SubnetConfig) -> Self {
        let mut pair = Self { switch: Switch::infiniband(subnet), nodes: [node(1), node(2)] };
        for port in 0..2 {
            let Host { nic, memory, now, .. } = &mut pair.nodes[port].host;
            nic.set_link_up(true);
            nic.handle_timeout(*now, memory);
            pair.switch.handle_link(*now, port, true);
        }
        pair.run();
        pair
    }

    fn deliver(&mut self, port: usize, frame: &[u8]) {
        let Host { nic, memory, now, .. } = &mut self.nodes[port].host;
        nic.handle_frame(*now, memory, frame);
    }

    /// Moves frames until there are none.
    fn run(&mut self) {
        let mut frame = crate::wire::FrameBuffer::new();
        loop {
            let mut quiet = true;
            for port in 0..2 {
                let Host { nic, memory, now, .. } = &mut self.nodes[port].host;
                if nic.poll_transmit(*now, memory, &mut frame).is_some() {
                    quiet = false;
                    self.switch.handle_frame(*now, port, &frame);
                    self.poll_switch(&frame);
                }
            }
            if quiet && !self.poll_switch(&[]) {
                return;
            }
        }
    }

    /// Delivers the frame that leaves the switch after `frame` entered it; returns false if there is none.
    fn poll_switch(&mut self, frame: &[u8]) -> bool {
        let mut leaves = false;
        while let Some(egress) = self.switch.poll() {
            leaves = true;
            match egress {
                Egress::Forward { port } | Egress::Copy { port } => self.deliver(port, frame),
                Egress::Own { port, frame, .. } => self.deliver(port, &frame),
            }
        }
        leaves
    }

    fn port(&mut self, index: usize) -> HcaVportContext {
        let (out, _): (QueryHcaVportContextOut, _) =
            self.nodes[index].host.run(Op::QueryHcaVportContext, 0, QueryHcaVportContextIn::new()).unwrap();
        *out.hca_vport_context()
    }

    /// Connects the queue pairs of both nodes by LID and, if `global`, also by GID.
    fn connect(&mut self, global: bool) {
        let ends: Vec<_> = (0..2)
            .map(|index| {
                let gid = Gid(self.nodes[index].host.nic.shared.port.addresses()[0].source_l3_address());
                (self.nodes[index].qp.qpn, gid, self.port(index).lid())
            })
            .collect();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let (qpn, gid, lid) = ends[1 - index];
            node.connect((qpn, gid, MacAddress::default()), |c| {
                c.primary_address_path_mut().set_rlid(lid).set_grh(global).set_sl(3).set_src_addr_index(0);
            });
        }
    }

    fn send(&mut self) {
        let [first, second] = &mut self.nodes;
        first.host.memory.put(first.mr.iova, b"from one");
        second.post_receive(&[second.mr.sge(0x1000, 8)]);
        let segment = data(first.mr.sge(0, 8));
        first.post(WqeOpcode::Send, &segment);
        self.run();
    }
}

/// Requirement: IBTA v1.4 §7.2.7: a port goes from Initialize through Armed to Active when the subnet manager says so.
#[test]
fn the_manager_gives_lids_and_makes_ports_active() {
    let partitions = Partitions::of_all(&[0xffff, 0x8001]);
    let mut pair = Pair::new(SubnetConfig { lmc: 1, partitions, ..SubnetConfig::default() });
    let (one, two) = (pair.port(0), pair.port(1));
    assert_eq!((one.lid(), one.lmc(), one.port_state(), one.port_physical_state()), (2, 1, 4, 5));
    assert_eq!((two.lid(), two.sm_lid(), two.vport_state(), two.subnet_timeout()), (4, MANAGER_LID, 4, 18));
    let changes: Vec<u8> = core::iter::from_fn(|| pair.nodes[0].poll_event())
        .filter(|event| event.kind() == EventType::PortChange)
        .map(|event| event.sub_type())
        .collect();
    let expected = [PortChange::Initialized, PortChange::Pkey, PortChange::Lid, PortChange::Active];
    assert_eq!(changes, expected.map(PortChange::raw));
    pair.nodes[1].host.nic.set_link_up(false);
    assert_eq!(pair.port(1).port_state(), 1);
}

/// Requirement: IBTA v1.4 §9.6.1.2: packets of a connection carry the LIDs of both ends, and a global route header only
/// where the address vector has one.
#[test]
fn a_connection_crosses_the_switch_with_and_without_a_route_header() {
    for global in [false, true] {
        let mut pair = Pair::new(SubnetConfig::default());
        pair.connect(global);
        pair.send();
        assert_eq!(pair.nodes[0].expect().opcode(), CqeOpcode::Requester);
        assert_eq!(pair.nodes[1].expect().opcode(), CqeOpcode::ResponderSend);
        let second = &pair.nodes[1];
        assert_eq!(second.host.memory.slice(second.mr.iova + 0x1000, 8), b"from one");
        assert!(pair.switch.counters().forwarded >= 2, "the message and its acknowledgement");
        assert_eq!(second.host.nic.counters().frames_looped_back, 0);
    }
}

fn make_datagram(node: &mut Node) {
    make_datagram_with(node, |_| {});
}

fn make_datagram_with(node: &mut Node, edit: impl Fn(&mut QueuePairContext)) {
    node.qp = create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |c| {
        edit(c.set_st(ServiceType::Ud));
    })
    .unwrap();
    let key = |c: &mut QueuePairContext| {
        c.set_q_key(QKEY).set_log_msg_max(12);
    };
    for step in [Op::ResetToInitQp, Op::InitToRtrQp, Op::RtrToRtsQp] {
        node.modify(step, key).unwrap();
    }
}

/// Requirement: IBTA v1.4 §11.4.1.2: the completion of a datagram has the LID and the service level of the sender, and
/// says whether a global route header precedes the payload.
#[test]
fn a_datagram_crosses_the_switch() {
    let mut pair = Pair::new(SubnetConfig::default());
    pair.nodes.iter_mut().for_each(make_datagram);
    let gid = pair.nodes[1].host.nic.shared.port.addresses()[0].source_l3_address();
    for global in [false, true] {
        let [first, second] = &mut pair.nodes;
        first.host.memory.put(first.mr.iova, b"datagram");
        second.post_receive(&[second.mr.sge(0x1000, 48)]);
        let mut vector = vector_to(second.qp.qpn, QKEY);
        vector.set_rlid(2).set_sl(6).set_grh(global).set_rgid(gid).set_hop_limit(1);
        let segments = [vector.as_bytes(), &data(first.mr.sge(0, 8))].concat();
        first.post(WqeOpcode::Send, &segments);
        pair.run();
        assert_eq!(pair.nodes[0].expect().opcode(), CqeOpcode::Requester);
        let sender = pair.nodes[0].qp.qpn;
        let entry = pair.nodes[1].expect();
        assert_eq!((entry.byte_count(), entry.slid(), entry.service_level()), (48, 1, 6));
        assert_eq!((entry.remote_qpn(), entry.grh()), (sender, u8::from(global)));
        let second = &pair.nodes[1];
        assert_eq!(second.host.memory.slice(second.mr.iova + 0x1000 + 40, 8), b"datagram");
    }
}

/// LID of a multicast group, and a GID with that LID.
const GROUP_LID: u16 = 0xc007;
const GROUP: Gid = Gid([0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);

fn join(node: &mut Node, group: Gid) {
    let mut input = AttachToMcgIn::new();
    input.set_qpn(node.qp.qpn).set_multicast_gid(group.0);
    node.host.run::<_, AttachToMcgOut>(Op::AttachToMcg, 0, input).unwrap();
}

fn vport_counters(node: &mut Node) -> QueryVportCounterOut {
    node.host.run(Op::QueryVportCounter, 0, QueryVportCounterIn::new()).unwrap().0
}

impl Pair {
    /// Two ports, each with a datagram queue pair, and a switch that has both ports in the group.
    fn of_group(edit: impl Fn(&mut QueuePairContext)) -> Self {
        let mut pair = Self::new(SubnetConfig::default());
        pair.nodes.iter_mut().for_each(|node| make_datagram_with(node, &edit));
        assert!(pair.switch.set_multicast_ports(GROUP_LID, PortSet::default().with(0).with(1)));
        pair
    }

    /// Sends from the first node to the LID of the group, with or without a global route header. Returns how
    /// many copies each node received.
    fn send_to_group(&mut self, global: bool) -> [usize; 2] {
        self.send_to_lid(GROUP_LID, global)
    }

    fn send_to_lid(&mut self, lid: u16, global: bool) -> [usize; 2] {
        self.nodes.iter_mut().for_each(|node| node.post_receive(&[node.mr.sge(0x1000, 48)]));
        let first = &mut self.nodes[0];
        first.host.memory.put(first.mr.iova, b"to group");
        let mut vector = vector_to(Qpn::from_low_bits(0xff_ffff), QKEY);
        vector.set_rlid(lid).set_grh(global).set_rgid(GROUP.0).set_hop_limit(1);
        let segments = [vector.as_bytes(), &data(first.mr.sge(0, 8))].concat();
        first.post(WqeOpcode::Send, &segments);
        self.run();
        let mut copies = [0; 2];
        for (node, copies) in self.nodes.iter_mut().zip(&mut copies) {
            while let Some(entry) = node.poll() {
                *copies += usize::from(entry.opcode() == CqeOpcode::ResponderSend);
            }
        }
        copies
    }
}

/// Requirement: IBTA v1.4 §10.5.2: a datagram to a multicast group reaches every member with a global route header that
/// names the group; §9.6.1.1: without that header it reaches none.
#[test]
fn a_datagram_to_a_group_crosses_the_switch() {
    let mut pair = Pair::of_group(|_| {});
    assert_eq!(pair.send_to_group(true), [0, 0], "the group has no members");
    assert_eq!(pair.nodes[1].host.nic.counters().frames_foreign, 1);
    join(&mut pair.nodes[1], GROUP);
    assert_eq!(pair.send_to_group(true), [0, 1]);
    let second = &pair.nodes[1].host.memory;
    let received = second.slice(pair.nodes[1].mr.iova + 0x1000, 48);
    assert_eq!((&received[24..40], &received[40..]), (&GROUP.0[..], &b"to group"[..]));
    join(&mut pair.nodes[0], GROUP);
    assert_eq!(pair.send_to_group(true), [1, 1], "the sender is a member too");
    assert_eq!(pair.send_to_group(false), [0, 0]);
    let [sent, received] = pair.nodes.each_mut().map(vport_counters);
    assert_eq!((sent.transmitted_ib_multicast_packets(), received.received_ib_multicast_packets()), (3, 2));
}

impl Pair {
    /// Sends a request to subnet administration from a node whose queue pair is a QP1, and returns the
    /// response that arrives there.
    fn ask(
        &mut self,
        index: usize,
        method: u8,
        number: u16,
        mask: u64,
        record: &[u8],
    ) -> AdministrationPacket {
        let node = &mut self.nodes[index];
        post_receive(node);
        let mut packet = AdministrationPacket::of(&[0; SIZE]);
        packet.mad.set_base_version(1).set_class(class::ADMINISTRATION).set_class_version(2);
        packet.mad.set_method(method).set_attribute(number).set_transaction(9);
        packet.sa.set_component_mask(mask);
        packet.data[..record.len()].copy_from_slice(record);
        post_mad(node, MANAGER_LID, 1, &packet.to_bytes());
        self.run();
        AdministrationPacket::of(&received(&mut self.nodes[index]).expect("a response"))
    }

    fn gid(&self, index: usize) -> [u8; 16] {
        self.nodes[index].host.nic.shared.port.addresses()[0].source_l3_address()
    }
}

/// Requirement: IBTA v1.4 §15.4.1: the subnet administration responds to queue pair 1 of a port at the LID that PortInfo
/// has for the manager.
#[test]
fn the_administration_answers_queue_pair_1_of_a_port() {
    let mut pair = Pair::new(SubnetConfig::default());
    make_management(&mut pair.nodes[0], ServiceType::Qp1);
    let mut requested = PathRecord::new();
    requested.set_sgid(pair.gid(0)).set_dgid(pair.gid(1)).set_number_of_paths(1);
    let response = pair.ask(0, 1, record::PATH, 1 << 2 | 1 << 3 | 1 << 12, requested.as_bytes());
    let path: PathRecord = response.record().expect("a path");
    assert_eq!((response.mad.method(), response.mad.status(), response.mad.transaction()), (0x81, 0, 9));
    assert_eq!((path.slid(), path.dlid(), path.mtu(), path.partition_key()), (1, 2, 5, 0xffff));
}

/// Requirement: IBTA v1.4 §15.2.5.17: a port that joined a group at the administration receives packets for the group's
/// LID until it leaves.
#[test]
fn a_port_that_joins_a_group_hears_it() {
    for (leaves, copies) in [(false, [0, 1]), (true, [0, 0])] {
        let mut pair = Pair::new(SubnetConfig::default());
        make_management(&mut pair.nodes[1], ServiceType::Qp1);
        let mut requested = McMemberRecord::new();
        requested.set_mgid(GROUP.0).set_port_gid(pair.gid(1)).set_join_state(1);
        requested.set_q_key(QKEY).set_partition_key(0xffff);
        let response = pair.ask(1, 2, record::MC_MEMBER, 0x1_30c7, requested.as_bytes());
        let member: McMemberRecord = response.record().expect("a member");
        assert_eq!((response.mad.status(), member.mlid()), (0, 0xc001));
        if leaves {
            let response = pair.ask(1, 0x15, record::MC_MEMBER, 0x1_0003, requested.as_bytes());
            assert_eq!((response.mad.method(), response.mad.status()), (0x95, 0));
        }
        pair.nodes.iter_mut().for_each(make_datagram);
        join(&mut pair.nodes[1], GROUP);
        assert_eq!(pair.send_to_lid(0xc001, true), copies);
    }
}

/// Requirement: IBTA v1.4 §10.5.1: multicast groups may share a LID; ports tell them apart by GID.
#[test]
fn a_member_of_another_group_with_the_same_lid_receives_nothing() {
    let mut pair = Pair::of_group(|_| {});
    let Gid(mut other) = GROUP;
    other[15] += 1;
    join(&mut pair.nodes[1], Gid(other));
    assert_eq!(pair.send_to_group(true), [0, 0]);
}

#[test]
fn a_member_that_blocks_its_own_multicasts_does_not_hear_them() {
    let mut pair = Pair::of_group(|c| {
        c.set_block_lb_mc(true);
    });
    pair.nodes.iter_mut().for_each(|node| join(node, GROUP));
    assert_eq!(pair.send_to_group(true), [0, 1]);
}

/// Requirement: IBTA v1.4 §10.9.3: two limited members of a partition cannot communicate.
#[test]
fn limited_members_of_a_partition_do_not_hear_each_other() {
    let mut pair =
        Pair::new(SubnetConfig { partitions: Partitions::of_all(&[0x1234]), ..SubnetConfig::default() });
    pair.connect(false);
    pair.send();
    pair.nodes[0].expect_none();
    assert_eq!(pair.nodes[1].host.nic.counters().frames_bad_pkey, 1);
    let mut pair =
        Pair::new(SubnetConfig { partitions: Partitions::of_all(&[0x9234]), ..SubnetConfig::default() });
    pair.connect(false);
    pair.send();
    assert_eq!(pair.nodes[0].expect().opcode(), CqeOpcode::Requester);
}

/// Requirement: IBTA v1.4 §14.2.5.1: a packet with a foreign P_Key is counted, and trap 257 tells the manager until it is
/// repressed.
#[test]
fn a_foreign_p_key_is_counted_and_reported_to_the_manager() {
    let mut pair =
        Pair::new(SubnetConfig { partitions: Partitions::of_all(&[0x1234]), ..SubnetConfig::default() });
    pair.connect(false);
    pair.send();
    let (one, two) = (pair.port(0).lid(), pair.port(1).lid());
    let (from, to) = (pair.nodes[0].qp.qpn, pair.nodes[1].qp.qpn);
    assert_eq!(pair.port(1).pkey_violation_counter(), 1);
    let Host { nic, memory, now, .. } = &mut pair.nodes[1].host;
    assert_eq!(nic.poll_timeout(), Some(*now));
    nic.handle_timeout(*now, memory);
    let mut frame = crate::wire::FrameBuffer::new();
    nic.poll_transmit(*now, memory, &mut frame).expect("a trap");
    let packet = parse(&frame).expect("a packet");
    let trap = SubnetPacket::of(&packet).expect("a subnet management packet");
    let notice: Notice = trap.read().unwrap();
    let details = KeyDetails::read_from_bytes(&notice.details()).unwrap();
    assert_eq!(
        (trap.method(), notice.trap(), notice.issuer_lid(), notice.kind()),
        (Method::Trap, 257, two, 2)
    );
    assert_eq!((details.source_lid(), details.destination_lid(), details.key()), (one, two, 0x1234));
    assert_eq!((details.source_qp(), details.destination_qp()), (from.value(), to.value()));
    assert!(nic.poll_timeout().is_some_and(|due| due > *now), "the trap is repeated");
    pair.switch.handle_frame(pair.nodes[1].host.now, 1, &frame);
    assert!(pair.poll_switch(&[]));
    let next = pair.nodes[1].host.nic.poll_timeout();
    pair.send();
    assert_eq!(pair.port(1).pkey_violation_counter(), 2);
    assert_eq!(
        pair.nodes[1].host.nic.poll_timeout(),
        next,
        "the trap was repressed, and it is too early for another one"
    );
}

/// Requirement: IBTA v1.4 §14.2.5.1: trap 144 says that the node's description has changed. The manager then asks for it.
#[test]
fn the_manager_learns_what_a_node_is_called() {
    let mut pair = Pair::new(SubnetConfig::default());
    let mut name = [0; 64];
    name[..6].copy_from_slice(b"rack 7");
    let mut input = AccessRegisterIn::new();
    input.set_register_id(RegisterId::NodeDesc);
    let host = &mut pair.nodes[1].host;
    host.command::<_, AccessRegisterOut>(Op::AccessReg, 0, input, &name, 16 + 64).expect("a register");
    let Host { nic, memory, now, .. } = host;
    nic.handle_timeout(*now, memory);
    pair.run();
    let names: Vec<_> =
        pair.switch.topology().unwrap().nodes.into_iter().map(|node| node.description).collect();
    assert_eq!(names[1..], ["", "rack 7"]);
}

/// Requirement: IBTA v1.4 §7.2.7: a port that is not active sends and accepts only subnet management packets.
#[test]
fn a_port_without_a_manager_stays_in_initialize() {
    let mut node = node(1);
    node.host.nic.set_link_up(true);
    let (out, _): (QueryHcaVportContextOut, _) =
        node.host.run(Op::QueryHcaVportContext, 0, QueryHcaVportContextIn::new()).unwrap();
    assert_eq!((out.hca_vport_context().port_state(), out.hca_vport_context().lid()), (2, 0));
    make_datagram(&mut node);
    let mut vector = vector_to(Qpn::default(), QKEY);
    vector.set_rlid(7);
    let segments = [vector.as_bytes(), &data(node.mr.sge(0, 8))].concat();
    node.post(WqeOpcode::Send, &segments);
    let Host { nic, memory, now, .. } = &mut node.host;
    assert!(nic.poll_transmit(*now, memory, &mut crate::wire::FrameBuffer::new()).is_none());
    assert_eq!(nic.counters().frames_without_path, 1);
}

/// A reset clears the LID. The SM's next sweep finds the port and assigns the LID again.
#[test]
fn a_reset_port_is_found_again() {
    let mut pair = Pair::new(SubnetConfig::default());
    let now = pair.nodes[1].host.now;
    pair.nodes[1].host.nic.reset(now);
    assert_eq!(pair.nodes[1].host.nic.shared.port.hca_vport.lid(), 0);
    let later = pair.switch.poll_timeout().expect("a sweep");
    pair.switch.handle_timeout(later);
    pair.run();
    assert_eq!(pair.nodes[1].host.nic.shared.port.hca_vport.lid(), 2);
}

proptest! {
    /// Whatever an SM sends, the agent answers it or leaves it to an SM on the host, and the port can still
    /// be queried.
    #[test]
    fn the_agent_survives_arbitrary_packets(
        method: u8, number in 0x0fu16..0x22, modifier: u32, content in proptest::collection::vec(any::<u8>(), 64),
    ) {
        let mut node = node(1);
        node.host.nic.set_link_up(true);
        let method = if method & 1 == 0 { Method::Get } else { Method::Set };
        let mut packet = SubnetPacket::request(method, number, modifier, 1);
        packet.data_mut().copy_from_slice(&content);
        packet.leave_by(1);
        let Host { nic, memory, now, .. } = &mut node.host;
        nic.handle_frame(*now, memory, &packet.to_frame(0, 0).0);
        let mut response = crate::wire::FrameBuffer::new();
        let answered = nic.poll_transmit(*now, memory, &mut response).is_some();
        prop_assert_eq!(answered, number != attribute::SM_INFO);
        prop_assert!(nic.shared.port.hca_vport.lid() < 0xc000);
    }
}
