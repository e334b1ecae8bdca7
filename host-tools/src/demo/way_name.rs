//! The names of the ways of looking up.

use serde::{Serialize, Serializer};
use std::fmt;

/// A way of looking up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayName {
    /// A kernel on the cores of a DPU.
    KernelDpu,
    /// A kernel inside the NIC of the server.
    KernelNic,
    /// RDMA READs.
    Read,
    /// A program on the cores of a DPU, deployed over the wire.
    Program,
    /// A kernel on a core of the server.
    Cpu,
    /// Of READs, the kernel on the DPU and the core of the server, what has been fastest so far.
    Advised,
}

impl WayName {
    /// All ways, in the order of the report.
    pub const ALL: [Self; 6] =
        [Self::KernelDpu, Self::KernelNic, Self::Read, Self::Program, Self::Cpu, Self::Advised];

    /// Ways that have their own connection, in the order of the connections.
    pub const CONNECTED: [Self; 5] = [Self::KernelDpu, Self::KernelNic, Self::Read, Self::Program, Self::Cpu];

    /// The name in reports.
    pub const fn text(self) -> &'static str {
        match self {
            Self::KernelDpu => "kernel-dpu",
            Self::KernelNic => "kernel-nic",
            Self::Read => "read",
            Self::Program => "program",
            Self::Cpu => "cpu",
            Self::Advised => "advised",
        }
    }
}

impl fmt::Display for WayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for WayName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}
