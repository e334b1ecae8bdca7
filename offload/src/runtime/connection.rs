//! Who may send requests, on which regions, and where their answers may go.

use super::tokens::{Allowance, Tokens};
use crate::grant::{Grant, GrantFault};
use crate::kernel::Caller;
use crate::status::Status;
use crate::wire::{RegionHandle, ReplyTo};
use bareverbs_prm::time::Time;
use core::fmt;

/// The last generation of a region that fits into a handle.
const LAST_GENERATION: u32 = 0xff_ffff;
/// Regions of one connection.
const REGIONS: usize = 4;

/// Names a connection of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(u16);

impl ConnectionId {
    /// The first one. Stands where there is none.
    pub(super) const FIRST: Self = Self(0);

    /// The connection's index, from zero.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where replies of a connection may be written: registered once, checked on every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseWindow {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// The remote key.
    pub rkey: u32,
}

impl ResponseWindow {
    /// Whether the whole slot lies in the window.
    pub fn covers(&self, reply: &ReplyTo) -> bool {
        let Some(begin) = reply.address.checked_sub(self.address) else { return false };
        let end = begin.checked_add(reply.size());
        reply.rkey == self.rkey
            && reply.write_address(0).is_some()
            && end.is_some_and(|end| end <= self.length)
    }
}

