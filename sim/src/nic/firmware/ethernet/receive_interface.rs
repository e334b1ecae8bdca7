//! Receive queue tables (RQT) and transport interface receives (TIR).

use super::super::call::Call;
use super::domain::check_domain;
use crate::nic::Nic;
use crate::nic::ethernet::QueueTable;
use crate::nic::ethernet::hash;
use crate::nic::ethernet::receive::{DIRECT, INDIRECT};
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::ethernet_receive::{
    CreateRqtIn, CreateRqtOut, CreateTirIn, CreateTirOut, DestroyRqtIn, DestroyRqtOut, DestroyTirIn,
    DestroyTirOut, ModifyRqtIn, ModifyRqtOut, ModifyTirIn, ModifyTirOut, QueryRqtIn, QueryRqtOut, QueryTirIn,
    QueryTirOut, RqtContext, TirContext,
};
use bareverbs_prm::ids::{Rqn, Rqtn, Tirn};

/// The list of queues follows the context.
const CREATE_LIST: usize = CreateRqtIn::SIZE;
const MODIFY_LIST: usize = ModifyRqtIn::SIZE;

pub(super) fn create_table(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateRqtIn,
    output: &mut CreateRqtOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = *input.rqt_context();
    let capabilities = &nic.firmware.capabilities.general;
    if u32::from(context.rqt_max_size()) > 1 << capabilities.log_max_rqt_size() {
        return Err(syndrome::RQT_SIZE);
    }
    let limit = 1 << capabilities.log_max_rqt();
    let queues = read_queues(nic, call.input, CREATE_LIST, &context, context.rqt_max_size())?;
    let tables = &mut nic.ethernet.queue_tables;
    let number = tables.next_number(limit).ok_or(syndrome::RQT_LIMIT)?;
    tables.insert(number, QueueTable { context, queues });
    output.set_rqtn(Rqtn::from_low_bits(number));
    Ok(())
}

/// Reads queue numbers for the table's current size. All of the queues must exist.
fn read_queues(
    nic: &Nic,
    input: &[u8],
    at: usize,
    context: &RqtContext,
    most: u16,
) -> Result<Vec<Rqn>, Refusal> {
    if context.rq_vhca_id_format() || context.list_q_type() != 0 {
        return Err(syndrome::RQT_FEATURE);
    }
    let count = context.rqt_actual_size();
    if count == 0 || count > most {
        return Err(syndrome::RQT_SIZE);
    }
    let bytes = input.get(at..at + usize::from(count) * 4).ok_or(syndrome::LIST_TOO_SHORT)?;
    let numbers = bytes.chunks_exact(4).filter_map(|bytes| bytes.first_chunk());
    let queues = numbers.map(|bytes| Rqn::from_low_bits(u32::from_be_bytes(*bytes)));
    queues
        .map(|queue| {
            let known = nic.ethernet.receive_queues.get(queue.value());
            known.map(|_| queue).ok_or(syndrome::RQ_UNKNOWN)
        })
        .collect()
}

pub(super) fn modify_table(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyRqtIn,
    _: &mut ModifyRqtOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let number = input.rqtn().value();
    let most = nic.ethernet.queue_tables.get(number).ok_or(syndrome::RQT_UNKNOWN)?.context.rqt_max_size();
    if !input.bitmask_rqn_list() {
        return Ok(());
    }
    let queues = read_queues(nic, call.input, MODIFY_LIST, input.ctx(), most)?;
    if let Some(table) = nic.ethernet.queue_tables.get_mut(number) {
        table.context.set_rqt_actual_size(input.ctx().rqt_actual_size());
        table.queues = queues;
    }
    Ok(())
}

pub(super) fn destroy_table(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyRqtIn,
    _: &mut DestroyRqtOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let uses = |tir: &TirContext| tir.disp_type() == INDIRECT && tir.indirect_table() == input.rqtn();
    if nic.ethernet.receive_interfaces.iter().any(|(_, tir)| uses(tir)) {
        return Err(syndrome::RQT_BUSY);
    }
    nic.ethernet.queue_tables.remove(input.rqtn().value()).map(drop).ok_or(syndrome::RQT_UNKNOWN)
}

