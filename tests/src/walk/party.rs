//! One side of a walk: its slots of memory, what it posts, and how it checks what arrives.

use super::oracle::{Message, Oracle, Posted, Sent};
use super::plan::{Dice, Item, Kind, SLOTS};
use super::slots::{Area, LONGEST, Layout, Rest, Slot};
use crate::node::Handle;
use crate::pair::Side;
use bareverbs_core::memory_region::MemoryRegion;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::numbering::CqeSyndrome;

const LAYOUT: Layout = Layout { slots: SLOTS };
/// Bytes of a region.
pub const MEMORY: usize = LAYOUT.bytes(3);

/// One side.
pub struct Party {
    oracle: Oracle,
    free: Vec<usize>,
    free_receives: Vec<usize>,
    next_id: u64,
}

impl Default for Party {
    fn default() -> Self {
        let slots = || (0..SLOTS).rev().collect();
        Self { oracle: Oracle::default(), free: slots(), free_receives: slots(), next_id: 1 }
    }
}

impl Party {
    /// What was posted and what must become of it.
    pub fn oracle(&mut self) -> &mut Oracle {
        &mut self.oracle
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        // The upper bits have to survive too.
        self.next_id | 0xfeed_0000_0000_0000
    }

    /// Posts up to `count` requests, one by one or as a batch, and returns how many fitted.
    pub fn post(
        &mut self,
        me: &mut Side,
        other: &Side,
        peer: &mut Self,
        dice: &mut Dice,
        mtu: usize,
        count: usize,
    ) -> usize {
        let requests: Vec<_> = (0..count).map_while(|_| self.prepare_send(me, other, dice, mtu)).collect();
        let mut batch = me.queue_pair.send_batch();
        let mut refused = None;
        for (index, sent) in requests.iter().enumerate() {
            match with_request(&me.memory, &other.memory, sent, |request| batch.post(request)) {
                Ok(()) => {}
                Err(PostError::QueueFull { .. }) => {
                    refused = Some(index);
                    break;
                }
                Err(error) => panic!("{:?}: {error}", sent.item),
            }
        }
        batch.ring();
        self.remember(requests, refused, peer)
    }

    /// Records what was posted, and frees the slots of what was refused.
    fn remember(&mut self, mut requests: Vec<Sent>, refused: Option<usize>, peer: &mut Self) -> usize {
        let left = requests.split_off(refused.unwrap_or(requests.len()));
        self.free.extend(left.into_iter().map(|sent| sent.slot));
        let posted = requests.len();
        for sent in requests {
            if sent.item.kind.consumes_receive() {
                peer.oracle.expect_message(Message { kind: sent.item.kind, data: sent.data.clone() });
            }
            self.oracle.sent(sent);
        }
        posted
    }

    /// Draws a request and fills its source; `None` if all slots are taken.
    fn prepare_send(&mut self, me: &Side, other: &Side, dice: &mut Dice, mtu: usize) -> Option<Sent> {
        let slot = self.free.pop()?;
        let mut item = Item::draw(dice, mtu);
        // A queue full of unsignalled requests would never free a slot.
        item.signalled |= self.free.len().is_multiple_of(4);
        let mut data = vec![0; item.length()];
        dice.fill(&mut data);
        let read = item.kind == Kind::Read;
        let (own, target) = (own_slot(slot, &item), target_slot(slot, data.len()));
        own.prepare(&me.memory, if read { &[] } else { &data });
        target.prepare(&other.memory, if read { &data } else { &[] });
        Some(Sent { id: self.id(), item, slot, data })
    }

