//! The commands of Ethernet ports, one module per family of objects.

pub(super) mod address_list;
pub(super) mod counter;
mod domain;
mod flow;
mod flow_entry;
pub(super) mod port_register;
mod receive_interface;
mod receive_queue;
mod send_queue;
mod work_queue;

use super::call::Call;
use super::checks::{Allowed, refuse_unknown, run};
use crate::nic::Nic;
use crate::nic::syndrome::Refusal;
use bareverbs_prm::numbering::CommandOpcode;

/// Passes a command that exists only on Ethernet ports to its handler.
#[rustfmt::skip]
pub(super) fn dispatch(nic: &mut Nic, call: &mut Call<'_>) -> Result<(), Refusal> {
    use Allowed::Initialized;
    use CommandOpcode as Op;
    match call.opcode() {
        Op::AllocTransportDomain => run(nic, call, Initialized, domain::alloc),
        Op::DeallocTransportDomain => run(nic, call, Initialized, domain::dealloc),
        Op::CreateTis => run(nic, call, Initialized, domain::create_tis),
        Op::ModifyTis => run(nic, call, Initialized, domain::modify_tis),
        Op::DestroyTis => run(nic, call, Initialized, domain::destroy_tis),
        Op::QueryTis => run(nic, call, Initialized, domain::query_tis),
        Op::CreateSq => run(nic, call, Initialized, send_queue::create),
        Op::ModifySq => run(nic, call, Initialized, send_queue::modify),
        Op::DestroySq => run(nic, call, Initialized, send_queue::destroy),
        Op::QuerySq => run(nic, call, Initialized, send_queue::query),
        Op::CreateRq => run(nic, call, Initialized, receive_queue::create),
        Op::ModifyRq => run(nic, call, Initialized, receive_queue::modify),
        Op::DestroyRq => run(nic, call, Initialized, receive_queue::destroy),
        Op::QueryRq => run(nic, call, Initialized, receive_queue::query),
        Op::CreateRqt => run(nic, call, Initialized, receive_interface::create_table),
        Op::ModifyRqt => run(nic, call, Initialized, receive_interface::modify_table),
        Op::DestroyRqt => run(nic, call, Initialized, receive_interface::destroy_table),
        Op::QueryRqt => run(nic, call, Initialized, receive_interface::query_table),
        Op::CreateTir => run(nic, call, Initialized, receive_interface::create),
        Op::ModifyTir => run(nic, call, Initialized, receive_interface::modify),
        Op::DestroyTir => run(nic, call, Initialized, receive_interface::destroy),
        Op::QueryTir => run(nic, call, Initialized, receive_interface::query),
        Op::CreateFlowTable => run(nic, call, Initialized, flow::create_table),
        Op::ModifyFlowTable => run(nic, call, Initialized, flow::modify_table),
        Op::DestroyFlowTable => run(nic, call, Initialized, flow::destroy_table),
        Op::QueryFlowTable => run(nic, call, Initialized, flow::query_table),
        Op::SetFlowTableRoot => run(nic, call, Initialized, flow::set_root),
        Op::CreateFlowGroup => run(nic, call, Initialized, flow::create_group),
        Op::DestroyFlowGroup => run(nic, call, Initialized, flow::destroy_group),
        Op::QueryFlowGroup => run(nic, call, Initialized, flow::query_group),
        Op::SetFlowTableEntry => run(nic, call, Initialized, flow_entry::set),
        Op::DeleteFlowTableEntry => run(nic, call, Initialized, flow_entry::delete),
        Op::QueryFlowTableEntry => run(nic, call, Initialized, flow_entry::query),
        Op::AllocFlowCounter => run(nic, call, Initialized, counter::alloc_flow),
        Op::DeallocFlowCounter => run(nic, call, Initialized, counter::dealloc_flow),
        Op::QueryFlowCounter => run(nic, call, Initialized, counter::query_flow),
        _ => refuse_unknown(nic, call),
    }
}
