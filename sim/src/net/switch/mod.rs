//! A switch of either link layer: forwards by destination, floods where it must.
//!
//! **What this is.** One pure state machine that both runners host, the world in virtual time and the fabric of threads in
//! real time. Inputs are `handle_*`; [`Switch::poll`] gives what leaves and by which port; [`Switch::poll_timeout`] gives the
//! next deadline. The link layers differ in their table only: an Ethernet switch learns addresses (IEEE 802.1D §7.8), the
//! tables of an InfiniBand switch are filled by the subnet's manager (IBTA v1.4 §18.2.4.3), which lives in one of the subnet's switches.
//!
//! **What it may not do.** It has no queue and no delay: where frames wait and which of them find no room is the runner's.
//! It changes no byte of a frame, but for directed routes of subnet management, which note where they have been.

mod address_table;

use super::port_set::PortSet;
use super::subnet::{Management, Member, Subnet, SubnetConfig, SubnetSwitchConfig};
use super::topology::SubnetTopology;
use address_table::AddressTable;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};

/// How a switch is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchConfig {
    /// From the last bit in to the first bit out when nothing waits: it stores and forwards.
    pub latency: Duration,
    /// Bytes that may wait at one egress port; a frame that does not fit is dropped.
    pub buffer_per_port: u64,
    /// Bytes that wait at an egress port from which on an Ethernet switch marks packets of IP whose sender understands it (ECN).
    pub mark_from: Option<u64>,
    /// Addresses that an Ethernet switch learns; frames to further ones are flooded.
    pub address_limit: usize,
    /// How long an Ethernet switch remembers an address that sends nothing.
    pub address_ageing: Duration,
}

impl Default for SwitchConfig {
    /// Table and ageing time of common hardware; the time is the default of IEEE 802.1D, table 7-5.
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

/// What a switch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchCounters {
    /// Frames sent out of the one port that leads to their destination.
    pub forwarded: u64,
    /// Frames sent out of several ports: to a group, or on Ethernet to an unknown destination.
    pub flooded: u64,
    /// Frames that went nowhere: their destination is behind the port they came from, or on InfiniBand nobody has it, or they
    /// are too short to have one.
    pub filtered: u64,
    /// Packets that went to the manager of the subnet, or to the agents in its node.
    pub managed: u64,
    /// Frames whose source was not learned because the table was full.
    pub not_learned: u64,
    /// Frames that found the egress buffer full. The runner counts them.
    pub tail_dropped: u64,
    /// Packets that were marked because frames waited at their egress port. The runner counts them.
    pub marked: u64,
}

/// A frame that leaves a switch. By a port without a cable, which whoever manages a subnet may have written into a table, it goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// The frame that came in leaves by this port and by no other.
    Forward {
        /// The port.
        port: usize,
    },
    /// One of several copies of the frame that came in.
    Copy {
        /// The port.
        port: usize,
    },
    /// A management packet that the switch made itself.
    Own {
        /// The port.
        port: usize,
        /// The packet.
        frame: Vec<u8>,
        /// Its invariant CRC.
        icrc: u32,
    },
}

/// Ports by which the frame that came in last has yet to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exits {
    None,
    One(usize),
    /// Every port from `next` on but `ingress`.
    Flood {
        next: usize,
        ingress: usize,
    },
    Group(PortSet),
}

