//! Tracks who may still be reading replaced memory.
//!
//! The writer counts its changes in epochs. A reader has passed an epoch when everything that it had begun by the end
//! of that epoch has ended. It reports its progress with two numbers ([`ReaderProgress`]), taken after the changes; the
//! writer records what had begun, and waits until all of that has ended.

use super::error::TableError;
use super::reader_id::ReaderId;
use crate::runtime::ReaderProgress;

/// Readers that can be attached at a time.
const MAX_READERS: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Reader {
    /// The reader cannot hold anything that was replaced before this epoch.
    passed: u64,
    /// The reader has passed this epoch when everything with this number or a lower one has ended.
    awaits: Option<(u64, u64)>,
}

impl Reader {
    fn announce(&mut self, progress: ReaderProgress, epoch: u64) {
        if let Some((until, begun)) = self.awaits {
            // A reader that starts counting again has ended everything that it had begun.
            if progress.oldest >= begun || progress.begun < begun {
                (self.passed, self.awaits) = (until, None);
            }
        }
        if progress.oldest == progress.begun {
            (self.passed, self.awaits) = (epoch, None);
        } else if self.awaits.is_none() && self.passed < epoch {
            self.awaits = Some((epoch, progress.begun));
        }
    }
}

/// All readers, and the epoch.
#[derive(Debug)]
pub(super) struct Readers {
    epoch: u64,
    readers: [Option<Reader>; MAX_READERS],
}

impl Readers {
    pub(super) const fn new() -> Self {
        Self { epoch: 0, readers: [None; MAX_READERS] }
    }

    pub(super) fn attach(&mut self) -> Result<ReaderId, TableError> {
        let full = TableError::TooManyReaders { limit: MAX_READERS };
        let index = self.readers.iter().position(Option::is_none).ok_or(full)?;
        self.readers[index] = Some(Reader { passed: self.epoch, awaits: None });
        Ok(ReaderId(index as u8))
    }

    pub(super) fn detach(&mut self, id: ReaderId) {
        self.readers[usize::from(id.0)] = None;
    }

    pub(super) fn announce(&mut self, id: ReaderId, progress: ReaderProgress) {
        if let Some(reader) = &mut self.readers[usize::from(id.0)] {
            reader.announce(progress, self.epoch);
        }
    }

    /// Ends an epoch and returns its number, for something that was replaced within it.
    pub(super) const fn end_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch - 1
    }

    /// The reader that is furthest behind, if it may hold something that was replaced within `epoch`.
    pub(super) fn behind(&self, epoch: u64) -> Option<ReaderId> {
        let readers =
            (0_u8..).zip(&self.readers).filter_map(|(id, reader)| Some((reader.as_ref()?.passed, id)));
        readers.min().filter(|(passed, _)| *passed <= epoch).map(|(_, id)| ReaderId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(begun: u64, oldest: u64) -> ReaderProgress {
        ReaderProgress { begun, oldest }
    }

    #[test]
    fn a_replaced_object_is_freed_once_every_earlier_reader_has_ended() {
        let mut readers = Readers::new();
        let id = readers.attach().expect("room");
        readers.announce(id, progress(5, 3));
        let replaced = readers.end_epoch();
        assert_eq!(readers.behind(replaced), Some(id), "no announcement since");
        readers.announce(id, progress(7, 4));
        readers.announce(id, progress(9, 6));
        assert_eq!(readers.behind(replaced), Some(id), "number 6 had begun before the announcement");
        readers.announce(id, progress(20, 7));
        assert_eq!(readers.behind(replaced), None, "0 to 6 have ended");
    }

    #[test]
    fn later_changes_wait_for_those_that_began_later() {
        let mut readers = Readers::new();
        let id = readers.attach().expect("room");
        let first = readers.end_epoch();
        readers.announce(id, progress(2, 1));
        let second = readers.end_epoch();
        readers.announce(id, progress(3, 2));
        assert_eq!((readers.behind(first), readers.behind(second)), (None, Some(id)));
        readers.announce(id, progress(4, 3));
        assert_eq!(readers.behind(second), None);
    }

    #[test]
    fn an_idle_reader_one_that_begins_anew_and_one_that_is_gone_keep_nothing() {
        let mut readers = Readers::new();
        let (idle, anew, gone) = (readers.attach(), readers.attach(), readers.attach());
        let (idle, anew, gone) = (idle.expect("room"), anew.expect("room"), gone.expect("room"));
        let epoch = readers.end_epoch();
        readers.announce(idle, progress(9, 9));
        readers.announce(anew, progress(9, 8));
        readers.announce(gone, progress(9, 8));
        assert_eq!(readers.behind(epoch), Some(anew));
        readers.announce(anew, progress(1, 0));
        assert_eq!(readers.behind(epoch), Some(gone));
        readers.detach(gone);
        assert_eq!(readers.behind(epoch), None);
    }

    #[test]
    fn the_number_of_readers_is_limited() {
        let mut readers = Readers::new();
        assert!((0..MAX_READERS).all(|_| readers.attach().is_ok()));
        assert_eq!(readers.attach(), Err(TableError::TooManyReaders { limit: MAX_READERS }));
    }
}
