//! Work queue entries: 16-byte segments in 64-byte basic blocks (PRM, work queue entry formats).
//!
//! A send WQE is a [`ControlSegment`], then by opcode a [`RemoteAddressSegment`] or [`AtomicSegment`], then
//! [`DataSegment`]s or one inline segment ([`InlineHeader`] and bytes, padded to 16). A receive WQE is data segments
//! only, closed by one whose key is [`INVALID_LKEY`] when there is room left.

use crate::ids::{MacAddress, Mkey, Qpn};
use crate::layout;
use crate::numbering::WqeOpcode;
use zerocopy::IntoBytes;

/// Bytes of a send queue basic block; queue sizes and producer counters of a send queue count these.
pub const BASIC_BLOCK: usize = 64;
/// Bytes of a segment; the `ds` field of a control segment counts these.
pub const SEGMENT: usize = 16;
/// The key that ends the scatter list of a receive WQE early.
pub const INVALID_LKEY: Mkey = Mkey::new(0x100);
/// Bytes of the longest segment of memory, for which a byte count of zero stands.
pub const LONGEST_SEGMENT: u32 = 1 << 31;
/// A Q_Key with this bit set is not sent: the device sends that of the queue pair (IBTA v1.4 §10.2, Q_Keys).
pub const OWN_QKEY: u32 = 1 << 31;

layout! {
    /// Control segment, the first 16 bytes of every send WQE.
    pub struct ControlSegment, "mlx5_wqe_ctrl_seg", 4;
    bits opmod / set_opmod: u8 = 0[31:24], "opmod_idx_opcode.opmod";
    /// Basic block counter of this WQE, modulo 2^16.
    bits wqe_index / set_wqe_index: u16 = 0[23:8], "opmod_idx_opcode.wqe_index";
    bits opcode / set_opcode: WqeOpcode = 0[7:0], "opmod_idx_opcode.opcode";
    bits qpn / set_qpn: Qpn = 1[31:8], "qpn_ds.qpn";
    /// Length of the WQE in 16-byte segments, this one included.
    bits ds / set_ds: u8 = 1[5:0], "qpn_ds.ds";
    bits signature / set_signature: u8 = 2[31:24], "signature";
    bits fence_mode / set_fence_mode: u8 = 2[7:5], "fm_ce_se.fence_mode";
    bits completion_mode / set_completion_mode: u8 = 2[3:2], "fm_ce_se.completion_mode";
    bits solicited / set_solicited: bool = 2[1:1], "fm_ce_se.solicited";
    /// Immediate data, opaque; or the key to invalidate.
    bits immediate / set_immediate: u32 = 3[31:0], "imm";
}

/// Values of [`ControlSegment::fence_mode`].
pub mod fence_mode {
    /// None.
    pub const NONE: u8 = 0;
    /// After changes of memory keys that were posted before.
    pub const INITIATOR_SMALL: u8 = 1;
    /// After the answers to RDMA READs and atomics that were posted before.
    pub const FENCE: u8 = 2;
    /// After everything that was posted before.
    pub const STRONG_ORDERING: u8 = 3;
    /// [`INITIATOR_SMALL`] and [`FENCE`].
    pub const SMALL_AND_FENCE: u8 = 4;
}

/// Values of [`ControlSegment::completion_mode`].
pub mod completion_mode {
    /// A CQE only if the work request fails.
    pub const ON_ERROR: u8 = 0;
    /// Always a CQE.
    pub const ALWAYS: u8 = 2;
    /// Always a CQE and an event.
    pub const ALWAYS_AND_EVENT: u8 = 3;
}

layout! {
    /// Remote address segment of RDMA WRITE, RDMA READ and atomics.
    pub struct RemoteAddressSegment, "mlx5_wqe_raddr_seg", 4;
    wide address / set_address: u64 = 0, "raddr";
    bits rkey / set_rkey: Mkey = 2[31:0], "rkey";
}

layout! {
    /// Atomic segment: the value to swap in or to add, and the value to compare with.
    pub struct AtomicSegment, "mlx5_wqe_atomic_seg", 4;
    wide swap_add / set_swap_add: u64 = 0, "swap_add";
    wide compare / set_compare: u64 = 2, "compare";
}

