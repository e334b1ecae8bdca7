//! The neighbour at a linked switch port, and how the SM brings it up.
//!
//! Bringing up an adapter's port takes five requests: Get(NodeInfo), Get(NodeDescription), Set(P_KeyTable),
//! Set(PortInfo) with the LID and state ARMED, Set(PortInfo) with state ACTIVE. An SM that takes over from another
//! first reads the port's LID and state; an active port stays active. A port that hosts an SM is asked for SMInfo at
//! every sweep. A switch is only asked for NodeInfo; `remote_switch` does the rest.

use super::agent::MANAGER_LID;
use super::config::SubnetConfig;
use super::end_port::PortAttributes;
use super::enforcement::table_of;
use super::events::ServiceChange;
use super::exchange::Exchange;
use super::switch_port::SwitchPort;
use crate::wire::management::attributes::{PortInfo, SmInfo};
use crate::wire::management::values::{IS_SM, SUBNET_TIMEOUT};
use crate::wire::management::{Method, PortState, SubnetPacket, attribute, node_type};
use bareverbs_prm::time::Time;

/// Tables that are read once, at the first sweep after a port has come up: GUIDInfo, SL-to-VL mapping, VL arbitration
/// (IBTA v1.4 §14.2.5).
const TABLES: [(u16, u32); 6] = [
    (attribute::GUID_INFO, 0),
    (attribute::SL_TO_VL, 0),
    (attribute::VL_ARBITRATION, 1 << 16),
    (attribute::VL_ARBITRATION, 2 << 16),
    (attribute::VL_ARBITRATION, 3 << 16),
    (attribute::VL_ARBITRATION, 4 << 16),
];

/// The neighbour's next or outstanding request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BringUp {
    Identify,
    Describe,
    Partition,
    Arm,
    Activate,
    Done,
    /// Get(SMInfo), because an SM runs there.
    AskManager,
    /// Read one of [`TABLES`], by index.
    ReadTable(usize),
    /// Get(PortInfo): the LID and state that the previous master set.
    Inspect,
    /// The port was active under the previous master and stays active.
    Keep,
    /// Get(NodeDescription), because it has changed.
    Rename,
    /// It is a switch: nothing to do here.
    Switch,
}

/// State of one neighbour; see the module.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) bring_up: BringUp,
    /// Attributes it has reported.
    pub(super) attributes: Box<PortAttributes>,
    /// 0 until it has one.
    pub(super) lid: u16,
    pub(super) exchange: Exchange,
    /// Set while it is known to be in service.
    service: Option<ServiceChange>,
    /// Whether SMInfo has arrived that nobody has taken yet.
    has_manager_news: bool,
    /// Whether its tables have been read.
    is_read: bool,
    /// Whether its node description has changed since it was read.
    is_renamed: bool,
    /// P_Keys to give it; empty until it has identified itself.
    pub(super) partition_keys: Vec<u16>,
}

impl Neighbour {
    pub(super) fn new(now: Time) -> Self {
        let (bring_up, attributes) = (BringUp::Identify, Box::new(PortAttributes::new()));
        Self {
            bring_up,
            attributes,
            lid: 0,
            exchange: Exchange::new(now),
            service: None,
            has_manager_news: false,
            is_read: false,
            is_renamed: false,
            partition_keys: Vec::new(),
        }
    }

    /// Marks its node description as changed. It is read when no other request is outstanding.
    pub(super) const fn rename(&mut self) {
        self.is_renamed = true;
    }

    /// Port GUID of an adapter; `None` until it has identified itself.
    pub(super) fn port_guid(&self) -> Option<u64> {
        let guid = self.attributes.node.port_guid();
        Some(guid).filter(|guid| *guid != 0 && self.bring_up != BringUp::Switch)
    }

    /// P_Keys that the switch port must enforce; `None` for no enforcement, as towards another switch.
    pub(super) fn enforced_keys(&self) -> Option<&[u16]> {
        self.port_guid().map(|_| &self.partition_keys[..])
    }

    /// Whether the port is active.
    pub(super) const fn is_up(&self) -> bool {
        matches!(self.bring_up, BringUp::Done | BringUp::AskManager | BringUp::ReadTable(_) | BringUp::Rename)
    }

    /// Whether everything that is read once has been read.
    pub(super) const fn is_known(&self) -> bool {
        self.is_read || !self.is_up()
    }

    /// Whether its LID may be assigned: either there was no earlier master, or the earlier LID has been read.
    pub(super) const fn is_inspected(&self) -> bool {
        !matches!(self.bring_up, BringUp::Identify | BringUp::Inspect)
    }

