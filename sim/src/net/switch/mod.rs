//! A switch for either link layer: forwards by destination and floods where it must.
//!
//! **What this is.** A pure state machine for both runners: the world in virtual time and the multithreaded fabric in
//! real time. Inputs are `handle_*`; [`Switch::poll`] returns what leaves through which port; [`Switch::poll_timeout`]
//! returns the next deadline. The link layers differ only in their table: an Ethernet switch learns addresses (IEEE
//! 802.1D §7.8); the subnet manager, which runs in one of a subnet's switches, fills the tables of an InfiniBand switch
//! (IBTA v1.4 §18.2.4.3).
//!
//! **What it may not do.** It has no queue and no delay: the runner decides where frames wait and which ones are
//! dropped. It changes no byte of a frame, except in directed routes of subnet management, which record their return
//! path.

mod address_table;

use super::port_set::PortSet;
use super::subnet::{Management, Member, Subnet, SubnetConfig, SubnetSwitchConfig};
use super::topology::SubnetTopology;
use address_table::AddressTable;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};

/// Configuration of a switch.
///
/// ```
/// use bareverbs_sim::net::{Switch, SwitchConfig};
/// use bareverbs_prm::time::Duration;
///
/// // A shallow switch that marks packets from half of a buffer on.
/// let config = SwitchConfig {
///     latency: Duration::from_nanos(500),
///     buffer_per_port: 64 << 10,
///     mark_from: Some(32 << 10),
///     ..SwitchConfig::default()
/// };
/// assert!(!Switch::ethernet(&config).is_infiniband());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Latency of an idle store-and-forward switch, from the last bit in to the first bit out.
    pub latency: Duration,
    /// Egress buffer per port in bytes. Frames that do not fit are dropped.
    pub buffer_per_port: u64,
    /// ECN threshold of an Ethernet switch: egress queue length in bytes from which it marks IP packets of ECN-capable
    /// senders.
    pub mark_from: Option<u64>,
    /// Most addresses that an Ethernet switch learns; frames to others are flooded.
    pub address_limit: usize,
    /// How long an Ethernet switch remembers a silent address.
    pub address_ageing: Duration,
}

impl Default for SwitchConfig {
    /// Table size and ageing time of common hardware; the time is the default of IEEE 802.1D, table 7-5.
    fn default() -> Self {
        Self {
            latency: Duration::from_nanos(300),
            buffer_per_port: 1 << 20,
            mark_from: None,
            address_limit: 8192,
            address_ageing: Duration::from_secs(300),
        }
    }
}

/// Counters of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchCounters {
    /// Frames sent to the one port that leads to their destination.
    pub forwarded: u64,
    /// Frames sent to several ports: multicast, or on Ethernet an unknown destination.
    pub flooded: u64,
    /// Frames sent nowhere: the destination is behind the ingress port, on InfiniBand is unknown, or the frame is too
    /// short to have one.
    pub filtered: u64,
    /// Packets for the subnet manager or for agents on its node.
    pub managed: u64,
    /// Packets of the subnet manager and of agents on its node, and directed routes through it, that were dropped: the
    /// queue was full, or no port leads to the destination.
    pub management_dropped: u64,
    /// Requests to the subnet administration that get no response, because their sender has no LID of the subnet or
    /// their SM_Key is wrong.
    pub refused: u64,
    /// Frames whose source address was not learned because the table was full.
    pub not_learned: u64,
    /// Frames dropped at a full egress buffer, counted by the runner.
    pub tail_dropped: u64,
    /// Packets marked for congestion at their egress port, counted by the runner.
    pub marked: u64,
}

/// A frame that leaves a switch. A port without a cable, which an SM may have written into a table, leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// The incoming frame leaves through this port only.
    Forward {
        /// The port.
        port: usize,
    },
    /// One of several copies of the incoming frame.
    Copy {
        /// The port.
        port: usize,
    },
    /// A management packet that the switch generated.
    Own {
        /// The port.
        port: usize,
        /// The packet.
        frame: Vec<u8>,
        /// Its invariant CRC.
        icrc: u32,
    },
}

/// Ports that the last incoming frame has yet to leave through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exits {
    None,
    One(usize),
    /// Every port from `next` except `ingress`.
    Flood {
        next: usize,
        ingress: usize,
    },
    Group(PortSet),
}

/// The forwarding table.
#[derive(Debug)]
enum Table {
    Ethernet(AddressTable),
    InfiniBand(Subnet),
}

