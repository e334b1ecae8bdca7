//! The name of a port of a switch.

/// A port of a switch. Switches are known by their GUIDs, and ports are counted from 1, as IBTA counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SwitchPort {
    pub(super) switch: u64,
    pub(super) port: u8,
}
