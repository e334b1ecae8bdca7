//! Network interfaces of the virtual host, one per device, added to the machine's own in `getifaddrs`: some programs
//! find RDMA devices through interface addresses. They exist in that list only.

use crate::names::own_addresses;
use crate::next::call_next;
use bareverbs_uverbs::{DeviceIndex, ipv4_prefix};
use core::ffi::c_int;
use core::net::Ipv4Addr;
use core::ptr::{null_mut, slice_from_raw_parts_mut};
use libc::{ifaddrs, sockaddr_in};
use std::sync::{Mutex, PoisonError};

/// Name of the first device's interface; the others are numbered on.
const NAME: &[u8; 11] = b"bareverbs0\0";
const FLAGS: c_int = libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_BROADCAST | libc::IFF_MULTICAST;

/// An entry of the list and what it points to.
#[repr(C)]
struct Interface {
    entry: ifaddrs,
    name: [u8; 11],
    address: sockaddr_in,
    netmask: sockaddr_in,
    broadcast: sockaddr_in,
}

/// Lists that the program has not freed: address of the first entry, and number of our entries.
static GIVEN: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

fn socket_address(address: Ipv4Addr) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
        sin_zero: [0; 8],
    }
}

impl Interface {
    fn new(device: DeviceIndex, address: Ipv4Addr) -> Self {
        let entry = ifaddrs {
            ifa_next: null_mut(),
            ifa_name: null_mut(),
            ifa_flags: FLAGS.cast_unsigned(),
            ifa_addr: null_mut(),
            ifa_netmask: null_mut(),
            ifa_ifu: null_mut(),
            ifa_data: null_mut(),
        };
        let mut name = *NAME;
        // The digit before the terminating zero.
        name[NAME.len() - 2] += device.number();
        let netmask = Ipv4Addr::from(!(u32::MAX >> ipv4_prefix(address.octets())));
        let broadcast = address | !netmask;
        Self {
            entry,
            name,
            address: socket_address(address),
            netmask: socket_address(netmask),
            broadcast: socket_address(broadcast),
        }
    }
}

/// Prepends our interfaces to another list.
fn in_front_of(rest: *mut ifaddrs, addresses: &[(DeviceIndex, Ipv4Addr)]) -> *mut ifaddrs {
    let mut ours: Box<[Interface]> =
        addresses.iter().map(|&(device, address)| Interface::new(device, address)).collect();
    let mut next = rest;
    for interface in ours.iter_mut().rev() {
        let Interface { entry, name, address, netmask, broadcast } = interface;
        entry.ifa_name = (&raw mut *name).cast();
        entry.ifa_next = next;
        entry.ifa_addr = (&raw mut *address).cast();
        entry.ifa_netmask = (&raw mut *netmask).cast();
        entry.ifa_ifu = (&raw mut *broadcast).cast();
        next = &raw mut *entry;
    }
    let count = ours.len();
    let first: *mut ifaddrs = Box::into_raw(ours).cast();
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner).push((first.addr(), count));
    first
}

/// Like the C library's function, but prepends the virtual host's interfaces.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    let done = call_next!(c"getifaddrs", fn(*mut *mut ifaddrs) -> c_int, (list), -1);
    let addresses = own_addresses();
    if done == 0 && !addresses.is_empty() {
        // SAFETY: the C library has just written the list to this place.
        unsafe { list.write(in_front_of(list.read(), addresses)) };
    }
    done
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freeifaddrs(list: *mut ifaddrs) {
    let count = {
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = given.iter().position(|&(first, _)| first == list.addr());
        place.map(|place| given.swap_remove(place).1)
    };
    let mut rest = list;
    if let Some(count) = count {
        // SAFETY: this address and count are those of a box that `in_front_of` has made, and were taken out of the table, so
        // nobody else frees it. There is at least one entry in it.
        let ours = unsafe { Box::from_raw(slice_from_raw_parts_mut(list.cast::<Interface>(), count)) };
        rest = ours.last().map_or(null_mut(), |last| last.entry.ifa_next);
    }
    call_next!(c"freeifaddrs", fn(*mut ifaddrs) -> (), (rest), ());
}
