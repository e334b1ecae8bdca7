//! Creates completion queues: size and form of the entries, events, memory, CREATE_CQ.

use super::cache::QueuePairCache;
use super::{CompletionQueue, CompletionQueueConfig, CompletionQueueError, Moderation};
use crate::capabilities::Capabilities;
use crate::command::Request;
use crate::completion_channel::CompletionChannel;
use crate::cqe::CqeView;
use crate::device::{DeviceRef, DmaOf, is_same};
use crate::dma::{BLOCK, Dma, Rings};
use crate::hal::{Hal, HalError};
use crate::ledger::Home;
use crate::ring::Consumer;
use crate::translation::PageRun;
use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut};
use bareverbs_prm::ids::{Cqn, Eqn};
use bareverbs_prm::numbering::CommandOpcode;

/// `mini_cqe_res_format`: what a receive's mini entry carries besides the length.
const MINI_CHECKSUM: u8 = 1;

/// Creates a completion queue. By default it holds 256 completions of 64 bytes, and its events go to the
/// device's own event queue ([`Device::poll_event`](crate::Device::poll_event)).
///
/// ```
/// use bareverbs_core::{CompletionQueue, DeviceRef};
/// use std::error::Error;
///
/// /// For queue pairs that complete many requests at once: successes come as mini entries, up to eight in the place of one.
/// fn compressed<D: DeviceRef>(device: D) -> Result<CompletionQueue<D>, Box<dyn Error>> {
///     Ok(CompletionQueue::builder(device).entries(4096).compressed().create()?)
/// }
/// ```
#[must_use]
#[doc(alias = "ibv_cq_init_attr_ex")]
#[doc(alias = "mlx5dv_cq_init_attr")]
#[derive(Debug)]
pub struct CompletionQueueBuilder<D: DeviceRef> {
    device: D,
    entries: u32,
    wide: bool,
    compressed: bool,
    ignore_overrun: bool,
    moderation: Moderation,
    events: Eqn,
    /// The channel belongs to another device.
    is_stranger: bool,
}

/// Size of a ring of entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// log2 of the number of entries.
    pub(super) log: u8,
    /// Whether the entries have 128 bytes.
    pub(super) wide: bool,
}

impl Size {
    /// The size that holds `entries`, if the device supports it.
    pub(super) fn of(
        capabilities: &Capabilities,
        entries: u32,
        wide: bool,
    ) -> Result<Self, CompletionQueueError> {
        let limit = capabilities.max_completion_queue_entries;
        if entries == 0 || entries > limit {
            return Err(CompletionQueueError::Entries { asked: entries, limit });
        }
        Ok(Self { log: entries.next_power_of_two().trailing_zeros() as u8, wide })
    }

    pub(super) fn entries(self) -> u32 {
        1 << self.log
    }

    pub(super) fn blocks(self) -> u32 {
        self.entries() << u8::from(self.wide)
    }

    pub(super) fn bytes(self) -> usize {
        self.blocks() as usize * BLOCK
    }
}

/// Allocates memory for a ring whose entries all belong to the device, followed by `spare` blocks.
pub(super) fn allocate_ring<H: Hal>(
    hal: &H,
    size: Size,
    spare: usize,
) -> Result<Dma<H::Dma>, CompletionQueueError> {
    let memory =
        Dma::allocate(hal, size.bytes() + spare * BLOCK, 4096).map_err(CompletionQueueError::Memory)?;
    for window in (0..size.blocks() as usize).filter_map(|block| memory.block(block)) {
        CqeView(window).invalidate();
    }
    Ok(memory)
}

impl<D: DeviceRef> CompletionQueue<D> {
    /// Creates an ordinary queue. [`Self::builder`] creates other kinds.
    #[doc(alias = "ibv_create_cq")]
    pub fn create(device: D, config: CompletionQueueConfig) -> Result<Self, CompletionQueueError> {
        Self::builder(device).entries(config.entries).create()
    }

    /// Creates a queue with compression, 128-byte entries, moderation or a channel.
    pub fn builder(device: D) -> CompletionQueueBuilder<D> {
        CompletionQueueBuilder::new(device)
    }
}

