//! The command queue without waiting: submit, poll, abandon.

use super::entry::{INLINE, Placement, Request, encode};
use super::error::{CommandError, CommandFailure, DeviceLoss};
use super::mailbox::{MailboxChain, MailboxPool, blocks_for};
use super::presence::Presence;
use super::signature::is_intact;
use crate::dma::{BLOCK, Dma, Window};
use crate::hal::{Barrier, DmaMemory, Hal, HalError, Mmio};
use bareverbs_prm::command::entry::{CommandHeaderOut, CommandQueueEntry};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::numbering::{CommandStatus, DeliveryStatus};
use zerocopy::FromBytes;

/// Maximum number of slots of a command queue: the doorbell has 32 bits.
const SLOTS: usize = 32;
/// Bytes of the page that holds the queue.
const PAGE: usize = 4096;
/// Offset of the byte in an entry that holds delivery status and ownership.
const OWNER: usize = CommandQueueEntry::FIELDS.ownership.offset();

/// Geometry of a command queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandQueueConfig {
    /// log2 of the number of slots, from the initialization segment.
    pub log_size: u8,
    /// log2 of the distance between slots in bytes, from the initialization segment.
    pub log_stride: u8,
    /// Mailbox blocks of 512 bytes.
    pub mailbox_blocks: usize,
}

impl CommandQueueConfig {
    /// Whether the driver can use such a queue: it must fit into a page and have a slot besides the reserved
    /// one.
    pub const fn is_usable(&self) -> bool {
        self.log_size >= 1
            && self.log_size <= 5
            && self.log_stride >= 6
            && self.log_size + self.log_stride <= PAGE.trailing_zeros() as u8
    }
}

/// Which slots a command may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Any but the last.
    Regular,
    /// The last one, reserved for MANAGE_PAGES so that the device's page supply never waits.
    Reserved,
}

/// A command in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a command must be polled to its end or abandoned"]
pub struct Ticket {
    slot: u8,
    generation: u32,
}

impl Ticket {
    /// The slot of the command queue.
    pub const fn slot(&self) -> u8 {
        self.slot
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    busy: bool,
    abandoned: bool,
    generation: u32,
    input: MailboxChain,
    output: MailboxChain,
    output_length: u32,
    token: u8,
}

/// The queue, its mailboxes, and the command in progress in each slot.
///
/// ```
/// use bareverbs_core::hal::Hal;
/// use bareverbs_core::testing::{CommandQueue, CommandQueueConfig, Lane, Request};
/// use bareverbs_prm::command::hca::NopIn;
/// use bareverbs_prm::numbering::CommandOpcode;
/// use std::error::Error;
///
/// /// Hands the device a queue of 32 slots and a NOP.
/// fn begin<H: Hal>(hal: &H) -> Result<CommandQueue<H::Dma>, Box<dyn Error>> {
///     let config = CommandQueueConfig { log_size: 5, log_stride: 6, mailbox_blocks: 64 };
///     let mut queue = CommandQueue::allocate(hal, config)?;
///     queue.announce(hal);
///     let mut nop = NopIn::new();
///     nop.set_opcode(CommandOpcode::Nop);
///     let _ticket = queue.submit(hal, &Request::new(&nop), 16, Lane::Regular)?;
///     assert!(!queue.is_idle());
///     Ok(queue)
/// }
/// ```
pub struct CommandQueue<M> {
    page: Dma<M>,
    pool: MailboxPool<M>,
    config: CommandQueueConfig,
    slots: [Slot; SLOTS],
    token: u8,
    generation: u32,
    checked: bool,
    presence: Presence,
}

impl<M: DmaMemory> CommandQueue<M> {
    /// Allocates the queue and the mailboxes. `config` must be usable.
    pub fn allocate<H: Hal<Dma = M>>(hal: &H, config: CommandQueueConfig) -> Result<Self, HalError> {
        Ok(Self {
            page: Dma::allocate(hal, PAGE, PAGE)?,
            pool: MailboxPool::allocate(hal, config.mailbox_blocks)?,
            config,
            slots: [Slot::default(); SLOTS],
            token: 0,
            generation: 0,
            checked: false,
            presence: Presence::default(),
        })
    }

