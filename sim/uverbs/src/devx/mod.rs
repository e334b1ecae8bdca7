//! DEVX: a program sends commands of the PRM itself. The kernel checks that it may, adds the number of the program's user context,
//! and remembers the objects that were created (Linux `drivers/infiniband/hw/mlx5/devx.c`).
//!
//! Only a device with user contexts has it, and only a file whose context was created with the DEVX flag. Subscriptions to events and
//! asynchronous queries are not implemented.

mod memory;
mod queues;

pub(crate) use memory::{deregister, register};

use crate::Errno;
use crate::call::Call;
use crate::devx_object::{Action, DevxObject, is_general};
use crate::files::Object;
use crate::object_methods::{answer_or_undo, destroy_handle, keep};
use crate::process::Process;
use crate::request::Request;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandHeaderOut};
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus};
use zerocopy::{FromBytes, IntoBytes};

/// The user context of the calling file.
fn context<P: Process>(call: &Call<'_, P>) -> Result<u16, Errno> {
    if call.device.attributes.general.log_max_uctx() == 0 {
        return Err(Errno::ProtocolNotSupported);
    }
    if call.file.uid == 0 { Err(Errno::Invalid) } else { Ok(call.file.uid) }
}

/// A command of the program, with the number of its user context.
fn command<P: Process>(
    call: &mut Call<'_, P>,
    request: &Request<'_>,
    id: u16,
) -> Result<(CommandOpcode, Vec<u8>), Errno> {
    let uid = context(call)?;
    let mut input = request.input(call.process, id)?;
    let (header, _) = CommandHeaderIn::mut_from_prefix(&mut input).map_err(|_| Errno::Invalid)?;
    header.set_uid(uid);
    let opcode = header.opcode();
    Ok((opcode, input))
}

/// Runs a command whose output goes to this attribute. A refusal of firmware goes there, too: its status and syndrome.
fn run<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
    input: &[u8],
    output: u16,
) -> Result<Vec<u8>, Errno> {
    let room = request.length(output).unwrap_or(0);
    let response = call.device.commands.run_bytes(call.process, input, room).ok_or(Errno::Io)?;
    let header: CommandHeaderOut = read_extended(&response);
    if header.status() == CommandStatus::Ok {
        return Ok(response);
    }
    request.output(call.process, output, &response)?;
    Err(Errno::RemoteIo)
}

/// DEVX_OTHER: a command that belongs to no object.
pub(crate) fn other<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let (opcode, input) = command(call, request, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN)?;
    if !is_general(opcode) {
        return Err(Errno::Invalid);
    }
    let response = run(call, request, &input, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT)?;
    request.output(call.process, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &response)
}

/// DEVX_QUERY_EQN: the event queue of a completion vector.
pub(crate) fn query_eqn<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    context(call)?;
    let vector = request.constant(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC);
    if vector >= call.device.completion_vectors().into() {
        return Err(Errno::Invalid);
    }
    let number = call.device.completion_event_queue().value();
    request.output(call.process, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, number.as_bytes())
}

/// DEVX_OBJ_CREATE.
pub(crate) fn create<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let (opcode, mut input) = command(call, request, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN)?;
    if !DevxObject::can_create(opcode) {
        return Err(Errno::Invalid);
    }
    queues::use_user_memory(opcode, &mut input);
    queues::prepare(call, opcode, &input)?;
    let response = run(call, request, &input, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT)?;
    let object = DevxObject::created(&input, &response);
    queues::watch(call, object, &input);
    let handle = keep(call, Object::Devx(object), &[])?;
    request.put_new(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, handle.into());
    answer_or_undo(call, request, handle, &[(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, &response)])
}

/// DEVX_OBJ_MODIFY.
pub(crate) fn modify<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let (opcode, mut input) = command(call, request, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN)?;
    let object = call.file.devx(request.handle(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE)?)?;
    if !object.is_object_of(&input, Action::Change) {
        return Err(Errno::Invalid);
    }
    queues::use_user_memory(opcode, &mut input);
    let response = run(call, request, &input, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT)?;
    queues::follow(call, object, opcode);
    request.output(call.process, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, &response)
}

/// DEVX_OBJ_QUERY.
pub(crate) fn query<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let (_, input) = command(call, request, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN)?;
    let object = call.file.devx(request.handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE)?)?;
    if !object.is_object_of(&input, Action::Query) {
        return Err(Errno::Invalid);
    }
    let response = run(call, request, &input, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT)?;
    request.output(call.process, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, &response)
}

/// DEVX_OBJ_DESTROY.
pub(crate) fn destroy<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE)?;
    call.file.devx(handle)?;
    destroy_handle(call, handle)
}
