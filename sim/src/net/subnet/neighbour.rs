//! What is at a linked port of a switch, and how the manager brings it up.
//!
//! The port of an adapter is brought up by five requests: who are you (NodeInfo), what are you called (NodeDescription), be of these partitions
//! (P_KeyTable), have this LID and be armed (PortInfo), be active (PortInfo). Who takes over from another manager asks for the LID and the state that the
//! port has before; one that is active stays so. One with a manager of its own is asked for SMInfo at each sweep. A switch is only asked who it is: the rest is
//! `remote_switch`'s.

use super::agent::{MANAGER_LID, SUBNET_TIMEOUT};
use super::config::SubnetConfig;
use super::end_port::Portrait;
use super::enforcement::table_of;
use super::events::ServiceChange;
use super::exchange::Exchange;
use super::switch_port::SwitchPort;
use crate::wire::management::attributes::{PortInfo, SmInfo};
use crate::wire::management::{Method, PortState, SubnetPacket, attribute, node_type};
use bareverbs_prm::time::Time;

/// `CapabilityMask`: a manager is there (IBTA v1.4 §14.2.5.6).
const IS_MANAGER: u32 = 1 << 1;
/// `ClientReregister` of PortInfo, byte and bit: what the administration before this one knew is lost.
const CLIENT_REREGISTER: (usize, u8) = (51, 0x80);

/// Tables that are read once, at the first sweep after a port has come up: GUIDs, virtual lanes and their arbitration (IBTA v1.4 §14.2.5).
const TABLES: [(u16, u32); 6] = [
    (attribute::GUID_INFO, 0),
    (attribute::SL_TO_VL, 0),
    (attribute::VL_ARBITRATION, 1 << 16),
    (attribute::VL_ARBITRATION, 2 << 16),
    (attribute::VL_ARBITRATION, 3 << 16),
    (attribute::VL_ARBITRATION, 4 << 16),
];

/// The request that a neighbour is to be sent next, or was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BringUp {
    Identify,
    Describe,
    Partition,
    Arm,
    Activate,
    Done,
    /// A manager is there, too: who is it?
    AskManager,
    /// One of [`TABLES`], by its index.
    ReadTable(usize),
    /// What LID it has from the master before this one, and whether it is active.
    Inspect,
    /// It was active under the master before this one, and stays so.
    Keep,
    /// It has told that its node is called something else: what?
    Rename,
    /// It is a switch, and needs nothing here.
    Switch,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) bring_up: BringUp,
    /// What it has said of itself.
    pub(super) portrait: Box<Portrait>,
    /// 0 until it has one.
    pub(super) lid: u16,
    pub(super) exchange: Exchange,
    /// By what it is known to be in service.
    service: Option<ServiceChange>,
    /// Its manager has said something of itself that nobody has taken yet.
    has_manager_news: bool,
    /// Its tables were read.
    is_read: bool,
    /// Its node is called something else than what it was asked for.
    is_renamed: bool,
    /// The P_Keys that it is to have: empty until it has said who it is.
    pub(super) partition_keys: Vec<u16>,
}

impl Neighbour {
    pub(super) fn new(now: Time) -> Self {
        let (bring_up, portrait) = (BringUp::Identify, Box::new(Portrait::new()));
        Self {
            bring_up,
            portrait,
            lid: 0,
            exchange: Exchange::new(now),
            service: None,
            has_manager_news: false,
            is_read: false,
            is_renamed: false,
            partition_keys: Vec::new(),
        }
    }

    /// Its node is called something else: it is asked when nothing else is open.
    pub(super) const fn rename(&mut self) {
        self.is_renamed = true;
    }

    /// GUID of the port of an adapter; `None` until it has said who it is.
    pub(super) fn port_guid(&self) -> Option<u64> {
        let guid = self.portrait.node.port_guid();
        Some(guid).filter(|guid| *guid != 0 && self.bring_up != BringUp::Switch)
    }

    /// The P_Keys that the switch's port is to let pass; `None` if it is to let pass everything, as to another switch.
    pub(super) fn enforced_keys(&self) -> Option<&[u16]> {
        self.port_guid().map(|_| &self.partition_keys[..])
    }

