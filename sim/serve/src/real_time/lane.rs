//! One direction of a wire in real time: waiting frames and faults.

use bareverbs_prm::time::Time;
use bareverbs_sim::net::fault::{Fate, Faults, HOLD_LIMIT, Verdict, bth_opcode};
use std::collections::BTreeMap;

/// Effects of faults in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounters {
    /// Frames dropped, duplicated, corrupted or delayed.
    pub hit: u64,
    /// RoCE packets among them that were lost.
    pub lost: u64,
    /// RoCE packets among them that arrived twice.
    pub doubled: u64,
}

/// One direction of a wire: frames ordered by due time and arrival number.
#[derive(Debug, Default)]
pub struct Lane {
    faults: Option<Faults>,
    waiting: BTreeMap<(Time, u64), Vec<u8>>,
    held: Vec<Held>,
    spare: Vec<Vec<u8>>,
    pushed: u64,
    faulted: FaultCounters,
}

/// A frame that a script holds behind later ones.
#[derive(Debug)]
struct Held {
    frame: Vec<u8>,
    behind: u32,
    until: Time,
}

impl Lane {
    /// Sets the faults; `None` removes them.
    pub fn set_faults(&mut self, faults: Option<Faults>) {
        self.faults = faults;
    }

    /// Effects of faults so far.
    pub fn faulted(&self) -> FaultCounters {
        self.faulted
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.held.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the first frame is due.
    pub fn next_due(&self) -> Option<Time> {
        let waiting = self.waiting.first_key_value().map(|((due, _), _)| *due);
        waiting.into_iter().chain(self.held.iter().map(|held| held.until)).min()
    }

    /// Queues a frame or drops it if a fault says so; may flip a bit of `frame`. Returns a comment for the capture.
    pub fn push(&mut self, now: Time, frame: &mut [u8]) -> Option<&'static str> {
        let verdict = self.faults.as_mut().map(|faults| faults.judge(now, frame)).unwrap_or_default();
        if verdict.fate != Fate::Delivered || verdict.duplicate {
            self.count(&verdict, frame);
        }
        for held in &mut self.held {
            held.behind = held.behind.saturating_sub(1);
        }
        if verdict.fate.arrives() {
            let due = now + verdict.delay;
            if verdict.hold > 0 {
                let frame = self.copy(frame);
                self.held.push(Held { frame, behind: verdict.hold, until: due + HOLD_LIMIT });
            } else {
                self.insert(due, frame);
            }
            if verdict.duplicate {
                self.insert(due, frame);
            }
        }
        self.release(now);
        verdict.fate.comment().or(verdict.duplicate.then_some("fault: doubled"))
    }

    fn count(&mut self, verdict: &Verdict, frame: &[u8]) {
        self.faulted.hit += 1;
        if bth_opcode(frame).is_some() {
            self.faulted.lost += u64::from(!verdict.fate.arrives());
            self.faulted.doubled += u64::from(verdict.fate.arrives() && verdict.duplicate);
        }
    }

    /// The first frame, if it is due.
    pub fn front(&mut self, now: Time) -> Option<&[u8]> {
        self.release(now);
        let ((due, _), frame) = self.waiting.first_key_value()?;
        (*due <= now).then_some(frame)
    }

    /// Removes the first frame.
    pub fn remove_front(&mut self) {
        if let Some((_, frame)) = self.waiting.pop_first() {
            self.spare.push(frame);
        }
    }

    /// Moves the first frame to `frame` if it is due.
    pub fn pop(&mut self, now: Time, frame: &mut Vec<u8>) -> bool {
        self.release(now);
        let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) else {
            return false;
        };
        let taken = core::mem::replace(frame, first.remove());
        self.spare.push(taken);
        true
    }

    fn insert(&mut self, due: Time, frame: &[u8]) {
        let copy = self.copy(frame);
        self.pushed += 1;
        self.waiting.insert((due, self.pushed), copy);
    }

    fn copy(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        copy
    }

    /// Releases held frames that enough later ones have passed, or that have waited long enough.
    fn release(&mut self, now: Time) {
        for held in self.held.extract_if(.., |held| held.behind == 0 || held.until <= now) {
            self.pushed += 1;
            self.waiting.insert((now, self.pushed), held.frame);
        }
    }
}
