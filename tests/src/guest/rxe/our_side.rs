//! Our side of the wire: the simulated NIC in real time, and the driver on it.

use super::super::interrupt;
use super::cases::{Family, Service, Wire};
use super::guest_side::{OUR_MAC, gid};
use super::link::{Bus, Link, OurDevice};
use anyhow::{Context, Result, bail};
use bareverbs_core::address_handle::ROUTE_HEADER;
use bareverbs_core::completion_queue::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::gid::GidEntry;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion, RemoteSlice};
use bareverbs_core::port::PortState;
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, QueuePairBuilder, RemoteEndpoint};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_hal_sim::MemoryConfig;
use bareverbs_hal_sim::real_time::RealTimeHal;
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::{CqeSyndrome, PathMtu, RoceVersion};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Duration;
use bareverbs_serve::real_time::{FaultCounters, Recorder, UnixDatagramIo};
use bareverbs_sim::net::capture::LinkType;
use bareverbs_sim::net::fault::{Chance, Faults, RandomFaults};
use bareverbs_sim::nic::{self, NicConfig, SubnetMembership};
use bareverbs_sim::run::Seed;
use core::fmt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// READs and atomics that our side serves at once.
pub const OUTSTANDING_READS: u8 = 16;
/// Receives and sends that a case may post at once.
const DEPTH: u32 = 256;
/// How long one step of a wait may sleep.
const REST: Duration = Duration::from_micros(500);
/// Local ACK timeout of 0.27 s: an emulated guest on a busy machine pauses for longer than one of 67 ms.
const ACK_TIMEOUT: u8 = 16;
/// Each fault hits one frame in a hundred.
const FAULTS: f64 = 0.01;
/// Longest delay of a reordered frame.
const REORDER: Duration = Duration::from_micros(500);
/// How long a subnet manager may take to configure our port.
const ACTIVATION_LIMIT: std::time::Duration = std::time::Duration::from_secs(20);
/// Whether the device refuses a reserved field that the driver has set.
const STRICT: bool = true;

/// What the peer has to know about our queue pair.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Its number.
    pub qpn: Qpn,
    /// First PSN that it sends.
    pub psn: Psn,
    /// Key of its buffer.
    pub rkey: u32,
    /// Address of its buffer.
    pub address: u64,
    /// Its GID; zero for one without.
    pub gid: Gid,
    /// Its LID; zero on Ethernet.
    pub lid: u16,
}

/// What we have to know about the peer's queue pair.
#[derive(Debug, Clone, Copy)]
pub struct PeerEnd {
    /// Its number.
    pub qpn: Qpn,
    /// First PSN that it sends.
    pub psn: Psn,
    /// Its GID; zero for one without.
    pub gid: Gid,
    /// Its LID; zero on Ethernet.
    pub lid: u16,
    /// READs and atomics that it serves at once.
    pub outstanding_reads: u8,
}

/// Memory of the peer.
#[derive(Debug, Clone, Copy)]
pub struct Remote {
    /// Its address.
    pub address: u64,
    /// Its key.
    pub rkey: u32,
}

/// A piece of our buffer.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Where it begins.
    pub offset: usize,
    /// Its bytes.
    pub length: usize,
}

/// What to post.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE with this immediate.
    WriteImmediate(Remote, u32),
    /// RDMA READ.
    Read(Remote),
    /// Fetch and add of this number.
    FetchAdd(Remote, u64),
    /// Compare with the first number and swap with the second.
    CompareSwap(Remote, u64, u64),
}

/// A work request that completed successfully.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The token it was posted with.
    pub token: u64,
    /// Bytes that came, for receives.
    pub received: Option<u32>,
}

/// Faults on the frames of each direction.
#[derive(Debug, Clone, Copy)]
pub struct WireFaults {
    /// Of the guest's frames.
    pub inbound: FaultCounters,
    /// Of ours.
    pub outbound: FaultCounters,
}

