//! Two SMs in one subnet: one on the switch and one behind a port.

use super::*;
use crate::wire::management::administration::record;
use crate::wire::management::attributes::Notice;

const HANDOVER: u32 = 1;
const ACKNOWLEDGE: u32 = 2;
const STANDBY: u8 = 2;
const MASTER: u8 = 3;

fn manager(guid: u64, priority: u8, state: u8) -> SmInfo {
    let mut info = SmInfo::new();
    *info.set_guid(guid).set_priority(priority).set_sm_state(state).set_sm_key(SM_KEY)
}

struct TwoManagers {
    switch: Switch,
    agents: Vec<Agent>,
    /// Set(SMInfo) modifiers that the second port has received.
    told: Vec<u32>,
    /// Number of traps from the switch.
    traps: u32,
    /// Status of the response to Set(SMInfo); `None` means no response.
    responses: Option<u16>,
}

impl TwoManagers {
    fn new(priority: u8) -> Self {
        Self::of(priority, None)
    }

    /// The second port's SM answers a handover with this status.
    fn with_response(priority: u8, status: u16) -> Self {
        Self::of(priority, Some(status))
    }

    fn of(priority: u8, responses: Option<u16>) -> Self {
        let mut agents = vec![Agent::new(0xa), Agent::new(0xb)];
        agents[1].manager = Some(manager(0xb, priority, STANDBY));
        let switch = Switch::infiniband(SubnetConfig { priority: 3, ..SubnetConfig::default() });
        let mut managers = Self { switch, agents, told: Vec::new(), traps: 0, responses };
        for port in 0..2 {
            managers.switch.handle_link(Time::ZERO, port, true);
        }
        managers.converse(Time::ZERO);
        managers
    }

    /// Answers the switch's requests.
    fn converse(&mut self, now: Time) {
        while let Some(egress) = self.switch.poll() {
            self.serve(now, egress);
        }
    }

    /// Handles one packet of the switch, a request or a response.
    fn serve(&mut self, now: Time, egress: Egress) -> Option<SubnetPacket> {
        let Egress::Own { port, frame, .. } = egress else { panic!("{egress:?}") };
        let packet = SubnetPacket::of(&parse(&frame).unwrap()).expect("a subnet management packet");
        if packet.method() == Method::Response {
            return Some(packet);
        }
        if packet.method() == Method::Trap {
            self.traps += 1;
            return None;
        }
        let is_manager = packet.attribute().0 == attribute::SM_INFO;
        self.told.extend((is_manager && packet.method() == Method::Set).then(|| packet.attribute().1));
        if is_manager && packet.method() == Method::Set {
            self.answer_manager(now, port, packet);
        } else if !is_manager || self.agents[port].manager.is_some() {
            let response = self.agents[port].answer(&frame);
            self.switch.handle_frame(now, port, &response);
        }
        None
    }

    fn answer_manager(&mut self, now: Time, port: usize, mut set: SubnetPacket) {
        let Some(status) = self.responses else { return };
        assert!(set.arrive(1));
        set.answer(status);
        self.switch.handle_frame(now, port, &set.to_frame(0, 0).0);
    }

    /// `SMState` of the switch's SM.
    fn state(&mut self) -> u8 {
        let mut asked = SubnetPacket::request(Method::Get, attribute::SM_INFO, 0, 9);
        asked.leave_by(1);
        self.answer(&asked).read::<SmInfo>().expect("SMInfo").sm_state()
    }

    /// The port through which data from the switch's other port leaves for a LID.
    fn exit(&mut self, lid: u16) -> Option<usize> {
        let [high, low] = lid.to_be_bytes();
        self.switch.handle_frame(Time::ZERO, usize::from(lid == 1), &[0, 2, high, low, 0, 0, 0, 0]);
        match self.switch.poll() {
            Some(Egress::Forward { port }) => Some(port),
            _ => None,
        }
    }

    /// The switch's response to Set(SMInfo) from the SM at the second port.
    fn set(&mut self, modifier: u32) -> SubnetPacket {
        let mut packet = SubnetPacket::request(Method::Set, attribute::SM_INFO, modifier, 4);
        packet.write(&self.agents[1].manager.expect("a manager"));
        packet.leave_by(1);
        self.switch.handle_frame(Time::ZERO, 1, &packet.to_frame(0, 0).0);
        loop {
            let egress = self.switch.poll().expect("a response");
            if let Some(response) = self.serve(Time::ZERO, egress) {
                return response;
            }
        }
    }

    /// The response to a request of the second port.
    fn answer(&mut self, request: &SubnetPacket) -> SubnetPacket {
        self.switch.handle_frame(Time::ZERO, 1, &request.to_frame(0, 0).0);
        let Some(Egress::Own { port: 1, frame, .. }) = self.switch.poll() else { panic!("no response") };
        SubnetPacket::of(&parse(&frame).unwrap()).expect("a subnet management packet")
    }

