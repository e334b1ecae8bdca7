//! Reasons for which firmware refuses a command, one constant each with its status and syndrome.
//!
//! The syndromes of real devices are not public; these are our own. They let tests and people distinguish
//! refusals.

use bareverbs_prm::numbering::{CommandOpcode, CommandStatus};
use core::fmt;

/// A refusal: the status byte and the syndrome word of a command output.
///
/// ```
/// use bareverbs_prm::numbering::CommandStatus;
/// use bareverbs_sim::nic::Refusal;
///
/// let refusal = Refusal::by_syndrome(0xb0_0030).unwrap();
/// assert_eq!((refusal.status, refusal.reason), (CommandStatus::BadResource, "no such memory key"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Status byte.
    pub status: CommandStatus,
    /// Syndrome word, never zero.
    pub syndrome: u32,
    /// Explanation for people.
    pub reason: &'static str,
}

impl Refusal {
    /// The refusal of an unknown command.
    pub const fn unknown_opcode(opcode: CommandOpcode) -> Self {
        Self {
            status: CommandStatus::BadOpcode,
            syndrome: 0xdead_0000 | opcode.raw() as u32,
            reason: "no such command",
        }
    }

    /// The refusal with this syndrome, if it is one of [`ALL`].
    pub fn by_syndrome(syndrome: u32) -> Option<Self> {
        ALL.iter().copied().find(|refusal| refusal.syndrome == syndrome)
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, syndrome {:#x}: {}", self.status, self.syndrome, self.reason)
    }
}

macro_rules! refusals {
    ($($name:ident = $syndrome:literal, $status:ident, $reason:literal;)*) => {
        $(
            #[doc = concat!("Syndrome ", stringify!($syndrome), ": ", $reason, ".")]
            pub const $name: Refusal =
                Refusal { status: CommandStatus::$status, syndrome: $syndrome, reason: $reason };
        )*
        /// Every refusal.
        pub const ALL: &[Refusal] = &[$($name),*];
    };
}

refusals! {
    INPUT_TOO_SHORT = 0xb0_0001, BadInputLength, "the input is shorter than the command";
    OUTPUT_TOO_SHORT = 0xb0_0002, BadOutputLength, "the output is shorter than the command needs";
    LIST_TOO_SHORT = 0xb0_0003, BadInputLength, "the page list is shorter than the object needs";
    RESERVED_NOT_CLEAR = 0xb0_0004, BadParameter, "a reserved bit of the input is set (strict mode)";
    WRONG_STATE = 0xb0_0005, BadSystemState, "the command is out of order: check ENABLE_HCA and INIT_HCA";
    BAD_OP_MOD = 0xb0_0006, BadParameter, "no such op_mod";
    BAD_FUNCTION = 0xb0_0007, BadParameter, "only function 0 is ours";
    ISSI_UNSUPPORTED = 0xb0_0008, BadParameter, "ISSI 0 and 1 are supported";
    PAGES_MISSING = 0xb0_0009, NoResources, "boot or init pages were not given";
    PAGE_MISALIGNED = 0xb0_000a, BadParameter, "a page address is not aligned to 4 KiB";
    PAGE_GIVEN_TWICE = 0xb0_000b, BadResourceState, "a page was given twice";
    TOO_MANY_PAGES = 0xb0_000c, ExceedsLimit, "more pages than the device can hold";
    CAPABILITY_PAGE = 0xb0_0010, BadParameter, "no such capability page";
    CAPABILITY_READ_ONLY = 0xb0_0011, BadParameter, "the capability page cannot be set";
    CAPABILITY_ABOVE_MAXIMUM = 0xb0_0012, BadParameter, "a capability was set above its maximum";
    REGISTER_UNKNOWN = 0xb0_0018, BadParameter, "no such register";
    REGISTER_READ_ONLY = 0xb0_0019, BadParameter, "the register cannot be written";
    REGISTER_PORT = 0xb0_001a, BadIndex, "the register names a port that does not exist";
    REGISTER_LENGTH = 0xb0_001b, BadInputLength, "the register data are too short";
    REGISTER_VALUE = 0xb0_001c, BadParameter, "the register does not take this value";
    PD_UNKNOWN = 0xb0_0020, BadResource, "no such protection domain";
    PD_BUSY = 0xb0_0021, BadResourceState, "memory keys or queue pairs still use the protection domain";
    PD_LIMIT = 0xb0_0022, ExceedsLimit, "no protection domain left";
    UAR_UNKNOWN = 0xb0_0028, BadResource, "no such UAR";
    UAR_BUSY = 0xb0_0029, BadResourceState, "queues still use the UAR";
    UAR_LIMIT = 0xb0_002a, ExceedsLimit, "no UAR left";
    MKEY_UNKNOWN = 0xb0_0030, BadResource, "no such memory key";
    MKEY_LIMIT = 0xb0_0031, ExceedsLimit, "no memory key left";
    MKEY_MODE = 0xb0_0032, BadParameter, "the access mode is not supported: PA, MTT, KLM and KSM are";
    MKEY_RANGE = 0xb0_0033, BadParameter, "start and length leave the address space or the region size limit";
    MKEY_PAGE_SIZE = 0xb0_0034, BadParameter, "log_page_size must be 12 to 31";
    MKEY_TRANSLATIONS = 0xb0_0035, BadParameter, "translations_octword_size does not cover the region";
    MKEY_PAGE_MISALIGNED = 0xb0_0036, BadParameter, "a translation entry is not aligned to the page size";
    MKEY_FEATURE = 0xb0_0037, BadParameter, "the memory key asks for a feature that is not offered";
    MKEY_LENGTH64 = 0xb0_0038, BadParameter, "length64 needs start 0, length 0, and another mode than MTT";
    MKEY_TRANSLATIONS_LIMIT = 0xb0_0039, NoResources, "no memory is left for the translation entries of keys";
    MKEY_LIST = 0xb0_003a, BadParameter, "a list of keys is longer than log_max_klm_list_size says";
    MKEY_NOT_SHAREABLE = 0x17_2df6, BadParameter, "a memory key of this kind cannot be shared with other functions";
    CARD_FUNCTION = 0xb0_01e0, BadParameter, "the device is the only function of its card";
    SHARE_TYPE = 0xb0_01e1, BadParameter, "only memory keys can be shared with other functions";
    GENERAL_OBJECT_TYPE = 0xb0_01e2, BadParameter, "the only general objects are aliases of memory keys, one at a time";
    ALIAS_TARGET = 0xb0_01e3, BadResource, "the VHCA id names no function of the card that shares such a memory key";
    ALIAS_ACCESS_KEY = 0xb0_01e4, BadParameter, "the access key is not the one that the owner of the memory key set";
    ALIAS_UNKNOWN = 0xb0_01e5, BadResource, "no such alias";
    QP_MMO = 0xb0_01e6, BadParameter, "only a reliable connection of a function of a card takes memory-to-memory operations";
    EQ_UNKNOWN = 0xb0_0040, BadIndex, "no such event queue";
    EQ_BUSY = 0xb0_0041, BadResourceState, "completion queues still use the event queue";
    EQ_LIMIT = 0xb0_0042, ExceedsLimit, "no event queue left";
    EQ_SIZE = 0xb0_0043, BadParameter, "log_eq_size is above the limit";
    EQ_VECTOR = 0xb0_0044, BadParameter, "no such interrupt vector";
    CQ_UNKNOWN = 0xb0_0048, BadResource, "no such completion queue";
    CQ_BUSY = 0xb0_0049, BadResourceState, "queue pairs still use the completion queue";
    CQ_LIMIT = 0xb0_004a, ExceedsLimit, "no completion queue left";
    CQ_SIZE = 0xb0_004b, BadParameter, "log_cq_size is above the limit";
    CQ_FEATURE = 0xb0_004c, BadParameter, "the completion queue asks for a feature that is not offered";
    CQ_FIELD_SELECT = 0xb0_004d, BadParameter, "the field of the completion queue cannot be modified";
    CQ_OUTSTANDING = 0xb0_004e, BadSizeOutstandingCqes, "completions that were not polled do not fit the new size";
    CQ_BROKEN = 0xb0_004f, BadResourceState, "the completion queue is broken";
    BUFFER_PAGE_SIZE = 0xb0_0050, BadParameter, "log_page_size of a queue buffer or of a user memory object is above 20";
    BUFFER_MISALIGNED = 0xb0_0051, BadParameter, "a page of a queue buffer is not aligned to 4 KiB";
    DOORBELL_RECORD_MISALIGNED = 0xb0_0052, BadParameter, "the doorbell record is zero or not aligned to 8 bytes";
    UMEM_UNKNOWN = 0xb0_0054, BadResource, "no such user memory object";
    UMEM_BUSY = 0xb0_0055, BadResourceState, "queues still lie in the user memory object";
    UMEM_LIMIT = 0xb0_0056, ExceedsLimit, "no user memory object left";
    UMEM_SIZE = 0xb0_0057, BadParameter, "a user memory object has no page, or does not begin in its first";
    UMEM_MISALIGNED = 0xb0_0058, BadParameter, "an entry of a user memory object is not aligned to its page size";
    UMEM_RANGE = 0xb0_0059, BadParameter, "the queue or the doorbell record leaves its user memory object";
    UMEM_RIGHT = 0xb0_005a, BadParameter, "the user memory object may not be read, or written, as the queue needs";
    UMEM_FEATURE = 0xb0_005b, BadParameter, "the user memory object asks for a feature that is not offered";
    PAGE_BUDGET = 0xb0_005e, NoResources, "no memory is left for the page lists of queues and user memory objects";
    UMEM_QUEUE_MISALIGNED = 0xb0_005d, BadParameter, "the queue does not begin at a multiple of 64 bytes in its user memory object";
    UID_UNKNOWN = 0xb0_005c, BadResource, "no such user context";
    UCTX_RIGHT = 0xb0_005f, BadParameter, "a user context asks for a right that is not offered: uctx_cap is 0";
    UCTX_LIMIT = 0xb0_0053, ExceedsLimit, "no user context left";
    QP_UNKNOWN = 0xb0_0060, BadResource, "no such queue pair";
    QP_LIMIT = 0xb0_0061, ExceedsLimit, "no queue pair left";
    QP_SERVICE = 0xb0_0062, BadParameter, "the transport service is not supported on this link layer";
    QP_FEATURE = 0xb0_0063, BadParameter, "the queue pair asks for a feature that is not offered";
    QP_SEND_SIZE = 0xb0_0064, BadParameter, "log_sq_size is above the limit";
    QP_RECEIVE_SIZE = 0xb0_0065, BadParameter, "log_rq_size or log_rq_stride is above the limit";
    QP_RECEIVE_TYPE = 0xb0_0066, BadParameter, "rq_type is not supported: 0 (own), 1 (shared) and 3 (none) are";
    QP_NUMBER = 0xb0_0067, BadParameter, "a queue pair number cannot be asked for";
    QP_STATE = 0xb0_0070, BadQpState, "the queue pair is not in the state from which this transition starts";
    QP_OPTIONAL_PARAMETER = 0xb0_0071, BadParameter, "opt_param_mask selects what this transition does not take";
    QP_PATH_MTU = 0xb0_0072, BadParameter, "the path MTU is not 1 to 5 or does not fit the port";
    QP_MESSAGE_SIZE = 0xb0_0073, BadParameter, "log_msg_max is above the limit";
    QP_RESPONDER_RESOURCES = 0xb0_0074, ExceedsLimit, "log_rra_max is above the limit";
    QP_INITIATOR_DEPTH = 0xb0_0075, ExceedsLimit, "log_sra_max is above the limit";
    QP_SOURCE_ADDRESS = 0xb0_0076, BadParameter, "src_addr_index names no entry of the RoCE address table";
    QP_REMOTE_ADDRESS = 0xb0_0077, BadParameter, "the remote GID or MAC address is zero, multicast or of another family";
    QP_PKEY_INDEX = 0xb0_0078, BadIndex, "pkey_index is outside the table";
    QP_PORT = 0xb0_0079, BadIndex, "the port does not exist";
    QP_SOURCE_PORT = 0xb0_007a, BadParameter, "udp_sport is outside the range of the RoCE capabilities";
    QP_DRAINING = 0xb0_007b, BadQpState, "the send queue is still draining: wait for the event, or query until it is drained";
    QP_ALTERNATE_PATH = 0xb0_007c, BadParameter, "alternate paths and their migration are not offered (apm)";
    MCG_GID = 0xb0_00e0, BadParameter, "the GID is not that of a multicast group";
    MCG_SERVICE = 0xb0_00e1, BadParameter, "only queue pairs of unreliable datagrams join multicast groups";
    MCG_LIMIT = 0xb0_00e2, ExceedsLimit, "no multicast group left, or no place in the group";
    MCG_NOT_ATTACHED = 0xb0_00e3, BadResourceState, "the queue pair is no member of the multicast group";
    MAD_PORT = 0xb0_00e8, BadIndex, "the datagram is for a port or a plane that does not exist";
    MAD_VERSION = 0xb0_00e9, BadParameter, "the datagram is not one of base version 1";
    MAD_METHOD = 0xb0_00ea, BadParameter, "the datagram is one that has no answer";
    SRQ_UNKNOWN = 0xb0_0090, BadResource, "no such shared receive queue";
    SRQ_BUSY = 0xb0_0091, BadResourceState, "queue pairs still use the shared receive queue";
    SRQ_LIMIT = 0xb0_0092, ExceedsLimit, "no shared receive queue left";
    SRQ_SIZE = 0xb0_0093, BadParameter, "the size or the stride of a shared receive queue is above the limit";
    SRQ_FEATURE = 0xb0_0094, BadParameter, "the shared receive queue asks for a feature that is not offered";
    SRQ_STATE = 0xb0_0095, BadResourceState, "the receive memory pool is not in the state that the command begins from, or cannot go to that one";
    XRCD_UNKNOWN = 0xb0_0098, BadResource, "no such XRC domain";
    XRCD_BUSY = 0xb0_0099, BadResourceState, "shared receive queues or queue pairs still use the XRC domain";
    XRCD_LIMIT = 0xb0_009a, ExceedsLimit, "no XRC domain left";
    COUNTER_UNKNOWN = 0xb0_00a0, BadIndex, "no such counter set";
    COUNTER_BUSY = 0xb0_00a1, BadResourceState, "queue pairs still count in the set";
    COUNTER_LIMIT = 0xb0_00a2, ExceedsLimit, "no counter set left";
    COUNTER_SCOPE = 0xb0_00a3, BadParameter, "counters of other ports and sums over sets are not offered";
    CONGESTION_PRIORITY = 0xb0_00a4, BadParameter, "Ethernet has no such priority";
    CONGESTION_PROTOCOL = 0xb0_00a5, BadParameter, "congestion control is offered for RoCE, as reaction point (1) and notification point (2)";
    ROCE_ADDRESS_INDEX = 0xb0_0080, BadIndex, "roce_address_index is outside the table";
    ROCE_ADDRESS_PORT = 0xb0_0081, BadIndex, "the port of a RoCE address does not exist";
    ROCE_ADDRESS_VERSION = 0xb0_0082, BadParameter, "the RoCE version is not supported: 1 and 2 are";
    ROCE_ADDRESS_TYPE = 0xb0_0083, BadParameter, "roce_l3_type contradicts the address";
    ROCE_ADDRESS_VLAN = 0xb0_0084, BadParameter, "the VLAN of a RoCE address does not exist: 0 to 4094 do";
    ROCE_ADDRESS_MAC = 0xb0_0085, BadParameter, "the source MAC address of a RoCE address is zero or multicast";
    VPORT_UNKNOWN = 0xb0_0088, BadIndex, "no such virtual port";
    VPORT_LIST_TYPE = 0xb0_0089, BadParameter, "no such address list";
    VPORT_FIELD = 0xb0_008a, BadParameter, "the field of the virtual port cannot be modified";
    VPORT_INDEX = 0xb0_008c, BadIndex, "the index is outside the table of the port";
    LINK_LAYER = 0xb0_008d, BadParameter, "the command is for ports of another link layer";
    TRANSPORT_DOMAIN_UNKNOWN = 0xb0_01a0, BadResource, "no such transport domain";
    TRANSPORT_DOMAIN_BUSY = 0xb0_01a1, BadResourceState, "transport interfaces still use the transport domain";
    TRANSPORT_DOMAIN_LIMIT = 0xb0_01a2, ExceedsLimit, "no transport domain left";
    TIS_UNKNOWN = 0xb0_01a4, BadResource, "no such transport interface send";
    TIS_BUSY = 0xb0_01a5, BadResourceState, "send queues still use the transport interface send";
    TIS_LIMIT = 0xb0_01a6, ExceedsLimit, "no transport interface send left";
    TIS_FEATURE = 0xb0_01a7, BadParameter, "the transport interface send asks for a feature that is not offered";
    SQ_UNKNOWN = 0xb0_01a8, BadResource, "no such send queue";
    SQ_LIMIT = 0xb0_01a9, ExceedsLimit, "no send queue left";
    SQ_SIZE = 0xb0_01aa, BadParameter, "the size or the stride of a send queue is outside the limits";
    SQ_FEATURE = 0xb0_01ab, BadParameter, "the send queue asks for a feature that is not offered";
    SQ_STATE = 0xb0_01ac, BadResourceState, "the send queue is not in the state from which this transition starts";
    RQ_UNKNOWN = 0xb0_01b0, BadResource, "no such receive queue";
    RQ_BUSY = 0xb0_01b1, BadResourceState, "transport interfaces or tables still lead to the receive queue";
    RQ_LIMIT = 0xb0_01b2, ExceedsLimit, "no receive queue left";
    RQ_SIZE = 0xb0_01b3, BadParameter, "the size or the stride of a receive queue is outside the limits";
    RQ_FEATURE = 0xb0_01b4, BadParameter, "the receive queue asks for a feature that is not offered";
    RQ_STATE = 0xb0_01b5, BadResourceState, "the receive queue is not in the state from which this transition starts";
    RQT_UNKNOWN = 0xb0_01b8, BadResource, "no such receive queue table";
    RQT_BUSY = 0xb0_01b9, BadResourceState, "transport interfaces still use the receive queue table";
    RQT_LIMIT = 0xb0_01ba, ExceedsLimit, "no receive queue table left";
    RQT_SIZE = 0xb0_01bb, BadParameter, "the receive queue table is empty, or larger than its limit";
    RQT_FEATURE = 0xb0_01bc, BadParameter, "the receive queue table asks for a feature that is not offered";
    TIR_UNKNOWN = 0xb0_01c0, BadResource, "no such transport interface receive";
    TIR_BUSY = 0xb0_01c1, BadResourceState, "flows still lead to the transport interface receive";
    TIR_LIMIT = 0xb0_01c2, ExceedsLimit, "no transport interface receive left";
    TIR_FEATURE = 0xb0_01c3, BadParameter, "the transport interface receive asks for a feature that is not offered";
    TIR_HASH = 0xb0_01c4, BadParameter, "the hash function or the hashed fields are not supported";
    FLOW_TABLE_UNKNOWN = 0xb0_01c8, BadResource, "no such flow table of this type";
    FLOW_TABLE_BUSY = 0xb0_01c9, BadResourceState, "the flow table has groups, or something still leads to it";
    FLOW_TABLE_LIMIT = 0xb0_01ca, ExceedsLimit, "no flow table left";
    FLOW_TABLE_TYPE = 0xb0_01cb, BadParameter, "flow tables of this type are not offered";
    FLOW_TABLE_SIZE = 0xb0_01cc, BadParameter, "the size or the level of the flow table is above the limit";
    FLOW_TABLE_FEATURE = 0xb0_01cd, BadParameter, "the flow table asks for a feature that is not offered";
    FLOW_LEVEL = 0xb0_01ce, BadParameter, "packets may go to flow tables of a higher level only";
    FLOW_GROUP_UNKNOWN = 0xb0_01d0, BadResource, "no such flow group";
    FLOW_GROUP_BUSY = 0xb0_01d1, BadResourceState, "the flow group still has entries";
    FLOW_GROUP_RANGE = 0xb0_01d2, BadParameter, "the indices of the flow group are outside the table, or another group has them";
    FLOW_GROUP_CRITERIA = 0xb0_01d3, BadParameter, "the flow group matches by what is not offered";
    FLOW_ENTRY_UNKNOWN = 0xb0_01d4, BadResource, "no such flow table entry";
    FLOW_ENTRY_INDEX = 0xb0_01d5, BadIndex, "the index of the flow table entry is outside its group";
    FLOW_ENTRY_ACTION = 0xb0_01d6, BadParameter, "the flow table entry asks for an action that is not offered";
    FLOW_ENTRY_DESTINATION = 0xb0_01d7, BadParameter, "a destination of the flow table entry does not exist or is not offered";
    FLOW_BUDGET = 0xb0_01dc, NoResources, "no memory is left for flow groups and flow table entries";
    FLOW_COUNTER_UNKNOWN = 0xb0_01d8, BadResource, "no such flow counter";
    FLOW_COUNTER_BUSY = 0xb0_01d9, BadResourceState, "flow table entries still use the flow counter";
    FLOW_COUNTER_LIMIT = 0xb0_01da, ExceedsLimit, "no flow counter left";
    VPORT_LIST_SIZE = 0xb0_008e, BadParameter, "the address list is longer than its limit";
    VPORT_MTU = 0xb0_008b, BadParameter, "the MTU is outside what the port can do";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_is_its_own() {
        for (i, one) in ALL.iter().enumerate() {
            assert_ne!(one.syndrome, 0);
            assert!(ALL[i + 1..].iter().all(|other| other.syndrome != one.syndrome), "{one} is used twice");
            assert_eq!(Refusal::by_syndrome(one.syndrome), Some(*one));
        }
        assert_eq!(Refusal::unknown_opcode(CommandOpcode::CreateTir).syndrome, 0xdead_0900);
    }
}