impl<D: DeviceRef> CompletionQueueBuilder<D> {
    /// A queue of `device`.
    pub fn new(device: D) -> Self {
        let events = device.device().eqn();
        Self {
            device,
            entries: 256,
            wide: false,
            compressed: false,
            ignore_overrun: false,
            moderation: Moderation::NONE,
            events,
            is_stranger: false,
        }
    }

    /// Completions that the queue must hold, see
    /// [`CompletionQueueConfig::entries`](super::CompletionQueueConfig::entries).
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Entries of 128 bytes: on machines with cache lines of 128 bytes, each has a line of its own. Polling
    /// them always takes the general path.
    #[doc(alias = "MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE")]
    pub fn wide_entries(mut self) -> Self {
        self.wide = true;
        self
    }

    /// Lets the device write runs of similar completions in a compressed form, which uses less bus bandwidth.
    #[doc(alias = "MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE")]
    pub fn compressed(mut self) -> Self {
        self.compressed = true;
        self
    }

    /// Lets the device overwrite entries that were not polled instead of breaking the queue. This suits
    /// applications that only need the latest completion.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub fn ignore_overrun(mut self) -> Self {
        self.ignore_overrun = true;
        self
    }

    /// How many completions, or how much time, an event waits for.
    pub fn moderation(mut self, moderation: Moderation) -> Self {
        self.moderation = moderation;
        self
    }

    /// Sends the events to `channel`.
    #[doc(alias = "ibv_comp_channel")]
    pub fn channel(mut self, channel: &CompletionChannel<D>) -> Self {
        self.events = channel.number();
        self.is_stranger = !is_same(&self.device, channel.device());
        self
    }

    /// Creates the queue.
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn create(self) -> Result<CompletionQueue<D>, CompletionQueueError> {
        self.check()?;
        let device = self.device.device();
        let size = Size::of(device.capabilities(), self.entries, self.wide)?;
        let memory = allocate_ring(device.hal(), size, 1)?;
        let short = HalError::OutOfDmaMemory { length: size.bytes() + BLOCK, alignment: 4096 };
        let rings = Rings::new(memory, 0, size.blocks()).ok_or(CompletionQueueError::Memory(short))?;
        let cqn = match self.command(rings.memory(), size) {
            Ok(cqn) => cqn,
            Err(error) => {
                if error.status().is_none() {
                    core::mem::forget(rings);
                }
                return Err(CompletionQueueError::Command(error));
            }
        };
        let consumer = Consumer::new(size.log);
        let Self { device, wide, .. } = self;
        let cache = QueuePairCache::EMPTY;
        let home = if wide { Home::NOBODY } else { Home::of(cqn) };
        Ok(CompletionQueue { device, rings, consumer, cache, cqn, home, wide, arm_sequence: 0, discarded: 0 })
    }

    /// Whether the device supports what is requested.
    fn check(&self) -> Result<(), CompletionQueueError> {
        let capabilities = self.device.device().capabilities();
        if self.is_stranger {
            return Err(CompletionQueueError::OtherDevice);
        }
        let missing = |feature| Err(CompletionQueueError::NotOffered { feature });
        if self.compressed && (self.wide || !capabilities.completion_compression) {
            return missing("compression of entries of this size (cqe_compression)");
        }
        if self.ignore_overrun && !capabilities.completion_overrun_ignore {
            return missing("ignoring overruns (cq_oi)");
        }
        self.moderation.check(capabilities)
    }

    fn command(&self, memory: &Dma<DmaOf<D>>, size: Size) -> Result<Cqn, crate::command::CommandError> {
        let device = self.device.device();
        let run = PageRun::of_buffer(memory.iova(), size.bytes(), device.config().log_max_page);
        let mut input = CreateCqIn::new();
        input.set_opcode(CommandOpcode::CreateCq);
        let context = input.cq_context_mut();
        context.set_log_cq_size(size.log).set_cqe_sz(size.wide.into()).set_uar_page(device.uar());
        context.set_c_eqn_or_apu_element(self.events.value()).set_log_page_size(run.log_page_size());
        context.set_dbr_addr(memory.iova() + size.bytes() as u64).set_oi(self.ignore_overrun);
        if self.compressed {
            context.set_cqe_comp_en(true).set_mini_cqe_res_format(MINI_CHECKSUM);
        }
        self.moderation.write(context);
        let output: CreateCqOut = device.call(&Request::with_tail(&input, run.list(0)))?;
        Ok(output.cqn())
    }
}
