//! Objects and their handles: creation and destruction, protection domains, doorbell pages, XRC domains.

use crate::Errno;
use crate::call::Call;
use crate::commands::{Command, CommandFailure};
use crate::device::Device;
use crate::devx_object::DevxObject;
use crate::files::Object;
use crate::mapping::doorbell_offset;
use crate::process::Process;
use crate::queues::SharedDomain;
use crate::request::Request;
use crate::uapi::*;
use bareverbs_prm::command::cq::{DestroyCqIn, DestroyCqOut};
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::mkey::{DestroyMkeyIn, DestroyMkeyOut};
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut, DeallocPdIn, DeallocPdOut};
use bareverbs_prm::command::qp::{DestroyQpIn, DestroyQpOut};
use bareverbs_prm::command::srq::{
    AllocXrcdIn, AllocXrcdOut, DeallocXrcdIn, DeallocXrcdOut, DestroyRmpIn, DestroyRmpOut, DestroyXrcSrqIn,
    DestroyXrcSrqOut,
};
use bareverbs_prm::command::uar::{AllocUarIn, AllocUarOut, DeallocUarIn, DeallocUarOut};
use bareverbs_prm::command::umem::{DestroyUmemIn, DestroyUmemOut};
use bareverbs_prm::ids::{Cqn, Mkey, Pdn, Qpn, Srqn, UarIndex, UmemId, Xrcdn};
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::IntoBytes;

/// Bytes of a doorbell page.
const PAGE: u32 = 4096;
/// `oflags` of OPEN_XRCD; the values are those of `open`.
const CREATE: u32 = 0o100;
const EXCLUSIVE: u32 = 0o200;
/// A domain that nobody shares.
const PRIVATE: u32 = u32::MAX;

/// Destroys an object at the device.
pub(crate) fn destroy<P: Process>(
    device: &mut Device,
    process: &mut P,
    object: Object,
) -> Result<(), CommandFailure> {
    match object {
        Object::ProtectionDomain(pd) => dealloc_domain(device, process, pd),
        Object::Uar(page) => dealloc_page(device, process, page),
        Object::MemoryRegion(region) => destroy_key(device, process, region.key),
        Object::MemoryWindow(key) => destroy_key(device, process, key),
        Object::CompletionQueue(cqn) => destroy_completion_queue(device, process, cqn),
        Object::QueuePair(qpn) => destroy_queue_pair(device, process, qpn),
        Object::SharedReceiveQueue(number) => destroy_shared_queue(device, process, number),
        Object::XrcDomain(domain) => close_domain(device, process, domain),
        Object::AddressHandle => Ok(()),
        Object::Devx(object) => destroy_devx(device, process, object),
        Object::UserMemory(memory) => destroy_memory(device, process, memory.id),
    }
}

fn dealloc_domain<P: Process>(device: &mut Device, process: &mut P, pd: Pdn) -> Result<(), CommandFailure> {
    let mut input = DeallocPdIn::new();
    input.set_pd(pd);
    let command = Command::new(CommandOpcode::DeallocPd, 0, &input);
    device.commands.run::<_, DeallocPdOut>(process, &command).map(drop)
}

fn dealloc_page<P: Process>(
    device: &mut Device,
    process: &mut P,
    page: UarIndex,
) -> Result<(), CommandFailure> {
    let mut input = DeallocUarIn::new();
    input.set_uar(page);
    let command = Command::new(CommandOpcode::DeallocUar, 0, &input);
    device.commands.run::<_, DeallocUarOut>(process, &command).map(drop)
}

fn destroy_key<P: Process>(device: &mut Device, process: &mut P, key: Mkey) -> Result<(), CommandFailure> {
    let mut input = DestroyMkeyIn::new();
    input.set_mkey_index(key.index());
    let command = Command::new(CommandOpcode::DestroyMkey, 0, &input);
    device.commands.run::<_, DestroyMkeyOut>(process, &command).map(drop)
}

fn destroy_completion_queue<P: Process>(
    device: &mut Device,
    process: &mut P,
    cqn: Cqn,
) -> Result<(), CommandFailure> {
    let mut input = DestroyCqIn::new();
    input.set_cqn(cqn);
    let command = Command::new(CommandOpcode::DestroyCq, 0, &input);
    device.commands.run::<_, DestroyCqOut>(process, &command)?;
    device.doorbells.forget_completion_queue(cqn);
    device.queues.completion.remove(&cqn);
    Ok(())
}

