//! Memory keys: what a key and an address allege is checked here, and only a checked [`HostRange`] reaches memory.

use super::contexts::Slab;
use super::{DmaFault, HostMemory};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Pdn, Qpn};

/// First memory key index; lower ones would look like [`INVALID_LKEY`](bareverbs_prm::wqe::INVALID_LKEY).
pub(crate) const FIRST_MKEY: u32 = 0x10;
/// `mkc.qpn` of a key that every queue pair of the protection domain may use.
pub(crate) const ANY_QP: u32 = 0xff_ffff;
/// The two low bits of a translation entry are flags.
const ENTRY_FLAGS: u64 = 3;

/// What is to be done to memory, and from where the wish comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Gather of a send.
    LocalRead,
    /// Scatter of a receive or a read response.
    LocalWrite,
    /// RDMA READ from outside.
    RemoteRead,
    /// RDMA WRITE from outside.
    RemoteWrite,
    /// Atomic from outside.
    RemoteAtomic,
}

/// Why a key, a domain, a right or a range is wrong. The order of the checks is the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFault {
    /// No such key, or its variant byte is another.
    Unknown,
    /// The key is free (not yet or no longer bound).
    Free,
    /// Key and queue pair are in different protection domains.
    Domain,
    /// The key belongs to another queue pair.
    QueuePair,
    /// The key does not give the right.
    Right,
    /// The range leaves the region.
    Range,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accessor {
    /// Protection domain of the queue pair.
    pub(crate) pd: Pdn,
    /// The queue pair.
    pub(crate) qpn: Qpn,
}

/// A stretch of memory that was checked. It names the key's object and dies with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostRange {
    index: u32,
    generation: u32,
    /// Bytes from the start of the translation; or the host address itself, if the key is contiguous.
    start: u64,
    length: u64,
}

impl HostRange {
    /// Bytes of the range.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }
}

/// One memory key.
#[derive(Debug)]
pub(crate) struct MemoryKey {
    /// As QUERY_MKEY shows it.
    pub(crate) context: MkeyContext,
    pub(crate) pd: Pdn,
    variant: u8,
    qpn: u32,
    rights: u8,
    free: bool,
    start: u64,
    /// Length of the region; 2^64 − 1 with `length64`.
    length: u64,
    translation: Translation,
    generation: u32,
}

/// From offsets in a region to host addresses.
#[derive(Debug)]
pub(crate) enum Translation {
    /// `host address = offset + base`, for PA keys and contiguous page lists.
    Direct { base: u64 },
    /// A page list; the region starts `lead` bytes into its first page.
    Pages { pages: Vec<u64>, log_page: u8, lead: u64 },
}

impl Translation {
    /// The translation of a page list (contract §5.2): entry `(va >> log_page) − (start >> log_page)`.
    pub(crate) fn from_pages(entries: &[u64], log_page: u8, start: u64) -> Self {
        let lead = start & ((1 << log_page) - 1);
        let pages: Vec<u64> = entries.iter().map(|entry| entry & !ENTRY_FLAGS).collect();
        let contiguous = pages.windows(2).all(|w| w[0].checked_add(1 << log_page) == Some(w[1]));
        match pages.first() {
            Some(first) if contiguous => Self::Direct { base: first.wrapping_add(lead) },
            _ => Self::Pages { pages, log_page, lead },
        }
    }
}

const fn right(access: Access) -> u8 {
    match access {
        Access::LocalRead => 1,
        Access::LocalWrite => 2,
        Access::RemoteRead => 4,
        Access::RemoteWrite => 8,
        Access::RemoteAtomic => 16,
    }
}

fn rights_of(context: &MkeyContext) -> u8 {
    let bits = [context.lr(), context.lw(), context.rr(), context.rw(), context.a()];
    bits.iter().enumerate().fold(0, |rights, (i, &bit)| rights | u8::from(bit) << i)
}

/// All memory keys of a device.
#[derive(Debug)]
pub(crate) struct MkeyTable {
    keys: Slab<MemoryKey>,
    generation: u32,
}

impl MkeyTable {
    pub(crate) const fn new() -> Self {
        Self { keys: Slab::new(FIRST_MKEY, 24), generation: 0 }
    }

