//! Response slots: who may write where, for which request, and what happens to answers that nobody awaits any more.
//!
//! A slot lent to a request belongs to the server until it answers. If the client gives up first, it withholds the
//! slot: a late answer must not overwrite another one. The request id decides which request an answer belongs to.
//!
//! The client then withdraws the request. The server's answer to that follows any other answer to the same request, and
//! frees the slot.

use crate::status::Status;
use crate::wire::{ReplyTo, Trailer, slot_size};
use bareverbs_prm::time::Time;
use core::fmt;

/// Location of the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLayout {
    /// Address of the first slot as the server knows it.
    pub address: u64,
    /// The remote key.
    pub rkey: u32,
    /// Bytes from one slot to the next; a multiple of 8, at least the size of a slot.
    pub stride: u64,
    /// Largest answer in bytes.
    pub max_response: u32,
}

impl SlotLayout {
    /// The smallest stride for answers of up to `max_response` bytes.
    pub const fn min_stride(max_response: u32) -> u64 {
        slot_size(max_response)
    }

    fn reply_to(&self, index: usize) -> ReplyTo {
        let address = self.address.wrapping_add(index as u64 * self.stride);
        ReplyTo { address, rkey: self.rkey, max_response: self.max_response, slot: index as u16 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// The client awaits the answer until the deadline.
    Waiting {
        request_id: u64,
        deadline: Time,
    },
    /// The client has given up, but the answer may still come.
    KeptBack {
        request_id: u64,
        /// Whether the request was withdrawn at the server.
        withdrawn: bool,
    },
}

/// Why no request can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// All slots are lent.
    AllLent {
        /// Their number.
        slots: usize,
        /// How many of them await an answer that the client gave up.
        kept_back: usize,
    },
    /// The server granted no credit for another request.
    NoCredit,
}

impl fmt::Display for NoSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllLent { slots, kept_back } => {
                write!(
                    f,
                    "all {slots} response slots are in use ({kept_back} of them by requests that were given up)"
                )
            }
            Self::NoCredit => f.write_str("the server gave no credit for another request: wait for a reply"),
        }
    }
}

impl core::error::Error for NoSlot {}

/// A slot, lent for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loan {
    /// The id of the request.
    pub request_id: u64,
    /// Where the server is to reply.
    pub reply: ReplyTo,
}

/// `N` response slots (at most 65,536) and the credits for using them.
///
/// ```
/// use bareverbs_offload::client::slots::{SlotLayout, Slots};
/// use bareverbs_prm::time::{Duration, Time};
///
/// let stride = SlotLayout::min_stride(1024);
/// let layout = SlotLayout { address: 0x9000, rkey: 0x1234_5600, stride, max_response: 1024 };
/// let mut slots: Slots<2> = Slots::new(layout, 8);
/// let loan = slots.lend(Time::ZERO + Duration::from_millis(1)).unwrap();
/// assert_eq!((loan.reply.address, loan.reply.slot), (0x9000, 0));
/// assert!(slots.settle_request(0, loan.request_id), "the answer is waited for");
/// assert!(!slots.settle_request(0, loan.request_id), "and not a second time");
/// ```
#[derive(Debug)]
pub struct Slots<const N: usize> {
    layout: SlotLayout,
    states: [State; N],
    next_id: u64,
    credits: u32,
    /// Requests that were sent without a credit; the next credits pay for them.
    debt: u32,
    stale: u64,
}

impl<const N: usize> Slots<N> {
    /// Free slots. The server has announced that it takes `credits` requests.
    pub const fn new(layout: SlotLayout, credits: u32) -> Self {
        assert!(N <= 1 << 16, "a slot number has 16 bits");
        Self { layout, states: [State::Free; N], next_id: 1, credits, debt: 0, stale: 0 }
    }

    /// Lends a slot.
    pub fn lend(&mut self, deadline: Time) -> Result<Loan, NoSlot> {
        if self.credits == 0 {
            return Err(NoSlot::NoCredit);
        }
        let index = self.states.iter().position(|s| *s == State::Free).ok_or_else(|| self.all_lent())?;
        let request_id = self.next_id;
        self.next_id += 1;
        self.credits -= 1;
        self.states[index] = State::Waiting { request_id, deadline };
        Ok(Loan { request_id, reply: self.layout.reply_to(index) })
    }

    fn all_lent(&self) -> NoSlot {
        let kept_back = self.states.iter().filter(|s| matches!(s, State::KeptBack { .. })).count();
        NoSlot::AllLent { slots: N, kept_back }
    }