    fn pass(&mut self, until: impl Fn(&Self) -> bool) -> Time {
        for _ in 0..50 {
            let due = self.switch.poll_timeout().expect("a deadline is pending");
            self.switch.handle_timeout(due);
            self.converse(due);
            if until(self) {
                return due;
            }
        }
        panic!("the expected state never came");
    }

    fn yielded() -> Self {
        let mut managers = Self::new(5);
        assert_eq!(managers.told, [HANDOVER]);
        managers.agents[1].manager = Some(manager(0xb, 5, MASTER));
        let response = managers.set(ACKNOWLEDGE);
        let info: SmInfo = response.read().unwrap();
        assert_eq!((response.status(), info.sm_state(), info.priority()), (status::OK, STANDBY, 3));
        managers
    }
}

/// Requirement: IBTA v1.4 §14.4.1: a master hands over only to a standby manager of higher priority.
#[test]
fn a_lower_manager_is_left_alone() {
    let mut managers = TwoManagers::new(2);
    assert_eq!(managers.told, []);
    assert_eq!(managers.set(ACKNOWLEDGE).status(), status::INVALID, "no handover is in progress");
    assert_eq!(managers.switch.members().filter(|member| member.is_active).count(), 2);
}

/// Requirement: IBTA v1.4 §14.4.1: a manager that has handed over configures nothing and responds to no SA request, but
/// polls the master.
#[test]
fn a_manager_that_has_handed_over_stands_by() {
    let mut managers = TwoManagers::yielded();
    let mut port = PortInfo::new();
    port.set_lid(40).set_master_sm_lid(2);
    let mut set = SubnetPacket::request(Method::Set, attribute::PORT_INFO, 0, 5);
    set.write(&port);
    set.leave_by(1);
    let response = managers.answer(&set);
    assert_eq!((response.status(), response.read::<PortInfo>().unwrap().lid()), (status::OK, 40));
    let all = request(method::GET_TABLE, record::NODE, 0, &[0_u8; 0]).to_bytes();
    assert!(send(&mut managers.switch, &managers.agents, 0, &all).is_empty());
    let mut table = SubnetPacket::request(Method::Set, attribute::LINEAR_FORWARDING, 0, 6);
    table.data_mut().fill(1);
    table.leave_by(1);
    assert_eq!(managers.answer(&table).status(), status::OK);
    managers.switch.handle_link(Time::ZERO, 0, false);
    managers.switch.handle_link(Time::ZERO, 0, true);
    managers.agents[0].state = PortState::Initialize;
    let mut rounds = 0;
    while rounds < 20 {
        managers.pass(|_| true);
        rounds += 1;
    }
    assert_eq!(managers.agents[0].state, PortState::Initialize, "activating the port is left to the master");
    assert_eq!(
        managers.traps,
        1 + 5,
        "the master gets one trap for the lost link, and traps for the new link until the attempts run out"
    );
    let mut table = SubnetPacket::request(Method::Get, attribute::LINEAR_FORWARDING, 0, 7);
    table.leave_by(1);
    assert_eq!(managers.answer(&table).data(), [1; 64], "the master's tables stay");
}

/// Requirement: IBTA v1.4 §14.4.1: a response to the handover suffices, as OpenSM does not acknowledge it; after a
/// refusal the manager stays master.
#[test]
fn a_handover_response_needs_no_acknowledgement() {
    for (refused, state) in [(status::OK, STANDBY), (status::INVALID, MASTER)] {
        let mut managers = TwoManagers::with_response(5, refused);
        assert!(managers.told.contains(&HANDOVER));
        assert_eq!(managers.state(), state, "{refused}");
        managers.agents[1].manager = Some(manager(0xb, 5, MASTER));
        assert_eq!(managers.set(ACKNOWLEDGE).status(), status::OK, "a late acknowledgement");
        assert_eq!(managers.state(), STANDBY);
    }
}

/// Requirement: IBTA v1.4 §14.4.1: a standby manager represses trap 144 of another manager; other traps are for the
/// master.
#[test]
fn a_standby_manager_represses_the_trap_of_another_manager() {
    let mut managers = TwoManagers::yielded();
    let mut block = [255_u8; 64];
    block[2] = 2;
    let mut table = SubnetPacket::request(Method::Set, attribute::LINEAR_FORWARDING, 0, 6);
    table.data_mut().copy_from_slice(&block);
    table.leave_by(1);
    assert_eq!(managers.answer(&table).status(), status::OK);
    for (number, responses) in [(144, 1), (128, 0)] {
        let mut notice = Notice::new();
        notice.set_generic(true).set_trap(number).set_issuer_lid(2);
        let mut trap = SubnetPacket::lid_routed(Method::Trap, attribute::NOTICE, 0x99);
        trap.write(&notice);
        managers.switch.handle_frame(Time::ZERO, 1, &trap.to_frame(2, MANAGER_LID).0);
        let mut heard = Vec::new();
        while let Some(Egress::Own { port, frame, .. }) = managers.switch.poll() {
            let packet = SubnetPacket::of(&parse(&frame).unwrap()).expect("a subnet management packet");
            heard.push((port, packet.method(), packet.transaction()));
        }
        assert_eq!(heard, vec![(1, Method::TrapRepress, 0x99); responses], "trap {number}");
    }
}

