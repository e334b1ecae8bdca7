//! Doorbell records in the program's memory, and the doorbells that they trigger.
//!
//! A program announces new work in two places: first in the doorbell record of the queue, then in a register of a
//! doorbell page. A page of plain memory cannot be watched without missing a value that another write replaced. But
//! every record belongs to one queue and holds a counter, so nothing in it is lost. The records are therefore polled,
//! and the register is written for those that changed.

use crate::commands::CommandQueue;
use crate::process::Process;
use alloc::collections::BTreeMap;
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, uar};
use bareverbs_prm::ids::{Cqn, Qpn, UarIndex};
use bareverbs_prm::time::Time;

/// Value of the second word of a completion queue's record before the program first arms the queue. Programs never set
/// its reserved bits, but the first arming may well write zero, which is also libmlx5's initial value.
pub(crate) const NEVER_ARMED: u32 = u32::MAX;
/// Offset of the send counter, and of the word for arming, in their records.
const SECOND_WORD: u64 = 4;

/// A word of a record that announces new work.
#[derive(Debug)]
struct Watched {
    page: UarIndex,
    address: u64,
    /// Its value at the last poll; with `None`, the next sweep rings.
    last: Option<[u8; 4]>,
    /// The queue is being reset: the program has not zeroed the word yet, and its current value is from
    /// before the reset.
    is_stale: bool,
}

impl Watched {
    /// The new value of the word, if it has changed.
    fn change<P: Process>(&mut self, process: &mut P) -> Option<[u8; 4]> {
        let mut word = [0; 4];
        if self.is_stale {
            return None;
        }
        // If the program has unmapped a record in use, nothing can change in it.
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
    /// Starts watching a queue pair whose 8-byte record is at `address`.
    pub(crate) fn watch_queue_pair(&mut self, qpn: Qpn, page: UarIndex, address: u64) {
        let address = address.wrapping_add(SECOND_WORD);
        self.send.insert(qpn, Watched { page, address, last: None, is_stale: false });
    }

    /// After a state change, work posted earlier counts as new.
    pub(crate) fn look_again(&mut self, qpn: Qpn) {
        if let Some(watched) = self.send.get_mut(&qpn) {
            (watched.last, watched.is_stale) = (None, false);
        }
    }

    /// After a reset, the record only counts once the queue pair leaves RESET: libmlx5 zeros it after the command has
    /// returned.
    pub(crate) fn look_away(&mut self, qpn: Qpn) {
        if let Some(watched) = self.send.get_mut(&qpn) {
            watched.is_stale = true;
        }
    }

    /// Stops watching a queue pair.
    pub(crate) fn forget_queue_pair(&mut self, qpn: Qpn) {
        self.send.remove(&qpn);
    }

    /// Starts watching a completion queue, whose record contains [`NEVER_ARMED`].
    pub(crate) fn watch_completion_queue(&mut self, cqn: Cqn, page: UarIndex, address: u64) {
        let last = Some(NEVER_ARMED.to_be_bytes());
        let address = address.wrapping_add(SECOND_WORD);
        self.completion.insert(cqn, Watched { page, address, last, is_stale: false });
    }

    /// Stops watching a completion queue.
    pub(crate) fn forget_completion_queue(&mut self, cqn: Cqn) {
        self.completion.remove(&cqn);
    }

    /// Polls all records and rings the device for those that changed. Returns whether any did.
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
                // The device reads the counter itself; only the queue pair number matters here.
                let segment = u64::from(qpn.value()) << 8;
                commands.write_register(now, process, watched.register(uar::SEND), &segment.to_be_bytes());
            }
        }
        for (cqn, watched) in &mut self.completion {
            if let Some(word) = watched.change(process) {
                rang = true;
                let doorbell = u64::from(u32::from_be_bytes(word)) << 32 | u64::from(cqn.value());
                commands.write_register(now, process, watched.register(uar::CQ_ARM), &doorbell.to_be_bytes());
            }
        }
        rang
    }
}
