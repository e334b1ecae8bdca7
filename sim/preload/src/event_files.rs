//! Event files, from which the program reads records.
//!
//! **What this is.** A file is a socket pair that preserves record boundaries. The program has one end and
//! polls, reads and duplicates it like any descriptor; the kernel handles signals and cancellation. We keep
//! the other end, and a duplicate of the program's end to take back unread records.
//!
//! **What it may not do.** It never blocks: records that do not fit into the socket wait here.

use bareverbs_uverbs::{EventFileId, EventRecord};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Most records waiting for room in a socket, which itself holds a few hundred. Further ones are dropped and counted as
/// unread.
const MOST_WAITING: usize = 1 << 16;
/// Longest record.
const RECORD: usize = 16;

#[derive(Debug)]
struct EventFile {
    id: EventFileId,
    inode: Inode,
    /// The program reads what is sent here.
    writer: OwnedFd,
    /// The program's end.
    reader: OwnedFd,
    waiting: VecDeque<EventRecord>,
    lost: BTreeMap<u64, u32>,
}

/// The event files of this process.
#[derive(Debug, Default)]
pub(crate) struct EventFiles(Vec<EventFile>);

impl EventFile {
    fn flush(&mut self) {
        while let Some(record) = self.waiting.front() {
            match rustix::net::send(&self.writer, record.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS) => break,
                // After an error nobody reads there any more.
                Ok(_) | Err(_) => drop(self.waiting.pop_front()),
            }
        }
    }

    /// Takes back everything unread in the socket.
    fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        let mut record = [0; RECORD];
        while let Ok((length, _)) =
            rustix::net::recv(&self.reader, record.as_mut_slice(), RecvFlags::DONTWAIT)
        {
            if length == 0 {
                break;
            }
            records.push(record[..length.min(RECORD)].to_vec());
        }
        records
    }

    /// Discards the unread records of an element and returns their number.
    fn discard(&mut self, element: u64) -> u32 {
        let mut discarded = self.lost.remove(&element).unwrap_or(0);
        for record in self.drain() {
            if record.starts_with(&element.to_ne_bytes()) {
                discarded += 1;
            } else {
                // It came out of this socket, so it fits.
                let _ = rustix::net::send(&self.writer, &record, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
        }
        let waiting = self.waiting.len();
        self.waiting.retain(|record| record.element() != element);
        self.flush();
        discarded + (waiting - self.waiting.len()) as u32
    }
}

impl EventFiles {
    /// Creates a file and returns the program's end.
    pub(crate) fn open(&mut self, id: EventFileId) -> io::Result<OwnedFd> {
        let (writer, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let reader = theirs.as_fd().try_clone_to_owned()?;
        let inode = Inode::of(&theirs).ok_or(io::ErrorKind::NotFound)?;
        self.0.push(EventFile { id, inode, writer, reader, waiting: VecDeque::new(), lost: BTreeMap::new() });
        Ok(theirs)
    }

    /// Finds a file by its inode.
    pub(crate) fn find(&self, inode: Inode) -> Option<EventFileId> {
        self.0.iter().find(|file| file.inode == inode).map(|file| file.id)
    }

    fn get(&mut self, id: EventFileId) -> Option<&mut EventFile> {
        self.0.iter_mut().find(|file| file.id == id)
    }

    /// Puts a record into its file.
    pub(crate) fn put(&mut self, record: EventRecord) {
        let Some(file) = self.get(record.file) else { return };
        if file.waiting.len() >= MOST_WAITING {
            *file.lost.entry(record.element()).or_default() += 1;
            return;
        }
        file.waiting.push_back(record);
        file.flush();
    }

    /// Sends waiting records to their sockets.
    pub(crate) fn flush(&mut self) {
        for file in &mut self.0 {
            file.flush();
        }
    }

    /// Discards the unread records of an element and returns their number.
    pub(crate) fn discard(&mut self, id: EventFileId, element: u64) -> u32 {
        self.get(id).map_or(0, |file| file.discard(element))
    }

    /// Removes a file whose device is gone or that the program has closed. The program can read what it still contains.
    pub(crate) fn remove(&mut self, id: EventFileId) {
        self.0.retain(|file| file.id != id);
    }

    /// In a child after `fork`: closes the parent's resources.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Device and inode of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

impl Inode {
    /// Device and inode of a descriptor; `None` if it is not open.
    pub(crate) fn of(descriptor: impl AsFd) -> Option<Self> {
        let status = rustix::fs::fstat(descriptor).ok()?;
        Some(Self { device: status.st_dev, number: status.st_ino })
    }
}
