//! What the device writes on its own account: events and completions.

use super::super::memory::Memory;
use super::Firmware;
use bareverbs_prm::cqe::{CQE_FORMAT_COMPRESSED, CompletionEntry, MINI_CQES, MiniEntry};
use bareverbs_prm::eqe::EventEntry;
use zerocopy::IntoBytes;

impl Firmware {
    /// Writes an event, owner last.
    pub fn event(&mut self, memory: &Memory, mut event: EventEntry) {
        let Some(ring) = self.event_queues.get_mut(&1) else { return };
        event.set_owner(ring.producer >> ring.log_size & 1 != 0);
        let slot = ring.producer & ((1 << ring.log_size) - 1);
        memory.write(ring.base + slot as u64 * 64, event.as_bytes());
        ring.producer += 1;
    }

    /// Writes a completion, owner last.
    pub fn complete(&mut self, memory: &Memory, cqn: u32, mut entry: CompletionEntry) {
        let ring = self.completion_queues.get_mut(&cqn).expect("the queue exists");
        entry.set_owner(ring.producer >> ring.log_size & 1 != 0);
        let slot = ring.producer & ((1 << ring.log_size) - 1);
        memory.write(ring.base + slot as u64 * 64, entry.as_bytes());
        ring.producer += 1;
    }

    /// Writes a compressed run: arrays of eight mini entries, then the title.
    pub fn complete_run(
        &mut self,
        memory: &Memory,
        cqn: u32,
        mut title: CompletionEntry,
        minis: &[MiniEntry],
    ) {
        let ring = self.completion_queues.get_mut(&cqn).expect("the queue exists");
        let mask = (1 << ring.log_size) - 1;
        let place = |number: usize| ring.base + ((ring.producer + number as u32) & mask) as u64 * 64;
        for (number, array) in minis.chunks(MINI_CQES).enumerate() {
            let at = place(if number == 0 { 1 } else { number * MINI_CQES });
            for (index, mini) in array.iter().enumerate() {
                memory.write(at + index as u64 * 8, mini.as_bytes());
            }
        }
        title.set_owner(ring.producer >> ring.log_size & 1 != 0);
        title.set_byte_count(minis.len() as u32).set_format(CQE_FORMAT_COMPRESSED);
        memory.write(place(0), title.as_bytes());
        ring.producer += minis.len() as u32;
    }
}
