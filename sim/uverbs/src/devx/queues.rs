//! Queues that a program creates by commands: they are in user memory, and the simulator watches their doorbell records.

use crate::Errno;
use crate::call::Call;
use crate::devx_object::DevxObject;
use crate::doorbells::NEVER_ARMED;
use crate::files::Object;
use crate::process::Process;
use crate::uapi::read_extended;
use bareverbs_prm::command::cq::{CreateCqIn, ModifyCqIn};
use bareverbs_prm::command::mkey::CreateMkeyIn;
use bareverbs_prm::command::qp::CreateQpIn;
use bareverbs_prm::command::srq::{CreateRmpIn, CreateXrcSrqIn};
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, MkeyAccessMode};
use zerocopy::FromBytes;

/// Offset of the word for arming in the doorbell record of a completion queue.
const ARM_WORD: u64 = 4;

/// Makes a command take its memory from user memory: a program may not name pages. A command that is too short is left to firmware.
pub(super) fn use_user_memory(opcode: CommandOpcode, input: &mut [u8]) {
    match opcode {
        CommandOpcode::CreateMkey => {
            if let Ok((input, _)) = CreateMkeyIn::mut_from_prefix(input) {
                let context = input.memory_key_mkey_entry();
                let mode =
                    MkeyAccessMode::from_raw(context.access_mode_4_2() << 2 | context.access_mode_1_0());
                let is_indirect = matches!(mode, MkeyAccessMode::Klms | MkeyAccessMode::Ksm);
                input.set_mkey_umem_valid(!is_indirect);
            }
        }
        CommandOpcode::CreateCq => {
            if let Ok((input, _)) = CreateCqIn::mut_from_prefix(input) {
                input.set_cq_umem_valid(true).cq_context_mut().set_dbr_umem_valid(true);
            }
        }
        CommandOpcode::ModifyCq => {
            if let Ok((input, _)) = ModifyCqIn::mut_from_prefix(input) {
                input.set_cq_umem_valid(true);
            }
        }
        CommandOpcode::CreateQp => {
            if let Ok((input, _)) = CreateQpIn::mut_from_prefix(input) {
                input.set_wq_umem_valid(true).qpc_mut().set_dbr_umem_valid(true);
            }
        }
        CommandOpcode::CreateRmp => {
            if let Ok((input, _)) = CreateRmpIn::mut_from_prefix(input) {
                input.ctx_mut().wq_mut().set_wq_umem_valid(true).set_dbr_umem_valid(true);
            }
        }
        CommandOpcode::CreateXrcSrq => {
            if let Ok((input, _)) = CreateXrcSrqIn::mut_from_prefix(input) {
                input.set_xrc_srq_umem_valid(true).xrc_srq_context_entry_mut().set_dbr_umem_valid(true);
            }
        }
        _ => {}
    }
}

/// The program's address of an offset in its user memory; `None` if it has no such memory, which firmware will refuse.
fn address<P: Process>(call: &Call<'_, P>, id: u32, offset: u64) -> Option<u64> {
    let mut objects = call.file.objects();
    let memory = objects.find_map(|object| match object {
        Object::UserMemory(memory) if memory.id.value() == id => Some(memory),
        _ => None,
    })?;
    (offset < memory.length).then(|| memory.start.wrapping_add(offset))
}

fn completion_record<P: Process>(call: &Call<'_, P>, input: &[u8]) -> Option<u64> {
    let input: CreateCqIn = read_extended(input);
    address(call, input.cq_context().dbr_umem_id(), input.cq_context().dbr_addr())
}

/// Presets the record of a completion queue before it exists; see `doorbells`.
pub(super) fn prepare<P: Process>(
    call: &mut Call<'_, P>,
    opcode: CommandOpcode,
    input: &[u8],
) -> Result<(), Errno> {
    if opcode == CommandOpcode::CreateCq
        && let Some(record) = completion_record(call, input)
    {
        call.process.write(record.wrapping_add(ARM_WORD), &NEVER_ARMED.to_be_bytes())?;
    }
    Ok(())
}

/// Watches the doorbell record of a new queue.
pub(super) fn watch<P: Process>(call: &mut Call<'_, P>, object: DevxObject, input: &[u8]) {
    match object.creator {
        CommandOpcode::CreateCq => {
            let context = *read_extended::<CreateCqIn>(input).cq_context();
            if let Some(record) = completion_record(call, input) {
                let cqn = Cqn::from_low_bits(object.number);
                call.device.doorbells.watch_completion_queue(cqn, context.uar_page(), record);
            }
        }
        CommandOpcode::CreateQp => {
            let context = *read_extended::<CreateQpIn>(input).qpc();
            if let Some(record) = address(call, context.dbr_umem_id(), context.dbr_addr()) {
                let qpn = Qpn::from_low_bits(object.number);
                call.device.doorbells.watch_queue_pair(qpn, context.uar_page(), record);
            }
        }
        _ => {}
    }
}

/// Follows a queue pair through its states: work posted before the state allowed it counts from now on.
pub(super) fn follow<P: Process>(call: &mut Call<'_, P>, object: DevxObject, opcode: CommandOpcode) {
    if object.creator == CommandOpcode::CreateQp {
        let qpn = Qpn::from_low_bits(object.number);
        match opcode {
            CommandOpcode::ToResetQp => call.device.doorbells.look_away(qpn),
            _ => call.device.doorbells.look_again(qpn),
        }
    }
}
