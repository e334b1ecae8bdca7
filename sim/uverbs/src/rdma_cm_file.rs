//! `/dev/infiniband/rdma_cm` on a device: files, commands and events of connection management, and the way of its messages
//! through the queue pair of general services.

use crate::address_path::link_local_mac;
use crate::connection_names::ConnectionFileId;
use crate::general_services::{Outgoing, Receiver};
use crate::process::Process;
use crate::{Errno, Uverbs};
use bareverbs_cm::{Message, Path};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Time;

/// Messages that are handled in a row: a device that talks to itself answers at once.
const MOST_ROUNDS: usize = 64;

impl Uverbs {
    /// Opens the file of connection management.
    pub fn open_connections(&mut self) -> ConnectionFileId {
        self.rdma_cm.open()
    }

    /// The last descriptor of the file is gone: connections that it had end, and their peers are told.
    pub fn close_connections<P: Process>(&mut self, process: &mut P, file: ConnectionFileId) {
        let now = process.now();
        self.rdma_cm.close(process, now, file);
        self.exchange(now, process);
    }

    /// The program ends, and with it every file of connection management.
    pub fn close_all_connections<P: Process>(&mut self, process: &mut P) {
        for file in self.rdma_cm.open_files() {
            self.close_connections(process, file);
        }
        let now = process.now();
        self.rdma_cm.refuse_requests(process, now);
        self.exchange(now, process);
    }

    /// A program writes a command to the file. `Again`: it is GET_EVENT, and there is no event yet.
    pub fn write_connections<P: Process>(
        &mut self,
        process: &mut P,
        file: ConnectionFileId,
        command: &[u8],
    ) -> Result<(), Errno> {
        let now = process.now();
        let done = self.rdma_cm.write(process, now, file, command);
        self.exchange(now, process);
        done
    }

    /// The process of this number, of the host with these GIDs, has ended, perhaps without a word: connections to it end, as they do
    /// when the kernel closes the files of a process that was killed.
    pub fn handle_ended_peer<P: Process>(&mut self, process: &mut P, host: &[Gid], number: u8) {
        let now = process.now();
        self.rdma_cm.handle_ended_peer(process, now, host, number);
        self.exchange(now, process);
    }

    /// Events that wait in a file to be read.
    pub fn waiting_connection_events(&self, file: ConnectionFileId) -> usize {
        self.rdma_cm.waiting(file)
    }

    /// What follows every input of the device: interrupts are served, messages of peers handled, and own messages sent for which there
    /// was no room before.
    pub(crate) fn settle<P: Process>(&mut self, now: Time, process: &mut P) {
        self.device.serve_interrupts(now, process);
        let has_room = self.device.general_services.has_room();
        if !self.device.inbox.is_empty() || has_room && self.rdma_cm.has_message() {
            self.exchange(now, process);
        }
    }

    /// Moves messages between connection management and the queue pair of general services.
    pub(crate) fn exchange<P: Process>(&mut self, now: Time, process: &mut P) {
        for _ in 0..MOST_ROUNDS {
            for datagram in core::mem::take(&mut self.device.inbox) {
                self.rdma_cm.handle(process, now, datagram.sender, &datagram.payload);
            }
            while self.device.general_services.has_room() {
                let Some((path, message)) = self.rdma_cm.poll_message() else { break };
                self.send_message(now, process, path, &message);
            }
            self.device.serve_interrupts(now, process);
            if self.device.inbox.is_empty() {
                break;
            }
        }
    }

    /// A peer whose host is not there hears nothing, as on any network; the message is sent again.
    fn send_message<P: Process>(&mut self, now: Time, process: &mut P, path: Path, message: &Message) {
        let Some(receiver) = self.receiver(process, path) else { return };
        let datagram = Outgoing { receiver, payload: message.bytes() };
        self.device.general_services.send(&mut self.device.commands, now, process, &datagram);
    }

    fn receiver<P: Process>(&self, process: &mut P, path: Path) -> Option<Receiver> {
        if let Some(lids) = path.lids {
            return Some(Receiver::InfiniBand { lid: lids.remote });
        }
        let gids = &self.device.attributes.gids;
        let source_index = gids.iter().position(|gid| *gid == path.local).unwrap_or(0) as u8;
        Some(Receiver::Ethernet { mac: self.mac_of(process, path.remote)?, gid: path.remote, source_index })
    }

    fn mac_of<P: Process>(&self, process: &mut P, gid: Gid) -> Option<MacAddress> {
        if self.device.attributes.gids.contains(&gid) {
            return Some(self.nic().config().mac);
        }
        link_local_mac(gid).or_else(|| process.resolve(gid))
    }
}
