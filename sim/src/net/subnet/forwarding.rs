//! Forwarding tables of a switch (IBTA v1.4 §14.2.5.10, §14.2.5.12): the egress port of each LID, and the ports of each
//! multicast group.
//!
//! They have the layout in which an SM writes them: in blocks, with ports counted from 1; port 0 is the switch itself.

use crate::net::port_set::PortSet;
use crate::wire::infiniband::{FIRST_MULTICAST_LID, PERMISSIVE_LID};
use std::collections::{BTreeMap, BTreeSet};

/// LIDs per block of the linear table.
pub(super) const LINEAR_BLOCK: u16 = 64;
/// Multicast LIDs per block of the multicast table, and ports per position.
pub(super) const MULTICAST_BLOCK: u16 = 32;
pub(super) const POSITION: u8 = 16;
/// Linear table entry of an unreachable LID.
pub(super) const NO_PORT: u8 = 255;
/// Capacity in multicast groups.
pub(super) const GROUPS: usize = 1024;
/// Bytes per block of either table.
const BLOCK: usize = 64;

/// The tables of one switch; see the module.
#[derive(Debug, Default)]
pub(super) struct ForwardingTables {
    /// Extends to the highest block that was written.
    linear: Vec<u8>,
    groups: BTreeMap<u16, PortSet>,
}

impl ForwardingTables {
    /// Egress port of a LID, counted from 0; `None` if it leads to no external port.
    #[inline]
    pub(super) fn exit(&self, lid: u16) -> Option<usize> {
        match *self.linear.get(usize::from(lid))? {
            0 | NO_PORT => None,
            port => Some(usize::from(port) - 1),
        }
    }

    /// Ports of a multicast group, counted from 0.
    #[inline]
    pub(super) fn group(&self, lid: u16) -> Option<PortSet> {
        self.groups.get(&lid).copied()
    }

    /// Whether a multicast LID is in use.
    pub(super) fn has_group(&self, lid: u16) -> bool {
        self.groups.contains_key(&lid)
    }

    /// Sets the ports of a multicast group, counted from 0. False if the LID is not multicast or the table is full.
    pub(super) fn set_group(&mut self, lid: u16, ports: PortSet) -> bool {
        if !(FIRST_MULTICAST_LID..PERMISSIVE_LID).contains(&lid) {
            return false;
        }
        if ports.is_empty() {
            self.groups.remove(&lid);
            return true;
        }
        let has_room = self.groups.len() < GROUPS || self.groups.contains_key(&lid);
        if has_room {
            self.groups.insert(lid, ports);
        }
        has_room
    }

    /// Clears the linear table.
    pub(super) fn clear_linear(&mut self) {
        self.linear.fill(NO_PORT);
    }

    /// Clears the multicast table.
    pub(super) fn clear_groups(&mut self) {
        self.groups.clear();
    }

    /// Returns a block of the linear table.
    pub(super) fn linear_block(&self, block: u16) -> [u8; BLOCK] {
        let first = usize::from(block) * BLOCK;
        core::array::from_fn(|index| self.linear.get(first + index).copied().unwrap_or(NO_PORT))
    }

    /// Writes a block of the linear table.
    pub(super) fn set_linear_block(&mut self, block: u16, ports: &[u8; BLOCK]) {
        let first = usize::from(block) * BLOCK;
        if self.linear.len() < first + BLOCK {
            self.linear.resize(first + BLOCK, NO_PORT);
        }
        self.linear[first..first + BLOCK].copy_from_slice(ports);
    }

    /// Returns a block of the multicast table: the masks of 16 ports at `position`.
    pub(super) fn multicast_block(&self, block: u16, position: u8) -> [u8; BLOCK] {
        multicast_bytes(block, position, |lid| self.group(lid))
    }

