//! Posting: the requests of one side of a lane to the other.

use super::end::{End, LAYOUT};
use super::inbox::InboxMessage;
use super::lane::LaneService;
use super::remote_key::bytes;
use super::request::{Effect, PlannedRequest, Verb};
use super::sends::PostedSend;
use super::work::{Words, with_request};
use crate::walk::plan::Dice;
use crate::walk::slots::{Area, Slot};
use bareverbs_core::work_completion::WorkCompletionOpcode;
use bareverbs_prm::ids::Srqn;
use bareverbs_prm::time::Time;

/// Both sides of a lane at one moment, for requests of the first.
pub struct LaneEnds<'a> {
    /// The requester.
    pub me: &'a mut End,
    /// The responder.
    pub peer: &'a mut End,
    /// The shared receive queues of XRC at the peer.
    pub extended: [Srqn; 2],
    /// Now.
    pub now: Time,
    /// Largest packet.
    pub mtu: usize,
}

/// The data of a request at this side.
pub fn own_slot(sent: &PostedSend) -> Slot {
    LAYOUT.slot(Area::Own, sent.slot, &sent.item.pieces)
}

impl LaneEnds<'_> {
    /// Draws and posts up to `count` requests with one doorbell. Returns how many fitted.
    pub fn post(&mut self, dice: &mut Dice, count: usize) -> usize {
        self.reclaim();
        let sent: Vec<_> = (0..count).map_while(|_| self.draw(dice)).collect();
        let count = sent.len();
        self.hand_in(&sent);
        sent.into_iter().for_each(|sent| self.remember(sent));
        count
    }

    /// Posts one request. Returns whether there was room for it.
    pub fn post_one(&mut self, dice: &mut Dice, item: PlannedRequest) -> bool {
        self.reclaim();
        let Some(slot) = self.me.free.pop() else { return false };
        let sent = self.prepare(dice, item, slot);
        self.hand_in(std::slice::from_ref(&sent));
        self.remember(sent);
        true
    }

    /// Opens or closes a remote key of this side, if one is ready and there is room for a request.
    pub fn turn_key(&mut self, dice: &mut Dice) {
        let Some(remote_key) = self.me.remote_keys.len().checked_sub(1).map(|last| dice.below(last + 1))
        else {
            return;
        };
        let (closes, opens) = (
            self.me.remote_keys[remote_key].can_close(self.now),
            self.me.remote_keys[remote_key].is_closed(),
        );
        if !(closes || opens) {
            return;
        }
        let Some(slot) = self.me.free.pop() else { return };
        let item = PlannedRequest::bare(if opens { Verb::Open(remote_key) } else { Verb::Close(remote_key) });
        let sent = PostedSend { id: self.me.id(), item, effect: Effect::default(), slot };
        let End { queue, remote_keys, memory, qpn, .. } = &mut *self.me;
        let update = match opens {
            true => remote_keys[remote_key].open(dice, memory, LAYOUT, *qpn),
            false => remote_keys[remote_key].close(),
        };
        let queue = queue.as_mut().expect("a queue pair that is not being made again");
        queue
            .batch(|post| post(&update.request(sent.id)).unwrap_or_else(|error| panic!("{sent:?}: {error}")));
        self.prepare_memory(&sent);
        self.remember(sent);
    }

    fn draw(&mut self, dice: &mut Dice) -> Option<PostedSend> {
        let slot = self.me.free.pop()?;
        let mut item = PlannedRequest::draw(dice, self.me.service, self.mtu);
        // A queue full of unsignalled requests would never free a slot.
        item.signalled |= self.me.free.len().is_multiple_of(4);
        self.choose_remote_key(dice, &mut item);
        Some(self.prepare(dice, item, slot))
    }

    /// Lets some requests use a remote key of the peer, and a few close one.
    fn choose_remote_key(&mut self, dice: &mut Dice, item: &mut PlannedRequest) {
        if self.peer.remote_keys.is_empty() {
            return;
        }
        let remote_key = dice.below(self.peer.remote_keys.len());
        let chosen = &mut self.peer.remote_keys[remote_key];
        if item.is_remote() && chosen.is_open() && dice.percent(60) {
            chosen.enter();
            item.remote_key = Some(remote_key);
        } else if let Verb::Send { immediate, closes } = &mut item.verb
            && chosen.can_close(self.now)
            && dice.percent(30)
        {
            *immediate = Some(chosen.close_by_peer().value());
            *closes = Some(remote_key);
        }
    }

    fn prepare(&mut self, dice: &mut Dice, mut item: PlannedRequest, slot: usize) -> PostedSend {
        let effect = Effect::draw(dice, &mut item);
        let sent = PostedSend { id: self.me.id(), item, effect, slot };
        self.prepare_memory(&sent);
        sent
    }

    /// Fills the memory at both sides before a request.
    fn prepare_memory(&self, sent: &PostedSend) {
        own_slot(sent).prepare(&self.me.memory, &sent.effect.own[0]);
        let target = self.peer.target_of(&sent.item);
        let place = target.slot(LAYOUT, sent.slot, sent.effect.target[1].len());
        bytes!(target, memory => place.prepare(memory, &sent.effect.target[0]));
    }

    fn hand_in(&mut self, requests: &[PostedSend]) {
        let words: Vec<_> = requests.iter().map(|sent| self.words(sent)).collect();
        self.me.queue().batch(|post| {
            for (sent, words) in requests.iter().zip(&words) {
                with_request(sent, words, &mut *post).unwrap_or_else(|error| panic!("{sent:?}: {error}"));
            }
        });
    }

    /// The memory and addresses of a request at both sides.
    fn words(&self, sent: &PostedSend) -> Words {
        let length = sent.effect.target[1].len();
        let offset = self.peer.target_of(&sent.item).slot(LAYOUT, sent.slot, length).offset();
        let remote = match sent.item.remote_key {
            Some(remote_key) => self.peer.remote_keys[remote_key].remote(offset),
            None => self.peer.memory.remote(offset as u64),
        };
        let named = matches!(self.me.service, LaneService::Extended(_)) && sent.item.verb != Verb::Nop;
        let queue = named.then(|| self.extended[sent.item.queue]);
        Words { data: own_slot(sent).slices(&self.me.memory), remote, queue }
    }

    fn remember(&mut self, sent: PostedSend) {
        let (opcode, immediate) = match sent.item.verb {
            Verb::Send { immediate, closes: Some(_) } => {
                (WorkCompletionOpcode::ReceiveWithInvalidate, immediate)
            }
            Verb::Send { immediate, .. } => (WorkCompletionOpcode::Receive, immediate),
            Verb::Write { immediate } => (WorkCompletionOpcode::ReceiveRdmaWithImmediate, immediate),
            _ => (WorkCompletionOpcode::Nop, None),
        };
        if sent.item.verb.takes_receive() {
            let named = matches!(self.me.service, LaneService::Extended(_));
            let message = InboxMessage {
                id: sent.id,
                opcode,
                immediate,
                data: sent.effect.own[1].clone(),
                queue: named.then_some(sent.item.queue + 1),
                acknowledged: false,
                copies: self.peer.inbox.copies(),
            };
            self.peer.inbox.expect(message);
        }
        self.me.sends.push(sent);
    }
}
