//! INVOKE_WRITE: commands that programs used to write to the device file, now wrapped in an ioctl.

use crate::Errno;
use crate::call::Call;
use crate::process::Process;
use crate::queue_pair_state;
use crate::request::Request;
use crate::uapi::*;
use crate::{
    address_methods as addresses, completion_methods as completions, memory_methods as memory,
    object_methods as objects, shared_receive_methods as shared_receives,
};
use zerocopy::IntoBytes;

/// Bit of a command number: the extended form.
const EXTENDED: u32 = 1 << 31;
/// Bytes of QUERY_DEVICE's extended answer that every kernel returns.
const LEAST_EXTENDED_RESPONSE: usize = 184;

/// Runs a command.
type Handler<P> = fn(&mut Call<'_, P>, &mut Request<'_>) -> Result<(), Errno>;

/// A supported command, with the least bytes of request and response.
struct WriteCommand<P: Process> {
    number: u32,
    request: usize,
    response: usize,
    run: Handler<P>,
}

/// A command whose request and response are structures.
const fn command<P: Process, I, O>(number: u32, run: Handler<P>) -> WriteCommand<P> {
    WriteCommand { number, request: size_of::<I>(), response: size_of::<O>(), run }
}

/// Finds a supported command.
fn find<P: Process>(number: u32) -> Option<WriteCommand<P>> {
    use IB_USER_VERBS_EX_CMD_MODIFY_CQ as MODIFY_CQ;
    let known = [
        command::<P, QueryDevice, QueryDeviceResp>(IB_USER_VERBS_CMD_QUERY_DEVICE, query_device),
        WriteCommand {
            number: IB_USER_VERBS_CMD_QUERY_DEVICE | EXTENDED,
            request: size_of::<ExQueryDevice>(),
            response: LEAST_EXTENDED_RESPONSE,
            run: query_device_extended,
        },
        command::<P, QueryDevice, AllocPdResp>(IB_USER_VERBS_CMD_ALLOC_PD, objects::alloc_pd),
        command::<P, CreateAh, CreateAhResp>(IB_USER_VERBS_CMD_CREATE_AH, addresses::create),
        command::<P, RegMr, RegMrResp>(IB_USER_VERBS_CMD_REG_MR, memory::register),
        command::<P, ReregMr, ReregMrResp>(IB_USER_VERBS_CMD_REREG_MR, memory::reregister),
        command::<P, AllocMw, AllocMwResp>(IB_USER_VERBS_CMD_ALLOC_MW, memory::alloc_window),
        command::<P, QueryDevice, CreateCompChannelResp>(
            IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
            completions::create_channel,
        ),
        command::<P, ResizeCq, ResizeCqResp>(IB_USER_VERBS_CMD_RESIZE_CQ, completions::resize),
        command::<P, ExModifyCq, ()>(MODIFY_CQ | EXTENDED, completions::moderate),
        command::<P, QueryQp, QueryQpResp>(IB_USER_VERBS_CMD_QUERY_QP, queue_pair_state::query),
        command::<P, ModifyQp, ()>(IB_USER_VERBS_CMD_MODIFY_QP, queue_pair_state::modify),
        command::<P, ModifyQp, ()>(IB_USER_VERBS_CMD_MODIFY_QP | EXTENDED, queue_pair_state::modify_extended),
        command::<P, AttachMcast, ()>(IB_USER_VERBS_CMD_ATTACH_MCAST, addresses::attach),
        command::<P, AttachMcast, ()>(IB_USER_VERBS_CMD_DETACH_MCAST, addresses::detach),
        command::<P, ModifySrq, ()>(IB_USER_VERBS_CMD_MODIFY_SRQ, shared_receives::modify),
        command::<P, QuerySrq, QuerySrqResp>(IB_USER_VERBS_CMD_QUERY_SRQ, shared_receives::query),
        command::<P, OpenXrcd, OpenXrcdResp>(IB_USER_VERBS_CMD_OPEN_XRCD, objects::open_domain),
    ];
    known.into_iter().find(|command| command.number == number)
}

/// INVOKE_WRITE.
pub(crate) fn invoke<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let number = u32::try_from(request.constant(UVERBS_ATTR_WRITE_CMD)).map_err(|_| Errno::Invalid)?;
    let command = find::<P>(number).ok_or(Errno::NotSupported)?;
    let (given, room) = (request.length(UVERBS_ATTR_CORE_IN), request.length(UVERBS_ATTR_CORE_OUT));
    if given.unwrap_or(0) < command.request || room.unwrap_or(0) < command.response {
        return Err(Errno::NoSpace);
    }
    (command.run)(call, request)
}

fn query_device<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let response = call.device.attributes.query_device();
    request.output(call.process, UVERBS_ATTR_CORE_OUT, response.as_bytes())
}

fn query_device_extended<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let query: ExQueryDevice = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    if query.comp_mask != 0 || query.reserved != 0 {
        return Err(Errno::Invalid);
    }
    let attributes = &call.device.attributes;
    let room = request.length(UVERBS_ATTR_CORE_OUT).unwrap_or(0);
    let mut response = attributes.query_device_extended();
    response.response_length = response.response_length.min(room as u32);
    let room = request.length(UVERBS_ATTR_UHW_OUT).unwrap_or(0);
    let provider = attributes.query_device_mlx5(room);
    request.output(call.process, UVERBS_ATTR_CORE_OUT, response.as_bytes())?;
    request.output(call.process, UVERBS_ATTR_UHW_OUT, provider.as_bytes())
}
