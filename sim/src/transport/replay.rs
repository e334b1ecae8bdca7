//! The READs and atomics that a responder remembers in case the peer repeats them. IBTA v1.4 §9.7.5.1.5.

use super::segment::PathMtu;
use crate::wire::Reth;
use std::collections::VecDeque;

/// What the responder remembers of an operation.
#[derive(Debug, Clone, Copy)]
pub enum Remembered {
    /// The RETH of a READ.
    Read(Reth),
    /// The old value that an atomic returned.
    Atomic(u64),
}

#[derive(Debug, Clone, Copy)]
struct ExecutedOperation {
    start: u64,
    end: u64,
    what: Remembered,
}

/// The last few READs and atomics.
#[derive(Debug)]
pub struct Replay {
    operations: VecDeque<ExecutedOperation>,
    capacity: usize,
}

impl Replay {
    pub fn new(capacity: usize) -> Self {
        Self { operations: VecDeque::new(), capacity }
    }

    /// Remembers this many operations from now on, the latest ones.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.operations.drain(..self.operations.len().saturating_sub(capacity));
    }

    /// Remembers an operation of `span` packets in place of the oldest one.
    pub fn remember(&mut self, start: u64, span: u32, what: Remembered) {
        if self.operations.len() == self.capacity {
            self.operations.pop_front();
        }
        self.operations.push_back(ExecutedOperation { start, end: start + u64::from(span), what });
    }

    /// The old value of the atomic with a sequence number.
    pub fn atomic(&self, sequence: u64) -> Option<u64> {
        match self.find(sequence)? {
            ExecutedOperation { what: Remembered::Atomic(old), .. } => Some(old),
            ExecutedOperation { what: Remembered::Read(_), .. } => None,
        }
    }

    /// Whether a READ from `sequence` on asks for part of a READ that was executed.
    pub fn covers_read(&self, sequence: u64, reth: Reth, mtu: PathMtu) -> bool {
        match self.find(sequence) {
            Some(ExecutedOperation { what: Remembered::Read(original), end, .. }) => {
                contains(original, reth) && u64::from(mtu.packets(reth.length)) <= end - sequence
            }
            _ => false,
        }
    }

    fn find(&self, sequence: u64) -> Option<ExecutedOperation> {
        self.operations
            .iter()
            .rev()
            .find(|operation| (operation.start..operation.end).contains(&sequence))
            .copied()
    }
}

fn contains(original: Reth, part: Reth) -> bool {
    let Some(skipped) = part.address.checked_sub(original.address) else { return false };
    skipped.checked_add(u64::from(part.length)).is_some_and(|end| end <= u64::from(original.length))
}
