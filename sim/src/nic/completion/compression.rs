//! Compression: a run of like entries is written as a title entry and arrays of eight mini entries (PRM, CQE compression,
//! basic layout).
//!
//! A run of `n` entries takes the places of `n` entries. The first is the title: an ordinary entry with format 3 whose
//! byte count is `n`. The first array lies behind it, the others at every eighth place of the run; what lies between is not
//! written, and software gives it the owner of the pass. The title is written last.

use super::queue::{BrokenQueue, CompletionQueue};
use crate::nic::HostMemory;
use bareverbs_prm::cqe::{CQE_FORMAT_COMPRESSED, CQE_SIZE, CompletionEntry, MINI_CQES, MiniEntry};
use bareverbs_prm::numbering::CqeOpcode;
use zerocopy::IntoBytes;

/// Entries of a run at most, as the capability `cqe_compression_max_num` says.
pub(crate) const LONGEST_RUN: usize = 64;

/// An entry that waits for others like it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) entry: CompletionEntry,
    pub(super) solicited: bool,
}

/// Whether an entry may be part of a run: all that its kind says beyond the title fits a mini entry.
pub(super) fn is_compressible(entry: &CompletionEntry) -> bool {
    entry.format() == 0 && matches!(entry.opcode(), CqeOpcode::Requester | CqeOpcode::ResponderSend)
}

/// Whether `next` may follow `last` in a run.
pub(super) fn follows(last: &CompletionEntry, next: &CompletionEntry) -> bool {
    let same = |entry: &CompletionEntry| {
        let opcode = entry.opcode();
        (opcode, entry.qpn(), entry.user_index(), entry.remote_qpn(), entry.slid(), entry.service_level())
    };
    let in_order =
        next.opcode() == CqeOpcode::Requester || next.wqe_counter() == last.wqe_counter().wrapping_add(1);
    is_compressible(next) && same(last) == same(next) && in_order
}

fn mini(entry: &CompletionEntry) -> MiniEntry {
    let mut mini = MiniEntry::new();
    mini.set_byte_count(entry.byte_count());
    if entry.opcode() == CqeOpcode::Requester {
        mini.set_wqe_counter(entry.wqe_counter()).set_send_opcode(entry.send_opcode());
    }
    mini
}

impl CompletionQueue {
    /// Writes a run of at least two entries. There is room for it.
    pub(super) fn push_run<M: HostMemory>(
        &mut self,
        memory: &mut M,
        run: &[Waiting],
    ) -> Result<(), BrokenQueue> {
        let Some(first) = run.first() else { return Ok(()) };
        for (number, minis) in run.chunks(MINI_CQES).enumerate() {
            let mut bytes = [0; CQE_SIZE];
            for (place, waiting) in bytes.chunks_exact_mut(MiniEntry::SIZE).zip(minis) {
                place.copy_from_slice(mini(&waiting.entry).as_bytes());
            }
            let place = if number == 0 { 1 } else { number * MINI_CQES };
            self.write_half(memory, self.producer.wrapping_add(place as u32), 0, &bytes)?;
        }
        let mut title = first.entry;
        title.set_byte_count(run.len() as u32).set_format(CQE_FORMAT_COMPRESSED);
        title.set_owner(self.owner_at(self.producer));
        let mut bytes = [0; CQE_SIZE];
        bytes.copy_from_slice(title.as_bytes());
        self.write_half(memory, self.producer, 0, &bytes)?;
        self.producer = self.producer.wrapping_add(run.len() as u32);
        Ok(())
    }
}