    /// Creates a key and gives its index, unless there are `limit` of them.
    pub(crate) fn create(
        &mut self,
        context: MkeyContext,
        translation: Translation,
        limit: u64,
    ) -> Option<u32> {
        let index = self.keys.next_number(limit)?;
        self.generation = self.generation.wrapping_add(1);
        let key = MemoryKey {
            pd: context.pd(),
            variant: context.mkey_7_0(),
            qpn: context.qpn().value(),
            rights: rights_of(&context),
            free: context.free(),
            start: context.start_addr(),
            length: if context.length64() { u64::MAX } else { context.length() },
            generation: self.generation,
            context,
            translation,
        };
        self.keys.insert(index, key);
        Some(index)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&MemoryKey> {
        self.keys.get(index)
    }

    pub(crate) fn destroy(&mut self, index: u32) -> Option<MemoryKey> {
        self.keys.remove(index)
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &MemoryKey)> {
        self.keys.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The allegation «`key` lets me do `access` to `length` bytes at `address`» becomes a range, or a fault.
    /// Length zero is checked for key, domain and right only, IBTA v1.4 §9.7.5.1.4.
    #[inline]
    pub(crate) fn check(
        &self,
        who: Accessor,
        key: Mkey,
        access: Access,
        address: u64,
        length: u64,
    ) -> Result<HostRange, KeyFault> {
        let index = key.index().value();
        let object = self.keys.get(index).filter(|k| k.variant == key.variant()).ok_or(KeyFault::Unknown)?;
        object.check_use(who, access)?;
        let start = if length == 0 { 0 } else { object.offset_of(address, length)? };
        let start = match object.translation {
            Translation::Direct { base } => base.wrapping_add(start),
            Translation::Pages { lead, .. } => lead + start,
        };
        Ok(HostRange { index, generation: object.generation, start, length })
    }

    /// Marks a key free for SEND with invalidate (IBTA v1.4 §9.4.1.1.3), if it allows that.
    pub(crate) fn invalidate(&mut self, who: Accessor, key: Mkey) -> Result<(), KeyFault> {
        let object = self.keys.get_mut(key.index().value()).filter(|k| k.variant == key.variant());
        let object = object.ok_or(KeyFault::Unknown)?;
        if object.free {
            return Err(KeyFault::Free);
        }
        if object.pd != who.pd {
            return Err(KeyFault::Domain);
        }
        if !object.context.en_rinval() {
            return Err(KeyFault::Right);
        }
        object.free = true;
        object.context.set_free(true);
        self.generation = self.generation.wrapping_add(1);
        object.generation = self.generation;
        Ok(())
    }

    /// Reads bytes from `offset` of a range on.
    #[inline]
    pub(crate) fn read<M: HostMemory>(
        &self,
        memory: &mut M,
        range: &HostRange,
        offset: u64,
        mut bytes: &mut [u8],
    ) -> Result<(), DmaFault> {
        let mut at = self.position(range, offset, bytes.len(), false)?;
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
    #[inline]
    pub(crate) fn write<M: HostMemory>(
        &self,
        memory: &mut M,
        range: &HostRange,
        offset: u64,
        mut bytes: &[u8],
    ) -> Result<(), DmaFault> {
        let mut at = self.position(range, offset, bytes.len(), true)?;
        while !bytes.is_empty() {
            let (iova, run) = self.piece(range, at, bytes.len(), true)?;
            let (now, rest) = bytes.split_at(run);
            memory.write(iova, now)?;
            bytes = rest;
            at = at.wrapping_add(run as u64);
        }
        Ok(())
    }

    /// Position of `offset` in the translation, if `length` bytes from there on are inside the range.
    fn position(&self, range: &HostRange, offset: u64, length: usize, write: bool) -> Result<u64, DmaFault> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= range.length => Ok(range.start.wrapping_add(offset)),
            _ => Err(DmaFault { iova: range.start.wrapping_add(offset), length, write }),
        }
    }

    /// Host address and run length at a position; a fault if the key died since it was checked.
    #[inline]
    fn piece(
        &self,
        range: &HostRange,
        at: u64,
        length: usize,
        write: bool,
    ) -> Result<(u64, usize), DmaFault> {
        let key = self.keys.get(range.index).filter(|key| key.generation == range.generation && !key.free);
        match key.map(|key| &key.translation) {
            Some(Translation::Direct { .. }) => Ok((at, length)),
            Some(Translation::Pages { pages, log_page, .. }) => {
                let within = at & ((1 << log_page) - 1);
                let run = ((1u64 << log_page) - within).min(length as u64) as usize;
                let page = usize::try_from(at >> log_page).ok().and_then(|page| pages.get(page));
                page.map(|page| (page.wrapping_add(within), run)).ok_or(DmaFault { iova: at, length, write })
            }
            None => Err(DmaFault { iova: at, length, write }),
        }
    }
}

impl MemoryKey {
    fn check_use(&self, who: Accessor, access: Access) -> Result<(), KeyFault> {
        if self.free {
            return Err(KeyFault::Free);
        }
        if self.pd != who.pd {
            return Err(KeyFault::Domain);
        }
        if self.qpn != ANY_QP && self.qpn != who.qpn.value() {
            return Err(KeyFault::QueuePair);
        }
        if self.rights & right(access) == 0 {
            return Err(KeyFault::Right);
        }
        Ok(())
    }

    fn offset_of(&self, address: u64, length: u64) -> Result<u64, KeyFault> {
        let offset = address.checked_sub(self.start).ok_or(KeyFault::Range)?;
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(offset),
            _ => Err(KeyFault::Range),
        }
    }
}

#[cfg(test)]
#[path = "tests/mkey.rs"]
mod tests;
