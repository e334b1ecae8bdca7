//! Flow tables, their root, and flow groups.

use super::super::call::Call;
use crate::nic::Nic;
use crate::nic::ethernet::flow::{FlowTable, Group, MISS_TO_TABLE};
use crate::nic::firmware_state::limits::{FLOW_TABLE_LEVELS, LOG_FLOW_TABLE_SIZE, LOG_FLOW_TABLES};
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::flow::{
    CreateFlowGroupIn, CreateFlowGroupOut, CreateFlowTableIn, CreateFlowTableOut, DestroyFlowGroupIn,
    DestroyFlowGroupOut, DestroyFlowTableIn, DestroyFlowTableOut, FlowMatchHeaders, FlowTableContext,
    ModifyFlowTableIn, ModifyFlowTableOut, QueryFlowGroupIn, QueryFlowGroupOut, QueryFlowTableIn,
    QueryFlowTableOut, SetFlowTableRootIn, SetFlowTableRootOut,
};
use bareverbs_prm::ids::FlowTableId;
use zerocopy::IntoBytes;

/// `table_type`: received packets, the only type offered.
pub(super) const NIC_RECEIVE: u8 = 0;
/// `op_mod` of SET_FLOW_TABLE_ROOT: make the table the root, or remove the root.
const DISCONNECT: u16 = 1;
/// `modify_field_select`: where misses go.
const SELECT_MISS: u16 = 1;
/// `match_criteria_enable`: outer headers.
const OUTER: u8 = 1;

/// The table with a number and a type.
pub(super) fn table(nic: &mut Nic, kind: u8, id: FlowTableId) -> Result<&mut FlowTable, Refusal> {
    let table = nic.ethernet.steering.tables.get_mut(id.value());
    table.filter(|table| table.kind == kind).ok_or(syndrome::FLOW_TABLE_UNKNOWN)
}

/// Only the port's own virtual port is supported.
pub(super) fn check_vport(other: bool, number: u16) -> Result<(), Refusal> {
    if other || number != 0 { Err(syndrome::VPORT_UNKNOWN) } else { Ok(()) }
}

fn check_table(context: &FlowTableContext) -> Result<(), Refusal> {
    let rewrites = context.reformat_en() || context.decap_en() || context.termination_table();
    if rewrites || context.sw_owner() || context.rtc_valid() || context.table_miss_action() > MISS_TO_TABLE {
        return Err(syndrome::FLOW_TABLE_FEATURE);
    }
    if context.log_size() > LOG_FLOW_TABLE_SIZE || context.level() > FLOW_TABLE_LEVELS {
        return Err(syndrome::FLOW_TABLE_SIZE);
    }
    Ok(())
}

/// A table at `level` may only forward to a higher level. Entries with `ignore_flow_level` have no level.
pub(super) fn check_level(level: Option<u8>, next: u8) -> Result<(), Refusal> {
    if level.is_none_or(|level| next > level) { Ok(()) } else { Err(syndrome::FLOW_LEVEL) }
}

fn check_miss(nic: &mut Nic, level: u8, context: &FlowTableContext) -> Result<(), Refusal> {
    match context.table_miss_action() {
        MISS_TO_TABLE => {
            let next = table(nic, NIC_RECEIVE, context.table_miss_id())?.context.level();
            check_level(Some(level), next)
        }
        _ => Ok(()),
    }
}

pub(super) fn create_table(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateFlowTableIn,
    output: &mut CreateFlowTableOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.vport_number())?;
    if input.table_type() != NIC_RECEIVE {
        return Err(syndrome::FLOW_TABLE_TYPE);
    }
    let context = *input.flow_table_context();
    check_table(&context)?;
    check_miss(nic, context.level(), &context)?;
    let number = nic.ethernet.steering.create_table(NIC_RECEIVE, context, 1 << LOG_FLOW_TABLES);
    output.set_table_id(FlowTableId::from_low_bits(number.ok_or(syndrome::FLOW_TABLE_LIMIT)?));
    Ok(())
}

/// Changes where misses go; nothing else can be changed.
pub(super) fn modify_table(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyFlowTableIn,
    _: &mut ModifyFlowTableOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.vport_number())?;
    let requested = *input.flow_table_context();
    if input.modify_field_select() & !SELECT_MISS != 0 || requested.table_miss_action() > MISS_TO_TABLE {
        return Err(syndrome::FLOW_TABLE_FEATURE);
    }
    let level = table(nic, input.table_type(), input.table_id())?.context.level();
    check_miss(nic, level, &requested)?;
    let table = table(nic, input.table_type(), input.table_id())?;
    if input.modify_field_select() & SELECT_MISS != 0 {
        table
            .context
            .set_table_miss_action(requested.table_miss_action())
            .set_table_miss_id(requested.table_miss_id());
    }
    Ok(())
}

