//! Configuration and results of a client.

use super::slots::{NoSlot, SlotLayout};
use crate::budget::Limits;
use crate::endpoint::PostError;
use crate::grant::Grant;
use crate::kernel::Opcode;
use crate::kernels::kv_layout::{MAX_KEY, object_size};
use crate::status::Status;
use crate::table::TableDescriptor;
use crate::wire::RegionHandle;
use bareverbs_prm::time::Duration;
use core::fmt;

/// How to look keys up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A kernel on the cores of a DPU.
    KernelDpu(RegionHandle),
    /// A program on the cores of a DPU, deployed under this op-code, that takes the lookup kernel's parameters.
    Program {
        /// The op-code.
        opcode: Opcode,
        /// The region.
        region: RegionHandle,
    },
    /// A kernel in the NIC of the server.
    KernelNic(RegionHandle),
    /// RDMA READs of the table.
    Read {
        /// Remote key of the table's memory.
        rkey: u32,
        /// The memory of the table.
        region: Grant,
    },
}

/// Configuration of a client.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_offload::client::slots::SlotLayout;
/// use bareverbs_offload::client::{ClientConfig, Way};
/// use bareverbs_offload::table::TableDescriptor;
/// use bareverbs_offload::wire::RegionHandle;
/// use bareverbs_prm::time::Duration;
///
/// /// Lookups of values of up to 1 KiB by a DPU. The answers come to `address`, which the DPU reaches by `rkey`.
/// fn config(region: RegionHandle, table: TableDescriptor, address: u64, rkey: u32) -> ClientConfig {
///     let layout = SlotLayout { address, rkey, stride: ClientConfig::stride(1024), max_response: 1024 };
///     let (timeout, limits) = (Duration::from_millis(2), Limits::default());
///     ClientConfig { way: Way::KernelDpu(region), table, layout, credits: 16, timeout, limits }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientConfig {
    /// How to look keys up.
    pub way: Way,
    /// The table.
    pub table: TableDescriptor,
    /// Location of the response slots; slot `i` is at offset `i * stride` of the endpoint's memory.
    pub layout: SlotLayout,
    /// Requests that the server has receives for before its first reply. It may run fewer at a time, because the share of
    /// the connection is smaller or others have all its slots, and answers [`Status::Busy`] then. So does a NIC if a request
    /// comes before the allowance of the connection has one. A refused request has done nothing: try it again later.
    pub credits: u32,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// What the server, or the client itself when it uses READs, may spend on a request.
    pub limits: Limits,
}

impl ClientConfig {
    /// The slot stride in bytes that suits every way, for values of up to `max_value` bytes.
    pub const fn stride(max_value: u32) -> u64 {
        let object = object_size(MAX_KEY, max_value as usize) as u64;
        let slot = SlotLayout::min_stride(max_value);
        (if object > slot { object } else { slot }).next_multiple_of(64)
    }
}

/// Why a lookup or call was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartError {
    /// No slot or no credit; poll and try again.
    NoSlot(NoSlot),
    /// The request could not be posted.
    Post(PostError),
    /// The receive queue of connection 0 is too short for the answers of all slots. Build the queue pair with `needed` receives, or
    /// the client with fewer slots.
    ReceiveQueueFull {
        /// Receives that the queue took from this client.
        posted: usize,
        /// Receives of this client: two for each slot, because both a request and its withdrawal may be answered.
        needed: usize,
    },
    /// The key is empty or too long, the table is misplaced, or parameters and payload are too long.
    Refused(Status),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlot(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::ReceiveQueueFull { posted, needed } => write!(
                f,
                "the receive queue took {posted} of {needed} receives: build the queue pair with {needed}, two for each slot, or \
                 the client with fewer slots"
            ),
            Self::Refused(status) => write!(f, "the request cannot be begun: {status}"),
        }
    }
}

impl core::error::Error for StartError {}

/// How a lookup or call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The value or the answer is at the start of the buffer.
    Found,
    /// The server or the walk gave this reason for finding nothing.
    Status(Status),
    /// No answer came in time.
    TimedOut,
    /// The connection broke.
    Disconnected,
}

/// A lookup that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupResult {
    /// The id that [`KvClient::start`](super::KvClient::start) returned.
    pub request_id: u64,
    /// How it ended.
    pub ended: Ended,
    /// Bytes of the value; for [`Status::Truncated`], its full length.
    pub length: u32,
    /// Version of the value.
    pub version: u64,
    /// Elements read, by server or client.
    pub hops: u16,
    /// Network round trips.
    pub round_trips: u16,
    /// Times that reading was restarted.
    pub retries: u16,
}