    /// Posts a signalled request that does nothing, so that all requests before it complete.
    pub fn post_last(&mut self, me: &mut Side, other: &Side) -> bool {
        let Some(slot) = self.free.pop() else { return false };
        let item = Item { kind: Kind::Write(None), pieces: vec![], inline: false, signalled: true };
        own_slot(slot, &item).prepare(&me.memory, &[]);
        target_slot(slot, 0).prepare(&other.memory, &[]);
        let sent = Sent { id: self.id(), item, slot, data: vec![] };
        match with_request(&me.memory, &other.memory, &sent, |request| me.queue_pair.post_send(request)) {
            Ok(()) => self.oracle.sent(sent),
            Err(PostError::QueueFull { .. }) => {
                self.free.push(slot);
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        true
    }

    /// Posts up to `count` receives for the longest message.
    pub fn post_receives(&mut self, me: &mut Side, dice: &mut Dice, count: usize) {
        let mut batch = me.queue_pair.receive_batch();
        for _ in 0..count {
            let Some(slot) = self.free_receives.pop() else { break };
            let first = 1 + dice.below(LONGEST - 1);
            let pieces = if dice.percent(50) { vec![LONGEST] } else { vec![first, LONGEST - first] };
            let buffer = LAYOUT.slot(Area::Receive, slot, &pieces);
            buffer.prepare(&me.memory, &[]);
            let id = self.next_id + 1;
            match batch.post(&ReceiveRequest::new(id, &buffer.slices(&me.memory))) {
                Ok(()) => {
                    self.next_id = id;
                    self.oracle.posted(Posted { id, slot, pieces });
                }
                Err(PostError::QueueFull { .. }) => {
                    self.free_receives.push(slot);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        batch.ring();
    }

    /// Polls both completion queues, checks the completions, and returns how many there were.
    pub fn poll(&mut self, me: &mut Side, other: &Side) -> usize {
        let (mut count, mut completions) = (0, [WorkCompletion::EMPTY; 8]);
        loop {
            let sends = me.sends.poll(&mut completions).unwrap_or_else(|error| panic!("{error}"));
            completions[..sends].iter().for_each(|completion| self.end_send(completion, me, other));
            let receives = me.receives.poll(&mut completions).unwrap_or_else(|error| panic!("{error}"));
            completions[..receives].iter().for_each(|completion| self.end_receive(completion, me));
            count += sends + receives;
            if sends + receives == 0 {
                return count;
            }
        }
    }

    fn end_send(&mut self, completion: &WorkCompletion, me: &Side, other: &Side) {
        assert!(completion.is_success(), "a send failed: {completion:?}");
        assert_eq!(completion.qpn, me.queue_pair.qpn());
        for sent in self.oracle.complete_send(completion.wr_id) {
            let what = format!("{:?} of {} bytes, wr_id {:#x}", sent.item.kind, sent.data.len(), sent.id);
            let arrived: &[u8] = if matches!(sent.item.kind, Kind::Send(_)) { &[] } else { &sent.data };
            own_slot(sent.slot, &sent.item).check(&me.memory, &sent.data, Rest::Untouched, &what);
            let target = target_slot(sent.slot, sent.data.len());
            target.check(&other.memory, arrived, Rest::Untouched, &what);
            if sent.id == completion.wr_id {
                assert_eq!(completion.opcode, opcode_of(sent.item.kind), "{what}");
            }
            self.free.push(sent.slot);
        }
    }

    fn end_receive(&mut self, completion: &WorkCompletion, me: &Side) {
        if completion.status == WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed) {
            let posted = self.oracle.flush_receive(completion.wr_id);
            self.free_receives.push(posted.slot);
            return;
        }
        assert!(completion.is_success(), "a receive failed: {completion:?}");
        let (posted, message) = self.oracle.complete_receive(completion.wr_id);
        let (what, opcode) = match message.kind {
            Kind::Send(_) => ("receive of a SEND", WorkCompletionOpcode::Receive),
            _ => ("receive of an RDMA WRITE", WorkCompletionOpcode::ReceiveRdmaWithImmediate),
        };
        assert_eq!(completion.byte_count as usize, message.data.len(), "{what}");
        assert_eq!((completion.opcode, completion.immediate), (opcode, message.kind.immediate()), "{what}");
        let arrived: &[u8] = if matches!(message.kind, Kind::Send(_)) { &message.data } else { &[] };
        let buffer = LAYOUT.slot(Area::Receive, posted.slot, &posted.pieces);
        buffer.check(&me.memory, arrived, Rest::Untouched, what);
        self.free_receives.push(posted.slot);
    }
}

/// The data of a request at this side.
fn own_slot(slot: usize, item: &Item) -> Slot {
    LAYOUT.slot(Area::Own, slot, &item.pieces)
}

/// The data of a request at the peer, if it is a WRITE or a READ.
fn target_slot(slot: usize, length: usize) -> Slot {
    LAYOUT.slot(Area::Target, slot, &[length])
}

/// Builds the work request of `sent` and passes it to `post`.
fn with_request<R>(
    own: &MemoryRegion<Handle>,
    target: &MemoryRegion<Handle>,
    sent: &Sent,
    post: impl FnOnce(&WorkRequest<'_>) -> R,
) -> R {
    let (id, Item { kind, inline, signalled, .. }) = (sent.id, &sent.item);
    let data = own_slot(sent.slot, &sent.item).slices(own);
    let remote = target.remote(target_slot(sent.slot, sent.data.len()).offset() as u64);
    let request = match (kind, inline) {
        (Kind::Send(_), true) => WorkRequest::send_inline(id, &sent.data),
        (Kind::Send(_), false) => WorkRequest::send(id, &data),
        (Kind::Write(_), true) => WorkRequest::write_inline(id, &sent.data, remote),
        (Kind::Write(_), false) => WorkRequest::write(id, &data, remote),
        (Kind::Read, _) => WorkRequest::read(id, &data, remote),
    };
    let request = request.signalled(*signalled);
    match kind.immediate() {
        Some(immediate) => post(&request.immediate(immediate)),
        None => post(&request),
    }
}

fn opcode_of(kind: Kind) -> WorkCompletionOpcode {
    match kind {
        Kind::Send(_) => WorkCompletionOpcode::Send,
        Kind::Write(_) => WorkCompletionOpcode::RdmaWrite,
        Kind::Read => WorkCompletionOpcode::RdmaRead,
    }
}
