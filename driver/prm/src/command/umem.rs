//! User memory objects: host pages that software registers once, in which it later places its queues.

use crate::ids::UmemId;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of CREATE_UMEM.
    pub struct CreateUmemIn, "create_umem_in", 12;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits ats / set_ats: bool = 8[31:31], "umem.ats";
    bits log_page_size / set_log_page_size: u8 = 8[4:0], "umem.log_page_size";
    bits page_offset / set_page_offset: u32 = 9[31:0], "umem.page_offset";
    wide num_of_mtt / set_num_of_mtt: u64 = 10, "umem.num_of_mtt";
}

impl CreateUmemIn {
    /// Byte offset of the variable-length `umem.mtt`.
    pub const MTT_OFFSET: usize = 48;
}

layout! {
    /// Output of CREATE_UMEM.
    pub struct CreateUmemOut, "create_umem_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits umem_id / set_umem_id: UmemId = 2[23:0], "umem_id";
}

layout! {
    /// Input of DESTROY_UMEM.
    pub struct DestroyUmemIn, "destroy_umem_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits umem_id / set_umem_id: UmemId = 2[23:0], "umem_id";
}

layout! {
    /// Output of DESTROY_UMEM.
    pub struct DestroyUmemOut, "destroy_umem_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}
