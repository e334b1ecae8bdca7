//! User memory that a program registers for the queues and keys that it creates by commands.

use super::context;
use crate::Errno;
use crate::call::Call;
use crate::commands::Command;
use crate::devx_object::UserMemory;
use crate::files::Object;
use crate::kernel_memory::PAGE;
use crate::object_methods::{answer_or_undo, destroy_handle, keep};
use crate::process::Process;
use crate::request::Request;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_prm::command::umem::{CreateUmemIn, CreateUmemOut};
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::IntoBytes;

/// Rights in an entry: the device may read, the device may write.
const READ: u64 = 1;
const WRITE: u64 = 2;
/// Rights that a program can give.
const ACCESS: u64 =
    (IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_READ) as u64;

/// DEVX_UMEM_REG. Its pages are those of the system, whatever larger ones the program permits.
pub(crate) fn register<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let uid = context(call)?;
    let start = request.constant(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
    let length = request.constant(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
    let access = request.constant(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS);
    let is_local = access & u64::from(IB_UVERBS_ACCESS_LOCAL_WRITE) != 0;
    let writes = access & u64::from(IB_UVERBS_ACCESS_REMOTE_WRITE) != 0;
    let permitted = request.length(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP).is_none()
        || request.constant(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP) & PAGE != 0;
    if access & !ACCESS != 0 || writes && !is_local || length == 0 || !permitted {
        return Err(Errno::Invalid);
    }
    let end = start.checked_add(length).ok_or(Errno::Invalid)?;
    if !call.process.has_memory(start, length, is_local) {
        return Err(Errno::Fault);
    }
    let rights = if is_local { READ | WRITE } else { READ };
    let first = start / PAGE;
    let pages = end.div_ceil(PAGE) - first;
    let list: Vec<u8> =
        (first..first + pages).flat_map(|page| ((page * PAGE) | rights).to_be_bytes()).collect();
    let mut input = CreateUmemIn::new();
    input.set_uid(uid).set_page_offset((start % PAGE) as u32).set_num_of_mtt(pages);
    let command = Command::new(CommandOpcode::CreateUmem, 0, &input).list(&list);
    let id = call.device.commands.run::<_, CreateUmemOut>(call.process, &command)?.umem_id();
    let handle = keep(call, Object::UserMemory(UserMemory { id, start, length }), &[])?;
    request.put_new(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, handle.into());
    answer_or_undo(call, request, handle, &[(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, id.value().as_bytes())])
}

/// DEVX_UMEM_DEREG.
pub(crate) fn deregister<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    context(call)?;
    let handle = request.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE)?;
    call.file.user_memory(handle)?;
    destroy_handle(call, handle)
}
