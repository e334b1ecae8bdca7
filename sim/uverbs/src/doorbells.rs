//! Doorbell records in the memory of the program, and what is rung for them.
//!
//! A program tells the device of new work in two places: the doorbell record of the queue, which it writes first, and a
//! register of a doorbell page. A page that is memory only cannot be watched without losing a value that another
//! overwrote. The records belong to one queue each and count, so nothing in them is lost. They are read again and again,
//! and the register is written for what changed.

use crate::commands::CommandQueue;
use crate::process::Process;
use alloc::collections::BTreeMap;
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, uar};
use bareverbs_prm::ids::{Cqn, Qpn, UarIndex};
use bareverbs_prm::time::Time;

/// What the second word of a completion queue's record holds until the program arms for the first time. No program writes
/// reserved bits, but its first arming may well be zero, which is also what libmlx5 presets.
pub(crate) const NEVER_ARMED: u32 = u32::MAX;
/// Place of the send counter, and of the word that arms, in their records.
const SECOND_WORD: u64 = 4;

/// The word of a record that tells of new work.
#[derive(Debug)]
struct Watched {
    page: UarIndex,
    address: u64,
    /// As it was read last; `None` makes the next sweep ring.
    last: Option<[u8; 4]>,
    /// The queue is being reset: the program has yet to set the word to zero, and what stands there is of the time before.
    is_stale: bool,
}

impl Watched {
    /// What stands there now, if it is something else than before.
    fn change<P: Process>(&mut self, process: &mut P) -> Option<[u8; 4]> {
        let mut word = [0; 4];
        if self.is_stale {
            return None;
        }
        // The program may have unmapped what it still uses; then nothing new is told.
        process.read(self.address, &mut word).ok()?;
        (self.last.replace(word) != Some(word)).then_some(word)
    }

    fn register(&self, within: usize) -> u64 {
        u64::from(self.page.value()) * UAR_PAGE_SIZE as u64 + within as u64
    }
}

/// The records of all live queues.
#[derive(Debug, Default)]
pub(crate) struct Doorbells {
    send: BTreeMap<Qpn, Watched>,
    completion: BTreeMap<Cqn, Watched>,
}

impl Doorbells {
    /// A queue pair begins; its record of 8 bytes is at `address`.
    pub(crate) fn watch_queue_pair(&mut self, qpn: Qpn, page: UarIndex, address: u64) {
        let address = address.wrapping_add(SECOND_WORD);
        self.send.insert(qpn, Watched { page, address, last: None, is_stale: false });
    }

    /// A queue pair changed its state: what was posted before counts as new.
    pub(crate) fn look_again(&mut self, qpn: Qpn) {
        if let Some(watched) = self.send.get_mut(&qpn) {
            (watched.last, watched.is_stale) = (None, false);
        }
    }

    /// A queue pair was reset: its record counts again when it leaves that state. libmlx5 sets it to zero when the command has
    /// returned, which is later.
    pub(crate) fn look_away(&mut self, qpn: Qpn) {
        if let Some(watched) = self.send.get_mut(&qpn) {
            watched.is_stale = true;
        }
    }

    /// A queue pair ends.
    pub(crate) fn forget_queue_pair(&mut self, qpn: Qpn) {
        self.send.remove(&qpn);
    }

    /// A completion queue begins; its record holds [`NEVER_ARMED`].
    pub(crate) fn watch_completion_queue(&mut self, cqn: Cqn, page: UarIndex, address: u64) {
        let last = Some(NEVER_ARMED.to_be_bytes());
        let address = address.wrapping_add(SECOND_WORD);
        self.completion.insert(cqn, Watched { page, address, last, is_stale: false });
    }

    /// A completion queue ends.
    pub(crate) fn forget_completion_queue(&mut self, cqn: Cqn) {
        self.completion.remove(&cqn);
    }

    /// Reads every record and rings the device for those that changed. Whether any did.
    pub(crate) fn sweep<P: Process>(
        &mut self,
        commands: &mut CommandQueue,
        now: Time,
        process: &mut P,
    ) -> bool {
        let mut rang = false;
        for (qpn, watched) in &mut self.send {
            if watched.change(process).is_some() {
                rang = true;
                // The device reads the counter itself; only the queue pair's number counts here.
                let segment = u64::from(qpn.value()) << 8;
                commands.write_register(now, process, watched.register(uar::SEND), &segment.to_be_bytes());
            }
        }
        for (cqn, watched) in &mut self.completion {
            if let Some(word) = watched.change(process) {
                rang = true;
                let bell = u64::from(u32::from_be_bytes(word)) << 32 | u64::from(cqn.value());
                commands.write_register(now, process, watched.register(uar::CQ_ARM), &bell.to_be_bytes());
            }
        }
        rang
    }
}
