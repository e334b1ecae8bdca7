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
}

impl WayName {
    /// All ways, in the order of the report.
    pub const ALL: [Self; 4] = [Self::KernelDpu, Self::KernelNic, Self::Read, Self::Program];

    /// The name as reports have it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::KernelDpu => "kernel-dpu",
            Self::KernelNic => "kernel-nic",
            Self::Read => "read",
            Self::Program => "program",
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
