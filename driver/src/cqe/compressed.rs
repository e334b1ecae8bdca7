//! Compressed runs: a title entry, followed by arrays of mini entries with the differences.

use super::{CompletionFields, CqeView, ENTRY_WORDS, FLAGS, LAST, SLID};
use crate::work_completion::Origin;
use bareverbs_prm::cqe::{CompletionEntry, MiniEntry};
use bareverbs_prm::field::BitRange;
use bareverbs_prm::numbering::CqeOpcode;

/// The word with the byte count, which in the title holds the number of entries.
const COUNT_WORD: usize = CompletionEntry::FIELDS.byte_count.offset() / 8;
const BYTE_COUNT: BitRange = CompletionEntry::FIELDS.byte_count.in_word(COUNT_WORD);
/// The words before it that a success decodes: the sender's LID and queue pair, `user_index`, immediate data.
const DECODED_BEFORE_COUNT: [usize; 3] = [
    CompletionEntry::FIELDS.slid.offset() / 8,
    CompletionEntry::FIELDS.remote_qpn.offset() / 8,
    CompletionEntry::FIELDS.user_index.offset() / 8,
];
const IMMEDIATE: BitRange = CompletionEntry::FIELDS.immediate.in_word(DECODED_BEFORE_COUNT[2]);
const OWNER: BitRange = CompletionEntry::FIELDS.owner.in_word(LAST);
const SEND_OPCODE: BitRange = CompletionEntry::FIELDS.send_opcode.in_word(LAST);
const COUNTER: BitRange = CompletionEntry::FIELDS.wqe_counter.in_word(LAST);
const OPCODE: BitRange = CompletionEntry::FIELDS.opcode.in_word(LAST);
const FORMAT: BitRange = CompletionEntry::FIELDS.format.in_word(LAST);
const SOLICITED: BitRange = CompletionEntry::FIELDS.solicited.in_word(LAST);
const MINI_COUNTER: BitRange = MiniEntry::FIELDS.wqe_counter.in_word(0);
const MINI_SEND_OPCODE: BitRange = MiniEntry::FIELDS.send_opcode.in_word(0);
const MINI_BYTE_COUNT: BitRange = MiniEntry::FIELDS.byte_count.in_word(0);

/// The title of a run: what its entries have in common.
pub(crate) struct CompressedTitle {
    words: [u64; ENTRY_WORDS],
    /// The word with the byte count and the last word, as numbers, without the fields that differ between
    /// entries.
    count: u64,
    last: u64,
    entries: u32,
    is_requester: bool,
}

impl CompressedTitle {
    pub(crate) fn read(cqe: CqeView<'_>) -> Self {
        let words = cqe.load();
        let [count, last] = [COUNT_WORD, LAST].map(|word| u64::from_be(words[word]));
        Self {
            words,
            count: BYTE_COUNT.clear(count),
            last: OWNER.clear(SOLICITED.clear(FORMAT.clear(last))),
            entries: BYTE_COUNT.get(count) as u32,
            is_requester: OPCODE.get(last) == CqeOpcode::Requester.raw() as u64,
        }
    }

    /// The dword at byte `O`, in memory order.
    #[inline(always)]
    const fn dword<const O: usize>(&self) -> u32 {
        const { assert!(O.is_multiple_of(4) && O + 4 <= ENTRY_WORDS * 8) };
        let number = u64::from_be(self.words[O / 8]) >> if O.is_multiple_of(8) { 32 } else { 0 };
        (number as u32).to_be()
    }

