//! The client side: looks keys up in a remote table in one of four ways, calls any other kernel, and deploys programs.
//!
//! | way | request | answer |
//! |---|---|---|
//! | kernel on the DPU | SEND | RDMA WRITE with immediate into a response slot |
//! | program on the DPU | the same, with the op-code of the program | the same |
//! | kernel in the NIC | StRoM RPC Params | RDMA WRITE into a response slot, found by polling its request id |
//! | plain READ | an RDMA READ for each element | the elements; the client walks by itself |
//!
//! [`KvClient`] never blocks: [`KvClient::start`] starts a lookup, [`KvClient::poll`] completes some. [`KernelClient`]
//! does the same for kernels and programs of any op-code; [`fallback`] asks a core of the server when they are missing
//! or busy. [`slots`] and [`walk`] are pure. [`deployer`] deploys, lists and removes programs. [`advisor`] chooses the
//! fastest way.

pub mod advisor;
mod config;
pub mod deployer;
pub mod fallback;
mod kernel_client;
mod read_client;
pub mod slots;
pub mod walk;

pub use config::{ClientConfig, Ended, LookupResult, StartError, Way};
pub use kernel_client::{Call, CallResult, KernelClient, KernelClientConfig, KernelPlace, MAX_CALL};

use crate::endpoint::Endpoint;
use crate::kernel::{Kernel, Opcode};
use crate::kernels::kv_layout::{MAX_KEY, object_size};
use crate::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use crate::status::Status;
use crate::wire::RegionHandle;
use bareverbs_prm::time::Time;
use read_client::ReadClient;

/// A client with at most `N` lookups at a time, over connection 0 of its endpoint. If cores answer, it posts `2 * N` receives with
/// its first lookup.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_offload::client::slots::SlotLayout;
/// use bareverbs_offload::client::{ClientConfig, KvClient, StartError, Way};
/// use bareverbs_offload::endpoint::Endpoint;
/// use bareverbs_offload::table::TableDescriptor;
/// use bareverbs_offload::wire::RegionHandle;
/// use bareverbs_prm::time::{Duration, Time};
///
/// /// A client of a DPU that looks one key up. `slots` is the memory of the endpoint as the server knows it.
/// fn client(
///     endpoint: &mut impl Endpoint,
///     slots: SlotLayout,
///     table: TableDescriptor,
///     region: RegionHandle,
/// ) -> Result<KvClient<4>, StartError> {
///     let (way, timeout, limits) = (Way::KernelDpu(region), Duration::from_millis(5), Limits::default());
///     let mut client = KvClient::new(ClientConfig { way, table, layout: slots, credits: 4, timeout, limits });
///     client.start(Time::ZERO, endpoint, b"user:4711")?;
///     Ok(client)
/// }
/// ```
#[derive(Debug)]
pub struct KvClient<const N: usize> {
    config: ClientConfig,
    asking: Asking<N>,
}

/// Who walks the table.
#[derive(Debug)]
enum Asking<const N: usize> {
    /// A kernel or a program, under this op-code.
    Kernel { client: KernelClient<N>, opcode: Opcode, region: RegionHandle },
    /// The client itself.
    Reads(ReadClient<N>),
}

impl<const N: usize> KvClient<N> {
    /// A client that has started nothing.
    pub fn new(config: ClientConfig) -> Self {
        let kernel = |place, opcode, region| {
            let ClientConfig { layout, credits, timeout, limits, .. } = config;
            let client = KernelClient::new(KernelClientConfig { place, layout, credits, timeout, limits });
            Asking::Kernel { client, opcode, region }
        };
        let asking = match config.way {
            Way::KernelDpu(region) => kernel(KernelPlace::Cores, KvLookup::OPCODE, region),
            Way::Program { opcode, region } => kernel(KernelPlace::Cores, opcode, region),
            Way::KernelNic(region) => kernel(KernelPlace::Nic, KvLookup::OPCODE, region),
            Way::Read { rkey, region } => Asking::Reads(ReadClient::new(&config, rkey, region)),
        };
        Self { config, asking }
    }

    /// Bytes that the buffer given to [`KvClient::poll`] must have.
    pub const fn buffer_size(&self) -> usize {
        object_size(MAX_KEY, self.config.layout.max_response as usize) as usize
    }

    /// Starts looking `key` up and returns the id of the request.
    pub fn start(&mut self, now: Time, endpoint: &mut impl Endpoint, key: &[u8]) -> Result<u64, StartError> {
        match &mut self.asking {
            Asking::Kernel { client, opcode, region } => {
                let mut buffer = [0; MAX_PARAMETERS];
                let parameters = self.config.table.lookup(key).encode(&mut buffer);
                let parameters = parameters.ok_or(StartError::Refused(Status::BadParameters))?;
                let call = Call { opcode: *opcode, region: *region, parameters, payload: &[] };
                client.start(now, endpoint, &call)
            }
            Asking::Reads(client) => client.start(now, endpoint, key),
        }
    }

    /// The next lookup that has ended, if any. Its value is copied to `buffer`, which has [`KvClient::buffer_size`]
    /// bytes.
    pub fn poll(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        match &mut self.asking {
            Asking::Kernel { client, .. } => client.poll(now, endpoint, buffer).map(LookupResult::from),
            Asking::Reads(client) => client.poll(now, endpoint, buffer),
        }
    }

    /// When to poll again if nothing arrives before.
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.asking {
            Asking::Kernel { client, .. } => client.poll_timeout(),
            Asking::Reads(client) => client.poll_timeout(),
        }
    }

    /// Answers that arrived after the client had given them up.
    pub const fn stale(&self) -> u64 {
        match &self.asking {
            Asking::Kernel { client, .. } => client.stale(),
            Asking::Reads(client) => client.stale(),
        }
    }
}

impl From<CallResult> for LookupResult {
    /// A lookup that one call answered, or that ended without an answer.
    fn from(call: CallResult) -> Self {
        let CallResult { request_id, ended, length, version, hops, retries, server_time: _ } = call;
        let round_trips = u16::from(!matches!(ended, Ended::TimedOut | Ended::Disconnected));
        Self { request_id, ended, length, version, hops, round_trips, retries }
    }
}
