//! Entries of flow tables.

use super::super::call::Call;
use super::flow::{NIC_RECEIVE, check_level, check_vport, table};
use crate::nic::Nic;
use crate::nic::ethernet::flow::{Destination, FlowEntry, action};
use crate::nic::firmware_state::limits::LOG_FLOW_DESTINATIONS;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::flow::{
    DeleteFlowEntryIn, DeleteFlowEntryOut, FlowContext, FlowCounterId, FlowDestination, QueryFlowEntryIn,
    QueryFlowEntryOut, SetFlowEntryIn, SetFlowEntryOut,
};
use bareverbs_prm::ids::FlowTableId;
use zerocopy::FromBytes;

/// The lists follow the fixed part of the input.
const LISTS: usize = SetFlowEntryIn::SIZE;
/// `op_mod` of SET_FLOW_TABLE_ENTRY: create an entry, or change an existing one.
const CHANGE: u16 = 1;
/// `modify_enable_mask`: action, flow tag, destinations, counters.
const CHANGEABLE: u8 = 0b1111;
/// `destination_type`.
const TO_TABLE: u8 = 1;
const TO_TIR: u8 = 2;
const OFFERED: u16 = action::ALLOW | action::DROP | action::FORWARD | action::COUNT;

pub(super) fn set(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &SetFlowEntryIn,
    _: &mut SetFlowEntryOut,
) -> Result<(), Refusal> {
    check_vport(input.other_vport(), input.vport_number())?;
    let context = *input.flow_context();
    check_action(input, &context)?;
    let (kind, id, index) = (input.table_type(), input.table_id(), input.flow_index());
    let table_of_entry = table(nic, kind, id)?;
    let level = (!input.ignore_flow_level()).then(|| table_of_entry.context.level());
    let group = table_of_entry.groups.get(&context.group_id()).ok_or(syndrome::FLOW_GROUP_UNKNOWN)?;
    if !(group.first..=group.last).contains(&index) {
        return Err(syndrome::FLOW_ENTRY_INDEX);
    }
    let old = table_of_entry.entries.get(&index).map(|entry| *entry.context.match_value());
    let context = match (call.op_mod(), old) {
        (0, None) => context,
        (0, Some(_)) => return Err(syndrome::FLOW_ENTRY_INDEX),
        (CHANGE, None) => return Err(syndrome::FLOW_ENTRY_UNKNOWN),
        (CHANGE, Some(value)) => {
            let mut changed = context;
            changed.match_value_mut().clone_from(&value);
            changed
        }
        _ => return Err(syndrome::BAD_OP_MOD),
    };
    let (destinations, counters) = read_lists(nic, call.input, &context, level)?;
    let entry = FlowEntry::new(context, destinations, counters);
    if old.is_none() && !nic.ethernet.steering.has_room() {
        return Err(syndrome::FLOW_BUDGET);
    }
    if table(nic, kind, id)?.entries.insert(index, entry).is_none() {
        nic.ethernet.steering.note_added();
    }
    Ok(())
}

/// Packets can be forwarded, dropped and counted, and nothing else.
fn check_action(input: &SetFlowEntryIn, context: &FlowContext) -> Result<(), Refusal> {
    let forwards = context.action() & action::FORWARD != 0;
    let known = context.action() & !OFFERED == 0 && input.modify_enable_mask() & !CHANGEABLE == 0;
    let plain = !context.extended_destination() && !context.uplink_hairpin_en();
    let fits =
        context.destination_list_size() + context.flow_counter_list_size() <= 1 << LOG_FLOW_DESTINATIONS;
    let led = forwards == (context.destination_list_size() > 0);
    let dropped = context.action() & action::DROP != 0;
    if known && plain && fits && led && !(forwards && dropped) {
        Ok(())
    } else {
        Err(syndrome::FLOW_ENTRY_ACTION)
    }
}