    /// Tells the device the address of the queue, high half first.
    pub fn announce<H: Hal<Dma = M>>(&mut self, hal: &H) {
        let iova = self.page.iova();
        hal.mmio().write32(init_segment::CMDQ_ADDRESS_HIGH, (iova >> 32) as u32);
        hal.mmio().write32(init_segment::CMDQ_ADDRESS_LOW, iova as u32);
        hal.barrier(Barrier::FlushMmio);
        self.presence = Presence::announced(hal, iova as u32);
    }

    /// Checks that the device is still there. Once it is gone, no more commands are sent.
    ///
    /// # Errors
    /// The device is gone.
    pub fn check_presence<H: Hal<Dma = M>>(&mut self, hal: &H) -> Result<(), DeviceLoss> {
        self.presence.check(hal)
    }

    /// Whether the device still holds a command that nobody waits for any more.
    pub fn is_stalled(&self) -> bool {
        self.slots.iter().any(|slot| slot.abandoned)
    }

    /// Whether to check responses for token and signature. The device only computes them if the driver has
    /// enabled that.
    pub fn set_checked(&mut self, checked: bool) {
        self.checked = checked;
    }

    /// Submits `request` to the device. The caller expects `output_length` bytes of output.
    pub fn submit<H: Hal<Dma = M>>(
        &mut self,
        hal: &H,
        request: &Request<'_>,
        output_length: usize,
        lane: Lane,
    ) -> Result<Ticket, CommandError> {
        self.try_submit(hal, request, output_length.max(INLINE), lane)
            .map_err(|failure| request.error(failure))
    }

    fn try_submit<H: Hal<Dma = M>>(
        &mut self,
        hal: &H,
        request: &Request<'_>,
        output_length: usize,
        lane: Lane,
    ) -> Result<Ticket, CommandFailure> {
        self.check_presence(hal).map_err(CommandFailure::DeviceLost)?;
        self.reclaim(hal);
        let slot = self.free_slot(lane).ok_or(CommandFailure::NoSlot)?;
        let reserved = lane == Lane::Reserved;
        let input = self.pool.take(blocks_for(request.len()), reserved)?;
        let output = match self.pool.take(blocks_for(output_length), reserved) {
            Ok(chain) => chain,
            Err(failure) => {
                self.pool.give_back(input);
                return Err(failure);
            }
        };
        self.token = self.token % 255 + 1;
        self.generation = self.generation.wrapping_add(1);
        let (token, generation, output_length) = (self.token, self.generation, output_length as u32);
        self.slots[slot] =
            Slot { busy: true, abandoned: false, generation, input, output, output_length, token };
        if let Err(failure) = self.write(hal, slot, request) {
            self.release(slot);
            return Err(failure);
        }
        Ok(Ticket { slot: slot as u8, generation })
    }

    /// Writes mailboxes and entry, then rings the doorbell after a barrier.
    fn write<H: Hal<Dma = M>>(
        &self,
        hal: &H,
        slot: usize,
        request: &Request<'_>,
    ) -> Result<(), CommandFailure> {
        let Slot { input, output, output_length, token, .. } = self.slots[slot];
        self.pool.write(input, Some(request), token)?;
        self.pool.write(output, None, token)?;
        let place = Placement {
            input_mailbox: self.pool.iova(input),
            output_mailbox: self.pool.iova(output),
            output_length,
            token,
        };
        let entry = encode(request, place);
        let bytes = zerocopy::IntoBytes::as_bytes(&entry);
        let at = slot << self.config.log_stride;
        // Ownership goes last, as in Linux: a device that reads the slot early sees that software still owns
        // it.
        self.page.copy_in(at, &bytes[..OWNER]).map_err(CommandFailure::Internal)?;
        hal.barrier(Barrier::ToDevice);
        self.page.copy_in(at + OWNER, &bytes[OWNER..]).map_err(CommandFailure::Internal)?;
        hal.barrier(Barrier::ToDevice);
        hal.mmio().write32(init_segment::COMMAND_DOORBELL, 1 << slot);
        hal.barrier(Barrier::FlushMmio);
        Ok(())
    }

