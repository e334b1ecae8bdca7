//! The kernel's event queues: the device writes entries here and raises an interrupt, as with `mlx5_core`.

use crate::commands::{Command, CommandFailure, CommandQueue};
use crate::kernel_memory::PAGE;
use crate::process::Process;
use alloc::vec::Vec;
use bareverbs_prm::command::eq::{CreateEqIn, CreateEqOut};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut};
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, eq_doorbell, uar};
use bareverbs_prm::eqe::{EQE_SIZE, EventEntry};
use bareverbs_prm::ids::{Eqn, UarIndex};
use bareverbs_prm::numbering::{CommandOpcode, EventType};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::HostMemory;
use zerocopy::IntoBytes;

/// Size of a queue, logarithm. Entries are taken out after every input of the device, and an input posts few.
const LOG_ENTRIES: u8 = 12;
/// Interrupt vectors of the two queues.
const ASYNCHRONOUS: u16 = 0;
const COMPLETION: u16 = 1;
/// Events that the kernel subscribes to. A completion queue names its event queue itself.
const SUBSCRIBED: [EventType; 12] = [
    EventType::PathMig,
    EventType::CommEst,
    EventType::SqDrained,
    EventType::CqError,
    EventType::WqCatasError,
    EventType::PathMigFailed,
    EventType::PortChange,
    EventType::WqInvalReqError,
    EventType::WqAccessError,
    EventType::SrqCatasError,
    EventType::SrqLastWqe,
    EventType::SrqRqLimit,
];

/// One queue.
#[derive(Debug)]
struct EventQueue {
    number: Eqn,
    page: UarIndex,
    buffer: u64,
    consumer: u32,
}

/// The queue of asynchronous events and the one of completions.
#[derive(Debug)]
pub(crate) struct EventQueues {
    asynchronous: EventQueue,
    completion: EventQueue,
}

impl EventQueues {
    /// Creates both queues and arms them.
    pub(crate) fn create<P: Process>(
        commands: &mut CommandQueue,
        process: &mut P,
    ) -> Result<Self, CommandFailure> {
        let alloc = Command::new(CommandOpcode::AllocUar, 0, &AllocUarIn::new());
        let page = commands.run::<_, AllocUarOut>(process, &alloc)?.uar();
        let asynchronous = EventQueue::create(commands, process, page, ASYNCHRONOUS, &SUBSCRIBED)?;
        let completion = EventQueue::create(commands, process, page, COMPLETION, &[])?;
        Ok(Self { asynchronous, completion })
    }

    /// The event queue that completion queues name.
    pub(crate) const fn completion_queue_number(&self) -> Eqn {
        self.completion.number
    }

    /// Takes all entries out of the queues whose interrupt the device raised, and arms the queues again.
    pub(crate) fn drain<P: Process>(
        &mut self,
        commands: &mut CommandQueue,
        now: Time,
        process: &mut P,
    ) -> Vec<EventEntry> {
        let mut entries = Vec::new();
        while let Some(vector) = commands.nic.poll_interrupt() {
            let queue = if vector == COMPLETION { &mut self.completion } else { &mut self.asynchronous };
            while let Some(entry) = queue.next(commands) {
                entries.push(entry);
            }
            queue.arm(commands, now, process);
        }
        entries
    }
}

impl EventQueue {
    fn create<P: Process>(
        commands: &mut CommandQueue,
        process: &mut P,
        page: UarIndex,
        vector: u16,
        subscribed: &[EventType],
    ) -> Result<Self, CommandFailure> {
        let pages = (EQE_SIZE << LOG_ENTRIES) / PAGE as usize;
        let buffer = commands.kernel.allocate(pages);
        let list: Vec<u8> = (0..pages as u64).flat_map(|page| (buffer + page * PAGE).to_be_bytes()).collect();
        let mut input = CreateEqIn::new();
        input.set_event_bitmask(bit_mask(subscribed));
        input.eq_context_entry_mut().set_log_eq_size(LOG_ENTRIES).set_uar_page(page).set_intr(vector);
        let command = Command::new(CommandOpcode::CreateEq, 0, &input).list(&list);
        let number = commands.run::<_, CreateEqOut>(process, &command)?.eq_number();
        let mut queue = Self { number, page, buffer, consumer: 0 };
        queue.preset(commands);
        let now = process.now();
        queue.arm(commands, now, process);
        Ok(queue)
    }

    /// Gives every entry to the device.
    fn preset(&mut self, commands: &mut CommandQueue) {
        let mut entry = EventEntry::new();
        entry.set_owner(true);
        for slot in 0..1 << LOG_ENTRIES {
            // The buffer was allocated with room for every slot.
            let _ = commands.kernel.write(self.buffer + slot * EQE_SIZE as u64, entry.as_bytes());
        }
    }

    fn next(&mut self, commands: &mut CommandQueue) -> Option<EventEntry> {
        let slot = u64::from(self.consumer & ((1 << LOG_ENTRIES) - 1));
        let mut entry = EventEntry::new();
        commands.kernel.read(self.buffer + slot * EQE_SIZE as u64, entry.as_mut_bytes()).ok()?;
        if entry.owner() != (self.consumer >> LOG_ENTRIES & 1 != 0) {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        Some(entry)
    }

    fn arm<P: Process>(&self, commands: &mut CommandQueue, now: Time, process: &mut P) {
        let register = u64::from(self.page.value()) * UAR_PAGE_SIZE as u64 + uar::EQ_ARM as u64;
        let doorbell = eq_doorbell(self.number, self.consumer);
        commands.write_register(now, process, register, &doorbell.to_be_bytes());
    }
}

/// `event_bitmask`: four words of 64 bits, big-endian; bit `n` of word `n / 64`.
fn bit_mask(types: &[EventType]) -> [u8; 32] {
    let mut mask = [0; 32];
    for kind in types.iter().map(|kind| usize::from(kind.raw())) {
        mask[kind / 64 * 8 + 7 - kind % 64 / 8] |= 1 << (kind % 8);
    }
    mask
}