    /// Entries of the run.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Completion number `number` of the run, from its mini entry `mini` in memory order, without expanding
    /// the entry. `is_requester` is that of the title, passed separately because callers know it at compile
    /// time.
    #[inline(always)]
    pub(crate) fn completion(&self, mini: u64, number: u32, is_requester: bool) -> RunCompletion<'_> {
        let mini = u64::from_be(mini);
        let counter = match is_requester {
            true => MINI_COUNTER.get(mini) as u16,
            false => (COUNTER.get(self.last) as u16).wrapping_add(number as u16),
        };
        RunCompletion { title: self, byte_count: MINI_BYTE_COUNT.get(mini) as u32, counter }
    }

    /// Whether the run belongs to a requester.
    pub(crate) fn is_requester(&self) -> bool {
        self.is_requester
    }

    /// The last word of consumed entries in memory order. Its owner bit is that of the pass with parity
    /// `phase`, as the next pass requires.
    #[inline(always)]
    pub(crate) fn consumed(&self, phase: u8) -> u64 {
        (self.last | OWNER.put(phase.into())).to_be()
    }

    /// Expands entry number `number` of the run from its mini entry `mini` in memory order, owned by software
    /// in the pass with parity `phase`. Mini entries of requesters hold opcode and counter; counters of
    /// responders are consecutive.
    #[inline(always)]
    pub(crate) fn write_entry(&self, cqe: CqeView<'_>, mini: u64, number: u32, phase: u8) {
        let mini = u64::from_be(mini);
        let last = if self.is_requester {
            let with_opcode = SEND_OPCODE.set(self.last, MINI_SEND_OPCODE.get(mini));
            COUNTER.set(with_opcode, MINI_COUNTER.get(mini))
        } else {
            COUNTER.set(self.last, COUNTER.get(self.last) + u64::from(number))
        };
        let count = self.count | BYTE_COUNT.put(MINI_BYTE_COUNT.get(mini));
        for word in DECODED_BEFORE_COUNT {
            cqe.0.store_word_at(word, self.words[word]);
        }
        cqe.0.store_word_at(COUNT_WORD, count.to_be());
        cqe.0.store_word_at(LAST, (last | OWNER.put(phase.into())).to_be());
    }
}

/// A completion of a run, combined from its mini entry and the title.
#[derive(Clone, Copy)]
pub(crate) struct RunCompletion<'a> {
    title: &'a CompressedTitle,
    byte_count: u32,
    counter: u16,
}

impl CompletionFields for RunCompletion<'_> {
    #[inline(always)]
    fn counter(self) -> u16 {
        self.counter
    }

    #[inline(always)]
    fn byte_count(self) -> u32 {
        self.byte_count
    }

    fn immediate(self) -> u32 {
        IMMEDIATE.get(u64::from_be(self.title.words[DECODED_BEFORE_COUNT[2]])) as u32
    }

    #[inline(always)]
    fn origin(self) -> Origin {
        Origin::new(self.title.dword::<SLID>(), self.title.dword::<FLAGS>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::{BLOCK, Dma};
    use crate::test_memory::Boxed;
    use bareverbs_prm::cqe::CQE_FORMAT_COMPRESSED;
    use bareverbs_prm::ids::Qpn;
    use zerocopy::{FromBytes, IntoBytes};

    fn entry(opcode: CqeOpcode, mini: MiniEntry, number: u32, phase: u8) -> CompletionEntry {
        let memory = Dma::new(Boxed::new(2 * BLOCK));
        let mut title = CompletionEntry::new();
        title.set_qpn(Qpn::from_low_bits(0x12_3456)).set_wqe_counter(0xffff).set_opcode(opcode);
        title.set_send_opcode(9).set_format(CQE_FORMAT_COMPRESSED).set_solicited(true).set_byte_count(32);
        title.set_owner(phase == 0).set_user_index(0x77).set_immediate(0x99).set_slid(5);
        title.set_remote_qpn(Qpn::from_low_bits(0x66)).set_grh(1).set_service_level(3);
        memory.copy_in(0, title.as_bytes()).unwrap();
        let title = CompressedTitle::read(CqeView(memory.block(0).unwrap()));
        assert_eq!(title.entries(), 32);
        let cqe = CqeView(memory.block(1).unwrap());
        title.write_entry(cqe, u64::from_ne_bytes(mini.as_bytes().try_into().unwrap()), number, phase);
        CompletionEntry::read_from_bytes(&cqe.0.to_bytes()).unwrap()
    }

    #[test]
    fn a_run_is_the_title_with_what_the_minis_say() {
        let mut mini = MiniEntry::new();
        mini.set_wqe_counter(0x1234).set_send_opcode(0x10).set_byte_count(7);
        let mut expected = CompletionEntry::new();
        expected.set_qpn(Qpn::from_low_bits(0x12_3456)).set_opcode(CqeOpcode::Requester).set_byte_count(7);
        expected
            .set_user_index(0x77)
            .set_immediate(0x99)
            .set_slid(5)
            .set_remote_qpn(Qpn::from_low_bits(0x66));
        expected
            .set_wqe_counter(0x1234)
            .set_send_opcode(0x10)
            .set_grh(1)
            .set_service_level(3)
            .set_owner(true);
        assert_eq!(entry(CqeOpcode::Requester, mini, 5, 1), expected);
        expected.set_opcode(CqeOpcode::ResponderSend).set_wqe_counter(1).set_send_opcode(9).set_owner(false);
        assert_eq!(entry(CqeOpcode::ResponderSend, mini, 2, 0), expected, "counters wrap");
    }
}
