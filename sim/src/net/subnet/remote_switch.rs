//! A switch that the manager configures over the links: what it has said of itself, what it is to be, and the next request that brings it there.

use super::agent::{MANAGER_LID, SUBNET_TIMEOUT};
use super::end_port::{DESCRIPTION, Portrait};
use super::enforcement::table_of;
use super::events::ServiceChange;
use super::exchange::Exchange;
use super::forwarding::{LINEAR_BLOCK, MULTICAST_BLOCK, NO_PORT, POSITION};
use crate::wire::DEFAULT_PARTITION_KEY;
use crate::wire::infiniband::{FIRST_MULTICAST_LID, PERMISSIVE_LID};
use crate::wire::management::attributes::{NodeInfo, PortInfo, SwitchInfo};
use crate::wire::management::{Method, PortState, SubnetPacket, attribute};
use bareverbs_prm::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a block of a forwarding table.
pub(super) type Block = [u8; 64];
/// Which block of which table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockPlace {
    pub(super) attribute: u16,
    pub(super) modifier: u32,
}
/// Blocks of forwarding tables; one that is not there has no entries.
pub(super) type Blocks = BTreeMap<BlockPlace, Block>;

/// What the manager asks of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SwitchRequest {
    Describe,
    /// SwitchInfo: whether ports have changed.
    Inspect,
    /// SwitchInfo: the manager has noticed.
    Notice,
    ReadPort(u8),
    /// LID of port 0, and where the manager is.
    Address,
    Raise(u8, PortState),
    /// PortInfo: whether the port looks at P_Keys.
    Enforce(u8, bool),
    Write(BlockPlace),
}

/// What has become known of a port of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortNews {
    pub(super) port: u8,
    pub(super) is_linked: bool,
    /// Its link has been down since the manager looked last.
    pub(super) was_down: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct RemoteSwitch {
    /// Its port is port 0.
    pub(super) portrait: Box<Portrait>,
    /// Of port 0; 0 until it has one.
    pub(super) lid: u16,
    /// Ports by which a directed route leads from the manager to it.
    pub(super) route: Vec<u8>,
    pub(super) exchange: Exchange,
    ports: Vec<PortInfo>,
    /// `None`: to be asked for.
    info: Option<SwitchInfo>,
    is_described: bool,
    unread: BTreeSet<u8>,
    /// Ports that are to be active.
    raised: BTreeSet<u8>,
    wanted: Blocks,
    written: Blocks,
    dirty: BTreeSet<BlockPlace>,
    /// Blocks in which a former master may have left something.
    inherited: BTreeSet<BlockPlace>,
    /// There was another master, and what it wrote is not looked for yet.
    is_inherited: bool,
    asked: Option<SwitchRequest>,
    /// The P_Keys that port 0 is to have, and those that other ports are to let pass.
    pub(super) partition_keys: Vec<u16>,
    enforced: BTreeMap<u8, Vec<u16>>,
    /// By what port 0 is known to be in service.
    service: Option<ServiceChange>,
}

impl RemoteSwitch {
    /// One that has said who it is. With `is_inherited` another manager was its master before.
    pub(super) fn new(now: Time, node: NodeInfo, partition_keys: Vec<u16>, is_inherited: bool) -> Self {
        let mut portrait = Box::new(Portrait::new());
        portrait.node = node;
        Self {
            portrait,
            lid: 0,
            route: Vec::new(),
            exchange: Exchange::new(now),
            ports: vec![PortInfo::new(); usize::from(node.num_ports()) + 1],
            info: None,
            is_described: false,
            unread: (0..=node.num_ports()).collect(),
            raised: BTreeSet::new(),
            wanted: Blocks::new(),
            written: Blocks::new(),
            dirty: BTreeSet::new(),
            inherited: BTreeSet::new(),
            is_inherited,
            asked: None,
            partition_keys,
            enforced: BTreeMap::new(),
            service: None,
        }
    }

