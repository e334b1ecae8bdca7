//! Resolution: from a peer's address to a path's GIDs, and then to the route.
//!
//! Both take time, as with the kernel; see [`NEIGHBOUR_TIME`].

use super::address::{Place, SocketAddress};
use super::call::CmCall;
use super::events::{EventType, Parameters, WaitingEvent};
use super::group_address::GroupAddress;
use super::identifier::Stage;
use super::naming::sized;
use crate::Errno;
use crate::connection_names::{ConnectionFileId, SubnetPort};
use crate::process::Process;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_cm::Path;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Duration;

/// How long looking up a neighbour takes, and the interval after which a missing neighbour is looked up again.
///
/// Linux never resolves within the call: the work queue of `ib_addr` asks the neighbour cache, which broadcasts an ARP
/// request the first time; then the work queue of `rdma_cm` looks up the route, on InfiniBand through the SA. That
/// takes tens of µs between hosts that know each other and some ms otherwise, like here. Programs unknowingly rely on
/// it: the server of `ib_send_lat -R` creates its listener only after it has agreed on that with its client over TCP.
const NEIGHBOUR_TIME: Duration = Duration::from_millis(2);
/// How long looking up a route takes.
const ROUTE_TIME: Duration = Duration::from_millis(2);

impl<P: Process> CmCall<'_, P> {
    /// The own address to reach another one from; if that is unspecified, the first of its family.
    fn own_address(&self, address: &SocketAddress) -> Gid {
        if let Place::Gid(gid) = address.place() {
            return self.cm.facts.towards(gid).address_for(gid);
        }
        let is_v6 = matches!(address, SocketAddress::V6 { .. });
        let gids = &self.cm.facts.first().addresses;
        let same = |gid: &&Gid| gid.to_ipv4().is_none() == is_v6;
        gids.iter().find(same).or(gids.first()).copied().unwrap_or_default()
    }

    pub(super) fn resolve_ip(&mut self, file: ConnectionFileId, command: &CmResolveIp) -> Result<(), Errno> {
        self.identifier(file, command.id)?;
        let source = SocketAddress::parse(&command.src_addr);
        let destination = SocketAddress::parse(&command.dst_addr).ok_or(Errno::AddressFamily)?;
        self.resolve(command.id, source, destination, command.timeout_ms)
    }

    pub(super) fn resolve_address(
        &mut self,
        file: ConnectionFileId,
        command: &CmResolveAddr,
    ) -> Result<(), Errno> {
        if command.reserved != 0 {
            return Err(Errno::Invalid);
        }
        self.identifier(file, command.id)?;
        let source =
            if command.src_size == 0 { None } else { Some(sized(&command.src_addr, command.src_size)?) };
        let destination = sized(&command.dst_addr, command.dst_size)?;
        self.resolve(command.id, source, destination, command.timeout_ms)
    }

    fn resolve(
        &mut self,
        id: u32,
        source: Option<SocketAddress>,
        destination: SocketAddress,
        timeout_ms: u32,
    ) -> Result<(), Errno> {
        // Native InfiniBand addresses name no peer on Ethernet.
        if matches!(destination, SocketAddress::Native(_)) {
            return Err(Errno::Invalid);
        }
        let stage = self.cm.identifiers.get(&id).ok_or(Errno::NoEntry)?.stage;
        if stage == Stage::Idle {
            let any = match destination {
                SocketAddress::V6 { .. } => SocketAddress::V6 { address: [0; 16], port: 0, rest: [0; 8] },
                _ => SocketAddress::ANY,
            };
            self.bind_to(id, source.unwrap_or(any))?;
        } else if stage != Stage::Bound {
            return Err(Errno::Invalid);
        }
        let (now, timeout) = (self.now, Duration::from_millis(timeout_ms.into()));
        let known = self.cm.identifiers.get_mut(&id).ok_or(Errno::NoEntry)?;
        if known.source.is_some_and(|source| source.family() != destination.family()) {
            return Err(Errno::Invalid);
        }
        known.destination = Some(destination);
        let (next_look, until) = (now + NEIGHBOUR_TIME, now + timeout);
        self.set_stage(id, Stage::ResolvingAddress { next_look, until });
        Ok(())
    }

    /// Moves an identifier on in its resolution.
    fn set_stage(&mut self, id: u32, stage: Stage) {
        let Some(known) = self.cm.identifiers.get_mut(&id) else { return };
        let before = core::mem::replace(&mut known.stage, stage);
        if let Some(due) = before.next_look() {
            self.cm.resolutions.remove(&(due, id));
        }
        self.cm.resolutions.extend(stage.next_look().map(|due| (due, id)));
    }

    /// Resolves what is due.
    pub(super) fn resolve_due(&mut self) {
        let now = self.now;
        let due = self.cm.resolutions.iter().take_while(|(due, _)| *due <= now);
        let mut due: Vec<u32> = due.map(|(_, id)| *id).collect();
        // Late or not, they have their turns in the order of their numbers.
        due.sort_unstable();
        for id in due {
            self.look_for_peer(id);
            self.find_route(id);
        }
    }

    /// Checks whether the peer of an identifier is there by now; gives up when the time is over.
    fn look_for_peer(&mut self, id: u32) {
        let Some(known) = self.cm.identifiers.get(&id) else { return };
        let (Stage::ResolvingAddress { until, .. }, Some(destination)) = (known.stage, known.destination)
        else {
            return;
        };
        let bound = match known.source.map(|source| source.place()) {
            Some(Place::Gid(address)) => Some(address),
            _ => None,
        };
        let address = bound.unwrap_or_else(|| self.own_address(&destination));
        let space = known.space;
        let local = self.own(address).unwrap_or(address);
        let path = self.path_to(local, &destination, space);
        let now = self.now;
        let (stage, kind, status) = match path {
            Some(_) => (Stage::AddressResolved, EventType::AddressResolved, 0),
            None if now >= until => (Stage::Bound, EventType::AddressError, -Errno::TimedOut.raw()),
            // A missing peer may appear at any time without notice.
            None => {
                let next_look = now + NEIGHBOUR_TIME;
                return self.set_stage(id, Stage::ResolvingAddress { next_look, until });
            }
        };
        self.set_stage(id, stage);
        let Some(known) = self.cm.identifiers.get_mut(&id) else { return };
        if path.is_some() {
            known.path = path;
            known.source = known.source.map(|source| resolved_source(source, address, &destination));
        }
        let event = WaitingEvent::new(id, known, kind, status, &Parameters::None);
        self.tell(event);
    }

    /// The path from an own GID to an address, if somebody there has it.
    fn path_to(&mut self, local: Gid, destination: &SocketAddress, space: u16) -> Option<Path> {
        let facts = self.cm.facts.with_gid(local);
        let Place::Gid(address) = destination.place() else { return Some(facts.own_path(local)) };
        if let Some(own) = self.own(address) {
            let lid = self.cm.facts.with_gid(own).lid.unwrap_or(0);
            return Some(facts.path(local, own, lid));
        }
        // A group needs nobody to be there.
        if let Some(group) = GroupAddress::of(destination, space, facts.lid.is_some()) {
            return Some(group.path(facts, local));
        }
        if facts.lid.is_none() {
            return self.process.is_reachable(address).then_some(Path { local, remote: address, lids: None });
        }
        let SubnetPort { gid, lid } = self.process.find_subnet_port(address)?;
        Some(self.cm.facts.with_gid(local).path(local, gid, lid))
    }

    pub(super) fn resolve_route(
        &mut self,
        file: ConnectionFileId,
        command: &CmResolveRoute,
    ) -> Result<(), Errno> {
        self.identifier(file, command.id)?;
        let now = self.now;
        let known = self.identifier(file, command.id)?;
        if known.stage != Stage::AddressResolved {
            return Err(Errno::Invalid);
        }
        self.set_stage(command.id, Stage::ResolvingRoute { at: now + ROUTE_TIME });
        Ok(())
    }

    /// Completes the route resolution of an identifier. There always is a route, on RoCE or through the
    /// subnet's only switch.
    fn find_route(&mut self, id: u32) {
        let stage = self.cm.identifiers.get(&id).map(|known| known.stage);
        if matches!(stage, Some(Stage::ResolvingRoute { .. })) {
            self.has_route(id);
        }
    }

    /// Takes the route that the program sets; nothing is resolved.
    pub(super) fn take_route(&mut self, id: u32) -> Result<(), Errno> {
        if self.cm.identifiers.get(&id).ok_or(Errno::NoEntry)?.stage != Stage::AddressResolved {
            return Err(Errno::Invalid);
        }
        self.has_route(id);
        Ok(())
    }

    fn has_route(&mut self, id: u32) {
        self.set_stage(id, Stage::RouteResolved);
        let Some(known) = self.cm.identifiers.get(&id) else { return };
        let event = WaitingEvent::new(id, known, EventType::RouteResolved, 0, &Parameters::None);
        self.tell(event);
    }
}

/// The source address after resolution. A loopback address stays a loopback address for the program.
fn resolved_source(source: SocketAddress, own: Gid, destination: &SocketAddress) -> SocketAddress {
    match (source.place(), destination.place()) {
        (Place::Any, Place::Any | Place::Loopback) => destination.with_port(source.port()),
        (Place::Any, _) => SocketAddress::of_gid(own, source.port()),
        _ => source,
    }
}
