//! The SM's outstanding requests: which port or switch waits for the response with a transaction ID.
//!
//! **What it may not do.** It decides nothing. The manager tells it about a target after each step that may have begun,
//! ended or dropped the target's request.

use crate::net::subnet::switch_port::SwitchPort;
use std::collections::BTreeMap;

/// Target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestTarget {
    Port(SwitchPort),
    Switch(u64),
}

/// Outstanding requests; see the module.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    by_target: BTreeMap<RequestTarget, u64>,
    by_transaction: BTreeMap<u64, RequestTarget>,
}

impl PendingRequests {
    /// Sets the transaction ID of the request that a target is waiting for; `None` if it waits for none or is gone.
    pub(super) fn set(&mut self, target: RequestTarget, transaction: Option<u64>) {
        let before = match transaction {
            Some(transaction) => self.by_target.insert(target, transaction),
            None => self.by_target.remove(&target),
        };
        if before == transaction {
            return;
        }
        if let Some(before) = before {
            self.by_transaction.remove(&before);
        }
        if let Some(transaction) = transaction {
            self.by_transaction.insert(transaction, target);
        }
    }

    /// The target that waits for the response with this transaction ID.
    pub(super) fn target(&self, transaction: u64) -> Option<RequestTarget> {
        self.by_transaction.get(&transaction).copied()
    }

    /// Outstanding requests by transaction ID, to compare them with the targets' own.
    #[cfg(test)]
    pub(super) const fn all(&self) -> &BTreeMap<u64, RequestTarget> {
        &self.by_transaction
    }
}
