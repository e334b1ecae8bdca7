//! Tenants and their rights. The listener's threads look up keys, the service's thread looks up rights; both
//! see the list that was read last.

use super::offer::ConnectionKind;
use bareverbs::offload::runtime::Allowance;
use bareverbs_exchange::SharedKey;
use std::sync::{PoisonError, RwLock};

/// Connections of a service at a time.
pub(super) const CONNECTIONS: usize = 16;
/// Requests of one connection that can wait or run: its receive buffers.
pub(super) const SHARE: usize = 8;

/// A client that may use the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) key: SharedKey,
    /// Whether it may deploy and remove programs. Every tenant may call them.
    pub(super) deploy: bool,
    /// Whether it may READ the table directly.
    pub(super) read: bool,
    /// Whether kernels and programs that it calls may write to the table.
    pub(super) write: bool,
    /// Connections at a time.
    pub(super) connections: usize,
    /// Requests of each connection that run at a time.
    pub(super) share: u16,
    /// Long-term limits of each connection.
    pub(super) allowance: Allowance,
}

impl Tenant {
    /// Checks whether it may have another connection for this purpose, given that it has `connections`; the
    /// error says why not.
    pub(super) fn may(&self, kind: ConnectionKind, connections: usize) -> Result<(), String> {
        let name = &self.name;
        match kind {
            ConnectionKind::Deploy if !self.deploy => Err(format!(
                "tenant {name:?} may not deploy programs: `deploy = true` in the service's configuration lets it"
            )),
            ConnectionKind::Read if !self.read => Err(format!(
                "tenant {name:?} may not READ the table by itself: `read = true` in the service's configuration lets it"
            )),
            _ if connections >= self.connections => Err(format!(
                "tenant {name:?} has all its {} connections: end one, or raise `connections` in the service's configuration",
                self.connections
            )),
            _ => Ok(()),
        }
    }
}

/// All tenants, replaced as a whole.
#[derive(Debug)]
pub(super) struct Tenants(RwLock<Vec<Tenant>>);

impl Tenants {
    pub(super) const fn new(tenants: Vec<Tenant>) -> Self {
        Self(RwLock::new(tenants))
    }

    /// The tenant of this name.
    pub(super) fn find(&self, name: &str) -> Option<Tenant> {
        let tenants = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tenants.iter().find(|tenant| tenant.name == name).cloned()
    }

    /// Replaces the list; returns the names of tenants that were removed or changed.
    pub(super) fn replace(&self, tenants: Vec<Tenant>) -> Vec<String> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, tenants);
        old.into_iter().filter(|tenant| !current.contains(tenant)).map(|tenant| tenant.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, key: u8) -> Tenant {
        Tenant {
            name: name.into(),
            key: SharedKey::new([key; 32]),
            deploy: false,
            read: false,
            write: false,
            connections: 2,
            share: 1,
            allowance: Allowance::UNLIMITED,
        }
    }

    #[test]
    fn rights_and_numbers_are_kept() {
        let plain = tenant("shop", 1);
        assert_eq!(plain.may(ConnectionKind::Lookup, 1), Ok(()));
        assert!(plain.may(ConnectionKind::Lookup, 2).unwrap_err().contains("all its 2 connections"));
        assert!(plain.may(ConnectionKind::Deploy, 0).unwrap_err().contains("may not deploy"));
        assert!(plain.may(ConnectionKind::Read, 0).unwrap_err().contains("may not READ"));
        let trusted = Tenant { deploy: true, read: true, ..plain };
        assert_eq!(
            (trusted.may(ConnectionKind::Deploy, 0), trusted.may(ConnectionKind::Read, 0)),
            (Ok(()), Ok(()))
        );
    }

    #[test]
    fn a_new_list_names_who_has_changed_or_left() {
        let tenants = Tenants::new(vec![tenant("a", 1), tenant("b", 1), tenant("c", 1)]);
        let changed = tenants.replace(vec![tenant("b", 2), tenant("d", 1), tenant("a", 1)]);
        assert_eq!(changed, ["b", "c"]);
        assert!(tenants.find("c").is_none() && tenants.find("d").is_some());
        assert_eq!(tenants.find("b").map(|tenant| tenant.key), Some(SharedKey::new([2; 32])));
    }
}
