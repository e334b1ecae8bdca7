//! The port's general services queue pair (IBTA v1.4 §3.9.2): exchanges MADs between queue pairs 1, as the
//! kernel does for its own devices.

use anyhow::{Context as _, Result, bail};
use bareverbs_core::Device;
use bareverbs_core::address_handle::{Destination, ROUTE_HEADER};
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{QueuePair, QueuePairBuilder, Ud};
use bareverbs_core::work_completion::{NetworkType, WorkCompletion};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::Gid;

/// Bytes of a management datagram (IBTA v1.4 §13.4.2).
pub(crate) const DATAGRAM: usize = 256;
/// Datagrams that may be in flight, and datagrams that may wait to be taken.
pub(crate) const DEPTH: u32 = 64;
/// Distance between receives, and between sends.
const STRIDE: usize = 512;
/// Completions that are taken at a time.
const BATCH: usize = 16;
/// Offset of an IPv4 header, which is at the end of the route header's room, and of the source address in
/// headers.
const IPV4_HEADER_AT: usize = 20;
const IPV4_SOURCE: usize = 12;
const IPV6_SOURCE: usize = 8;

/// A datagram that has arrived, with the completion that describes its sender.
pub(crate) struct Arrived {
    pub(crate) completion: WorkCompletion,
    pub(crate) header: [u8; ROUTE_HEADER],
    pub(crate) datagram: [u8; DATAGRAM],
}

impl Arrived {
    /// The GID of the sender; `None` if the datagram had no route header.
    pub(crate) fn source(&self) -> Option<Gid> {
        match self.completion.network_type()? {
            NetworkType::Ipv4 => {
                let address = self.header[IPV4_HEADER_AT + IPV4_SOURCE..].first_chunk::<4>()?;
                Some(Gid::from_ipv4(*address))
            }
            NetworkType::Ipv6 | NetworkType::RoceV1 => {
                self.header[IPV6_SOURCE..].first_chunk().copied().map(Gid)
            }
        }
    }
}

/// The queue pair. The fields are in the order in which they have to be dropped.
pub(crate) struct GeneralServices<'d, H: Hal> {
    queue_pair: QueuePair<&'d Device<H>, Ud>,
    sends: CompletionQueue<&'d Device<H>>,
    receives: CompletionQueue<&'d Device<H>>,
    memory: MemoryRegion<&'d Device<H>>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    domain: ProtectionDomain<&'d Device<H>>,
    pub(crate) device: &'d Device<H>,
    /// Sends that were posted, and sends that have completed.
    posted: u64,
    done: u64,
}

impl<'d, H: Hal> GeneralServices<'d, H> {
    /// Creates the queue pair and posts its receives.
    pub(crate) fn open(device: &'d Device<H>) -> Result<Self> {
        let domain = ProtectionDomain::allocate(device)?;
        let memory = MemoryRegion::allocate(&domain, 2 * DEPTH as usize * STRIDE, AccessFlags::LOCAL_WRITE)?;
        let sends = CompletionQueue::builder(device).entries(DEPTH).create()?;
        let receives = CompletionQueue::builder(device).entries(DEPTH).create()?;
        let builder =
            QueuePairBuilder::new(&domain, &sends, &receives).send_queue(DEPTH).receive_queue(DEPTH);
        let prepared = builder.service::<Ud>().general_services().build();
        let queue_pair = prepared.context("the queue pair of general services")?.ready_to_send()?;
        let mut services = Self { queue_pair, sends, receives, memory, domain, device, posted: 0, done: 0 };
        for slot in 0..u64::from(DEPTH) {
            services.post_receive(slot)?;
        }
        Ok(services)
    }

    fn post_receive(&mut self, slot: u64) -> Result<()> {
        let slices = [self.memory.slice(slot as usize * STRIDE, ROUTE_HEADER + DATAGRAM)?];
        self.queue_pair.post_receive(&ReceiveRequest::new(slot, &slices))?;
        Ok(())
    }

    /// Takes the completions of sends. Returns whether another may be posted.
    pub(crate) fn may_send(&mut self) -> Result<bool> {
        self.take_sends()?;
        Ok(self.posted - self.done < DEPTH.into())
    }

    /// Whether every datagram has left the port.
    pub(crate) fn is_idle(&mut self) -> Result<bool> {
        self.take_sends()?;
        Ok(self.posted == self.done)
    }

    fn take_sends(&mut self) -> Result<()> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.sends.poll(&mut batch)?;
        for completion in &batch[..count] {
            if !completion.is_success() {
                bail!("a management datagram was not sent: {}", completion.status);
            }
            self.done += 1;
        }
        Ok(())
    }

    /// Posts a datagram. The caller has checked [`Self::may_send`].
    pub(crate) fn send(&mut self, datagram: &[u8; DATAGRAM], destination: &Destination) -> Result<()> {
        let slot = DEPTH as usize + (self.posted % u64::from(DEPTH)) as usize;
        self.memory.copy_in(slot * STRIDE, datagram)?;
        let slices = [self.memory.slice(slot * STRIDE, DATAGRAM)?];
        self.queue_pair.post_send_to(&WorkRequest::send(self.posted, &slices), destination)?;
        self.posted += 1;
        Ok(())
    }

    /// Datagrams that have arrived. Anything shorter than a management datagram is dropped.
    pub(crate) fn take(&mut self) -> Result<Vec<Arrived>> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.receives.poll(&mut batch)?;
        let mut arrived = Vec::with_capacity(count);
        for completion in &batch[..count] {
            if !completion.is_success() {
                bail!("a receive of management datagrams failed: {}", completion.status);
            }
            let at = completion.wr_id as usize * STRIDE;
            let (mut header, mut datagram) = ([0; ROUTE_HEADER], [0; DATAGRAM]);
            self.memory.copy_out(at, &mut header)?;
            self.memory.copy_out(at + ROUTE_HEADER, &mut datagram)?;
            self.post_receive(completion.wr_id)?;
            if completion.byte_count as usize == ROUTE_HEADER + DATAGRAM {
                arrived.push(Arrived { completion: *completion, header, datagram });
            }
        }
        Ok(arrived)
    }
}
