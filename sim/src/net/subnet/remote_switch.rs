//! A switch that the SM configures over the network: its reported attributes, its wanted configuration, and the next
//! request towards that.

use super::agent::MANAGER_LID;
use super::end_port::{DESCRIPTION, PortAttributes};
use super::enforcement::table_of;
use super::events::ServiceChange;
use super::exchange::Exchange;
use super::forwarding::{LINEAR_BLOCK, MULTICAST_BLOCK, NO_PORT, POSITION};
use crate::wire::DEFAULT_PARTITION_KEY;
use crate::wire::infiniband::{FIRST_MULTICAST_LID, PERMISSIVE_LID};
use crate::wire::management::attributes::{NodeInfo, PortInfo, SwitchInfo};
use crate::wire::management::values::SUBNET_TIMEOUT;
use crate::wire::management::{Method, PortState, SubnetPacket, attribute};
use bareverbs_prm::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a forwarding table block.
pub(super) type Block = [u8; 64];
/// Identifies a block of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockPlace {
    pub(super) attribute: u16,
    pub(super) modifier: u32,
}
/// Blocks of forwarding tables. A missing block is empty.
pub(super) type Blocks = BTreeMap<BlockPlace, Block>;

/// Requests to a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SwitchRequest {
    Describe,
    /// Get(SwitchInfo): check for changed ports.
    Inspect,
    /// Set(SwitchInfo): acknowledge the port change.
    Notice,
    ReadPort(u8),
    /// Set(PortInfo) on port 0: its LID and the SM's.
    Address,
    Raise(u8, PortState),
    /// Set(PortInfo): switch P_Key enforcement of a port on or off.
    Enforce(u8, bool),
    Write(BlockPlace),
}

/// What PortInfo says about a port of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortUpdate {
    pub(super) port: u8,
    pub(super) is_linked: bool,
    /// Whether the link has been down since the last check.
    pub(super) was_down: bool,
}

/// State of one switch; see the module.
#[derive(Debug)]
pub(super) struct RemoteSwitch {
    /// Attributes of the node and of port 0.
    pub(super) attributes: Box<PortAttributes>,
    /// LID of port 0; 0 until it has one.
    pub(super) lid: u16,
    /// Directed route from the SM to the switch.
    pub(super) route: Vec<u8>,
    pub(super) exchange: Exchange,
    ports: Vec<PortInfo>,
    /// SwitchInfo; `None` when it has to be read.
    info: Option<SwitchInfo>,
    is_described: bool,
    unread: BTreeSet<u8>,
    /// External ports that should be active.
    raised: BTreeSet<u8>,
    wanted: Blocks,
    written: Blocks,
    dirty: BTreeSet<BlockPlace>,
    /// Blocks that may contain entries of an earlier master.
    inherited: BTreeSet<BlockPlace>,
    /// Whether there was an earlier master whose entries have not been looked for yet.
    is_inherited: bool,
    asked: Option<SwitchRequest>,
    /// Whether the outstanding request was answered with an error status.
    is_refused: bool,
    /// P_Keys of port 0, then the P_Keys that external ports must enforce.
    pub(super) partition_keys: Vec<u16>,
    enforced: BTreeMap<u8, Vec<u16>>,
    /// Set while port 0 is known to be in service.
    service: Option<ServiceChange>,
}

impl RemoteSwitch {
    /// A switch that has identified itself. `is_inherited` means that another SM was its master before.
    pub(super) fn new(now: Time, node: NodeInfo, partition_keys: Vec<u16>, is_inherited: bool) -> Self {
        let mut attributes = Box::new(PortAttributes::new());
        attributes.node = node;
        Self {
            attributes,
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
            is_refused: false,
            partition_keys,
            enforced: BTreeMap::new(),
            service: None,
        }
    }

    /// Marks its ports for a recheck.
    pub(super) const fn look_again(&mut self) {
        self.info = None;
    }

    /// Marks one of its ports for a recheck.
    pub(super) fn read_again(&mut self, port: u8) {
        self.unread.insert(port);
    }

    /// Wants a port to be active, because its neighbour is known.
    pub(super) fn raise(&mut self, port: u8) {
        self.raised.insert(port);
    }

    /// Whether port 0 has its LID.
    pub(super) fn has_lid(&self) -> bool {
        self.lid != 0 && self.attributes.port.lid() == self.lid
    }