/// Why a connection or a grant was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// The runtime has no room for another connection.
    TooManyConnections {
        /// The most connections that it can have.
        limit: usize,
    },
    /// There is no such connection.
    NoConnection(ConnectionId),
    /// The connection has no room for another grant.
    TooManyRegions {
        /// The most grants that a connection can have.
        limit: usize,
    },
    /// The region is impossible.
    Grant(GrantFault),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyConnections { limit } => write!(f, "the runtime has all its {limit} connections"),
            Self::NoConnection(id) => write!(f, "there is no connection {}", id.0),
            Self::TooManyRegions { limit } => {
                write!(f, "the connection has all its {limit} grants: revoke one")
            }
            Self::Grant(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for ConnectError {}

impl From<GrantFault> for ConnectError {
    fn from(fault: GrantFault) -> Self {
        Self::Grant(fault)
    }
}

#[derive(Debug, Clone, Copy)]
struct Connection {
    window: ResponseWindow,
    share: u16,
    may_deploy: bool,
    tokens: Tokens,
}

#[derive(Debug, Clone, Copy, Default)]
struct Region {
    /// Number of grants revoked in this place. A place whose generations are used up is never reused, so no handle
    /// names two grants.
    generation: u32,
    grant: Option<Grant>,
}

impl Region {
    fn void(&mut self) {
        if self.grant.take().is_some() {
            self.generation += 1;
        }
    }
}

/// Generation and index.
const fn parts(handle: RegionHandle) -> (u32, usize) {
    (handle.0 >> 8, (handle.0 & 0xff) as usize)
}

/// All connections of a runtime. Generations of regions outlive the connection, so that old handles stay void.
#[derive(Debug)]
pub(super) struct Connections<const N: usize> {
    open: [Option<Connection>; N],
    regions: [[Region; REGIONS]; N],
}

impl<const N: usize> Default for Connections<N> {
    fn default() -> Self {
        Self { open: [None; N], regions: [[Region::default(); REGIONS]; N] }
    }
}

impl<const N: usize> Connections<N> {
    pub(super) fn open(&mut self, window: ResponseWindow, share: u16) -> Result<ConnectionId, ConnectError> {
        let full = ConnectError::TooManyConnections { limit: N };
        let index = self.open.iter().position(Option::is_none).ok_or(full)?;
        let id = u16::try_from(index).map_err(|_| full)?;
        self.open[index] = Some(Connection { window, share, may_deploy: false, tokens: Tokens::default() });
        Ok(ConnectionId(id))
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        if let Some(connection) = self.open.get_mut(id.index()) {
            *connection = None;
            self.regions[id.index()].iter_mut().for_each(Region::void);
        }
    }

    fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.open.get(id.index())?.as_ref()
    }

    pub(super) fn window(&self, id: ConnectionId) -> Option<ResponseWindow> {
        self.get(id).map(|connection| connection.window)
    }

    pub(super) fn allow_deployment(&mut self, id: ConnectionId, allowed: bool) -> Result<(), ConnectError> {
        let connection = self.open.get_mut(id.index()).and_then(Option::as_mut);
        connection.ok_or(ConnectError::NoConnection(id))?.may_deploy = allowed;
        Ok(())
    }

    pub(super) fn limit(&mut self, id: ConnectionId, allowance: Allowance) -> Result<(), ConnectError> {
        let connection = self.open.get_mut(id.index()).and_then(Option::as_mut);
        connection.ok_or(ConnectError::NoConnection(id))?.tokens = Tokens::new(allowance);
        Ok(())
    }

    /// When the next request of a connection may be taken.
    pub(super) fn request_at(&self, id: ConnectionId) -> Time {
        self.get(id).map_or(Time::ZERO, |connection| connection.tokens.request_at())
    }

    /// Takes a token for a request, and returns whether there was one.
    pub(super) fn take_request(&mut self, id: ConnectionId, now: Time) -> bool {
        let Some(connection) = self.open.get_mut(id.index()).and_then(Option::as_mut) else { return true };
        let ready = connection.tokens.request_at() <= now;
        if ready {
            connection.tokens.take_request(now);
        }
        ready
    }

    /// When the next DMA of a connection may begin.
    pub(super) fn dma_at(&self, id: ConnectionId) -> Time {
        self.get(id).map_or(Time::ZERO, |connection| connection.tokens.dma_at())
    }

    pub(super) fn take_dma(&mut self, id: ConnectionId, now: Time, bytes: u32) {
        if let Some(connection) = self.open.get_mut(id.index()).and_then(Option::as_mut) {
            connection.tokens.take_dma(now, bytes);
        }
    }

    pub(super) fn caller(&self, id: ConnectionId) -> Caller {
        Caller { connection: id.0, may_deploy: self.get(id).is_some_and(|connection| connection.may_deploy) }
    }

    pub(super) fn share(&self, id: ConnectionId) -> usize {
        self.get(id).map_or(0, |connection| connection.share.into())
    }

    pub(super) fn grant(&mut self, id: ConnectionId, grant: Grant) -> Result<RegionHandle, ConnectError> {
        self.get(id).ok_or(ConnectError::NoConnection(id))?;
        let regions = &mut self.regions[id.index()];
        let unused = |region: &Region| region.grant.is_none() && region.generation < LAST_GENERATION;
        let free = regions.iter().position(unused);
        let index = free.ok_or(ConnectError::TooManyRegions { limit: REGIONS })?;
        regions[index].grant = Some(grant);
        Ok(RegionHandle(regions[index].generation << 8 | index as u32))
    }

    pub(super) fn revoke(&mut self, id: ConnectionId, handle: RegionHandle) {
        let (generation, index) = parts(handle);
        let region = self.regions.get_mut(id.index()).and_then(|regions| regions.get_mut(index));
        if let Some(region) = region.filter(|region| region.generation == generation) {
            region.void();
        }
    }

    /// The grant under this handle: [`Status::Revoked`] if there was one, [`Status::OutOfBounds`] if there never was.
    pub(super) fn region(&self, id: ConnectionId, handle: RegionHandle) -> Result<&Grant, Status> {
        let (generation, index) = parts(handle);
        let region = self.regions.get(id.index()).and_then(|regions| regions.get(index));
        match region {
            Some(region) if generation < region.generation => Err(Status::Revoked),
            Some(Region { generation: now, grant: Some(grant) }) if generation == *now => Ok(grant),
            _ => Err(Status::OutOfBounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: ResponseWindow = ResponseWindow { address: 0, length: 64, rkey: 1 };

    /// A handle is a generation of 24 bits and a place. The place whose generations are used up stays empty.
    #[test]
    fn a_place_is_not_granted_beyond_its_last_generation() {
        let mut connections: Connections<2> = Connections::default();
        let id = [0, 1].map(|_| connections.open(WINDOW, 1).expect("room"))[1];
        assert_eq!(id.index(), 1);
        let grant = Grant::new(0x1000, 64).expect("no wrap");
        connections.regions[1][0].generation = LAST_GENERATION - 1;
        let last = connections.grant(id, grant).expect("room");
        assert_eq!(last, RegionHandle(0xffff_fe00));
        assert_eq!(connections.region(id, last), Ok(&grant));
        connections.revoke(id, RegionHandle(0xffff_fd00));
        assert_eq!(connections.region(id, last), Ok(&grant), "another generation is another grant");
        connections.revoke(id, last);
        assert_eq!(connections.region(id, last), Err(Status::Revoked));
        let others: Vec<u32> = (0..3).map(|_| connections.grant(id, grant).expect("room").0).collect();
        assert_eq!(others, [1, 2, 3]);
        assert_eq!(connections.grant(id, grant), Err(ConnectError::TooManyRegions { limit: 4 }));
        assert_eq!(connections.region(id, RegionHandle(0xffff_ff00)), Err(Status::OutOfBounds));
    }

    #[test]
    fn only_an_allowed_connection_may_deploy() {
        let mut connections: Connections<2> = Connections::default();
        let id = [0, 1].map(|_| connections.open(WINDOW, 3).expect("room"))[1];
        assert_eq!(connections.caller(id), Caller { connection: 1, may_deploy: false });
        connections.allow_deployment(id, true).expect("it is open");
        assert_eq!(connections.caller(id), Caller { connection: 1, may_deploy: true });
        assert_eq!((connections.share(id), connections.window(id)), (3, Some(WINDOW)));
        connections.close(id);
        assert_eq!(connections.caller(id), Caller { connection: 1, may_deploy: false });
        assert_eq!((connections.share(id), connections.window(id)), (0, None));
    }
}
