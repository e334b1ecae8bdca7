//! General objects by which functions of one card share: the owner uses ALLOW_OTHER_VHCA_ACCESS; the user makes an
//! *alias*, a general object that represents an object of another function.

use crate::ids::VhcaId;
use crate::layout;
use crate::numbering::{CommandOpcode, CommandStatus};

/// Type of a memory key as a general object (UCX `src/uct/ib/mlx5/dv/ib_mlx5_ifc.h`; no table has it).
pub const OBJECT_TYPE_MKEY: u16 = 0xff01;

/// Bit of `allowed_object_for_other_vhca_access`: memory keys (UCX `ib_mlx5_ifc.h`).
pub const ALLOWED_MKEY: u64 = 0x4;
/// Bit of `cross_vhca_object_to_object_supported`: an alias of a memory key can replace a memory key (UCX
/// `ib_mlx5_ifc.h`).
pub const LOCAL_MKEY_TO_REMOTE_MKEY: u32 = 0x100;

/// Bytes of the key that the owner sets and the user has to know.
pub const ACCESS_KEY: usize = 32;

layout! {
    /// Input of ALLOW_OTHER_VHCA_ACCESS: whoever knows the key may make an alias of the object.
    pub struct AllowOtherVhcaAccessIn, "allow_other_vhca_access_in", 16;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits op_mod / set_op_mod: u16 = 1[15:0], "op_mod";
    /// See [`OBJECT_TYPE_MKEY`].
    bits object_type_to_be_accessed / set_object_type_to_be_accessed: u16 = 4[15:0], "object_type_to_be_accessed";
    /// Of a memory key its index, without the variant.
    bits object_id_to_be_accessed / set_object_id_to_be_accessed: u32 = 5[31:0], "object_id_to_be_accessed";
    bytes access_key / set_access_key: 32 = 8, "access_key";
}

layout! {
    /// Output of ALLOW_OTHER_VHCA_ACCESS.
    pub struct AllowOtherVhcaAccessOut, "allow_other_vhca_access_out", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
}

layout! {
    /// Input of CREATE_GENERAL_OBJECT up to the object, and of QUERY_ and DESTROY_GENERAL_OBJECT.
    pub struct GeneralObjectIn, "general_obj_in_cmd_hdr", 4;
    bits opcode / set_opcode: CommandOpcode = 0[31:16], "opcode";
    bits uid / set_uid: u16 = 0[15:0], "uid";
    bits obj_type / set_obj_type: u16 = 1[15:0], "obj_type";
    bits obj_id / set_obj_id: u32 = 2[31:0], "obj_id";
    /// The object is an alias; so it is created and destroyed as one.
    bits alias_object / set_alias_object: bool = 3[31:31], "alias_object";
    bits log_obj_range / set_log_obj_range: u8 = 3[28:24], "log_obj_range";
}

layout! {
    /// Output of commands about general objects up to the object.
    pub struct GeneralObjectOut, "general_obj_out_cmd_hdr", 4;
    bits status / set_status: CommandStatus = 0[31:24], "status";
    bits syndrome / set_syndrome: u32 = 1[31:0], "syndrome";
    bits obj_id / set_obj_id: u32 = 2[31:0], "obj_id";
}

layout! {
    /// The object that an alias represents.
    pub struct AliasContext, "alias_context", 16;
    bits vhca_id_to_be_accessed / set_vhca_id_to_be_accessed: VhcaId = 0[31:16], "vhca_id_to_be_accessed";
    /// Zero says that it can be used. The other values are not published.
    bits status / set_status: u8 = 0[2:0], "status";
    bits object_id_to_be_accessed / set_object_id_to_be_accessed: u32 = 1[31:0], "object_id_to_be_accessed";
    bytes access_key / set_access_key: 32 = 4, "access_key";
    /// Of the alias of a memory key the protection domain of the user.
    bits metadata_1 / set_metadata_1: u32 = 12[31:0], "metadata_1";
}

layout! {
    /// Input of CREATE_GENERAL_OBJECT for an alias.
    pub struct CreateAliasIn, "create_alias_obj_in", 20;
    part header / header_mut: GeneralObjectIn = 0, "hdr";
    part alias / alias_mut: AliasContext = 4, "alias_ctx";
}

layout! {
    /// Output of CREATE_GENERAL_OBJECT and QUERY_GENERAL_OBJECT for an alias.
    pub struct AliasOut, "create_alias_obj_out", 20;
    part header / header_mut: GeneralObjectOut = 0, "hdr";
    part alias / alias_mut: AliasContext = 4, "alias_ctx";
}
