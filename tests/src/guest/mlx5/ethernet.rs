//! What is asked of the drivers of an Ethernet port: the network device and RoCE.

use super::cases::{self, Case};

/// All questions, in order.
pub fn all(_long: bool) -> Vec<Case> {
    vec![cases::probe(), cases::clean("after the probe"), debug()]
}
fn debug() -> Case {
    Case::new("debug", "", "dmesg | grep -iE 'mlx5|infini|rdma' | tail -60; ip -br link; ibv_devinfo -v | head -40")
}
