//! The subnet's manager (IBTA v1.4 §14.4): finds, configures and watches the port behind each port of its switch.
//!
//! A port goes through four questions: who are you (NodeInfo), be of these partitions (P_KeyTable), have this LID and be
//! armed (PortInfo), be active (PortInfo). What is not answered is asked again. An active port is asked now and then how it
//! is; one that has forgotten everything, as after a reset, begins anew with the LID it had.

use crate::wire::DEFAULT_PARTITION_KEY;
use crate::wire::management::{Method, PortState, SubnetPacket, attribute, status};
use bareverbs_prm::time::{Duration, Time};
use std::collections::{BTreeMap, VecDeque};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often an active port is asked how it is.
const SWEEP: Duration = Duration::from_millis(500);
/// `SubnetTimeOut`: 4.096 µs times 2 to this power.
const TIMEOUT: u8 = 18;
/// P_Keys that a port can have set in one go.
const KEYS: usize = 32;

/// How a subnet is managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetConfig {
    /// LID mask control: every port has `1 << lmc` LIDs; at most 7.
    pub lmc: u8,
    /// Entries of every port's P_Key table, the first 32 of which count.
    pub partition_keys: Vec<u16>,
}

impl Default for SubnetConfig {
    /// One LID a port, and the default partition.
    fn default() -> Self {
        Self { lmc: 0, partition_keys: vec![DEFAULT_PARTITION_KEY] }
    }
}

/// A port that has a LID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Port of the switch.
    pub port: usize,
    /// GUID of the port behind it.
    pub guid: u64,
    /// Its first LID.
    pub lid: u16,
    /// It has `1 << lmc` of them.
    pub lmc: u8,
    /// Whether it is active, as far as the manager knows.
    pub is_active: bool,
}

/// What the manager waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Identify,
    Partition,
    Arm,
    Activate,
    Active,
}

#[derive(Debug)]
struct Neighbour {
    step: Step,
    guid: Option<u64>,
    lid: u16,
    /// Question that is open, and when it is asked again; an active port has none between sweeps.
    transaction: u64,
    due: Time,
}

/// The manager; see the module.
#[derive(Debug)]
pub(super) struct Manager {
    config: SubnetConfig,
    neighbours: BTreeMap<usize, Neighbour>,
    /// LIDs by GUID, also of ports that have gone: they get them again.
    lids: BTreeMap<u64, u16>,
    transactions: u64,
    packets: VecDeque<(usize, SubnetPacket)>,
}

impl Manager {
    pub(super) fn new(mut config: SubnetConfig) -> Self {
        config.lmc = config.lmc.min(7);
        config.partition_keys.truncate(KEYS);
        Self {
            config,
            neighbours: BTreeMap::new(),
            lids: BTreeMap::new(),
            transactions: 0,
            packets: VecDeque::new(),
        }
    }

    pub(super) fn port_up(&mut self, now: Time, port: usize) {
        let neighbour = Neighbour { step: Step::Identify, guid: None, lid: 0, transaction: 0, due: now };
        self.neighbours.insert(port, neighbour);
        self.ask(now, port);
    }

    pub(super) fn port_down(&mut self, port: usize) {
        self.neighbours.remove(&port);
    }

    pub(super) fn poll_packet(&mut self) -> Option<(usize, SubnetPacket)> {
        self.packets.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.neighbours.values().map(|neighbour| neighbour.due).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let due = self.neighbours.iter().filter(|(_, neighbour)| neighbour.due <= now);
        let late: Vec<usize> = due.map(|(port, _)| *port).collect();
        for port in late {
            self.ask(now, port);
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.neighbours.iter().filter(|(_, neighbour)| neighbour.lid != 0).map(|(port, neighbour)| Member {
            port: *port,
            guid: neighbour.guid.unwrap_or(0),
            lid: neighbour.lid,
            lmc: self.config.lmc,
            is_active: neighbour.step == Step::Active,
        })
    }

    /// An answer of the port behind `port`. One to an old question, or that refuses, changes nothing.
    pub(super) fn handle_answer(&mut self, now: Time, port: usize, answer: &SubnetPacket) {
        let Some(neighbour) = self.neighbours.get_mut(&port) else { return };
        let expected = answer.method() == Method::Response && answer.transaction() == neighbour.transaction;
        if !expected || answer.status() != status::OK {
            return;
        }
        let data = answer.data();
        let state = PortState::from_raw(data[32] & 0xf);
        neighbour.step = match (neighbour.step, state) {
            (Step::Identify, _) => {
                neighbour.guid = data[20..28].first_chunk().map(|guid| u64::from_be_bytes(*guid));
                Step::Partition
            }
            (Step::Partition, _) => Step::Arm,
            (Step::Arm, Some(PortState::Armed)) => Step::Activate,
            (Step::Activate, Some(PortState::Active)) => Step::Active,
            (Step::Active, Some(PortState::Active)) => Step::Active,
            _ => Step::Identify,
        };
        self.give_lid(port);
        match self.neighbours.get_mut(&port) {
            Some(neighbour) if neighbour.step == Step::Active => {
                neighbour.due = now + SWEEP;
                neighbour.transaction = 0;
            }
            _ => self.ask(now, port),
        }
    }

    /// A port with a GUID has a LID: the one it had, or the next that is free and on a boundary of the mask.
    fn give_lid(&mut self, port: usize) {
        let (step, next) = (1 << self.config.lmc, self.lids.values().max().copied().unwrap_or(0));
        let Some(neighbour) = self.neighbours.get_mut(&port) else { return };
        let Some(guid) = neighbour.guid else { return };
        neighbour.lid = *self.lids.entry(guid).or_insert(next + step);
    }

    /// Asks the question of the step that a port is at, again if need be.
    fn ask(&mut self, now: Time, port: usize) {
        self.transactions += 1;
        let transaction = self.transactions;
        let Some(neighbour) = self.neighbours.get_mut(&port) else { return };
        let packet = match neighbour.step {
            Step::Identify => SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, transaction),
            Step::Partition => partition(&self.config, transaction),
            Step::Arm => port_info(neighbour, self.config.lmc, PortState::Armed, transaction),
            Step::Activate => port_info(neighbour, self.config.lmc, PortState::Active, transaction),
            Step::Active => SubnetPacket::request(Method::Get, attribute::PORT_INFO, 1, transaction),
        };
        neighbour.transaction = transaction;
        neighbour.due = now + PATIENCE;
        self.packets.push_back((port, packet));
    }
}

fn partition(config: &SubnetConfig, transaction: u64) -> SubnetPacket {
    let mut packet = SubnetPacket::request(Method::Set, attribute::PARTITION_KEYS, 0, transaction);
    for (to, key) in packet.data_mut().chunks_exact_mut(2).zip(&config.partition_keys) {
        to.copy_from_slice(&key.to_be_bytes());
    }
    packet
}

/// LID, mask and next state; the manager is reached at the LID of the port itself, since the switch has none.
fn port_info(neighbour: &Neighbour, lmc: u8, state: PortState, transaction: u64) -> SubnetPacket {
    let mut packet = SubnetPacket::request(Method::Set, attribute::PORT_INFO, 1, transaction);
    let (lid, data) = (neighbour.lid.to_be_bytes(), packet.data_mut());
    data[16..18].copy_from_slice(&lid);
    data[18..20].copy_from_slice(&lid);
    data[32] = state as u8;
    data[34] = lmc;
    data[51] = TIMEOUT;
    packet
}
