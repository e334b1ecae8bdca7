//! Memory keys.

use crate::context::MkeyContext;
use crate::ids::MkeyIndex;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

layout! {
    /// Input of CREATE_MKEY.
    pub struct CreateMkeyIn, "create_mkey_in", 68;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits pg_access / set_pg_access: bool = 3[31:31], "pg_access";
    bits mkey_umem_valid / set_mkey_umem_valid: bool = 3[30:30], "mkey_umem_valid";
    bits data_direct / set_data_direct: bool = 3[29:29], "data_direct";
    part memory_key_mkey_entry / memory_key_mkey_entry_mut: MkeyContext = 4, "memory_key_mkey_entry";
    bits translations_octword_actual_size / set_translations_octword_actual_size: u32 = 24[31:0], "translations_octword_actual_size";
    bits mkey_umem_id / set_mkey_umem_id: u32 = 25[31:0], "mkey_umem_id";
    wide mkey_umem_offset / set_mkey_umem_offset: u64 = 26, "mkey_umem_offset";
}

impl CreateMkeyIn {
    /// Byte offset of the variable-length `klm_pas_mtt`.
    pub const KLM_PAS_MTT_OFFSET: usize = 272;
}

layout! {
    /// Output of CREATE_MKEY.
    pub struct CreateMkeyOut, "create_mkey_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits mkey_index / set_mkey_index: MkeyIndex = 2[23:0], "mkey_index";
}

layout! {
    /// Input of DESTROY_MKEY.
    pub struct DestroyMkeyIn, "destroy_mkey_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits mkey_index / set_mkey_index: MkeyIndex = 2[23:0], "mkey_index";
}

layout! {
    /// Output of DESTROY_MKEY.
    pub struct DestroyMkeyOut, "destroy_mkey_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of QUERY_MKEY.
    pub struct QueryMkeyIn, "query_mkey_in", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    bits mkey_index / set_mkey_index: MkeyIndex = 2[23:0], "mkey_index";
    bits pg_access / set_pg_access: bool = 3[31:31], "pg_access";
}

layout! {
    /// Output of QUERY_MKEY.
    pub struct QueryMkeyOut, "query_mkey_out", 76;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    part memory_key_mkey_entry / memory_key_mkey_entry_mut: MkeyContext = 4, "memory_key_mkey_entry";
    bytes bsf0_klm0_pas_mtt0_1 / set_bsf0_klm0_pas_mtt0_1: 16 = 68, "bsf0_klm0_pas_mtt0_1";
    bytes bsf1_klm1_pas_mtt2_3 / set_bsf1_klm1_pas_mtt2_3: 16 = 72, "bsf1_klm1_pas_mtt2_3";
}
