//! Identifies a port of a switch.

/// A port of a switch: the switch's GUID, and the port number counted from 1 as in the IBTA specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SwitchPort {
    pub(super) switch: u64,
    pub(super) port: u8,
}
