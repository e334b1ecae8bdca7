//! InfiniBand ports: the virtual port context, GID and P_Key tables, counters (PRM, HCA vport context).

use super::call::Call;
use crate::nic::ethernet::traffic::{Count, PortTraffic};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::{LinkLayer, Nic};
use bareverbs_prm::command::ib_port::{
    HcaVportContext, ModifyHcaVportContextIn, ModifyHcaVportContextOut, QueryHcaVportContextIn,
    QueryHcaVportContextOut, QueryHcaVportGidIn, QueryHcaVportGidOut, QueryHcaVportPkeyIn,
    QueryHcaVportPkeyOut, QueryVportCounterIn, QueryVportCounterOut,
};

/// The index that requests the whole table.
const WHOLE_TABLE: u16 = 0xffff;
/// `field_select` of a modification: port GUID, node GUID. The third one, the state policy, is not offered.
const SELECT_PORT_GUID: u32 = 1 << 0;
const SELECT_NODE_GUID: u32 = 1 << 1;

/// Bits of `CapabilityMask` that software may set: the node has an SM, or communication management (IBTA v1.4
/// §14.2.5.6).
const SETTABLE_CAPABILITIES: u32 = 1 << 1 | 1 << 16;

fn check_port(nic: &Nic, other: bool, port: u8, vport: u16) -> Result<(), Refusal> {
    if nic.config.link_layer != LinkLayer::InfiniBand {
        return Err(syndrome::LINK_LAYER);
    }
    check_vport(other, port, vport)
}

fn check_vport(other: bool, port: u8, vport: u16) -> Result<(), Refusal> {
    if other || port > 1 || vport != 0 { Err(syndrome::VPORT_UNKNOWN) } else { Ok(()) }
}

pub(super) fn query_context(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryHcaVportContextIn,
    output: &mut QueryHcaVportContextOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_port(nic, input.other_vport(), input.port_num(), input.vport_number())?;
    output.hca_vport_context_mut().clone_from(&shown_context(nic));
    Ok(())
}

/// The context that software set, with the current state of the port.
fn shown_context(nic: &Nic) -> HcaVportContext {
    let state = nic.shared.port.state() as u8;
    let mut context = nic.shared.port.hca_vport;
    context.set_port_physical_state(nic.shared.port.link.physical_state() as u8);
    context.set_port_state(state).set_vport_state(state);
    context.set_cap_mask1_field_select(SETTABLE_CAPABILITIES);
    context
}

pub(super) fn modify_context(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyHcaVportContextIn,
    _: &mut ModifyHcaVportContextOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_port(nic, input.other_vport(), input.port_num(), input.vport_number())?;
    let (requested, mut context) = (input.hca_vport_context(), nic.shared.port.hca_vport);
    let mask = requested.cap_mask1_field_select();
    let unknown = requested.field_select() & !(SELECT_PORT_GUID | SELECT_NODE_GUID) != 0;
    if unknown || mask & !SETTABLE_CAPABILITIES != 0 || requested.cap_mask2_field_select() != 0 {
        return Err(syndrome::VPORT_FIELD);
    }
    if requested.field_select() & SELECT_PORT_GUID != 0 {
        context.set_port_guid(requested.port_guid());
    }
    if requested.field_select() & SELECT_NODE_GUID != 0 {
        context.set_node_guid(requested.node_guid());
    }
    let capabilities = context.cap_mask1() & !mask | requested.cap_mask1() & mask;
    nic.shared.port.hca_vport = context;
    nic.shared.port.set_capability_mask(call.now, capabilities);
    Ok(())
}

/// The table entries that an index selects, as bytes.
fn select<T, const N: usize>(
    table: &[T],
    index: u16,
    bytes: impl Fn(&T) -> [u8; N],
) -> Result<Vec<u8>, Refusal> {
    let chosen = match index {
        WHOLE_TABLE => table,
        index => table.get(usize::from(index)).map(core::slice::from_ref).ok_or(syndrome::VPORT_INDEX)?,
    };
    Ok(chosen.iter().flat_map(bytes).collect())
}

pub(super) fn query_gid(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryHcaVportGidIn,
    output: &mut QueryHcaVportGidOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_port(nic, input.other_vport(), input.port_num(), input.vport_number())?;
    call.tail = select(nic.shared.port.addresses(), input.gid_index(), |entry| entry.source_l3_address())?;
    output.set_gids_num((call.tail.len() / 16) as u16);
    Ok(())
}

/// The P_Key table, for ports of both link layers.
pub(super) fn query_pkey(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryHcaVportPkeyIn,
    _: &mut QueryHcaVportPkeyOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.port_num(), input.vport_number())?;
    let table = nic.shared.port.partition_keys();
    call.tail = select(table, input.pkey_index(), |key| u32::from(*key).to_be_bytes())?;
    Ok(())
}

/// `op_mod` 0: counters since the device's counters were reset. Clearing them is not offered.
pub(super) fn query_counters(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryVportCounterIn,
    output: &mut QueryVportCounterOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.port_num(), input.vport_number())?;
    if input.clear() {
        return Err(syndrome::VPORT_FIELD);
    }
    let (counters, traffic) = (&nic.shared.counters, &nic.ethernet.traffic);
    let all = Count { packets: counters.frames_received, bytes: counters.bytes_received };
    let (groups, unicast) = (traffic.received_groups, all.without(traffic.received.total()));
    let unicast = unicast.without(groups);
    output.set_received_ib_unicast_packets(unicast.packets).set_received_ib_unicast_octets(unicast.bytes);
    output.set_received_ib_multicast_packets(groups.packets).set_received_ib_multicast_octets(groups.bytes);
    let all = Count {
        packets: counters.frames_sent + counters.frames_looped_back,
        bytes: counters.bytes_sent + counters.bytes_looped_back,
    };
    let (groups, unicast) = (traffic.sent_groups, all.without(traffic.sent.total()));
    let unicast = unicast.without(groups);
    output.set_transmitted_ib_unicast_packets(unicast.packets);
    output.set_transmitted_ib_unicast_octets(unicast.bytes);
    output.set_transmitted_ib_multicast_packets(groups.packets);
    output.set_transmitted_ib_multicast_octets(groups.bytes);
    output.set_transmit_errors_packets(counters.frames_without_path);
    count_ethernet(traffic, output);
    Ok(())
}

/// Counts non-RDMA packets by kind of address.
fn count_ethernet(traffic: &PortTraffic, output: &mut QueryVportCounterOut) {
    let (received, sent) = (&traffic.received, &traffic.sent);
    output.set_received_eth_unicast_packets(received.unicast.packets);
    output.set_received_eth_unicast_octets(received.unicast.bytes);
    output.set_received_eth_multicast_packets(received.multicast.packets);
    output.set_received_eth_multicast_octets(received.multicast.bytes);
    output.set_received_eth_broadcast_packets(received.broadcast.packets);
    output.set_received_eth_broadcast_octets(received.broadcast.bytes);
    output.set_transmitted_eth_unicast_packets(sent.unicast.packets);
    output.set_transmitted_eth_unicast_octets(sent.unicast.bytes);
    output.set_transmitted_eth_multicast_packets(sent.multicast.packets);
    output.set_transmitted_eth_multicast_octets(sent.multicast.bytes);
    output.set_transmitted_eth_broadcast_packets(sent.broadcast.packets);
    output.set_transmitted_eth_broadcast_octets(sent.broadcast.bytes);
    output.set_local_loopback_packets(traffic.looped_back.packets);
    output.set_local_loopback_octets(traffic.looped_back.bytes);
}
