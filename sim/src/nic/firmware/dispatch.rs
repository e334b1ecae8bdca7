//! Selects the handler of a command and records the result.

use super::call::Call;
use super::checks::Allowed::{Disabled, Enabled, EnabledOrInitialized, Initialized};
use super::checks::{Allowed, Shortest, refuse_unknown, run, run_grown, run_sized};
use super::{
    capabilities, completion_queue, congestion, domain, ethernet, event_queue, general_object, ib_port, mad,
    memory_key, multicast, pages, port, queue_counter, queue_pair, register, shared_receive, system,
    transition, umem, user_context,
};
use crate::nic::syndrome::Refusal;
use crate::nic::{CommandRecord, Nic};
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::qp::InitToInitQpIn;
use bareverbs_prm::numbering::CommandOpcode as Op;
use zerocopy::FromBytes;

/// QUERY_SPECIAL_CONTEXTS from the time when the reserved key was the only one; user-space drivers still
/// provide no more room.
const SPECIAL_CONTEXTS: Shortest = Shortest { input: 16, output: 16 };

/// Passes a command to its handler, and refuses unknown commands.
#[rustfmt::skip]
fn dispatch(nic: &mut Nic, call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.opcode() {
        Op::EnableHca => run(nic, call, Disabled, system::enable),
        Op::DisableHca => run(nic, call, Enabled, system::disable),
        Op::InitHca => run_sized(nic, call, Enabled, 16, system::init),
        Op::TeardownHca => run(nic, call, Initialized, system::teardown),
        Op::QueryIssi => run(nic, call, EnabledOrInitialized, system::query_issi),
        Op::SetIssi => run(nic, call, Enabled, system::set_issi),
        Op::QueryAdapter => run(nic, call, EnabledOrInitialized, system::query_adapter),
        Op::SetDriverVersion => run(nic, call, EnabledOrInitialized, system::set_driver_version),
        Op::Nop => run(nic, call, EnabledOrInitialized, system::nop),
        Op::QueryPages => run(nic, call, EnabledOrInitialized, pages::query),
        Op::ManagePages => run(nic, call, EnabledOrInitialized, pages::manage),
        Op::QueryHcaCap => run(nic, call, EnabledOrInitialized, capabilities::query),
        Op::SetHcaCap => run_sized(nic, call, Enabled, 16, capabilities::set),
        Op::AccessReg => run(nic, call, EnabledOrInitialized, register::access),
        Op::CreateEq => run(nic, call, Initialized, event_queue::create),
        Op::DestroyEq => run(nic, call, Initialized, event_queue::destroy),
        Op::QueryEq => run(nic, call, Initialized, event_queue::query),
        Op::CreateCq => run(nic, call, Initialized, completion_queue::create),
        Op::DestroyCq => run(nic, call, Initialized, completion_queue::destroy),
        Op::QueryCq => run(nic, call, Initialized, completion_queue::query),
        Op::ModifyCq => run(nic, call, Initialized, completion_queue::modify),
        Op::AllocPd => run(nic, call, Initialized, domain::alloc_pd),
        Op::DeallocPd => run(nic, call, Initialized, domain::dealloc_pd),
        Op::AllocUar => run(nic, call, Initialized, domain::alloc_uar),
        Op::DeallocUar => run(nic, call, Initialized, domain::dealloc_uar),
        Op::CreateUmem | Op::DestroyUmem | Op::CreateUctx | Op::DestroyUctx => dispatch_user(nic, call),
        Op::CreateMkey => run(nic, call, Initialized, memory_key::create),
        Op::DestroyMkey => run(nic, call, Initialized, memory_key::destroy),
        Op::QuerySpecialContexts => run_grown(nic, call, Initialized, SPECIAL_CONTEXTS, memory_key::query_special),
        Op::QueryMkey => run(nic, call, Initialized, memory_key::query),
        Op::CreateQp => run(nic, call, Initialized, queue_pair::create),
        Op::DestroyQp => run(nic, call, Initialized, queue_pair::destroy),
        Op::QueryQp => run(nic, call, Initialized, queue_pair::query),
        Op::ResetToInitQp | Op::InitToInitQp | Op::InitToRtrQp | Op::RtrToRtsQp | Op::RtsToRtsQp | Op::SqErrorToRtsQp
        | Op::RtsToSqdQp | Op::SqdToSqdQp | Op::SqdToRtsQp | Op::ToErrorQp | Op::ToResetQp => dispatch_transition(nic, call),
        Op::AttachToMcg => run(nic, call, Initialized, multicast::attach),
        Op::DetachFromMcg => run(nic, call, Initialized, multicast::detach),
        Op::SetRoceAddress => run(nic, call, Initialized, port::set_roce_address),
        Op::QueryRoceAddress => run(nic, call, Initialized, port::query_roce_address),
        Op::QueryVportState => run(nic, call, Initialized, port::query_vport_state),
        Op::QueryNicVportContext => run(nic, call, Initialized, port::query_vport_context),
        Op::QueryVportCounter => run(nic, call, Initialized, ib_port::query_counters),
        Op::QueryHcaVportContext => run(nic, call, Initialized, ib_port::query_context),
        Op::ModifyHcaVportContext => run(nic, call, Initialized, ib_port::modify_context),
        Op::QueryHcaVportGid => run(nic, call, Initialized, ib_port::query_gid),
        Op::QueryHcaVportPkey => run(nic, call, Initialized, ib_port::query_pkey),
        Op::MadIfc => run(nic, call, Initialized, mad::ask),
        Op::AllocQCounter => run(nic, call, Initialized, queue_counter::alloc),
        Op::DeallocQCounter => run(nic, call, Initialized, queue_counter::dealloc),
        Op::QueryQCounter => run(nic, call, Initialized, queue_counter::query),
        Op::QueryCongStatistics => run(nic, call, Initialized, congestion::query_statistics),
        Op::QueryCongStatus => run(nic, call, Initialized, congestion::query_status),
        Op::AllocXrcd | Op::DeallocXrcd | Op::CreateRmp | Op::ModifyRmp | Op::DestroyRmp | Op::QueryRmp | Op::CreateXrcSrq
        | Op::DestroyXrcSrq | Op::QueryXrcSrq | Op::ArmXrcSrq => dispatch_shared_receive(nic, call),
        Op::ModifyNicVportContext => run(nic, call, Initialized, port::modify_vport_context),
        _ if nic.shared.optional.card.is_some() && general_object::has(call.opcode()) => dispatch_card(nic, call),
        _ if !nic.shared.port.is_infiniband() => ethernet::dispatch(nic, call),
        _ => refuse_unknown(nic, call),
    }
}

