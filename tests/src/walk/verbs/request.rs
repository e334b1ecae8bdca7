//! One request of a walk: what it does, and its effect on memory.

use super::atomic::Atomic;
use super::lane::{EXTENDED_QUEUES, LaneService};
use crate::walk::plan::{Dice, MAX_INLINE, draw_length, draw_pieces};
use bareverbs_core::work_completion::WorkCompletionOpcode;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// SEND.
    Send {
        /// Immediate data.
        immediate: Option<u32>,
        /// The peer's remote key that it invalidates.
        closes: Option<usize>,
    },
    /// RDMA WRITE.
    Write {
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// RDMA READ.
    Read,
    /// An atomic.
    Atomic(Atomic),
    /// Nothing.
    Nop,
    /// Opens a remote key of this side: binds a window, registers pages.
    Open(usize),
    /// Closes one.
    Close(usize),
    /// A SEND with a key that nobody has.
    Mistake,
}

impl Verb {
    /// Whether the peer needs a receive for it.
    pub const fn takes_receive(self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { immediate: Some(_) })
    }

    /// The opcode of its completion, for those that every lane knows.
    pub fn opcode(self) -> Option<WorkCompletionOpcode> {
        match self {
            Self::Send { .. } | Self::Mistake => Some(WorkCompletionOpcode::Send),
            Self::Write { .. } => Some(WorkCompletionOpcode::RdmaWrite),
            Self::Read => Some(WorkCompletionOpcode::RdmaRead),
            Self::Atomic(atomic) => Some(atomic.opcode()),
            Self::Nop => Some(WorkCompletionOpcode::Nop),
            Self::Close(_) => Some(WorkCompletionOpcode::LocalInvalidate),
            // It depends on the remote key: a window or pages.
            Self::Open(_) => None,
        }
    }
}

/// One work request to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRequest {
    /// What it does.
    pub verb: Verb,
    /// Lengths of its pieces.
    pub pieces: Vec<usize>,
    /// Whether the WQE carries its data inline.
    pub inline: bool,
    /// Whether success produces a completion.
    pub signalled: bool,
    /// Whether it waits for READs and atomics before it.
    pub fence: bool,
    /// Whether the peer's completion is solicited.
    pub solicited: bool,
    /// The peer's remote key with which it accesses memory, instead of the peer's region.
    pub remote_key: Option<usize>,
    /// The shared receive queue of XRC that it names.
    pub queue: usize,
}

impl PlannedRequest {
    /// A signalled request without data.
    pub fn bare(verb: Verb) -> Self {
        let (inline, signalled, fence, solicited) = (false, true, false, false);
        Self { verb, pieces: vec![], inline, signalled, fence, solicited, remote_key: None, queue: 0 }
    }

    /// Draws a request of a service.
    pub fn draw(dice: &mut Dice, service: LaneService, mtu: usize) -> Self {
        let verb = draw_verb(dice, service);
        let length = match verb {
            Verb::Atomic(_) => 8,
            Verb::Nop => 0,
            _ if service == LaneService::Datagram => draw_length(dice, mtu).min(mtu),
            _ => draw_length(dice, mtu),
        };
        let carries = matches!(verb, Verb::Send { .. } | Verb::Write { .. });
        let inline = carries && length <= MAX_INLINE && dice.percent(40);
        let pieces = if matches!(verb, Verb::Atomic(_)) { vec![8] } else { draw_pieces(dice, length) };
        let fence = service.is_reliable() && dice.percent(10);
        let (signalled, solicited) = (dice.percent(60), carries && dice.percent(20));
        let queue = dice.below(EXTENDED_QUEUES);
        Self { verb, pieces, inline, signalled, fence, solicited, remote_key: None, queue }
    }

    /// Whether it accesses the peer's memory by a key.
    pub const fn is_remote(&self) -> bool {
        matches!(self.verb, Verb::Write { .. } | Verb::Read | Verb::Atomic(_))
    }

    /// Bytes of the message.
    pub fn length(&self) -> usize {
        self.pieces.iter().sum()
    }
}

fn draw_verb(dice: &mut Dice, service: LaneService) -> Verb {
    let kinds = match service {
        LaneService::Reliable | LaneService::Extended(_) => 10,
        LaneService::Unreliable => 7,
        LaneService::Datagram => 4,
    };
    let immediate = dice.percent(50).then(|| dice.word());
    match dice.below(kinds) {
        0 => Verb::Nop,
        1..=3 => Verb::Send { immediate, closes: None },
        4..=6 => Verb::Write { immediate },
        7 | 8 => Verb::Read,
        // Its operands are drawn once the word is known.
        _ => Verb::Atomic(Atomic::FetchAdd { add: 1 }),
    }
}

/// The content of memory before a request and after it, at the requester and at the responder.
#[derive(Debug, Clone, Default)]
pub struct Effect {
    /// In the pieces of the request.
    pub own: [Vec<u8>; 2],
    /// Where its remote address points to.
    pub target: [Vec<u8>; 2],
}

impl Effect {
    /// Draws the bytes of a request, and the operands of an atomic.
    pub fn draw(dice: &mut Dice, item: &mut PlannedRequest) -> Self {
        let mut data = vec![0; item.length()];
        dice.fill(&mut data);
        let nothing = Vec::new;
        match &mut item.verb {
            Verb::Send { .. } | Verb::Mistake => {
                Self { own: [data.clone(), data], target: [nothing(), nothing()] }
            }
            Verb::Write { .. } => Self { own: [data.clone(), data.clone()], target: [nothing(), data] },
            Verb::Read => Self { own: [nothing(), data.clone()], target: [data.clone(), data] },
            Verb::Atomic(atomic) => {
                let before = u64::from_ne_bytes(data[..].try_into().expect("a word"));
                *atomic = Atomic::draw(dice, before);
                let after = atomic.apply(before).to_ne_bytes().to_vec();
                Self { own: [nothing(), data.clone()], target: [data, after] }
            }
            Verb::Nop | Verb::Open(_) | Verb::Close(_) => Self::default(),
        }
    }
}