    /// Whether it is active.
    pub(super) const fn is_up(&self) -> bool {
        matches!(self.bring_up, BringUp::Done | BringUp::AskManager | BringUp::ReadTable(_) | BringUp::Rename)
    }

    /// Whether it has said all that it is asked for once.
    pub(super) const fn is_known(&self) -> bool {
        self.is_read || !self.is_up()
    }

    /// Whether its LID may be chosen: it has none of another master's, or has said which.
    pub(super) const fn is_inspected(&self) -> bool {
        !matches!(self.bring_up, BringUp::Identify | BringUp::Inspect)
    }

    /// Whether there is nothing to be sent now. A manager that does not answer is none.
    pub(super) fn rests(&mut self, now: Time) -> bool {
        if self.exchange.is_spent() {
            self.skip();
        }
        self.exchange.rests(now)
    }

    /// It refuses what it was asked, or does not answer: what it need not say is left out.
    fn skip(&mut self) -> bool {
        let next = match self.bring_up {
            BringUp::AskManager | BringUp::Rename => BringUp::Done,
            BringUp::ReadTable(index) => self.after_table(index),
            _ => return false,
        };
        self.bring_up = next;
        true
    }

    /// It has refused the open request; whether it is left out.
    pub(super) fn refuse(&mut self, now: Time) -> bool {
        let is_left_out = self.skip();
        if is_left_out {
            self.exchange.end(now);
            if self.bring_up == BringUp::Done {
                self.exchange.settle(now);
            }
        }
        is_left_out
    }

    fn after_table(&mut self, index: usize) -> BringUp {
        self.is_read = index + 1 >= TABLES.len();
        if self.is_read { BringUp::Done } else { BringUp::ReadTable(index + 1) }
    }

    /// What its manager has said, once.
    pub(super) fn take_manager(&mut self) -> Option<SmInfo> {
        core::mem::take(&mut self.has_manager_news).then_some(self.portrait.manager)?
    }

    /// That it is in service, once.
    pub(super) fn service_begin(&mut self) -> Option<ServiceChange> {
        let is_new = self.is_up() && self.service.is_none();
        let guid = self.port_guid().filter(|_| is_new)?;
        self.service = Some(ServiceChange { guid, gid: self.portrait.gid(), is_in_service: true });
        self.service
    }

    /// That it is no more in service, if it was.
    pub(super) fn service_end(&self) -> Option<ServiceChange> {
        self.service.map(|service| ServiceChange { is_in_service: false, ..service })
    }

    /// The port of another switch, if one is there.
    pub(super) fn as_switch(&self) -> Option<SwitchPort> {
        let node = &self.portrait.node;
        let port = SwitchPort { switch: node.node_guid(), port: node.local_port_num() };
        (self.bring_up == BringUp::Switch).then_some(port)
    }

    /// Takes the answer to the open request.
    pub(super) fn accept(&mut self, now: Time, answer: &SubnetPacket, is_successor: bool) {
        let (before, portrait) = (self.bring_up, &mut self.portrait);
        // An attribute is no longer than the bytes that every packet has for it.
        match before {
            BringUp::Identify => {
                portrait.node = answer.read().unwrap_or_default();
                self.is_read = false;
            }
            BringUp::Describe | BringUp::Rename => portrait.description.copy_from_slice(answer.data()),
            BringUp::Partition | BringUp::Switch => {}
            BringUp::AskManager => {
                portrait.manager = answer.read();
                self.has_manager_news = true;
            }
            BringUp::ReadTable(index) => {
                portrait.learn_table(TABLES[index].0, TABLES[index].1, answer.data())
            }
            BringUp::Arm | BringUp::Activate | BringUp::Keep | BringUp::Done | BringUp::Inspect => {
                portrait.port = answer.read().unwrap_or_default();
            }
        }
        self.bring_up = match before.next(portrait, is_successor) {
            BringUp::ReadTable(index) => self.after_table(index),
            BringUp::Done if core::mem::take(&mut self.is_renamed) => BringUp::Rename,
            BringUp::Done if matches!(before, BringUp::Done | BringUp::AskManager) && !self.is_read => {
                BringUp::ReadTable(0)
            }
            next => next,
        };
        self.exchange.end(now);
        match (before, self.bring_up) {
            (BringUp::Activate | BringUp::Keep | BringUp::Done, BringUp::AskManager) => {}
            (_, BringUp::Done) => self.exchange.settle(now),
            (_, BringUp::Switch) => self.exchange.stop(),
            (BringUp::Arm | BringUp::Activate | BringUp::Keep, BringUp::Identify) => {
                self.exchange.pause(now);
            }
            _ => {}
        }
    }