/// The lists after the context: destinations, then counters, eight bytes each. Drivers may omit the second
/// half of the last element, which then reads as zero (Snabb does this). `level` is that of the entry's
/// table, unless the entry ignores levels.
fn read_lists(
    nic: &mut Nic,
    input: &[u8],
    context: &FlowContext,
    level: Option<u8>,
) -> Result<(Vec<Destination>, Vec<u32>), Refusal> {
    let (count, counted) =
        (context.destination_list_size() as usize, context.flow_counter_list_size() as usize);
    let length = (count + counted) * FlowDestination::SIZE;
    let given = input.get(LISTS..).unwrap_or_default();
    let mut bytes = given.get(..given.len().min(length)).unwrap_or_default().to_vec();
    if bytes.len() + FlowDestination::SIZE / 2 < length {
        return Err(syndrome::LIST_TOO_SHORT);
    }
    bytes.resize(length, 0);
    let (first, second) = bytes.split_at(count * FlowDestination::SIZE);
    let destinations = first.chunks_exact(FlowDestination::SIZE).map(|bytes| {
        let destination = FlowDestination::read_from_bytes(bytes).map_err(|_| syndrome::LIST_TOO_SHORT)?;
        read_destination(nic, &destination, level)
    });
    let destinations = destinations.collect::<Result<_, _>>()?;
    let counters = second.chunks_exact(FlowCounterId::SIZE).map(|bytes| {
        let counter = FlowCounterId::read_from_bytes(bytes).map_err(|_| syndrome::LIST_TOO_SHORT)?;
        let number = counter.flow_counter_id();
        let known = nic.ethernet.steering.counters.get(number);
        known.map(|_| number).ok_or(syndrome::FLOW_COUNTER_UNKNOWN)
    });
    let counters = counters.collect::<Result<_, _>>()?;
    Ok((destinations, counters))
}

fn read_destination(
    nic: &mut Nic,
    requested: &FlowDestination,
    level: Option<u8>,
) -> Result<Destination, Refusal> {
    let number = requested.destination_id();
    if requested.packet_reformat() || requested.destination_eswitch_owner_vhca_id_valid() {
        return Err(syndrome::FLOW_ENTRY_DESTINATION);
    }
    match requested.destination_type() {
        TO_TABLE => {
            let next = table(nic, NIC_RECEIVE, FlowTableId::from_low_bits(number))?.context.level();
            check_level(level, next)?;
            Ok(Destination::Table(number))
        }
        TO_TIR => {
            let known = nic.ethernet.receive_interfaces.get(number);
            known.map(|_| Destination::Tir(number)).ok_or(syndrome::FLOW_ENTRY_DESTINATION)
        }
        _ => Err(syndrome::FLOW_ENTRY_DESTINATION),
    }
}

pub(super) fn delete(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DeleteFlowEntryIn,
    _: &mut DeleteFlowEntryOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.vport_number())?;
    let entries = &mut table(nic, input.table_type(), input.table_id())?.entries;
    entries.remove(&input.flow_index()).ok_or(syndrome::FLOW_ENTRY_UNKNOWN)?;
    nic.ethernet.steering.note_removed();
    Ok(())
}

/// The entry; its lists follow.
pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryFlowEntryIn,
    output: &mut QueryFlowEntryOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let entries = &table(nic, input.table_type(), input.table_id())?.entries;
    let entry = entries.get(&input.flow_index()).ok_or(syndrome::FLOW_ENTRY_UNKNOWN)?;
    output.flow_context_mut().clone_from(&entry.context);
    let destinations = entry.destinations.iter().flat_map(|destination| {
        let (kind, number) = match *destination {
            Destination::Table(number) => (TO_TABLE, number),
            Destination::Tir(number) => (TO_TIR, number),
        };
        let head = u32::from(kind) << 24 | number & 0xff_ffff;
        [head.to_be_bytes(), [0; 4]].concat()
    });
    let counters = entry.counters.iter().flat_map(|number| [number.to_be_bytes(), [0; 4]].concat());
    call.tail = destinations.chain(counters).collect();
    Ok(())
}
