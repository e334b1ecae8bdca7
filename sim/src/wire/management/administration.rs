//! Subnet administration (SA) datagrams (IBTA v1.4 §15.2.1): class header, RMPP header (§13.6.2) and records (§15.2.5).

use super::attributes::{InformInfo, NodeInfo, PortInfo, SmInfo, SwitchInfo};
use super::{MadHeader, Method, SIZE};
use bareverbs_prm::layout;
use zerocopy::{FromBytes, IntoBytes};

/// Version of the class (IBTA v1.4 §15.2.1).
pub const CLASS_VERSION: u8 = 2;
/// Offset of the record.
const DATA_AT: usize = 56;
/// Most record bytes in one datagram.
pub const DATA: usize = SIZE - DATA_AT;
/// Offsets of the RMPP header and the class header.
const RMPP_AT: usize = MadHeader::SIZE;
const SA_AT: usize = RMPP_AT + RmppHeader::SIZE;

/// Methods specific to the class (IBTA v1.4 §15.2.2).
pub mod method {
    /// Report: notifies a subscriber of an event.
    pub const REPORT: u8 = 0x06;
    /// ReportResp: acknowledges a Report.
    pub const REPORT_RESPONSE: u8 = 0x86;
    /// SubnAdmGetTable.
    pub const GET_TABLE: u8 = 0x12;
    /// SubnAdmGetMulti.
    pub const GET_MULTI: u8 = 0x14;
    /// SubnAdmDelete.
    pub const DELETE: u8 = 0x15;
}

/// Attributes of the class (IBTA v1.4 §15.2.5).
pub mod record {
    /// NodeRecord.
    pub const NODE: u16 = 0x11;
    /// PortInfoRecord.
    pub const PORT_INFO: u16 = 0x12;
    /// SwitchInfoRecord.
    pub const SWITCH_INFO: u16 = 0x14;
    /// LinearForwardingTableRecord.
    pub const LINEAR_FORWARDING: u16 = 0x15;
    /// SLtoVLMappingTableRecord.
    pub const SL_TO_VL: u16 = 0x13;
    /// MulticastForwardingTableRecord.
    pub const MULTICAST_FORWARDING: u16 = 0x17;
    /// SMInfoRecord.
    pub const SM_INFO: u16 = 0x18;
    /// GUIDInfoRecord.
    pub const GUID_INFO: u16 = 0x30;
    /// P_KeyTableRecord.
    pub const PARTITION_KEYS: u16 = 0x33;
    /// VLArbitrationTableRecord.
    pub const VL_ARBITRATION: u16 = 0x36;
    /// MultiPathRecord.
    pub const MULTI_PATH: u16 = 0x3a;
    /// LinkRecord.
    pub const LINK: u16 = 0x20;
    /// ServiceRecord.
    pub const SERVICE: u16 = 0x31;
    /// PathRecord.
    pub const PATH: u16 = 0x35;
    /// MCMemberRecord.
    pub const MC_MEMBER: u16 = 0x38;
    /// InformInfo, which is not a record.
    pub const INFORM_INFO: u16 = 0x03;
    /// InformInfoRecord.
    pub const INFORM_INFO_RECORD: u16 = 0xf3;
}

/// `status` values of the class (IBTA v1.4 §15.2.3).
pub mod status {
    /// Not enough resources.
    pub const NO_RESOURCES: u16 = 0x0100;
    /// The request is inconsistent, contradicts the subnet, or exceeds its sender's rights.
    pub const REQUEST_INVALID: u16 = 0x0200;
    /// No record matches.
    pub const NO_RECORDS: u16 = 0x0300;
    /// More than one record matches a SubnAdmGet.
    pub const TOO_MANY_RECORDS: u16 = 0x0400;
    /// A GID that is not in this subnet.
    pub const INVALID_GID: u16 = 0x0500;
    /// The component mask lacks a required component.
    pub const INSUFFICIENT_COMPONENTS: u16 = 0x0600;
}

layout! {
    /// RMPP header (IBTA v1.4 §13.6.2).
    pub struct RmppHeader, "RMPPHeader", 3;
    bits version / set_version: u8 = 0[31:24], "RMPPVersion";
    bits kind / set_kind: u8 = 0[23:16], "RMPPType";
    bits response_time / set_response_time: u8 = 0[15:11], "RRespTime";
    bits flags / set_flags: u8 = 0[10:8], "RMPPFlags";
    bits status / set_status: u8 = 0[7:0], "RMPPStatus";
    bits segment / set_segment: u32 = 1[31:0], "SegmentNumber";
    bits length / set_length: u32 = 2[31:0], "PayloadLength";
}

