//! Memory-key updates by work requests (UMR): state, variant, rights, domain, range and translation (PRM, UMR
//! WQE).

use super::access::KeyOwner;
use super::list::KeyList;
use super::translation::length_of;
use super::{ANY_QP, Accessor, KeyFault, MemoryKey, MkeyTable, access_mode, room};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::MkeyAccessMode;
use bareverbs_prm::wqe::{mkey_mask as mask, umr_flags as flag};

/// Sets one flag of a memory key context.
type Setter = fn(&mut MkeyContext, bool) -> &mut MkeyContext;

/// The fields that can be updated. All others concern signatures, which are not offered.
const CHANGEABLE: u64 = mask::LENGTH
    | mask::PAGE_SIZE
    | mask::START_ADDRESS
    | mask::PD
    | mask::REMOTE_INVALIDATE
    | mask::KEY
    | mask::QPN
    | RIGHTS
    | mask::SMALL_FENCE
    | mask::RELAXED_ORDERING_WRITE
    | mask::FREE
    | mask::RELAXED_ORDERING_READ;
const RIGHTS: u64 =
    mask::LOCAL_READ | mask::LOCAL_WRITE | mask::REMOTE_READ | mask::REMOTE_WRITE | mask::ATOMIC;
const FLAGS: u8 =
    flag::INLINE | flag::FAIL_IF_FREE | flag::FAIL_IF_NOT_FREE | flag::TRANSLATION_OFFSET | flag::CHECK_QPN;

/// A memory-key update: the fields selected by `mask` are taken from `context`, and translation entries are
/// replaced from an offset on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyUpdate {
    /// Only its index selects the key: the variant may be part of the update.
    pub(crate) key: Mkey,
    pub(crate) flags: u8,
    pub(crate) mask: u64,
    pub(crate) context: MkeyContext,
    /// First octword of the translation to replace.
    pub(crate) offset: u64,
    /// Number of octwords to replace.
    pub(crate) octowords: u16,
}

/// Who updates keys, and what the device allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpdateRules {
    pub(crate) who: Accessor,
    /// `umr_modify_entity_size_disabled`.
    pub(crate) fixed_page_size: bool,
    /// `umr_modify_atomic_disabled`.
    pub(crate) fixed_atomic: bool,
    /// `umr_indirect_mkey_disabled`.
    pub(crate) fixed_indirect: bool,
}

