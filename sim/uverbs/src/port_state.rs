//! The state of a port, in the numbers and words of Linux (`enum ib_port_state`, `enum ib_port_phys_state`).

use crate::attributes::DeviceAttributes;
use alloc::format;
use alloc::string::String;

/// State of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortState {
    /// Logical state.
    pub(crate) logical: u8,
    /// Physical state.
    pub(crate) physical: u8,
}

impl PortState {
    /// A port whose cable is plugged in: Active and LinkUp.
    pub(crate) const ACTIVE: Self = Self { logical: 4, physical: 5 };
    /// An Ethernet port without a carrier: Down and Disabled (`mlx5_query_port_roce`).
    pub(crate) const NO_CARRIER: Self = Self { logical: 1, physical: 3 };
    /// An InfiniBand port that looks for its peer: Down and Polling.
    pub(crate) const POLLING: Self = Self { logical: 1, physical: 2 };

    /// The state of a device's port, with its cable plugged in or not.
    pub(crate) const fn of(attributes: &DeviceAttributes, has_cable: bool) -> Self {
        match (has_cable, attributes.infiniband.is_some()) {
            (true, _) => Self::ACTIVE,
            (false, false) => Self::NO_CARRIER,
            (false, true) => Self::POLLING,
        }
    }

    /// Lines of the files `state` and `phys_state` (`state_show`, `phys_state_show` of `ib_core`).
    pub(crate) fn lines(self) -> [(&'static str, String); 2] {
        let logical = if self.logical == Self::ACTIVE.logical { "ACTIVE" } else { "DOWN" };
        let physical = match self {
            Self::ACTIVE => "LinkUp",
            Self::POLLING => "Polling",
            _ => "Disabled",
        };
        [
            ("state", format!("{}: {logical}", self.logical)),
            ("phys_state", format!("{}: {physical}", self.physical)),
        ]
    }
}
