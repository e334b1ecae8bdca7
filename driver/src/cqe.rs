//! Completion queue entries: the only module that decodes them.
//!
//! The descriptors of `bareverbs_prm::cqe` define the positions of all fields; no offset is written here. An
//! entry is read in place, field by field, after its owner bit says that the device has written it
//! ([`ownership`]). Its contents are only claims, which the ledger checks. Nothing here knows a ledger or the
//! position of an entry in its ring.
//!
//! * [`CqeView`]: fields of an entry · [`ownership`]: its owner and its kind
//! * [`completion`]: entry to work completion · [`compressed`]: runs in compressed form

pub(crate) mod completion;
pub(crate) mod compressed;
pub(crate) mod ownership;

#[cfg(test)]
mod tests;

use crate::dma::{BLOCK, Window};
use crate::work_completion::Origin;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry, OP_OWN_INITIAL, OP_OWN_OFFSET};
use bareverbs_prm::field::BitRange;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{CqeOpcode, CqeSyndrome};

/// The `user_index` of entries without a queue pair.
pub(crate) const NOBODY: u32 = CompletionEntry::FIELDS.user_index.mask() as u32;
/// Words of an entry.
pub(crate) const ENTRY_WORDS: usize = BLOCK / 8;
/// The dword with the `user_index`, which is compared as a whole.
const USER_INDEX: usize = CompletionEntry::FIELDS.user_index.offset();
/// The dword with the queue pair number, and the bits of the number in it.
const QPN: usize = CompletionEntry::FIELDS.qpn.offset();
const QPN_BITS: u32 = CompletionEntry::FIELDS.qpn.mask() as u32;
/// The dword that ends with opcode and owner.
const OP_OWN_DWORD: usize = OP_OWN_OFFSET & !3;
/// The dwords that identify the sender of a message.
const SLID: usize = CompletionEntry::FIELDS.slid.offset() & !3;
const FLAGS: usize = CompletionEntry::FIELDS.remote_qpn.offset();
/// The word that ends with opcode and owner.
const LAST: usize = ENTRY_WORDS - 1;
const OWNER: BitRange = CompletionEntry::FIELDS.owner.in_word(LAST);

/// The fields of a completion, whether it is an entry in the ring or part of a compressed run.
pub(crate) trait CompletionFields: Copy {
    /// Counter of the work queue entry that completed.
    fn counter(self) -> u16;
    /// Bytes received or read.
    fn byte_count(self) -> u32;
    /// Immediate data, or the invalidated key.
    fn immediate(self) -> u32;
    /// The sender of a received message.
    fn origin(self) -> Origin;
}

/// An entry in the ring.
#[derive(Clone, Copy)]
pub(crate) struct CqeView<'a>(pub(crate) Window<'a, BLOCK>);

impl CompletionFields for CqeView<'_> {
    #[inline(always)]
    fn counter(self) -> u16 {
        self.0.load_field::<{ CompletionEntry::FIELDS.wqe_counter.key() }>() as u16
    }

    #[inline(always)]
    fn byte_count(self) -> u32 {
        self.0.load_field::<{ CompletionEntry::FIELDS.byte_count.key() }>() as u32
    }

    fn immediate(self) -> u32 {
        self.0.load_field::<{ CompletionEntry::FIELDS.immediate.key() }>() as u32
    }

    #[inline(always)]
    fn origin(self) -> Origin {
        Origin::new(self.0.load_raw32::<SLID>(), self.0.load_raw32::<FLAGS>())
    }
}

/// A success in the ring, of which the counter has been read.
#[derive(Clone, Copy)]
pub(crate) struct Success<'a> {
    pub(crate) cqe: CqeView<'a>,
    pub(crate) counter: u16,
    pub(crate) opcode: u8,
}

impl CompletionFields for Success<'_> {
    #[inline(always)]
    fn counter(self) -> u16 {
        self.counter
    }

    #[inline(always)]
    fn byte_count(self) -> u32 {
        self.cqe.byte_count()
    }

    fn immediate(self) -> u32 {
        self.cqe.immediate()
    }

    #[inline(always)]
    fn origin(self) -> Origin {
        self.cqe.origin()
    }
}

impl<'a> CqeView<'a> {
    /// This entry, which is a success with this opcode.
    #[inline(always)]
    pub(crate) fn success(self, opcode: u8) -> Success<'a> {
        Success { cqe: self, counter: self.counter(), opcode }
    }

    /// The last dword, as a number in little-endian order: the counter in its first bytes, the byte
    /// [`op_own`](Self::op_own) in its last.
    #[inline(always)]
    pub(crate) fn last_dword(self) -> u32 {
        const { assert!(CompletionEntry::FIELDS.wqe_counter.offset() == OP_OWN_DWORD && OP_OWN_OFFSET % 4 == 3) };
        u32::from_le(self.0.load_raw32::<OP_OWN_DWORD>())
    }

    /// The field `user_index`, which names the queue pair.
    pub(crate) fn user_index(self) -> u32 {
        self.0.load_field::<{ CompletionEntry::FIELDS.user_index.key() }>() as u32
    }

    /// The dword with the `user_index` in memory order, for comparison with another entry, and to find the queue pair.
    #[inline(always)]
    pub(crate) fn user_index_dword(self) -> u32 {
        self.0.load_raw32::<USER_INDEX>()
    }

    /// The queue pair.
    #[inline(always)]
    pub(crate) fn qpn(self) -> Qpn {
        Qpn::from_low_bits(self.0.load_be32::<QPN>())
    }

    /// The queue pair number in memory order, for comparison with another entry.
    #[inline(always)]
    pub(crate) fn qpn_dword(self) -> u32 {
        self.0.load_raw32::<QPN>() & QPN_BITS.to_be()
    }

    pub(crate) fn opcode(self) -> CqeOpcode {
        CqeOpcode::from_raw(self.0.load_field::<{ CompletionEntry::FIELDS.opcode.key() }>() as u8)
    }

    /// Why the request of an error entry failed.
    pub(crate) fn syndrome(self) -> CqeSyndrome {
        CqeSyndrome::from_raw(self.0.load_field::<{ ErrorEntry::FIELDS.syndrome.key() }>() as u8)
    }

    /// The device's own code for it.
    pub(crate) fn vendor_syndrome(self) -> u8 {
        self.0.load_field::<{ ErrorEntry::FIELDS.vendor_syndrome.key() }>() as u8
    }

    /// The last byte: opcode, format and owner.
    #[inline(always)]
    pub(crate) fn op_own(self) -> u8 {
        self.0.load_u8::<OP_OWN_OFFSET>()
    }

    /// Detaches the entry from its queue pair.
    pub(crate) fn disown(self) {
        self.0.store_be32::<USER_INDEX>(NOBODY);
    }

    /// Marks the entry as not written by the device yet.
    pub(crate) fn invalidate(self) {
        self.0.store_be32::<OP_OWN_DWORD>(OP_OWN_INITIAL as u32);
    }

    /// Stores the last word, in memory order.
    #[inline(always)]
    pub(crate) fn set_last_word(self, word: u64) {
        self.0.store_word_at(LAST, word);
    }

    /// The whole entry, in memory order.
    pub(crate) fn load(self) -> [u64; ENTRY_WORDS] {
        self.0.load()
    }

    /// Stores a whole entry that software owns in the pass with parity `phase`.
    pub(crate) fn store(self, mut words: [u64; ENTRY_WORDS], phase: u8) {
        words[LAST] = OWNER.set(u64::from_be(words[LAST]), phase.into()).to_be();
        self.0.store_first::<ENTRY_WORDS>(&words);
    }
}
