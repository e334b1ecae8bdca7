//! Who may ask, what for, and where the answers may go.

use crate::grant::{Grant, GrantFault};
use crate::wire::{RegionHandle, ReplyTo};
use core::fmt;

/// Regions of one connection.
const REGIONS: usize = 4;

/// Names a connection of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(u16);

impl ConnectionId {
    /// The number of the connection, counted from zero.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where replies of a connection may be written: registered once, checked with every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseWindow {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The key of the memory.
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
        /// Most connections it can have.
        limit: usize,
    },
    /// There is no such connection.
    NoConnection(ConnectionId),
    /// The connection has no room for another grant.
    TooManyRegions {
        /// Most grants a connection can have.
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

#[derive(Debug, Clone, Copy)]
struct Connection {
    window: ResponseWindow,
    share: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Region {
    generation: u8,
    grant: Option<Grant>,
}

impl Region {
    fn void(&mut self) {
        if self.grant.take().is_some() {
            self.generation = self.generation.wrapping_add(1);
        }
    }
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
        self.open[index] = Some(Connection { window, share });
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

    pub(super) fn share(&self, id: ConnectionId) -> usize {
        self.get(id).map_or(0, |connection| connection.share.into())
    }

    pub(super) fn grant(&mut self, id: ConnectionId, grant: Grant) -> Result<RegionHandle, ConnectError> {
        self.get(id).ok_or(ConnectError::NoConnection(id))?;
        let regions = &mut self.regions[id.index()];
        let free = regions.iter().position(|region| region.grant.is_none());
        let index = free.ok_or(ConnectError::TooManyRegions { limit: REGIONS })?;
        regions[index].grant = Some(grant);
        Ok(RegionHandle(u16::from_be_bytes([regions[index].generation, index as u8])))
    }

    pub(super) fn revoke(&mut self, id: ConnectionId, handle: RegionHandle) {
        let [generation, index] = handle.0.to_be_bytes();
        let region = self.regions.get_mut(id.index()).and_then(|regions| regions.get_mut(usize::from(index)));
        if let Some(region) = region.filter(|region| region.generation == generation) {
            region.void();
        }
    }

    pub(super) fn region(&self, id: ConnectionId, handle: RegionHandle) -> Option<&Grant> {
        let [generation, index] = handle.0.to_be_bytes();
        let region = self.regions.get(id.index())?.get(usize::from(index))?;
        region.grant.as_ref().filter(|_| region.generation == generation)
    }
}