    /// Polls a command. Returns `Ok(false)` while it is in progress. When it has ended, copies its output to
    /// `output`, as much as fits, and invalidates the ticket.
    pub fn poll<H: Hal<Dma = M>>(
        &mut self,
        hal: &H,
        ticket: Ticket,
        output: &mut [u8],
    ) -> Result<bool, CommandFailure> {
        let index = ticket.slot as usize % SLOTS;
        let slot = self.slots[index];
        if !slot.busy || slot.abandoned || slot.generation != ticket.generation {
            return Err(CommandFailure::StaleTicket);
        }
        if self.is_owned_by_device(index) {
            return Ok(false);
        }
        hal.barrier(Barrier::FromDevice);
        let result = self.answer(index, output);
        self.release(index);
        result.map(|()| true)
    }

    /// Stops waiting for a command. Its slot and mailboxes stay in use until the device returns them.
    pub fn abandon(&mut self, ticket: Ticket) {
        let slot = &mut self.slots[ticket.slot as usize % SLOTS];
        if slot.busy && slot.generation == ticket.generation {
            slot.abandoned = true;
        }
    }

    /// Whether the device holds no command, not even an abandoned one.
    pub fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| !slot.busy)
    }

    /// Reads delivery status, status and output of a slot that the device has returned.
    fn answer(&self, index: usize, output: &mut [u8]) -> Result<(), CommandFailure> {
        let slot = self.slots[index];
        let bytes = self.entry(index).map_or([0; CommandQueueEntry::SIZE], |window| window.to_bytes());
        let entry = CommandQueueEntry::read_from_bytes(&bytes).unwrap_or_default();
        let delivery = DeliveryStatus::from_raw(entry.status());
        if delivery != DeliveryStatus::Ok {
            return Err(CommandFailure::NotDelivered(delivery));
        }
        if self.checked && entry.token() != slot.token {
            return Err(CommandFailure::WrongToken { expected: slot.token, found: entry.token() });
        }
        if self.checked && !is_intact(&bytes) {
            return Err(CommandFailure::WrongSignature);
        }
        if entry.output_length() > slot.output_length {
            return Err(CommandFailure::OutputLength {
                asked: slot.output_length,
                found: entry.output_length(),
            });
        }
        let inline = entry.command_output_inline_data();
        check_status(&inline)?;
        let room = output.len().min(slot.output_length as usize);
        let (head, tail) = output[..room].split_at_mut(room.min(INLINE));
        head.copy_from_slice(&inline[..head.len()]);
        self.pool.read(slot.output, tail, slot.token, self.checked)
    }

    fn entry(&self, slot: usize) -> Option<Window<'_, BLOCK>> {
        self.page.block((slot << self.config.log_stride) / BLOCK)
    }

    fn is_owned_by_device(&self, slot: usize) -> bool {
        let owner =
            |entry: Window<'_, BLOCK>| entry.load_field::<{ CommandQueueEntry::FIELDS.ownership.key() }>();
        self.entry(slot).map(owner).is_some_and(|owner| owner != 0)
    }

    fn free_slot(&self, lane: Lane) -> Option<usize> {
        let last = (1 << self.config.log_size) - 1;
        match lane {
            Lane::Regular => (0..last).find(|&slot| !self.slots[slot].busy),
            Lane::Reserved => (!self.slots[last].busy).then_some(last),
        }
    }

    /// Frees the slots of abandoned commands that the device has finished.
    pub fn reclaim<H: Hal<Dma = M>>(&mut self, hal: &H) {
        for index in 0..SLOTS {
            if self.slots[index].abandoned && !self.is_owned_by_device(index) {
                hal.barrier(Barrier::FromDevice);
                self.release(index);
            }
        }
    }

    fn release(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        (slot.busy, slot.abandoned) = (false, false);
        let (input, output) = (slot.input, slot.output);
        self.pool.give_back(input);
        self.pool.give_back(output);
    }
}

/// Checks the header at the start of every output.
fn check_status(inline: &[u8; INLINE]) -> Result<(), CommandFailure> {
    let header = CommandHeaderOut::read_from_bytes(inline).unwrap_or_default();
    match header.status() {
        CommandStatus::Ok => Ok(()),
        status => Err(CommandFailure::Refused { status, syndrome: header.syndrome() }),
    }
}