layout! {
    /// Class header (IBTA v1.4 §15.2.1.1).
    pub struct SaHeader, "SAHeader", 5;
    wide sm_key / set_sm_key: u64 = 0, "SM_Key";
    bits attribute_offset / set_attribute_offset: u16 = 2[31:16], "AttributeOffset";
    wide component_mask / set_component_mask: u64 = 3, "ComponentMask";
}

layout! {
    /// NodeRecord (IBTA v1.4 §15.2.5.2).
    pub struct NodeRecord, "NodeRecord", 27;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    part node_info / node_info_mut: NodeInfo = 1, "NodeInfo";
    bytes node_description / set_node_description: 64 = 11, "NodeDescription";
}

layout! {
    /// PortInfoRecord (IBTA v1.4 §15.2.5.3).
    pub struct PortInfoRecord, "PortInfoRecord", 17;
    bits end_port_lid / set_end_port_lid: u16 = 0[31:16], "EndPortLID";
    bits port_num / set_port_num: u8 = 0[15:8], "PortNum";
    bits options / set_options: u8 = 0[7:0], "Options";
    part port_info / port_info_mut: PortInfo = 1, "PortInfo";
}

layout! {
    /// SwitchInfoRecord (IBTA v1.4 §15.2.5.5).
    pub struct SwitchInfoRecord, "SwitchInfoRecord", 6;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    part switch_info / switch_info_mut: SwitchInfo = 1, "SwitchInfo";
}

layout! {
    /// LinearForwardingTableRecord (IBTA v1.4 §15.2.5.6).
    pub struct LinearForwardingTableRecord, "LinearForwardingTableRecord", 18;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    bits block / set_block: u16 = 0[15:0], "BlockNum";
    bytes ports / set_ports: 64 = 2, "LinearForwardingTable";
}

layout! {
    /// P_KeyTableRecord (IBTA v1.4 §15.2.5.11).
    pub struct PartitionKeyTableRecord, "P_KeyTableRecord", 18;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    bits block / set_block: u16 = 0[15:0], "P_KeyTableBlockNum";
    bits port / set_port: u8 = 1[31:24], "PortNum";
    bytes table / set_table: 64 = 2, "P_KeyTable";
}

layout! {
    /// SLtoVLMappingTableRecord (IBTA v1.4 §15.2.5.4).
    pub struct SlToVlRecord, "SLtoVLMappingTableRecord", 4;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    bits input_port / set_input_port: u8 = 0[15:8], "InputPortNum";
    bits output_port / set_output_port: u8 = 0[7:0], "OutputPortNum";
    bytes table / set_table: 8 = 2, "SLtoVLMappingTable";
}

layout! {
    /// VLArbitrationTableRecord (IBTA v1.4 §15.2.5.9).
    pub struct VlArbitrationRecord, "VLArbitrationTableRecord", 18;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    bits port / set_port: u8 = 0[15:8], "OutputPortNum";
    bits block / set_block: u8 = 0[7:0], "BlockNum";
    bytes table / set_table: 64 = 2, "VLArbitrationTable";
}

layout! {
    /// GUIDInfoRecord (IBTA v1.4 §15.2.5.18).
    pub struct GuidInfoRecord, "GUIDInfoRecord", 18;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    bits block / set_block: u8 = 0[15:8], "BlockNum";
    bytes guids / set_guids: 64 = 2, "GUIDInfo";
}

layout! {
    /// MulticastForwardingTableRecord (IBTA v1.4 §15.2.5.8).
    pub struct MulticastForwardingTableRecord, "MulticastForwardingTableRecord", 18;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    bits position / set_position: u8 = 0[15:12], "Position";
    bits block / set_block: u16 = 0[8:0], "BlockNum";
    bytes masks / set_masks: 64 = 2, "MulticastForwardingTable";
}

layout! {
    /// SMInfoRecord (IBTA v1.4 §15.2.5.10).
    pub struct SmInfoRecord, "SMInfoRecord", 7;
    bits lid / set_lid: u16 = 0[31:16], "LID";
    part sm_info / sm_info_mut: SmInfo = 1, "SMInfo";
}