    /// Takes the event that port 0 has come into service.
    pub(super) fn service_begin(&mut self) -> Option<ServiceChange> {
        if !self.has_lid() || self.service.is_some() {
            return None;
        }
        let (guid, gid) = (self.attributes.node.port_guid(), self.attributes.gid());
        self.service = Some(ServiceChange { guid, gid, is_in_service: true });
        self.service
    }

    /// The event that port 0 has gone out of service, if it was in service.
    pub(super) fn service_end(&self) -> Option<ServiceChange> {
        self.service.map(|service| ServiceChange { is_in_service: false, ..service })
    }

    /// SwitchInfo, unless it is about to be read again.
    pub(super) const fn info(&self) -> Option<&SwitchInfo> {
        self.info.as_ref()
    }

    /// PortInfo of a port; port 0 is the switch's own.
    pub(super) fn port(&self, port: u8) -> Option<&PortInfo> {
        self.ports.get(usize::from(port))
    }

    /// Sets the wanted forwarding tables and the P_Keys to enforce.
    pub(super) fn want(&mut self, mut wanted: Blocks, enforced: BTreeMap<u8, Vec<u16>>) {
        // Ports start with the default partition only.
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

    /// Whether all its ports are discovered.
    pub(super) fn is_explored(&self) -> bool {
        !self.exchange.is_open() || self.info.is_some() && self.unread.is_empty()
    }

    /// Whether it is configured as wanted.
    pub(super) fn is_configured(&self) -> bool {
        self.next_request().is_none()
    }

    /// Builds the next request, or a recheck.
    pub(super) fn request(&mut self, transaction: u64) -> SubnetPacket {
        let request = self.next_request().unwrap_or(SwitchRequest::Inspect);
        self.asked = Some(request);
        self.packet(request, transaction)
    }

    /// Handles an error status of the outstanding request, which is repeated after its timeout.
    pub(super) const fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Whether there is nothing to send now. A switch that keeps refusing a request is not in the state that it was
    /// known to be in: the next sweep reads it again, or it would be asked for the same until it reports a change.
    pub(super) fn rests(&mut self, now: Time) -> bool {
        if self.exchange.is_spent() && core::mem::take(&mut self.is_refused) {
            self.exchange.forget();
            self.look_again();
            if let Some(SwitchRequest::Raise(port, _) | SwitchRequest::Enforce(port, _)) = self.asked {
                self.read_again(port);
            }
        }
        self.exchange.rests(now)
    }

    /// Handles the response to the outstanding request.
    pub(super) fn accept(&mut self, now: Time, response: &SubnetPacket) -> Option<PortUpdate> {
        let asked = self.asked.take();
        self.is_refused = false;
        let update = asked.and_then(|asked| self.learn(asked, response));
        self.exchange.end(now);
        match self.next_request() {
            None => self.exchange.settle(now),
            next if next == asked => self.exchange.pause(now),
            Some(_) => {}
        }
        update
    }

    fn learn(&mut self, asked: SwitchRequest, response: &SubnetPacket) -> Option<PortUpdate> {
        match asked {
            SwitchRequest::Describe => {
                self.attributes.description = response.data().try_into().unwrap_or([0; DESCRIPTION]);
                self.is_described = true;
            }
            SwitchRequest::Inspect => {
                self.info = response.read();
                self.inherit();
            }
            SwitchRequest::Notice => {
                self.info = response.read();
                // The request has cleared the switch's mark, whichever change it stands for.
                self.unread.extend(1..=self.attributes.node.num_ports());
            }
            SwitchRequest::ReadPort(port) => {
                self.unread.remove(&port);
                return self.learn_port(port, response.read()?);
            }
            SwitchRequest::Address => {
                self.ports[0] = response.read()?;
                self.attributes.port = self.ports[0];
            }
            SwitchRequest::Raise(port, _) | SwitchRequest::Enforce(port, _) => {
                *self.ports.get_mut(usize::from(port))? = response.read()?
            }
            SwitchRequest::Write(place) => {
                self.written.insert(place, response.data().try_into().ok()?);
                self.inherited.remove(&place);
                // The wanted block may have changed meanwhile, even back to its earlier contents.
                match block(&self.written, place) == block(&self.wanted, place) {
                    true => self.dirty.remove(&place),
                    false => self.dirty.insert(place),
                };
            }
        }
        None
    }

    /// Runs once, before the tops of the tables change. All blocks below the tops may contain entries of an earlier
    /// master, so the next wanted tables overwrite them, even with empty blocks.
    fn inherit(&mut self) {
        let Some(info) = self.info.filter(|_| core::mem::take(&mut self.is_inherited)) else { return };
        let linear = 0..=info.linear_top() / LINEAR_BLOCK;
        self.inherited.extend(
            linear
                .map(|block| BlockPlace { attribute: attribute::LINEAR_FORWARDING, modifier: block.into() }),
        );
        let groups = inherited_groups(&info).div_ceil(MULTICAST_BLOCK);
        for position in 0..=self.attributes.node.num_ports() / POSITION {
            self.inherited.extend((0..groups).map(|block| BlockPlace {
                attribute: attribute::MULTICAST_FORWARDING,
                modifier: u32::from(position) << 28 | u32::from(block),
            }));
        }
        if !self.wanted.is_empty() {
            self.dirty.extend(&self.inherited);
        }
    }

    fn learn_port(&mut self, port: u8, info: PortInfo) -> Option<PortUpdate> {
        let before = core::mem::replace(self.ports.get_mut(usize::from(port))?, info);
        if port == 0 {
            self.attributes.port = info;
            return None;
        }
        let (was, state) = (before.port_state(), info.port_state());
        let is_linked = state > PortState::Down as u8;
        let was_down = was <= PortState::Down as u8 || state < was || state == PortState::Initialize as u8;
        if !is_linked || was_down {
            self.raised.remove(&port);
        }
        Some(PortUpdate { port, is_linked, was_down })
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

    /// The next port whose P_Key enforcement must be switched on or off.
    fn next_enforced(&self) -> Option<SwitchRequest> {
        // Inclusive, because `zip` asks for the number after that of the last port, and a node may claim 255 ports.
        let ports = (1..=u8::MAX).zip(self.ports.get(1..)?);
        let mut linked = ports.filter(|(_, info)| info.port_state() > PortState::Down as u8);
        linked.find_map(|(port, info)| {
            let is_wanted = self.enforced.contains_key(&port);
            let is_right = info.partition_enforcement_inbound() == is_wanted
                && info.partition_enforcement_outbound() == is_wanted;
            (!is_right).then_some(SwitchRequest::Enforce(port, is_wanted))
        })
    }

    /// The next state on a port's way to ACTIVE.
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
                let mut info = self.info.unwrap_or_default();
                info.set_linear_top(MANAGER_LID).set_multicast_top(PERMISSIVE_LID - 1);
                packet.write(info.set_life_time(SUBNET_TIMEOUT).set_port_state_change(true));
                packet
            }
            SwitchRequest::Address => {
                let mut packet = packet(Method::Set, attribute::PORT_INFO, 0);
                let mut info = self.ports.first().copied().unwrap_or_default();
                info.set_lid(self.lid).set_master_sm_lid(MANAGER_LID).set_subnet_timeout(SUBNET_TIMEOUT);
                packet.write(info.set_port_state(0).set_port_physical_state(0));
                packet
            }
            SwitchRequest::Raise(port, state) => {
                let mut packet = packet(Method::Set, attribute::PORT_INFO, port.into());
                let mut info = self.port(port).copied().unwrap_or_default();
                packet.write(info.set_port_state(state as u8).set_port_physical_state(0));
                packet
            }
            SwitchRequest::Enforce(port, is_wanted) => {
                let mut packet = packet(Method::Set, attribute::PORT_INFO, port.into());
                let mut info = self.port(port).copied().unwrap_or_default();
                info.set_partition_enforcement_inbound(is_wanted);
                info.set_partition_enforcement_outbound(is_wanted);
                packet.write(info.set_port_state(0).set_port_physical_state(0));
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

/// Number of multicast groups that may have entries: up to `MulticastFDBTop` if there is one, and at most the capacity
/// (IBTA v1.4 §14.2.5.4).
fn inherited_groups(info: &SwitchInfo) -> u16 {
    let room = info.multicast_cap().min(PERMISSIVE_LID - FIRST_MULTICAST_LID);
    match info.multicast_top() {
        0 => room,
        top => top.saturating_add(1).saturating_sub(FIRST_MULTICAST_LID).min(room),
    }
}

/// The P_KeyTable block of a port.
fn partition_place(port: u8) -> BlockPlace {
    BlockPlace { attribute: attribute::PARTITION_KEYS, modifier: u32::from(port) << 16 }
}

/// A block of a sparse table.
fn block(blocks: &Blocks, place: BlockPlace) -> Block {
    let empty = if place.attribute == attribute::LINEAR_FORWARDING { NO_PORT } else { 0 };
    blocks.get(&place).copied().unwrap_or([empty; 64])
}