    /// The packet of the request that it is at.
    pub(super) fn request(
        &self,
        config: &SubnetConfig,
        is_successor: bool,
        transaction: u64,
    ) -> SubnetPacket {
        let get = |attribute, modifier| SubnetPacket::request(Method::Get, attribute, modifier, transaction);
        match self.bring_up {
            BringUp::Identify | BringUp::Switch => get(attribute::NODE_INFO, 0),
            BringUp::Describe | BringUp::Rename => get(attribute::NODE_DESCRIPTION, 0),
            BringUp::Partition => self.set_partitions(transaction),
            BringUp::Arm | BringUp::Keep => {
                let state = (self.bring_up == BringUp::Arm).then_some(PortState::Armed);
                let mut packet = self.set_port_info(config.lmc, state, transaction);
                if is_successor {
                    packet.data_mut()[CLIENT_REREGISTER.0] |= CLIENT_REREGISTER.1;
                }
                packet
            }
            BringUp::Activate => self.set_port_info(config.lmc, Some(PortState::Active), transaction),
            BringUp::Done | BringUp::Inspect => get(attribute::PORT_INFO, 1),
            BringUp::AskManager => get(attribute::SM_INFO, 0),
            BringUp::ReadTable(index) => get(TABLES[index].0, TABLES[index].1),
        }
    }

    fn set_partitions(&self, transaction: u64) -> SubnetPacket {
        let mut packet = SubnetPacket::request(Method::Set, attribute::PARTITION_KEYS, 0, transaction);
        packet.data_mut().copy_from_slice(&table_of(&self.partition_keys));
        packet
    }

    /// LID, mask, where the manager is, and next state; `None` leaves that as it is.
    fn set_port_info(&self, lmc: u8, state: Option<PortState>, transaction: u64) -> SubnetPacket {
        let mut packet = SubnetPacket::request(Method::Set, attribute::PORT_INFO, 1, transaction);
        let mut wish = PortInfo::new();
        wish.set_lid(self.lid).set_lmc(lmc).set_master_sm_lid(MANAGER_LID);
        wish.set_port_state(state.map_or(0, |state| state as u8)).set_subnet_timeout(SUBNET_TIMEOUT);
        packet.write(&wish);
        packet
    }
}

impl BringUp {
    /// What follows the answer of a port that says this of itself.
    fn next(self, portrait: &Portrait, is_successor: bool) -> Self {
        let has_manager = portrait.port.capability_mask() & IS_MANAGER != 0;
        let is_switch = portrait.node.node_type() == node_type::SWITCH;
        match (self, PortState::from_raw(portrait.port.port_state())) {
            (Self::Identify, _) if is_switch => Self::Switch,
            (Self::Identify, _) if is_successor => Self::Inspect,
            (Self::Identify | Self::Inspect, _) => Self::Describe,
            (Self::Describe, _) => Self::Partition,
            // What it was before, by its answer to Inspect.
            (Self::Partition, Some(PortState::Active)) if is_successor => Self::Keep,
            (Self::Partition, _) => Self::Arm,
            (Self::ReadTable(index), _) => Self::ReadTable(index),
            (Self::Arm, Some(PortState::Armed)) => Self::Activate,
            (Self::Activate | Self::Keep | Self::Done, Some(PortState::Active)) if has_manager => {
                Self::AskManager
            }
            (Self::Activate | Self::Keep | Self::Done, Some(PortState::Active))
            | (Self::AskManager | Self::Rename, _) => Self::Done,
            _ => Self::Identify,
        }
    }
}
