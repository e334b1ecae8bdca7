//! Identifiers of connection management files, and ports of hosts.

use crate::uapi::{RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP};
use bareverbs_prm::ids::Gid;

/// Identifies an open connection management file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionFileId(pub(crate) u32);

impl ConnectionFileId {
    /// The file with a number from [`Self::raw`].
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// A number for the caller's tables; never `u32::MAX`.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// The InfiniBand port of a virtual host, as the subnet knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubnetPort {
    /// Its GID.
    pub gid: Gid,
    /// Base LID.
    pub lid: u16,
}

/// A port. Ports are unique within their space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// One of the `RDMA_PS_*`.
    pub space: u16,
    /// The number, never 0.
    pub number: u16,
}

impl Port {
    /// The service ID of a port (IBTA annex A11).
    pub(crate) const fn service_id(self) -> u64 {
        bareverbs_cm::service_id(self.space, self.number)
    }

    /// The port of a service ID; `None` if the ID does not name a port.
    pub(crate) fn of_service(service_id: u64) -> Option<Self> {
        let (space, number) = bareverbs_cm::port_of_service(service_id)?;
        let known = [RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP].contains(&space);
        known.then_some(Self { space, number })
    }
}
