//! The component mask (IBTA v1.4 §15.2.1.1): selects the fields that must match between a query and a record.

use bareverbs_prm::field::LayoutInfo;

/// Components of NodeRecord by mask bit. Reserved ones have no name.
pub(super) const NODE: &[&str] = &[
    "LID",
    "",
    "BaseVersion",
    "ClassVersion",
    "NodeType",
    "NumPorts",
    "SystemImageGUID",
    "NodeGUID",
    "PortGUID",
    "PartitionCap",
    "DeviceID",
    "Revision",
    "LocalPortNum",
    "VendorID",
    "NodeDescription",
];

/// Components of PortInfoRecord. `Options` is not one: it tells what the requester understands.
pub(super) const PORT_INFO: &[&str] = &[
    "EndPortLID",
    "PortNum",
    "",
    "M_Key",
    "GidPrefix",
    "LID",
    "MasterSMLID",
    "CapabilityMask",
    "DiagCode",
    "M_KeyLeasePeriod",
    "LocalPortNum",
    "LinkWidthEnabled",
    "LinkWidthSupported",
    "LinkWidthActive",
    "LinkSpeedSupported",
    "PortState",
    "PortPhysicalState",
    "LinkDownDefaultState",
    "M_KeyProtectBits",
    "",
    "LMC",
    "LinkSpeedActive",
    "LinkSpeedEnabled",
    "NeighborMTU",
    "MasterSMSL",
    "VLCap",
    "InitType",
    "VLHighLimit",
    "VLArbitrationHighCap",
    "VLArbitrationLowCap",
    "InitTypeReply",
    "MTUCap",
    "VLStallCount",
    "HOQLife",
    "OperationalVLs",
    "PartitionEnforcementInbound",
    "PartitionEnforcementOutbound",
    "FilterRawInbound",
    "FilterRawOutbound",
    "M_KeyViolations",
    "P_KeyViolations",
    "Q_KeyViolations",
    "GUIDCap",
    "ClientReregister",
    "",
    "SubnetTimeOut",
    "",
    "RespTimeValue",
    "LocalPhyErrors",
    "OverrunErrors",
    "MaxCreditHint",
    "",
    "LinkRoundTripLatency",
    "CapabilityMask2",
    "LinkSpeedExtActive",
    "LinkSpeedExtSupported",
    "",
    "LinkSpeedExtEnabled",
];

/// Offset and width in bits of the components that a mask selects.
pub(super) fn chosen(layout: &LayoutInfo, names: &[&str], mask: u64) -> Vec<(u32, u32)> {
    let chosen = names.iter().enumerate().filter(|(bit, name)| mask >> bit & 1 != 0 && !name.is_empty());
    chosen.filter_map(|(_, name)| find(layout, name)).collect()
}

/// Whether two records agree in these fields.
pub(super) fn agree(places: &[(u32, u32)], one: &[u8], other: &[u8]) -> bool {
    let differs = |bit: u32| {
        let (byte, mask) = ((bit / 8) as usize, 0x80_u8 >> (bit % 8));
        let at = |record: &[u8]| record.get(byte).copied().unwrap_or(0) & mask;
        at(one) != at(other)
    };
    !places.iter().any(|&(start, width)| (start..start + width).any(differs))
}

/// Finds a field in a layout or in a nested one.
fn find(layout: &LayoutInfo, name: &str) -> Option<(u32, u32)> {
    layout.fields.iter().find_map(|field| match field.part {
        Some(part) => find(part, name).map(|(start, width)| (field.bit_offset + start, width)),
        None => (field.path == name).then_some((field.bit_offset, field.bit_width)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::management::administration::{NodeRecord, PortInfoRecord};
    use bareverbs_prm::field::Layout;
    use zerocopy::IntoBytes;

    /// Requirement: IBTA v1.4 §15.2.1.1: a bit of the component mask stands for the field at that position in the
    /// record's table.
    #[test]
    fn every_component_is_a_field_and_those_in_a_record_follow_each_other() {
        for (layout, names) in [(NodeRecord::INFO, NODE), (PortInfoRecord::INFO, PORT_INFO)] {
            let named = names.iter().filter(|name| !name.is_empty());
            let places: Vec<_> = named.map(|name| find(&layout, name).expect(name)).collect();
            assert!(places.is_sorted_by(|one, other| one.0 + one.1 <= other.0), "{places:?}");
        }
        assert_eq!(
            (NODE[8], NODE[14], PORT_INFO[31], PORT_INFO[57]),
            ("PortGUID", "NodeDescription", "MTUCap", "LinkSpeedExtEnabled")
        );
    }

    #[test]
    fn only_chosen_components_count() {
        let (mut one, mut other) = (NodeRecord::new(), NodeRecord::new());
        one.set_lid(7).node_info_mut().set_node_type(1).set_num_ports(3);
        other.set_lid(8).node_info_mut().set_node_type(1).set_num_ports(2);
        let agree = |mask| agree(&chosen(&NodeRecord::INFO, NODE, mask), one.as_bytes(), other.as_bytes());
        assert!(agree(0) && agree(1 << 4) && agree(1 << 1) && agree(1 << 63));
        assert!(!agree(1) && !agree(1 << 5) && !agree(1 << 4 | 1 << 5));
    }
}
