//! A switch of the world, and the links at its ports.

use super::timer::Timer;
use crate::net::{Switch, SwitchConfig};
use crate::nic::LinkLayer;

/// A switch with its name, its ports and its timer.
#[derive(Debug)]
pub(super) struct SwitchNode {
    pub(super) name: String,
    pub(super) config: SwitchConfig,
    pub(super) switch: Switch,
    /// Link direction that leaves each port; `None` without a cable.
    pub(super) egress: Vec<Option<usize>>,
    pub(super) timer: Timer,
}

impl SwitchNode {
    pub(super) const fn link_layer(&self) -> LinkLayer {
        if self.switch.is_infiniband() { LinkLayer::InfiniBand } else { LinkLayer::Ethernet }
    }
}
