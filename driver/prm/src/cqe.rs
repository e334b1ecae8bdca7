//! Completion queue entries (PRM, completion queue entry format).

use crate::ids::Qpn;
use crate::layout;
use crate::numbering::{CqeOpcode, CqeSyndrome};

/// Bytes of a completion queue entry.
pub const CQE_SIZE: usize = 64;
/// Offset of the byte that carries opcode and owner; the device writes it last.
pub const OP_OWN_OFFSET: usize = 63;
/// What software writes there before the device has written an entry: opcode invalid, owner 1.
pub const OP_OWN_INITIAL: u8 = 0xf1;

/// `op_own.format` of an entry that has 32 bytes of data in its first half.
pub const CQE_FORMAT_INLINE_32: u8 = 1;
/// `op_own.format` of an entry of 128 bytes that has 64 bytes of data in its first half.
pub const CQE_FORMAT_INLINE_64: u8 = 2;
/// `op_own.format` of the title of a compressed run; its byte count is the number of entries.
pub const CQE_FORMAT_COMPRESSED: u8 = 3;
/// Mini entries in an array, which takes the place of one entry.
pub const MINI_CQES: usize = 8;

layout! {
    /// A completion queue entry of 64 bytes.
    pub struct CompletionEntry, "mlx5_cqe64", 16;
    bits wqe_id / set_wqe_id: u16 = 0[15:0], "wqe_id";
    /// Hash of a received Ethernet packet.
    bits rss_hash / set_rss_hash: u32 = 3[31:0], "rss_hash_result";
    /// What was hashed: bits 7:6 the transport (1 TCP, 2 UDP), bits 3:2 the network (1 IPv4, 2 IPv6).
    bits rss_hash_type / set_rss_hash_type: u8 = 4[31:24], "rss_hash_type";
    bits path_bits / set_path_bits: u8 = 4[22:16], "ml_path.path_bits";
    /// Ones' complement sum of all bytes behind the Ethernet header.
    bits checksum / set_checksum: u16 = 5[31:16], "check_sum";
    bits slid / set_slid: u16 = 5[15:0], "slid";
    bits grh / set_grh: u8 = 6[29:28], "flags_rqpn.grh";
    /// InfiniBand service level.
    bits service_level / set_service_level: u8 = 6[27:24], "flags_rqpn.sl";
    /// On RoCE, the header before the payload: 0 global route header, 1 IPv6, 2 IPv4.
    or roce_l3_header_type / set_roce_l3_header_type: u8 = 6[25:24], "flags_rqpn.roce_l3_header_type";
    bits remote_qpn / set_remote_qpn: Qpn = 6[23:0], "flags_rqpn.rqpn";
    bits l4_ok / set_l4_ok: bool = 7[26:26], "hds_ip_ext.l4_ok";
    bits l3_ok / set_l3_ok: bool = 7[25:25], "hds_ip_ext.l3_ok";
    bits l2_ok / set_l2_ok: bool = 7[24:24], "hds_ip_ext.l2_ok";
    /// 0 none, 1 TCP without ACK, 2 UDP, 3 TCP with ACK and no data, 4 TCP with ACK and data.
    bits l4_header / set_l4_header: u8 = 7[22:20], "l4_l3_hdr_type.l4_hdr_type";
    /// 0 none, 1 IPv6, 2 IPv4.
    bits l3_header / set_l3_header: u8 = 7[19:18], "l4_l3_hdr_type.l3_hdr_type";
    bits vlan_present / set_vlan_present: bool = 7[16:16], "l4_l3_hdr_type.vlan_present";
    bits vlan / set_vlan: u16 = 7[15:0], "vlan_info";
    /// The `user_index` of the queue pair (CQE version 1).
    bits user_index / set_user_index: u32 = 8[23:0], "srqn.srqn";
    /// Immediate data, opaque; or the invalidated key; or the P_Key index.
    bits immediate / set_immediate: u32 = 9[31:0], "immediate";
    bits byte_count / set_byte_count: u32 = 11[31:0], "byte_cnt";
    wide timestamp / set_timestamp: u64 = 12, "timestamp";
    /// Opcode of the send WQE that completed.
    bits send_opcode / set_send_opcode: u8 = 14[31:24], "sop_drop_qpn.sop";
    bits qpn / set_qpn: Qpn = 14[23:0], "sop_drop_qpn.qpn";
    bits wqe_counter / set_wqe_counter: u16 = 15[31:16], "wqe_counter";
    bits signature / set_signature: u8 = 15[15:8], "signature";
    bits opcode / set_opcode: CqeOpcode = 15[7:4], "op_own.opcode";
    bits format / set_format: u8 = 15[3:2], "op_own.format";
    bits solicited / set_solicited: bool = 15[1:1], "op_own.solicited";
    bits owner / set_owner: bool = 15[0:0], "op_own.owner";
}

layout! {
    /// A completion queue entry whose opcode is `REQ_ERR` or `RESP_ERR`.
    pub struct ErrorEntry, "mlx5_err_cqe", 16;
    bits user_index / set_user_index: u32 = 8[23:0], "srqn.srqn";
    bits vendor_syndrome / set_vendor_syndrome: u8 = 13[15:8], "vendor_err_synd";
    bits syndrome / set_syndrome: CqeSyndrome = 13[7:0], "syndrome";
    bits send_opcode / set_send_opcode: u8 = 14[31:24], "s_wqe_opcode_qpn.wqe_opcode";
    bits qpn / set_qpn: Qpn = 14[23:0], "s_wqe_opcode_qpn.qpn";
    bits wqe_counter / set_wqe_counter: u16 = 15[31:16], "wqe_counter";
    bits signature / set_signature: u8 = 15[15:8], "signature";
    bits opcode / set_opcode: CqeOpcode = 15[7:4], "op_own.opcode";
    bits owner / set_owner: bool = 15[0:0], "op_own.owner";
}

layout! {
    /// What differs between an entry of a compressed run and the title. The first dword depends on who completes, and for a
    /// responder on `mini_cqe_res_format`.
    pub struct MiniEntry, "mlx5_mini_cqe8", 2;
    bits wqe_counter / set_wqe_counter: u16 = 0[31:16], "s_wqe_info.wqe_counter";
    bits send_opcode / set_send_opcode: u8 = 0[15:8], "s_wqe_info.s_wqe_opcode";
    /// Of a responder.
    or rss_hash / set_rss_hash: u32 = 0[31:0], "rx_hash_result";
    /// Of a responder.
    or checksum / set_checksum: u16 = 0[31:16], "checksum";
    bits byte_count / set_byte_count: u32 = 1[31:0], "byte_cnt";
}
