//! A completion queue of the kernel, in kernel memory.

use crate::commands::{Command, CommandFailure, CommandQueue};
use crate::kernel_memory::{PAGE, page_list};
use crate::process::Process;
use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut};
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, uar};
use bareverbs_prm::ids::{Cqn, Eqn, UarIndex};
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::HostMemory;
use zerocopy::IntoBytes;

/// Size of a queue, logarithm.
const LOG_ENTRIES: u8 = 8;
const ENTRY: u64 = size_of::<CompletionEntry>() as u64;
const BYTES: usize = (ENTRY << LOG_ENTRIES) as usize;

/// The queue; see the module's comment.
#[derive(Debug)]
pub(crate) struct KernelCompletions {
    cqn: Cqn,
    page: UarIndex,
    entries: u64,
    record: u64,
    /// Number of entries taken.
    consumer: u32,
}

impl KernelCompletions {
    /// Creates a queue that rings on `page` and, when armed, raises events at `events`.
    pub(crate) fn create<P: Process>(
        commands: &mut CommandQueue,
        process: &mut P,
        page: UarIndex,
        events: Eqn,
    ) -> Result<Self, CommandFailure> {
        let entries = commands.kernel.allocate(BYTES.div_ceil(PAGE as usize));
        let record = commands.kernel.allocate(1);
        let mut preset = CompletionEntry::new();
        preset.set_opcode(CqeOpcode::Invalid).set_owner(true);
        for slot in 0..1 << LOG_ENTRIES {
            commands.kernel.put(entries + slot * ENTRY, preset.as_bytes());
        }
        let mut input = CreateCqIn::new();
        let context = input.cq_context_mut();
        context.set_log_cq_size(LOG_ENTRIES).set_uar_page(page).set_dbr_addr(record);
        context.set_c_eqn_or_apu_element(events.value());
        let create = Command::new(CommandOpcode::CreateCq, 0, &input).list(&page_list(entries, BYTES));
        let cqn = commands.run::<_, CreateCqOut>(process, &create)?.cqn();
        Ok(Self { cqn, page, entries, record, consumer: 0 })
    }

    /// The queue's number.
    pub(crate) const fn number(&self) -> Cqn {
        self.cqn
    }

    /// Takes the next entry. Its place is free at once, because the device does not run meanwhile.
    pub(crate) fn next(&mut self, commands: &mut CommandQueue) -> Option<CompletionEntry> {
        let slot = u64::from(self.consumer & ((1 << LOG_ENTRIES) - 1));
        let mut entry = CompletionEntry::new();
        commands.kernel.read(self.entries + slot * ENTRY, entry.as_mut_bytes()).ok()?;
        let is_new = entry.owner() == (self.consumer >> LOG_ENTRIES & 1 != 0);
        if !is_new || entry.opcode() == CqeOpcode::Invalid {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        commands.kernel.put(self.record, &self.index().to_be_bytes());
        Some(entry)
    }

    /// Requests an event for the next entry.
    pub(crate) fn arm<P: Process>(&self, commands: &mut CommandQueue, now: Time, process: &mut P) {
        let word = self.index();
        commands.kernel.put(self.record + 4, &word.to_be_bytes());
        let register = u64::from(self.page.value()) * UAR_PAGE_SIZE as u64 + uar::CQ_ARM as u64;
        let doorbell = u64::from(word) << 32 | u64::from(self.cqn.value());
        commands.write_register(now, process, register, &doorbell.to_be_bytes());
    }

    const fn index(&self) -> u32 {
        self.consumer & 0xff_ffff
    }
}