/// What tells where a frame goes.
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

    /// An InfiniBand switch without ports, and the manager of its subnet.
    pub fn infiniband(config: SubnetConfig) -> Self {
        Self::new(Table::InfiniBand(Subnet::of_manager(config)))
    }

    /// A further switch of an InfiniBand subnet, without cables, which the manager in another one has to find.
    pub fn infiniband_without_manager(config: &SubnetSwitchConfig) -> Self {
        Self::new(Table::InfiniBand(Subnet::of(config)))
    }

    const fn new(table: Table) -> Self {
        let counters = SwitchCounters {
            forwarded: 0,
            flooded: 0,
            filtered: 0,
            managed: 0,
            not_learned: 0,
            tail_dropped: 0,
            marked: 0,
        };
        Self { table, ports: 0, exits: Exits::None, counters }
    }

    /// Whether it is a switch of InfiniBand.
    pub const fn is_infiniband(&self) -> bool {
        matches!(self.table, Table::InfiniBand(_))
    }

    /// Whether it is a switch of InfiniBand with a manager.
    pub const fn has_manager(&self) -> bool {
        match &self.table {
            Table::Ethernet(_) => false,
            Table::InfiniBand(subnet) => subnet.has_manager(),
        }
    }

    /// Whether another cable finds a port.
    pub fn has_room(&self) -> bool {
        self.subnet().is_none_or(|subnet| self.ports < subnet.port_limit())
    }

    /// The most ports that it can have.
    pub(crate) fn port_limit(&self) -> usize {
        self.subnet().map_or(usize::from(u8::MAX), Subnet::port_limit)
    }

    /// The subnet as its manager has found it, if it is in this switch: who is joined to whom.
    pub fn topology(&self) -> Option<SubnetTopology> {
        self.subnet().and_then(Subnet::topology)
    }

    /// Adds a port without a cable and gives its number.
    pub const fn add_port(&mut self) -> usize {
        self.ports += 1;
        self.ports - 1
    }

    /// Ports.
    pub const fn ports(&self) -> usize {
        self.ports
    }

    /// What it did so far.
    pub const fn counters(&self) -> SwitchCounters {
        self.counters
    }

    /// The runner had no room for a frame in the egress buffer of a port.
    pub fn count_tail_drop(&mut self, port: usize, frame: &[u8]) {
        self.counters.tail_dropped += 1;
        if let Table::InfiniBand(subnet) = &mut self.table {
            subnet.tallies().discarded(port, frame);
        }
    }

    /// The runner marked a packet, because frames waited where it leaves.
    pub(crate) const fn count_mark(&mut self) {
        self.counters.marked += 1;
    }

    /// Tells an Ethernet switch for good which port leads to `address`. An InfiniBand switch is told by its manager only.
    pub fn set_static_address(&mut self, address: MacAddress, port: usize) {
        if let Table::Ethernet(addresses) = &mut self.table {
            addresses.set_static(address, port);
        }
    }

    /// Sets the ports of an InfiniBand multicast group from outside, as the subnet's administration does for its own groups when ports
    /// join (IBTA v1.4 §18.2.4.3.3). False if `lid` is not that of a group, there is no room for another, or the switch is of Ethernet.
    pub fn set_multicast_ports(&mut self, lid: u16, ports: PortSet) -> bool {
        match &mut self.table {
            Table::Ethernet(_) => false,
            Table::InfiniBand(subnet) => subnet.set_group(lid, ports),
        }
    }

    /// Who is in the InfiniBand subnet, in the order of the ports.
    pub fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.subnet().into_iter().flat_map(Subnet::members)
    }

    /// Whether nothing is left to do but to look again: every neighbour was found in order, or silent, after `time`.
    pub fn is_settled_since(&self, time: Time) -> bool {
        self.subnet().is_none_or(|subnet| subnet.is_settled_since(time))
    }

    /// The cable of `port` was plugged in or pulled out.
    pub fn handle_link(&mut self, now: Time, port: usize, up: bool) {
        match &mut self.table {
            Table::Ethernet(addresses) if !up => addresses.forget_learned(port),
            Table::Ethernet(_) => {}
            Table::InfiniBand(subnet) => subnet.handle_link(now, port, up),
        }
    }

    /// A frame comes in at port `ingress`. Poll before the next one: what is left of the last is forgotten.
    #[inline]
    pub fn handle_frame(&mut self, now: Time, ingress: usize, frame: &[u8]) {
        self.exits = match &mut self.table {
            Table::Ethernet(addresses) => switch_ethernet(addresses, &mut self.counters, now, ingress, frame),
            Table::InfiniBand(subnet) => switch_infiniband(subnet, &mut self.counters, now, ingress, frame),
        };
    }

    /// The deadline of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Table::InfiniBand(subnet) = &mut self.table {
            subnet.handle_timeout(now);
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.subnet().and_then(Subnet::poll_timeout)
    }

    /// What leaves next.
    #[inline]
    pub fn poll(&mut self) -> Option<Egress> {
        self.poll_exit().or_else(|| self.poll_own())
    }

    /// The next port by which the frame that came in leaves.
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

    const fn subnet(&self) -> Option<&Subnet> {
        match &self.table {
            Table::Ethernet(_) => None,
            Table::InfiniBand(subnet) => Some(subnet),
        }
    }
}

/// Learns from the source, forwards by the destination, floods what it does not know. IEEE 802.1D §7.7, §7.8.
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

/// Whether an address is one of those that no bridge forwards to: bridge protocols and pause frames (IEEE 802.1D table 7-10).
const fn is_link_local(address: [u8; 6]) -> bool {
    matches!(address, [0x01, 0x80, 0xc2, 0, 0, last] if last < 0x10)
}

/// Gives management packets to the manager, and forwards the others by their LID. A LID that nobody has leads nowhere.
#[inline]
fn switch_infiniband(
    subnet: &mut Subnet,
    counters: &mut SwitchCounters,
    now: Time,
    ingress: usize,
    frame: &[u8],
) -> Exits {
    subnet.tallies().received(ingress, frame);
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

/// Forwards a packet whose P_Key the ports let pass, and whose service level has a lane.
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

/// A packet for which there is no other port counts at the one that it came in by.
#[inline]
fn relayed(subnet: &mut Subnet, exits: Exits, ingress: usize) -> Exits {
    if exits == Exits::None {
        subnet.tallies().not_relayed(ingress);
    }
    exits
}

/// Counts the packet that came in at the ports that it leaves by.
#[inline]
fn count_exits(subnet: &mut Subnet, exits: Exits, frame: &[u8]) {
    match exits {
        Exits::One(port) => subnet.tallies().sent(port, frame),
        Exits::Group(mut ports) => {
            while let Some(port) = ports.take_first() {
                subnet.tallies().sent(port, frame);
            }
        }
        Exits::None | Exits::Flood { .. } => {}
    }
}

/// Gives a packet of the management lane to the manager and the agent, or forwards it if it goes to somebody else.
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
        Management::Lost => {
            counters.filtered += 1;
            subnet.tallies().not_relayed(ingress);
        }
    }
    Exits::None
}

/// Out of the port that leads there, unless the frame came from it.
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