layout! {
    /// MultiPathRecord without its GIDs, which follow it (IBTA v1.4 §15.2.5.20).
    pub struct MultiPathRecord, "MultiPathRecord", 6;
    bits raw_traffic / set_raw_traffic: bool = 0[31:31], "RawTraffic";
    bits flow_label / set_flow_label: u32 = 0[27:8], "FlowLabel";
    bits hop_limit / set_hop_limit: u8 = 0[7:0], "HopLimit";
    bits traffic_class / set_traffic_class: u8 = 1[31:24], "TClass";
    bits reversible / set_reversible: bool = 1[23:23], "Reversible";
    bits number_of_paths / set_number_of_paths: u8 = 1[22:16], "NumbPath";
    bits partition_key / set_partition_key: u16 = 1[15:0], "P_Key";
    bits qos_class / set_qos_class: u16 = 2[31:20], "QosClass";
    bits service_level / set_service_level: u8 = 2[19:16], "SL";
    bits mtu_selector / set_mtu_selector: u8 = 2[15:14], "MtuSelector";
    bits mtu / set_mtu: u8 = 2[13:8], "Mtu";
    bits rate_selector / set_rate_selector: u8 = 2[7:6], "RateSelector";
    bits rate / set_rate: u8 = 2[5:0], "Rate";
    bits life_time_selector / set_life_time_selector: u8 = 3[31:30], "PacketLifeTimeSelector";
    bits life_time / set_life_time: u8 = 3[29:24], "PacketLifeTime";
    bits independence / set_independence: u8 = 3[15:14], "IndependenceSelector";
    bits sgid_count / set_sgid_count: u8 = 3[7:0], "SGIDCount";
    bits dgid_count / set_dgid_count: u8 = 4[31:24], "DGIDCount";
}

layout! {
    /// InformInfoRecord (IBTA v1.4 §15.2.5.12).
    pub struct InformInfoRecord, "InformInfoRecord", 16;
    bytes subscriber_gid / set_subscriber_gid: 16 = 0, "SubscriberGID";
    bits subscriber_enum / set_subscriber_enum: u16 = 4[31:16], "SubscriberEnum";
    part inform_info / inform_info_mut: InformInfo = 6, "InformInfo";
}

layout! {
    /// LinkRecord (IBTA v1.4 §15.2.5.13).
    pub struct LinkRecord, "LinkRecord", 2;
    bits from_lid / set_from_lid: u16 = 0[31:16], "FromLID";
    bits from_port / set_from_port: u8 = 0[15:8], "FromPort";
    bits to_port / set_to_port: u8 = 0[7:0], "ToPort";
    bits to_lid / set_to_lid: u16 = 1[31:16], "ToLID";
}

layout! {
    /// ServiceRecord (IBTA v1.4 §15.2.5.14).
    pub struct ServiceRecord, "ServiceRecord", 44;
    wide service_id / set_service_id: u64 = 0, "ServiceID";
    bytes gid / set_gid: 16 = 2, "ServiceGID";
    bits partition_key / set_partition_key: u16 = 6[31:16], "ServiceP_Key";
    bits lease / set_lease: u32 = 7[31:0], "ServiceLease";
    bytes key / set_key: 16 = 8, "ServiceKey";
    bytes name / set_name: 64 = 12, "ServiceName";
    bytes data8 / set_data8: 16 = 28, "ServiceData8";
    bytes data16 / set_data16: 16 = 32, "ServiceData16";
    bytes data32 / set_data32: 16 = 36, "ServiceData32";
    bytes data64 / set_data64: 16 = 40, "ServiceData64";
}

layout! {
    /// PathRecord (IBTA v1.4 §15.2.5.16).
    pub struct PathRecord, "PathRecord", 16;
    wide service_id / set_service_id: u64 = 0, "ServiceID";
    bytes dgid / set_dgid: 16 = 2, "DGID";
    bytes sgid / set_sgid: 16 = 6, "SGID";
    bits dlid / set_dlid: u16 = 10[31:16], "DLID";
    bits slid / set_slid: u16 = 10[15:0], "SLID";
    bits raw_traffic / set_raw_traffic: bool = 11[31:31], "RawTraffic";
    bits flow_label / set_flow_label: u32 = 11[27:8], "FlowLabel";
    bits hop_limit / set_hop_limit: u8 = 11[7:0], "HopLimit";
    bits traffic_class / set_traffic_class: u8 = 12[31:24], "TClass";
    bits reversible / set_reversible: bool = 12[23:23], "Reversible";
    bits number_of_paths / set_number_of_paths: u8 = 12[22:16], "NumbPath";
    bits partition_key / set_partition_key: u16 = 12[15:0], "P_Key";
    bits qos_class / set_qos_class: u16 = 13[31:20], "QosClass";
    bits service_level / set_service_level: u8 = 13[19:16], "SL";
    bits mtu_selector / set_mtu_selector: u8 = 13[15:14], "MtuSelector";
    bits mtu / set_mtu: u8 = 13[13:8], "Mtu";
    bits rate_selector / set_rate_selector: u8 = 13[7:6], "RateSelector";
    bits rate / set_rate: u8 = 13[5:0], "Rate";
    bits life_time_selector / set_life_time_selector: u8 = 14[31:30], "PacketLifeTimeSelector";
    bits life_time / set_life_time: u8 = 14[29:24], "PacketLifeTime";
    bits preference / set_preference: u8 = 14[23:16], "Preference";
}