impl WireFaults {
    /// The faults that happened after `before`.
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: FaultCounters, then: FaultCounters| FaultCounters {
            hit: now.hit - then.hit,
            lost: now.lost - then.lost,
            doubled: now.doubled - then.doubled,
        };
        Self { inbound: less(self.inbound, before.inbound), outbound: less(self.outbound, before.outbound) }
    }
}

/// The NIC, open.
#[derive(Clone)]
pub struct Nic {
    device: OurDevice,
    seed: Seed,
    link: LinkType,
    /// MAC address of the other end.
    peer: MacAddress,
}

impl Nic {
    /// Opens the device on an Ethernet wire to `peer` and gives it its addresses.
    pub fn ethernet(wire: UnixDatagramIo, seed: u64, peer: MacAddress) -> Result<Self> {
        let nic = Self::open(NicConfig::new(OUR_MAC), wire, seed)?;
        for family in [Family::Ipv4, Family::Ipv6] {
            nic.device.set_gid(u16::from(gid_index(family)), GidEntry::roce_v2(gid(family, 1), OUR_MAC))?;
        }
        Ok(Self { peer, ..nic })
    }

    /// Opens the device on a wire to a subnet's switch and waits until the subnet manager has configured its
    /// port.
    pub fn infiniband(wire: UnixDatagramIo, seed: u64) -> Result<Self> {
        let config = NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(OUR_MAC) };
        let nic = Self { link: LinkType::InfiniBand, ..Self::open(config, wire, seed)? };
        let deadline = Instant::now() + ACTIVATION_LIMIT;
        loop {
            match nic.device.port()?.state {
                PortState::Active => return Ok(nic),
                state if Instant::now() > deadline => bail!("our InfiniBand port is still {state}"),
                _ => nic.step()?,
            }
        }
    }

    fn open(config: NicConfig, wire: UnixDatagramIo, seed: u64) -> Result<Self> {
        let model = nic::Nic::new(NicConfig { strict: STRICT, ..config });
        let bus = RealTimeHal::new(model, wire, MemoryConfig::default(), seed);
        let device = Rc::new(Device::open(bus, DeviceConfig::default())?);
        Ok(Self { device, seed: Seed(seed), link: LinkType::Ethernet, peer: MacAddress::default() })
    }

    /// A queue pair with a buffer that the peer may access in every way.
    pub fn connection(&self, service: Service, bytes: usize, family: Family) -> Result<Connection> {
        let domain = ProtectionDomain::allocate(Rc::clone(&self.device))?;
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_ATOMIC;
        // The room for the route headers of datagrams follows the buffer.
        let memory = MemoryRegion::allocate(&domain, bytes + ROUTE_HEADER, access)?;
        let entries = 2 * DEPTH;
        let completions =
            CompletionQueue::create(Rc::clone(&self.device), CompletionQueueConfig { entries })?;
        let builder = QueuePairBuilder::new(&domain, &completions, &completions);
        let builder = builder.send_queue(DEPTH).receive_queue(DEPTH).max_receive_sge(2);
        let link = Link::build(builder, service)?;
        let endpoint = link.endpoint(&self.device, gid_index(family))?;
        let identity = Identity::of(&endpoint, &memory, family);
        let headers = Span { offset: bytes, length: ROUTE_HEADER };
        let (device, nic) = (Rc::clone(&self.device), self.clone());
        Ok(Connection { family, identity, headers, link, completions, memory, domain, device, nic })
    }

    fn bus(&self) -> &Bus {
        self.device.hal()
    }

    /// Sets the faults of the wire from now on; `name` and the seed decide which frames they hit.
    pub fn set_wire(&self, wire: Wire, name: &str) {
        let faults = |direction: &str| {
            let mut faults = Faults::new(self.seed.stream(&format!("{name} {direction}")));
            if self.link == LinkType::InfiniBand {
                faults = faults.of_infiniband();
            }
            faults.set_random(RandomFaults {
                loss: Chance::from_ratio(FAULTS),
                duplicate: Chance::from_ratio(FAULTS),
                reorder: Chance::from_ratio(FAULTS),
                reorder_by: REORDER,
                ..RandomFaults::default()
            });
            faults
        };
        let faulty = wire == Wire::Faulty;
        let (inbound, outbound) = (faulty.then(|| faults("inbound")), faulty.then(|| faults("outbound")));
        self.bus().with(|runner| runner.set_faults(inbound, outbound));
    }

    /// The faults so far, by direction.
    pub fn wire_faults(&self) -> WireFaults {
        self.bus().with(|runner| WireFaults {
            inbound: runner.inbound_faults(),
            outbound: runner.outbound_faults(),
        })
    }

    /// Frames that a fault has hit so far.
    pub fn faults(&self) -> u64 {
        self.bus().with(|runner| runner.counters().faults)
    }

    /// RoCE packets that have arrived so far.
    pub fn roce_packets(&self) -> u64 {
        let counters = self.bus().with(|runner| runner.device().counters());
        counters.frames_received - counters.frames_foreign
    }

    /// Starts to write every frame to a file.
    pub fn begin_capture(&self, path: &Path) -> Result<()> {
        let capture = Recorder::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let capture = capture.interface("wire", self.link);
        self.bus().with(|runner| runner.set_capture(capture));
        Ok(())
    }

    /// Ends the capture.
    pub fn end_capture(&self) -> Result<()> {
        self.bus().with(|runner| runner.finish_capture().transpose())?;
        Ok(())
    }

    /// Lets the NIC work for a moment.
    pub fn step(&self) -> Result<()> {
        interrupt::check()?;
        let bus = self.bus();
        bus.relax(bus.now() + REST);
        match bus.take_failure() {
            Some(error) => Err(error).context("the wire to the guest broke"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").finish_non_exhaustive()
    }
}

/// Index in our GID table.
const fn gid_index(family: Family) -> u8 {
    match family {
        Family::Ipv4 | Family::Lid => 0,
        Family::Ipv6 => 1,
    }
}

impl Identity {
    fn of(endpoint: &RemoteEndpoint, memory: &MemoryRegion<OurDevice>, family: Family) -> Self {
        let RemoteEndpoint { qpn, psn, gid, lid, .. } = *endpoint;
        let gid = if family == Family::Lid { Gid::default() } else { gid };
        Self { qpn, psn, gid, lid, rkey: memory.rkey().value(), address: memory.address() }
    }
}

/// A queue pair, its buffer and its completions. The fields are in the order in which they have to be
/// dropped.
pub struct Connection {
    family: Family,
    identity: Identity,
    /// Where the route headers of datagrams go.
    headers: Span,
    link: Link,
    completions: CompletionQueue<OurDevice>,
    memory: MemoryRegion<OurDevice>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    domain: ProtectionDomain<OurDevice>,
    device: OurDevice,
    nic: Nic,
}

impl Connection {
    /// What the peer has to know.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Connects to the peer.
    pub fn connect(&mut self, peer: &PeerEnd, mtu: u32) -> Result<()> {
        let options = ConnectOptions {
            gid_index: gid_index(self.family),
            path_mtu: path_mtu(mtu)?,
            ack_timeout: ACK_TIMEOUT,
            // Ours is a power of two; the peer may serve a few more than we ask for.
            max_reads: 1 << peer.outstanding_reads.clamp(1, OUTSTANDING_READS).ilog2(),
            ..ConnectOptions::default()
        };
        let PeerEnd { qpn, psn, gid, lid, .. } = *peer;
        let remote = match self.family {
            // perftest leaves a GID that it does not use uninitialised.
            Family::Lid => {
                let (gid, mac) = (Gid::default(), MacAddress::default());
                RemoteEndpoint { qpn, psn, gid, mac, version: None, lid }
            }
            Family::Ipv4 | Family::Ipv6 => {
                let version = Some(RoceVersion::Version2);
                RemoteEndpoint { qpn, psn, gid, mac: self.nic.peer, version, lid: 0 }
            }
        };
        self.link.connect(&self.device, &remote, options)
    }

    /// Posts a receive into a piece of the buffer.
    pub fn post_receive(&mut self, token: u64, span: Span) -> Result<()> {
        let slice = |span: Span| self.memory.slice(span.offset, span.length);
        let slices = [slice(self.headers)?, slice(span)?];
        let slices = if self.link.is_datagram() { &slices[..] } else { &slices[1..] };
        self.link.post_receive(&ReceiveRequest::new(token, slices))
    }

    /// Posts work on a piece of the buffer.
    pub fn post(&mut self, token: u64, work: Work, span: Span) -> Result<()> {
        let slices = [self.memory.slice(span.offset, span.length)?];
        let request = match work {
            Work::Send => WorkRequest::send(token, &slices),
            Work::Write(remote) => WorkRequest::write(token, &slices, remote.slice()),
            Work::WriteImmediate(remote, immediate) => {
                WorkRequest::write(token, &slices, remote.slice()).immediate(immediate)
            }
            Work::Read(remote) => WorkRequest::read(token, &slices, remote.slice()),
            Work::FetchAdd(remote, add) => WorkRequest::fetch_add(token, &slices, remote.slice(), add),
            Work::CompareSwap(remote, compare, swap) => {
                WorkRequest::compare_swap(token, &slices, remote.slice(), compare, swap)
            }
        };
        self.link.post_send(&request)
    }

    /// The next completion; a failed one is an error.
    pub fn poll(&mut self) -> Result<Option<Completion>> {
        let Some(completion) = self.completions.poll_one()? else { return Ok(None) };
        if !completion.is_success() {
            return Err(FailedWork(completion).into());
        }
        let WorkCompletion { wr_id, byte_count, opcode, .. } = completion;
        let receives = [WorkCompletionOpcode::Receive, WorkCompletionOpcode::ReceiveRdmaWithImmediate];
        let header = if self.link.is_datagram() { ROUTE_HEADER as u32 } else { 0 };
        let received = receives.contains(&opcode).then_some(byte_count.saturating_sub(header));
        Ok(Some(Completion { token: wr_id, received }))
    }

    /// Writes to the buffer.
    pub fn fill(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.memory.copy_in(offset, bytes)?)
    }

    /// Reads from the buffer.
    pub fn bytes(&self, span: Span) -> Result<Vec<u8>> {
        let mut bytes = vec![0; span.length];
        self.memory.copy_out(span.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Lets the NIC work for a moment.
    pub fn step(&self) -> Result<()> {
        self.nic.step()
    }

    /// The faults so far.
    pub fn wire_faults(&self) -> WireFaults {
        self.nic.wire_faults()
    }

    /// The counters of the NIC and the wire, for messages.
    pub fn counters(&self) -> String {
        self.nic.bus().with(|runner| format!("{:?} {:?}", runner.device().counters(), runner.counters()))
    }
}

/// A work request that failed.
#[derive(Debug)]
pub struct FailedWork(WorkCompletion);

impl FailedWork {
    /// Whether it is the request with this token and failed because nobody acknowledged it.
    pub fn is_unacknowledged(&self, token: u64) -> bool {
        self.0.wr_id == token
            && self.0.status == WorkCompletionStatus::Failed(CqeSyndrome::TransportRetryExceeded)
    }
}

impl fmt::Display for FailedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work request {} ended with {:?}", self.0.wr_id, self.0)
    }
}

impl core::error::Error for FailedWork {}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Remote {
    fn slice(self) -> RemoteSlice {
        RemoteSlice::from_raw(self.address, u32::MAX, bareverbs_prm::ids::Mkey::new(self.rkey))
    }
}

fn path_mtu(bytes: u32) -> Result<PathMtu> {
    Ok(match bytes {
        256 => PathMtu::Mtu256,
        512 => PathMtu::Mtu512,
        1024 => PathMtu::Mtu1024,
        2048 => PathMtu::Mtu2048,
        4096 => PathMtu::Mtu4096,
        _ => bail!("{bytes} is no path MTU"),
    })
}