layout! {
    /// Segment of an extended reliable connection, behind the control segment: the shared receive queue that the message
    /// is for.
    pub struct XrcSegment, "mlx5_wqe_xrc_seg", 4;
    bits srqn / set_srqn: u32 = 0[31:0], "xrc_srqn";
}

layout! {
    /// First segment of an entry of a shared receive queue: the entry that the device takes after it.
    pub struct SharedReceiveSegment, "mlx5_wqe_srq_next_seg", 4;
    bits next_wqe_index / set_next_wqe_index: u16 = 0[15:0], "next_wqe_index";
}

layout! {
    /// Masked atomic segment of compare and swap of 8 bytes; of fetch and add only the first half is used, and has the
    /// field boundaries in place of `compare`.
    pub struct MaskedAtomicSegment, "mlx5_wqe_masked_atomic_seg", 8;
    wide swap_add / set_swap_add: u64 = 0, "swap_add";
    wide compare / set_compare: u64 = 2, "compare";
    wide swap_add_mask / set_swap_add_mask: u64 = 4, "swap_add_mask";
    wide compare_mask / set_compare_mask: u64 = 6, "compare_mask";
}

layout! {
    /// Address vector of a datagram: where it goes, and through which key.
    pub struct AddressVector, "mlx5_av", 12;
    /// See [`OWN_QKEY`].
    bits qkey / set_qkey: u32 = 0[31:0], "key.qkey.qkey";
    /// Reserved, but software need not clear it: UCX leaves here what the ring held before.
    bits qkey_reserved / set_qkey_reserved: u32 = 1[31:0], "key.qkey.reserved";
    /// The vector has all 48 bytes.
    bits extended / set_extended: bool = 2[31:31], "dqp_dct.extended";
    /// The queue pair that receives.
    bits dqpn / set_dqpn: Qpn = 2[23:0], "dqp_dct.dqpn";
    /// Limit of the rate; zero is none.
    bits stat_rate / set_stat_rate: u8 = 3[31:28], "stat_rate_sl.stat_rate";
    /// Service level on InfiniBand.
    bits sl / set_sl: u8 = 3[27:24], "stat_rate_sl.sl";
    /// Service level on RoCE: the priority in the VLAN tag.
    or roce_sl / set_roce_sl: u8 = 3[27:25], "stat_rate_sl.roce_sl";
    /// The packet goes to the own port.
    bits fl / set_fl: bool = 3[23:23], "fl_mlid.fl";
    /// Path bits of the source LID.
    bits mlid / set_mlid: u8 = 3[22:16], "fl_mlid.mlid";
    bits rlid / set_rlid: u16 = 3[15:0], "rlid";
    /// On RoCE, the UDP source port.
    or udp_sport / set_udp_sport: u16 = 3[15:0], "udp_sport";
    /// Like [`Self::qkey_reserved`].
    bits reserved0 / set_reserved0: u32 = 4[31:0], "reserved0";
    bits tclass / set_tclass: u8 = 6[15:8], "tclass";
    bits hop_limit / set_hop_limit: u8 = 6[7:0], "hop_limit";
    /// There is a global route header. On RoCE there always is: Linux sets the bit, rdma-core does not.
    bits grh / set_grh: bool = 7[30:30], "grh_gid_fl.grh";
    /// Index of the source GID.
    bits sgid_index / set_sgid_index: u8 = 7[27:20], "grh_gid_fl.sgid_index";
    bits flow_label / set_flow_label: u32 = 7[19:0], "grh_gid_fl.flow_label";
    bytes rgid / set_rgid: 16 = 8, "rgid";
}

impl AddressVector {
    /// The bytes of the Ethernet address. They straddle two dwords.
    pub const REMOTE_MAC: core::ops::Range<usize> = 20..26;

    /// Ethernet address of the receiver.
    pub fn remote_mac(&self) -> MacAddress {
        MacAddress(self.as_bytes()[Self::REMOTE_MAC].try_into().unwrap_or_default())
    }

    /// Sets the Ethernet address of the receiver.
    pub fn set_remote_mac(&mut self, mac: MacAddress) -> &mut Self {
        self.as_mut_bytes()[Self::REMOTE_MAC].copy_from_slice(&mac.0);
        self
    }
}

