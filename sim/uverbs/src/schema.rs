//! The supported methods and the rules for their attributes.

use crate::uapi::*;

/// What a method does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    InvokeWrite,
    GetContext,
    QueryPort,
    QueryContext,
    QueryVport,
    QueryProtectionDomain,
    QueryMemoryRegion,
    QueryGidTable,
    QueryGidEntry,
    AllocAsyncEvent,
    DestroyProtectionDomain,
    CreateCompletionQueue,
    DestroyCompletionQueue,
    CreateQueuePair,
    DestroyQueuePair,
    CreateSharedReceiveQueue,
    DestroySharedReceiveQueue,
    DestroyAddressHandle,
    DestroyMemoryRegion,
    DestroyMemoryWindow,
    DestroyXrcDomain,
    AllocUar,
    DestroyUar,
    DevxOther,
    DevxQueryEqn,
    DevxCreate,
    DevxModify,
    DevxQuery,
    DevxDestroy,
    RegisterUserMemory,
    DeregisterUserMemory,
}

/// What an attribute carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Bytes for the kernel; this is the least number.
    Input(usize),
    /// Room for bytes from the kernel; this is the least number.
    Output(usize),
    /// A number of at most 8 bytes.
    Constant,
    /// A number that is an object's handle.
    Handle,
    /// Room for the number of a new object or descriptor.
    New,
}

/// An attribute of a method.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttributeRule {
    pub(crate) id: u16,
    pub(crate) carries: Carries,
    pub(crate) required: bool,
}

/// A method.
#[derive(Debug)]
pub(crate) struct Method {
    object: u16,
    method: u16,
    pub(crate) operation: Operation,
    attributes: &'static [AttributeRule],
}

impl Method {
    /// The method of an object, if there is one.
    pub(crate) fn find(object: u16, method: u16) -> Option<&'static Self> {
        METHODS.iter().find(|known| (known.object, known.method) == (object, method))
    }

    /// The rule for an attribute, if the method has it.
    pub(crate) fn attribute(&self, id: u16) -> Option<&'static AttributeRule> {
        self.attributes.iter().find(|rule| rule.id == id)
    }

    /// The mandatory attributes.
    pub(crate) fn required(&self) -> impl Iterator<Item = u16> {
        self.attributes.iter().filter(|rule| rule.required).map(|rule| rule.id)
    }
}

const fn required(id: u16, carries: Carries) -> AttributeRule {
    AttributeRule { id, carries, required: true }
}

const fn optional(id: u16, carries: Carries) -> AttributeRule {
    AttributeRule { id, carries, required: false }
}

/// Bytes of the least command and of the least answer to one.
const HEADER: usize = 16;

use Carries::{Constant, Handle, Input, New, Output};
use Operation as Op;

