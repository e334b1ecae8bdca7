//! SM state and mastership (IBTA v1.4 §14.4.1): which of several SMs is the master. SMs exchange SMInfo for this.
//!
//! The SM with the higher priority wins, and at equal priority the one with the lower GUID. A master that finds a
//! better SM in standby hands over to it, and goes to standby when the other SM has accepted, either by its response
//! (all that OpenSM sends) or by an acknowledgement. A standby SM polls the master and takes over when the master no
//! longer responds.
//!
//! **What it may not do.** It refuses unknown SMs that use LID routing, because it has no route back. It does not
//! rediscover before a takeover: it becomes master at once, and its sweeps will find a better SM.

use crate::wire::management::attributes::SmInfo;
use crate::wire::management::{Method, SubnetPacket, attribute, status};
use bareverbs_prm::time::{Duration, Time};
use std::collections::VecDeque;

/// Polling interval of the master, time limit of its response, and number of missed responses after which it is
/// considered dead.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(200);
const REQUESTS: u8 = 4;
/// Maximum number of packets waiting for the switch.
const WAITING: usize = 8;
/// Marks transaction IDs of the exchange between SMs.
const OWN_TRANSACTION: u64 = 1 << 62;
/// Attribute modifiers of Set(SMInfo) (IBTA v1.4 §14.4.1).
const HANDOVER: u32 = 1;
const ACKNOWLEDGE: u32 = 2;
const DISABLE: u32 = 3;
const STANDBY: u32 = 4;
const DISCOVER: u32 = 5;

/// `SMState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ManagerRole {
    NotActive = 0,
    Discovering = 1,
    Standby = 2,
    Master = 3,
}

/// What a transition means for mastership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Succession {
    Stay,
    /// Another SM is now the master.
    Yield,
    /// This SM is now the master.
    TakeOver,
}

/// Another SM, and the directed route to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OtherManager {
    pub(super) info: SmInfo,
    pub(super) route: Vec<u8>,
}

/// SM state; see the module.
#[derive(Debug)]
pub(super) struct Mastership {
    own: SmInfo,
    role: ManagerRole,
    /// The master, or the SM that is to become it.
    other: Option<OtherManager>,
    transactions: u64,
    /// Transaction ID of the outstanding poll; 0 if there is none.
    asked: u64,
    /// Transaction ID of the outstanding handover; 0 if there is none.
    offered: u64,
    /// Number of polls without a response.
    missed: u8,
    due: Option<Time>,
    /// Packets and their routes: at most an acknowledgement, a handover and a poll.
    packets: VecDeque<(Vec<u8>, SubnetPacket)>,
}

impl Mastership {
    /// The state of an SM that knows no other.
    pub(super) fn new(guid: u64, sm_key: u64, priority: u8) -> Self {
        let mut own = SmInfo::new();
        own.set_guid(guid).set_sm_key(sm_key).set_priority(priority.min(15));
        let role = ManagerRole::Master;
        let packets = VecDeque::new();
        Self { own, role, other: None, transactions: 0, asked: 0, offered: 0, missed: 0, due: None, packets }
    }

    pub(super) const fn is_master(&self) -> bool {
        matches!(self.role, ManagerRole::Master)
    }

    /// SMInfo with this activity count.
    pub(super) fn info(&self, activity: u32) -> SmInfo {
        let mut info = self.own;
        *info.set_sm_state(self.role as u8).set_act_count(activity)
    }

    /// Whether a transaction belongs to this exchange rather than to a sweep.
    pub(super) const fn is_own(transaction: u64) -> bool {
        transaction & OWN_TRANSACTION != 0
    }

    /// Handles Set(SMInfo) from another SM, whose SMInfo it carries.
    pub(super) fn handle_set(
        &mut self,
        now: Time,
        modifier: u32,
        mut other: OtherManager,
    ) -> Result<Succession, u16> {
        if other.route.is_empty() && self.hands_over_to(&other) {
            other.route = self.other.as_ref().map_or_else(Vec::new, |heir| heir.route.clone());
        }
        if other.info.sm_key() != self.own.sm_key() || other.route.is_empty() {
            return Err(status::INVALID);
        }
        match (self.role, modifier) {
            (ManagerRole::Standby, HANDOVER) => {
                self.send(ACKNOWLEDGE, &other.route);
                Ok(self.take_over())
            }
            // Only a standby SM acknowledges.
            (ManagerRole::Master, HANDOVER) => Ok(self.take_over()),
            (ManagerRole::Master, ACKNOWLEDGE) if self.hands_over_to(&other) => Ok(self.stand_by(now, other)),
            // The response arrived earlier.
            (ManagerRole::Standby, ACKNOWLEDGE) if self.hands_over_to(&other) => Ok(Succession::Stay),
            (ManagerRole::Standby, DISABLE) => {
                (self.role, self.other, self.due) = (ManagerRole::NotActive, None, None);
                Ok(Succession::Stay)
            }
            (ManagerRole::NotActive, STANDBY) => Ok(self.stand_by(now, other)),
            (ManagerRole::Standby, DISCOVER) => Ok(self.take_over()),
            _ => Err(status::INVALID),
        }
    }

