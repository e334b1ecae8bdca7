//! The address lists of the virtual port: unicast, multicast, VLANs.

use super::super::call::Call;
use crate::nic::Nic;
use crate::nic::ethernet::filter::is_multicast;
use crate::nic::firmware_state::limits::{LOG_MULTICAST, LOG_UNICAST, LOG_VLANS};
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::context::{MacAddressLayout, NicVportContext};
use bareverbs_prm::ids::MacAddress;
use zerocopy::{FromBytes, IntoBytes};

/// `allowed_list_type`.
const UNICAST: u8 = 0;
const MULTICAST: u8 = 1;
const VLANS: u8 = 2;
/// Offset of the context in the input of MODIFY_NIC_VPORT_CONTEXT, and of the list in the context.
const LIST: usize = 256 + NicVportContext::CURRENT_UC_MAC_ADDRESS_OFFSET;
/// Bytes of an entry: an address takes two dwords, a VLAN one.
const ADDRESS: usize = MacAddressLayout::SIZE;
const VLAN: usize = 4;

/// A list as QUERY_NIC_VPORT_CONTEXT shows it: the number of entries, and their bytes.
pub(in crate::nic::firmware) fn show(nic: &Nic, kind: u8) -> Result<(u16, Vec<u8>), Refusal> {
    let lists = &nic.ethernet.lists;
    let bytes = |addresses: &mut dyn Iterator<Item = MacAddress>| -> Vec<u8> {
        addresses.flat_map(|mac| layout(mac).as_bytes().to_vec()).collect()
    };
    let (size, bytes) = match kind {
        UNICAST => {
            let all = core::iter::once(nic.shared.port.mac()).chain(lists.unicast.iter().copied());
            (ADDRESS, bytes(&mut all.into_iter()))
        }
        MULTICAST => (ADDRESS, bytes(&mut lists.multicast.iter().copied())),
        VLANS => (VLAN, lists.vlans.iter().flat_map(|&vlan| u32::from(vlan).to_be_bytes()).collect()),
        _ => return Err(syndrome::VPORT_LIST_TYPE),
    };
    Ok(((bytes.len() / size) as u16, bytes))
}

fn layout(mac: MacAddress) -> MacAddressLayout {
    let mut address = MacAddressLayout::new();
    address.set_mac_addr_47_32(mac.high()).set_mac_addr_31_0(mac.low());
    address
}

/// Replaces a list. The first unicast address becomes the port's own.
pub(in crate::nic::firmware) fn replace(
    nic: &mut Nic,
    call: &Call<'_>,
    requested: &NicVportContext,
) -> Result<(), Refusal> {
    let count = usize::from(requested.allowed_list_size());
    let (size, most) = match requested.allowed_list_type() {
        UNICAST => (ADDRESS, 1 << LOG_UNICAST),
        MULTICAST => (ADDRESS, 1 << LOG_MULTICAST),
        VLANS => (VLAN, 1 << LOG_VLANS),
        _ => return Err(syndrome::VPORT_LIST_TYPE),
    };
    if count > most {
        return Err(syndrome::VPORT_LIST_SIZE);
    }
    let bytes = call.input.get(LIST..LIST + count * size).ok_or(syndrome::INPUT_TOO_SHORT)?;
    match requested.allowed_list_type() {
        UNICAST => set_unicast(nic, &read_addresses(bytes)),
        MULTICAST => {
            nic.ethernet.lists.multicast = read_addresses(bytes);
            Ok(())
        }
        _ => {
            let vlans = bytes.chunks_exact(VLAN).filter_map(|bytes| bytes.first_chunk());
            nic.ethernet.lists.vlans = vlans.map(|bytes| u32::from_be_bytes(*bytes) as u16 & 0xfff).collect();
            Ok(())
        }
    }
}

fn read_addresses(bytes: &[u8]) -> Vec<MacAddress> {
    let addresses =
        bytes.chunks_exact(ADDRESS).filter_map(|bytes| MacAddressLayout::read_from_bytes(bytes).ok());
    addresses
        .map(|address| MacAddress::from_parts(address.mac_addr_47_32(), address.mac_addr_31_0()))
        .collect()
}

fn set_unicast(nic: &mut Nic, addresses: &[MacAddress]) -> Result<(), Refusal> {
    if addresses.iter().any(|&mac| mac == MacAddress::default() || is_multicast(mac)) {
        return Err(syndrome::ROCE_ADDRESS_MAC);
    }
    if let Some((&own, others)) = addresses.split_first() {
        nic.shared.port.set_mac(own);
        nic.ethernet.lists.unicast = others.to_vec();
    } else {
        nic.ethernet.lists.unicast.clear();
    }
    Ok(())
}