pub(super) fn destroy_table(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyFlowTableIn,
    _: &mut DestroyFlowTableOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let empty = table(nic, input.table_type(), input.table_id())?.groups.is_empty();
    let number = input.table_id().value();
    if !empty || nic.ethernet.steering.is_used(number) {
        return Err(syndrome::FLOW_TABLE_BUSY);
    }
    nic.ethernet.steering.remove_table(number);
    Ok(())
}

pub(super) fn query_table(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryFlowTableIn,
    output: &mut QueryFlowTableOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = table(nic, input.table_type(), input.table_id())?.context;
    output.flow_table_context_mut().clone_from(&context);
    Ok(())
}

pub(super) fn set_root(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &SetFlowTableRootIn,
    _: &mut SetFlowTableRootOut,
) -> Result<(), Refusal> {
    check_vport(input.other_vport(), input.vport_number())?;
    table(nic, input.table_type(), input.table_id())?;
    let number = input.table_id().value();
    match call.op_mod() {
        0 => nic.ethernet.steering.root = Some(number),
        DISCONNECT if nic.ethernet.steering.root == Some(number) => nic.ethernet.steering.root = None,
        DISCONNECT => {}
        _ => return Err(syndrome::BAD_OP_MOD),
    }
    Ok(())
}

/// Accepts only headers that the capabilities name: layers 2 to 4, but neither the layer 4 type nor the
/// length of an IPv4 header.
fn check_criteria(input: &CreateFlowGroupIn) -> Result<FlowMatchHeaders, Refusal> {
    let criteria = input.match_criteria();
    let rest = criteria.as_bytes().get(FlowMatchHeaders::SIZE..).unwrap_or_default();
    let mask = *criteria.outer_headers();
    let offered = input.match_criteria_enable() & !OUTER == 0
        && rest.iter().all(|&byte| byte == 0)
        && mask.l4_type() == 0
        && mask.ipv4_ihl() == 0
        && input.group_type() == 0
        && input.match_definer_id() == 0;
    if !offered {
        return Err(syndrome::FLOW_GROUP_CRITERIA);
    }
    Ok(if input.match_criteria_enable() & OUTER != 0 { mask } else { FlowMatchHeaders::new() })
}

pub(super) fn create_group(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateFlowGroupIn,
    output: &mut CreateFlowGroupOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.vport_number())?;
    let mask = check_criteria(input)?;
    let has_room = nic.ethernet.steering.has_room();
    let table = table(nic, input.table_type(), input.table_id())?;
    let (first, last) = (input.start_flow_index(), input.end_flow_index());
    if first > last || u64::from(last) >= table.size() {
        return Err(syndrome::FLOW_GROUP_RANGE);
    }
    if !has_room {
        return Err(syndrome::FLOW_BUDGET);
    }
    let group = table.add_group(Group { first, last, mask }).ok_or(syndrome::FLOW_GROUP_RANGE)?;
    output.set_group_id(group);
    nic.ethernet.steering.note_added();
    Ok(())
}

pub(super) fn destroy_group(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyFlowGroupIn,
    _: &mut DestroyFlowGroupOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let table = table(nic, input.table_type(), input.table_id())?;
    let group = input.group_id();
    if table.entries.values().any(|entry| entry.context.group_id() == group) {
        return Err(syndrome::FLOW_GROUP_BUSY);
    }
    table.groups.remove(&group).ok_or(syndrome::FLOW_GROUP_UNKNOWN)?;
    nic.ethernet.steering.note_removed();
    Ok(())
}

/// Reports the range of the group in its table and the bits that its entries compare, as given to
/// CREATE_FLOW_GROUP.
pub(super) fn query_group(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryFlowGroupIn,
    output: &mut QueryFlowGroupOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let table = table(nic, input.table_type(), input.table_id())?;
    let group = table.groups.get(&input.group_id()).ok_or(syndrome::FLOW_GROUP_UNKNOWN)?;
    let compared = group.mask.as_bytes().iter().any(|byte| *byte != 0);
    output.set_start_flow_index(group.first).set_end_flow_index(group.last);
    output.set_match_criteria_enable(if compared { OUTER } else { 0 });
    output.match_criteria_mut().outer_headers_mut().clone_from(&group.mask);
    Ok(())
}
