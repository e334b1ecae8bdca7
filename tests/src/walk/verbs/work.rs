//! Converts a request of a walk to a work request.

use super::atomic::Atomic;
use super::queue::Post;
use super::request::Verb;
use super::sends::PostedSend;
use bareverbs_core::memory_region::{MemorySlice, RemoteSlice};
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::work_request::{MaskedCompareSwap, MaskedFetchAdd, WorkRequest};
use bareverbs_prm::ids::{Mkey, Srqn};

/// A key that no device has issued.
const NOBODYS_KEY: Mkey = Mkey::new(0x00ab_cd01);

/// The memory and the peer's addresses in a request.
pub struct Words {
    /// Its pieces.
    pub data: Vec<MemorySlice>,
    /// Where its remote address points to.
    pub remote: RemoteSlice,
    /// The shared receive queue that it names.
    pub queue: Option<Srqn>,
}

/// Builds the work request of `sent` and passes it to `post`.
pub fn with_request(sent: &PostedSend, words: &Words, post: &mut Post<'_>) -> Result<(), PostError> {
    let (id, remote, data) = (sent.id, words.remote, &words.data[..]);
    let bytes = &sent.effect.own[1][..];
    let mut finish = |request: WorkRequest<'_>| post(&flagged(request, sent, words));
    match (sent.item.verb, sent.item.inline) {
        (Verb::Send { immediate, closes: Some(_) }, _) => {
            let key = Mkey::new(immediate.unwrap_or_default());
            finish(WorkRequest::send(id, data).invalidating(key))
        }
        (Verb::Send { immediate, .. }, false) => finish(with(immediate, WorkRequest::send(id, data))),
        (Verb::Send { immediate, .. }, true) => finish(with(immediate, WorkRequest::send_inline(id, bytes))),
        (Verb::Write { immediate }, false) => finish(with(immediate, WorkRequest::write(id, data, remote))),
        (Verb::Write { immediate }, true) => {
            finish(with(immediate, WorkRequest::write_inline(id, bytes, remote)))
        }
        (Verb::Read, _) => finish(WorkRequest::read(id, data, remote)),
        (Verb::Atomic(atomic), _) => with_atomic(atomic, sent, words, finish),
        (Verb::Mistake, _) => {
            let data = [MemorySlice { lkey: NOBODYS_KEY, ..data[0] }];
            finish(WorkRequest::send(id, &data))
        }
        (Verb::Nop | Verb::Open(_) | Verb::Close(_), _) => finish(WorkRequest::nop(id)),
    }
}

fn with_atomic(
    atomic: Atomic,
    sent: &PostedSend,
    words: &Words,
    mut finish: impl FnMut(WorkRequest<'_>) -> Result<(), PostError>,
) -> Result<(), PostError> {
    let (id, remote, old) = (sent.id, words.remote, &[words.data[0]]);
    match atomic {
        Atomic::CompareSwap { compare, swap } => {
            finish(WorkRequest::compare_swap(id, old, remote, compare, swap))
        }
        Atomic::FetchAdd { add } => finish(WorkRequest::fetch_add(id, old, remote, add)),
        Atomic::MaskedCompareSwap { compare, compare_mask, swap, swap_mask } => {
            let operands = MaskedCompareSwap::new(compare, compare_mask, swap, swap_mask);
            finish(WorkRequest::masked_compare_swap(id, old, remote, &operands))
        }
        Atomic::MaskedFetchAdd { add, boundaries } => {
            let operands = MaskedFetchAdd::new(add, boundaries);
            finish(WorkRequest::masked_fetch_add(id, old, remote, &operands))
        }
    }
}

fn with(immediate: Option<u32>, request: WorkRequest<'_>) -> WorkRequest<'_> {
    immediate.map_or(request, |data| request.immediate(data))
}

fn flagged<'a>(request: WorkRequest<'a>, sent: &PostedSend, words: &Words) -> WorkRequest<'a> {
    let request = request.signalled(sent.item.signalled);
    let request = if sent.item.fence { request.fence() } else { request };
    let request = if sent.item.solicited { request.solicited() } else { request };
    words.queue.map_or(request, |queue| request.for_shared_queue(queue))
}