    /// Writes a block of the multicast table. False if it has too many groups.
    pub(super) fn set_multicast_block(&mut self, block: u16, position: u8, masks: &[u8; BLOCK]) -> bool {
        let mut has_room = true;
        for (lid, mask) in multicast_lids(block).zip(masks.chunks_exact(2)) {
            let mask = u16::from_be_bytes([mask[0], mask[1]]);
            let mut ports = self.group(lid).unwrap_or_default();
            for (bit, port) in (0..POSITION).filter_map(|bit| Some((bit, cable(position, bit)?))) {
                ports = if mask >> bit & 1 != 0 { ports.with(port) } else { ports.without(port) };
            }
            has_room &= self.set_group(lid, ports);
        }
        has_room
    }
}

/// Encodes a block of the multicast table from port sets counted from 0.
pub(super) fn multicast_bytes(
    block: u16,
    position: u8,
    group: impl Fn(u16) -> Option<PortSet>,
) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for (lid, to) in multicast_lids(block).zip(bytes.chunks_exact_mut(2)) {
        let Some(ports) = group(lid) else { continue };
        let bits = (0..POSITION).filter(|bit| cable(position, *bit).is_some_and(|port| ports.has(port)));
        to.copy_from_slice(&bits.fold(0_u16, |mask, bit| mask | 1 << bit).to_be_bytes());
    }
    bytes
}

/// Blocks and positions of the multicast table that hold a group with these ports.
pub(super) fn multicast_places(lid: u16, ports: PortSet) -> BTreeSet<(u16, u8)> {
    let block = lid.saturating_sub(FIRST_MULTICAST_LID) / MULTICAST_BLOCK;
    let mut left = ports;
    let each = core::iter::from_fn(|| left.take_first());
    each.filter_map(|port| Some((block, u8::try_from(port + 1).ok()? / POSITION))).collect()
}

/// Number of multicast blocks.
pub(super) const fn multicast_blocks() -> u16 {
    (PERMISSIVE_LID - FIRST_MULTICAST_LID).div_ceil(MULTICAST_BLOCK)
}

fn multicast_lids(block: u16) -> impl Iterator<Item = u16> {
    let first = FIRST_MULTICAST_LID.saturating_add(block.saturating_mul(MULTICAST_BLOCK));
    (0..MULTICAST_BLOCK).map(move |index| first.saturating_add(index))
}

/// External port, counted from 0, of a bit at a position; `None` for port 0.
fn cable(position: u8, bit: u8) -> Option<usize> {
    (usize::from(position) * usize::from(POSITION) + usize::from(bit)).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirement: IBTA v1.4 §14.2.5.10: an entry of the linear table is a port number: 0 is the switch itself, 255
    /// none.
    #[test]
    fn linear_blocks_are_as_they_were_written() {
        let mut tables = ForwardingTables::default();
        let block = core::array::from_fn(|index| [0, 1, 254, 255][index % 4]);
        tables.set_linear_block(2, &block);
        assert_eq!((tables.linear_block(2), tables.linear_block(1)), (block, [NO_PORT; BLOCK]));
        assert_eq!(
            [0, 127, 128, 129, 130, 131].map(|lid| tables.exit(lid)),
            [None, None, None, Some(0), Some(253), None]
        );
    }

    /// Requirement: IBTA v1.4 §14.2.5.12: a position of the multicast table covers 16 ports, a block 32 groups.
    #[test]
    fn multicast_blocks_are_as_they_were_written() {
        let mut tables = ForwardingTables::default();
        let mut block = [0; BLOCK];
        block[2..4].copy_from_slice(&0x8002_u16.to_be_bytes());
        assert!(tables.set_multicast_block(1, 0, &block) && tables.set_multicast_block(1, 1, &block));
        let ports = tables.group(0xc021).expect("a group");
        assert_eq!(ports, [0, 14, 16, 30].into_iter().fold(PortSet::default(), PortSet::with));
        assert_eq!((tables.multicast_block(1, 0), tables.multicast_block(0, 0)), (block, [0; BLOCK]));
        assert_eq!(multicast_places(0xc021, ports), [(1, 0), (1, 1)].into());
        assert!(tables.set_multicast_block(1, 0, &[0; BLOCK]) && tables.has_group(0xc021));
        assert!(tables.set_multicast_block(1, 1, &[0; BLOCK]) && !tables.has_group(0xc021));
    }
}
