//! Location of libibverbs' driver functions: parts of structures in `infiniband/verbs.h`, which are fixed within
//! `libibverbs.so.1` because programs are compiled against them. `tests/vectors/verbs` has a C compiler's view of that
//! header.

use core::ffi::{c_int, c_uint, c_void};

/// `__VERBS_ABI_IS_EXTENDED`: value of `abi_compat` in an extended context.
pub(crate) const IS_EXTENDED: usize = usize::MAX;

/// `struct ibv_context_ops`.
#[repr(C)]
pub(crate) struct ContextOps {
    before_poll_cq: [*mut c_void; 11],
    pub(crate) poll_cq: *mut c_void,
    before_post_send: [*mut c_void; 13],
    pub(crate) post_send: *mut c_void,
    behind_post_send: [*mut c_void; 6],
}

/// `struct ibv_context`.
#[repr(C)]
pub(crate) struct Context {
    device: *mut c_void,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    async_fd: c_int,
    num_comp_vectors: c_int,
    mutex: libc::pthread_mutex_t,
    pub(crate) abi_compat: *mut c_void,
}

/// The end of `struct verbs_context`, which grows at its start.
#[repr(C)]
pub(crate) struct VerbsContext {
    pub(crate) create_qp_ex: *mut c_void,
    behind_create_qp_ex: [*mut c_void; 4],
    abi_placeholder3: u64,
    pub(crate) sz: usize,
    pub(crate) context: Context,
}

/// The start of `struct ibv_qp` and `struct ibv_cq`.
#[repr(C)]
pub(crate) struct Owned {
    pub(crate) context: *mut Context,
}

/// `struct ibv_qp`.
#[repr(C)]
pub(crate) struct QueuePair {
    pub(crate) owned: Owned,
    members: [*mut c_void; 5],
    numbers: [u32; 4],
    mutex: libc::pthread_mutex_t,
    cond: libc::pthread_cond_t,
    events_completed: u32,
}

/// `struct ibv_qp_ex` up to `wr_complete`.
#[repr(C)]
pub(crate) struct ExtendedQueuePair {
    base: QueuePair,
    comp_mask: u64,
    wr_id: u64,
    wr_flags: c_uint,
    before_wr_complete: [*mut c_void; 18],
    pub(crate) wr_complete: *mut c_void,
}
