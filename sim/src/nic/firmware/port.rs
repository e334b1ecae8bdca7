//! RoCE addresses and the virtual port.

use super::call::Call;
use super::ethernet::address_list;
use crate::nic::Nic;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::port::{
    ModifyNicVportContextIn, ModifyNicVportContextOut, QueryNicVportContextIn, QueryNicVportContextOut,
    QueryRoceAddressIn, QueryRoceAddressOut, QueryVportStateIn, QueryVportStateOut, SetRoceAddressIn,
    SetRoceAddressOut,
};
use bareverbs_prm::context::{MacAddressLayout, NicVportContext, RoceAddress};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{RoceL3Type, RoceVersion};

/// The last VLAN; 0xfff is reserved (IEEE 802.1Q).
const LAST_VLAN: u16 = 0xffe;

pub(super) fn set_roce_address(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &SetRoceAddressIn,
    _: &mut SetRoceAddressOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if nic.shared.port.is_infiniband() {
        return Err(syndrome::LINK_LAYER);
    }
    check_port(input.vhca_port_num())?;
    let address = *input.roce_address();
    let index = usize::from(input.roce_address_index());
    let slot = nic.shared.port.addresses_mut().get_mut(index).ok_or(syndrome::ROCE_ADDRESS_INDEX)?;
    if Gid(address.source_l3_address()).is_zero() {
        *slot = RoceAddress::new();
        return Ok(());
    }
    check_address(&address)?;
    *slot = address;
    Ok(())
}

/// Checks the RoCE version, the VLAN and the source MAC address.
fn check_address(address: &RoceAddress) -> Result<(), Refusal> {
    match address.roce_version() {
        // RoCE v1 has no network layer: Linux leaves the type zero, whatever the GID.
        RoceVersion::Version1 => {}
        RoceVersion::Version2 => check_type(address)?,
        _ => return Err(syndrome::ROCE_ADDRESS_VERSION),
    }
    if address.vlan_valid() && address.vlan_id() > LAST_VLAN {
        return Err(syndrome::ROCE_ADDRESS_VLAN);
    }
    let mac = MacAddress::from_parts(address.source_mac_47_32(), address.source_mac_31_0());
    if mac == MacAddress::default() || mac.0[0] & 1 != 0 {
        return Err(syndrome::ROCE_ADDRESS_MAC);
    }
    Ok(())
}

/// Checks that the type matches the address.
fn check_type(address: &RoceAddress) -> Result<(), Refusal> {
    let expected = match Gid(address.source_l3_address()).to_ipv4() {
        Some(_) => RoceL3Type::Ipv4,
        None => RoceL3Type::Ipv6,
    };
    if address.roce_l3_type() == expected { Ok(()) } else { Err(syndrome::ROCE_ADDRESS_TYPE) }
}

pub(super) fn query_roce_address(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryRoceAddressIn,
    output: &mut QueryRoceAddressOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_port(input.vhca_port_num())?;
    let index = usize::from(input.roce_address_index());
    let address = nic.shared.port.addresses().get(index).ok_or(syndrome::ROCE_ADDRESS_INDEX)?;
    output.roce_address_mut().clone_from(address);
    Ok(())
}

/// Drivers of one-port devices leave the field zero.
fn check_port(port: u8) -> Result<(), Refusal> {
    if port <= 1 { Ok(()) } else { Err(syndrome::ROCE_ADDRESS_PORT) }
}

fn check_vport(other: bool, number: u16) -> Result<(), Refusal> {
    if other || number != 0 { Err(syndrome::VPORT_UNKNOWN) } else { Ok(()) }
}

/// States: 0 down, 1 up.
pub(super) fn query_vport_state(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryVportStateIn,
    output: &mut QueryVportStateOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.vport_number())?;
    output.set_admin_state(nic.shared.port.link.is_wanted().into()).set_state(nic.shared.port.is_up().into());
    Ok(())
}

pub(super) fn query_vport_context(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryNicVportContextIn,
    output: &mut QueryNicVportContextOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.vport_number())?;
    let (size, list) = address_list::show(nic, input.allowed_list_type())?;
    let mut context = nic.shared.port.vport;
    context.set_allowed_list_type(input.allowed_list_type()).set_allowed_list_size(size);
    call.tail = list;
    output.nic_vport_context_mut().clone_from(&context);
    Ok(())
}

pub(super) fn modify_vport_context(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyNicVportContextIn,
    _: &mut ModifyNicVportContextOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_vport(input.other_vport(), input.vport_number())?;
    let mut context = nic.shared.port.vport;
    check_selection(input)?;
    let requested = input.nic_vport_context();
    if input.field_select_mtu() {
        if requested.mtu() > nic.config.mtu {
            return Err(syndrome::VPORT_MTU);
        }
        context.set_mtu(requested.mtu());
    }
    if input.field_select_roce_en() {
        context.set_roce_en(requested.roce_en());
    }
    if input.field_select_node_guid() {
        context.set_node_guid(requested.node_guid());
    }
    if input.field_select_port_guid() {
        context.set_port_guid(requested.port_guid());
    }
    if input.field_select_promisc() {
        context.set_promisc_uc(requested.promisc_uc()).set_promisc_mc(requested.promisc_mc());
        context.set_promisc_all(requested.promisc_all());
    }
    let address = input.field_select_permanent_address();
    if address {
        set_permanent_address(&mut context, requested.permanent_address())?;
    }
    if input.field_select_addresses_list() {
        address_list::replace(nic, call, requested)?;
    }
    nic.shared.port.vport = context;
    if address {
        nic.shared.port.adopt_mac();
    }
    Ok(())
}

/// Refuses what the model lacks: loopback, events, inline mode, affiliation.
fn check_selection(input: &ModifyNicVportContextIn) -> Result<(), Refusal> {
    let others = input.field_select_affiliation()
        || input.field_select_disable_uc_local_lb()
        || input.field_select_disable_mc_local_lb()
        || input.field_select_min_inline()
        || input.field_select_change_event();
    if others { Err(syndrome::VPORT_FIELD) } else { Ok(()) }
}

fn set_permanent_address(context: &mut NicVportContext, requested: &MacAddressLayout) -> Result<(), Refusal> {
    let mac = MacAddress::from_parts(requested.mac_addr_47_32(), requested.mac_addr_31_0());
    if mac == MacAddress::default() || mac.0[0] & 1 != 0 {
        return Err(syndrome::ROCE_ADDRESS_MAC);
    }
    context.permanent_address_mut().clone_from(requested);
    Ok(())
}