    /// Handles an SM that the master discovered. A better one in standby with the same SM_Key receives the subnet.
    pub(super) fn hear(&mut self, other: OtherManager) {
        let state = other.info.sm_state();
        let is_ready = state == ManagerRole::Standby as u8 || state == ManagerRole::Master as u8;
        let is_trusted = other.info.sm_key() == self.own.sm_key();
        if self.is_master() && is_ready && is_trusted && is_greater(&other.info, &self.own) {
            self.offered = self.send(HANDOVER, &other.route);
            self.other = Some(other);
        }
    }

    /// Handles a response: the heir's completes the handover, the master's proves that it is alive. A response from an
    /// SM that is no longer master does not count.
    pub(super) fn handle_response(&mut self, now: Time, response: &SubnetPacket) -> Succession {
        let is_taken = self.is_master()
            && self.offered != 0
            && response.transaction() == self.offered
            && response.status() == status::OK;
        if let Some(heir) = self.other.take_if(|_| is_taken) {
            return self.stand_by(now, heir);
        }
        let is_asked = self.asked != 0 && response.transaction() == self.asked;
        let info: Option<SmInfo> = response.read().filter(|_| is_asked && response.status() == status::OK);
        let lives = |info: &SmInfo| {
            let state = info.sm_state();
            state == ManagerRole::Master as u8 || state == ManagerRole::Discovering as u8
        };
        if info.as_ref().is_some_and(lives) {
            (self.asked, self.missed) = (0, 0);
            self.due = Some(now + POLL_INTERVAL);
        }
        Succession::Stay
    }

    /// Polls the master, or takes over from it.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Succession {
        if self.due.is_none_or(|due| due > now) {
            return Succession::Stay;
        }
        self.missed += u8::from(self.asked != 0);
        let route = self.other.as_ref().map(|other| other.route.clone());
        let (Some(route), true) = (route, self.missed < REQUESTS) else { return self.take_over() };
        self.due = Some(now + RESPONSE_TIMEOUT);
        self.transactions += 1;
        self.asked = OWN_TRANSACTION | self.transactions;
        let request = SubnetPacket::request(Method::Get, attribute::SM_INFO, 0, self.asked);
        self.push(route, request);
        Succession::Stay
    }

    pub(super) const fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// The next packet for another SM, with its egress port.
    pub(super) fn poll_packet(&mut self) -> Option<(u8, SubnetPacket)> {
        let (route, mut packet) = self.packets.pop_front()?;
        let leaves = packet.leave_along(&route);
        route.first().filter(|_| leaves).map(|port| (*port, packet))
    }

    fn hands_over_to(&self, other: &OtherManager) -> bool {
        self.other.as_ref().is_some_and(|heir| heir.info.guid() == other.info.guid())
    }

    fn stand_by(&mut self, now: Time, master: OtherManager) -> Succession {
        self.role = ManagerRole::Standby;
        (self.other, self.asked, self.offered, self.missed) = (Some(master), 0, 0, 0);
        self.due = Some(now + POLL_INTERVAL);
        Succession::Yield
    }

    fn take_over(&mut self) -> Succession {
        let was_master = self.is_master();
        self.role = ManagerRole::Master;
        (self.other, self.due, self.asked, self.offered, self.missed) = (None, None, 0, 0, 0);
        if was_master { Succession::Stay } else { Succession::TakeOver }
    }

    /// Sends Set(SMInfo) with this SM's SMInfo. Returns the transaction ID.
    fn send(&mut self, modifier: u32, route: &[u8]) -> u64 {
        self.transactions += 1;
        let transaction = OWN_TRANSACTION | self.transactions;
        let mut packet = SubnetPacket::request(Method::Set, attribute::SM_INFO, modifier, transaction);
        packet.write(&self.info(self.transactions as u32));
        self.push(route.to_vec(), packet);
        transaction
    }

    /// Queues a packet; drops it if the queue is full. The switch takes packets after every packet it handles.
    fn push(&mut self, route: Vec<u8>, packet: SubnetPacket) {
        if self.packets.len() < WAITING {
            self.packets.push_back((route, packet));
        }
    }
}

