//! Files of connection management.
//!
//! **What this is.** A file is a pair of sockets. The program has one end and polls it like any descriptor; its commands do not
//! go through it (`connection_calls`). For each event that waits in the file there is a byte to be read in the socket, so that
//! `poll` and `epoll` say what the kernel would say.
//!
//! **What it may not do.** It never blocks: bytes that do not fit into the socket wait here, as a number.

use crate::event_files::Inode;
use bareverbs_uverbs::ConnectionFileId;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

#[derive(Debug)]
struct ConnectionFile {
    id: ConnectionFileId,
    inode: Inode,
    /// What is sent here makes the program's end readable.
    writer: OwnedFd,
    /// The program's end.
    reader: OwnedFd,
    /// Bytes in the socket.
    shown: usize,
    /// Threads that wait for a byte.
    waiting: usize,
}

/// The files of connection management of this process.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFiles {
    files: Vec<ConnectionFile>,
    /// Of files that were closed while a thread waited in them: it waits on, as in the kernel, until the process ends.
    kept: Vec<OwnedFd>,
}

impl ConnectionFiles {
    /// Makes a file and gives the program's end of it.
    pub(crate) fn open(&mut self, id: ConnectionFileId) -> io::Result<OwnedFd> {
        let (writer, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let reader = theirs.as_fd().try_clone_to_owned()?;
        let inode = Inode::of(&theirs).ok_or(io::ErrorKind::NotFound)?;
        self.files.push(ConnectionFile { id, inode, writer, reader, shown: 0, waiting: 0 });
        Ok(theirs)
    }

    /// Whether a descriptor still leads to a file.
    pub(crate) fn is(&self, id: ConnectionFileId, inode: Inode) -> bool {
        self.files.iter().any(|file| file.id == id && file.inode == inode)
    }

    fn get(&mut self, id: ConnectionFileId) -> Option<&mut ConnectionFile> {
        self.files.iter_mut().find(|file| file.id == id)
    }

    /// A thread begins to wait for an event.
    pub(crate) fn begin_wait(&mut self, id: ConnectionFileId) {
        if let Some(file) = self.get(id) {
            file.waiting += 1;
        }
    }

    /// A thread waits no more. One that was cancelled does not say so; its file is kept then.
    pub(crate) fn end_wait(&mut self, id: ConnectionFileId) {
        if let Some(file) = self.get(id) {
            file.waiting = file.waiting.saturating_sub(1);
        }
    }

    /// Forgets a file.
    pub(crate) fn remove(&mut self, id: ConnectionFileId) {
        let gone = self.files.extract_if(.., |file| file.id == id);
        self.kept.extend(gone.filter(|file| file.waiting > 0).map(|file| file.writer));
    }

    /// In a child after `fork`: closes what belongs to the parent.
    pub(crate) fn clear(&mut self) {
        self.files.clear();
        self.kept.clear();
    }

    /// Makes as many bytes readable as events wait.
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