layout! {
    /// MCMemberRecord (IBTA v1.4 §15.2.5.17).
    pub struct McMemberRecord, "MCMemberRecord", 13;
    bytes mgid / set_mgid: 16 = 0, "MGID";
    bytes port_gid / set_port_gid: 16 = 4, "PortGID";
    bits q_key / set_q_key: u32 = 8[31:0], "Q_Key";
    bits mlid / set_mlid: u16 = 9[31:16], "MLID";
    bits mtu_selector / set_mtu_selector: u8 = 9[15:14], "MTUSelector";
    bits mtu / set_mtu: u8 = 9[13:8], "MTU";
    bits traffic_class / set_traffic_class: u8 = 9[7:0], "TClass";
    bits partition_key / set_partition_key: u16 = 10[31:16], "P_Key";
    bits rate_selector / set_rate_selector: u8 = 10[15:14], "RateSelector";
    bits rate / set_rate: u8 = 10[13:8], "Rate";
    bits life_time_selector / set_life_time_selector: u8 = 10[7:6], "PacketLifeTimeSelector";
    bits life_time / set_life_time: u8 = 10[5:0], "PacketLifeTime";
    bits service_level / set_service_level: u8 = 11[31:28], "SL";
    bits flow_label / set_flow_label: u32 = 11[27:8], "FlowLabel";
    bits hop_limit / set_hop_limit: u8 = 11[7:0], "HopLimit";
    bits scope / set_scope: u8 = 12[31:28], "Scope";
    bits join_state / set_join_state: u8 = 12[27:24], "JoinState";
    bits proxy_join / set_proxy_join: bool = 12[23:23], "ProxyJoin";
}

/// A datagram of the class.
///
/// ```
/// use bareverbs_sim::wire::management::administration::{AdministrationPacket, PathRecord, record};
/// use bareverbs_sim::wire::management::{Method, SIZE, class};
///
/// let mut packet = AdministrationPacket::of(&[0; SIZE]);
/// packet.mad.set_base_version(1).set_class(class::ADMINISTRATION).set_class_version(2).set_method(1);
/// packet.mad.set_attribute(record::PATH);
/// assert_eq!(packet.method(), Method::Get);
/// let asked: PathRecord = packet.record().unwrap();
/// assert_eq!(asked.dlid(), 0, "nobody in particular");
/// assert_eq!(packet.to_bytes()[..4], [1, 3, 2, 1]);
/// ```
#[derive(Debug, Clone)]
pub struct AdministrationPacket {
    /// Common MAD header.
    pub mad: MadHeader,
    /// RMPP header.
    pub rmpp: RmppHeader,
    /// Class header.
    pub sa: SaHeader,
    /// The record of a request, or a segment of a response's records.
    pub data: [u8; DATA],
}

impl AdministrationPacket {
    /// Decodes a datagram.
    pub fn of(bytes: &[u8; SIZE]) -> Self {
        let mut data = [0; DATA];
        data.copy_from_slice(&bytes[DATA_AT..]);
        Self { mad: read(bytes), rmpp: read(&bytes[RMPP_AT..]), sa: read(&bytes[SA_AT..]), data }
    }

    /// Encodes the datagram.
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..RMPP_AT].copy_from_slice(self.mad.as_bytes());
        bytes[RMPP_AT..SA_AT].copy_from_slice(self.rmpp.as_bytes());
        bytes[SA_AT..DATA_AT].copy_from_slice(self.sa.as_bytes());
        bytes[DATA_AT..].copy_from_slice(&self.data);
        bytes
    }

    /// The record of a request.
    pub fn record<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(&self.data).ok().map(|(record, _)| record)
    }

    /// The method.
    pub fn method(&self) -> Method {
        Method::from_raw(self.mad.method())
    }
}

/// Decodes a header at the start of `bytes`.
fn read<T: FromBytes + Default>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).map_or_else(|_| T::default(), |(header, _)| header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_survives_its_bytes() {
        let bytes: [u8; SIZE] = core::array::from_fn(|index| index as u8);
        let packet = AdministrationPacket::of(&bytes);
        assert_eq!((packet.rmpp.version(), packet.rmpp.segment()), (24, 0x1c1d_1e1f));
        assert_eq!((packet.sa.sm_key(), packet.sa.attribute_offset()), (0x2425_2627_2829_2a2b, 0x2c2d));
        assert_eq!((packet.sa.component_mask(), packet.data[0]), (0x3031_3233_3435_3637, 56));
        assert_eq!(packet.to_bytes(), bytes);
    }
}
