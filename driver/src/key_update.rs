//! Memory key updates by work request (PRM, UMR; IBTA v1.4 §10.6, memory management): binding a window, registering
//! pages, invalidating.
//!
//! The object that owns the key creates a [`KeyUpdate`], which can be posted any number of times. The device executes
//! it in queue order and completes it like any other request. The next request that is posted automatically carries the
//! fence that the device requires after it.

use crate::memory_key::ANY_QUEUE_PAIR;
use crate::memory_region::AccessFlags;
use crate::work_completion::WorkCompletionOpcode;
use crate::work_request::WorkRequest;
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Qpn};
use bareverbs_prm::wqe::{KeyUpdateSegment, mkey_mask as mask, umr_flags as flag};
use core::fmt;
use zerocopy::IntoBytes;

/// Octwords of translation entries that fit into a work queue entry of 63 segments after its three heads, in
/// whole blocks.
pub(crate) const MAX_OCTWORDS: usize = 52;
/// Octwords of a block: lists are padded to it.
const BLOCK_OCTWORDS: usize = 4;
/// Words of the UMR control segment and of the key context.
const HEAD: usize = 6 + 8;
/// All access rights of a key.
pub(crate) const RIGHTS: u64 =
    mask::LOCAL_READ | mask::LOCAL_WRITE | mask::REMOTE_READ | mask::REMOTE_WRITE | mask::ATOMIC;

/// An update of a memory key.
#[derive(Clone)]
#[doc(alias = "IBV_WR_BIND_MW")]
pub struct KeyUpdate {
    /// The key before the update.
    old: Mkey,
    /// The key after the update.
    new: Mkey,
    kind: WorkCompletionOpcode,
    /// Segments after the control segment, in memory order.
    words: [u64; HEAD + MAX_OCTWORDS * 2],
    used: usize,
}

/// The parts of an update.
pub(crate) struct Change {
    pub(crate) control: KeyUpdateSegment,
    pub(crate) context: MkeyContext,
}

impl Change {
    /// An update of the fields that `mask` selects, with the translation entries in the work queue entry.
    pub(crate) fn new(mask: u64, flags: u8) -> Self {
        let (mut control, mut context) = (KeyUpdateSegment::new(), MkeyContext::new());
        control.set_mkey_mask(mask).set_flags(flags | flag::INLINE);
        context.set_qpn(ANY_QUEUE_PAIR);
        Self { control, context }
    }

    /// Sets the access rights of the key. `local` says whether local rights are among those that change.
    pub(crate) fn rights(&mut self, access: AccessFlags, local: bool) {
        access.apply(&mut self.context);
        let chosen = if local { RIGHTS } else { RIGHTS & !mask::LOCAL_READ };
        self.control.set_mkey_mask(self.control.mkey_mask() | chosen);
    }

    /// Sets the queue pair of the key.
    pub(crate) fn queue_pair(&mut self, qpn: Qpn) {
        self.context.set_qpn(qpn);
        self.control.set_mkey_mask(self.control.mkey_mask() | mask::QPN);
    }
}

impl KeyUpdate {
    /// An update of the key `old`, which is `new` from then on, with translation entries as words. The words must
    /// fit ([`MAX_OCTWORDS`]); any excess is dropped.
    pub(crate) fn new(
        old: Mkey,
        new: Mkey,
        kind: WorkCompletionOpcode,
        mut change: Change,
        entries: impl Iterator<Item = u64>,
    ) -> Self {
        let mut words = [0; HEAD + MAX_OCTWORDS * 2];
        let mut count = 0;
        for (place, entry) in words[HEAD..].iter_mut().zip(entries) {
            *place = entry.to_be();
            count += 1;
        }
        let octwords = usize::div_ceil(count, 2).next_multiple_of(BLOCK_OCTWORDS);
        change.control.set_translation_octowords(octwords as u16);
        change.context.set_mkey_7_0(new.variant());
        let head = change.control.as_bytes().iter().chain(change.context.as_bytes());
        words[..HEAD].as_mut_bytes().iter_mut().zip(head).for_each(|(to, from)| *to = *from);
        Self { old, new, kind, words, used: HEAD + octwords * 2 }
    }

    /// The key once the update has completed.
    pub const fn key(&self) -> Mkey {
        self.new
    }

    /// The work request to post.
    pub fn request(&self, id: u64) -> WorkRequest<'_> {
        let words = self.words.get(..self.used).unwrap_or(&self.words);
        WorkRequest::update(id, self.kind, self.old, words)
    }
}

impl fmt::Debug for KeyUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyUpdate")
            .field("kind", &self.kind)
            .field("old", &self.old)
            .field("new", &self.new)
            .finish_non_exhaustive()
    }
}

/// The next variant of a key: the low byte counts up, so that a peer's old key names nothing (IBTA v1.4
/// §10.6).
pub(crate) const fn next_variant(key: Mkey) -> Mkey {
    Mkey::from_parts(key.index(), key.variant().wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    #[test]
    fn segments_lie_where_the_device_looks() {
        let mut change = Change::new(mask::FREE, flag::FAIL_IF_NOT_FREE);
        change.rights(AccessFlags::REMOTE_READ, false);
        change.queue_pair(Qpn::from_low_bits(0x77));
        let (old, new) = (Mkey::new(0x1234_5601), Mkey::new(0x1234_5602));
        let kind = WorkCompletionOpcode::BindWindow;
        let update = KeyUpdate::new(old, new, kind, change, [0x1122, 0x3344].into_iter());
        let request = update.request(1);
        let words = request.entry.data.segments();
        let (control, rest) = KeyUpdateSegment::read_from_prefix(words.as_bytes()).unwrap();
        let (context, entries) = MkeyContext::read_from_prefix(rest).unwrap();
        assert_eq!(
            (control.flags(), control.translation_octowords()),
            (flag::INLINE | flag::FAIL_IF_NOT_FREE, 4)
        );
        assert_eq!(
            control.mkey_mask() & (mask::QPN | mask::LOCAL_READ | mask::ATOMIC),
            mask::QPN | mask::ATOMIC
        );
        assert_eq!(
            (context.mkey_7_0(), context.qpn().value(), context.rr(), context.rw()),
            (2, 0x77, true, false)
        );
        assert_eq!((entries.len(), entries[6], entries[15]), (64, 0x11, 0x44));
        assert_eq!(update.key(), Mkey::new(0x1234_5602));
    }

    #[test]
    fn the_longest_list_fits_an_entry() {
        let segments = (HEAD + MAX_OCTWORDS * 2) / 2;
        assert!(segments < crate::wqe::MAX_SEGMENTS as usize, "with the control segment");
        let key = Mkey::new(1);
        let change = Change::new(0, 0);
        let update = KeyUpdate::new(key, key, WorkCompletionOpcode::FastRegister, change, 0..1000);
        assert_eq!(update.request(0).entry.segments() as usize, 1 + 7 + MAX_OCTWORDS);
    }
}
