//! Files from which the program reads events.
//!
//! **What this is.** A file is a pair of sockets that keep the borders of records. The program has one end and polls, reads
//! and duplicates it like any descriptor; signals and cancellation are the kernel's business. We keep the other end, and a
//! copy of the program's to take records back that it has not read.
//!
//! **What it may not do.** It never blocks: what does not fit into the socket waits here.

use bareverbs_uverbs::{EventFileId, EventRecord};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Records that may wait for room in a socket, which itself has room for some hundred. Further ones are lost, and counted
/// as not read.
const MOST_WAITING: usize = 1 << 16;
/// Longest record.
const RECORD: usize = 16;

#[derive(Debug)]
struct EventFile {
    id: EventFileId,
    inode: Inode,
    /// What is sent here, the program reads.
    writer: OwnedFd,
    /// The program's end.
    reader: OwnedFd,
    waiting: VecDeque<EventRecord>,
    lost: BTreeMap<u64, u32>,
}

/// The files of events of this process.
#[derive(Debug, Default)]
pub(crate) struct EventFiles(Vec<EventFile>);

impl EventFile {
    fn flush(&mut self) {
        while let Some(record) = self.waiting.front() {
            match rustix::net::send(&self.writer, record.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS) => break,
                // Nobody reads there any more, if it was an error.
                Ok(_) | Err(_) => drop(self.waiting.pop_front()),
            }
        }
    }

    /// Takes back all that the program has not read, except what waits here.
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

    /// Takes away the unread records of an element, and gives how many there were.
    fn discard(&mut self, element: u64) -> u32 {
        let mut discarded = self.lost.remove(&element).unwrap_or(0);
        for record in self.drain() {
            if record.starts_with(&element.to_ne_bytes()) {
                discarded += 1;
            } else {
                // It came out of this socket, so there is room for it.
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
    /// Makes a file and gives the program's end of it.
    pub(crate) fn open(&mut self, id: EventFileId) -> io::Result<OwnedFd> {
        let (writer, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let reader = theirs.as_fd().try_clone_to_owned()?;
        let inode = Inode::of(&theirs).ok_or(io::ErrorKind::NotFound)?;
        self.0.push(EventFile { id, inode, writer, reader, waiting: VecDeque::new(), lost: BTreeMap::new() });
        Ok(theirs)
    }

    /// The file with an inode.
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

    /// Puts into the sockets what had to wait.
    pub(crate) fn flush(&mut self) {
        for file in &mut self.0 {
            file.flush();
        }
    }

    /// Takes away the unread records of an element, and gives how many there were.
    pub(crate) fn discard(&mut self, id: EventFileId, element: u64) -> u32 {
        self.get(id).map_or(0, |file| file.discard(element))
    }

    /// Forgets a file: its device is gone, or the program has closed it. The program can read what is in it; then it ends.
    pub(crate) fn remove(&mut self, id: EventFileId) {
        self.0.retain(|file| file.id != id);
    }

    /// In a child after `fork`: closes what belongs to the parent.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a descriptor leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

impl Inode {
    /// What a descriptor leads to; `None` if it is not open.
    pub(crate) fn of(descriptor: impl AsFd) -> Option<Self> {
        let status = rustix::fs::fstat(descriptor).ok()?;
        Some(Self { device: status.st_dev, number: status.st_ino })
    }
}