/// Whether `one` should be master rather than `other`.
fn is_greater(one: &SmInfo, other: &SmInfo) -> bool {
    (one.priority(), core::cmp::Reverse(one.guid())) > (other.priority(), core::cmp::Reverse(other.guid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 9;

    fn other(guid: u64, priority: u8, role: ManagerRole) -> OtherManager {
        let mut info = SmInfo::new();
        info.set_guid(guid).set_priority(priority).set_sm_key(KEY).set_sm_state(role as u8);
        OtherManager { info, route: vec![3] }
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    /// An SM that has handed over to a better one.
    fn standby() -> Mastership {
        let mut own = Mastership::new(50, KEY, 3);
        let heir = other(7, 4, ManagerRole::Standby);
        own.hear(heir.clone());
        let (port, packet) = own.poll_packet().expect("a handover");
        assert_eq!((port, packet.method(), packet.attribute()), (3, Method::Set, (attribute::SM_INFO, 1)));
        let said: SmInfo = packet.read().expect("SMInfo");
        assert_eq!((said.guid(), said.priority(), said.sm_state()), (50, 3, 3));
        assert_eq!(own.handle_set(at(0), ACKNOWLEDGE, heir), Ok(Succession::Yield));
        own
    }

    /// Requirement: IBTA v1.4 §14.4.1: of two managers the one with the higher priority is the master; if both are equal,
    /// the one with the lower GUID.
    #[test]
    fn the_greater_manager_gets_the_subnet() {
        let gets = |guid, priority, role| {
            let mut own = Mastership::new(50, KEY, 3);
            own.hear(other(guid, priority, role));
            own.poll_packet().is_some()
        };
        for role in [ManagerRole::Standby, ManagerRole::Master] {
            assert!(gets(60, 4, role) && gets(40, 3, role));
            assert!(!gets(40, 2, role) && !gets(60, 3, role) && !gets(50, 3, role));
        }
        assert!(!gets(40, 15, ManagerRole::NotActive) && !gets(40, 15, ManagerRole::Discovering));
    }

    /// Requirement: IBTA v1.4 §14.4.1: a standby manager polls the master, and takes over when it no longer responds.
    #[test]
    fn a_standby_manager_takes_over_from_a_dead_master() {
        let mut own = standby();
        let mut now = own.poll_timeout().expect("the master is polled");
        assert_eq!(own.handle_timeout(now), Succession::Stay);
        let (_, mut request) = own.poll_packet().expect("a request");
        assert_eq!((request.method(), request.attribute()), (Method::Get, (attribute::SM_INFO, 0)));
        request.write(&other(7, 4, ManagerRole::Master).info);
        request.answer(status::OK);
        own.handle_response(now, &request);
        assert_eq!(own.poll_timeout(), Some(now + POLL_INTERVAL));
        let mut asked = 0;
        loop {
            now = own.poll_timeout().expect("the master is polled");
            if own.handle_timeout(now) == Succession::TakeOver {
                break;
            }
            asked += u32::from(own.poll_packet().is_some());
        }
        assert_eq!((asked, own.is_master(), own.poll_timeout()), (4, true, None));
    }

    /// Requirement: IBTA v1.4 §14.4.1: each state accepts the Sets of SMInfo for which it has a transition, and refuses
    /// the others.
    #[test]
    fn each_manager_state_accepts_only_its_sets() {
        let greater = || other(7, 4, ManagerRole::Master);
        let mut own = standby();
        assert_eq!(own.handle_set(at(0), HANDOVER, greater()), Ok(Succession::TakeOver));
        assert_eq!(own.poll_packet().expect("an acknowledgement").1.attribute().1, ACKNOWLEDGE);
        assert_eq!(
            own.handle_set(at(0), HANDOVER, greater()),
            Ok(Succession::Stay),
            "it already has the subnet"
        );
        for modifier in [ACKNOWLEDGE, DISABLE, STANDBY, DISCOVER, 0, 6] {
            assert_eq!(own.handle_set(at(0), modifier, greater()), Err(status::INVALID), "{modifier}");
        }
        let mut own = standby();
        assert_eq!(own.handle_set(at(0), STANDBY, greater()), Err(status::INVALID));
        assert_eq!(own.handle_set(at(0), DISABLE, greater()), Ok(Succession::Stay));
        assert_eq!((own.info(0).sm_state(), own.poll_timeout()), (0, None));
        assert_eq!(own.handle_set(at(0), HANDOVER, greater()), Err(status::INVALID));
        assert_eq!(own.handle_set(at(0), STANDBY, greater()), Ok(Succession::Yield));
        assert_eq!(own.handle_set(at(0), DISCOVER, greater()), Ok(Succession::TakeOver));
    }

    #[test]
    fn a_peer_without_the_key_is_refused() {
        let mut stranger = other(7, 15, ManagerRole::Master);
        stranger.info.set_sm_key(KEY + 1);
        assert_eq!(standby().handle_set(at(0), HANDOVER, stranger.clone()), Err(status::INVALID));
        let mut own = Mastership::new(50, KEY, 3);
        own.hear(stranger);
        assert_eq!(own.poll_packet(), None, "the subnet is not handed over");
    }
}