#[rustfmt::skip]
const METHODS: &[Method] = &[
    Method { object: UVERBS_OBJECT_DEVICE, method: UVERBS_METHOD_INVOKE_WRITE, operation: Op::InvokeWrite, attributes: &[
        optional(UVERBS_ATTR_CORE_IN, Input(4)),
        optional(UVERBS_ATTR_CORE_OUT, Output(0)),
        required(UVERBS_ATTR_WRITE_CMD, Constant),
        optional(UVERBS_ATTR_UHW_IN, Input(0)),
        optional(UVERBS_ATTR_UHW_OUT, Output(0)),
    ] },
    Method { object: UVERBS_OBJECT_DEVICE, method: UVERBS_METHOD_QUERY_PORT, operation: Op::QueryPort, attributes: &[
        required(UVERBS_ATTR_QUERY_PORT_PORT_NUM, Constant),
        required(UVERBS_ATTR_QUERY_PORT_RESP, Output(size_of::<QueryPortResp>())),
    ] },
    Method { object: UVERBS_OBJECT_DEVICE, method: UVERBS_METHOD_GET_CONTEXT, operation: Op::GetContext, attributes: &[
        optional(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, Output(4)),
        optional(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, Output(8)),
        optional(UVERBS_ATTR_UHW_IN, Input(0)),
        optional(UVERBS_ATTR_UHW_OUT, Output(0)),
    ] },
    Method { object: UVERBS_OBJECT_DEVICE, method: UVERBS_METHOD_QUERY_CONTEXT, operation: Op::QueryContext, attributes: &[
        optional(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, Output(4)),
        optional(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, Output(8)),
        required(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, Output(0)),
    ] },
    Method { object: UVERBS_OBJECT_DEVICE, method: MLX5_IB_METHOD_QUERY_PORT, operation: Op::QueryVport, attributes: &[
        required(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, Constant),
        required(MLX5_IB_ATTR_QUERY_PORT, Output(size_of::<Mlx5QueryPort>())),
    ] },
    Method { object: UVERBS_OBJECT_PD, method: MLX5_IB_METHOD_PD_QUERY, operation: Op::QueryProtectionDomain, attributes: &[
        required(MLX5_IB_ATTR_QUERY_PD_HANDLE, Handle),
        required(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, Output(4)),
    ] },
    Method { object: UVERBS_OBJECT_MR, method: UVERBS_METHOD_QUERY_MR, operation: Op::QueryMemoryRegion, attributes: &[
        required(UVERBS_ATTR_QUERY_MR_HANDLE, Handle),
        required(UVERBS_ATTR_QUERY_MR_RESP_LKEY, Output(4)),
        required(UVERBS_ATTR_QUERY_MR_RESP_RKEY, Output(4)),
        required(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, Output(8)),
        optional(UVERBS_ATTR_QUERY_MR_RESP_IOVA, Output(8)),
    ] },
    Method { object: UVERBS_OBJECT_DEVICE, method: UVERBS_METHOD_QUERY_GID_TABLE, operation: Op::QueryGidTable, attributes: &[
        required(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, Constant),
        optional(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, Constant),
        required(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, Output(0)),
        required(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, Output(8)),
    ] },
    Method { object: UVERBS_OBJECT_DEVICE, method: UVERBS_METHOD_QUERY_GID_ENTRY, operation: Op::QueryGidEntry, attributes: &[
        required(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, Constant),
        required(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, Constant),
        required(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, Constant),
        required(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, Output(size_of::<GidEntry>())),
    ] },
    Method { object: UVERBS_OBJECT_ASYNC_EVENT, method: UVERBS_METHOD_ASYNC_EVENT_ALLOC, operation: Op::AllocAsyncEvent, attributes: &[
        required(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, New),
    ] },
    Method { object: UVERBS_OBJECT_PD, method: UVERBS_METHOD_PD_DESTROY, operation: Op::DestroyProtectionDomain, attributes: &[
        required(UVERBS_ATTR_DESTROY_PD_HANDLE, Handle),
    ] },
    Method { object: UVERBS_OBJECT_CQ, method: UVERBS_METHOD_CQ_CREATE, operation: Op::CreateCompletionQueue, attributes: &[
        required(UVERBS_ATTR_CREATE_CQ_HANDLE, New),
        required(UVERBS_ATTR_CREATE_CQ_CQE, Constant),
        required(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, Constant),
        optional(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, Handle),
        required(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, Constant),
        optional(UVERBS_ATTR_CREATE_CQ_FLAGS, Constant),
        required(UVERBS_ATTR_CREATE_CQ_RESP_CQE, Output(4)),
        optional(UVERBS_ATTR_CREATE_CQ_EVENT_FD, Handle),
        optional(UVERBS_ATTR_UHW_IN, Input(0)),
        optional(UVERBS_ATTR_UHW_OUT, Output(0)),
    ] },
    Method { object: UVERBS_OBJECT_CQ, method: UVERBS_METHOD_CQ_DESTROY, operation: Op::DestroyCompletionQueue, attributes: &[
        required(UVERBS_ATTR_DESTROY_CQ_HANDLE, Handle),
        required(UVERBS_ATTR_DESTROY_CQ_RESP, Output(size_of::<DestroyCqResp>())),
    ] },
    Method { object: UVERBS_OBJECT_QP, method: UVERBS_METHOD_QP_CREATE, operation: Op::CreateQueuePair, attributes: &[
        required(UVERBS_ATTR_CREATE_QP_HANDLE, New),
        optional(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, Handle),
        optional(UVERBS_ATTR_CREATE_QP_PD_HANDLE, Handle),
        optional(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, Handle),
        optional(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, Handle),
        optional(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, Handle),
        optional(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, Handle),
        required(UVERBS_ATTR_CREATE_QP_USER_HANDLE, Constant),
        required(UVERBS_ATTR_CREATE_QP_CAP, Input(size_of::<QpCap>())),
        required(UVERBS_ATTR_CREATE_QP_TYPE, Constant),
        optional(UVERBS_ATTR_CREATE_QP_FLAGS, Constant),
        optional(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, Constant),
        optional(UVERBS_ATTR_CREATE_QP_EVENT_FD, Handle),
        required(UVERBS_ATTR_CREATE_QP_RESP_CAP, Output(size_of::<QpCap>())),
        required(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, Output(4)),
        optional(UVERBS_ATTR_UHW_IN, Input(0)),
        optional(UVERBS_ATTR_UHW_OUT, Output(0)),
    ] },
    Method { object: UVERBS_OBJECT_QP, method: UVERBS_METHOD_QP_DESTROY, operation: Op::DestroyQueuePair, attributes: &[
        required(UVERBS_ATTR_DESTROY_QP_HANDLE, Handle),
        required(UVERBS_ATTR_DESTROY_QP_RESP, Output(size_of::<DestroyQpResp>())),
    ] },
    Method { object: UVERBS_OBJECT_SRQ, method: UVERBS_METHOD_SRQ_CREATE, operation: Op::CreateSharedReceiveQueue, attributes: &[
        required(UVERBS_ATTR_CREATE_SRQ_HANDLE, New),
        required(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, Handle),
        optional(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, Handle),
        optional(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, Handle),
        required(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, Constant),
        required(UVERBS_ATTR_CREATE_SRQ_MAX_WR, Constant),
        required(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, Constant),
        required(UVERBS_ATTR_CREATE_SRQ_LIMIT, Constant),
        optional(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, Constant),
        required(UVERBS_ATTR_CREATE_SRQ_TYPE, Constant),
        optional(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, Handle),
        required(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, Output(4)),
        required(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, Output(4)),
        optional(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, Output(4)),
        optional(UVERBS_ATTR_UHW_IN, Input(0)),
        optional(UVERBS_ATTR_UHW_OUT, Output(0)),
    ] },
    Method { object: UVERBS_OBJECT_SRQ, method: UVERBS_METHOD_SRQ_DESTROY, operation: Op::DestroySharedReceiveQueue, attributes: &[
        required(UVERBS_ATTR_DESTROY_SRQ_HANDLE, Handle),
        required(UVERBS_ATTR_DESTROY_SRQ_RESP, Output(size_of::<DestroySrqResp>())),
    ] },
    Method { object: UVERBS_OBJECT_AH, method: UVERBS_METHOD_AH_DESTROY, operation: Op::DestroyAddressHandle, attributes: &[
        required(UVERBS_ATTR_DESTROY_AH_HANDLE, Handle),
    ] },
    Method { object: UVERBS_OBJECT_MR, method: UVERBS_METHOD_MR_DESTROY, operation: Op::DestroyMemoryRegion, attributes: &[
        required(UVERBS_ATTR_DESTROY_MR_HANDLE, Handle),
    ] },
    Method { object: UVERBS_OBJECT_MW, method: UVERBS_METHOD_MW_DESTROY, operation: Op::DestroyMemoryWindow, attributes: &[
        required(UVERBS_ATTR_DESTROY_MW_HANDLE, Handle),
    ] },
    Method { object: UVERBS_OBJECT_XRCD, method: UVERBS_METHOD_XRCD_DESTROY, operation: Op::DestroyXrcDomain, attributes: &[
        required(UVERBS_ATTR_DESTROY_XRCD_HANDLE, Handle),
    ] },
    Method { object: MLX5_IB_OBJECT_UAR, method: MLX5_IB_METHOD_UAR_OBJ_ALLOC, operation: Op::AllocUar, attributes: &[
        required(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, New),
        required(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, Constant),
        required(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, Output(8)),
        required(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, Output(4)),
        required(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, Output(4)),
    ] },
    Method { object: MLX5_IB_OBJECT_UAR, method: MLX5_IB_METHOD_UAR_OBJ_DESTROY, operation: Op::DestroyUar, attributes: &[
        required(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, Handle),
    ] },
    Method { object: MLX5_IB_OBJECT_DEVX, method: MLX5_IB_METHOD_DEVX_OTHER, operation: Op::DevxOther, attributes: &[
        required(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, Input(HEADER)),
        required(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, Output(HEADER)),
    ] },
    Method { object: MLX5_IB_OBJECT_DEVX, method: MLX5_IB_METHOD_DEVX_QUERY_EQN, operation: Op::DevxQueryEqn, attributes: &[
        required(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, Constant),
        required(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, Output(4)),
    ] },
    Method { object: MLX5_IB_OBJECT_DEVX_OBJ, method: MLX5_IB_METHOD_DEVX_OBJ_CREATE, operation: Op::DevxCreate, attributes: &[
        required(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, New),
        required(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, Input(HEADER)),
        required(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, Output(HEADER)),
    ] },
    Method { object: MLX5_IB_OBJECT_DEVX_OBJ, method: MLX5_IB_METHOD_DEVX_OBJ_MODIFY, operation: Op::DevxModify, attributes: &[
        required(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, Handle),
        required(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, Input(HEADER)),
        required(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, Output(HEADER)),
    ] },
    Method { object: MLX5_IB_OBJECT_DEVX_OBJ, method: MLX5_IB_METHOD_DEVX_OBJ_QUERY, operation: Op::DevxQuery, attributes: &[
        required(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, Handle),
        required(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, Input(HEADER)),
        required(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, Output(HEADER)),
    ] },
    Method { object: MLX5_IB_OBJECT_DEVX_OBJ, method: MLX5_IB_METHOD_DEVX_OBJ_DESTROY, operation: Op::DevxDestroy, attributes: &[
        required(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, Handle),
    ] },
    Method { object: MLX5_IB_OBJECT_DEVX_UMEM, method: MLX5_IB_METHOD_DEVX_UMEM_REG, operation: Op::RegisterUserMemory, attributes: &[
        required(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, New),
        required(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, Constant),
        required(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, Constant),
        optional(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, Constant),
        required(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, Output(4)),
        optional(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, Constant),
    ] },
    Method { object: MLX5_IB_OBJECT_DEVX_UMEM, method: MLX5_IB_METHOD_DEVX_UMEM_DEREG, operation: Op::DeregisterUserMemory, attributes: &[
        required(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, Handle),
    ] },
];
