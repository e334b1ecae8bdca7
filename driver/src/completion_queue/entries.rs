//! Entries in the ring: of 64 or 128 bytes, alone or compressed to a run.
//!
//! A run is written out in its own places before anything of it is read: what polls, throws away and moves entries then
//! sees none but ordinary ones, and the owner of every place is that of the pass, as the next pass wants it.

use super::CompletionQueue;
use super::poll::Entry;
use crate::device::DeviceRef;
use crate::dma::{BLOCK, Window};
use crate::hal::{Barrier, Hal};
use crate::ring::{Consumer, take_ownership};
use bareverbs_prm::cqe::{CQE_FORMAT_COMPRESSED, MINI_CQES};

/// Words of an entry: bytes 44 to 47 are the byte count, bytes 56 to 63 opcodes, queue pair, counter and owner.
const COUNT_WORD: usize = 5;
const TAIL_WORD: usize = 7;
/// Bits of the last word, most significant first: send opcode 63:56, counter 31:16, opcode 7:4, format 3:2, owner 0.
const SEND_OPCODE_SHIFT: u32 = 56;
const COUNTER_SHIFT: u32 = 16;
const FORMAT_SHIFT: u32 = 2;
const REQUESTER: u64 = 0;

/// The number of entries a run is said to have, which cannot be.
pub(super) struct BadRun(pub(super) u32);

impl<D: DeviceRef> CompletionQueue<D> {
    /// The entry at a place: the block, or the second of two.
    pub(super) fn entry(&self, index: u32) -> Window<'_, BLOCK> {
        let block = if self.wide { index << 1 | 1 } else { index };
        self.rings.blocks().slot(block)
    }

    /// The last byte of the entry at a place, if the device has written it; runs that begin there are written out.
    pub(super) fn take(&self, at: Consumer) -> Result<Option<u8>, BadRun> {
        let hal = self.device.device().hal();
        let window = self.entry(at.index());
        let Some(byte) = take_ownership(&Entry { hal, window }, at.phase()) else { return Ok(None) };
        if byte >> FORMAT_SHIFT & 3 != CQE_FORMAT_COMPRESSED {
            return Ok(Some(byte));
        }
        self.write_out(at, window.load())?;
        Ok(Some(self.entry(at.index()).load_u8::<{ bareverbs_prm::cqe::OP_OWN_OFFSET }>()))
    }

    /// Writes out the run of which `title` is the title, in memory order.
    fn write_out(&self, at: Consumer, title: [u64; 8]) -> Result<(), BadRun> {
        let count = u64::from_be(title[COUNT_WORD]) as u32;
        if count < 2 || count > at.size() || self.wide {
            return Err(BadRun(count));
        }
        let mut minis = [0; MINI_CQES];
        for number in 0..count {
            let mini = number as usize % MINI_CQES;
            if mini == 0 {
                // The array lies in a place of the run that was not written out yet.
                minis = self.entry(at.ahead(number.max(1)).index()).load();
            }
            let place = at.ahead(number);
            let tail =
                tail_of(u64::from_be(title[TAIL_WORD]), u64::from_be(minis[mini]), number, place.phase());
            self.write_entry(place, &title, u64::from_be(minis[mini]) as u32, tail);
        }
        // Before the device may write these places again; the doorbell record says when.
        self.device.device().hal().barrier(Barrier::ToDevice);
        Ok(())
    }

    fn write_entry(&self, at: Consumer, title: &[u64; 8], byte_count: u32, tail: u64) {
        let window = self.entry(at.index());
        let mut words = *title;
        words[COUNT_WORD] = (u64::from_be(title[COUNT_WORD]) >> 32 << 32 | u64::from(byte_count)).to_be();
        words[TAIL_WORD] = tail.to_be();
        window.store_first::<8>(&words);
    }
}

/// The last word of entry number `number` of a run. Of a requester, the mini entry has opcode and counter; of a responder,
/// counters follow each other.
fn tail_of(title: u64, mini: u64, number: u32, phase: u8) -> u64 {
    let plain = title & !(0xf | 0xffff << COUNTER_SHIFT) | u64::from(phase);
    if title >> 4 & 0xf == REQUESTER {
        let (counter, opcode) = (mini >> 48, mini >> 40 & 0xff);
        plain & !(0xff << SEND_OPCODE_SHIFT) | opcode << SEND_OPCODE_SHIFT | counter << COUNTER_SHIFT
    } else {
        let first = (title >> COUNTER_SHIFT) as u16;
        plain | u64::from(first.wrapping_add(number as u16)) << COUNTER_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::cqe::{CompletionEntry, MiniEntry};
    use bareverbs_prm::ids::Qpn;
    use bareverbs_prm::numbering::CqeOpcode;
    use zerocopy::IntoBytes;

    fn tail(opcode: CqeOpcode, mini: MiniEntry, number: u32, phase: u8) -> (Qpn, u16, u8, u8, bool) {
        let mut title = CompletionEntry::new();
        title.set_qpn(Qpn::from_low_bits(0x12_3456)).set_wqe_counter(0xffff).set_opcode(opcode);
        title.set_send_opcode(9).set_format(CQE_FORMAT_COMPRESSED).set_owner(phase == 0);
        let last = |bytes: &[u8]| u64::from_be_bytes(bytes.last_chunk().copied().unwrap());
        let word = tail_of(last(title.as_bytes()), last(mini.as_bytes()), number, phase);
        let mut entry = CompletionEntry::new();
        entry.as_mut_bytes()[56..].copy_from_slice(&word.to_be_bytes());
        assert_eq!(entry.opcode(), opcode);
        (entry.qpn(), entry.wqe_counter(), entry.send_opcode(), entry.format(), entry.owner())
    }

    #[test]
    fn a_run_is_the_title_with_what_the_minis_say() {
        let mut mini = MiniEntry::new();
        mini.set_wqe_counter(0x1234).set_send_opcode(0x10).set_byte_count(7);
        let qpn = Qpn::from_low_bits(0x12_3456);
        assert_eq!(tail(CqeOpcode::Requester, mini, 5, 1), (qpn, 0x1234, 0x10, 0, true));
        assert_eq!(tail(CqeOpcode::ResponderSend, mini, 2, 0), (qpn, 1, 9, 0, false), "counters wrap");
    }
}
