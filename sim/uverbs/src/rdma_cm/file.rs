//! The connection management file, and the messages that arrive at the port.

use super::call::CmCall;
use super::identifier::Identifier;
use super::state::RdmaCm;
use crate::Errno;
use crate::connection_names::ConnectionFileId;
use crate::process::Process;
use crate::uapi::CmHeader;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bareverbs_cm::{Message, Path, Sender};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Time;
use zerocopy::FromBytes;

/// A message and how it arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard<'a> {
    /// The device, by its number.
    pub(crate) device: usize,
    pub(crate) from: Sender,
    pub(crate) payload: &'a [u8],
}

impl RdmaCm {
    /// Opens the file.
    pub(crate) fn open(&mut self) -> ConnectionFileId {
        let file = ConnectionFileId(self.next_file);
        self.next_file = (self.next_file + 1) % (u32::MAX - 1);
        self.files.insert(file, VecDeque::new());
        file
    }

    /// Closes a file whose last descriptor is gone, with everything that was created through it. Peers are
    /// notified.
    pub(crate) fn close<P: Process>(&mut self, process: &mut P, now: Time, file: ConnectionFileId) {
        let theirs = |(id, known): (&u32, &Identifier)| (known.file == file).then_some(*id);
        let ids: Vec<u32> = self.identifiers.iter().filter_map(theirs).collect();
        let mut call = CmCall { cm: self, process, now };
        for id in ids {
            call.destroy(id);
        }
        self.files.remove(&file);
    }

    /// Refuses the waiting requests, because the process ends and nobody will listen in it any more.
    pub(crate) fn refuse_requests<P: Process>(&mut self, process: &mut P, now: Time) {
        let latest = self.waiting_requests.back().map_or(now, |request| request.until);
        CmCall { cm: self, process, now }.look_at_requests(latest);
    }

    /// Files that are open.
    pub(crate) fn open_files(&self) -> Vec<ConnectionFileId> {
        self.files.keys().copied().collect()
    }

    /// Number of unread events of a file.
    pub(crate) fn waiting(&self, file: ConnectionFileId) -> usize {
        self.files.get(&file).map_or(0, VecDeque::len)
    }

    /// When [`Self::advance`] has something to do.
    pub(crate) fn next_wakeup(&self) -> Option<Time> {
        let resolutions = self.resolutions.first().map(|(due, _)| *due);
        let requests = self.waiting_requests.front().map(|request| request.until);
        [self.manager.next_deadline(), resolutions, requests].into_iter().flatten().min()
    }

    /// Runs what is due.
    pub(crate) fn advance<P: Process>(&mut self, process: &mut P, now: Time) {
        self.manager.handle_timeout(now);
        let mut call = CmCall { cm: self, process, now };
        call.resolve_due();
        call.look_at_requests(now);
        call.tell_news();
    }

    /// Handles a message from a peer.
    pub(crate) fn handle<P: Process>(&mut self, process: &mut P, now: Time, heard: &Heard<'_>) {
        let Some(message) = Message::parse(heard.payload) else { return };
        let (remote, lid) = match heard.from {
            Sender::Gid(gid) => (gid, 0),
            // A sender that has left the subnet meanwhile is answered by LID as well as possible.
            Sender::Lid(lid) => (process.gid_of_lid(lid).unwrap_or_default(), lid),
        };
        let local = self.local_for(heard.device, remote, &message);
        let path = self.facts.with_gid(local).path(local, remote, lid);
        self.manager.handle(now, path, &message);
        CmCall { cm: self, process, now }.tell_news();
    }

    /// Handles the end of a process of the host with these GIDs that did not disconnect.
    pub(crate) fn handle_ended_peer<P: Process>(
        &mut self,
        process: &mut P,
        now: Time,
        host: &[Gid],
        number: u8,
    ) {
        self.manager.handle_ended_peer(now, host, number);
        CmCall { cm: self, process, now }.tell_news();
    }

    /// The own GID to answer a peer from: the one that its request names (IBTA v1.4 §12.6.5, remote port
    /// GID), or a suitable one of the port that received it.
    fn local_for(&self, device: usize, remote: Gid, message: &Message) -> Gid {
        let named = message.remote_gid().filter(|gid| self.facts.device_with(*gid).is_some());
        named.unwrap_or_else(|| self.facts.at(device).source_for(remote))
    }

    /// The device that sends messages on a path.
    pub(crate) fn device_of(&self, path: Path) -> usize {
        self.facts.device_with(path.local).unwrap_or(0)
    }

    /// Whether a message is waiting to be sent.
    pub(crate) fn has_message(&self) -> bool {
        self.manager.has_message()
    }

    /// The next message to send, with its path.
    pub(crate) fn poll_message(&mut self) -> Option<(Path, Message)> {
        self.manager.poll_message()
    }

    /// Executes a command that a program writes to a file. Answers go to the program's memory.
    pub(crate) fn write<P: Process>(
        &mut self,
        process: &mut P,
        now: Time,
        file: ConnectionFileId,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let (header, body) = CmHeader::read_from_prefix(bytes).map_err(|_| Errno::Invalid)?;
        if !self.files.contains_key(&file) {
            return Err(Errno::Io);
        }
        if body.len() < usize::from(header.r#in) {
            return Err(Errno::Invalid);
        }
        let mut call = CmCall { cm: self, process, now };
        let done = call.run(file, &header, &body[..header.r#in.into()]);
        call.tell_news();
        done
    }
}