fn destroy_queue_pair<P: Process>(
    device: &mut Device,
    process: &mut P,
    qpn: Qpn,
) -> Result<(), CommandFailure> {
    let mut input = DestroyQpIn::new();
    input.set_qpn(qpn);
    let command = Command::new(CommandOpcode::DestroyQp, 0, &input);
    device.commands.run::<_, DestroyQpOut>(process, &command)?;
    device.doorbells.forget_queue_pair(qpn);
    device.queues.pairs.remove(&qpn);
    Ok(())
}

fn destroy_shared_queue<P: Process>(
    device: &mut Device,
    process: &mut P,
    number: Srqn,
) -> Result<(), CommandFailure> {
    if device.queues.shared.get(&number).is_some_and(|queue| queue.is_xrc) {
        let mut input = DestroyXrcSrqIn::new();
        input.set_xrc_srqn(number);
        let command = Command::new(CommandOpcode::DestroyXrcSrq, 0, &input);
        device.commands.run::<_, DestroyXrcSrqOut>(process, &command)?;
    } else {
        let mut input = DestroyRmpIn::new();
        input.set_rmpn(number);
        let command = Command::new(CommandOpcode::DestroyRmp, 0, &input);
        device.commands.run::<_, DestroyRmpOut>(process, &command)?;
    }
    device.queues.shared.remove(&number);
    Ok(())
}

/// Destroys an object that a command of the program created.
fn destroy_devx<P: Process>(
    device: &mut Device,
    process: &mut P,
    object: DevxObject,
) -> Result<(), CommandFailure> {
    device.commands.run::<_, CommandHeaderOut>(process, &Command::of_bytes(&object.destroy_command()))?;
    match object.creator {
        CommandOpcode::CreateCq => {
            device.doorbells.forget_completion_queue(Cqn::from_low_bits(object.number));
        }
        CommandOpcode::CreateQp => device.doorbells.forget_queue_pair(Qpn::from_low_bits(object.number)),
        _ => {}
    }
    Ok(())
}

fn destroy_memory<P: Process>(
    device: &mut Device,
    process: &mut P,
    id: UmemId,
) -> Result<(), CommandFailure> {
    let mut input = DestroyUmemIn::new();
    input.set_umem_id(id);
    let command = Command::new(CommandOpcode::DestroyUmem, 0, &input);
    device.commands.run::<_, DestroyUmemOut>(process, &command).map(drop)
}

/// Closes a domain. The last close destroys it.
fn close_domain<P: Process>(
    device: &mut Device,
    process: &mut P,
    domain: Xrcdn,
) -> Result<(), CommandFailure> {
    if let Some(shared) = device.queues.xrc_domains.get_mut(&domain)
        && shared.users > 1
    {
        shared.users -= 1;
        return Ok(());
    }
    let mut input = DeallocXrcdIn::new();
    input.set_xrcd(domain);
    let command = Command::new(CommandOpcode::DeallocXrcd, 0, &input);
    device.commands.run::<_, DeallocXrcdOut>(process, &command)?;
    device.queues.xrc_domains.remove(&domain);
    Ok(())
}

/// Adds a new object that uses others; if that fails, destroys it again.
pub(crate) fn keep<P: Process>(call: &mut Call<'_, P>, object: Object, uses: &[u32]) -> Result<u32, Errno> {
    let kept = call.file.insert(object, uses);
    if kept.is_err() {
        destroy(call.device, call.process, object)?;
    }
    kept
}

/// Destroys an object that nobody uses, and removes its handle from the file.
pub(crate) fn destroy_handle<P: Process>(call: &mut Call<'_, P>, handle: u32) -> Result<(), Errno> {
    let object = call.file.get(handle)?;
    if call.file.is_used(handle) {
        return Err(Errno::Busy);
    }
    destroy(call.device, call.process, object)?;
    call.file.remove(handle);
    Ok(())
}

/// Answers; if a response cannot be written, destroys the new object again.
pub(crate) fn answer_or_undo<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
    handle: u32,
    outputs: &[(u16, &[u8])],
) -> Result<(), Errno> {
    for &(id, bytes) in outputs {
        if let Err(error) = request.output(call.process, id, bytes) {
            destroy_handle(call, handle)?;
            return Err(error);
        }
    }
    Ok(())
}

