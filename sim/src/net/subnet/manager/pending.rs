//! What the SM waits for: outstanding requests by transaction ID, deadlines in order, and whether discovery goes on.
//!
//! **What it may not do.** It decides nothing. The manager tells it the state of a target after each step that may have
//! changed it, so that no packet has to look at all ports of the subnet.

use crate::net::subnet::switch_port::SwitchPort;
use bareverbs_prm::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Target of a request. Requests that are due at the same time are sent in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestTarget {
    Port(SwitchPort),
    Switch(u64),
}

/// What a target waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TargetState {
    /// Transaction ID of its outstanding request.
    pub(super) transaction: Option<u64>,
    /// When its next request is due; `Time::MAX` for never.
    pub(super) due: Time,
    /// Whether a pending response may still reveal a switch, a link, or a port's existing LID.
    pub(super) is_exploring: bool,
}

/// The states of all targets; see the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PendingRequests {
    by_target: BTreeMap<RequestTarget, TargetState>,
    by_transaction: BTreeMap<u64, RequestTarget>,
    deadlines: BTreeSet<(Time, RequestTarget)>,
    /// Number of targets that are exploring.
    exploring: usize,
}

impl PendingRequests {
    /// Sets the state of a target; `None` if it is gone.
    pub(super) fn set(&mut self, target: RequestTarget, state: Option<TargetState>) {
        let before = match state {
            Some(state) => self.by_target.insert(target, state),
            None => self.by_target.remove(&target),
        };
        if before == state {
            return;
        }
        if let Some(before) = before {
            self.remove(target, before);
        }
        if let Some(state) = state {
            self.add(target, state);
        }
    }

    fn remove(&mut self, target: RequestTarget, state: TargetState) {
        if let Some(transaction) = state.transaction {
            self.by_transaction.remove(&transaction);
        }
        self.deadlines.remove(&(state.due, target));
        self.exploring -= usize::from(state.is_exploring);
    }

    fn add(&mut self, target: RequestTarget, state: TargetState) {
        if let Some(transaction) = state.transaction {
            self.by_transaction.insert(transaction, target);
        }
        if state.due < Time::MAX {
            self.deadlines.insert((state.due, target));
        }
        self.exploring += usize::from(state.is_exploring);
    }

    /// The target that waits for the response with this transaction ID.
    pub(super) fn target(&self, transaction: u64) -> Option<RequestTarget> {
        self.by_transaction.get(&transaction).copied()
    }

    /// Earliest deadline of all targets.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Targets whose next request is due, in the order of targets.
    pub(super) fn due(&self, now: Time) -> BTreeSet<RequestTarget> {
        self.deadlines.iter().take_while(|(due, _)| *due <= now).map(|(_, target)| *target).collect()
    }

    /// Whether any target is exploring.
    pub(super) const fn is_exploring(&self) -> bool {
        self.exploring != 0
    }
}