/// A switch; see the module.
///
/// ```
/// use bareverbs_prm::time::Time;
/// use bareverbs_sim::net::{Egress, Switch, SwitchConfig};
///
/// let mut switch = Switch::ethernet(&SwitchConfig::default());
/// let [left, right] = [switch.add_port(), switch.add_port()];
/// // Destination and source; the rest does not matter to a switch.
/// let there = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
/// switch.handle_frame(Time::ZERO, left, &there);
/// assert_eq!(switch.poll(), Some(Egress::Copy { port: right }), "nobody knows the way: a flood");
/// assert_eq!(switch.poll(), None);
/// let back = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
/// switch.handle_frame(Time::ZERO, right, &back);
/// assert_eq!(switch.poll(), Some(Egress::Forward { port: left }), "it has learned who is there");
/// ```
#[derive(Debug)]
pub struct Switch {
    table: Table,
    ports: usize,
    exits: Exits,
    counters: SwitchCounters,
}

impl Switch {
    /// An Ethernet switch without ports.
    pub fn ethernet(config: &SwitchConfig) -> Self {
        Self::new(Table::Ethernet(AddressTable::new(config.address_limit, config.address_ageing)))
    }

    /// An InfiniBand switch without ports that hosts the subnet manager.
    pub fn infiniband(config: SubnetConfig) -> Self {
        Self::new(Table::InfiniBand(Subnet::of_manager(config)))
    }

    /// An additional InfiniBand switch without cables, which the SM on another switch has to discover.
    pub fn infiniband_without_manager(config: &SubnetSwitchConfig) -> Self {
        Self::new(Table::InfiniBand(Subnet::of(config)))
    }

    const fn new(table: Table) -> Self {
        let counters = SwitchCounters {
            forwarded: 0,
            flooded: 0,
            filtered: 0,
            managed: 0,
            management_dropped: 0,
            refused: 0,
            not_learned: 0,
            tail_dropped: 0,
            marked: 0,
        };
        Self { table, ports: 0, exits: Exits::None, counters }
    }

    /// Whether it is an InfiniBand switch.
    pub const fn is_infiniband(&self) -> bool {
        matches!(self.table, Table::InfiniBand(_))
    }

    /// Whether it is an InfiniBand switch that hosts the SM.
    pub const fn has_manager(&self) -> bool {
        match &self.table {
            Table::Ethernet(_) => false,
            Table::InfiniBand(subnet) => subnet.has_manager(),
        }
    }

    /// Whether there is a port for another cable.
    pub fn has_room(&self) -> bool {
        self.subnet().is_none_or(|subnet| self.ports < subnet.port_limit())
    }

    /// Largest number of ports.
    pub(crate) fn port_limit(&self) -> usize {
        self.subnet().map_or(usize::from(u8::MAX), Subnet::port_limit)
    }

    /// The subnet's topology as the SM on this switch has discovered it.
    pub fn topology(&self) -> Option<SubnetTopology> {
        self.subnet().and_then(Subnet::topology)
    }

    /// Adds a port without a cable and returns its number.
    pub const fn add_port(&mut self) -> usize {
        self.ports += 1;
        self.ports - 1
    }

    /// Number of ports.
    pub const fn ports(&self) -> usize {
        self.ports
    }

    /// Counters so far.
    pub const fn counters(&self) -> SwitchCounters {
        match &self.table {
            Table::Ethernet(_) => self.counters,
            Table::InfiniBand(subnet) => {
                let losses = subnet.losses();
                SwitchCounters {
                    management_dropped: losses.dropped,
                    refused: losses.refused,
                    ..self.counters
                }
            }
        }
    }

    /// Counts a frame that the runner dropped at a port's full egress buffer.
    pub fn count_tail_drop(&mut self, port: usize, frame: &[u8]) {
        self.counters.tail_dropped += 1;
        if let Table::InfiniBand(subnet) = &mut self.table {
            subnet.counters().discarded(port, frame);
        }
    }

    /// Counts a packet that the runner marked for congestion.
    pub(crate) const fn count_mark(&mut self) {
        self.counters.marked += 1;
    }

    /// Enters a static address into an Ethernet switch. No effect on an InfiniBand switch, which only its SM
    /// configures.
    pub fn set_static_address(&mut self, address: MacAddress, port: usize) {
        if let Table::Ethernet(addresses) = &mut self.table {
            addresses.set_static(address, port);
        }
    }