/// Creates a protection domain.
pub(crate) fn alloc_domain<P: Process>(call: &mut Call<'_, P>) -> Result<Pdn, Errno> {
    let command = Command::new(CommandOpcode::AllocPd, 0, &AllocPdIn::new());
    Ok(call.device.commands.run::<_, AllocPdOut>(call.process, &command)?.pd())
}

/// ALLOC_PD.
pub(crate) fn alloc_pd<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let pd = alloc_domain(call)?;
    let pd_handle = keep(call, Object::ProtectionDomain(pd), &[])?;
    let (response, provider) = (AllocPdResp { pd_handle }, Mlx5AllocPdResp { pdn: pd.value() });
    let outputs = [(UVERBS_ATTR_CORE_OUT, response.as_bytes()), (UVERBS_ATTR_UHW_OUT, provider.as_bytes())];
    answer_or_undo(call, request, pd_handle, &outputs)
}

/// `MLX5_IB_METHOD_PD_QUERY`: the number of a protection domain, for a process that imports it.
pub(crate) fn query_domain<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let handle = request.handle(MLX5_IB_ATTR_QUERY_PD_HANDLE)?;
    let number = call.file.protection_domain(handle)?.value();
    request.output(call.process, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, number.as_bytes())
}

/// PD_DESTROY.
pub(crate) fn destroy_domain<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_PD_HANDLE)?;
    call.file.protection_domain(handle)?;
    destroy_handle(call, handle)
}

/// UAR_OBJ_ALLOC. Both kinds of page are the same here, because there are no write-combining registers.
pub(crate) fn alloc_uar<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let kind = request.constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
    if kind != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && kind != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC {
        return Err(Errno::NotSupported);
    }
    let command = Command::new(CommandOpcode::AllocUar, 0, &AllocUarIn::new());
    let page = call.device.commands.run::<_, AllocUarOut>(call.process, &command)?.uar();
    let handle = keep(call, Object::Uar(page), &[])?;
    request.put_new(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, handle.into());
    let (offset, number) = (doorbell_offset(page), page.value());
    let outputs: [(u16, &[u8]); 3] = [
        (MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset.as_bytes()),
        (MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, PAGE.as_bytes()),
        (MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, number.as_bytes()),
    ];
    answer_or_undo(call, request, handle, &outputs)
}

/// UAR_OBJ_DESTROY.
pub(crate) fn destroy_uar<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)?;
    call.file.uar(handle)?;
    destroy_handle(call, handle)
}

/// OPEN_XRCD: a private domain, or the domain of a file, shared by everybody who has the file open.
pub(crate) fn open_domain<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let requested: OpenXrcd = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let domain =
        if requested.fd == PRIVATE { alloc_xrc_domain(call)? } else { open_shared(call, &requested)? };
    let xrcd_handle = keep(call, Object::XrcDomain(domain), &[])?;
    let response = OpenXrcdResp { xrcd_handle };
    answer_or_undo(call, request, xrcd_handle, &[(UVERBS_ATTR_CORE_OUT, response.as_bytes())])
}

fn open_shared<P: Process>(call: &mut Call<'_, P>, requested: &OpenXrcd) -> Result<Xrcdn, Errno> {
    let inode = call.process.inode(requested.fd.cast_signed()).ok_or(Errno::BadDescriptor)?;
    let mut domains = call.device.queues.xrc_domains.iter_mut();
    if let Some((&domain, shared)) = domains.find(|(_, shared)| shared.inode == inode) {
        if requested.oflags & EXCLUSIVE != 0 {
            return Err(Errno::Invalid);
        }
        shared.users += 1;
        return Ok(domain);
    }
    if requested.oflags & CREATE == 0 {
        return Err(Errno::Again);
    }
    let domain = alloc_xrc_domain(call)?;
    call.device.queues.xrc_domains.insert(domain, SharedDomain { inode, users: 1 });
    Ok(domain)
}

/// Creates an XRC domain.
pub(crate) fn alloc_xrc_domain<P: Process>(call: &mut Call<'_, P>) -> Result<Xrcdn, Errno> {
    let command = Command::new(CommandOpcode::AllocXrcd, 0, &AllocXrcdIn::new());
    Ok(call.device.commands.run::<_, AllocXrcdOut>(call.process, &command)?.xrcd())
}

/// XRCD_DESTROY.
pub(crate) fn close_xrc_domain<P: Process>(
    call: &mut Call<'_, P>,
    request: &Request<'_>,
) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_XRCD_HANDLE)?;
    call.file.xrc_domain(handle)?;
    destroy_handle(call, handle)
}
