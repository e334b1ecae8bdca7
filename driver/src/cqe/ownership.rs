//! Reads from one byte whether software owns an entry and what kind it is.

use super::{CqeView, Success};
use crate::hal::{Barrier, Hal};
use crate::ring::{OwnedEntry, is_written};
use bareverbs_prm::cqe::{CQE_FORMAT_COMPRESSED, CompletionEntry};
use bareverbs_prm::field::BitRange;
use bareverbs_prm::numbering::CqeOpcode;

/// Position of the fields in the byte, which is the last one of the last word.
const OPCODE: BitRange = CompletionEntry::FIELDS.opcode.in_word(super::LAST);
const FORMAT: BitRange = CompletionEntry::FIELDS.format.in_word(super::LAST);
const SOLICITED: BitRange = CompletionEntry::FIELDS.solicited.in_word(super::LAST);
const OWNER: BitRange = CompletionEntry::FIELDS.owner.in_word(super::LAST);
/// The significant bits of the byte: all but the solicited event bit.
const SIGNIFICANT: u8 = SOLICITED.clear(u8::MAX as u64) as u8;
/// Bits of the byte below the opcode.
const BELOW_OPCODE: u32 = OPCODE.put(1).trailing_zeros();
/// The significant bits of a receive that a SEND without immediate data consumed.
const PLAIN_RECEIVE: u8 = OPCODE.put(CqeOpcode::ResponderSend.raw() as u64) as u8;
/// Bits of the last dword, in little-endian order, below its last byte.
const LAST_BYTE: u32 = 24;
/// First opcode of a responder's success.
const FIRST_RESPONDER: u8 = CqeOpcode::ResponderWriteImmediate.raw();
const LAST_RESPONDER: u8 = CqeOpcode::ResponderSendInvalidate.raw();

/// An entry of a completion queue, and the barrier that reading its ownership needs.
pub(crate) struct OwnedCqe<'a, H> {
    pub(crate) hal: &'a H,
    pub(crate) cqe: CqeView<'a>,
}

impl<H: Hal> OwnedEntry for OwnedCqe<'_, H> {
    #[inline(always)]
    fn last_byte(&self) -> u8 {
        self.cqe.op_own()
    }
    #[inline(always)]
    fn synchronize(&self) {
        self.hal.barrier(Barrier::FromDevice);
    }
}

/// What the last byte of an entry says of its kind.
pub(crate) trait EntryKind: Copy {
    /// Whether the entry is a requester's success of format 0: without inline data and not part of a
    /// compressed run.
    fn is_requester_success(self) -> bool;
    /// The opcode, if the entry is a responder's success of format 0.
    fn responder_success(self) -> Option<u8>;
}

/// The last byte of an entry as a pass over the ring sees it: without the solicited event bit, and with an owner bit
/// that is relative to that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerByte(u8);

impl OwnerByte {
    /// Reads the byte of an entry in the pass with parity `phase`.
    #[inline(always)]
    pub(crate) fn read(entry: &impl OwnedEntry, phase: u8) -> Self {
        Self((entry.last_byte() ^ phase) & SIGNIFICANT)
    }

    /// Whether the entry is the success of a receive that a SEND without immediate data consumed, of format 0.
    #[inline(always)]
    pub(crate) const fn is_plain_receive(self) -> bool {
        self.0 == PLAIN_RECEIVE
    }

    /// The byte of the entries of a compressed run, if this is the byte of its title.
    #[inline(always)]
    pub(crate) const fn of_run(self) -> Option<Self> {
        if self.is_empty() || !is_compressed(self.0) {
            return None;
        }
        Some(Self(FORMAT.clear(self.0 as u64) as u8))
    }

    /// Whether the owner bit is that of another pass, as in most empty entries.
    #[inline(always)]
    pub(crate) const fn is_of_other_pass(self) -> bool {
        OWNER.get(self.0 as u64) != 0
    }

    /// Whether the device has written nothing in this pass.
    #[inline(always)]
    pub(crate) const fn is_empty(self) -> bool {
        !is_written(self.0, 0)
    }
}

impl EntryKind for OwnerByte {
    #[inline(always)]
    fn is_requester_success(self) -> bool {
        const { assert!(CqeOpcode::Requester.raw() == 0) };
        self.0 == 0
    }

    #[inline(always)]
    fn responder_success(self) -> Option<u8> {
        let opcode = self.0.rotate_right(BELOW_OPCODE);
        if opcode.wrapping_sub(FIRST_RESPONDER) <= LAST_RESPONDER - FIRST_RESPONDER {
            Some(opcode)
        } else {
            None
        }
    }
}

/// The last dword of an entry: its counter, and its last byte as [`OwnerByte`] has it. One load reads both, so the
/// counter is as complete as the byte that the device writes last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryEnd(u32);