    /// Sets the ports of an InfiniBand multicast group from outside; the SA does this for its own groups when ports
    /// join (IBTA v1.4 §18.2.4.3.3). False if `lid` is not a multicast LID or belongs to a group of the SA, the table is
    /// full, or the switch is an Ethernet switch.
    pub fn set_multicast_ports(&mut self, lid: u16, ports: PortSet) -> bool {
        match &mut self.table {
            Table::Ethernet(_) => false,
            Table::InfiniBand(subnet) => subnet.set_group(lid, ports),
        }
    }

    /// Ports of the InfiniBand subnet that have a LID, in port order.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.subnet().into_iter().flat_map(Subnet::members)
    }

    /// Whether the SM is idle until its next sweep: it found every neighbour in order or silent after `time`.
    pub fn is_settled_since(&self, time: Time) -> bool {
        self.subnet().is_none_or(|subnet| subnet.is_settled_since(time))
    }

    /// The cable of `port` was plugged in or pulled.
    pub fn handle_link(&mut self, now: Time, port: usize, up: bool) {
        match &mut self.table {
            Table::Ethernet(addresses) if !up => addresses.forget_learned(port),
            Table::Ethernet(_) => {}
            Table::InfiniBand(subnet) => subnet.handle_link(now, port, up),
        }
    }

    /// Handles a frame that arrives at port `ingress`. Poll before the next one: remaining output of the previous frame
    /// is discarded.
    #[inline]
    pub fn handle_frame(&mut self, now: Time, ingress: usize, frame: &[u8]) {
        self.exits = match &mut self.table {
            Table::Ethernet(addresses) => switch_ethernet(addresses, &mut self.counters, now, ingress, frame),
            Table::InfiniBand(subnet) => switch_infiniband(subnet, &mut self.counters, now, ingress, frame),
        };
    }

    /// Handles the deadline of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        if let Table::InfiniBand(subnet) = &mut self.table {
            subnet.handle_timeout(now);
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.subnet().and_then(Subnet::poll_timeout)
    }

    /// The next frame to send.
    #[inline]
    pub fn poll(&mut self) -> Option<Egress> {
        self.poll_exit().or_else(|| self.poll_own())
    }

    /// The next port for the incoming frame.
    #[inline]
    pub(super) fn poll_exit(&mut self) -> Option<Egress> {
        let exit = match &mut self.exits {
            Exits::None => return None,
            Exits::One(port) => {
                let port = *port;
                self.exits = Exits::None;
                return Some(Egress::Forward { port });
            }
            Exits::Flood { next, ingress } => {
                *next += usize::from(next == ingress);
                *next += 1;
                Some(*next - 1).filter(|port| *port < self.ports)
            }
            Exits::Group(ports) => ports.take_first(),
        };
        match exit {
            Some(port) => Some(Egress::Copy { port }),
            None => {
                self.exits = Exits::None;
                None
            }
        }
    }

    fn poll_own(&mut self) -> Option<Egress> {
        let Table::InfiniBand(subnet) = &mut self.table else { return None };
        let (port, frame, icrc) = subnet.poll_packet()?;
        Some(Egress::Own { port, frame, icrc })
    }

    pub(super) const fn subnet(&self) -> Option<&Subnet> {
        match &self.table {
            Table::Ethernet(_) => None,
            Table::InfiniBand(subnet) => Some(subnet),
        }
    }
}

/// Learns the source, forwards by destination, floods unknown ones. IEEE 802.1D §7.7, §7.8.
#[inline]
fn switch_ethernet(
    addresses: &mut AddressTable,
    counters: &mut SwitchCounters,
    now: Time,
    ingress: usize,
    frame: &[u8],
) -> Exits {
    let Some((&[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5], _)) = frame.split_first_chunk() else {
        counters.filtered += 1;
        return Exits::None;
    };
    let is_known = addresses.learn(now, MacAddress([s0, s1, s2, s3, s4, s5]), ingress);
    counters.not_learned += u64::from(!is_known);
    match addresses.find(now, MacAddress([d0, d1, d2, d3, d4, d5])) {
        None if is_link_local([d0, d1, d2, d3, d4, d5]) => {
            counters.filtered += 1;
            Exits::None
        }
        None => {
            counters.flooded += 1;
            Exits::Flood { next: 0, ingress }
        }
        exit => one_of(exit, ingress, counters),
    }
}

/// Whether an address is one that bridges never forward: bridge protocols and pause frames (IEEE 802.1D table 7-10).
const fn is_link_local(address: [u8; 6]) -> bool {
    matches!(address, [0x01, 0x80, 0xc2, 0, 0, last] if last < 0x10)
}

