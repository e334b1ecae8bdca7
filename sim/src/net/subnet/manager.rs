//! The subnet's manager (IBTA v1.4 §14.4): finds, configures and watches the neighbour at each port of its switch.
//!
//! A neighbour is brought up by five requests: who are you (NodeInfo), what are you called (NodeDescription), be of these partitions
//! (P_KeyTable), have this LID and be armed (PortInfo), be active (PortInfo). A request without an answer is repeated a few times. Every neighbour is looked
//! at again at each sweep; one that has forgotten everything, as after a reset, is brought up anew with the LID it had.

use super::directory::{EndPort, Portrait};
use super::management_port::{MANAGER_LID, SUBNET_TIMEOUT};
use crate::wire::DEFAULT_PARTITION_KEY;
use crate::wire::management::attributes::PortInfo;
use crate::wire::management::{Method, PortState, SubnetPacket, attribute, status};
use bareverbs_prm::time::{Duration, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long an answer may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);
/// How often a request is sent before the manager gives up until the next sweep.
const ATTEMPTS: u8 = 4;
/// How often each neighbour is looked at.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// GUID of the switch, if it is given no other.
const SWITCH_GUID: u64 = 0x0002_c903_0000_0001;
/// The key by which requests are trusted, if there is no other: that of OpenSM.
const SM_KEY: u64 = 1;
/// P_Keys of one block of the table.
const PARTITION_KEY_BLOCK: usize = 32;

/// How a subnet is managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetConfig {
    /// LID mask control: every port has `1 << lmc` LIDs; at most 7.
    pub lmc: u8,
    /// Entries of every port's P_Key table, the first 32 of which count.
    pub partition_keys: Vec<u16>,
    /// LIDs of ports by their GUIDs, known from before, as OpenSM keeps them in `guid2lid`. One that is on no boundary of the mask
    /// (IBTA v1.4 §4.1.3), or is that of a group or of the manager, is forgotten.
    pub known_lids: BTreeMap<u64, u16>,
    /// GUID of the switch and of its port 0, where the manager is.
    pub guid: u64,
    /// Who knows it is told more of the subnet (IBTA v1.4 §14.4.4). With 0 nobody is.
    pub sm_key: u64,
}

impl Default for SubnetConfig {
    /// One LID a port, and the default partition.
    fn default() -> Self {
        Self {
            lmc: 0,
            partition_keys: vec![DEFAULT_PARTITION_KEY],
            known_lids: BTreeMap::new(),
            guid: SWITCH_GUID,
            sm_key: SM_KEY,
        }
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

/// The request that a neighbour is to be sent next, or was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BringUp {
    Identify,
    Describe,
    Partition,
    Arm,
    Activate,
    Done,
}

#[derive(Debug)]
struct Neighbour {
    bring_up: BringUp,
    /// What it has said of itself.
    portrait: Box<Portrait>,
    /// 0 until it has one.
    lid: u16,
    /// The request that has no answer yet; 0 if there is none.
    transaction: u64,
    /// How often it was sent.
    attempts: u8,
    /// When it is sent again, or the next sweep.
    due: Time,
    /// When it was last found in order, or given up.
    checked: Option<Time>,
}

/// The manager; see the module.
#[derive(Debug)]
pub(super) struct Manager {
    config: SubnetConfig,
    neighbours: BTreeMap<u8, Neighbour>,
    /// LIDs by GUID, also of ports that have gone: they get them again.
    lids: BTreeMap<u64, u16>,
    transactions: u64,
    packets: VecDeque<(u8, SubnetPacket)>,
    table_changed: bool,
    /// The earliest `due` of all neighbours.
    next_due: Option<Time>,
}

impl Manager {
    pub(super) fn new(mut config: SubnetConfig) -> Self {
        config.lmc = config.lmc.min(7);
        config.partition_keys.truncate(PARTITION_KEY_BLOCK);
        let step = 1 << config.lmc;
        let mut lids = core::mem::take(&mut config.known_lids);
        lids.retain(|_, lid| *lid >= step && lid.is_multiple_of(step) && is_below_manager(*lid, step));
        Self {
            config,
            neighbours: BTreeMap::new(),
            lids,
            transactions: 0,
            packets: VecDeque::new(),
            table_changed: false,
            next_due: None,
        }
    }

    pub(super) fn handle_link_up(&mut self, now: Time, port: u8) {
        self.neighbours.insert(port, Neighbour::new(now));
        self.table_changed = true;
        self.send_request(now, port);
        self.find_next_due();
    }

