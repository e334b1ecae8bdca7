//! P_Key enforcement by external switch ports (IBTA v1.4 §14.2.5.6, §14.2.5.7): one table per port, checked inbound and
//! outbound.
//!
//! Inbound, a packet's P_Key must be in the table, or be the limited-member key of a full-member entry: nobody may
//! claim more than the SM granted. Outbound, it must be a key that the receiver accepts (§10.9.3). Subnet management
//! packets are exempt.

use super::partitions::PARTITION_KEYS;
use crate::wire::infiniband::partition_key;
use crate::wire::{DEFAULT_PARTITION_KEY, MEMBERSHIP_BIT, is_same_partition};

/// Bytes per P_KeyTable block.
const BLOCK: usize = 2 * PARTITION_KEYS;

#[derive(Debug, Clone)]
struct PortPartitions {
    keys: [u16; PARTITION_KEYS],
    is_inbound: bool,
    is_outbound: bool,
}

/// The enforcement tables; see the module. Ports are counted from 0, as in the switch.
#[derive(Debug, Default)]
pub(super) struct Enforcement {
    ports: Vec<PortPartitions>,
    /// Whether any port enforces. Most switches enforce nowhere and skip the check.
    is_any: bool,
}

impl Enforcement {
    pub(super) fn grow(&mut self, ports: usize) {
        let mut keys = [0; PARTITION_KEYS];
        keys[0] = DEFAULT_PARTITION_KEY;
        let port = PortPartitions { keys, is_inbound: false, is_outbound: false };
        self.ports.resize(ports.max(self.ports.len()), port);
    }

    /// The P_Key table of a port.
    pub(super) fn table(&self, port: usize) -> Option<&[u16]> {
        self.ports.get(port).map(|port| &port.keys[..])
    }

    /// Replaces the P_Key table of a port; false if there is no such port.
    pub(super) fn set_table(&mut self, port: usize, table: &[u8; BLOCK]) -> bool {
        let Some(port) = self.ports.get_mut(port) else { return false };
        port.keys = keys_of(table);
        true
    }

    /// Sets inbound and outbound enforcement of a port.
    pub(super) fn set_enforced(&mut self, port: usize, is_inbound: bool, is_outbound: bool) {
        if let Some(port) = self.ports.get_mut(port) {
            (port.is_inbound, port.is_outbound) = (is_inbound, is_outbound);
        }
        self.is_any = self.ports.iter().any(|port| port.is_inbound || port.is_outbound);
    }

    #[inline]
    pub(super) const fn is_any(&self) -> bool {
        self.is_any
    }

    /// Whether a packet may enter through a port.
    pub(super) fn lets_in(&self, port: usize, frame: &[u8]) -> bool {
        let Some((port, key)) = self.ports.get(port).zip(partition_key(frame)) else { return true };
        let may_send =
            |own: &u16| *own & !MEMBERSHIP_BIT != 0 && (*own == key || *own == key | MEMBERSHIP_BIT);
        !port.is_inbound || port.keys.iter().any(may_send)
    }

    /// Whether a packet may leave through a port.
    pub(super) fn lets_out(&self, port: usize, frame: &[u8]) -> bool {
        let Some((port, key)) = self.ports.get(port).zip(partition_key(frame)) else { return true };
        !port.is_outbound || port.keys.iter().any(|own| is_same_partition(*own, key))
    }
}

/// P_Keys of a block.
pub(super) fn keys_of(table: &[u8; BLOCK]) -> [u16; PARTITION_KEYS] {
    core::array::from_fn(|index| u16::from_be_bytes([table[2 * index], table[2 * index + 1]]))
}

/// Encodes the first 32 of these P_Keys as a block.
pub(super) fn table_of(keys: &[u16]) -> [u8; BLOCK] {
    let mut table = [0; BLOCK];
    for (to, key) in table.chunks_exact_mut(2).zip(keys) {
        to.copy_from_slice(&key.to_be_bytes());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(key: u16) -> Vec<u8> {
        let mut frame = vec![0; 30];
        frame[1] = 2;
        frame[10..12].copy_from_slice(&key.to_be_bytes());
        frame
    }

    fn enforcing(keys: &[u16]) -> Enforcement {
        let mut enforcement = Enforcement::default();
        enforcement.grow(2);
        assert!(enforcement.set_table(1, &table_of(keys)) && !enforcement.set_table(2, &table_of(keys)));
        enforcement.set_enforced(1, true, true);
        enforcement
    }

    /// Requirement: IBTA v1.4 §10.9.3: two limited members do not receive each other's packets, and nobody receives those
    /// of another partition.
    #[test]
    fn packets_of_members_pass_and_others_do_not() {
        let full = enforcing(&[0xffff, 0x8005]);
        let limited = enforcing(&[0x7fff, 0x0005]);
        let pass = |enforcement: &Enforcement, key| {
            (enforcement.lets_in(1, &packet(key)), enforcement.lets_out(1, &packet(key)))
        };
        assert_eq!(
            [0x8005, 0x0005, 0x8006, 0, 0x8000].map(|key| pass(&full, key)),
            [(true, true), (true, true), (false, false), (false, false), (false, false)]
        );
        assert_eq!(
            pass(&limited, 0x8005),
            (false, true),
            "its claim of full membership is refused; it accepts packets of full members"
        );
        assert_eq!(
            pass(&limited, 0x0005),
            (true, false),
            "it may send as a limited member; it accepts no packets of limited members"
        );
    }

    #[test]
    fn ports_that_do_not_look_let_everything_pass() {
        let mut enforcement = enforcing(&[0xffff]);
        assert!(enforcement.is_any());
        assert!(enforcement.lets_in(0, &packet(5)) && enforcement.lets_out(0, &packet(5)));
        assert!(enforcement.lets_in(9, &packet(5)), "no such port");
        enforcement.set_enforced(1, true, false);
        assert!(!enforcement.lets_in(1, &packet(5)) && enforcement.lets_out(1, &packet(5)));
        enforcement.set_enforced(1, false, false);
        assert!(!enforcement.is_any() && enforcement.lets_in(1, &packet(5)));
    }
}
