//! What the device writes on its own account: events and completions.

use super::super::memory::Memory;
use super::Firmware;
use bareverbs_prm::cqe::{CQE_FORMAT_COMPRESSED, CompletionEntry, MINI_CQES, MiniEntry};
use bareverbs_prm::eqe::EventEntry;
use zerocopy::IntoBytes;

impl Firmware {
    /// Writes an event of the device, owner last.
    pub fn event(&mut self, memory: &Memory, event: EventEntry) {
        self.event_in(memory, 1, event);
    }

    /// Writes an event into an event queue, owner last.
    pub fn event_in(&mut self, memory: &Memory, eqn: u32, mut event: EventEntry) {
        let Some(ring) = self.event_queues.get_mut(&eqn) else { return };
        event.set_owner(ring.owner());
        memory.write(ring.place(ring.producer), event.as_bytes());
        ring.producer += 1;
    }

    /// Writes a completion, owner last.
    pub fn complete(&mut self, memory: &Memory, cqn: u32, mut entry: CompletionEntry) {
        let ring = self.completion_queues.get_mut(&cqn).expect("the queue exists");
        entry.set_owner(ring.owner());
        memory.write(ring.place(ring.producer), entry.as_bytes());
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
        for (number, array) in minis.chunks(MINI_CQES).enumerate() {
            let entry = if number == 0 { 1 } else { number * MINI_CQES };
            let at = ring.place(ring.producer + entry as u32);
            for (index, mini) in array.iter().enumerate() {
                memory.write(at + index as u64 * 8, mini.as_bytes());
            }
        }
        title.set_owner(ring.owner());
        title.set_byte_count(minis.len() as u32).set_format(CQE_FORMAT_COMPRESSED);
        memory.write(ring.place(ring.producer), title.as_bytes());
        ring.producer += minis.len() as u32;
    }
}
