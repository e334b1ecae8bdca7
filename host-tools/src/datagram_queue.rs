//! A queue pair of datagrams with its memory: posted receives, and a slot for each datagram that may be in
//! flight. It knows nothing of what the datagrams contain.

use anyhow::{Context as _, Result, bail};
use bareverbs_core::Device;
use bareverbs_core::address_handle::{Destination, ROUTE_HEADER};
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{QueuePair, QueuePairBuilder, Ud};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};

/// Completions that are taken at a time.
const BATCH: usize = 16;
/// Slots begin at multiples of this.
const ALIGNMENT: usize = 128;

/// The sizes of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatagramQueueSizes {
    /// Posted receives.
    pub(crate) receives: u32,
    /// Datagrams that may be in flight.
    pub(crate) sends: u32,
    /// Longest datagram in bytes.
    pub(crate) longest: usize,
}

impl DatagramQueueSizes {
    /// Distance between two slots: each has room for a route header.
    const fn stride(self) -> usize {
        (ROUTE_HEADER + self.longest).next_multiple_of(ALIGNMENT)
    }

    /// Bytes of all slots: those of receives, then those of sends.
    const fn memory(self) -> usize {
        (self.receives + self.sends) as usize * self.stride()
    }

    /// Offset of the slot for a send.
    const fn send_slot(self, number: u64) -> usize {
        (self.receives as u64 + number % self.sends as u64) as usize * self.stride()
    }
}

/// A datagram that has arrived, with the completion that describes its sender.
pub(crate) struct ReceivedDatagram {
    pub(crate) completion: WorkCompletion,
    pub(crate) header: [u8; ROUTE_HEADER],
    pub(crate) datagram: Vec<u8>,
}

/// The queue pair. The fields are in the order in which they have to be dropped.
pub(crate) struct DatagramQueue<'d, H: Hal> {
    pub(crate) queue_pair: QueuePair<&'d Device<H>, Ud>,
    sends: CompletionQueue<&'d Device<H>>,
    receives: CompletionQueue<&'d Device<H>>,
    memory: MemoryRegion<&'d Device<H>>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    domain: ProtectionDomain<&'d Device<H>>,
    pub(crate) device: &'d Device<H>,
    sizes: DatagramQueueSizes,
    /// Sends that were posted, and sends that have completed.
    posted: u64,
    done: u64,
}

impl<'d, H: Hal> DatagramQueue<'d, H> {
    /// Creates the queue pair as `configure` says, and posts its receives.
    pub(crate) fn open(
        device: &'d Device<H>,
        sizes: DatagramQueueSizes,
        configure: impl for<'b> FnOnce(
            QueuePairBuilder<'b, &'d Device<H>, Ud>,
        ) -> QueuePairBuilder<'b, &'d Device<H>, Ud>,
    ) -> Result<Self> {
        let domain = ProtectionDomain::allocate(device)?;
        let memory = MemoryRegion::allocate(&domain, sizes.memory(), AccessFlags::LOCAL_WRITE)?;
        let sends = CompletionQueue::builder(device).entries(sizes.sends).create()?;
        let receives = CompletionQueue::builder(device).entries(sizes.receives).create()?;
        let builder = QueuePairBuilder::new(&domain, &sends, &receives)
            .send_queue(sizes.sends)
            .receive_queue(sizes.receives);
        let prepared = configure(builder.service::<Ud>()).build().context("a queue pair of datagrams")?;
        let queue_pair = prepared.ready_to_send()?;
        let mut queue =
            Self { queue_pair, sends, receives, memory, domain, device, sizes, posted: 0, done: 0 };
        for slot in 0..u64::from(sizes.receives) {
            queue.post_receive(slot)?;
        }
        Ok(queue)
    }

    fn post_receive(&mut self, slot: u64) -> Result<()> {
        let at = slot as usize * self.sizes.stride();
        let slices = [self.memory.slice(at, ROUTE_HEADER + self.sizes.longest)?];
        self.queue_pair.post_receive(&ReceiveRequest::new(slot, &slices))?;
        Ok(())
    }

    /// Takes the completions of sends. Returns whether another may be posted.
    pub(crate) fn may_send(&mut self) -> Result<bool> {
        self.take_sends()?;
        Ok(self.posted - self.done < self.sizes.sends.into())
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
                bail!("a datagram was not sent: {}", completion.status);
            }
            self.done += 1;
        }
        Ok(())
    }

    /// Posts a datagram of at most the longest length. The caller has checked [`Self::may_send`].
    pub(crate) fn send(&mut self, datagram: &[u8], destination: &Destination) -> Result<()> {
        let at = self.sizes.send_slot(self.posted);
        self.memory.copy_in(at, datagram)?;
        let slices = [self.memory.slice(at, datagram.len())?];
        self.queue_pair.post_send_to(&WorkRequest::send(self.posted, &slices), destination)?;
        self.posted += 1;
        Ok(())
    }

    /// Datagrams that have arrived. Their receives are posted again.
    pub(crate) fn take(&mut self) -> Result<Vec<ReceivedDatagram>> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.receives.poll(&mut batch)?;
        let mut arrived = Vec::with_capacity(count);
        for completion in &batch[..count] {
            if !completion.is_success() {
                bail!("a receive of datagrams failed: {}", completion.status);
            }
            let at = completion.wr_id as usize * self.sizes.stride();
            let length =
                (completion.byte_count as usize).clamp(ROUTE_HEADER, ROUTE_HEADER + self.sizes.longest);
            let (mut header, mut datagram) = ([0; ROUTE_HEADER], vec![0; length - ROUTE_HEADER]);
            self.memory.copy_out(at, &mut header)?;
            self.memory.copy_out(at + ROUTE_HEADER, &mut datagram)?;
            self.post_receive(completion.wr_id)?;
            arrived.push(ReceivedDatagram { completion: *completion, header, datagram });
        }
        Ok(arrived)
    }
}