layout! {
    /// Control of a key update (UMR): which parts of a memory key are changed. A memory key context follows, then translation
    /// entries, or data segments that say where these are.
    pub struct KeyUpdateSegment, "mlx5_wqe_umr_ctrl_seg", 12;
    /// See [`umr_flags`].
    bits flags / set_flags: u8 = 0[31:24], "flags";
    /// Octwords of translation entries.
    bits translation_octowords / set_translation_octowords: u16 = 1[31:16], "klm_octowords";
    /// First octword to be replaced, bits 15 to 0, if [`umr_flags::TRANSLATION_OFFSET`] is set; else octwords of the
    /// byte stream format.
    bits translation_offset / set_translation_offset: u16 = 1[15:0], "translation_offset";
    /// See [`mkey_mask`].
    wide mkey_mask / set_mkey_mask: u64 = 2, "mkey_mask";
    /// Bits 47 to 16 of the offset.
    bits translation_offset_47_16 / set_translation_offset_47_16: u32 = 4[31:0], "xlt_offset_47_16";
}

/// Bits of [`KeyUpdateSegment::flags`]. Linux and rdma-core name them differently: the names here say what they do.
pub mod umr_flags {
    /// The translation entries follow in the work queue entry.
    pub const INLINE: u8 = 1 << 7;
    /// The update fails if the key is free.
    pub const FAIL_IF_FREE: u8 = 1 << 6;
    /// The update fails if the key is not free.
    pub const FAIL_IF_NOT_FREE: u8 = 1 << 5;
    /// The offset of the translation counts.
    pub const TRANSLATION_OFFSET: u8 = 1 << 4;
    /// The update fails if the key belongs to another queue pair.
    pub const CHECK_QPN: u8 = 1 << 3;
}

/// Bits of [`KeyUpdateSegment::mkey_mask`]: which fields of the context become those of the key.
pub mod mkey_mask {
    /// Length and `length64`.
    pub const LENGTH: u64 = 1;
    /// `log_page_size`.
    pub const PAGE_SIZE: u64 = 1 << 1;
    /// `start_addr`.
    pub const START_ADDRESS: u64 = 1 << 6;
    /// Protection domain.
    pub const PD: u64 = 1 << 7;
    /// Whether peers may invalidate it.
    pub const REMOTE_INVALIDATE: u64 = 1 << 8;
    /// The variant byte.
    pub const KEY: u64 = 1 << 13;
    /// The queue pair.
    pub const QPN: u64 = 1 << 14;
    /// Right to local reading.
    pub const LOCAL_READ: u64 = 1 << 17;
    /// Right to local writing.
    pub const LOCAL_WRITE: u64 = 1 << 18;
    /// Right to RDMA READ.
    pub const REMOTE_READ: u64 = 1 << 19;
    /// Right to RDMA WRITE.
    pub const REMOTE_WRITE: u64 = 1 << 20;
    /// Right to atomics.
    pub const ATOMIC: u64 = 1 << 21;
    /// Small fence on RDMA READ responses.
    pub const SMALL_FENCE: u64 = 1 << 23;
    /// Relaxed ordering of writes.
    pub const RELAXED_ORDERING_WRITE: u64 = 1 << 25;
    /// Whether the key is free.
    pub const FREE: u64 = 1 << 29;
    /// Relaxed ordering of reads.
    pub const RELAXED_ORDERING_READ: u64 = 1 << 47;
}

layout! {
    /// An entry of a translation that is made of other keys.
    pub struct KeyListEntry, "mlx5_klm", 4;
    /// Bytes, at most 2^31 from work requests.
    bits byte_count / set_byte_count: u32 = 0[31:0], "bcount";
    bits key / set_key: Mkey = 1[31:0], "key";
    wide address / set_address: u64 = 2, "va";
}

layout! {
    /// Scatter/gather entry. A byte count of zero means [`LONGEST_SEGMENT`].
    pub struct DataSegment, "mlx5_wqe_data_seg", 4;
    bits byte_count / set_byte_count: u32 = 0[31:0], "byte_count";
    bits lkey / set_lkey: Mkey = 1[31:0], "lkey";
    wide address / set_address: u64 = 2, "addr";
}

