//! A function within its card: the memory keys it shares with other functions, and its requests to the card's DMA
//! engine.
//!
//! **What this is.** Functions of a card only communicate by messages: a [`CardNotice`] tells the others what may be
//! accessed, and a [`DmaRequest`] asks the card's driver in the simulator to copy bytes. So a device still accesses
//! only its own function's memory and knows no delay.
//!
//! **What it may not do.** It moves no bytes and checks no range: the owner's memory key table does.

use super::config::CardFunction;
use super::mkey::{DmaEnd, SharedKey};
use bareverbs_prm::command::general_object::ACCESS_KEY;
use bareverbs_prm::ids::{Qpn, VhcaId};
use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Secret that the owner of a key sets and the creator of an alias must present (PRM, ALLOW_OTHER_VHCA_ACCESS).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccessKey(pub(crate) [u8; ACCESS_KEY]);

impl fmt::Debug for AccessKey {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(..)")
    }
}

/// A message to the other functions of the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardNotice {
    /// Anyone who knows the secret may create an alias of this memory key. Replaces an earlier permission.
    Shared {
        /// The memory key.
        object: SharedKey,
        /// The secret that a creator of an alias must present.
        access: AccessKey,
    },
    /// The memory key no longer exists.
    Withdrawn {
        /// Its owner.
        owner: VhcaId,
        /// Its index.
        index: u32,
    },
    /// The function was reset or torn down: all its keys are gone.
    WithdrawnAll {
        /// The function.
        owner: VhcaId,
    },
}

/// A copy requested by a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaRequest {
    pub(crate) qpn: Qpn,
    /// Never reused, so a late response cannot match another request.
    pub(crate) tag: u64,
    pub(crate) copy: DmaCopy,
}

/// Source and destination of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaCopy {
    /// The source.
    pub source: DmaEnd,
    /// The destination, of the same length.
    pub destination: DmaEnd,
}

impl DmaRequest {
    /// Source and destination.
    pub const fn copy(&self) -> &DmaCopy {
        &self.copy
    }

    /// Length in bytes.
    pub const fn length(&self) -> u64 {
        self.copy.source.length()
    }
}

/// What a function stores about its card.
#[derive(Debug)]
pub(crate) struct CardState {
    pub(crate) function: CardFunction,
    /// Keys of other functions that this function may alias.
    offers: BTreeMap<(VhcaId, u32), (SharedKey, AccessKey)>,
    /// Keys of this function that others may alias.
    own: BTreeMap<u32, (SharedKey, AccessKey)>,
    /// Keys of this function that changed since the other functions were last notified.
    unreported: BTreeSet<u32>,
    /// All keys are gone, and the other functions have not been notified yet.
    gone: bool,
    requests: VecDeque<DmaRequest>,
    next_tag: u64,
}

impl CardState {
    pub(crate) const fn new(function: CardFunction) -> Self {
        Self {
            function,
            offers: BTreeMap::new(),
            own: BTreeMap::new(),
            unreported: BTreeSet::new(),
            gone: false,
            requests: VecDeque::new(),
            next_tag: 0,
        }
    }

    /// Lets other functions create aliases of a key of this function.
    pub(crate) fn share(&mut self, object: SharedKey, access: AccessKey) {
        self.own.insert(object.index, (object, access));
        self.unreported.insert(object.index);
    }

    /// Withdraws a key of this function.
    pub(crate) fn withdraw(&mut self, index: u32) {
        if self.own.remove(&index).is_some() {
            self.unreported.insert(index);
        }
    }

    /// Drops all keys of this function and its requests to the card. Keys that other functions share stay,
    /// because they own them.
    pub(crate) fn forget(&mut self) {
        self.gone |= !self.own.is_empty();
        self.own.clear();
        self.unreported.clear();
        self.requests.clear();
    }

    /// The key that another function shares under an index.
    pub(crate) fn offer(&self, owner: VhcaId, index: u32) -> Option<&(SharedKey, AccessKey)> {
        self.offers.get(&(owner, index))
    }

    /// Whether an alias with this target still names a key that its owner shares.
    pub(crate) fn is_offered(&self, key: SharedKey) -> bool {
        self.offer(key.owner, key.index).is_some_and(|(offered, _)| *offered == key)
    }

    pub(crate) fn handle_notice(&mut self, notice: &CardNotice) {
        match *notice {
            CardNotice::Shared { object, access } => {
                self.offers.insert((object.owner, object.index), (object, access));
            }
            CardNotice::Withdrawn { owner, index } => {
                self.offers.remove(&(owner, index));
            }
            CardNotice::WithdrawnAll { owner } => self.offers.retain(|&(of, _), _| of != owner),
        }
    }

    /// The next notice for the other functions. Only the latest state of a key counts, however often it
    /// changed.
    pub(crate) fn poll_notice(&mut self) -> Option<CardNotice> {
        let owner = self.function.vhca_id;
        if core::mem::take(&mut self.gone) {
            return Some(CardNotice::WithdrawnAll { owner });
        }
        let index = self.unreported.pop_first()?;
        Some(match self.own.get(&index) {
            Some(&(object, access)) => CardNotice::Shared { object, access },
            None => CardNotice::Withdrawn { owner, index },
        })
    }

    /// Requests a copy and returns its tag.
    pub(crate) fn request(&mut self, qpn: Qpn, copy: DmaCopy) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.requests.push_back(DmaRequest { qpn, tag, copy });
        tag
    }

    pub(crate) fn poll_request(&mut self) -> Option<DmaRequest> {
        self.requests.pop_front()
    }

    /// Whether there is a notice or a request.
    pub(crate) fn has_output(&self) -> bool {
        self.gone || !self.unreported.is_empty() || !self.requests.is_empty()
    }
}
