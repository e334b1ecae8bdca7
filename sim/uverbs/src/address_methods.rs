//! Address handles and multicast groups.

use crate::Errno;
use crate::address_path::Route;
use crate::call::Call;
use crate::commands::Command;
use crate::files::Object;
use crate::object_methods::{answer_or_undo, destroy_handle, keep};
use crate::process::Process;
use crate::queues::{QueuePair, QueuePairKind};
use crate::request::Request;
use crate::uapi::*;
use bareverbs_prm::command::multicast::{AttachToMcgIn, AttachToMcgOut, DetachFromMcgIn, DetachFromMcgOut};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::IntoBytes;

/// Bytes of the provider's answer to CREATE_AH up to the MAC address.
const RESPONSE_LENGTH: u32 = 10;

/// CREATE_AH. Programs put addresses into their work requests themselves; all they lack is the MAC address.
pub(crate) fn create<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: CreateAh = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    call.file.protection_domain(requested.pd_handle)?;
    let mac = Route::from(&requested.attr).resolve(call)?.mac();
    let ah_handle = keep(call, Object::AddressHandle, &[requested.pd_handle])?;
    let response = CreateAhResp { ah_handle };
    let provider = Mlx5CreateAhResp { response_length: RESPONSE_LENGTH, dmac: mac.0, reserved: [0; 6] };
    let outputs = [(UVERBS_ATTR_CORE_OUT, response.as_bytes()), (UVERBS_ATTR_UHW_OUT, provider.as_bytes())];
    answer_or_undo(call, request, ah_handle, &outputs)
}

/// AH_DESTROY.
pub(crate) fn destroy<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_AH_HANDLE)?;
    match call.file.get(handle)? {
        Object::AddressHandle => destroy_handle(call, handle),
        _ => Err(Errno::Invalid),
    }
}

/// The queue pair and the group of a multicast request.
fn member<'a, P: Process>(
    call: &'a mut Call<'_, P>,
    request: &Request<'_>,
) -> Result<(Qpn, Gid, &'a mut QueuePair), Errno> {
    let requested: AttachMcast = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let (qpn, group) = (call.file.queue_pair(requested.qp_handle)?, Gid(requested.gid));
    let queue = call.device.queues.pairs.get_mut(&qpn).ok_or(Errno::Invalid)?;
    let datagrams = queue.kind == QueuePairKind::Datagram;
    if datagrams && group.is_multicast() { Ok((qpn, group, queue)) } else { Err(Errno::Invalid) }
}

/// ATTACH_MCAST. Has no effect on a queue pair that is already in the group.
pub(crate) fn attach<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let (qpn, group, queue) = member(call, request)?;
    if queue.groups.contains(&group) {
        return Ok(());
    }
    let mut input = AttachToMcgIn::new();
    input.set_qpn(qpn).set_multicast_gid(group.0);
    let command = Command::new(CommandOpcode::AttachToMcg, 0, &input);
    call.device.commands.run::<_, AttachToMcgOut>(call.process, &command)?;
    let queue = call.device.queues.pairs.get_mut(&qpn).ok_or(Errno::Invalid)?;
    queue.groups.push(group);
    Ok(())
}

/// DETACH_MCAST.
pub(crate) fn detach<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let (qpn, group, queue) = member(call, request)?;
    if !queue.groups.contains(&group) {
        return Err(Errno::Invalid);
    }
    let mut input = DetachFromMcgIn::new();
    input.set_qpn(qpn).set_multicast_gid(group.0);
    let command = Command::new(CommandOpcode::DetachFromMcg, 0, &input);
    call.device.commands.run::<_, DetachFromMcgOut>(call.process, &command)?;
    let queue = call.device.queues.pairs.get_mut(&qpn).ok_or(Errno::Invalid)?;
    queue.groups.retain(|known| *known != group);
    Ok(())
}