impl MkeyTable {
    /// Updates a key. Ranges checked earlier become invalid. A refused update changes nothing.
    pub(crate) fn update(
        &mut self,
        update: &KeyUpdate,
        entries: &[u64],
        rules: &UpdateRules,
    ) -> Result<(), KeyFault> {
        let index = update.key.index().value();
        let key = self.keys.get(index).ok_or(KeyFault::Unknown)?;
        key.check_update(update, rules)?;
        key.check_entries(update, entries)?;
        if !rules.who.privileged {
            self.check_stretches(key, update, entries)?;
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let key = self.keys.get_mut(index).ok_or(KeyFault::Unknown)?;
        key.change(update);
        let looked_at = key.replace(update, entries);
        key.generation = generation;
        self.budget.add(u32::try_from(looked_at).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Checks a binding (IBTA v1.4 §10.6.7.2): the keys behind a window or a list must exist in its
    /// protection domain and permit locally what it permits remotely.
    fn check_stretches(&self, key: &MemoryKey, update: &KeyUpdate, entries: &[u64]) -> Result<(), KeyFault> {
        if access_mode(&key.context) != MkeyAccessMode::Klms {
            return Ok(());
        }
        let context = key.updated_context(update);
        let write = context.rw() || context.a();
        // Lists are padded with arbitrary bytes: only the length says how many entries count.
        let before = KeyList::of_lengths(key.entries_before(update.offset), u64::MAX).length();
        let rest = length_of(&context).saturating_sub(before);
        let owner = KeyOwner { pd: context.pd(), qpn: context.qpn().value() };
        for name in KeyList::of_lengths(entries, rest).keys() {
            self.find(name)?.check_inner(owner, write)?;
        }
        Ok(())
    }
}

impl MemoryKey {
    fn check_update(&self, update: &KeyUpdate, rules: &UpdateRules) -> Result<(), KeyFault> {
        let asks = |flag: u8| update.flags & flag != 0;
        if !self.context.umr_en() || update.mask & !CHANGEABLE != 0 || update.flags & !FLAGS != 0 {
            return Err(KeyFault::Change);
        }
        if asks(flag::FAIL_IF_FREE) && self.free || asks(flag::FAIL_IF_NOT_FREE) && !self.free {
            return Err(KeyFault::Free);
        }
        if asks(flag::CHECK_QPN) && self.qpn != rules.who.qpn.value() {
            return Err(KeyFault::QueuePair);
        }
        self.check_privilege(update, rules)?;
        let page_size = rules.fixed_page_size && update.mask & mask::PAGE_SIZE != 0;
        let atomic = rules.fixed_atomic && update.mask & mask::ATOMIC != 0;
        let indirect = rules.fixed_indirect && self.translation.is_indirect();
        if page_size || atomic || indirect { Err(KeyFault::Change) } else { Ok(()) }
    }

    /// Applications may only update keys of their own domain, and assign them to their own queue pair or to
    /// all.
    fn check_privilege(&self, update: &KeyUpdate, rules: &UpdateRules) -> Result<(), KeyFault> {
        if rules.who.privileged {
            return Ok(());
        }
        let qpn = update.context.qpn().value();
        let stranger = update.mask & mask::QPN != 0 && qpn != ANY_QP && qpn != rules.who.qpn.value();
        match self.pd == rules.who.pd && update.mask & mask::PD == 0 {
            false => Err(KeyFault::Domain),
            true if stranger => Err(KeyFault::QueuePair),
            true => Ok(()),
        }
    }

    /// The entries must fit the room of the key, and the page size must be a supported one.
    fn check_entries(&self, update: &KeyUpdate, entries: &[u64]) -> Result<(), KeyFault> {
        let room = room(&self.context);
        let end = update.offset.checked_add(entries.len().div_ceil(2) as u64);
        if !entries.is_empty() && end.is_none_or(|end| end > room) {
            return Err(KeyFault::Range);
        }
        let context = self.updated_context(update);
        let paged = matches!(access_mode(&context), MkeyAccessMode::Mtt | MkeyAccessMode::Ksm);
        if paged && !(12..=31).contains(&context.log_page_size()) || is_outside(&context) {
            return Err(KeyFault::Range);
        }
        Ok(())
    }

    /// The translation entries before an octword, as far as they exist.
    fn entries_before(&self, octword: u64) -> &[u64] {
        let end = usize::try_from(octword).map_or(usize::MAX, |octword| octword.saturating_mul(2));
        self.entries.get(..end).unwrap_or(&self.entries)
    }

    /// The context after the update.
    fn updated_context(&self, update: &KeyUpdate) -> MkeyContext {
        let mut context = self.context;
        let requested = &update.context;
        let chosen = |bit: u64| update.mask & bit != 0;
        let flags: [(u64, bool, Setter); 10] = [
            (mask::LOCAL_READ, requested.lr(), MkeyContext::set_lr),
            (mask::LOCAL_WRITE, requested.lw(), MkeyContext::set_lw),
            (mask::REMOTE_READ, requested.rr(), MkeyContext::set_rr),
            (mask::REMOTE_WRITE, requested.rw(), MkeyContext::set_rw),
            (mask::ATOMIC, requested.a(), MkeyContext::set_a),
            (mask::REMOTE_INVALIDATE, requested.en_rinval(), MkeyContext::set_en_rinval),
            (mask::FREE, requested.free(), MkeyContext::set_free),
            (
                mask::RELAXED_ORDERING_WRITE,
                requested.relaxed_ordering_write(),
                MkeyContext::set_relaxed_ordering_write,
            ),
            (
                mask::RELAXED_ORDERING_READ,
                requested.relaxed_ordering_read(),
                MkeyContext::set_relaxed_ordering_read,
            ),
            (
                mask::SMALL_FENCE,
                requested.small_fence_on_rdma_read_response(),
                MkeyContext::set_small_fence_on_rdma_read_response,
            ),
        ];
        for (_, on, set) in flags.into_iter().filter(|(bit, ..)| chosen(*bit)) {
            set(&mut context, on);
        }
        if chosen(mask::PD) {
            context.set_pd(requested.pd());
        }
        if chosen(mask::KEY) {
            context.set_mkey_7_0(requested.mkey_7_0());
        }
        if chosen(mask::QPN) {
            context.set_qpn(requested.qpn());
        }
        if chosen(mask::LENGTH) {
            context.set_length(requested.length()).set_length64(requested.length64());
        }
        if chosen(mask::START_ADDRESS) {
            context.set_start_addr(requested.start_addr());
        }
        if chosen(mask::PAGE_SIZE) {
            context.set_log_page_size(requested.log_page_size());
        }
        context
    }

    fn change(&mut self, update: &KeyUpdate) {
        self.context = self.updated_context(update);
        self.follow_context();
    }

    /// Stores the new entries. Other entries stay, except that an update without an offset replaces the whole
    /// list. Returns how many entries it had to read.
    fn replace(&mut self, update: &KeyUpdate, entries: &[u64]) -> usize {
        let moved = mask::LENGTH | mask::START_ADDRESS | mask::PAGE_SIZE;
        if !entries.is_empty() {
            if update.flags & flag::TRANSLATION_OFFSET == 0 {
                self.entries = Vec::new();
            }
            self.put(update.offset, entries);
        } else if update.mask & moved == 0 {
            return 0;
        }
        entries.len() + self.translation.follow(&self.context, &self.entries)
    }

    /// Stores entries from an octword on. A list that grows through an offset is allocated at its maximum
    /// length: zeroed memory costs nothing until it is touched.
    fn put(&mut self, octword: u64, entries: &[u64]) {
        // The entries fit: `check_entries` compared them with the room of the key.
        let start = usize::try_from(octword).map_or(usize::MAX, |octword| octword.saturating_mul(2));
        let end = start.saturating_add(entries.len());
        if self.entries.is_empty() && start == 0 {
            self.entries = entries.to_vec();
            return;
        }
        if self.entries.len() < end {
            let room =
                usize::try_from(room(&self.context)).map_or(end, |octwords| octwords.saturating_mul(2));
            let mut list = vec![0; room.max(end)];
            list[..self.entries.len()].copy_from_slice(&self.entries);
            self.entries = list;
        }
        if let Some(place) = self.entries.get_mut(start..end) {
            place.copy_from_slice(entries);
        }
    }
}

/// Whether a range exceeds the address space.
fn is_outside(context: &MkeyContext) -> bool {
    let last = context.length().checked_sub(1);
    last.is_some_and(|last| context.start_addr().checked_add(last).is_none())
}

#[cfg(test)]
#[path = "../tests/key_update.rs"]
mod tests;
