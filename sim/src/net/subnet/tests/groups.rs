//! Ports that join, create and leave multicast groups.

use super::*;
use crate::wire::management::administration::{McMemberRecord, record, status as sa_status};

const MGID: u64 = 1;
const PORT_GID: u64 = 1 << 1;
const Q_KEY: u64 = 1 << 2;
const MTU: u64 = 3 << 4;
const P_KEY: u64 = 1 << 7;
const RATE: u64 = 3 << 8;
const LIFE_TIME: u64 = 3 << 10;
const SCOPE: u64 = 1 << 15;
const JOIN_STATE: u64 = 1 << 16;
/// Required components of a join, and of creating a group.
pub(super) const JOIN: u64 = MGID | PORT_GID | JOIN_STATE;
const CREATE: u64 = JOIN | Q_KEY | P_KEY | 1 << 6 | 1 << 12 | 1 << 13;
pub(super) const FULL: u8 = 1;
const NON: u8 = 2;
const SEND_ONLY: u8 = 4;
/// The IPoIB broadcast group of the default partition.
pub(super) const BROADCAST: [u8; 16] =
    [0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
const GROUP: [u8; 16] = [0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

struct Subnet {
    switch: Switch,
    agents: Vec<Agent>,
}

impl Subnet {
    fn new() -> Self {
        let agents = [0xa, 0xb, 0xc].map(Agent::new).into();
        Self::of(agents)
    }

    fn of(agents: Vec<Agent>) -> Self {
        let partitions = Partitions::of_all(&[0xffff, 0x8001]);
        let config = SubnetConfig { partitions, ..SubnetConfig::default() };
        let (switch, agents) = subnet_of(config, agents);
        Self { switch, agents }
    }

    fn ask(
        &mut self,
        from: usize,
        method: u8,
        mask: u64,
        requested: &McMemberRecord,
    ) -> Result<McMemberRecord, u16> {
        let wanted = request(method, record::MC_MEMBER, mask, requested);
        let response = ask(&mut self.switch, &self.agents, from, &wanted);
        let status = response.mad.status();
        if status == 0 { Ok(response.record().expect("a record")) } else { Err(status) }
    }

    fn join(&mut self, from: usize, mgid: [u8; 16], state: u8) -> Result<McMemberRecord, u16> {
        let guid = self.agents[from].guid;
        self.ask(from, SET, JOIN, &member(mgid, guid, state))
    }

    fn create(&mut self, from: usize, mgid: [u8; 16]) -> Result<McMemberRecord, u16> {
        let mut requested = member(mgid, self.agents[from].guid, FULL);
        requested.set_q_key(0x1234).set_partition_key(0xffff);
        self.ask(from, SET, CREATE, &requested)
    }

    fn leave(&mut self, from: usize, mgid: [u8; 16], state: u8) -> Result<McMemberRecord, u16> {
        let guid = self.agents[from].guid;
        self.ask(from, method::DELETE, JOIN, &member(mgid, guid, state))
    }

    /// Ports through which a packet to a multicast LID leaves.
    fn exits(&mut self, lid: u16, from: usize) -> Vec<usize> {
        let [high, low] = lid.to_be_bytes();
        self.switch.handle_frame(Time::ZERO, from, &[0, 2, high, low, 0, 0, 0, 0]);
        let exit = |egress| match egress {
            Egress::Copy { port } => port,
            other => panic!("{other:?}"),
        };
        core::iter::from_fn(|| self.switch.poll_exit()).map(exit).collect()
    }
}

pub(super) fn member(mgid: [u8; 16], guid: u64, state: u8) -> McMemberRecord {
    let mut requested = McMemberRecord::new();
    requested.set_mgid(mgid).set_port_gid(gid(guid)).set_join_state(state);
    requested
}

/// Requirement: IBTA v1.4 §15.2.5.17: a port that joins learns all properties of the group, and receives its packets
/// until it leaves.
#[test]
fn a_port_joins_the_broadcast_group_and_leaves() {
    let mut subnet = Subnet::new();
    let joined = subnet.join(0, BROADCAST, FULL).unwrap();
    assert_eq!((joined.mlid(), joined.q_key(), joined.partition_key()), (0xc000, 0x0b1b, 0xffff));
    assert_eq!((joined.mtu_selector(), joined.mtu(), joined.rate_selector(), joined.rate()), (2, 4, 2, 3));
    assert_eq!((joined.scope(), joined.join_state(), joined.proxy_join()), (2, FULL, false));
    assert_eq!((joined.mgid(), joined.port_gid()), (BROADCAST, gid(0xa)));
    assert!(subnet.exits(0xc000, 1) == [0] && subnet.exits(0xc000, 0).is_empty());
    subnet.join(2, BROADCAST, NON).unwrap();
    assert_eq!(subnet.exits(0xc000, 1), [0, 2]);
    assert_eq!(subnet.leave(0, BROADCAST, FULL).unwrap().join_state(), 0);
    assert_eq!(subnet.exits(0xc000, 1), [2], "the permanent group stays");
    assert_eq!(subnet.join(0, BROADCAST, FULL).unwrap().mlid(), 0xc000);
}

/// Requirement: IBTA v1.4 §15.2.5.17: a send-only member does not receive the group's packets.
#[test]
fn a_send_only_member_does_not_receive() {
    let mut subnet = Subnet::new();
    subnet.join(0, BROADCAST, SEND_ONLY).unwrap();
    assert!(subnet.exits(0xc000, 1).is_empty());
    assert_eq!(subnet.join(0, BROADCAST, FULL).unwrap().join_state(), SEND_ONLY | FULL);
    assert_eq!(subnet.exits(0xc000, 1), [0]);
    assert_eq!(subnet.leave(0, BROADCAST, FULL).unwrap().join_state(), SEND_ONLY);
    assert!(subnet.exits(0xc000, 1).is_empty());
}

/// Requirement: IBTA v1.4 §15.2.5.17: joining a group that does not exist creates it if the port is a full member and
/// describes the group; the group ends with its last full member.
#[test]
fn a_full_member_makes_a_group_that_ends_with_it() {
    let mut subnet = Subnet::new();
    assert_eq!(subnet.join(0, GROUP, FULL), Err(sa_status::INSUFFICIENT_COMPONENTS));
    let mut requested = member(GROUP, 0xa, NON);
    assert_eq!(
        subnet.ask(0, SET, CREATE, requested.set_partition_key(0xffff)),
        Err(sa_status::REQUEST_INVALID)
    );
    let made = subnet.create(0, GROUP).unwrap();
    assert_eq!((made.mlid(), made.q_key(), made.mtu(), made.rate()), (0xc002, 0x1234, 5, 16));
    assert_eq!(subnet.join(1, GROUP, NON).unwrap().mlid(), 0xc002);
    assert_eq!(subnet.exits(0xc002, 2), [0, 1]);
    subnet.leave(0, GROUP, FULL).unwrap();
    assert!(subnet.exits(0xc002, 2).is_empty(), "no member keeps the group alive");
    assert_eq!(subnet.join(1, GROUP, NON), Err(sa_status::REQUEST_INVALID));
    assert_eq!(subnet.create(1, GROUP).unwrap().mlid(), 0xc002, "its LID is free again");
    assert_eq!(subnet.exits(0xc002, 2), [1]);
}

/// Requirement: IBTA v1.4 §15.2.5.17: the administration generates the GID of a group that has none, in the requested
/// scope.
#[test]
fn a_group_without_a_gid_is_given_one() {
    let mut subnet = Subnet::new();
    let mut requested = member([0; 16], 0xb, FULL);
    requested.set_partition_key(0xffff).set_scope(5);
    let made = subnet.ask(1, SET, CREATE | SCOPE, &requested).unwrap();
    assert_eq!((&made.mgid()[..4], made.scope()), (&[0xff, 0x15, 0xa0, 0x1b][..], 5));
    let other = subnet.ask(1, SET, CREATE, &requested).unwrap();
    assert!(other.mgid() != made.mgid() && other.mgid()[1] == 0x12 && other.mlid() != made.mlid());
}

/// Requirement: IBTA v1.4 §15.2.5.17: a multicast GID begins with 0xff, has no reserved flags, and is none of those that
/// only the administration assigns.
#[test]
fn invalid_group_gids_are_refused() {
    let mut subnet = Subnet::new();
    let mut with = |at: usize, byte: u8| {
        let mut mgid = GROUP;
        mgid[at] = byte;
        subnet.create(0, mgid).map(|_| ())
    };
    assert_eq!([with(0, 0xfe), with(1, 0x22), with(1, 0x15)], [Err(0x0200), Err(0x0200), Ok(())]);
    let own = [0xff, 0x12, 0xa0, 0x1b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    assert_eq!(subnet.create(0, own), Err(sa_status::REQUEST_INVALID));
}

/// Requirement: IBTA v1.4 §15.2.5.17: a join has MGID, PortGID and JoinState, and names a port of this subnet.
#[test]
fn a_join_names_group_port_and_state() {
    let mut subnet = Subnet::new();
    for missing in [MGID, PORT_GID, JOIN_STATE] {
        let requested = member(BROADCAST, 0xa, FULL);
        for method in [SET, method::DELETE] {
            let response = subnet.ask(0, method, JOIN & !missing, &requested);
            assert_eq!(response, Err(sa_status::INSUFFICIENT_COMPONENTS));
        }
    }
    assert_eq!(subnet.join(0, BROADCAST, 0), Err(sa_status::REQUEST_INVALID));
    assert_eq!(subnet.ask(0, SET, JOIN, &member(BROADCAST, 0x99, FULL)), Err(sa_status::REQUEST_INVALID));
    let mut foreign = member(BROADCAST, 0xa, FULL);
    foreign.set_port_gid([7; 16]);
    assert_eq!(subnet.ask(0, SET, JOIN, &foreign), Err(sa_status::INVALID_GID));
}

/// Requirement: IBTA v1.4 §15.2.5.17: a join that contradicts the group's properties is refused.
#[test]
fn a_join_agrees_with_the_group() {
    let mut subnet = Subnet::new();
    let mut joins = |mask: u64, edit: &dyn Fn(&mut McMemberRecord)| {
        let mut requested = member(BROADCAST, 0xa, FULL);
        edit(&mut requested);
        subnet.ask(0, SET, JOIN | mask, &requested).map(|_| ())
    };
    let wrong = Err(sa_status::REQUEST_INVALID);
    assert_eq!(
        joins(Q_KEY, &|requested| {
            requested.set_q_key(1);
        }),
        wrong
    );
    assert_eq!(
        joins(P_KEY, &|requested| {
            requested.set_partition_key(0x8001);
        }),
        wrong
    );
    assert_eq!(joins(P_KEY, &|_| ()), wrong, "the key of no partition");
    assert_eq!(
        joins(1 << 12, &|requested| {
            requested.set_service_level(3);
        }),
        wrong
    );
    assert_eq!(
        joins(MTU, &|requested| {
            requested.set_mtu_selector(2).set_mtu(5);
        }),
        wrong
    );
    assert_eq!(
        joins(MTU, &|requested| {
            requested.set_mtu_selector(0).set_mtu(3);
        }),
        Ok(())
    );
    assert_eq!(
        joins(RATE, &|requested| {
            requested.set_rate_selector(1).set_rate(5);
        }),
        wrong
    );
    assert_eq!(
        joins(RATE | Q_KEY, &|requested| {
            requested.set_rate_selector(2).set_rate(3).set_q_key(0xb1b);
        }),
        Ok(())
    );
}

/// Requirement: IBTA v1.4 §15.2.5.17: a port with a smaller MTU or a slower rate than the group, or of another partition,
/// cannot join.
#[test]
fn a_port_that_cannot_hear_a_group_does_not_join() {
    let short = Agent { mtu: 3, ..Agent::new(0xb) };
    let slow = Agent { width: 1, ..Agent::new(0xc) };
    let mut subnet = Subnet::of(vec![Agent::new(0xa), short, slow]);
    assert_eq!(subnet.join(1, BROADCAST, FULL), Err(sa_status::REQUEST_INVALID));
    assert!(subnet.join(2, BROADCAST, FULL).is_ok(), "25 Gb/s suffice for 10");
    subnet.create(0, GROUP).unwrap();
    assert_eq!(subnet.join(2, GROUP, FULL), Err(sa_status::REQUEST_INVALID), "100 Gb/s are not available");
    let mut requested = member([0; 16], 0xa, FULL);
    assert_eq!(
        subnet.ask(0, SET, CREATE, requested.set_partition_key(0x8077)),
        Err(sa_status::REQUEST_INVALID)
    );
}

/// Requirement: IBTA v1.4 §15.2.5.17: only the port itself changes a membership that it made; one made by another port
/// may be changed by others.
#[test]
fn a_membership_belongs_to_its_port() {
    let mut subnet = Subnet::new();
    subnet.join(0, BROADCAST, FULL).unwrap();
    let own = member(BROADCAST, 0xa, FULL);
    assert_eq!(subnet.ask(1, method::DELETE, JOIN, &own), Err(sa_status::REQUEST_INVALID));
    let joined = subnet.ask(1, SET, JOIN, &member(BROADCAST, 0xc, FULL)).unwrap();
    assert!(joined.proxy_join());
    assert_eq!(subnet.exits(0xc000, 1), [0, 2]);
    assert!(subnet.ask(0, method::DELETE, JOIN, &member(BROADCAST, 0xc, FULL)).is_ok());
    assert_eq!(subnet.exits(0xc000, 1), [0]);
}

/// Requirement: IBTA v1.4 §15.2.5.17: a port leaves only groups that it has joined (o15-0.1.14).
#[test]
fn a_port_leaves_what_it_has_joined() {
    let mut subnet = Subnet::new();
    assert_eq!(subnet.leave(0, GROUP, FULL), Err(sa_status::REQUEST_INVALID), "no such group");
    assert_eq!(subnet.leave(0, BROADCAST, FULL), Err(sa_status::REQUEST_INVALID), "no member");
    subnet.join(0, BROADCAST, FULL).unwrap();
    for state in [0, NON, FULL | NON] {
        assert_eq!(subnet.leave(0, BROADCAST, state), Err(sa_status::REQUEST_INVALID), "{state}");
    }
    assert!(subnet.leave(0, BROADCAST, FULL).is_ok());
}

#[test]
fn a_port_whose_cable_is_pulled_is_in_no_group() {
    let mut subnet = Subnet::new();
    subnet.join(0, BROADCAST, FULL).unwrap();
    subnet.create(0, GROUP).unwrap();
    subnet.join(1, GROUP, NON).unwrap();
    subnet.switch.handle_link(Time::ZERO, 0, false);
    assert!(subnet.exits(0xc000, 1).is_empty() && subnet.exits(0xc002, 2).is_empty());
    assert_eq!(subnet.join(1, GROUP, NON), Err(sa_status::REQUEST_INVALID), "the group no longer exists");
}

/// Requirement: IBTA v1.4 §15.2.5.17: a requester without the SM_Key sees groups but not their members.
#[test]
fn members_of_a_group_are_shown_only_with_the_sm_key() {
    let mut subnet = Subnet::new();
    subnet.join(0, BROADCAST, FULL).unwrap();
    subnet.join(1, BROADCAST, NON).unwrap();
    let mut find = |mask, requested: &McMemberRecord, key| {
        let mut wanted = request(method::GET_TABLE, record::MC_MEMBER, mask, requested);
        wanted.sa.set_sm_key(key);
        let (found, _) = table::<McMemberRecord>(&mut subnet.switch, &subnet.agents, 2, &wanted);
        found.iter().map(|member| (member.mlid(), member.port_gid(), member.join_state())).collect::<Vec<_>>()
    };
    let none = McMemberRecord::new();
    assert_eq!(
        find(0, &none, 0),
        [(0xc001, [0; 16], 0), (0xc000, [0; 16], 0)],
        "the groups of both partitions"
    );
    assert_eq!(find(0, &none, SM_KEY), [(0xc000, gid(0xa), FULL), (0xc000, gid(0xb), NON)]);
    assert_eq!(find(JOIN_STATE, &member(GROUP, 0, NON), SM_KEY), [(0xc000, gid(0xb), NON)]);
    assert_eq!(find(PORT_GID, &member(GROUP, 0xa, 0), 0), [(0xc000, [0; 16], 0)]);
    assert_eq!(find(PORT_GID, &member(GROUP, 0xc, 0), 0), []);
    assert_eq!(find(MGID, &member(GROUP, 0, 0), SM_KEY), []);
}

/// Requirement: IBTA v1.4 §15.2.5.17: the packet lifetime of a new group satisfies the request's selector, as its MTU and
/// rate do.
#[test]
fn a_new_group_has_a_life_time_that_suits() {
    let mut subnet = Subnet::new();
    let mut made = |number: u8, selector: u8, life_time: u8| {
        let mut mgid = GROUP;
        mgid[15] = number;
        let mut requested = member(mgid, 0xa, FULL);
        requested.set_q_key(0x1234).set_partition_key(0xffff);
        requested.set_life_time_selector(selector).set_life_time(life_time);
        let made = subnet.ask(0, SET, CREATE | LIFE_TIME, &requested);
        made.map(|record| (record.life_time_selector(), record.life_time()))
    };
    assert_eq!((made(2, 0, 0), made(3, 1, 10), made(4, 2, 7)), (Ok((2, 18)), Ok((2, 9)), Ok((2, 7))));
    assert_eq!(made(5, 3, 0), Ok((2, 18)), "the longest lifetime");
    assert_eq!([made(6, 0, 18), made(7, 1, 0), made(8, 2, 19)], [Err(sa_status::REQUEST_INVALID); 3]);
}

/// The number of groups is limited. LIDs set from outside are not assigned to groups.
#[test]
fn groups_are_limited() {
    let mut subnet = Subnet::new();
    assert!(subnet.switch.set_multicast_ports(0xc002, PortSet::default().with(1)));
    let mut lids = Vec::new();
    let refused = loop {
        let mut mgid = GROUP;
        mgid[12..14].copy_from_slice(&(lids.len() as u16).to_be_bytes());
        match subnet.create(0, mgid) {
            Ok(made) => lids.push(made.mlid()),
            Err(status) => break status,
        }
    };
    assert_eq!((refused, lids.len(), lids[0]), (sa_status::NO_RESOURCES, 1_022, 0xc003));
    assert_eq!(subnet.exits(0xc002, 0), [1]);
}

/// Only joins change the ports of an SA group: it cannot be set from outside, neither before nor after the first join.
#[test]
fn a_group_of_the_administration_is_not_set_from_outside() {
    let mut subnet = Subnet::new();
    let ports = PortSet::default().with(2);
    assert!(!subnet.switch.set_multicast_ports(0xc000, ports), "the broadcast group");
    subnet.join(1, BROADCAST, FULL).expect("a member");
    assert!(!subnet.switch.set_multicast_ports(0xc000, ports));
    assert_eq!(subnet.exits(0xc000, 0), [1]);
    assert!(subnet.switch.set_multicast_ports(0xc002, ports), "a group without members in the SA");
}
