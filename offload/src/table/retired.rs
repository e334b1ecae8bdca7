//! Replaced memory that may still be read, in the order of replacement.

use super::TableError;
use super::heap::footprint;
use super::readers::Readers;
use crate::kernels::kv_layout::ObjectRef;
use bareverbs_prm::time::{Duration, Time};
use heapless::Deque;

/// The most replaced items that can wait for readers at a time.
pub(super) const RETIRED: usize = 256;

/// Memory that nothing refers to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    Object(ObjectRef),
    Line(u64),
    /// This line and all that follow it.
    Lines(u64),
}

#[derive(Debug, Clone, Copy)]
struct RetiredEntry {
    what: Replaced,
    epoch: u64,
    since: Time,
}

/// The queue of replaced memory.
#[derive(Debug, Default)]
pub(super) struct Retired {
    entries: Deque<RetiredEntry, RETIRED>,
    bytes: u64,
}

impl Retired {
    /// Bytes of objects that wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `more` items can be added.
    pub(super) fn check_room(&self, more: usize, readers: &Readers) -> Result<(), TableError> {
        match self.entries.front() {
            Some(oldest) if self.entries.len() + more > RETIRED => {
                Err(TableError::ReadersPending { limit: RETIRED, behind: readers.behind(oldest.epoch) })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn push(
        &mut self,
        what: Replaced,
        now: Time,
        readers: &mut Readers,
    ) -> Result<(), TableError> {
        self.check_room(1, readers)?;
        let entry = RetiredEntry { what, epoch: readers.end_epoch(), since: now };
        let full = TableError::ReadersPending { limit: RETIRED, behind: None };
        self.entries.push_back(entry).map_err(|_| full)?;
        if let Replaced::Object(object) = what {
            self.bytes += footprint(object.size());
        }
        Ok(())
    }

    /// Removes the oldest item, if nobody may be reading it any more.
    pub(super) fn pop(&mut self, now: Time, lease: Duration, readers: &Readers) -> Option<Replaced> {
        let oldest = self.entries.front()?;
        if now.since(oldest.since) < lease || readers.behind(oldest.epoch).is_some() {
            return None;
        }
        let what = self.entries.pop_front()?.what;
        if let Replaced::Object(object) = what {
            self.bytes -= footprint(object.size());
        }
        Some(what)
    }
}
