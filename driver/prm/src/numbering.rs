//! Numberings of the device, each written once: number, name, and the name in the reference table.
//!
//! A number that is not listed is a value (`Unknown`), never an error and never a panic: firmware is newer than any
//! table. The oracle test compares every row with `tests/vectors/prm/enums.csv`.

use crate::field::FieldValue;
use core::fmt;

/// One row of a numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberInfo {
    /// The number.
    pub value: u32,
    /// The name that is shown.
    pub name: &'static str,
    /// The name in the reference table.
    pub prm_name: &'static str,
}

/// A whole numbering, as the oracle test walks it.
#[derive(Debug, Clone, Copy)]
pub struct NumberingInfo {
    /// Name of the Rust type.
    pub name: &'static str,
    /// Group in the reference table.
    pub prm_group: &'static str,
    /// All rows.
    pub rows: &'static [NumberInfo],
}

macro_rules! numbering {
    (
        $(#[$meta:meta])*
        pub enum $ty:ident: $repr:ty, $width:literal, $group:literal;
        $($variant:ident = $value:literal, $name:literal, $prm:literal;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $ty {
            $(
                #[doc = concat!("`", $prm, "`, ", stringify!($value), ".")]
                $variant,
            )*
            /// A number that is not in the table.
            Unknown($repr),
        }

        impl $ty {
            /// The numbering as a table.
            pub const INFO: NumberingInfo = NumberingInfo {
                name: stringify!($ty),
                prm_group: $group,
                rows: &[$(NumberInfo { value: $value, name: $name, prm_name: $prm }),*],
            };
            /// The value of a raw number. Never fails.
            #[inline]
            pub const fn from_raw(raw: $repr) -> Self {
                match raw {
                    $($value => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }
            /// The raw number.
            #[inline]
            pub const fn raw(self) -> $repr {
                match self {
                    $(Self::$variant => $value,)*
                    Self::Unknown(other) => other,
                }
            }
            /// The name in the manual, or `UNKNOWN`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }
        }

        impl FieldValue for $ty {
            const WIDTH: u32 = $width;
            #[inline]
            fn to_field(self) -> u32 {
                self.raw() as u32
            }
            #[inline]
            fn from_field(raw: u32) -> Self {
                Self::from_raw(raw as $repr)
            }
        }

        impl fmt::Debug for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:#x})", self.name(), self.raw())
            }
        }
    };
}

numbering! {
    /// Opcodes of the command interface (PRM, command reference).
    pub enum CommandOpcode: u16, 16, "cmd_op";
    QueryHcaCap = 0x100, "QUERY_HCA_CAP", "MLX5_CMD_OP_QUERY_HCA_CAP";
    QueryAdapter = 0x101, "QUERY_ADAPTER", "MLX5_CMD_OP_QUERY_ADAPTER";
    InitHca = 0x102, "INIT_HCA", "MLX5_CMD_OP_INIT_HCA";
    TeardownHca = 0x103, "TEARDOWN_HCA", "MLX5_CMD_OP_TEARDOWN_HCA";
    EnableHca = 0x104, "ENABLE_HCA", "MLX5_CMD_OP_ENABLE_HCA";
    DisableHca = 0x105, "DISABLE_HCA", "MLX5_CMD_OP_DISABLE_HCA";
    QueryPages = 0x107, "QUERY_PAGES", "MLX5_CMD_OP_QUERY_PAGES";
    ManagePages = 0x108, "MANAGE_PAGES", "MLX5_CMD_OP_MANAGE_PAGES";
    SetHcaCap = 0x109, "SET_HCA_CAP", "MLX5_CMD_OP_SET_HCA_CAP";
    QueryIssi = 0x10a, "QUERY_ISSI", "MLX5_CMD_OP_QUERY_ISSI";
    SetIssi = 0x10b, "SET_ISSI", "MLX5_CMD_OP_SET_ISSI";
    SetDriverVersion = 0x10d, "SET_DRIVER_VERSION", "MLX5_CMD_OP_SET_DRIVER_VERSION";
    QuerySfPartition = 0x111, "QUERY_SF_PARTITION", "MLX5_CMD_OP_QUERY_SF_PARTITION";
    AllocSf = 0x113, "ALLOC_SF", "MLX5_CMD_OP_ALLOC_SF";
    DeallocSf = 0x114, "DEALLOC_SF", "MLX5_CMD_OP_DEALLOC_SF";
    SuspendVhca = 0x115, "SUSPEND_VHCA", "MLX5_CMD_OP_SUSPEND_VHCA";
    ResumeVhca = 0x116, "RESUME_VHCA", "MLX5_CMD_OP_RESUME_VHCA";
    QueryVhcaMigrationState = 0x117, "QUERY_VHCA_MIGRATION_STATE", "MLX5_CMD_OP_QUERY_VHCA_MIGRATION_STATE";
    SaveVhcaState = 0x118, "SAVE_VHCA_STATE", "MLX5_CMD_OP_SAVE_VHCA_STATE";
    LoadVhcaState = 0x119, "LOAD_VHCA_STATE", "MLX5_CMD_OP_LOAD_VHCA_STATE";
    CreateMkey = 0x200, "CREATE_MKEY", "MLX5_CMD_OP_CREATE_MKEY";
    QueryMkey = 0x201, "QUERY_MKEY", "MLX5_CMD_OP_QUERY_MKEY";
    DestroyMkey = 0x202, "DESTROY_MKEY", "MLX5_CMD_OP_DESTROY_MKEY";
    QuerySpecialContexts = 0x203, "QUERY_SPECIAL_CONTEXTS", "MLX5_CMD_OP_QUERY_SPECIAL_CONTEXTS";
    PageFaultResume = 0x204, "PAGE_FAULT_RESUME", "MLX5_CMD_OP_PAGE_FAULT_RESUME";
    AllocMemic = 0x205, "ALLOC_MEMIC", "MLX5_CMD_OP_ALLOC_MEMIC";
    DeallocMemic = 0x206, "DEALLOC_MEMIC", "MLX5_CMD_OP_DEALLOC_MEMIC";
    ModifyMemic = 0x207, "MODIFY_MEMIC", "MLX5_CMD_OP_MODIFY_MEMIC";
    CreateEq = 0x301, "CREATE_EQ", "MLX5_CMD_OP_CREATE_EQ";
    DestroyEq = 0x302, "DESTROY_EQ", "MLX5_CMD_OP_DESTROY_EQ";
    QueryEq = 0x303, "QUERY_EQ", "MLX5_CMD_OP_QUERY_EQ";
    GenEqe = 0x304, "GEN_EQE", "MLX5_CMD_OP_GEN_EQE";
    CreateCq = 0x400, "CREATE_CQ", "MLX5_CMD_OP_CREATE_CQ";
    DestroyCq = 0x401, "DESTROY_CQ", "MLX5_CMD_OP_DESTROY_CQ";
    QueryCq = 0x402, "QUERY_CQ", "MLX5_CMD_OP_QUERY_CQ";
    ModifyCq = 0x403, "MODIFY_CQ", "MLX5_CMD_OP_MODIFY_CQ";
    CreateQp = 0x500, "CREATE_QP", "MLX5_CMD_OP_CREATE_QP";
    DestroyQp = 0x501, "DESTROY_QP", "MLX5_CMD_OP_DESTROY_QP";
    ResetToInitQp = 0x502, "RST2INIT_QP", "MLX5_CMD_OP_RST2INIT_QP";
    InitToRtrQp = 0x503, "INIT2RTR_QP", "MLX5_CMD_OP_INIT2RTR_QP";
    RtrToRtsQp = 0x504, "RTR2RTS_QP", "MLX5_CMD_OP_RTR2RTS_QP";
    RtsToRtsQp = 0x505, "RTS2RTS_QP", "MLX5_CMD_OP_RTS2RTS_QP";
    SqErrorToRtsQp = 0x506, "SQERR2RTS_QP", "MLX5_CMD_OP_SQERR2RTS_QP";
    ToErrorQp = 0x507, "2ERR_QP", "MLX5_CMD_OP_2ERR_QP";
    RtsToSqdQp = 0x508, "RTS2SQD_QP", "MLX5_CMD_OP_RTS2SQD_QP";
    ToResetQp = 0x50a, "2RST_QP", "MLX5_CMD_OP_2RST_QP";
    QueryQp = 0x50b, "QUERY_QP", "MLX5_CMD_OP_QUERY_QP";
    SqdToRtsQp = 0x50c, "SQD_RTS_QP", "MLX5_CMD_OP_SQD_RTS_QP";
    MadIfc = 0x50d, "MAD_IFC", "MLX5_CMD_OP_MAD_IFC";
    InitToInitQp = 0x50e, "INIT2INIT_QP", "MLX5_CMD_OP_INIT2INIT_QP";
    SqdToSqdQp = 0x511, "SQD2SQD_QP", "MLX5_CMD_OP_SQD2SQD_QP";
    CreatePsv = 0x600, "CREATE_PSV", "MLX5_CMD_OP_CREATE_PSV";
    DestroyPsv = 0x601, "DESTROY_PSV", "MLX5_CMD_OP_DESTROY_PSV";
    CreateSrq = 0x700, "CREATE_SRQ", "MLX5_CMD_OP_CREATE_SRQ";
    DestroySrq = 0x701, "DESTROY_SRQ", "MLX5_CMD_OP_DESTROY_SRQ";
    QuerySrq = 0x702, "QUERY_SRQ", "MLX5_CMD_OP_QUERY_SRQ";
    ArmRq = 0x703, "ARM_RQ", "MLX5_CMD_OP_ARM_RQ";
    CreateXrcSrq = 0x705, "CREATE_XRC_SRQ", "MLX5_CMD_OP_CREATE_XRC_SRQ";
    DestroyXrcSrq = 0x706, "DESTROY_XRC_SRQ", "MLX5_CMD_OP_DESTROY_XRC_SRQ";
    QueryXrcSrq = 0x707, "QUERY_XRC_SRQ", "MLX5_CMD_OP_QUERY_XRC_SRQ";
    ArmXrcSrq = 0x708, "ARM_XRC_SRQ", "MLX5_CMD_OP_ARM_XRC_SRQ";
    CreateDct = 0x710, "CREATE_DCT", "MLX5_CMD_OP_CREATE_DCT";
    DestroyDct = 0x711, "DESTROY_DCT", "MLX5_CMD_OP_DESTROY_DCT";
    DrainDct = 0x712, "DRAIN_DCT", "MLX5_CMD_OP_DRAIN_DCT";
    QueryDct = 0x713, "QUERY_DCT", "MLX5_CMD_OP_QUERY_DCT";
    ArmDctForKeyViolation = 0x714, "ARM_DCT_FOR_KEY_VIOLATION", "MLX5_CMD_OP_ARM_DCT_FOR_KEY_VIOLATION";
    CreateXrq = 0x717, "CREATE_XRQ", "MLX5_CMD_OP_CREATE_XRQ";
    DestroyXrq = 0x718, "DESTROY_XRQ", "MLX5_CMD_OP_DESTROY_XRQ";
    QueryXrq = 0x719, "QUERY_XRQ", "MLX5_CMD_OP_QUERY_XRQ";
    ArmXrq = 0x71a, "ARM_XRQ", "MLX5_CMD_OP_ARM_XRQ";
    QueryXrqDcParamsEntry = 0x725, "QUERY_XRQ_DC_PARAMS_ENTRY", "MLX5_CMD_OP_QUERY_XRQ_DC_PARAMS_ENTRY";
    SetXrqDcParamsEntry = 0x726, "SET_XRQ_DC_PARAMS_ENTRY", "MLX5_CMD_OP_SET_XRQ_DC_PARAMS_ENTRY";
    QueryXrqErrorParams = 0x727, "QUERY_XRQ_ERROR_PARAMS", "MLX5_CMD_OP_QUERY_XRQ_ERROR_PARAMS";
    ReleaseXrqError = 0x729, "RELEASE_XRQ_ERROR", "MLX5_CMD_OP_RELEASE_XRQ_ERROR";
    ModifyXrq = 0x72a, "MODIFY_XRQ", "MLX5_CMD_OP_MODIFY_XRQ";
    QueryEswFunctions = 0x740, "QUERY_ESW_FUNCTIONS", "MLX5_CMD_OP_QUERY_ESW_FUNCTIONS";
    QueryVportState = 0x750, "QUERY_VPORT_STATE", "MLX5_CMD_OP_QUERY_VPORT_STATE";
    ModifyVportState = 0x751, "MODIFY_VPORT_STATE", "MLX5_CMD_OP_MODIFY_VPORT_STATE";
    QueryEswVportContext = 0x752, "QUERY_ESW_VPORT_CONTEXT", "MLX5_CMD_OP_QUERY_ESW_VPORT_CONTEXT";
    ModifyEswVportContext = 0x753, "MODIFY_ESW_VPORT_CONTEXT", "MLX5_CMD_OP_MODIFY_ESW_VPORT_CONTEXT";
    QueryNicVportContext = 0x754, "QUERY_NIC_VPORT_CONTEXT", "MLX5_CMD_OP_QUERY_NIC_VPORT_CONTEXT";
    ModifyNicVportContext = 0x755, "MODIFY_NIC_VPORT_CONTEXT", "MLX5_CMD_OP_MODIFY_NIC_VPORT_CONTEXT";
    QueryRoceAddress = 0x760, "QUERY_ROCE_ADDRESS", "MLX5_CMD_OP_QUERY_ROCE_ADDRESS";
    SetRoceAddress = 0x761, "SET_ROCE_ADDRESS", "MLX5_CMD_OP_SET_ROCE_ADDRESS";
    QueryHcaVportContext = 0x762, "QUERY_HCA_VPORT_CONTEXT", "MLX5_CMD_OP_QUERY_HCA_VPORT_CONTEXT";
    ModifyHcaVportContext = 0x763, "MODIFY_HCA_VPORT_CONTEXT", "MLX5_CMD_OP_MODIFY_HCA_VPORT_CONTEXT";
    QueryHcaVportGid = 0x764, "QUERY_HCA_VPORT_GID", "MLX5_CMD_OP_QUERY_HCA_VPORT_GID";
    QueryHcaVportPkey = 0x765, "QUERY_HCA_VPORT_PKEY", "MLX5_CMD_OP_QUERY_HCA_VPORT_PKEY";
    QueryVnicEnv = 0x76f, "QUERY_VNIC_ENV", "MLX5_CMD_OP_QUERY_VNIC_ENV";
    QueryVportCounter = 0x770, "QUERY_VPORT_COUNTER", "MLX5_CMD_OP_QUERY_VPORT_COUNTER";
    AllocQCounter = 0x771, "ALLOC_Q_COUNTER", "MLX5_CMD_OP_ALLOC_Q_COUNTER";
    DeallocQCounter = 0x772, "DEALLOC_Q_COUNTER", "MLX5_CMD_OP_DEALLOC_Q_COUNTER";
    QueryQCounter = 0x773, "QUERY_Q_COUNTER", "MLX5_CMD_OP_QUERY_Q_COUNTER";
    SetMonitorCounter = 0x774, "SET_MONITOR_COUNTER", "MLX5_CMD_OP_SET_MONITOR_COUNTER";
    ArmMonitorCounter = 0x775, "ARM_MONITOR_COUNTER", "MLX5_CMD_OP_ARM_MONITOR_COUNTER";
    SetPpRateLimit = 0x780, "SET_PP_RATE_LIMIT", "MLX5_CMD_OP_SET_PP_RATE_LIMIT";
    QueryRateLimit = 0x781, "QUERY_RATE_LIMIT", "MLX5_CMD_OP_QUERY_RATE_LIMIT";
    CreateSchedulingElement = 0x782, "CREATE_SCHEDULING_ELEMENT", "MLX5_CMD_OP_CREATE_SCHEDULING_ELEMENT";
    DestroySchedulingElement = 0x783, "DESTROY_SCHEDULING_ELEMENT", "MLX5_CMD_OP_DESTROY_SCHEDULING_ELEMENT";
    QuerySchedulingElement = 0x784, "QUERY_SCHEDULING_ELEMENT", "MLX5_CMD_OP_QUERY_SCHEDULING_ELEMENT";
    ModifySchedulingElement = 0x785, "MODIFY_SCHEDULING_ELEMENT", "MLX5_CMD_OP_MODIFY_SCHEDULING_ELEMENT";
    CreateQosParaVport = 0x786, "CREATE_QOS_PARA_VPORT", "MLX5_CMD_OP_CREATE_QOS_PARA_VPORT";
    DestroyQosParaVport = 0x787, "DESTROY_QOS_PARA_VPORT", "MLX5_CMD_OP_DESTROY_QOS_PARA_VPORT";
    AllocPd = 0x800, "ALLOC_PD", "MLX5_CMD_OP_ALLOC_PD";
    DeallocPd = 0x801, "DEALLOC_PD", "MLX5_CMD_OP_DEALLOC_PD";
    AllocUar = 0x802, "ALLOC_UAR", "MLX5_CMD_OP_ALLOC_UAR";
    DeallocUar = 0x803, "DEALLOC_UAR", "MLX5_CMD_OP_DEALLOC_UAR";
    ConfigIntModeration = 0x804, "CONFIG_INT_MODERATION", "MLX5_CMD_OP_CONFIG_INT_MODERATION";
    AccessReg = 0x805, "ACCESS_REG", "MLX5_CMD_OP_ACCESS_REG";
    AttachToMcg = 0x806, "ATTACH_TO_MCG", "MLX5_CMD_OP_ATTACH_TO_MCG";
    DetachFromMcg = 0x807, "DETACH_FROM_MCG", "MLX5_CMD_OP_DETACH_FROM_MCG";
    GetDroppedPacketLog = 0x80a, "GET_DROPPED_PACKET_LOG", "MLX5_CMD_OP_GET_DROPPED_PACKET_LOG";
    QueryMadDemux = 0x80b, "QUERY_MAD_DEMUX", "MLX5_CMD_OP_QUERY_MAD_DEMUX";
    SetMadDemux = 0x80c, "SET_MAD_DEMUX", "MLX5_CMD_OP_SET_MAD_DEMUX";
    Nop = 0x80d, "NOP", "MLX5_CMD_OP_NOP";
    AllocXrcd = 0x80e, "ALLOC_XRCD", "MLX5_CMD_OP_ALLOC_XRCD";
    DeallocXrcd = 0x80f, "DEALLOC_XRCD", "MLX5_CMD_OP_DEALLOC_XRCD";
    AllocTransportDomain = 0x816, "ALLOC_TRANSPORT_DOMAIN", "MLX5_CMD_OP_ALLOC_TRANSPORT_DOMAIN";
    DeallocTransportDomain = 0x817, "DEALLOC_TRANSPORT_DOMAIN", "MLX5_CMD_OP_DEALLOC_TRANSPORT_DOMAIN";
    QueryCongStatus = 0x822, "QUERY_CONG_STATUS", "MLX5_CMD_OP_QUERY_CONG_STATUS";
    ModifyCongStatus = 0x823, "MODIFY_CONG_STATUS", "MLX5_CMD_OP_MODIFY_CONG_STATUS";
    QueryCongParams = 0x824, "QUERY_CONG_PARAMS", "MLX5_CMD_OP_QUERY_CONG_PARAMS";
    ModifyCongParams = 0x825, "MODIFY_CONG_PARAMS", "MLX5_CMD_OP_MODIFY_CONG_PARAMS";
    QueryCongStatistics = 0x826, "QUERY_CONG_STATISTICS", "MLX5_CMD_OP_QUERY_CONG_STATISTICS";
    AddVxlanUdpDport = 0x827, "ADD_VXLAN_UDP_DPORT", "MLX5_CMD_OP_ADD_VXLAN_UDP_DPORT";
    DeleteVxlanUdpDport = 0x828, "DELETE_VXLAN_UDP_DPORT", "MLX5_CMD_OP_DELETE_VXLAN_UDP_DPORT";
    SetL2TableEntry = 0x829, "SET_L2_TABLE_ENTRY", "MLX5_CMD_OP_SET_L2_TABLE_ENTRY";
    QueryL2TableEntry = 0x82a, "QUERY_L2_TABLE_ENTRY", "MLX5_CMD_OP_QUERY_L2_TABLE_ENTRY";
    DeleteL2TableEntry = 0x82b, "DELETE_L2_TABLE_ENTRY", "MLX5_CMD_OP_DELETE_L2_TABLE_ENTRY";
    SetWolRol = 0x830, "SET_WOL_ROL", "MLX5_CMD_OP_SET_WOL_ROL";
    QueryWolRol = 0x831, "QUERY_WOL_ROL", "MLX5_CMD_OP_QUERY_WOL_ROL";
    CreateLag = 0x840, "CREATE_LAG", "MLX5_CMD_OP_CREATE_LAG";
    ModifyLag = 0x841, "MODIFY_LAG", "MLX5_CMD_OP_MODIFY_LAG";
    QueryLag = 0x842, "QUERY_LAG", "MLX5_CMD_OP_QUERY_LAG";
    DestroyLag = 0x843, "DESTROY_LAG", "MLX5_CMD_OP_DESTROY_LAG";
    CreateVportLag = 0x844, "CREATE_VPORT_LAG", "MLX5_CMD_OP_CREATE_VPORT_LAG";
    DestroyVportLag = 0x845, "DESTROY_VPORT_LAG", "MLX5_CMD_OP_DESTROY_VPORT_LAG";
    CreateTir = 0x900, "CREATE_TIR", "MLX5_CMD_OP_CREATE_TIR";
    ModifyTir = 0x901, "MODIFY_TIR", "MLX5_CMD_OP_MODIFY_TIR";
    DestroyTir = 0x902, "DESTROY_TIR", "MLX5_CMD_OP_DESTROY_TIR";
    QueryTir = 0x903, "QUERY_TIR", "MLX5_CMD_OP_QUERY_TIR";
    CreateSq = 0x904, "CREATE_SQ", "MLX5_CMD_OP_CREATE_SQ";
    ModifySq = 0x905, "MODIFY_SQ", "MLX5_CMD_OP_MODIFY_SQ";
    DestroySq = 0x906, "DESTROY_SQ", "MLX5_CMD_OP_DESTROY_SQ";
    QuerySq = 0x907, "QUERY_SQ", "MLX5_CMD_OP_QUERY_SQ";
    CreateRq = 0x908, "CREATE_RQ", "MLX5_CMD_OP_CREATE_RQ";
    ModifyRq = 0x909, "MODIFY_RQ", "MLX5_CMD_OP_MODIFY_RQ";
    DestroyRq = 0x90a, "DESTROY_RQ", "MLX5_CMD_OP_DESTROY_RQ";
    QueryRq = 0x90b, "QUERY_RQ", "MLX5_CMD_OP_QUERY_RQ";
    CreateRmp = 0x90c, "CREATE_RMP", "MLX5_CMD_OP_CREATE_RMP";
    ModifyRmp = 0x90d, "MODIFY_RMP", "MLX5_CMD_OP_MODIFY_RMP";
    DestroyRmp = 0x90e, "DESTROY_RMP", "MLX5_CMD_OP_DESTROY_RMP";
    QueryRmp = 0x90f, "QUERY_RMP", "MLX5_CMD_OP_QUERY_RMP";
    SetDelayDropParams = 0x910, "SET_DELAY_DROP_PARAMS", "MLX5_CMD_OP_SET_DELAY_DROP_PARAMS";
    CreateTis = 0x912, "CREATE_TIS", "MLX5_CMD_OP_CREATE_TIS";
    ModifyTis = 0x913, "MODIFY_TIS", "MLX5_CMD_OP_MODIFY_TIS";
    DestroyTis = 0x914, "DESTROY_TIS", "MLX5_CMD_OP_DESTROY_TIS";
    QueryTis = 0x915, "QUERY_TIS", "MLX5_CMD_OP_QUERY_TIS";
    CreateRqt = 0x916, "CREATE_RQT", "MLX5_CMD_OP_CREATE_RQT";
    ModifyRqt = 0x917, "MODIFY_RQT", "MLX5_CMD_OP_MODIFY_RQT";
    DestroyRqt = 0x918, "DESTROY_RQT", "MLX5_CMD_OP_DESTROY_RQT";
    QueryRqt = 0x919, "QUERY_RQT", "MLX5_CMD_OP_QUERY_RQT";
    SetFlowTableRoot = 0x92f, "SET_FLOW_TABLE_ROOT", "MLX5_CMD_OP_SET_FLOW_TABLE_ROOT";
    CreateFlowTable = 0x930, "CREATE_FLOW_TABLE", "MLX5_CMD_OP_CREATE_FLOW_TABLE";
    DestroyFlowTable = 0x931, "DESTROY_FLOW_TABLE", "MLX5_CMD_OP_DESTROY_FLOW_TABLE";
    QueryFlowTable = 0x932, "QUERY_FLOW_TABLE", "MLX5_CMD_OP_QUERY_FLOW_TABLE";
    CreateFlowGroup = 0x933, "CREATE_FLOW_GROUP", "MLX5_CMD_OP_CREATE_FLOW_GROUP";
    DestroyFlowGroup = 0x934, "DESTROY_FLOW_GROUP", "MLX5_CMD_OP_DESTROY_FLOW_GROUP";
    QueryFlowGroup = 0x935, "QUERY_FLOW_GROUP", "MLX5_CMD_OP_QUERY_FLOW_GROUP";
    SetFlowTableEntry = 0x936, "SET_FLOW_TABLE_ENTRY", "MLX5_CMD_OP_SET_FLOW_TABLE_ENTRY";
    QueryFlowTableEntry = 0x937, "QUERY_FLOW_TABLE_ENTRY", "MLX5_CMD_OP_QUERY_FLOW_TABLE_ENTRY";
    DeleteFlowTableEntry = 0x938, "DELETE_FLOW_TABLE_ENTRY", "MLX5_CMD_OP_DELETE_FLOW_TABLE_ENTRY";
    AllocFlowCounter = 0x939, "ALLOC_FLOW_COUNTER", "MLX5_CMD_OP_ALLOC_FLOW_COUNTER";
    DeallocFlowCounter = 0x93a, "DEALLOC_FLOW_COUNTER", "MLX5_CMD_OP_DEALLOC_FLOW_COUNTER";
    QueryFlowCounter = 0x93b, "QUERY_FLOW_COUNTER", "MLX5_CMD_OP_QUERY_FLOW_COUNTER";
    ModifyFlowTable = 0x93c, "MODIFY_FLOW_TABLE", "MLX5_CMD_OP_MODIFY_FLOW_TABLE";
    AllocPacketReformatContext = 0x93d, "ALLOC_PACKET_REFORMAT_CONTEXT", "MLX5_CMD_OP_ALLOC_PACKET_REFORMAT_CONTEXT";
    DeallocPacketReformatContext = 0x93e, "DEALLOC_PACKET_REFORMAT_CONTEXT", "MLX5_CMD_OP_DEALLOC_PACKET_REFORMAT_CONTEXT";
    QueryPacketReformatContext = 0x93f, "QUERY_PACKET_REFORMAT_CONTEXT", "MLX5_CMD_OP_QUERY_PACKET_REFORMAT_CONTEXT";
    AllocModifyHeaderContext = 0x940, "ALLOC_MODIFY_HEADER_CONTEXT", "MLX5_CMD_OP_ALLOC_MODIFY_HEADER_CONTEXT";
    DeallocModifyHeaderContext = 0x941, "DEALLOC_MODIFY_HEADER_CONTEXT", "MLX5_CMD_OP_DEALLOC_MODIFY_HEADER_CONTEXT";
    QueryModifyHeaderContext = 0x942, "QUERY_MODIFY_HEADER_CONTEXT", "MLX5_CMD_OP_QUERY_MODIFY_HEADER_CONTEXT";
    FpgaCreateQp = 0x960, "FPGA_CREATE_QP", "MLX5_CMD_OP_FPGA_CREATE_QP";
    FpgaModifyQp = 0x961, "FPGA_MODIFY_QP", "MLX5_CMD_OP_FPGA_MODIFY_QP";
    FpgaQueryQp = 0x962, "FPGA_QUERY_QP", "MLX5_CMD_OP_FPGA_QUERY_QP";
    FpgaDestroyQp = 0x963, "FPGA_DESTROY_QP", "MLX5_CMD_OP_FPGA_DESTROY_QP";
    FpgaQueryQpCounters = 0x964, "FPGA_QUERY_QP_COUNTERS", "MLX5_CMD_OP_FPGA_QUERY_QP_COUNTERS";
    CreateGeneralObject = 0xa00, "CREATE_GENERAL_OBJECT", "MLX5_CMD_OP_CREATE_GENERAL_OBJECT";
    ModifyGeneralObject = 0xa01, "MODIFY_GENERAL_OBJECT", "MLX5_CMD_OP_MODIFY_GENERAL_OBJECT";
    QueryGeneralObject = 0xa02, "QUERY_GENERAL_OBJECT", "MLX5_CMD_OP_QUERY_GENERAL_OBJECT";
    DestroyGeneralObject = 0xa03, "DESTROY_GENERAL_OBJECT", "MLX5_CMD_OP_DESTROY_GENERAL_OBJECT";
    CreateUctx = 0xa04, "CREATE_UCTX", "MLX5_CMD_OP_CREATE_UCTX";
    DestroyUctx = 0xa06, "DESTROY_UCTX", "MLX5_CMD_OP_DESTROY_UCTX";
    CreateUmem = 0xa08, "CREATE_UMEM", "MLX5_CMD_OP_CREATE_UMEM";
    DestroyUmem = 0xa0a, "DESTROY_UMEM", "MLX5_CMD_OP_DESTROY_UMEM";
    SyncSteering = 0xb00, "SYNC_STEERING", "MLX5_CMD_OP_SYNC_STEERING";
    QueryVhcaState = 0xb0d, "QUERY_VHCA_STATE", "MLX5_CMD_OP_QUERY_VHCA_STATE";
    ModifyVhcaState = 0xb0e, "MODIFY_VHCA_STATE", "MLX5_CMD_OP_MODIFY_VHCA_STATE";
    SyncCrypto = 0xb12, "SYNC_CRYPTO", "MLX5_CMD_OP_SYNC_CRYPTO";
    AllowOtherVhcaAccess = 0xb16, "ALLOW_OTHER_VHCA_ACCESS", "MLX5_CMD_OP_ALLOW_OTHER_VHCA_ACCESS";
    GenerateWqe = 0xb17, "GENERATE_WQE", "MLX5_CMD_OP_GENERATE_WQE";
}

numbering! {
    /// Status byte of a command output.
    pub enum CommandStatus: u8, 8, "cmd_status";
    Ok = 0x0, "OK", "MLX5_CMD_STAT_OK";
    InternalError = 0x1, "INT_ERR", "MLX5_CMD_STAT_INT_ERR";
    BadOpcode = 0x2, "BAD_OP_ERR", "MLX5_CMD_STAT_BAD_OP_ERR";
    BadParameter = 0x3, "BAD_PARAM_ERR", "MLX5_CMD_STAT_BAD_PARAM_ERR";
    BadSystemState = 0x4, "BAD_SYS_STATE_ERR", "MLX5_CMD_STAT_BAD_SYS_STATE_ERR";
    BadResource = 0x5, "BAD_RES_ERR", "MLX5_CMD_STAT_BAD_RES_ERR";
    ResourceBusy = 0x6, "RES_BUSY", "MLX5_CMD_STAT_RES_BUSY";
    NotReady = 0x7, "NOT_READY", "MLX5_CMD_STAT_NOT_READY";
    ExceedsLimit = 0x8, "LIM_ERR", "MLX5_CMD_STAT_LIM_ERR";
    BadResourceState = 0x9, "BAD_RES_STATE_ERR", "MLX5_CMD_STAT_BAD_RES_STATE_ERR";
    BadIndex = 0xa, "IX_ERR", "MLX5_CMD_STAT_IX_ERR";
    NoResources = 0xf, "NO_RES_ERR", "MLX5_CMD_STAT_NO_RES_ERR";
    BadQpState = 0x10, "BAD_QP_STATE_ERR", "MLX5_CMD_STAT_BAD_QP_STATE_ERR";
    BadPacket = 0x30, "BAD_PKT_ERR", "MLX5_CMD_STAT_BAD_PKT_ERR";
    BadSizeOutstandingCqes = 0x40, "BAD_SIZE_OUTS_CQES_ERR", "MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR";
    BadInputLength = 0x50, "BAD_INP_LEN_ERR", "MLX5_CMD_STAT_BAD_INP_LEN_ERR";
    BadOutputLength = 0x51, "BAD_OUTP_LEN_ERR", "MLX5_CMD_STAT_BAD_OUTP_LEN_ERR";
}

numbering! {
    /// Delivery status of a command queue entry.
    pub enum DeliveryStatus: u8, 7, "cmd_delivery_status";
    Ok = 0x0, "OK", "MLX5_CMD_DELIVERY_STAT_OK";
    SignatureError = 0x1, "SIGNAT_ERR", "MLX5_CMD_DELIVERY_STAT_SIGNAT_ERR";
    TokenError = 0x2, "TOK_ERR", "MLX5_CMD_DELIVERY_STAT_TOK_ERR";
    BadBlockNumber = 0x3, "BAD_BLK_NUM_ERR", "MLX5_CMD_DELIVERY_STAT_BAD_BLK_NUM_ERR";
    OutputPointerAlignment = 0x4, "OUT_PTR_ALIGN_ERR", "MLX5_CMD_DELIVERY_STAT_OUT_PTR_ALIGN_ERR";
    InputPointerAlignment = 0x5, "IN_PTR_ALIGN_ERR", "MLX5_CMD_DELIVERY_STAT_IN_PTR_ALIGN_ERR";
    FirmwareError = 0x6, "FW_ERR", "MLX5_CMD_DELIVERY_STAT_FW_ERR";
    InputLength = 0x7, "IN_LENGTH_ERR", "MLX5_CMD_DELIVERY_STAT_IN_LENGTH_ERR";
    OutputLength = 0x8, "OUT_LENGTH_ERR", "MLX5_CMD_DELIVERY_STAT_OUT_LENGTH_ERR";
    ReservedFieldNotClear = 0x9, "RES_FLD_NOT_CLR_ERR", "MLX5_CMD_DELIVERY_STAT_RES_FLD_NOT_CLR_ERR";
    BadCommandDescriptor = 0x10, "CMD_DESCR_ERR", "MLX5_CMD_DELIVERY_STAT_CMD_DESCR_ERR";
}

numbering! {
    /// Opcode of a work queue entry.
    pub enum WqeOpcode: u8, 8, "wqe_opcode";
    Nop = 0x0, "NOP", "MLX5_OPCODE_NOP";
    SendInval = 0x1, "SEND_INVAL", "MLX5_OPCODE_SEND_INVAL";
    RdmaWrite = 0x8, "RDMA_WRITE", "MLX5_OPCODE_RDMA_WRITE";
    RdmaWriteImm = 0x9, "RDMA_WRITE_IMM", "MLX5_OPCODE_RDMA_WRITE_IMM";
    Send = 0xa, "SEND", "MLX5_OPCODE_SEND";
    SendImm = 0xb, "SEND_IMM", "MLX5_OPCODE_SEND_IMM";
    Lso = 0xe, "LSO", "MLX5_OPCODE_LSO";
    RdmaRead = 0x10, "RDMA_READ", "MLX5_OPCODE_RDMA_READ";
    AtomicCompareSwap = 0x11, "ATOMIC_CS", "MLX5_OPCODE_ATOMIC_CS";
    AtomicFetchAdd = 0x12, "ATOMIC_FA", "MLX5_OPCODE_ATOMIC_FA";
    AtomicMaskedCompareSwap = 0x14, "ATOMIC_MASKED_CS", "MLX5_OPCODE_ATOMIC_MASKED_CS";
    AtomicMaskedFetchAdd = 0x15, "ATOMIC_MASKED_FA", "MLX5_OPCODE_ATOMIC_MASKED_FA";
    BindMw = 0x18, "BIND_MW", "MLX5_OPCODE_BIND_MW";
    Fmr = 0x19, "FMR", "MLX5_OPCODE_FMR";
    LocalInval = 0x1b, "LOCAL_INVAL", "MLX5_OPCODE_LOCAL_INVAL";
    ConfigCmd = 0x1f, "CONFIG_CMD", "MLX5_OPCODE_CONFIG_CMD";
    SetPsv = 0x20, "SET_PSV", "MLX5_OPCODE_SET_PSV";
    GetPsv = 0x21, "GET_PSV", "MLX5_OPCODE_GET_PSV";
    CheckPsv = 0x22, "CHECK_PSV", "MLX5_OPCODE_CHECK_PSV";
    Dump = 0x23, "DUMP", "MLX5_OPCODE_DUMP";
    Umr = 0x25, "UMR", "MLX5_OPCODE_UMR";
    RgetPsv = 0x26, "RGET_PSV", "MLX5_OPCODE_RGET_PSV";
    RcheckPsv = 0x27, "RCHECK_PSV", "MLX5_OPCODE_RCHECK_PSV";
    TagMatching = 0x28, "TAG_MATCHING", "MLX5_OPCODE_TAG_MATCHING";
    EnhancedMpsw = 0x29, "ENHANCED_MPSW", "MLX5_OPCODE_ENHANCED_MPSW";
    FlowTblAccess = 0x2c, "FLOW_TBL_ACCESS", "MLX5_OPCODE_FLOW_TBL_ACCESS";
    AccessAso = 0x2d, "ACCESS_ASO", "MLX5_OPCODE_ACCESS_ASO";
    Mmo = 0x2f, "MMO", "MLX5_OPCODE_MMO";
}

numbering! {
    /// Opcode of a completion queue entry.
    pub enum CqeOpcode: u8, 4, "cqe_opcode";
    Requester = 0x0, "REQ", "MLX5_CQE_REQ";
    ResponderWriteImmediate = 0x1, "RESP_WR_IMM", "MLX5_CQE_RESP_WR_IMM";
    ResponderSend = 0x2, "RESP_SEND", "MLX5_CQE_RESP_SEND";
    ResponderSendImmediate = 0x3, "RESP_SEND_IMM", "MLX5_CQE_RESP_SEND_IMM";
    ResponderSendInvalidate = 0x4, "RESP_SEND_INV", "MLX5_CQE_RESP_SEND_INV";
    ResizeCq = 0x5, "RESIZE_CQ", "MLX5_CQE_RESIZE_CQ";
    NoPacket = 0x6, "NO_PACKET", "MLX5_CQE_NO_PACKET";
    SignatureError = 0xc, "SIG_ERR", "MLX5_CQE_SIG_ERR";
    RequesterError = 0xd, "REQ_ERR", "MLX5_CQE_REQ_ERR";
    ResponderError = 0xe, "RESP_ERR", "MLX5_CQE_RESP_ERR";
    Invalid = 0xf, "INVALID", "MLX5_CQE_INVALID";
}

numbering! {
    /// Syndrome of an error completion.
    pub enum CqeSyndrome: u8, 8, "cqe_syndrome";
    LocalLength = 0x1, "LOCAL_LENGTH_ERR", "MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR";
    LocalQpOperation = 0x2, "LOCAL_QP_OP_ERR", "MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR";
    LocalProtection = 0x4, "LOCAL_PROT_ERR", "MLX5_CQE_SYNDROME_LOCAL_PROT_ERR";
    WorkRequestFlushed = 0x5, "WR_FLUSH_ERR", "MLX5_CQE_SYNDROME_WR_FLUSH_ERR";
    MemoryWindowBind = 0x6, "MW_BIND_ERR", "MLX5_CQE_SYNDROME_MW_BIND_ERR";
    BadResponse = 0x10, "BAD_RESP_ERR", "MLX5_CQE_SYNDROME_BAD_RESP_ERR";
    LocalAccess = 0x11, "LOCAL_ACCESS_ERR", "MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR";
    RemoteInvalidRequest = 0x12, "REMOTE_INVAL_REQ_ERR", "MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR";
    RemoteAccess = 0x13, "REMOTE_ACCESS_ERR", "MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR";
    RemoteOperation = 0x14, "REMOTE_OP_ERR", "MLX5_CQE_SYNDROME_REMOTE_OP_ERR";
    TransportRetryExceeded = 0x15, "TRANSPORT_RETRY_EXC_ERR", "MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR";
    RnrRetryExceeded = 0x16, "RNR_RETRY_EXC_ERR", "MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR";
    RemoteAborted = 0x22, "REMOTE_ABORTED_ERR", "MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR";
}

numbering! {
    /// Type of an event queue entry.
    pub enum EventType: u8, 8, "eqe_event_type";
    Comp = 0x0, "COMP", "MLX5_EVENT_TYPE_COMP";
    PathMig = 0x1, "PATH_MIG", "MLX5_EVENT_TYPE_PATH_MIG";
    CommEst = 0x2, "COMM_EST", "MLX5_EVENT_TYPE_COMM_EST";
    SqDrained = 0x3, "SQ_DRAINED", "MLX5_EVENT_TYPE_SQ_DRAINED";
    CqError = 0x4, "CQ_ERROR", "MLX5_EVENT_TYPE_CQ_ERROR";
    WqCatasError = 0x5, "WQ_CATAS_ERROR", "MLX5_EVENT_TYPE_WQ_CATAS_ERROR";
    PathMigFailed = 0x7, "PATH_MIG_FAILED", "MLX5_EVENT_TYPE_PATH_MIG_FAILED";
    InternalError = 0x8, "INTERNAL_ERROR", "MLX5_EVENT_TYPE_INTERNAL_ERROR";
    PortChange = 0x9, "PORT_CHANGE", "MLX5_EVENT_TYPE_PORT_CHANGE";
    Cmd = 0xa, "CMD", "MLX5_EVENT_TYPE_CMD";
    PageRequest = 0xb, "PAGE_REQUEST", "MLX5_EVENT_TYPE_PAGE_REQUEST";
    PageFault = 0xc, "PAGE_FAULT", "MLX5_EVENT_TYPE_PAGE_FAULT";
    NicVportChange = 0xd, "NIC_VPORT_CHANGE", "MLX5_EVENT_TYPE_NIC_VPORT_CHANGE";
    EswFunctionsChanged = 0xe, "ESW_FUNCTIONS_CHANGED", "MLX5_EVENT_TYPE_ESW_FUNCTIONS_CHANGED";
    VhcaStateChange = 0xf, "VHCA_STATE_CHANGE", "MLX5_EVENT_TYPE_VHCA_STATE_CHANGE";
    WqInvalReqError = 0x10, "WQ_INVAL_REQ_ERROR", "MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR";
    WqAccessError = 0x11, "WQ_ACCESS_ERROR", "MLX5_EVENT_TYPE_WQ_ACCESS_ERROR";
    SrqCatasError = 0x12, "SRQ_CATAS_ERROR", "MLX5_EVENT_TYPE_SRQ_CATAS_ERROR";
    SrqLastWqe = 0x13, "SRQ_LAST_WQE", "MLX5_EVENT_TYPE_SRQ_LAST_WQE";
    SrqRqLimit = 0x14, "SRQ_RQ_LIMIT", "MLX5_EVENT_TYPE_SRQ_RQ_LIMIT";
    GpioEvent = 0x15, "GPIO_EVENT", "MLX5_EVENT_TYPE_GPIO_EVENT";
    PortModuleEvent = 0x16, "PORT_MODULE_EVENT", "MLX5_EVENT_TYPE_PORT_MODULE_EVENT";
    TempWarnEvent = 0x17, "TEMP_WARN_EVENT", "MLX5_EVENT_TYPE_TEMP_WARN_EVENT";
    XrqError = 0x18, "XRQ_ERROR", "MLX5_EVENT_TYPE_XRQ_ERROR";
    RemoteConfig = 0x19, "REMOTE_CONFIG", "MLX5_EVENT_TYPE_REMOTE_CONFIG";
    DbBfCongestion = 0x1a, "DB_BF_CONGESTION", "MLX5_EVENT_TYPE_DB_BF_CONGESTION";
    StallEvent = 0x1b, "STALL_EVENT", "MLX5_EVENT_TYPE_STALL_EVENT";
    DctDrained = 0x1c, "DCT_DRAINED", "MLX5_EVENT_TYPE_DCT_DRAINED";
    DctKeyViolation = 0x1d, "DCT_KEY_VIOLATION", "MLX5_EVENT_TYPE_DCT_KEY_VIOLATION";
    FpgaError = 0x20, "FPGA_ERROR", "MLX5_EVENT_TYPE_FPGA_ERROR";
    FpgaQpError = 0x21, "FPGA_QP_ERROR", "MLX5_EVENT_TYPE_FPGA_QP_ERROR";
    GeneralEvent = 0x22, "GENERAL_EVENT", "MLX5_EVENT_TYPE_GENERAL_EVENT";
    MonitorCounter = 0x24, "MONITOR_COUNTER", "MLX5_EVENT_TYPE_MONITOR_COUNTER";
    PpsEvent = 0x25, "PPS_EVENT", "MLX5_EVENT_TYPE_PPS_EVENT";
    DeviceTracer = 0x26, "DEVICE_TRACER", "MLX5_EVENT_TYPE_DEVICE_TRACER";
    ObjectChange = 0x27, "OBJECT_CHANGE", "MLX5_EVENT_TYPE_OBJECT_CHANGE";
}

numbering! {
    /// Subtype of a port change event.
    pub enum PortChange: u8, 8, "eqe_subtype_port_change";
    Down = 0x1, "DOWN", "MLX5_PORT_CHANGE_SUBTYPE_DOWN";
    Active = 0x4, "ACTIVE", "MLX5_PORT_CHANGE_SUBTYPE_ACTIVE";
    Initialized = 0x5, "INITIALIZED", "MLX5_PORT_CHANGE_SUBTYPE_INITIALIZED";
    Lid = 0x6, "LID", "MLX5_PORT_CHANGE_SUBTYPE_LID";
    Pkey = 0x7, "PKEY", "MLX5_PORT_CHANGE_SUBTYPE_PKEY";
    Guid = 0x8, "GUID", "MLX5_PORT_CHANGE_SUBTYPE_GUID";
    ClientRereg = 0x9, "CLIENT_REREG", "MLX5_PORT_CHANGE_SUBTYPE_CLIENT_REREG";
}

numbering! {
    /// Syndrome of a CQ error event.
    pub enum CqErrorSyndrome: u8, 8, "cq_error_syndrome_cq";
    CqOverrun = 0x1, "CQ_OVERRUN", "MLX5_CQ_ERROR_SYNDROME_CQ_OVERRUN";
    CqAccessViolationError = 0x2, "CQ_ACCESS_VIOLATION_ERROR", "MLX5_CQ_ERROR_SYNDROME_CQ_ACCESS_VIOLATION_ERROR";
}

numbering! {
    /// State of a queue pair as its context holds it.
    pub enum QpState: u8, 4, "qp_state";
    Reset = 0x0, "RST", "MLX5_QP_STATE_RST";
    Init = 0x1, "INIT", "MLX5_QP_STATE_INIT";
    Rtr = 0x2, "RTR", "MLX5_QP_STATE_RTR";
    Rts = 0x3, "RTS", "MLX5_QP_STATE_RTS";
    SqError = 0x4, "SQER", "MLX5_QP_STATE_SQER";
    SqDrained = 0x5, "SQD", "MLX5_QP_STATE_SQD";
    Error = 0x6, "ERR", "MLX5_QP_STATE_ERR";
    SqDraining = 0x7, "SQ_DRAINING", "MLX5_QP_STATE_SQ_DRAINING";
    Suspended = 0x9, "SUSPENDED", "MLX5_QP_STATE_SUSPENDED";
}

numbering! {
    /// Transport service of a queue pair.
    pub enum ServiceType: u8, 8, "qp_service_type";
    Rc = 0x0, "RC", "MLX5_QP_ST_RC";
    Uc = 0x1, "UC", "MLX5_QP_ST_UC";
    Ud = 0x2, "UD", "MLX5_QP_ST_UD";
    Xrc = 0x3, "XRC", "MLX5_QP_ST_XRC";
    Mlx = 0x4, "MLX", "MLX5_QP_ST_MLX";
    Dci = 0x5, "DCI", "MLX5_QP_ST_DCI";
    Dct = 0x6, "DCT", "MLX5_QP_ST_DCT";
    Qp0 = 0x7, "QP0", "MLX5_QP_ST_QP0";
    Qp1 = 0x8, "QP1", "MLX5_QP_ST_QP1";
    RawEthertype = 0x9, "RAW_ETHERTYPE", "MLX5_QP_ST_RAW_ETHERTYPE";
    RawIpv6 = 0xa, "RAW_IPV6", "MLX5_QP_ST_RAW_IPV6";
    Sniffer = 0xb, "SNIFFER", "MLX5_QP_ST_SNIFFER";
    RegUmr = 0xc, "REG_UMR", "MLX5_QP_ST_REG_UMR";
    Ptp1588 = 0xd, "PTP_1588", "MLX5_QP_ST_PTP_1588";
    SyncUmr = 0xe, "SYNC_UMR", "MLX5_QP_ST_SYNC_UMR";
}

numbering! {
    /// How a memory key translates addresses.
    pub enum MkeyAccessMode: u8, 5, "mkc_access_mode";
    Pa = 0x0, "PA", "MLX5_MKC_ACCESS_MODE_PA";
    Mtt = 0x1, "MTT", "MLX5_MKC_ACCESS_MODE_MTT";
    Klms = 0x2, "KLMS", "MLX5_MKC_ACCESS_MODE_KLMS";
    Ksm = 0x3, "KSM", "MLX5_MKC_ACCESS_MODE_KSM";
    SwIcm = 0x4, "SW_ICM", "MLX5_MKC_ACCESS_MODE_SW_ICM";
    Memic = 0x5, "MEMIC", "MLX5_MKC_ACCESS_MODE_MEMIC";
    Crossing = 0x6, "CROSSING", "MLX5_MKC_ACCESS_MODE_CROSSING";
}

numbering! {
    /// Capability pages of QUERY_HCA_CAP; `op_mod` is the type times two plus the mode.
    pub enum CapabilityType: u8, 8, "hca_cap_type";
    General = 0x0, "GENERAL", "MLX5_CAP_GENERAL";
    EthernetOffloads = 0x1, "ETHERNET_OFFLOADS", "MLX5_CAP_ETHERNET_OFFLOADS";
    Odp = 0x2, "ODP", "MLX5_CAP_ODP";
    Atomic = 0x3, "ATOMIC", "MLX5_CAP_ATOMIC";
    Roce = 0x4, "ROCE", "MLX5_CAP_ROCE";
    IpoibOffloads = 0x5, "IPOIB_OFFLOADS", "MLX5_CAP_IPOIB_OFFLOADS";
    IpoibEnhancedOffloads = 0x6, "IPOIB_ENHANCED_OFFLOADS", "MLX5_CAP_IPOIB_ENHANCED_OFFLOADS";
    FlowTable = 0x7, "FLOW_TABLE", "MLX5_CAP_FLOW_TABLE";
    EswitchFlowTable = 0x8, "ESWITCH_FLOW_TABLE", "MLX5_CAP_ESWITCH_FLOW_TABLE";
    Eswitch = 0x9, "ESWITCH", "MLX5_CAP_ESWITCH";
    Qos = 0xc, "QOS", "MLX5_CAP_QOS";
    Debug = 0xd, "DEBUG", "MLX5_CAP_DEBUG";
    Reserved14 = 0xe, "RESERVED_14", "MLX5_CAP_RESERVED_14";
    DevMem = 0xf, "DEV_MEM", "MLX5_CAP_DEV_MEM";
    Reserved16 = 0x10, "RESERVED_16", "MLX5_CAP_RESERVED_16";
    Tls = 0x11, "TLS", "MLX5_CAP_TLS";
    VdpaEmulation = 0x13, "VDPA_EMULATION", "MLX5_CAP_VDPA_EMULATION";
    DevEvent = 0x14, "DEV_EVENT", "MLX5_CAP_DEV_EVENT";
    Ipsec = 0x15, "IPSEC", "MLX5_CAP_IPSEC";
    Crypto = 0x1a, "CRYPTO", "MLX5_CAP_CRYPTO";
    Macsec = 0x1f, "MACSEC", "MLX5_CAP_MACSEC";
    General2 = 0x20, "GENERAL_2", "MLX5_CAP_GENERAL_2";
    PortSelection = 0x25, "PORT_SELECTION", "MLX5_CAP_PORT_SELECTION";
    AdvVirtualization = 0x26, "ADV_VIRTUALIZATION", "MLX5_CAP_ADV_VIRTUALIZATION";
}

numbering! {
    /// Registers of ACCESS_REG.
    pub enum RegisterId: u16, 16, "register_id";
    Qpts = 0x4002, "QPTS", "MLX5_REG_QPTS";
    Qetcr = 0x4005, "QETCR", "MLX5_REG_QETCR";
    Qtct = 0x400a, "QTCT", "MLX5_REG_QTCT";
    Qpdpm = 0x4013, "QPDPM", "MLX5_REG_QPDPM";
    Qcam = 0x4019, "QCAM", "MLX5_REG_QCAM";
    DcbxParam = 0x4020, "DCBX_PARAM", "MLX5_REG_DCBX_PARAM";
    DcbxApp = 0x4021, "DCBX_APP", "MLX5_REG_DCBX_APP";
    FpgaCap = 0x4022, "FPGA_CAP", "MLX5_REG_FPGA_CAP";
    FpgaCtrl = 0x4023, "FPGA_CTRL", "MLX5_REG_FPGA_CTRL";
    FpgaAccessReg = 0x4024, "FPGA_ACCESS_REG", "MLX5_REG_FPGA_ACCESS_REG";
    CoreDump = 0x402e, "CORE_DUMP", "MLX5_REG_CORE_DUMP";
    Pcap = 0x5001, "PCAP", "MLX5_REG_PCAP";
    Pmlp = 0x5002, "PMLP", "MLX5_REG_PMLP";
    Pmtu = 0x5003, "PMTU", "MLX5_REG_PMTU";
    Ptys = 0x5004, "PTYS", "MLX5_REG_PTYS";
    Paos = 0x5006, "PAOS", "MLX5_REG_PAOS";
    Pfcc = 0x5007, "PFCC", "MLX5_REG_PFCC";
    Ppcnt = 0x5008, "PPCNT", "MLX5_REG_PPCNT";
    Pude = 0x5009, "PUDE", "MLX5_REG_PUDE";
    Pptb = 0x500b, "PPTB", "MLX5_REG_PPTB";
    Pbmc = 0x500c, "PBMC", "MLX5_REG_PBMC";
    Pelc = 0x500e, "PELC", "MLX5_REG_PELC";
    Pvlc = 0x500f, "PVLC", "MLX5_REG_PVLC";
    Pmpe = 0x5010, "PMPE", "MLX5_REG_PMPE";
    Pmaos = 0x5012, "PMAOS", "MLX5_REG_PMAOS";
    Pplm = 0x5023, "PPLM", "MLX5_REG_PPLM";
    Pddr = 0x5031, "PDDR", "MLX5_REG_PDDR";
    Pcmr = 0x5041, "PCMR", "MLX5_REG_PCMR";
    Pcam = 0x507f, "PCAM", "MLX5_REG_PCAM";
    NodeDesc = 0x6001, "NODE_DESC", "MLX5_REG_NODE_DESC";
    HostEndianness = 0x7004, "HOST_ENDIANNESS", "MLX5_REG_HOST_ENDIANNESS";
    Mtcap = 0x9009, "MTCAP", "MLX5_REG_MTCAP";
    Mtmp = 0x900a, "MTMP", "MLX5_REG_MTMP";
    Mcia = 0x9014, "MCIA", "MLX5_REG_MCIA";
    Mfrl = 0x9028, "MFRL", "MLX5_REG_MFRL";
    Mlcr = 0x902b, "MLCR", "MLX5_REG_MLCR";
    Mrtc = 0x902d, "MRTC", "MLX5_REG_MRTC";
    MtrcCap = 0x9040, "MTRC_CAP", "MLX5_REG_MTRC_CAP";
    MtrcConf = 0x9041, "MTRC_CONF", "MLX5_REG_MTRC_CONF";
    MtrcStdb = 0x9042, "MTRC_STDB", "MLX5_REG_MTRC_STDB";
    MtrcCtrl = 0x9043, "MTRC_CTRL", "MLX5_REG_MTRC_CTRL";
    Mpein = 0x9050, "MPEIN", "MLX5_REG_MPEIN";
    Mpcnt = 0x9051, "MPCNT", "MLX5_REG_MPCNT";
    Mtpps = 0x9053, "MTPPS", "MLX5_REG_MTPPS";
    Mtppse = 0x9054, "MTPPSE", "MLX5_REG_MTPPSE";
    Mtutc = 0x9055, "MTUTC", "MLX5_REG_MTUTC";
    Mpegc = 0x9056, "MPEGC", "MLX5_REG_MPEGC";
    Mpir = 0x9059, "MPIR", "MLX5_REG_MPIR";
    Mcqs = 0x9060, "MCQS", "MLX5_REG_MCQS";
    Mcqi = 0x9061, "MCQI", "MLX5_REG_MCQI";
    Mcc = 0x9062, "MCC", "MLX5_REG_MCC";
    Mcda = 0x9063, "MCDA", "MLX5_REG_MCDA";
    Mcam = 0x907f, "MCAM", "MLX5_REG_MCAM";
    Msecq = 0x9155, "MSECQ", "MLX5_REG_MSECQ";
    Msees = 0x9156, "MSEES", "MLX5_REG_MSEES";
    Mirc = 0x9162, "MIRC", "MLX5_REG_MIRC";
    Mtptm = 0x9180, "MTPTM", "MLX5_REG_MTPTM";
    Mtctr = 0x9181, "MTCTR", "MLX5_REG_MTCTR";
    Sbpr = 0xb001, "SBPR", "MLX5_REG_SBPR";
    Sbcm = 0xb002, "SBCM", "MLX5_REG_SBCM";
    Sbcam = 0xb01f, "SBCAM", "MLX5_REG_SBCAM";
    ResourceDump = 0xc000, "RESOURCE_DUMP", "MLX5_REG_RESOURCE_DUMP";
    Dtor = 0xc00e, "DTOR", "MLX5_REG_DTOR";
}

numbering! {
    /// Path MTU.
    pub enum PathMtu: u8, 3, "qpc_mtu";
    Mtu256 = 0x1, "256_BYTES", "MLX5_QPC_MTU_256_BYTES";
    Mtu512 = 0x2, "512_BYTES", "MLX5_QPC_MTU_512_BYTES";
    Mtu1024 = 0x3, "1K_BYTES", "MLX5_QPC_MTU_1K_BYTES";
    Mtu2048 = 0x4, "2K_BYTES", "MLX5_QPC_MTU_2K_BYTES";
    Mtu4096 = 0x5, "4K_BYTES", "MLX5_QPC_MTU_4K_BYTES";
    RawEthernetQp = 0x7, "RAW_ETHERNET_QP", "MLX5_QPC_MTU_RAW_ETHERNET_QP";
}

numbering! {
    /// Syndrome of the health buffer.
    pub enum HealthSyndrome: u8, 8, "initial_seg_health_syndrome";
    FwInternalErr = 0x1, "FW_INTERNAL_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_FW_INTERNAL_ERR";
    DeadIrisc = 0x7, "DEAD_IRISC", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_DEAD_IRISC";
    HwFatalErr = 0x8, "HW_FATAL_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_HW_FATAL_ERR";
    FwCrcErr = 0x9, "FW_CRC_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_FW_CRC_ERR";
    IcmFetchPciErr = 0xa, "ICM_FETCH_PCI_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_ICM_FETCH_PCI_ERR";
    IcmPageErr = 0xb, "ICM_PAGE_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_ICM_PAGE_ERR";
    AsynchronousEqBufOverrun = 0xc, "ASYNCHRONOUS_EQ_BUF_OVERRUN", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_ASYNCHRONOUS_EQ_BUF_OVERRUN";
    EqInErr = 0xd, "EQ_IN_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_EQ_IN_ERR";
    EqInv = 0xe, "EQ_INV", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_EQ_INV";
    FfserErr = 0xf, "FFSER_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_FFSER_ERR";
    HighTempErr = 0x10, "HIGH_TEMP_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_HIGH_TEMP_ERR";
    IcmPciPoisonedErr = 0x12, "ICM_PCI_POISONED_ERR", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_ICM_PCI_POISONED_ERR";
}

numbering! {
    /// `op_mod` of QUERY_PAGES.
    pub enum QueryPagesStage: u16, 16, "query_pages_in_op_mod";
    BootPages = 0x1, "BOOT_PAGES", "MLX5_QUERY_PAGES_IN_OP_MOD_BOOT_PAGES";
    InitPages = 0x2, "INIT_PAGES", "MLX5_QUERY_PAGES_IN_OP_MOD_INIT_PAGES";
    RegularPages = 0x3, "REGULAR_PAGES", "MLX5_QUERY_PAGES_IN_OP_MOD_REGULAR_PAGES";
}

numbering! {
    /// `op_mod` of MANAGE_PAGES.
    pub enum ManagePagesMode: u16, 16, "manage_pages_in_op_mod";
    CannotGive = 0x0, "ALLOCATION_FAIL", "MLX5_MANAGE_PAGES_IN_OP_MOD_ALLOCATION_FAIL";
    Give = 0x1, "ALLOCATION_SUCCESS", "MLX5_MANAGE_PAGES_IN_OP_MOD_ALLOCATION_SUCCESS";
    TakeBack = 0x2, "HCA_RETURN_PAGES", "MLX5_MANAGE_PAGES_IN_OP_MOD_HCA_RETURN_PAGES";
}

numbering! {
    /// Link layer of a port.
    pub enum PortType: u8, 2, "cmd_hca_cap_port_type";
    Ib = 0x0, "IB", "MLX5_CMD_HCA_CAP_PORT_TYPE_IB";
    Ethernet = 0x1, "ETHERNET", "MLX5_CMD_HCA_CAP_PORT_TYPE_ETHERNET";
}

numbering! {
    /// RoCE version of an entry of the RoCE address table.
    pub enum RoceVersion: u8, 8, "roce";
    Version1 = 0x0, "VERSION_1", "MLX5_ROCE_VERSION_1";
    Version2 = 0x2, "VERSION_2", "MLX5_ROCE_VERSION_2";
}

numbering! {
    /// Groups of counters of a port (register PPCNT).
    pub enum PortCounterGroup: u8, 6, "group";
    Ieee8023 = 0x0, "IEEE_802_3", "MLX5_IEEE_802_3_COUNTERS_GROUP";
    Rfc2863 = 0x1, "RFC_2863", "MLX5_RFC_2863_COUNTERS_GROUP";
    Rfc2819 = 0x2, "RFC_2819", "MLX5_RFC_2819_COUNTERS_GROUP";
    Rfc3635 = 0x3, "RFC_3635", "MLX5_RFC_3635_COUNTERS_GROUP";
    EthernetExtended = 0x5, "ETHERNET_EXTENDED", "MLX5_ETHERNET_EXTENDED_COUNTERS_GROUP";
    PerPriority = 0x10, "PER_PRIORITY", "MLX5_PER_PRIORITY_COUNTERS_GROUP";
    PerTrafficClass = 0x11, "PER_TRAFFIC_CLASS", "MLX5_PER_TRAFFIC_CLASS_COUNTERS_GROUP";
    PhysicalLayer = 0x12, "PHYSICAL_LAYER", "MLX5_PHYSICAL_LAYER_COUNTERS_GROUP";
    InfiniBandPort = 0x20, "INFINIBAND_PORT", "MLX5_INFINIBAND_PORT_COUNTERS_GROUP";
    InfiniBandExtendedPort = 0x21, "INFINIBAND_EXTENDED_PORT", "MLX5_INFINIBAND_EXTENDED_PORT_COUNTERS_GROUP";
}

numbering! {
    /// Status of an event queue, in its context.
    pub enum EventQueueStatus: u8, 4, "eqc_status";
    Ok = 0x0, "OK", "MLX5_EQC_STATUS_OK";
    WriteFailure = 0xa, "EQ_WRITE_FAILURE", "MLX5_EQC_STATUS_EQ_WRITE_FAILURE";
}

numbering! {
    /// Network layer of an entry of the RoCE address table.
    pub enum RoceL3Type: u8, 4, "roce";
    Ipv4 = 0x0, "IPV4", "MLX5_ROCE_L3_TYPE_IPV4";
    Ipv6 = 0x1, "IPV6", "MLX5_ROCE_L3_TYPE_IPV6";
}

numbering! {
    /// Path migration state of a queue pair.
    pub enum PathMigration: u8, 2, "qpc_pm_state";
    Armed = 0x0, "ARMED", "MLX5_QPC_PM_STATE_ARMED";
    Rearm = 0x1, "REARM", "MLX5_QPC_PM_STATE_REARM";
    Reserved = 0x2, "RESERVED", "MLX5_QPC_PM_STATE_RESERVED";
    Migrated = 0x3, "MIGRATED", "MLX5_QPC_PM_STATE_MIGRATED";
}
/// Every numbering of this module.
pub const NUMBERINGS: &[NumberingInfo] = &[
    CommandOpcode::INFO,
    CommandStatus::INFO,
    DeliveryStatus::INFO,
    WqeOpcode::INFO,
    CqeOpcode::INFO,
    CqeSyndrome::INFO,
    EventType::INFO,
    PortChange::INFO,
    CqErrorSyndrome::INFO,
    QpState::INFO,
    ServiceType::INFO,
    MkeyAccessMode::INFO,
    CapabilityType::INFO,
    RegisterId::INFO,
    PathMtu::INFO,
    HealthSyndrome::INFO,
    QueryPagesStage::INFO,
    ManagePagesMode::INFO,
    PortType::INFO,
    RoceVersion::INFO,
    PortCounterGroup::INFO,
    EventQueueStatus::INFO,
    PathMigration::INFO,
];