    /// The GUID of the neighbour that was there, if it has said who it is.
    pub(super) fn handle_link_down(&mut self, port: u8) -> Option<u64> {
        let gone = self.neighbours.remove(&port);
        self.table_changed |= gone.is_some();
        self.find_next_due();
        gone.and_then(|neighbour| neighbour.guid())
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let due = self.neighbours.iter().filter(|(_, neighbour)| neighbour.due <= now);
        let ports: Vec<u8> = due.map(|(port, _)| *port).collect();
        for port in ports {
            self.send_request(now, port);
        }
        self.find_next_due();
    }

    /// An answer of the neighbour at `port`. One to an old request, or that refuses, changes nothing.
    pub(super) fn handle_answer(&mut self, now: Time, port: u8, answer: &SubnetPacket) {
        let Some(neighbour) = self.neighbours.get_mut(&port) else { return };
        let expected = answer.method() == Method::Response && answer.transaction() == neighbour.transaction;
        if !expected || answer.status() != status::OK {
            return;
        }
        neighbour.accept(now, answer);
        self.assign_lid(port);
        self.send_request(now, port);
        self.find_next_due();
    }

    pub(super) fn poll_packet(&mut self) -> Option<(u8, SubnetPacket)> {
        self.packets.pop_front()
    }

    pub(super) const fn poll_timeout(&self) -> Option<Time> {
        self.next_due
    }

    /// Whether every neighbour was found in order, or given up, after `time`.
    pub(super) fn is_settled_since(&self, time: Time) -> bool {
        self.neighbours.values().all(|neighbour| neighbour.checked.is_some_and(|checked| checked > time))
    }

    /// Whether LIDs have moved since the last call.
    pub(super) const fn take_table_change(&mut self) -> bool {
        core::mem::replace(&mut self.table_changed, false)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.neighbours.iter().filter(|(_, neighbour)| neighbour.lid != 0).map(|(port, neighbour)| Member {
            port: usize::from(*port),
            guid: neighbour.portrait.node.port_guid(),
            lid: neighbour.lid,
            lmc: self.config.lmc,
            is_active: neighbour.bring_up == BringUp::Done,
        })
    }

    /// Neighbours that are up, as the administration knows them.
    pub(super) fn end_ports(&self) -> impl Iterator<Item = EndPort<'_>> {
        let up = self.neighbours.iter().filter(|(_, neighbour)| neighbour.bring_up == BringUp::Done);
        up.map(|(port, neighbour)| EndPort {
            lid: neighbour.lid,
            lmc: self.config.lmc,
            exit: Some(*port),
            portrait: &neighbour.portrait,
            partition_keys: &self.config.partition_keys,
        })
    }

    /// Requests sent so far.
    pub(super) const fn transactions(&self) -> u64 {
        self.transactions
    }

    fn find_next_due(&mut self) {
        self.next_due = self.neighbours.values().map(|neighbour| neighbour.due).min();
    }

    /// A neighbour that is known by its GUID gets the LID it had, or a free one.
    fn assign_lid(&mut self, port: u8) {
        let Some(guid) = self.neighbours.get(&port).and_then(Neighbour::guid) else { return };
        let lid = self.lid_of(guid);
        if let Some(neighbour) = self.neighbours.get_mut(&port).filter(|neighbour| neighbour.lid != lid) {
            neighbour.lid = lid;
            self.table_changed = true;
        }
    }

    fn lid_of(&mut self, guid: u64) -> u16 {
        if let Some(lid) = self.lids.get(&guid) {
            return *lid;
        }
        let lid = self.free_lid().or_else(|| {
            self.forget_absent();
            self.free_lid()
        });
        // 254 ports of 128 LIDs each leave some of 48 Ki free, so this is never 0.
        let lid = lid.unwrap_or(0);
        self.lids.insert(guid, lid);
        lid
    }

    /// The first LID above all others that is on a boundary of the mask (IBTA v1.4 §4.1.3), or one that was given back.
    fn free_lid(&self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.lids.values().copied().collect();
        let step = 1 << self.config.lmc;
        let next = taken.last().map_or(step, |last| last + step);
        let free = (step..MANAGER_LID)
            .step_by(usize::from(step))
            .find(|lid| is_below_manager(*lid, step) && !taken.contains(lid));
        if is_below_manager(next, step) { Some(next) } else { free }
    }

    /// Gives back the LIDs of ports that have gone.
    fn forget_absent(&mut self) {
        let present: BTreeSet<u64> = self.neighbours.values().filter_map(Neighbour::guid).collect();
        self.lids.retain(|guid, _| present.contains(guid));
    }

    /// Sends the request that a neighbour is at, again if need be; one that is up rests until the next sweep, and so does
    /// one that does not answer.
    fn send_request(&mut self, now: Time, port: u8) {
        let Some(neighbour) = self.neighbours.get_mut(&port) else { return };
        if neighbour.rests(now) {
            return;
        }
        self.transactions += 1;
        let packet = request(neighbour, &self.config, self.transactions);
        neighbour.transaction = self.transactions;
        neighbour.attempts += 1;
        neighbour.due = now + RESPONSE_TIMEOUT;
        self.packets.push_back((port, packet));
    }
}

