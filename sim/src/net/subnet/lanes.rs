//! Virtual lanes of a switch (IBTA v1.4 §7.6): the SL-to-VL mapping between two ports, and VL arbitration.
//!
//! There is one data lane, VL 0 (`OperationalVLs` is 1), besides the management lane VL 15. So a packet
//! leaves on VL 0 if its SL maps there, and is dropped if it maps to VL 15 or to a lane that is not
//! configured (§7.6.6). Arbitration tables are stored and returned but have no effect, because there are no
//! other lanes to arbitrate between. Subnet management packets have their own lane and are exempt.

use crate::wire::infiniband::service_level;
use crate::wire::management::status;
use std::collections::BTreeMap;

/// The data lane.
const DATA_LANE: u8 = 0;
/// Bytes of a mapping: 16 SLs of 4 bits. Then the entries per port of an arbitration table, each a VL and a weight.
const MAPPING: usize = 8;
pub(super) const ARBITRATION_ENTRIES: u8 = 8;
const ARBITRATION: usize = 2 * ARBITRATION_ENTRIES as usize;
const BLOCK: usize = 64;

type Mapping = [u8; MAPPING];

/// Lane tables of a switch; see the module. Ports are counted from 1; port 0 is the switch's own.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Mapping by ingress and egress port. A missing one maps all SLs to the data lane.
    mappings: BTreeMap<(u8, u8), Mapping>,
    /// Arbitration table by port and block.
    arbitration: BTreeMap<(u8, u8), [u8; ARBITRATION]>,
    /// Whether any mapping leads away from the data lane. Most switches have none and skip the check.
    is_any: bool,
}

impl Lanes {
    /// SLtoVLMappingTable of a pair of ports, on a switch with `ports` external ports.
    pub(super) fn mapping(&self, ports: u8, modifier: u32) -> Result<Mapping, u16> {
        let place = mapping_place(ports, modifier)?;
        Ok(self.mappings.get(&place).copied().unwrap_or_default())
    }

    /// Replaces a SLtoVLMappingTable.
    pub(super) fn set_mapping(&mut self, ports: u8, modifier: u32, block: &[u8; BLOCK]) -> Result<(), u16> {
        let place = mapping_place(ports, modifier)?;
        let mapping: Mapping = core::array::from_fn(|index| block[index]);
        self.mappings.insert(place, mapping);
        let leads_away = |mapping: &Mapping| *mapping != Mapping::default();
        self.mappings.retain(|_, mapping| leads_away(mapping));
        self.is_any = !self.mappings.is_empty();
        Ok(())
    }

    /// Returns a block of a port's VLArbitrationTable.
    pub(super) fn arbitration(&self, ports: u8, modifier: u32) -> Result<[u8; BLOCK], u16> {
        let place = arbitration_place(ports, modifier)?;
        let mut block = [0; BLOCK];
        if let Some(table) = self.arbitration.get(&place) {
            block[..ARBITRATION].copy_from_slice(table);
        }
        Ok(block)
    }

    /// Replaces a block of a port's VLArbitrationTable.
    pub(super) fn set_arbitration(
        &mut self,
        ports: u8,
        modifier: u32,
        block: &[u8; BLOCK],
    ) -> Result<(), u16> {
        let place = arbitration_place(ports, modifier)?;
        self.arbitration.insert(place, core::array::from_fn(|index| block[index]));
        Ok(())
    }

    #[inline]
    pub(super) const fn is_any(&self) -> bool {
        self.is_any
    }

    /// Whether a packet has a lane from port `ingress` to port `exit`, both counted from 0.
    pub(super) fn carries(&self, ingress: usize, exit: usize, frame: &[u8]) -> bool {
        let number = |port: usize| u8::try_from(port + 1).ok();
        let Some((place, level)) = number(ingress).zip(number(exit)).zip(service_level(frame)) else {
            return true;
        };
        self.mappings.get(&place).is_none_or(|mapping| lane(mapping, level) == DATA_LANE)
    }
}

