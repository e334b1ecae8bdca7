//! Reads and writes checked ranges, piece by piece, through as many keys as the translation passes.

use super::step::TranslationStep;
use super::{Access, HostRange, KeyFault, MAX_INDIRECTION, MemoryKey, MkeyTable, RESERVED_LKEY, Translation};
use super::{DmaFault, HostMemory, right};
use bareverbs_prm::ids::{Mkey, Pdn};
use bareverbs_prm::mutation::mutated;

impl MkeyTable {
    /// Reads bytes from `offset` of a range on.
    #[inline(always)] // For every frame with payload.
    pub(crate) fn read<M: HostMemory>(
        &self,
        memory: &mut M,
        range: &HostRange,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        let at = position(range, offset, bytes.len(), false)?;
        if self.is_direct(range) && !bytes.is_empty() {
            return memory.read(at, bytes);
        }
        self.read_pieces(memory, range, at, bytes)
    }

    #[inline(never)]
    fn read_pieces<M: HostMemory>(
        &self,
        memory: &mut M,
        range: &HostRange,
        mut at: u64,
        mut bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        while !bytes.is_empty() {
            let (iova, run) = self.piece(range, at, bytes.len(), false)?;
            let (now, rest) = bytes.split_at_mut(run);
            memory.read(iova, now)?;
            bytes = rest;
            at = at.wrapping_add(run as u64);
        }
        Ok(())
    }

    /// Writes bytes from `offset` of a range on.
    #[inline(always)] // For every frame with payload.
    pub(crate) fn write<M: HostMemory>(
        &self,
        memory: &mut M,
        range: &HostRange,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), DmaFault> {
        let at = position(range, offset, bytes.len(), true)?;
        if self.is_direct(range) && !bytes.is_empty() {
            return memory.write(at, bytes);
        }
        self.write_pieces(memory, range, at, bytes)
    }

    #[inline(never)]
    fn write_pieces<M: HostMemory>(
        &self,
        memory: &mut M,
        range: &HostRange,
        mut at: u64,
        mut bytes: &[u8],
    ) -> Result<(), DmaFault> {
        while !bytes.is_empty() {
            let (iova, run) = self.piece(range, at, bytes.len(), true)?;
            let (now, rest) = bytes.split_at(run);
            memory.write(iova, now)?;
            bytes = rest;
            at = at.wrapping_add(run as u64);
        }
        Ok(())
    }

    /// The key of a range, unless it was destroyed or freed after the check.
    #[inline]
    fn key_of(&self, range: &HostRange) -> Option<&MemoryKey> {
        let unchanged = |key: &&MemoryKey| key.generation == range.generation || mutated("stale_range");
        self.keys.get(range.index).filter(unchanged)
    }

    /// Whether the positions of a range are host addresses, so that all of it is one piece.
    #[inline]
    fn is_direct(&self, range: &HostRange) -> bool {
        self.key_of(range).is_some_and(|key| matches!(key.translation, Translation::Direct { .. }))
    }

    /// Host address and run length at a position; a fault if the key was destroyed or freed after the check.
    #[inline]
    fn piece(
        &self,
        range: &HostRange,
        at: u64,
        length: usize,
        write: bool,
    ) -> Result<(u64, usize), DmaFault> {
        let Some(key) = self.key_of(range) else {
            return piece_without_key(range, at, length, write);
        };
        if matches!(key.translation, Translation::Direct { .. }) {
            return Ok((at, length));
        }
        let fault = DmaFault { iova: at, length, write };
        let (iova, run) = self.resolve(key, at, length as u64, write).map_err(|_| fault)?;
        Ok((iova, usize::try_from(run).unwrap_or(length).min(length)))
    }

