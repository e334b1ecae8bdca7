//! Memory keys. Keys and addresses from outside are checked here, and only a checked [`HostRange`] reaches memory.
//!
//! **Where to read first.** This file for keys and their checks (PRM, memory key context), `translation` for
//! how offsets become host addresses, `list` for indirect keys, `access` for reading and writing, `budget`
//! for the cost of that, `update` for updates by work requests (UMR), `shared` for keys between functions of
//! one card.

mod access;
mod budget;
mod list;
mod shared;
mod shared_key;
mod step;
mod translation;
mod update;

pub(crate) use budget::WorkBudget;
pub use shared::{DmaEnd, DmaRefused};
pub use shared_key::SharedKey;
pub(crate) use translation::{Translation, access_mode, words};
pub(crate) use update::{KeyUpdate, UpdateRules};

use super::contexts::Slab;
use super::user_memory::UserMemory;
use super::{DmaFault, HostMemory};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Pdn, Qpn};
use bareverbs_prm::mutation::mutated;
use std::sync::Arc;

/// First memory key index; lower ones could be confused with
/// [`INVALID_LKEY`](bareverbs_prm::wqe::INVALID_LKEY) or with the markers in translation lists.
pub(crate) const FIRST_MKEY: u32 = 0x10;
/// `mkc.qpn` of a key that every queue pair of the protection domain may use.
pub(crate) const ANY_QP: u32 = 0xff_ffff;
/// The reserved local key (`resd_lkey`): queues created for it (`rlky`) name memory by its bus address. No
/// created key has its index, and it differs from the key that terminates segment lists (0x100).
pub(crate) const RESERVED_LKEY: Mkey = Mkey::new(3 << 8);
/// The maximum number of keys between an access and memory (`max_indirection`).
pub(crate) const MAX_INDIRECTION: u8 = 4;

/// The maximum number of octwords of translation entries of all keys of a device: 2^27 bytes, enough for 64
/// GiB in pages of 4 KiB. Real devices keep the entries in pages that the driver gave them.
const TRANSLATION_BUDGET: u64 = 1 << 23;

/// Work requests bring translation entries in units of 64 bytes, which are this many octwords (PRM, UMR WQE).
const LIST_UNIT: u64 = 4;

/// The kind of a memory access and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Gather of a send.
    LocalRead,
    /// Scatter of a receive or a read response.
    LocalWrite,
    /// RDMA READ by a peer.
    RemoteRead,
    /// RDMA WRITE by a peer.
    RemoteWrite,
    /// Atomic by a peer.
    RemoteAtomic,
}

/// Why an access was refused. The order of the variants is the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFault {
    /// No such key, or the variant byte does not match.
    Unknown,
    /// The key is free (not bound yet or no longer bound), or not free although it should be.
    Free,
    /// Key and queue pair are in different protection domains.
    Domain,
    /// The key belongs to another queue pair.
    QueuePair,
    /// The key does not grant the access right.
    Right,
    /// The range exceeds the region or its translation.
    Range,
    /// The access passes more keys than [`MAX_INDIRECTION`].
    Depth,
    /// The access has more pieces of memory than allowed.
    Pieces,
    /// The key or the device does not allow this update.
    Change,
}

impl Access {
    /// Whether the access writes memory.
    const fn writes(self) -> bool {
        matches!(self, Self::LocalWrite | Self::RemoteWrite | Self::RemoteAtomic)
    }
}

/// The queue pair that requests an access, and its rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accessor {
    /// Protection domain of the queue pair.
    pub(crate) pd: Pdn,
    /// The queue pair.
    pub(crate) qpn: Qpn,
    /// A queue pair of the driver itself (REG_UMR). It is not restricted to a protection domain and may use
    /// the memory and keys of all.
    pub(crate) privileged: bool,
    /// It may use [`RESERVED_LKEY`].
    pub(crate) reserved_lkey: bool,
}

/// A checked range of memory. It names the key's index and generation and becomes invalid with either:
/// freeing a key changes its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostRange {
    index: u32,
    generation: u32,
    /// Offset from the start of the translation, or the host address itself if the key is contiguous.
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
    /// The context as QUERY_MKEY shows it.
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
    /// The translation entries as given, two words per octword. Kept only for a page list that is not
    /// contiguous and for a key that work requests may change.
    entries: Vec<u64>,
    generation: u32,
    /// The user memory object that contains it.
    _held: Option<Arc<UserMemory>>,
}

/// The maximum number of octwords of translation entries that a key can hold, which no update changes. Work
/// requests bring lists in units of [`LIST_UNIT`], the last one padded, so a key has room for whole units:
/// Linux creates keys of two octwords and sends four to them.
fn room(context: &MkeyContext) -> u64 {
    u64::from(context.translations_octword_size()).next_multiple_of(LIST_UNIT)
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
    /// Octwords reserved for the keys, at most [`TRANSLATION_BUDGET`].
    reserved: u64,
    budget: WorkBudget,
}

impl MkeyTable {
    pub(crate) fn new() -> Self {
        Self { keys: Slab::new(FIRST_MKEY, 24), generation: 0, reserved: 0, budget: WorkBudget::default() }
    }

    /// Creates a key with the translation entries of its list and returns its index, unless there are `limit`
    /// keys already.
    pub(crate) fn create(&mut self, context: MkeyContext, entries: Vec<u64>, limit: u64) -> Option<u32> {
        let index = self.keys.next_number(limit)?;
        self.generation = self.generation.wrapping_add(1);
        self.reserved += room(&context);
        self.keys.insert(index, MemoryKey::new(context, entries, self.generation));
        Some(index)
    }