layout! {
    /// The segment after the control segment of an MMO work request; the data segments of source and destination follow.
    pub struct MmoMetadataSegment, "mlx5_mmo_metadata_seg", 4;
    bits mmo_control_31_0 / set_mmo_control_31_0: u32 = 0[31:0], "mmo_control_31_0";
    /// Memory of [`mmo::OPAQUE`] bytes that the device may use meanwhile.
    bits local_key / set_local_key: Mkey = 1[31:0], "local_key";
    wide local_address / set_local_address: u64 = 2, "local_address";
}

/// Memory-to-memory operations (MMO).
pub mod mmo {
    /// The `opmod` byte of a copy.
    pub const DMA: u8 = 1;
    /// Bytes of the memory that [`MmoMetadataSegment`](super::MmoMetadataSegment) names, as rdma-core and UCX give it.
    pub const OPAQUE: usize = 64;
}

layout! {
    /// Head of an inline data segment; the bytes follow at once, the whole padded to 16.
    pub struct InlineHeader, "mlx5_wqe_inline_seg", 1;
    bits inline / set_inline: bool = 0[31:31], "byte_count.inline_flag";
    bits byte_count / set_byte_count: u16 = 0[9:0], "byte_count.length";
}

/// Values of the `opmod` byte of masked atomics: bit 3 marks them, and the low bits are the logarithm of the bytes minus two.
pub mod masked_opmod {
    /// Operands of 4 bytes.
    pub const FOUR_BYTES: u8 = 0x8;
    /// Operands of 8 bytes.
    pub const EIGHT_BYTES: u8 = 0x9;
}

layout! {
    /// Ethernet segment: offloads, then the first bytes of the packet inline, or a VLAN tag to insert.
    pub struct EthernetSegment, "mlx5_wqe_eth_seg", 4;
    bits l4_checksum / set_l4_checksum: bool = 1[31:31], "cs_flags.l4_csum";
    bits l3_checksum / set_l3_checksum: bool = 1[30:30], "cs_flags.l3_csum";
    bits l4_inner_checksum / set_l4_inner_checksum: bool = 1[29:29], "cs_flags.l4_inner_csum";
    bits l3_inner_checksum / set_l3_inner_checksum: bool = 1[28:28], "cs_flags.l3_inner_csum";
    bits swp_flags / set_swp_flags: u8 = 1[23:16], "swp_flags";
    /// Payload of a segment, for large sends.
    bits mss / set_mss: u16 = 1[15:0], "mss";
    bits flow_table_metadata / set_flow_table_metadata: u32 = 2[31:0], "flow_table_metadata";
    /// A VLAN tag is to be inserted: nothing is inline, and the dword says which tag.
    bits insert_vlan / set_insert_vlan: bool = 3[31:31], "insert.type.vlan";
    /// The tag to insert is that of a service provider (802.1ad).
    or insert_svlan / set_insert_svlan: bool = 3[16:16], "insert.type.svlan";
    /// Bytes of the packet that are inline, the first two in [`Self::inline_start`].
    bits inline_size / set_inline_size: u16 = 3[25:16], "inline_hdr.sz.size";
    /// The first two inline bytes.
    bits inline_start / set_inline_start: u16 = 3[15:0], "inline_hdr.start";
    /// The VLAN tag to insert.
    or vlan_tci / set_vlan_tci: u16 = 3[15:0], "insert.vlan_tci";
}

/// Values of the `opmod` byte of an RDMA WRITE that stand for StRoM's remote procedure calls.
///
/// **Not mlx5.** An extension of the simulated NIC: hardware refuses it, and so does the simulator unless the
/// extension is switched on. The remote address of the WQE is the RPC op-code, as in StRoM's RETH.
pub mod strom_opmod {
    /// BTH op-code 0x18, RDMA RPC Params.
    pub const RPC_PARAMS: u8 = 0x51;
    /// BTH op-codes 0x19 to 0x1c, RDMA RPC WRITE.
    pub const RPC_WRITE: u8 = 0x52;
}