impl Neighbour {
    fn new(now: Time) -> Self {
        Self {
            bring_up: BringUp::Identify,
            portrait: Box::new(Portrait::new()),
            lid: 0,
            transaction: 0,
            attempts: 0,
            due: now,
            checked: None,
        }
    }

    /// `None` until it has said who it is.
    fn guid(&self) -> Option<u64> {
        Some(self.portrait.node.port_guid()).filter(|guid| *guid != 0)
    }

    /// Takes the answer to the open request.
    fn accept(&mut self, now: Time, answer: &SubnetPacket) {
        let (before, portrait) = (self.bring_up, &mut self.portrait);
        // An attribute is no longer than the bytes that every packet has for it.
        match before {
            BringUp::Identify => portrait.node = answer.read().unwrap_or_default(),
            BringUp::Describe => portrait.description.copy_from_slice(answer.data()),
            BringUp::Partition => {}
            BringUp::Arm | BringUp::Activate | BringUp::Done => {
                portrait.port = answer.read().unwrap_or_default();
            }
        }
        let state = PortState::from_raw(portrait.port.port_state());
        self.bring_up = before.next(state);
        (self.transaction, self.attempts, self.due) = (0, 0, now);
        match (before, self.bring_up) {
            (_, BringUp::Done) => {
                self.due = now + SWEEP_INTERVAL;
                self.checked = Some(now);
            }
            // It says that it did what it did not do. Asked at once it would keep both busy.
            (BringUp::Arm | BringUp::Activate, BringUp::Identify) => self.due = now + RESPONSE_TIMEOUT,
            _ => {}
        }
    }

    /// Whether there is nothing to send now. After the last attempt there is not until the next sweep.
    fn rests(&mut self, now: Time) -> bool {
        if self.attempts >= ATTEMPTS {
            self.attempts = 0;
            self.due = now + SWEEP_INTERVAL;
            self.checked = Some(now);
        }
        self.due > now
    }
}

impl BringUp {
    /// What follows the answer of a port in this state.
    const fn next(self, state: Option<PortState>) -> Self {
        match (self, state) {
            (Self::Identify, _) => Self::Describe,
            (Self::Describe, _) => Self::Partition,
            (Self::Partition, _) => Self::Arm,
            (Self::Arm, Some(PortState::Armed)) => Self::Activate,
            (Self::Activate | Self::Done, Some(PortState::Active)) => Self::Done,
            _ => Self::Identify,
        }
    }
}

/// The packet of the request that a neighbour is at.
fn request(neighbour: &Neighbour, config: &SubnetConfig, transaction: u64) -> SubnetPacket {
    match neighbour.bring_up {
        BringUp::Identify => SubnetPacket::request(Method::Get, attribute::NODE_INFO, 0, transaction),
        BringUp::Describe => SubnetPacket::request(Method::Get, attribute::NODE_DESCRIPTION, 0, transaction),
        BringUp::Partition => set_partition(config, transaction),
        BringUp::Arm => set_port_info(neighbour, config.lmc, PortState::Armed, transaction),
        BringUp::Activate => set_port_info(neighbour, config.lmc, PortState::Active, transaction),
        BringUp::Done => SubnetPacket::request(Method::Get, attribute::PORT_INFO, 1, transaction),
    }
}

fn set_partition(config: &SubnetConfig, transaction: u64) -> SubnetPacket {
    let mut packet = SubnetPacket::request(Method::Set, attribute::PARTITION_KEYS, 0, transaction);
    for (to, key) in packet.data_mut().chunks_exact_mut(2).zip(&config.partition_keys) {
        to.copy_from_slice(&key.to_be_bytes());
    }
    packet
}

/// LID, mask, where the manager is, and next state.
fn set_port_info(neighbour: &Neighbour, lmc: u8, state: PortState, transaction: u64) -> SubnetPacket {
    let mut packet = SubnetPacket::request(Method::Set, attribute::PORT_INFO, 1, transaction);
    let mut wish = PortInfo::new();
    wish.set_lid(neighbour.lid).set_lmc(lmc).set_master_sm_lid(MANAGER_LID);
    wish.set_port_state(state as u8).set_subnet_timeout(SUBNET_TIMEOUT);
    packet.write(&wish);
    packet
}

/// Whether the LIDs of a port end before that of the manager.
const fn is_below_manager(lid: u16, lids: u16) -> bool {
    lid <= MANAGER_LID - lids
}