/// Hands management packets to the subnet and forwards others by LID. An unassigned LID leads nowhere.
#[inline]
fn switch_infiniband(
    subnet: &mut Subnet,
    counters: &mut SwitchCounters,
    now: Time,
    ingress: usize,
    frame: &[u8],
) -> Exits {
    subnet.counters().received(ingress, frame);
    let exits = if Subnet::is_management(frame) {
        switch_management(subnet, counters, now, ingress, frame)
    } else {
        switch_data(subnet, counters, now, ingress, frame)
    };
    count_exits(subnet, exits, frame);
    exits
}

#[inline]
fn switch_data(
    subnet: &mut Subnet,
    counters: &mut SwitchCounters,
    now: Time,
    ingress: usize,
    frame: &[u8],
) -> Exits {
    if subnet.enforces_partitions() || subnet.maps_lanes() {
        return switch_checked(subnet, counters, now, ingress, frame);
    }
    switch_by_lid(subnet, counters, now, ingress, frame)
}

/// Forwards a packet after checking P_Key enforcement and lanes.
fn switch_checked(
    subnet: &mut Subnet,
    counters: &mut SwitchCounters,
    now: Time,
    ingress: usize,
    frame: &[u8],
) -> Exits {
    if !subnet.lets_in(now, ingress, frame) {
        counters.filtered += 1;
        return Exits::None;
    }
    let passes = |subnet: &mut Subnet, port: usize| {
        subnet.carries(ingress, port, frame) && subnet.lets_out(now, port, frame)
    };
    match switch_by_lid(subnet, counters, now, ingress, frame) {
        Exits::One(port) if !passes(subnet, port) => {
            counters.forwarded -= 1;
            counters.filtered += 1;
            Exits::None
        }
        Exits::Group(mut ports) => {
            let mut passing = PortSet::default();
            while let Some(port) = ports.take_first() {
                passing = if passes(subnet, port) { passing.with(port) } else { passing };
            }
            Exits::Group(passing)
        }
        exits => exits,
    }
}

#[inline]
fn switch_by_lid(
    subnet: &mut Subnet,
    counters: &mut SwitchCounters,
    now: Time,
    ingress: usize,
    frame: &[u8],
) -> Exits {
    if let Some(group) = subnet.group(frame) {
        counters.flooded += 1;
        return Exits::Group(group.without(ingress));
    }
    let exit = subnet.exit(frame);
    if exit.is_none() && subnet.handle_own(now, ingress, frame) {
        counters.managed += 1;
        return Exits::None;
    }
    relayed(subnet, one_of(exit, ingress, counters), ingress)
}

/// Counts a packet without an egress port at its ingress port.
#[inline]
fn relayed(subnet: &mut Subnet, exits: Exits, ingress: usize) -> Exits {
    if exits == Exits::None {
        subnet.counters().not_relayed(ingress);
    }
    exits
}

/// Counts the incoming packet at its egress ports.
#[inline]
fn count_exits(subnet: &mut Subnet, exits: Exits, frame: &[u8]) {
    match exits {
        Exits::One(port) => subnet.counters().sent(port, frame),
        Exits::Group(mut ports) => {
            while let Some(port) = ports.take_first() {
                subnet.counters().sent(port, frame);
            }
        }
        Exits::None | Exits::Flood { .. } => {}
    }
}

/// Hands a packet on the management lane to the SM or the agent, or forwards it.
#[cold]
fn switch_management(
    subnet: &mut Subnet,
    counters: &mut SwitchCounters,
    now: Time,
    ingress: usize,
    frame: &[u8],
) -> Exits {
    match subnet.handle_management(now, ingress, frame) {
        Management::Forward(exit) => return relayed(subnet, one_of(exit, ingress, counters), ingress),
        Management::Passed => counters.forwarded += 1,
        Management::Taken => counters.managed += 1,
        Management::Dropped => subnet.counters().management_dropped(ingress),
        Management::Lost => {
            counters.filtered += 1;
            subnet.counters().not_relayed(ingress);
        }
    }
    Exits::None
}

/// The port that leads to the destination, unless the frame came from there.
#[inline]
fn one_of(exit: Option<usize>, ingress: usize, counters: &mut SwitchCounters) -> Exits {
    match exit.filter(|port| *port != ingress) {
        Some(port) => {
            counters.forwarded += 1;
            Exits::One(port)
        }
        None => {
            counters.filtered += 1;
            Exits::None
        }
    }
}

#[cfg(test)]
mod tests;