pub(super) fn query_table(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryRqtIn,
    output: &mut QueryRqtOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let table = nic.ethernet.queue_tables.get(input.rqtn().value()).ok_or(syndrome::RQT_UNKNOWN)?;
    output.rqt_context_mut().clone_from(&table.context);
    call.tail = table.queues.iter().flat_map(|queue| queue.value().to_be_bytes()).collect();
    Ok(())
}

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateTirIn,
    output: &mut CreateTirOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = *input.ctx();
    let merged = context.packet_merge_mask() != 0 || context.lro_max_ip_payload_size() != 0;
    if merged || context.tls_en() || context.tunneled_offload_en() {
        return Err(syndrome::TIR_FEATURE);
    }
    check_domain(nic, context.transport_domain())?;
    match context.disp_type() {
        DIRECT => {
            let queue = nic.ethernet.receive_queues.get(context.inline_rqn().value());
            queue.ok_or(syndrome::RQ_UNKNOWN)?;
        }
        INDIRECT => {
            let table = nic.ethernet.queue_tables.get(context.indirect_table().value());
            table.ok_or(syndrome::RQT_UNKNOWN)?;
            check_hash(&context)?;
        }
        _ => return Err(syndrome::TIR_FEATURE),
    }
    let limit = 1 << nic.firmware.capabilities.general.log_max_tir();
    let number = nic.ethernet.receive_interfaces.next_number(limit).ok_or(syndrome::TIR_LIMIT)?;
    nic.ethernet.receive_interfaces.insert(number, context);
    output.set_tirn(Tirn::from_low_bits(number));
    Ok(())
}

fn check_hash(context: &TirContext) -> Result<(), Refusal> {
    let known = matches!(context.rx_hash_fn(), hash::NONE | hash::INVERTED_XOR8 | hash::TOEPLITZ);
    let fields = context.rx_hash_field_selector_outer_selected_fields();
    if known && fields & !hash::FIELDS == 0 { Ok(()) } else { Err(syndrome::TIR_HASH) }
}

/// Changes the loopback filter and the hash.
pub(super) fn modify(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyTirIn,
    _: &mut ModifyTirOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let requested = input.ctx();
    let known = nic.ethernet.receive_interfaces.get_mut(input.tirn().value());
    let context = known.ok_or(syndrome::TIR_UNKNOWN)?;
    if input.bitmask_packet_merge() && requested.packet_merge_mask() != 0 {
        return Err(syndrome::TIR_FEATURE);
    }
    if input.bitmask_hash() {
        check_hash(requested)?;
        context.set_rx_hash_fn(requested.rx_hash_fn()).set_rx_hash_symmetric(requested.rx_hash_symmetric());
        context.set_rx_hash_toeplitz_key(requested.rx_hash_toeplitz_key());
        context.set_rx_hash_field_selector_outer_selected_fields(
            requested.rx_hash_field_selector_outer_selected_fields(),
        );
        context.set_rx_hash_field_selector_outer_l3_prot_type(
            requested.rx_hash_field_selector_outer_l3_prot_type(),
        );
        context.set_rx_hash_field_selector_outer_l4_prot_type(
            requested.rx_hash_field_selector_outer_l4_prot_type(),
        );
    }
    if input.bitmask_self_lb_en() {
        context.set_self_lb_block(requested.self_lb_block());
    }
    Ok(())
}

pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyTirIn,
    _: &mut DestroyTirOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let number = input.tirn().value();
    if nic.ethernet.steering.uses_tir(number) {
        return Err(syndrome::TIR_BUSY);
    }
    nic.ethernet.receive_interfaces.remove(number).map(drop).ok_or(syndrome::TIR_UNKNOWN)
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryTirIn,
    output: &mut QueryTirOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = nic.ethernet.receive_interfaces.get(input.tirn().value()).ok_or(syndrome::TIR_UNKNOWN)?;
    output.tir_context_mut().clone_from(context);
    Ok(())
}