    /// Keeps the user memory object alive that contains a key.
    pub(crate) fn hold(&mut self, index: u32, object: Arc<UserMemory>) {
        if let Some(key) = self.keys.get_mut(index) {
            key._held = Some(object);
        }
    }

    /// Whether the budget has room for another key: for all octwords that it can ever hold, since work
    /// requests bring entries later.
    pub(crate) fn has_room_for(&self, context: &MkeyContext) -> bool {
        self.reserved + room(context) <= TRANSLATION_BUDGET
    }

    pub(crate) fn get(&self, index: u32) -> Option<&MemoryKey> {
        self.keys.get(index)
    }

    pub(crate) fn destroy(&mut self, index: u32) -> Option<MemoryKey> {
        let key = self.keys.remove(index)?;
        self.reserved -= room(&key.context);
        Some(key)
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.reserved = 0;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &MemoryKey)> {
        self.keys.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The cost of translations so far.
    #[inline]
    pub(crate) const fn budget(&self) -> &WorkBudget {
        &self.budget
    }

    /// Checks whether `key` permits `access` to `length` bytes at `address` and returns the range or a fault.
    /// A length of zero is checked for key, domain and right only, IBTA v1.4 §9.7.4.1.5.
    #[inline]
    pub(crate) fn check(
        &self,
        who: &Accessor,
        key: Mkey,
        access: Access,
        address: u64,
        length: u64,
    ) -> Result<HostRange, KeyFault> {
        self.budget.begin_access();
        self.check_segment(who, key, access, address, length)
    }

    /// Like [`Self::check`], for one of several segments of an access. The caller has called
    /// [`WorkBudget::begin_access`] before the first.
    // One copy for both halves of a connection: inlined into each it costs more.
    #[inline(never)]
    pub(crate) fn check_segment(
        &self,
        who: &Accessor,
        key: Mkey,
        access: Access,
        address: u64,
        length: u64,
    ) -> Result<HostRange, KeyFault> {
        let index = key.index().value();
        let Ok(object) = self.find(key) else {
            return reserved_range(who.reserved_lkey, key, access, address, length);
        };
        object.check_use(who, access)?;
        let start = if length == 0 { 0 } else { object.offset_of(address, length)? };
        let start = object.translation.position(start);
        if object.translation.is_indirect() {
            self.check_list(object, start, length, access.writes())?;
        }
        Ok(HostRange { index, generation: object.generation, start, length })
    }

    /// The key with this name, if the variant byte matches.
    fn find(&self, key: Mkey) -> Result<&MemoryKey, KeyFault> {
        let object = self.keys.get(key.index().value()).filter(|object| object.variant == key.variant());
        object.ok_or(KeyFault::Unknown)
    }

    /// Frees a key for SEND with invalidate (IBTA v1.4 §9.4.1.1.3) if the key allows that. A type 2 memory
    /// window allows it only to the queue pair that it is bound to.
    pub(crate) fn invalidate(&mut self, who: Accessor, key: Mkey) -> Result<(), KeyFault> {
        let object = self.keys.get_mut(key.index().value()).filter(|k| k.variant == key.variant());
        let object = object.ok_or(KeyFault::Unknown)?;
        if object.free {
            return Err(KeyFault::Free);
        }
        if object.pd != who.pd {
            return Err(KeyFault::Domain);
        }
        if object.qpn != ANY_QP && object.qpn != who.qpn.value() {
            return Err(KeyFault::QueuePair);
        }
        if !object.context.en_rinval() {
            return Err(KeyFault::Right);
        }
        object.free = true;
        object.context.set_free(true);
        self.generation = self.generation.wrapping_add(1);
        if !mutated("range_outlives_key") {
            object.generation = self.generation;
        }
        Ok(())
    }
}

/// The range at a bus address, for a queue that may use the reserved key.
#[cold]
#[inline(never)]
fn reserved_range(
    allowed: bool,
    key: Mkey,
    access: Access,
    address: u64,
    length: u64,
) -> Result<HostRange, KeyFault> {
    let is_local = matches!(access, Access::LocalRead | Access::LocalWrite);
    let is_inside = address.checked_add(length).is_some();
    if key != RESERVED_LKEY || !allowed || !is_local || !is_inside {
        return Err(KeyFault::Unknown);
    }
    Ok(HostRange { index: RESERVED_LKEY.index().value(), generation: 0, start: address, length })
}

impl MemoryKey {
    fn new(context: MkeyContext, entries: Vec<u64>, generation: u32) -> Self {
        let translation = Translation::build(&context, &entries);
        let stays = context.umr_en() || matches!(translation, Translation::Pages { .. });
        let mut key = Self {
            pd: context.pd(),
            variant: 0,
            qpn: 0,
            rights: 0,
            free: false,
            start: 0,
            length: 0,
            translation,
            // Entries that nothing can change need no second copy.
            entries: if stays { entries } else { Vec::new() },
            generation,
            _held: None,
            context,
        };
        key.follow_context();
        key
    }

    /// Adopts the fields of the context that control the use of the key.
    fn follow_context(&mut self) {
        let context = &self.context;
        (self.pd, self.variant, self.qpn) = (context.pd(), context.mkey_7_0(), context.qpn().value());
        (self.rights, self.free) = (rights_of(context), context.free());
        self.start = context.start_addr();
        self.length = translation::length_of(context);
    }

    fn check_use(&self, who: &Accessor, access: Access) -> Result<(), KeyFault> {
        if self.free {
            return Err(KeyFault::Free);
        }
        if self.pd != who.pd && !who.privileged {
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
#[path = "../tests/mkey.rs"]
mod tests;
