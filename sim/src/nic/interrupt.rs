//! MSI-X vectors waiting to be sent. As with a pending bit, a waiting vector is not sent twice.

use std::collections::VecDeque;

/// Vectors in the order in which they were raised.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    waiting: VecDeque<u16>,
    pub(crate) raised: u64,
}

impl Interrupts {
    pub(crate) fn raise(&mut self, vector: u16) {
        if !self.waiting.contains(&vector) {
            self.waiting.push_back(vector);
            self.raised += 1;
        }
    }

    pub(crate) fn poll(&mut self) -> Option<u16> {
        self.waiting.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}