    /// Something has happened to it: its ports are to be looked at.
    pub(super) const fn look_again(&mut self) {
        self.info = None;
    }

    /// A port whose neighbour is known is made active.
    pub(super) fn raise(&mut self, port: u8) {
        self.raised.insert(port);
    }

    /// Whether its port 0 has the LID that it is to have.
    pub(super) fn has_lid(&self) -> bool {
        self.lid != 0 && self.portrait.port.lid() == self.lid
    }

    /// That port 0 is in service, once.
    pub(super) fn service_begin(&mut self) -> Option<ServiceChange> {
        if !self.has_lid() || self.service.is_some() {
            return None;
        }
        let (guid, gid) = (self.portrait.node.port_guid(), self.portrait.gid());
        self.service = Some(ServiceChange { guid, gid, is_in_service: true });
        self.service
    }

    /// That port 0 is no more in service, if it was.
    pub(super) fn service_end(&self) -> Option<ServiceChange> {
        self.service.map(|service| ServiceChange { is_in_service: false, ..service })
    }

    /// What it has said of its tables, unless it is just asked for that.
    pub(super) const fn info(&self) -> Option<&SwitchInfo> {
        self.info.as_ref()
    }

    /// What a port has said of itself; port 0 is that of the switch.
    pub(super) fn port(&self, port: u8) -> Option<&PortInfo> {
        self.ports.get(usize::from(port))
    }

    /// The forwarding tables that it is to have, and the P_Keys that its ports are to let pass.
    pub(super) fn want(&mut self, mut wanted: Blocks, enforced: BTreeMap<u8, Vec<u16>>) {
        // A port begins with the default partition.
        if self.partition_keys != [DEFAULT_PARTITION_KEY] {
            wanted.insert(partition_place(0), table_of(&self.partition_keys));
        }
        let can_enforce = self.info.is_none_or(|info| info.partition_enforcement_cap() > 0);
        self.enforced = if can_enforce { enforced } else { BTreeMap::new() };
        wanted.extend(self.enforced.iter().map(|(port, keys)| (partition_place(*port), table_of(keys))));
        let places = wanted.keys().chain(self.written.keys());
        let differ = |place: &BlockPlace| block(&wanted, *place) != block(&self.written, *place);
        self.dirty = places.copied().filter(differ).collect();
        self.dirty.extend(&self.inherited);
        self.wanted = wanted;
    }

    /// Whether an answer may yet tell of ports.
    pub(super) fn is_explored(&self) -> bool {
        !self.exchange.is_open() || self.info.is_some() && self.unread.is_empty()
    }

    /// Whether it has all that it is to have.
    pub(super) fn is_configured(&self) -> bool {
        self.next_request().is_none()
    }

    /// The next request, or a look at what has changed.
    pub(super) fn request(&mut self, transaction: u64) -> SubnetPacket {
        let request = self.next_request().unwrap_or(SwitchRequest::Inspect);
        self.asked = Some(request);
        self.packet(request, transaction)
    }

    /// Takes the answer to the open request.
    pub(super) fn accept(&mut self, now: Time, answer: &SubnetPacket) -> Option<PortNews> {
        let asked = self.asked.take();
        let news = asked.and_then(|asked| self.learn(asked, answer));
        self.exchange.end(now);
        match self.next_request() {
            None => self.exchange.settle(now),
            next if next == asked => self.exchange.pause(now),
            Some(_) => {}
        }
        news
    }