/// Commands that move a queue pair to another state.
#[rustfmt::skip]
fn dispatch_transition(nic: &mut Nic, call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.opcode() {
        Op::ResetToInitQp => run(nic, call, Initialized, transition::reset_to_init),
        Op::InitToInitQp => run_sized(nic, call, Initialized, InitToInitQpIn::SHORT, transition::init_to_init),
        Op::InitToRtrQp => run(nic, call, Initialized, transition::init_to_rtr),
        Op::RtrToRtsQp => run(nic, call, Initialized, transition::rtr_to_rts),
        Op::RtsToRtsQp => run(nic, call, Initialized, transition::rts_to_rts),
        Op::SqErrorToRtsQp => run(nic, call, Initialized, transition::sq_error_to_rts),
        Op::RtsToSqdQp => run(nic, call, Initialized, transition::rts_to_sqd),
        Op::SqdToSqdQp => run(nic, call, Initialized, transition::sqd_to_sqd),
        Op::SqdToRtsQp => run(nic, call, Initialized, transition::sqd_to_rts),
        Op::ToErrorQp => run(nic, call, Initialized, transition::to_error),
        Op::ToResetQp => run(nic, call, Initialized, transition::to_reset),
        _ => refuse_unknown(nic, call),
    }
}

/// Commands about shared receive queues: XRC domains, receive memory pools, and shared receive queues of XRC.
fn dispatch_shared_receive(nic: &mut Nic, call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.opcode() {
        Op::AllocXrcd => run(nic, call, Initialized, shared_receive::alloc_xrcd),
        Op::DeallocXrcd => run(nic, call, Initialized, shared_receive::dealloc_xrcd),
        Op::CreateRmp => run(nic, call, Initialized, shared_receive::create_rmp),
        Op::ModifyRmp => run(nic, call, Initialized, shared_receive::modify_rmp),
        Op::DestroyRmp => run(nic, call, Initialized, shared_receive::destroy_rmp),
        Op::QueryRmp => run(nic, call, Initialized, shared_receive::query_rmp),
        Op::CreateXrcSrq => run(nic, call, Initialized, shared_receive::create_xrc_srq),
        Op::DestroyXrcSrq => run(nic, call, Initialized, shared_receive::destroy_xrc_srq),
        Op::QueryXrcSrq => run(nic, call, Initialized, shared_receive::query_xrc_srq),
        Op::ArmXrcSrq => run(nic, call, Initialized, shared_receive::arm_xrc_srq),
        _ => refuse_unknown(nic, call),
    }
}

/// Commands about user memory and, on a device that has them, user contexts.
fn dispatch_user(nic: &mut Nic, call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.opcode() {
        Op::CreateUmem => run(nic, call, Initialized, umem::create),
        Op::DestroyUmem => run(nic, call, Initialized, umem::destroy),
        Op::CreateUctx if nic.config.user_contexts => run(nic, call, Initialized, user_context::create),
        Op::DestroyUctx if nic.config.user_contexts => run(nic, call, Initialized, user_context::destroy),
        _ => refuse_unknown(nic, call),
    }
}

/// Commands that exist only on a function of a multi-function card.
fn dispatch_card(nic: &mut Nic, call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.opcode() {
        Op::AllowOtherVhcaAccess => run(nic, call, Allowed::Initialized, general_object::allow),
        Op::CreateGeneralObject => run(nic, call, Allowed::Initialized, general_object::create),
        Op::QueryGeneralObject => run(nic, call, Allowed::Initialized, general_object::query),
        Op::DestroyGeneralObject => run(nic, call, Allowed::Initialized, general_object::destroy),
        _ => refuse_unknown(nic, call),
    }
}

/// Runs a command and returns the bytes of its output.
pub(super) fn execute(nic: &mut Nic, call: &mut Call<'_>) -> Vec<u8> {
    nic.shared.counters.commands += 1;
    if let Err(refusal) = dispatch(nic, call) {
        nic.shared.counters.commands_refused += 1;
        nic.last_refusal = Some((call.opcode(), refusal));
        call.refuse(refusal);
    }
    let record = record(call);
    nic.tell_observer(call.now, || record.event());
    nic.trace.push(record);
    core::mem::take(&mut call.output)
}

fn record(call: &Call<'_>) -> CommandRecord {
    let header =
        CommandHeaderOut::read_from_prefix(&call.output).map(|(header, _)| header).unwrap_or_default();
    CommandRecord {
        opcode: call.opcode(),
        op_mod: call.op_mod(),
        subject: call.input.get(8..12).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes),
        input_length: call.input_length(),
        output_length: call.output_length,
        status: header.status(),
        syndrome: header.syndrome(),
    }
}
