//! Connection management files.
//!
//! **What this is.** A file is a socket pair. The program has one end and can poll it like any descriptor,
//! but its commands do not go through it (`connection_calls`). The socket contains one byte per waiting
//! event, so that `poll` and `epoll` report what the kernel would report.
//!
//! **What it may not do.** It never blocks: bytes that do not fit into the socket are kept as a count.

use crate::event_files::Inode;
use bareverbs_uverbs::ConnectionFileId;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

#[derive(Debug)]
struct ConnectionFile {
    id: ConnectionFileId,
    inode: Inode,
    /// Writing here makes the program's end readable.
    writer: OwnedFd,
    /// The program's end.
    reader: OwnedFd,
    /// Number of bytes in the socket.
    shown: usize,
    /// Number of threads waiting for a byte.
    waiting: usize,
}

/// The connection management files of this process.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFiles {
    files: Vec<ConnectionFile>,
    /// Files that were closed while a thread was waiting in them. Like in the kernel it keeps waiting until the process
    /// ends.
    kept: Vec<OwnedFd>,
}

impl ConnectionFiles {
    /// Creates a file and returns the program's end.
    pub(crate) fn open(&mut self, id: ConnectionFileId) -> io::Result<OwnedFd> {
        let (writer, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let reader = theirs.as_fd().try_clone_to_owned()?;
        let inode = Inode::of(&theirs).ok_or(io::ErrorKind::NotFound)?;
        self.files.push(ConnectionFile { id, inode, writer, reader, shown: 0, waiting: 0 });
        Ok(theirs)
    }

    /// Whether a descriptor still refers to this file.
    pub(crate) fn is(&self, id: ConnectionFileId, inode: Inode) -> bool {
        self.files.iter().any(|file| file.id == id && file.inode == inode)
    }

    fn get(&mut self, id: ConnectionFileId) -> Option<&mut ConnectionFile> {
        self.files.iter_mut().find(|file| file.id == id)
    }

    /// Notes that a thread starts to wait for an event.
    pub(crate) fn begin_wait(&mut self, id: ConnectionFileId) {
        if let Some(file) = self.get(id) {
            file.waiting += 1;
        }
    }

    /// Notes that a thread has stopped waiting. A cancelled thread does not get here; its file is then kept.
    pub(crate) fn end_wait(&mut self, id: ConnectionFileId) {
        if let Some(file) = self.get(id) {
            file.waiting = file.waiting.saturating_sub(1);
        }
    }

    /// Removes a file.
    pub(crate) fn remove(&mut self, id: ConnectionFileId) {
        let gone = self.files.extract_if(.., |file| file.id == id);
        self.kept.extend(gone.filter(|file| file.waiting > 0).map(|file| file.writer));
    }

    /// In a child after `fork`: closes the parent's resources.
    pub(crate) fn clear(&mut self) {
        self.files.clear();
        self.kept.clear();
    }

    /// Makes the number of readable bytes equal to the number of waiting events.
    pub(crate) fn show(&mut self, waiting: impl Fn(ConnectionFileId) -> usize) {
        for file in &mut self.files {
            file.show(waiting(file.id));
        }
    }
}

impl ConnectionFile {
    fn show(&mut self, waiting: usize) {
        while self.shown < waiting {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            if rustix::net::send(&self.writer, &[0], flags).is_err() {
                break;
            }
            self.shown += 1;
        }
        while self.shown > waiting {
            let mut byte = [0; 1];
            if rustix::net::recv(&self.reader, byte.as_mut_slice(), RecvFlags::DONTWAIT).is_err() {
                break;
            }
            self.shown -= 1;
        }
    }
}