/// Requirement: IBTA v1.4 §14.4.1: a manager that takes over from a dead master leaves ports active and tables unchanged
/// until discovery is complete.
#[test]
fn a_takeover_stops_no_data() {
    let mut managers = TwoManagers::yielded();
    for agent in &mut managers.agents {
        (agent.state, agent.manager_lid) = (PortState::Active, 2);
    }
    managers.agents[1].manager = None;
    let states =
        |managers: &TwoManagers| managers.agents.iter().all(|agent| agent.state == PortState::Active);
    let is_own =
        |managers: &TwoManagers| managers.agents.iter().all(|agent| agent.manager_lid == MANAGER_LID);
    for _ in 0..50 {
        let due = managers.switch.poll_timeout().expect("a deadline is pending");
        managers.switch.handle_timeout(due);
        while let Some(egress) = managers.switch.poll() {
            managers.serve(due, egress);
            let ways = [1_u16, 2].map(|lid| managers.exit(lid));
            assert_eq!(ways, [Some(0), Some(1)], "LIDs still lead to the same ports");
            assert!(states(&managers));
        }
        if is_own(&managers) {
            break;
        }
    }
    assert!(is_own(&managers) && managers.agents.iter().all(|agent| agent.reregisters));
    assert_eq!(managers.state(), MASTER);
}

/// Requirement: IBTA v1.4 §14.2.5.7: another master may change the P_Keys of port 0; the switch's own manager restores
/// its partitions when it is the master.
#[test]
fn partitions_of_the_own_port_are_those_of_the_master() {
    let mut managers = TwoManagers::yielded();
    let keys = |managers: &mut TwoManagers| {
        let mut asked = SubnetPacket::request(Method::Get, attribute::PARTITION_KEYS, 0, 7);
        asked.leave_by(1);
        managers.answer(&asked).data()[..4].to_vec()
    };
    assert_eq!(keys(&mut managers), [0xff, 0xff, 0, 0]);
    let mut request = SubnetPacket::request(Method::Set, attribute::PARTITION_KEYS, 0, 8);
    request.data_mut()[..4].copy_from_slice(&[0x80, 1, 0x80, 2]);
    request.leave_by(1);
    let response = managers.answer(&request);
    assert_eq!((response.status(), &response.data()[..4]), (status::OK, &[0x80, 1, 0x80, 2][..]));
    let mut beyond = SubnetPacket::request(Method::Set, attribute::PARTITION_KEYS, 1, 8);
    beyond.leave_by(1);
    assert_eq!(managers.answer(&beyond).status(), status::INVALID, "there is only one block");
    assert_eq!(keys(&mut managers), [0x80, 1, 0x80, 2]);
    managers.agents[1].manager = Some(manager(0xb, 5, MASTER));
    managers.set(HANDOVER);
    managers.converse(Time::ZERO);
    assert_eq!(keys(&mut managers), [0xff, 0xff, 0, 0]);
}

/// Requirement: IBTA v1.4 §14.4.1: a standby manager takes over from a dead master; LIDs stay, and clients reregister.
#[test]
fn a_manager_takes_over_from_one_that_has_died() {
    let mut managers = TwoManagers::yielded();
    managers.agents[0].lid = 9;
    managers.agents[1].manager = None;
    for agent in &mut managers.agents {
        (agent.state, agent.manager_lid) = (PortState::Initialize, 77);
    }
    let is_up = |managers: &TwoManagers| managers.agents.iter().all(|agent| agent.state == PortState::Active);
    managers.pass(is_up);
    let after: Vec<_> = managers.agents.iter().map(|agent| (agent.lid, agent.manager_lid)).collect();
    assert_eq!(after, [(9, MANAGER_LID), (2, MANAGER_LID)]);
    assert!(managers.agents.iter().all(|agent| agent.reregisters));
    let nodes = request(method::GET_TABLE, record::NODE, 0, &[0_u8; 0]).to_bytes();
    assert_eq!(send(&mut managers.switch, &managers.agents, 0, &nodes).len(), 1);
}

/// Requirement: IBTA v1.4 §14.4.1: a master may hand the subnet back, which is acknowledged.
#[test]
fn a_subnet_may_be_handed_back() {
    let mut managers = TwoManagers::yielded();
    managers.agents[1].manager = Some(manager(0xb, 1, STANDBY));
    let response = managers.set(HANDOVER);
    assert_eq!(response.read::<SmInfo>().unwrap().sm_state(), MASTER);
    managers.converse(Time::ZERO);
    assert_eq!(managers.told, [HANDOVER, ACKNOWLEDGE]);
    assert!(managers.switch.members().all(|member| member.is_active));
}
