//! A context of the kernel's device file with a user context of the device, and the methods that it offers (mlx5's DEVX).

use super::UverbsError;
use super::request::Request;
use bareverbs_uapi::*;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use zerocopy::{FromZeros, IntoBytes};

/// Doorbell registers that libraries ask for. The kernel checks them, and makes none for contexts that allocate their own pages.
const DOORBELL_REGISTERS: u32 = 16;
const LOW_LATENCY_REGISTERS: u32 = 4;
/// Version of completion entries that carry the user index.
const COMPLETION_VERSION: u8 = 1;
/// The vector whose event queue every completion queue names.
const VECTOR: u32 = 0;
/// The only pages that user memory has, so that a queue may begin at any of them.
const PAGES: u64 = 4096;

/// What the kernel calls an object of a file.
pub(super) type Handle = u32;

/// An open device file with its context.
#[derive(Debug)]
pub(super) struct KernelContext {
    file: File,
}

/// A page of doorbells.
#[derive(Debug, Clone, Copy)]
pub(super) struct DoorbellPage {
    pub(super) handle: Handle,
    /// Offset and length of its mapping in the device file.
    pub(super) offset: u64,
    pub(super) length: u32,
    /// Number of the page in BAR0.
    pub(super) index: u32,
}

/// Registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegisteredMemory {
    pub(super) handle: Handle,
    /// Number of the user memory object at the device.
    pub(super) id: u32,
}

/// What a command did to an object that the kernel knows by its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Modify,
    Query,
}

impl KernelContext {
    /// Opens a device file and creates its context.
    pub(super) fn open(path: &Path) -> Result<Self, UverbsError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|error| UverbsError::Open { file: path.to_owned(), error })?;
        Self::new(file).map_err(|errno| UverbsError::Context {
            file: path.to_owned(),
            error: io::Error::from_raw_os_error(errno),
        })
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Creates the context of a device file. The error is an errno: EINVAL if the device or the kernel has no user contexts.
    fn new(file: File) -> Result<Self, i32> {
        let request = AllocUcontextReq {
            total_num_bfregs: DOORBELL_REGISTERS,
            num_low_latency_bfregs: LOW_LATENCY_REGISTERS,
            flags: MLX5_IB_ALLOC_UCTX_DEVX,
            max_cqe_version: COMPLETION_VERSION,
            lib_caps: MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
            ..AllocUcontextReq::new_zeroed()
        };
        let mut answer = AllocUcontextResp::new_zeroed();
        Request::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
            .input(UVERBS_ATTR_UHW_IN, request.as_bytes())
            .output(UVERBS_ATTR_UHW_OUT, answer.as_mut_bytes())
            .run(&file)?;
        Ok(Self { file })
    }

    /// Number of the event queue that serves the kernel's first completion vector.
    pub(super) fn event_queue(&self) -> Result<u32, i32> {
        let mut number = 0_u32;
        Request::new(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN)
            .word(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, VECTOR)
            .output(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, number.as_mut_bytes())
            .run(&self.file)?;
        Ok(number)
    }

    /// Allocates a page of doorbells that the processor does not combine writes to.
    pub(super) fn allocate_doorbells(&self) -> Result<DoorbellPage, i32> {
        let (mut offset, mut length, mut index) = (0_u64, 0_u32, 0_u32);
        let answer = Request::new(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
            .new_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
            .number(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset.as_mut_bytes())
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length.as_mut_bytes())
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, index.as_mut_bytes())
            .run(&self.file)?;
        let handle = answer.handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
        Ok(DoorbellPage { handle, offset, length, index })
    }

    /// Frees a page of doorbells, when its mapping is gone.
    pub(super) fn free_doorbells(&self, handle: Handle) -> Result<(), i32> {
        Request::new(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY)
            .handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, handle)
            .run(&self.file)
            .map(drop)
    }

    /// Runs a command that belongs to no object.
    pub(super) fn run(&self, input: &[u8], output: &mut [u8]) -> Result<(), i32> {
        Request::new(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER)
            .input(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, input)
            .output(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, output)
            .run(&self.file)
            .map(drop)
    }

    /// Runs a command that creates an object.
    pub(super) fn create(&self, input: &[u8], output: &mut [u8]) -> Result<Handle, i32> {
        let answer = Request::new(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE)
            .new_handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
            .input(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, input)
            .output(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, output)
            .run(&self.file)?;
        Ok(answer.handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE))
    }

    /// Runs a command on an object.
    pub(super) fn access(
        &self,
        access: Access,
        handle: Handle,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), i32> {
        let (method, object, to, from) = match access {
            Access::Modify => (
                MLX5_IB_METHOD_DEVX_OBJ_MODIFY,
                MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE,
                MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT,
            ),
            Access::Query => (
                MLX5_IB_METHOD_DEVX_OBJ_QUERY,
                MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE,
                MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
                MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT,
            ),
        };
        Request::new(MLX5_IB_OBJECT_DEVX_OBJ, method)
            .handle(object, handle)
            .input(to, input)
            .output(from, output)
            .run(&self.file)
            .map(drop)
    }

    /// Destroys an object.
    pub(super) fn destroy(&self, handle: Handle) -> Result<(), i32> {
        Request::new(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY)
            .handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, handle)
            .run(&self.file)
            .map(drop)
    }

    /// Pins `length` bytes at `start` of this process and makes a user memory object of them.
    pub(super) fn register(&self, start: u64, length: u64) -> Result<RegisteredMemory, i32> {
        let mut id = 0_u32;
        let answer = Request::new(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG)
            .new_handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
            .number(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, start)
            .number(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, length)
            .word(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, IB_UVERBS_ACCESS_LOCAL_WRITE)
            .output(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, id.as_mut_bytes())
            .optional_number(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, PAGES)
            .run(&self.file)?;
        Ok(RegisteredMemory { handle: answer.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE), id })
    }

    /// Gives registered memory back. EBUSY while an object is in it.
    pub(super) fn deregister(&self, handle: Handle) -> Result<(), i32> {
        Request::new(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG)
            .handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, handle)
            .run(&self.file)
            .map(drop)
    }
}

impl AsFd for KernelContext {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