    fn learn(&mut self, asked: SwitchRequest, answer: &SubnetPacket) -> Option<PortNews> {
        match asked {
            SwitchRequest::Describe => {
                self.portrait.description = answer.data().try_into().unwrap_or([0; DESCRIPTION]);
                self.is_described = true;
            }
            SwitchRequest::Inspect => {
                self.info = answer.read();
                self.inherit();
            }
            SwitchRequest::Notice => {
                let changed = self.info.is_some_and(|info| info.port_state_change());
                self.info = answer.read();
                if changed {
                    self.unread.extend(1..=self.portrait.node.num_ports());
                }
            }
            SwitchRequest::ReadPort(port) => {
                self.unread.remove(&port);
                return self.learn_port(port, answer.read()?);
            }
            SwitchRequest::Address => {
                self.ports[0] = answer.read()?;
                self.portrait.port = self.ports[0];
            }
            SwitchRequest::Raise(port, _) | SwitchRequest::Enforce(port, _) => {
                *self.ports.get_mut(usize::from(port))? = answer.read()?
            }
            SwitchRequest::Write(place) => {
                self.written.insert(place, answer.data().try_into().ok()?);
                self.inherited.remove(&place);
                // What is wanted may have changed since it was asked, even back to what was there before.
                match block(&self.written, place) == block(&self.wanted, place) {
                    true => self.dirty.remove(&place),
                    false => self.dirty.insert(place),
                };
            }
        }
        None
    }

    /// Once, before the tops of its tables change: all blocks below may hold what a former master wrote. They are written over with the next
    /// tables that are wanted, empty ones too.
    fn inherit(&mut self) {
        let Some(info) = self.info.filter(|_| core::mem::take(&mut self.is_inherited)) else { return };
        let linear = 0..=info.linear_top() / LINEAR_BLOCK;
        self.inherited.extend(
            linear
                .map(|block| BlockPlace { attribute: attribute::LINEAR_FORWARDING, modifier: block.into() }),
        );
        let groups = inherited_groups(&info).div_ceil(MULTICAST_BLOCK);
        for position in 0..=self.portrait.node.num_ports() / POSITION {
            self.inherited.extend((0..groups).map(|block| BlockPlace {
                attribute: attribute::MULTICAST_FORWARDING,
                modifier: u32::from(position) << 28 | u32::from(block),
            }));
        }
        if !self.wanted.is_empty() {
            self.dirty.extend(&self.inherited);
        }
    }

    fn learn_port(&mut self, port: u8, info: PortInfo) -> Option<PortNews> {
        let before = core::mem::replace(self.ports.get_mut(usize::from(port))?, info);
        if port == 0 {
            self.portrait.port = info;
            return None;
        }
        let (was, state) = (before.port_state(), info.port_state());
        let is_linked = state > PortState::Down as u8;
        let was_down = was <= PortState::Down as u8 || state < was || state == PortState::Initialize as u8;
        if !is_linked || was_down {
            self.raised.remove(&port);
        }
        Some(PortNews { port, is_linked, was_down })
    }

    fn next_request(&self) -> Option<SwitchRequest> {
        if !self.is_described {
            return Some(SwitchRequest::Describe);
        }
        let Some(info) = self.info else { return Some(SwitchRequest::Inspect) };
        if info.port_state_change() || info.linear_top() != MANAGER_LID {
            return Some(SwitchRequest::Notice);
        }
        if let Some(port) = self.unread.first() {
            return Some(SwitchRequest::ReadPort(*port));
        }
        let own = self.ports.first()?;
        if self.lid != 0 && (own.lid(), own.master_sm_lid()) != (self.lid, MANAGER_LID) {
            return Some(SwitchRequest::Address);
        }
        let mut raised = self.raised.iter().copied();
        let raise = raised.find_map(|port| Some(SwitchRequest::Raise(port, self.next_state(port)?)));
        raise
            .or_else(|| self.dirty.first().map(|place| SwitchRequest::Write(*place)))
            .or_else(|| self.next_enforced())
    }

    /// A port with a link that looks at P_Keys and is not to, or is to and does not.
    fn next_enforced(&self) -> Option<SwitchRequest> {
        let ports = (1..).zip(self.ports.get(1..)?);
        let mut linked = ports.filter(|(_, info)| info.port_state() > PortState::Down as u8);
        linked.find_map(|(port, info)| {
            let is_wanted = self.enforced.contains_key(&port);
            let is_right = info.partition_enforcement_inbound() == is_wanted
                && info.partition_enforcement_outbound() == is_wanted;
            (!is_right).then_some(SwitchRequest::Enforce(port, is_wanted))
        })
    }