/// The parity of a pass over the ring, where [`EntryEnd`] has the owner bit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass(u32);

impl Pass {
    /// The pass with parity `phase`. The compiler does not learn that the other bits are zero: it would read the counter of
    /// each entry from a copy without the parity.
    #[inline(always)]
    pub(crate) fn new(phase: u8) -> Self {
        Self(core::hint::black_box((phase as u32) << LAST_BYTE))
    }
}

impl EntryEnd {
    /// Reads the dword of an entry in the pass with this parity.
    #[inline(always)]
    pub(crate) fn read<H>(entry: &OwnedCqe<'_, H>, pass: Pass) -> Self {
        Self(entry.cqe.last_dword() ^ pass.0)
    }

    /// The last byte.
    #[inline(always)]
    const fn owner(self) -> OwnerByte {
        OwnerByte((self.0 >> LAST_BYTE) as u8 & SIGNIFICANT)
    }

    /// Whether the significant bits of the last byte are these.
    #[inline(always)]
    const fn is(self, byte: u8) -> bool {
        self.0 & (SIGNIFICANT as u32) << LAST_BYTE == (byte as u32) << LAST_BYTE
    }

    /// The rest of the entry `cqe`, which is a success with this opcode.
    #[inline(always)]
    pub(crate) const fn success(self, cqe: CqeView<'_>, opcode: u8) -> Success<'_> {
        Success { cqe, counter: (self.0 as u16).swap_bytes(), opcode }
    }
}

impl EntryKind for EntryEnd {
    #[inline(always)]
    fn is_requester_success(self) -> bool {
        self.is(0)
    }

    #[inline(always)]
    fn responder_success(self) -> Option<u8> {
        if self.is(PLAIN_RECEIVE) {
            return Some(CqeOpcode::ResponderSend.raw());
        }
        self.owner().responder_success()
    }
}

/// Whether an entry with this last byte is the title of a compressed run.
pub(crate) const fn is_compressed(op_own: u8) -> bool {
    FORMAT.get(op_own as u64) == CQE_FORMAT_COMPRESSED as u64
}

/// The opcode of an entry with this last byte.
pub(crate) const fn opcode(op_own: u8) -> CqeOpcode {
    CqeOpcode::from_raw(OPCODE.get(op_own as u64) as u8)
}

/// Whether an entry with this opcode completes a receive.
pub(crate) const fn is_responder(opcode: CqeOpcode) -> bool {
    matches!(
        opcode,
        CqeOpcode::ResponderWriteImmediate
            | CqeOpcode::ResponderSend
            | CqeOpcode::ResponderSendImmediate
            | CqeOpcode::ResponderSendInvalidate
            | CqeOpcode::ResponderError
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::take_ownership;
    use core::cell::Cell;

    /// The last dword as a pass sees it.
    fn end(dword: u32, phase: u8) -> EntryEnd {
        EntryEnd(dword ^ Pass::new(phase).0)
    }

    struct Byte(u8, Cell<bool>);
    impl OwnedEntry for Byte {
        fn last_byte(&self) -> u8 {
            self.0
        }
        fn synchronize(&self) {
            self.1.set(true);
        }
    }

    #[test]
    fn successes_without_data_are_recognised() {
        for (byte, phase) in (0..=255u8).flat_map(|byte| [(byte, 0), (byte, 1)]) {
            let owner = OwnerByte::read(&Byte(byte, Cell::new(false)), phase);
            let is_ours = byte & 1 == phase && byte < 0xf0;
            let success = (is_ours && byte & 0xc == 0).then_some(byte >> 4);
            assert_eq!(owner.is_of_other_pass(), byte & 1 != phase);
            assert_eq!(owner.is_empty(), !is_ours, "{byte:#x} in phase {phase}");
            assert_eq!(owner.is_requester_success(), success == Some(0), "{byte:#x} in phase {phase}");
            let responder = success.filter(|opcode| (1..=4).contains(opcode));
            assert_eq!(owner.responder_success(), responder, "{byte:#x} in phase {phase}");
            assert_eq!(owner.is_plain_receive(), success == Some(2), "{byte:#x} in phase {phase}");
            let end = end(u32::from_le_bytes([0x12, 0x34, 0xff, byte]), phase);
            assert_eq!(end.is_requester_success(), success == Some(0), "{byte:#x} in phase {phase}");
            assert_eq!(end.responder_success(), responder, "{byte:#x} in phase {phase}");
            let entry = Byte(byte, Cell::new(false));
            assert_eq!(take_ownership(&entry, phase).is_some(), is_ours);
            assert_eq!(entry.1.get(), is_ours, "the barrier comes with the entry");
        }
    }
}