    /// Takes back the slot of a request that was never sent.
    pub fn cancel(&mut self, loan: &Loan) {
        if self.request_of(loan.reply.slot.into()) == Some(loan.request_id) {
            self.states[usize::from(loan.reply.slot)] = State::Free;
            self.credits += 1;
        }
    }

    /// The request that slot `index` was lent for, whether or not it was given up.
    pub fn request_of(&self, index: usize) -> Option<u64> {
        match *self.states.get(index)? {
            State::Free => None,
            State::Waiting { request_id, .. } | State::KeptBack { request_id, .. } => Some(request_id),
        }
    }

    /// Processes the trailer found in slot `index`. Returns whether its answer is awaited; if not, drop it.
    #[must_use]
    pub fn settle(&mut self, index: usize, trailer: &Trailer) -> bool {
        let withdrawn = State::KeptBack { request_id: trailer.request_id, withdrawn: true };
        if trailer.status == Status::Withdrawn && self.states.get(index) == Some(&withdrawn) {
            self.states[index] = State::Free;
            return false;
        }
        self.settle_request(index, trailer.request_id)
    }

    /// The same for an answer without a trailer.
    #[must_use]
    pub fn settle_request(&mut self, index: usize, request_id: u64) -> bool {
        if self.request_of(index) != Some(request_id) {
            self.stale += 1;
            return false;
        }
        let waited_for = matches!(self.states[index], State::Waiting { .. });
        self.stale += u64::from(!waited_for);
        self.states[index] = State::Free;
        waited_for
    }

    /// Adds credits from the server.
    pub fn add_credits(&mut self, credits: u32) {
        let owed = credits.min(self.debt);
        self.debt -= owed;
        self.credits = self.credits.saturating_add(credits - owed);
    }

    /// The next request whose deadline has passed, and the slot that is withheld for it.
    pub fn expire(&mut self, now: Time) -> Option<(usize, u64)> {
        self.states.iter_mut().enumerate().find_map(|(index, state)| match *state {
            State::Waiting { request_id, deadline } if deadline <= now => {
                *state = State::KeptBack { request_id, withdrawn: false };
                Some((index, request_id))
            }
            _ => None,
        })
    }

    /// Whether slot `index` awaits the answer to this request.
    pub fn waits_for(&self, index: usize, request: u64) -> bool {
        let state = self.states.get(index);
        matches!(state, Some(State::Waiting { request_id, .. }) if *request_id == request)
    }

    /// Gives the request of slot `index` another deadline, if its answer is awaited.
    pub fn set_deadline(&mut self, index: usize, until: Time) {
        if let Some(State::Waiting { deadline, .. }) = self.states.get_mut(index) {
            *deadline = until;
        }
    }

    /// The loan of a request that was given up but not yet withdrawn. It counts as withdrawn from now on.
    ///
    /// This takes a credit, or the next one if there is none: credits come with answers, and the answers may be what is
    /// lost. The server reposted the receive of an overdue request long ago.
    pub fn withdraw(&mut self) -> Option<Loan> {
        let untold = |state: &State| matches!(state, State::KeptBack { withdrawn: false, .. });
        let index = self.states.iter().position(untold)?;
        let request_id = self.request_of(index)?;
        self.states[index] = State::KeptBack { request_id, withdrawn: true };
        match self.credits {
            0 => self.debt = self.debt.saturating_add(1),
            _ => self.credits -= 1,
        }
        Some(Loan { request_id, reply: self.layout.reply_to(index) })
    }

    /// Whether the request of slot `index` was withdrawn.
    pub fn is_withdrawn(&self, index: usize) -> bool {
        matches!(self.states.get(index), Some(State::KeptBack { withdrawn: true, .. }))
    }

    /// Undoes [`Slots::withdraw`], because the withdrawal was not sent.
    pub fn not_withdrawn(&mut self, loan: &Loan) {
        let (index, request_id) = (usize::from(loan.reply.slot), loan.request_id);
        if let Some(state) = self.states.get_mut(index)
            && *state == (State::KeptBack { request_id, withdrawn: true })
        {
            *state = State::KeptBack { request_id, withdrawn: false };
            self.add_credits(1);
        }
    }

    /// The earliest deadline.
    pub fn poll_timeout(&self) -> Option<Time> {
        let deadlines = self.states.iter().filter_map(|state| match state {
            State::Waiting { deadline, .. } => Some(*deadline).filter(|deadline| *deadline < Time::MAX),
            _ => None,
        });
        deadlines.min()
    }

