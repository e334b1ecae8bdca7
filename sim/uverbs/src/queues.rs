//! The kernel's record of the queues of all files, which says where their events go.

use crate::event_record::EventFileId;
use crate::events::EventFiles;
use crate::process::Process;
use crate::uapi::{
    IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UD, IB_UVERBS_QPT_XRC_INI, IB_UVERBS_QPT_XRC_TGT, QpCap,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bareverbs_prm::ids::{Cqn, Gid, Qpn, Srqn, Xrcdn};

/// Where a queue's asynchronous events go, and with which element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listener {
    /// `user_handle` of the queue.
    pub(crate) element: u64,
    pub(crate) file: Option<EventFileId>,
}

impl Listener {
    /// Retires a destroyed queue. Returns how many of its events the program has read.
    pub(crate) fn retire<P: Process>(self, events: &mut EventFiles, process: &mut P) -> u32 {
        self.file.map_or(0, |file| events.retire(process, file, self.element))
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) listener: Listener,
    /// The completion channel.
    pub(crate) channel: Option<EventFileId>,
    /// Entries that a program may use.
    pub(crate) entries: u32,
}

/// Kinds of queue pairs, as programs name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuePairKind {
    ReliableConnection,
    UnreliableConnection,
    Datagram,
    XrcInitiator,
    XrcTarget,
}

impl QueuePairKind {
    /// Its number in `enum ib_qp_type`.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::ReliableConnection => IB_UVERBS_QPT_RC as u8,
            Self::UnreliableConnection => IB_UVERBS_QPT_UC as u8,
            Self::Datagram => IB_UVERBS_QPT_UD as u8,
            Self::XrcInitiator => IB_UVERBS_QPT_XRC_INI as u8,
            Self::XrcTarget => IB_UVERBS_QPT_XRC_TGT as u8,
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) listener: Listener,
    pub(crate) kind: QueuePairKind,
    pub(crate) capacity: QpCap,
    pub(crate) signals_all: bool,
    /// The peer's rights. The device gets them only while it answers READs and atomics.
    pub(crate) access: u32,
    pub(crate) responder_resources: u8,
    /// Multicast groups that it is attached to.
    pub(crate) groups: Vec<Gid>,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) listener: Listener,
    pub(crate) is_xrc: bool,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
}

/// An XRC domain that files share; a file of the program names it.
#[derive(Debug)]
pub(crate) struct SharedDomain {
    pub(crate) inode: (u64, u64),
    pub(crate) users: u32,
}

/// All queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) completion: BTreeMap<Cqn, CompletionQueue>,
    pub(crate) pairs: BTreeMap<Qpn, QueuePair>,
    pub(crate) shared: BTreeMap<Srqn, SharedReceiveQueue>,
    pub(crate) xrc_domains: BTreeMap<Xrcdn, SharedDomain>,
}