    /// The state that leads a port on to be active.
    fn next_state(&self, port: u8) -> Option<PortState> {
        match PortState::from_raw(self.port(port)?.port_state())? {
            PortState::Initialize => Some(PortState::Armed),
            PortState::Armed => Some(PortState::Active),
            PortState::Down | PortState::Active => None,
        }
    }

    fn packet(&self, request: SwitchRequest, transaction: u64) -> SubnetPacket {
        let packet =
            |method, attribute, modifier| SubnetPacket::request(method, attribute, modifier, transaction);
        match request {
            SwitchRequest::Describe => packet(Method::Get, attribute::NODE_DESCRIPTION, 0),
            SwitchRequest::Inspect => packet(Method::Get, attribute::SWITCH_INFO, 0),
            SwitchRequest::ReadPort(port) => packet(Method::Get, attribute::PORT_INFO, port.into()),
            SwitchRequest::Notice => {
                let mut packet = packet(Method::Set, attribute::SWITCH_INFO, 0);
                let mut wish = self.info.unwrap_or_default();
                wish.set_linear_top(MANAGER_LID).set_multicast_top(PERMISSIVE_LID - 1);
                packet.write(wish.set_life_time(SUBNET_TIMEOUT).set_port_state_change(true));
                packet
            }
            SwitchRequest::Address => {
                let mut packet = packet(Method::Set, attribute::PORT_INFO, 0);
                let mut wish = self.ports.first().copied().unwrap_or_default();
                wish.set_lid(self.lid).set_master_sm_lid(MANAGER_LID).set_subnet_timeout(SUBNET_TIMEOUT);
                packet.write(wish.set_port_state(0).set_port_physical_state(0));
                packet
            }
            SwitchRequest::Raise(port, state) => {
                let mut packet = packet(Method::Set, attribute::PORT_INFO, port.into());
                let mut wish = self.port(port).copied().unwrap_or_default();
                packet.write(wish.set_port_state(state as u8).set_port_physical_state(0));
                packet
            }
            SwitchRequest::Enforce(port, is_wanted) => {
                let mut packet = packet(Method::Set, attribute::PORT_INFO, port.into());
                let mut wish = self.port(port).copied().unwrap_or_default();
                wish.set_partition_enforcement_inbound(is_wanted);
                wish.set_partition_enforcement_outbound(is_wanted);
                packet.write(wish.set_port_state(0).set_port_physical_state(0));
                packet
            }
            SwitchRequest::Write(place) => {
                let mut packet = packet(Method::Set, place.attribute, place.modifier);
                packet.data_mut().copy_from_slice(&block(&self.wanted, place));
                packet
            }
        }
    }
}

/// Groups of which a switch may have entries: up to `MulticastFDBTop`, if it has one, and no more than it has room for (IBTA v1.4 §14.2.5.4).
fn inherited_groups(info: &SwitchInfo) -> u16 {
    let room = info.multicast_cap().min(PERMISSIVE_LID - FIRST_MULTICAST_LID);
    match info.multicast_top() {
        0 => room,
        top => top.saturating_add(1).saturating_sub(FIRST_MULTICAST_LID).min(room),
    }
}

/// The P_Keys of a port.
fn partition_place(port: u8) -> BlockPlace {
    BlockPlace { attribute: attribute::PARTITION_KEYS, modifier: u32::from(port) << 16 }
}

/// A block of tables of which only those with entries are there.
fn block(blocks: &Blocks, place: BlockPlace) -> Block {
    let empty = if place.attribute == attribute::LINEAR_FORWARDING { NO_PORT } else { 0 };
    blocks.get(&place).copied().unwrap_or([empty; 64])
}
