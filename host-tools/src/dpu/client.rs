//! Connects to a service as a tenant: proves the key over TCP, and connects a queue pair.

use super::key_file::read_key;
use super::offer::{ConnectionKind, ConnectionRequest, Offer, PURPOSE};
use crate::Failure;
use crate::seat::{Seat, SeatArguments, SeatedTask};
use anyhow::{Context as _, Result, bail};
use bareverbs::memory_region::{AccessFlags, MemoryRegion, RemoteSlice};
use bareverbs::offload::verbs::{INLINE, VerbsEndpoint};
use bareverbs::prm::ids::{Gid, MacAddress, Qpn};
use bareverbs::prm::psn::Psn;
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs::queue_pair::{ConnectOptions, QueuePairBuilder, RemoteEndpoint};
use bareverbs::{CompletionQueue, CompletionQueueConfig, Device};
use bareverbs_core::DeviceConfig;
use bareverbs_core::hal::Hal;
use bareverbs_exchange::{Credentials, Introduction, Session};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Requests of each queue pair.
const DEPTH: u32 = 64;

/// Which service, and as whom.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServiceArguments {
    #[command(flatten)]
    seat: SeatArguments,
    /// Address where `bareverbs dpu serve` listens.
    #[arg(long, value_name = "HOST:PORT")]
    server: String,
    /// Name of the tenant.
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// File with the tenant's key, 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// GID index. [default: the first RoCEv2 entry, IPv4 before IPv6; on InfiniBand 0]
    #[arg(short = 'x', long = "gid-index")]
    gid_index: Option<u8>,
    /// Time limit in seconds for each step of the service.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// A task for a service, to run once the device is open.
pub(crate) trait ServiceTask {
    /// Its result.
    type Output;
    /// Runs it.
    fn run<H: Hal>(self, connector: &ServiceConnector<'_, H>) -> Result<Self::Output, Failure>;
}

impl ServiceArguments {
    /// Opens the device and runs `task`.
    ///
    /// # Errors
    /// [`Failure::Input`] if device or key cannot be used, otherwise the task's error.
    pub(crate) fn with_service<T: ServiceTask>(&self, task: T) -> Result<T::Output, Failure> {
        self.seat.check_cable()?;
        let key = read_key(&self.key_file).map_err(Failure::Input)?;
        let credentials = Credentials { name: self.tenant.clone(), key };
        let address = self.address().map_err(Failure::Input)?;
        let timeout = Duration::from_secs(self.timeout);
        let opening = ServiceOpening { credentials, address, gid_index: self.gid_index, timeout, task };
        self.seat.with_device(DeviceConfig::default(), opening)
    }

    /// Where the service listens, as a TCP address.
    fn address(&self) -> Result<String> {
        let parts = self.server.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parts else { bail!("--server {}: write HOST:PORT", self.server) };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(self.seat.resolve(host, port)?.to_string())
    }

    /// The service's name for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }
}

struct ServiceOpening<T> {
    credentials: Credentials,
    address: String,
    gid_index: Option<u8>,
    timeout: Duration,
    task: T,
}

impl<T: ServiceTask> SeatedTask for ServiceOpening<T> {
    type Output = T::Output;

    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<T::Output, Failure> {
        let Self { credentials, address, gid_index, timeout, task } = self;
        let gid_index = seat.gid_index(&gid_index.into()).map_err(Failure::Input)?;
        let domain = ProtectionDomain::allocate(device).context("allocating a protection domain")?;
        task.run(&ServiceConnector { device, seat, domain, credentials, address, gid_index, timeout })
    }
}

/// Access to a service through an open device.
pub(crate) struct ServiceConnector<'d, H: Hal> {
    pub(crate) device: &'d Device<H>,
    seat: &'d Seat,
    pub(super) domain: ProtectionDomain<&'d Device<H>>,
    pub(super) credentials: Credentials,
    pub(super) address: String,
    gid_index: u8,
    pub(crate) timeout: Duration,
}

/// A connection to a service. It ends when this is dropped.
pub(crate) struct ServiceConnection<'d, H: Hal> {
    pub(crate) endpoint: VerbsEndpoint<&'d Device<H>, 1>,
    pub(crate) offer: Offer,
    /// The table's memory, for tenants that may READ it.
    pub(super) table: Option<RemoteSlice>,
    session: Session,
}

impl<'d, H: Hal> ServiceConnector<'d, H> {
    /// Connects, with `length` bytes of memory for answers.
    ///
    /// # Errors
    /// The service cannot be reached or refuses the tenant, or the device refuses.
    pub(crate) fn connect(&self, kind: ConnectionKind, length: usize) -> Result<ServiceConnection<'d, H>> {
        let (device, domain) = (self.device, &self.domain);
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let memory =
            MemoryRegion::allocate(domain, length, access).context("allocating memory for answers")?;
        let completions = CompletionQueue::create(device, CompletionQueueConfig { entries: 2 * DEPTH })
            .context("creating a completion queue")?;
        let prepared = QueuePairBuilder::new(domain, &completions, &completions)
            .send_queue(DEPTH)
            .receive_queue(DEPTH)
            .max_inline(INLINE)
            .build()
            .context("creating a queue pair")?;
        let mut own =
            Introduction::new(PURPOSE, prepared.endpoint(self.gid_index)?).offering(memory.remote(0));
        own.data = ConnectionRequest::new(kind).to_data()?;
        let mut session = Session::connect_as(&self.address, &own, &self.credentials, self.timeout)?;
        let peer = session.peer();
        let offer = Offer::from_data(&peer.data)?;
        let table = peer.slices.first().copied();
        let mut far = peer.endpoint;
        // Behind a router, this is the router's address.
        if let Ok(mac) = self.seat.mac_of(self.gid_index, far.gid) {
            far.mac = mac;
        }
        let (gid_index, path_mtu) = (self.gid_index, session.path_mtu());
        let options = ConnectOptions { gid_index, path_mtu, ..ConnectOptions::default() };
        let queue_pair = prepared.connect(&far, options).context("connecting the queue pair")?;
        session.ready(self.timeout)?;
        let endpoint = VerbsEndpoint::new([queue_pair], completions, memory, DEPTH);
        Ok(ServiceConnection { endpoint, offer, table, session })
    }

    /// The endpoint in the introduction of a caller without a queue pair.
    pub(super) fn unused_endpoint(&self) -> Result<RemoteEndpoint> {
        let entry = self.seat.gids.get(usize::from(self.gid_index));
        let gid = entry.map_or(Gid([0; 16]), |entry| entry.gid);
        let (mac, version) = (MacAddress([0; 6]), None);
        Ok(RemoteEndpoint { qpn: Qpn::from_low_bits(0), psn: Psn::new(0), gid, mac, version, lid: 0 })
    }

    /// Lets the device, or its simulator, do some work.
    pub(crate) fn rest(&self) {
        let hal = self.device.hal();
        hal.relax(hal.now() + self.seat.rest);
    }
}

impl<H: Hal> ServiceConnection<'_, H> {
    /// Requests that the service accepts before its first answer.
    pub(crate) const fn credits(&self) -> u32 {
        self.offer.credits
    }

    /// The service's message if it ended the connection.
    pub(crate) fn farewell(&mut self) -> Option<String> {
        self.session.ended(Duration::from_millis(200)).map(|end| end.to_string())
    }
}
