//! MSI-X vectors, each with an event file descriptor. A vector that is raised without one stays pending until it gets
//! one.
//!
//! Blocking descriptors are refused, because a client that never reads could stall the device's thread.

use rustix::fs::{OFlags, fcntl_getfl};
use std::fs::File;
use std::io::{self, ErrorKind, Write};

/// A client's requests about its vectors.
#[derive(Debug)]
pub(super) enum VectorRequest {
    /// Vectors `start` to `start + count`: each takes the next file; those beyond the files lose theirs.
    Connect { start: u32, count: u32, files: Vec<File> },
    /// Fires vectors as if the device had done it.
    Fire { start: u32, count: u32 },
    /// Removes the files of all vectors.
    DisconnectAll,
}

#[derive(Debug, Default)]
struct Vector {
    file: Option<File>,
    pending: bool,
}

/// All vectors of a device.
#[derive(Debug)]
pub(super) struct Vectors(Vec<Vector>);

impl Vectors {
    pub(super) fn new(count: u16) -> Self {
        Self((0..count).map(|_| Vector::default()).collect())
    }

    /// Raises a vector. A full counter is as good as one more.
    pub(super) fn raise(&mut self, vector: u16) {
        let Some(vector) = self.0.get_mut(usize::from(vector)) else { return };
        vector.pending = !vector.file.as_mut().is_some_and(signal);
    }

    pub(super) fn apply(&mut self, request: VectorRequest) -> io::Result<()> {
        match request {
            VectorRequest::Connect { start, count, files } => self.connect(start, count, files)?,
            VectorRequest::Fire { start, count } => {
                self.range(start, count)?.iter_mut().for_each(|vector| {
                    vector.pending = !vector.file.as_mut().is_some_and(signal);
                });
            }
            VectorRequest::DisconnectAll => self.clear(),
        }
        Ok(())
    }

    /// Removes all files and pending interrupts.
    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(|vector| *vector = Vector::default());
    }

    fn connect(&mut self, start: u32, count: u32, files: Vec<File>) -> io::Result<()> {
        let range = self.range(start, count)?;
        if files.len() > range.len() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "more file descriptors than vectors"));
        }
        for file in &files {
            if !fcntl_getfl(file)?.contains(OFlags::NONBLOCK) {
                let message =
                    "a descriptor of an interrupt blocks when it is full; make it with EFD_NONBLOCK";
                return Err(io::Error::new(ErrorKind::InvalidInput, message));
            }
        }
        let mut files = files.into_iter();
        for vector in range {
            vector.file = files.next();
            if vector.pending {
                vector.pending = !vector.file.as_mut().is_some_and(signal);
            }
        }
        Ok(())
    }

    fn range(&mut self, start: u32, count: u32) -> io::Result<&mut [Vector]> {
        let end = start.checked_add(count).map(|end| end as usize);
        let range = end.and_then(|end| self.0.get_mut(start as usize..end));
        range.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no such vectors"))
    }
}

/// Increments an event counter; false if the file is unusable.
fn signal(file: &mut File) -> bool {
    match file.write_all(&1u64.to_ne_bytes()) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::io::Read;

    fn event() -> (File, File) {
        let file = File::from(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        (file.try_clone().unwrap(), file)
    }

    fn count(file: &mut File) -> u64 {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).map_or(0, |()| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn a_vector_that_was_raised_early_fires_when_it_is_connected() {
        let (mut vectors, (given, mut seen)) = (Vectors::new(4), event());
        vectors.raise(3);
        vectors.raise(9);
        vectors.apply(VectorRequest::Connect { start: 2, count: 2, files: vec![] }).unwrap();
        vectors.apply(VectorRequest::Connect { start: 3, count: 1, files: vec![given] }).unwrap();
        assert_eq!(count(&mut seen), 1);
        vectors.raise(3);
        vectors.apply(VectorRequest::Fire { start: 3, count: 1 }).unwrap();
        assert_eq!(count(&mut seen), 2);
        vectors.apply(VectorRequest::DisconnectAll).unwrap();
        vectors.raise(3);
        assert_eq!(count(&mut seen), 0);
    }

    #[test]
    fn a_full_descriptor_holds_nobody_up() {
        let (mut vectors, (given, mut seen)) = (Vectors::new(1), event());
        (&given).write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        vectors.apply(VectorRequest::Connect { start: 0, count: 1, files: vec![given] }).unwrap();
        vectors.raise(0);
        assert_eq!(count(&mut seen), u64::MAX - 1, "as full as it was");
        let blocking = File::from(eventfd(0, EventfdFlags::empty()).unwrap());
        let refused = vectors.apply(VectorRequest::Connect { start: 0, count: 1, files: vec![blocking] });
        assert!(refused.unwrap_err().to_string().contains("EFD_NONBLOCK"));
    }

    #[test]
    fn vectors_that_do_not_exist_are_refused() {
        let mut vectors = Vectors::new(4);
        for (start, count) in [(4, 1), (u32::MAX, 1), (0, 5), (1, u32::MAX)] {
            assert!(vectors.apply(VectorRequest::Connect { start, count, files: vec![] }).is_err());
        }
        let files = vec![event().0, event().0];
        assert!(vectors.apply(VectorRequest::Connect { start: 0, count: 1, files }).is_err());
    }
}