    /// Whether there is nothing to send now. An SM that does not respond is forgotten.
    pub(super) fn rests(&mut self, now: Time) -> bool {
        if self.exchange.is_spent() && self.skip() {
            // A late response would be taken for that of the next request.
            self.exchange.forget();
        }
        self.exchange.rests(now)
    }

    /// Skips the outstanding request, if it is optional, after an error or a timeout.
    fn skip(&mut self) -> bool {
        let next = match self.bring_up {
            BringUp::AskManager | BringUp::Rename => BringUp::Done,
            BringUp::ReadTable(index) => self.after_table(index),
            _ => return false,
        };
        self.bring_up = next;
        true
    }

    /// Handles an error status of the outstanding request. Returns whether the request is skipped.
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

    /// Takes new SMInfo of its SM.
    pub(super) fn take_manager(&mut self) -> Option<SmInfo> {
        core::mem::take(&mut self.has_manager_news).then_some(self.attributes.manager)?
    }

    /// Takes the event that it has come into service.
    pub(super) fn service_begin(&mut self) -> Option<ServiceChange> {
        let is_new = self.is_up() && self.service.is_none();
        let guid = self.port_guid().filter(|_| is_new)?;
        self.service = Some(ServiceChange { guid, gid: self.attributes.gid(), is_in_service: true });
        self.service
    }

    /// The event that it has gone out of service, if it was in service.
    pub(super) fn service_end(&self) -> Option<ServiceChange> {
        self.service.map(|service| ServiceChange { is_in_service: false, ..service })
    }

    /// The other switch's port, if the neighbour is a switch.
    pub(super) fn as_switch(&self) -> Option<SwitchPort> {
        let node = &self.attributes.node;
        let port = SwitchPort { switch: node.node_guid(), port: node.local_port_num() };
        (self.bring_up == BringUp::Switch).then_some(port)
    }

    /// Handles the response to the outstanding request.
    pub(super) fn accept(&mut self, now: Time, response: &SubnetPacket, is_successor: bool) {
        let (before, attributes) = (self.bring_up, &mut self.attributes);
        // No attribute is longer than a packet's data field.
        match before {
            BringUp::Identify => {
                attributes.node = response.read().unwrap_or_default();
                self.is_read = false;
            }
            BringUp::Describe | BringUp::Rename => attributes.description.copy_from_slice(response.data()),
            BringUp::Partition | BringUp::Switch => {}
            BringUp::AskManager => {
                attributes.manager = response.read();
                self.has_manager_news = true;
            }
            BringUp::ReadTable(index) => {
                attributes.learn_table(TABLES[index].0, TABLES[index].1, response.data())
            }
            BringUp::Arm | BringUp::Activate | BringUp::Keep | BringUp::Done | BringUp::Inspect => {
                attributes.port = response.read().unwrap_or_default();
            }
        }
        self.bring_up = match before.next(attributes, is_successor) {
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

    /// Builds the packet of the next request.
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
                let mut info = self.port_info_to_set(config.lmc, state);
                // The previous SA's state is lost.
                set_port_info(info.set_client_reregister(is_successor), transaction)
            }
            BringUp::Activate => {
                set_port_info(&self.port_info_to_set(config.lmc, Some(PortState::Active)), transaction)
            }
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

    /// PortInfo with LID, LMC, the SM's LID and the next state; `None` leaves the state unchanged.
    fn port_info_to_set(&self, lmc: u8, state: Option<PortState>) -> PortInfo {
        let mut info = PortInfo::new();
        info.set_lid(self.lid).set_lmc(lmc).set_master_sm_lid(MANAGER_LID);
        info.set_port_state(state.map_or(0, |state| state as u8)).set_subnet_timeout(SUBNET_TIMEOUT);
        info
    }
}

fn set_port_info(info: &PortInfo, transaction: u64) -> SubnetPacket {
    let mut packet = SubnetPacket::request(Method::Set, attribute::PORT_INFO, 1, transaction);
    packet.write(info);
    packet
}

impl BringUp {
    /// The request that follows a response, given the port's attributes.
    fn next(self, attributes: &PortAttributes, is_successor: bool) -> Self {
        let has_manager = attributes.port.capability_mask() & IS_SM != 0;
        let is_switch = attributes.node.node_type() == node_type::SWITCH;
        match (self, PortState::from_raw(attributes.port.port_state())) {
            (Self::Identify, _) if is_switch => Self::Switch,
            (Self::Identify, _) if is_successor => Self::Inspect,
            (Self::Identify | Self::Inspect, _) => Self::Describe,
            (Self::Describe, _) => Self::Partition,
            // The earlier state, read with Inspect.
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
