//! What is at a linked port of a switch, and how the manager brings it up.
//!
//! The port of an adapter is brought up by five requests: who are you (NodeInfo), what are you called (NodeDescription), be of these partitions
//! (P_KeyTable), have this LID and be armed (PortInfo), be active (PortInfo). A switch is only asked who it is: the rest is
//! `remote_switch`'s.

use super::agent::{MANAGER_LID, SUBNET_TIMEOUT};
use super::config::SubnetConfig;
use super::end_port::Portrait;
use super::exchange::Exchange;
use super::switch_port::SwitchPort;
use crate::wire::management::attributes::PortInfo;
use crate::wire::management::{Method, PortState, SubnetPacket, attribute, node_type};
use bareverbs_prm::time::Time;

/// The request that a neighbour is to be sent next, or was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BringUp {
    Identify,
    Describe,
    Partition,
    Arm,
    Activate,
    Done,
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
}

impl Neighbour {
    pub(super) fn new(now: Time) -> Self {
        let (bring_up, portrait) = (BringUp::Identify, Box::new(Portrait::new()));
        Self { bring_up, portrait, lid: 0, exchange: Exchange::new(now) }
    }

    /// GUID of the port of an adapter; `None` until it has said who it is.
    pub(super) fn port_guid(&self) -> Option<u64> {
        let guid = self.portrait.node.port_guid();
        Some(guid).filter(|guid| *guid != 0 && self.bring_up != BringUp::Switch)
    }

    /// The port of another switch, if one is there.
    pub(super) fn as_switch(&self) -> Option<SwitchPort> {
        let node = &self.portrait.node;
        let port = SwitchPort { switch: node.node_guid(), port: node.local_port_num() };
        (self.bring_up == BringUp::Switch).then_some(port)
    }

    /// Takes the answer to the open request.
    pub(super) fn accept(&mut self, now: Time, answer: &SubnetPacket) {
        let (before, portrait) = (self.bring_up, &mut self.portrait);
        // An attribute is no longer than the bytes that every packet has for it.
        match before {
            BringUp::Identify => portrait.node = answer.read().unwrap_or_default(),
            BringUp::Describe => portrait.description.copy_from_slice(answer.data()),
            BringUp::Partition | BringUp::Switch => {}
            BringUp::Arm | BringUp::Activate | BringUp::Done => {
                portrait.port = answer.read().unwrap_or_default();
            }
        }
        self.bring_up = before.next(portrait);
        self.exchange.end(now);
        match (before, self.bring_up) {
            (_, BringUp::Done) => self.exchange.settle(now),
            (_, BringUp::Switch) => self.exchange.stop(),
            (BringUp::Arm | BringUp::Activate, BringUp::Identify) => self.exchange.pause(now),
            _ => {}
        }
    }

    /// The packet of the request that it is at.
    pub(super) fn request(&self, config: &SubnetConfig, transaction: u64) -> SubnetPacket {
        let get = |attribute, modifier| SubnetPacket::request(Method::Get, attribute, modifier, transaction);
        match self.bring_up {
            BringUp::Identify | BringUp::Switch => get(attribute::NODE_INFO, 0),
            BringUp::Describe => get(attribute::NODE_DESCRIPTION, 0),
            BringUp::Partition => set_partition(config, transaction),
            BringUp::Arm => self.set_port_info(config.lmc, PortState::Armed, transaction),
            BringUp::Activate => self.set_port_info(config.lmc, PortState::Active, transaction),
            BringUp::Done => get(attribute::PORT_INFO, 1),
        }
    }

    /// LID, mask, where the manager is, and next state.
    fn set_port_info(&self, lmc: u8, state: PortState, transaction: u64) -> SubnetPacket {
        let mut packet = SubnetPacket::request(Method::Set, attribute::PORT_INFO, 1, transaction);
        let mut wish = PortInfo::new();
        wish.set_lid(self.lid).set_lmc(lmc).set_master_sm_lid(MANAGER_LID);
        wish.set_port_state(state as u8).set_subnet_timeout(SUBNET_TIMEOUT);
        packet.write(&wish);
        packet
    }
}

impl BringUp {
    /// What follows the answer of a port that says this of itself.
    fn next(self, portrait: &Portrait) -> Self {
        let is_switch = portrait.node.node_type() == node_type::SWITCH;
        match (self, PortState::from_raw(portrait.port.port_state())) {
            (Self::Identify, _) if is_switch => Self::Switch,
            (Self::Identify, _) => Self::Describe,
            (Self::Describe, _) => Self::Partition,
            (Self::Partition, _) => Self::Arm,
            (Self::Arm, Some(PortState::Armed)) => Self::Activate,
            (Self::Activate | Self::Done, Some(PortState::Active)) => Self::Done,
            _ => Self::Identify,
        }
    }
}

fn set_partition(config: &SubnetConfig, transaction: u64) -> SubnetPacket {
    let mut packet = SubnetPacket::request(Method::Set, attribute::PARTITION_KEYS, 0, transaction);
    for (to, key) in packet.data_mut().chunks_exact_mut(2).zip(&config.partition_keys) {
        to.copy_from_slice(&key.to_be_bytes());
    }
    packet
}