    /// Follows a position of `key` to host memory and returns between one and `length` bytes.
    fn resolve<'a>(
        &'a self,
        mut key: &'a MemoryKey,
        mut at: u64,
        mut length: u64,
        write: bool,
    ) -> Result<(u64, u64), KeyFault> {
        for _ in 0..=MAX_INDIRECTION {
            let (step, left) = key.translation.step(&key.entries, at).ok_or(KeyFault::Range)?;
            length = length.min(left);
            match step {
                TranslationStep::Host(iova) => return Ok((iova, length)),
                TranslationStep::Key { key: name, address } => {
                    self.budget.add(1);
                    (key, at) = self.enter(key, name, address, length, write)?;
                }
            }
        }
        Err(KeyFault::Depth)
    }

    /// Checks that every byte of a range behind an indirect key can be reached, so that a bad key is found
    /// before the first byte moves. Most data uses no indirect key and pays nothing for this check.
    #[cold]
    #[inline(never)]
    pub(super) fn check_list(
        &self,
        key: &MemoryKey,
        at: u64,
        length: u64,
        write: bool,
    ) -> Result<(), KeyFault> {
        self.check_indirect(key, at, length, write, 0)
    }

    /// Like [`Self::check_list`], after passing `keys` keys.
    fn check_indirect(
        &self,
        key: &MemoryKey,
        at: u64,
        length: u64,
        write: bool,
        keys: u8,
    ) -> Result<(), KeyFault> {
        if keys > MAX_INDIRECTION {
            return Err(KeyFault::Depth);
        }
        let Translation::Keys(list) = &key.translation else {
            let pieces = key.translation.pieces(&key.entries, at, length).ok_or(KeyFault::Range)?;
            return if self.budget.take(pieces) { Ok(()) } else { Err(KeyFault::Pieces) };
        };
        let (mut at, mut left, mut stretch) = (at, length, list.stretch_of(at));
        while left > 0 {
            // Continue from the previous range: a search for each position would cost more than everything
            // else.
            stretch = stretch.and_then(|stretch| list.stretch_from(stretch, at));
            let (step, rest) = stretch.and_then(|place| list.step_in(place, at)).ok_or(KeyFault::Range)?;
            let run = rest.min(left);
            match step {
                TranslationStep::Key { key: name, address } => {
                    let (inner, at) = self.enter(key, name, address, run, write)?;
                    self.check_indirect(inner, at, run, write, keys + 1)?;
                }
                TranslationStep::Host(_) => return Err(KeyFault::Range),
            }
            at = at.checked_add(run).ok_or(KeyFault::Range)?;
            left -= run;
        }
        Ok(())
    }

    /// Follows an entry of a key to the key that it names and the position there.
    fn enter(
        &self,
        outer: &MemoryKey,
        name: Mkey,
        address: u64,
        length: u64,
        write: bool,
    ) -> Result<(&MemoryKey, u64), KeyFault> {
        let inner = self.find(name)?;
        inner.check_inner(KeyOwner { pd: outer.pd, qpn: outer.qpn }, write)?;
        Ok((inner, inner.translation.position(inner.offset_of(address, length)?)))
    }
}

/// A position of a range without a key: its key is gone, or the range belongs to the reserved key.
#[cold]
#[inline(never)]
fn piece_without_key(
    range: &HostRange,
    at: u64,
    length: usize,
    write: bool,
) -> Result<(u64, usize), DmaFault> {
    let reserved = range.index == RESERVED_LKEY.index().value();
    if reserved { Ok((at, length)) } else { Err(DmaFault { iova: at, length, write }) }
}

/// Who may use a key: a protection domain, and in it a queue pair or all.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyOwner {
    pub(super) pd: Pdn,
    pub(super) qpn: u32,
}

impl MemoryKey {
    /// Checks a key behind another one: it must grant local access and be in the same protection domain (IBTA
    /// v1.4 §10.6.7.2.4: a memory window has its own rights, and the region behind it only needs to permit
    /// them locally).
    pub(super) fn check_inner(&self, outer: KeyOwner, write: bool) -> Result<(), KeyFault> {
        let access = if write { Access::LocalWrite } else { Access::LocalRead };
        if self.free {
            return Err(KeyFault::Free);
        }
        if self.pd != outer.pd {
            return Err(KeyFault::Domain);
        }
        if self.qpn != super::ANY_QP && self.qpn != outer.qpn && !mutated("foreign_inner_key") {
            return Err(KeyFault::QueuePair);
        }
        if self.rights & right(access) == 0 { Err(KeyFault::Right) } else { Ok(()) }
    }
}

/// Position of `offset` in the translation, if `length` bytes from there on are within the range.
#[inline]
fn position(range: &HostRange, offset: u64, length: usize, write: bool) -> Result<u64, DmaFault> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= range.length => Ok(range.start.wrapping_add(offset)),
        _ => Err(DmaFault { iova: range.start.wrapping_add(offset), length, write }),
    }
}
