//! Why a kernel's device cannot be used.

use bareverbs_core::hal::HalError;
use bareverbs_prm::ids::Gid;
use core::fmt;
use std::io;
use std::path::PathBuf;

/// Why a device of the kernel cannot be opened, or the kernel cannot be asked.
#[derive(Debug)]
pub enum UverbsError {
    /// The kernel has no RDMA device of this name.
    NotFound {
        /// The name.
        name: String,
        /// The names that there are.
        others: Vec<String>,
    },
    /// The device file cannot be opened.
    Open {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The kernel offers no DEVX context for the file.
    Context {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The kernel refused a query.
    Query {
        /// The device.
        name: String,
        /// What was asked for.
        what: &'static str,
        /// The reason.
        error: io::Error,
    },
    /// DMA memory.
    Memory(HalError),
    /// The kernel does not know where packets for a peer go.
    Neighbour {
        /// The peer.
        gid: Gid,
        /// Entry of the RoCE address table from which the packets are to come.
        gid_index: u8,
        /// The reason.
        error: io::Error,
    },
}

impl fmt::Display for UverbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { name, others } if others.is_empty() => write!(
                f,
                "the kernel has no RDMA device at all, so there is no {name:?}: load mlx5_ib (`modprobe mlx5_ib`), or drive the function by VFIO"
            ),
            Self::NotFound { name, others } => {
                write!(f, "the kernel has no RDMA device {name:?}; it has {}", others.join(", "))
            }
            Self::Open { file, error } => {
                write!(
                    f,
                    "opening {} failed: {error}; in a container, pass /dev/infiniband into it",
                    file.display()
                )
            }
            Self::Context { file, error } if error.raw_os_error() == Some(libc::EINVAL) => write!(
                f,
                "{} offers no DEVX context: it is not an mlx5 device, its firmware has no user contexts (log_max_uctx is 0), or the \
                 kernel is built without CONFIG_INFINIBAND_USER_ACCESS",
                file.display()
            ),
            Self::Context { file, error } => {
                write!(f, "creating a DEVX context of {} failed: {error}", file.display())
            }
            Self::Query { name, what, error } => {
                write!(f, "asking the kernel's device {name} for {what} failed: {error}")
            }
            Self::Memory(error) => write!(f, "the memory that the driver shares with the device: {error}"),
            Self::Neighbour { gid, gid_index, error } => write!(
                f,
                "the kernel reports no path from GID index {gid_index} to {gid}: {error}; try `ip route get` and `ping` with \
                 the peer's address"
            ),
        }
    }
}

impl std::error::Error for UverbsError {}
