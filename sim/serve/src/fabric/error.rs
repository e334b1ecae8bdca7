//! Why nothing was plugged in.

use bareverbs_sim::nic::LinkLayer;
use core::fmt;
use std::io;

/// All ports of the switch are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlugError {
    /// The switch's link layer.
    pub layer: LinkLayer,
    /// How many ports it has.
    pub ports: usize,
}

impl fmt::Display for PlugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, ports } = self;
        write!(
            f,
            "all {ports} ports of the {layer:?} switch are in use: unplug a device, or join a further network by a wire"
        )
    }
}

impl core::error::Error for PlugError {}

impl From<PlugError> for io::Error {
    fn from(error: PlugError) -> Self {
        Self::other(error)
    }
}