/// VL of an SL. Of two SLs in a byte, the first is in the upper bits.
fn lane(mapping: &Mapping, level: u8) -> u8 {
    let pair = mapping[usize::from(level / 2) % MAPPING];
    if level.is_multiple_of(2) { pair >> 4 } else { pair & 0xf }
}

/// Ingress and egress port of a modifier. Its upper half could address all ports at once, but that is an option which
/// SwitchInfo would advertise (IBTA v1.4 §14.2.5.8).
fn mapping_place(ports: u8, modifier: u32) -> Result<(u8, u8), u16> {
    let [_, _, ingress, exit] = modifier.to_be_bytes();
    let is_one = modifier >> 16 == 0 && ingress <= ports && exit <= ports;
    if is_one { Ok((ingress, exit)) } else { Err(status::INVALID) }
}

/// Port and block of a modifier: 1 is the lower half of the low-priority table, 3 that of the high-priority table;
/// there are no upper halves (IBTA v1.4 §14.2.5.9).
fn arbitration_place(ports: u8, modifier: u32) -> Result<(u8, u8), u16> {
    let (block, port) = (modifier >> 16, modifier & 0xffff);
    match (u8::try_from(port), block) {
        (Ok(port), 1 | 3) if port <= ports => Ok((port, block as u8)),
        _ => Err(status::INVALID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(level: u8) -> [u8; 8] {
        [0, level << 4 | 2, 0, 1, 0, 0, 0, 2]
    }

    #[test]
    fn levels_without_a_lane_for_data_are_not_carried() {
        let mut lanes = Lanes::default();
        assert!(!lanes.is_any() && lanes.carries(0, 1, &packet(15)));
        let mut block = [0; BLOCK];
        // SLs 2, 3 and 15 from port 1 to port 2.
        (block[1], block[7]) = (0xf1, 0x0f);
        assert_eq!(lanes.set_mapping(4, 0x0102, &block), Ok(()));
        let carried: Vec<u8> = (0..16).filter(|level| lanes.carries(0, 1, &packet(*level))).collect();
        assert_eq!(carried, [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        assert!(
            lanes.is_any() && lanes.carries(1, 0, &packet(15)),
            "the opposite direction has a table of its own"
        );
        assert!(lanes.carries(0, 1, &[]), "a truncated packet is not checked here");
        assert_eq!(lanes.set_mapping(4, 0x0102, &[0; BLOCK]), Ok(()));
        assert!(!lanes.is_any() && lanes.carries(0, 1, &packet(15)));
    }

    /// Requirement: IBTA v1.4 §14.2.5.8: a service-level-to-lane table belongs to an ingress and an egress port; ports
    /// that do not exist have none.
    #[test]
    fn tables_are_kept_by_their_ports() {
        let mut lanes = Lanes::default();
        let block = core::array::from_fn(|index| index as u8);
        for modifier in [0x0102, 0x0400, 0x0004] {
            assert_eq!(lanes.set_mapping(4, modifier, &block), Ok(()));
            assert_eq!(lanes.mapping(4, modifier), Ok([0, 1, 2, 3, 4, 5, 6, 7]));
        }
        assert_eq!(lanes.mapping(4, 0x0201), Ok([0; 8]));
        for modifier in [1 << 16 | 3, 3 << 16 | 3] {
            assert_eq!(lanes.set_arbitration(4, modifier, &block), Ok(()));
            let kept = lanes.arbitration(4, modifier).expect("a block");
            assert_eq!((&kept[..16], &kept[16..]), (&block[..16], &[0; 48][..]));
        }
        assert_eq!(lanes.arbitration(4, 1 << 16 | 2), Ok([0; BLOCK]));
        for modifier in [0x0105, 0x0501, 0x3_0000, 1 << 16 | 0x0102] {
            assert_eq!(lanes.mapping(4, modifier), Err(status::INVALID), "{modifier:#x}");
        }
        for modifier in [1, 2 << 16 | 1, 4 << 16 | 1, 1 << 16 | 5, 1 << 16 | 0x101] {
            assert_eq!(lanes.arbitration(4, modifier), Err(status::INVALID), "{modifier:#x}");
        }
    }
}
