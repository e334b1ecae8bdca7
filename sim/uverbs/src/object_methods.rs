//! Objects: protection domains and doorbell pages.

use crate::Errno;
use crate::call::Call;
use crate::commands::{Command, CommandFailure, CommandQueue};
use crate::files::Object;
use crate::mapping::doorbell_offset;
use crate::process::Process;
use crate::request::Request;
use crate::uapi::*;
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut, DeallocPdIn, DeallocPdOut};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut, DeallocUarIn, DeallocUarOut};
use bareverbs_prm::ids::Pdn;
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::IntoBytes;

/// Bytes of a doorbell page.
const PAGE: u32 = 4096;

/// Takes an object from the device.
pub(crate) fn destroy<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    object: Object,
) -> Result<(), CommandFailure> {
    match object {
        Object::ProtectionDomain(pd) => {
            let mut input = DeallocPdIn::new();
            input.set_pd(pd);
            let command = Command::new(CommandOpcode::DeallocPd, 0, &input);
            commands.run::<_, DeallocPdOut>(process, &command).map(drop)
        }
        Object::Uar(page) => {
            let mut input = DeallocUarIn::new();
            input.set_uar(page);
            let command = Command::new(CommandOpcode::DeallocUar, 0, &input);
            commands.run::<_, DeallocUarOut>(process, &command).map(drop)
        }
    }
}

/// Keeps a new object, or takes it from the device again.
fn keep<P: Process>(call: &mut Call<'_, P>, object: Object) -> Result<u32, Errno> {
    let kept = call.file.insert(object);
    if kept.is_err() {
        destroy(&mut call.device.commands, call.process, object)?;
    }
    kept
}

/// Takes an object from the device and its handle from the file.
fn drop_object<P: Process>(call: &mut Call<'_, P>, handle: u32, object: Object) -> Result<(), Errno> {
    destroy(&mut call.device.commands, call.process, object)?;
    call.file.remove(handle);
    Ok(())
}

/// Makes a protection domain; gives handle and number.
pub(crate) fn alloc_domain<P: Process>(call: &mut Call<'_, P>) -> Result<(u32, Pdn), Errno> {
    let command = Command::new(CommandOpcode::AllocPd, 0, &AllocPdIn::new());
    let answer: AllocPdOut = call.device.commands.run(call.process, &command)?;
    Ok((keep(call, Object::ProtectionDomain(answer.pd()))?, answer.pd()))
}

/// PD_DESTROY.
pub(crate) fn destroy_domain<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_PD_HANDLE)?;
    destroy_domain_handle(call, handle)
}

/// Destroys the protection domain of a handle.
pub(crate) fn destroy_domain_handle<P: Process>(call: &mut Call<'_, P>, handle: u32) -> Result<(), Errno> {
    match call.file.get(handle)? {
        object @ Object::ProtectionDomain(_) => drop_object(call, handle, object),
        Object::Uar(_) => Err(Errno::Invalid),
    }
}

/// UAR_OBJ_ALLOC. Both kinds of page are the same here, since there are no write-combining registers.
pub(crate) fn alloc_uar<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let kind = request.constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
    if kind != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && kind != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC {
        return Err(Errno::NotSupported);
    }
    let command = Command::new(CommandOpcode::AllocUar, 0, &AllocUarIn::new());
    let answer: AllocUarOut = call.device.commands.run(call.process, &command)?;
    let (page, object) = (answer.uar(), Object::Uar(answer.uar()));
    let handle = keep(call, object)?;
    request.put_new(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, handle.into());
    let (offset, number) = (doorbell_offset(page), page.value());
    let outputs: [(u16, &[u8]); 3] = [
        (MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset.as_bytes()),
        (MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, PAGE.as_bytes()),
        (MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, number.as_bytes()),
    ];
    for (id, bytes) in outputs {
        if let Err(error) = request.output(call.process, id, bytes) {
            drop_object(call, handle, object)?;
            return Err(error);
        }
    }
    Ok(())
}

/// UAR_OBJ_DESTROY.
pub(crate) fn destroy_uar<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)?;
    match call.file.get(handle)? {
        object @ Object::Uar(_) => drop_object(call, handle, object),
        Object::ProtectionDomain(_) => Err(Errno::Invalid),
    }
}
