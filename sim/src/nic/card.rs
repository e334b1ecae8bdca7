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
    /// It is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(..)")
    }
}

/// A message to the other functions of the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardNotice {
    /// Whoever knows the secret may create an alias of this memory key. Replaces an earlier permission.
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
    /// Never given twice, so that an answer that comes late names nobody.
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

/// What a function knows of its card.
#[derive(Debug)]
pub(crate) struct CardSeat {
    pub(crate) function: CardFunction,
    /// Keys of other functions that may be aliased.
    offers: BTreeMap<(VhcaId, u32), (SharedKey, AccessKey)>,
    /// Keys of this function that others may alias.
    own: BTreeMap<u32, (SharedKey, AccessKey)>,
    /// Keys of this function whose latest state the others do not know yet.
    untold: BTreeSet<u32>,
    /// Whether the others do not know yet that all keys are gone.
    gone: bool,
    requests: VecDeque<DmaRequest>,
    next_tag: u64,
}

impl CardSeat {
    pub(crate) const fn new(function: CardFunction) -> Self {
        Self {
            function,
            offers: BTreeMap::new(),
            own: BTreeMap::new(),
            untold: BTreeSet::new(),
            gone: false,
            requests: VecDeque::new(),
            next_tag: 0,
        }
    }

    /// Lets others make aliases of a key of ours.
    pub(crate) fn share(&mut self, object: SharedKey, access: AccessKey) {
        self.own.insert(object.index, (object, access));
        self.untold.insert(object.index);
    }

    /// A key of ours is gone.
    pub(crate) fn withdraw(&mut self, index: u32) {
        if self.own.remove(&index).is_some() {
            self.untold.insert(index);
        }
    }

    /// All keys of ours are gone, and with them what was asked for. What others share stays: it is theirs.
    pub(crate) fn forget(&mut self) {
        self.gone |= !self.own.is_empty();
        self.own.clear();
        self.untold.clear();
        self.requests.clear();
    }

    /// What another function shares under an index.
    pub(crate) fn offer(&self, owner: VhcaId, index: u32) -> Option<&(SharedKey, AccessKey)> {
        self.offers.get(&(owner, index))
    }

    /// Whether an alias made of this still names a key that its owner shares.
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

    /// The next thing that the others have not heard. How often a key was shared does not matter, only what holds now.
    pub(crate) fn poll_notice(&mut self) -> Option<CardNotice> {
        let owner = self.function.vhca_id;
        if core::mem::take(&mut self.gone) {
            return Some(CardNotice::WithdrawnAll { owner });
        }
        let index = self.untold.pop_first()?;
        Some(match self.own.get(&index) {
            Some(&(object, access)) => CardNotice::Shared { object, access },
            None => CardNotice::Withdrawn { owner, index },
        })
    }

    /// Asks for a copy and gives its tag.
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
        self.gone || !self.untold.is_empty() || !self.requests.is_empty()
    }
}