    /// Answers that arrived after the client had given them up, or belonged to no request.
    pub const fn stale(&self) -> u64 {
        self.stale
    }

    /// Location of the slots.
    pub const fn layout(&self) -> &SlotLayout {
        &self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::time::Duration;

    const LAYOUT: SlotLayout = SlotLayout { address: 0x1000, rkey: 5, stride: 128, max_response: 64 };

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    fn trailer(request_id: u64) -> Trailer {
        Trailer {
            status: Status::Ok,
            hops: 0,
            length: 0,
            retries: 0,
            credits: 0,
            server_nanos: 0,
            version: 0,
            request_id,
        }
    }

    #[test]
    fn slots_and_credits_run_out_and_come_back() {
        let mut slots = Slots::<2>::new(LAYOUT, 3);
        let a = slots.lend(at(9)).expect("free");
        let b = slots.lend(at(5)).expect("free");
        assert_eq!((a.reply.address, b.reply.address), (0x1000, 0x1080));
        assert_eq!(slots.lend(at(9)), Err(NoSlot::AllLent { slots: 2, kept_back: 0 }));
        assert_eq!(slots.poll_timeout(), Some(at(5)));
        assert!(slots.settle(0, &trailer(a.request_id)));
        slots.lend(at(9)).expect("free again");
        assert!(slots.settle(1, &trailer(b.request_id)));
        assert_eq!(slots.lend(at(9)), Err(NoSlot::NoCredit));
        slots.add_credits(1);
        slots.lend(at(9)).expect("credit again");
    }

    #[test]
    fn an_abandoned_request_keeps_its_slot_until_its_response_is_dropped() {
        let mut slots = Slots::<1>::new(LAYOUT, 9);
        let late = slots.lend(at(5)).expect("free");
        assert_eq!(slots.expire(at(4)), None);
        assert_eq!(slots.expire(at(5)), Some((0, late.request_id)));
        assert_eq!(slots.lend(at(9)), Err(NoSlot::AllLent { slots: 1, kept_back: 1 }));
        assert!(!slots.settle(0, &trailer(late.request_id + 1)), "the answer to another request");
        assert!(!slots.settle(0, &trailer(late.request_id)), "its request has expired");
        assert_eq!(slots.stale(), 2);
        let next = slots.lend(at(9)).expect("the server has answered");
        assert_ne!(next.request_id, late.request_id);
        assert!(!slots.settle(0, &trailer(late.request_id)), "a duplicate answer");
        assert!(slots.settle(0, &trailer(next.request_id)));
    }

    #[test]
    fn a_withdrawn_request_frees_its_slot_with_the_response_to_the_withdrawal() {
        let mut slots = Slots::<1>::new(LAYOUT, 2);
        let late = slots.lend(at(5)).expect("free");
        assert_eq!(slots.withdraw(), None, "the request has not expired yet");
        assert_eq!(slots.expire(at(5)), Some((0, late.request_id)));
        assert_eq!(slots.withdraw(), Some(late));
        assert_eq!(slots.withdraw(), None, "once");
        slots.not_withdrawn(&late);
        assert_eq!(slots.withdraw(), Some(late), "the first withdrawal was not sent");
        slots.add_credits(1);
        let response = Trailer { status: Status::Withdrawn, ..trailer(late.request_id) };
        assert!(!slots.settle(0, &response));
        assert_eq!((slots.stale(), slots.request_of(0)), (0, None));
        let next = slots.lend(at(9)).expect("the slot is free");
        assert!(!slots.settle(0, &trailer(late.request_id)), "a late answer is recognised");
        assert_eq!(slots.expire(at(9)), Some((0, next.request_id)));
        assert_eq!(slots.withdraw(), Some(next), "on a credit that is still to come");
        let response = Trailer { status: Status::Withdrawn, ..trailer(next.request_id) };
        assert!(!slots.settle(0, &response));
        slots.add_credits(1);
        assert_eq!(slots.lend(at(20)), Err(NoSlot::NoCredit), "the withdrawal had borrowed that credit");
        slots.add_credits(1);
        assert!(slots.lend(at(20)).is_ok());
    }

    #[test]
    fn a_request_that_never_left_costs_nothing() {
        let mut slots = Slots::<1>::new(LAYOUT, 1);
        let loan = slots.lend(at(5)).expect("free");
        slots.cancel(&loan);
        let again = slots.lend(at(5)).expect("slot and credit are back");
        slots.cancel(&loan);
        assert_eq!(slots.request_of(0), Some(again.request_id), "an old loan does not cancel the new one");
    }
}
