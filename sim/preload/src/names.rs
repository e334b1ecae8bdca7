//! Names and addresses of virtual hosts. A name resolves to the address of the host's first device, or of the device
//! that the name includes. So both kinds of connections reach it: RDMA through the device, and TCP through this
//! machine, whose own stack carries traffic to such an address.
//!
//! Names unknown to the network, and programs started without `bareverbs run`, go to the C library unchanged.

use crate::next::call_next;
use bareverbs_network::{virtual_host, virtual_ports};
use bareverbs_serve::network::{NetworkDirectory, environment};
use bareverbs_sim::nic::LinkLayer;
use bareverbs_uverbs::{DeviceIndex, HostSettings, VirtualHost};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ptr::null_mut;
use libc::{addrinfo, hostent, size_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use std::ffi::CString;
use std::path::Path;
use std::sync::OnceLock;

/// The network, if this program runs in one.
fn network() -> Option<&'static NetworkDirectory> {
    static FOUND: OnceLock<Option<NetworkDirectory>> = OnceLock::new();
    let find = || NetworkDirectory::open(Path::new(&std::env::var_os(environment::NETWORK)?)).ok();
    FOUND.get_or_init(find).as_ref()
}

/// IPv4 addresses of the Ethernet ports of this program's host, with their devices; empty if it was started without
/// `bareverbs run`.
pub(crate) fn own_addresses() -> &'static [(DeviceIndex, Ipv4Addr)] {
    static FOUND: OnceLock<Vec<(DeviceIndex, Ipv4Addr)>> = OnceLock::new();
    let find = || {
        let ports = virtual_ports(network()?, &std::env::var(environment::HOST).ok()?)?;
        let ethernet = ports.iter().filter(|port| port.link() == LinkLayer::Ethernet);
        let numbered = |port: &VirtualHost| {
            let device = port.device();
            port.addresses().into_iter().filter_map(ipv4).map(move |address| (device, address))
        };
        Some(ethernet.flat_map(numbered).collect())
    };
    FOUND.get_or_init(|| find().unwrap_or_default())
}

const fn ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    }
}

/// Whether a host of the network has this address.
fn is_virtual_address(address: IpAddr) -> bool {
    let has = |network: &NetworkDirectory| {
        let hosts = network.hosts();
        hosts
            .iter()
            .filter_map(|name| virtual_host(network, name))
            .any(|host| host.addresses().contains(&address))
    };
    HostSettings::is_possible(address) && network().is_some_and(has)
}

/// Address of a host: IPv6 if requested, IPv4-mapped if the host has no IPv6 address.
fn address_of(host: &VirtualHost, ipv6: bool) -> IpAddr {
    let v4 = Ipv4Addr::from(host.ipv4());
    match (ipv6, host.ipv6().next()) {
        (false, _) => v4.into(),
        (true, Some(v6)) => v6.into(),
        (true, None) => v4.to_ipv6_mapped().into(),
    }
}

/// Address of a virtual host as text, which every resolver accepts without a lookup; `None` for other names.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn virtual_address(name: *const c_char, ipv6: bool) -> Option<CString> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    let address = match name.parse::<IpAddr>() {
        Ok(address) if !is_virtual_address(address) => return None,
        Ok(IpAddr::V4(v4)) if ipv6 => v4.to_ipv6_mapped().into(),
        Ok(address) => address,
        Err(_) => {
            let network = network()?;
            let host = virtual_host(network, name).filter(|host| network.has_host(host.name()))?;
            address_of(&host, ipv6)
        }
    };
    CString::new(address.to_string()).ok()
}

/// Like the C library's function, but resolves names of virtual hosts.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the caller gives a C string and hints, or null.
    let instead = unsafe {
        let wants_ipv6 = hints.as_ref().is_some_and(|hints| hints.ai_family == libc::AF_INET6);
        virtual_address(name, wants_ipv6)
    };
    let name = instead.as_ref().map_or(name, |address| address.as_ptr());
    call_next!(
        c"getaddrinfo",
        fn(*const c_char, *const c_char, *const addrinfo, *mut *mut addrinfo) -> c_int,
        (name, service, hints, found),
        libc::EAI_SYSTEM
    )
}

/// Defines functions that look up an IPv4 address by name.
macro_rules! resolving {
    ($($name:ident = $c_name:literal ($($after:ident: $after_ty:ty),*) -> $ret:ty, $failure:expr;)*) => {$(
        /// Like the C library's function, but resolves names of virtual hosts.
        ///
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(name: *const c_char $(, $after: $after_ty)*) -> $ret {
            // SAFETY: the caller gives a C string, as the C library asks.
            let instead = unsafe { virtual_address(name, false) };
            let name = instead.as_ref().map_or(name, |address| address.as_ptr());
            call_next!($c_name, fn(*const c_char $(, $after_ty)*) -> $ret, (name $(, $after)*), $failure)
        }
    )*};
}

resolving! {
    gethostbyname = c"gethostbyname" () -> *mut hostent, null_mut();
    gethostbyname2 = c"gethostbyname2" (family: c_int) -> *mut hostent, null_mut();
    gethostbyname_r = c"gethostbyname_r" (
        entry: *mut hostent, buffer: *mut c_char, length: size_t, found: *mut *mut hostent, error: *mut c_int
    ) -> c_int, libc::ENOSYS;
    gethostbyname2_r = c"gethostbyname2_r" (
        family: c_int, entry: *mut hostent, buffer: *mut c_char, length: size_t, found: *mut *mut hostent,
        error: *mut c_int
    ) -> c_int, libc::ENOSYS;
}

/// The program's address, or this machine's in place of a virtual host's.
#[derive(Clone, Copy)]
enum Replacement {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

/// The address to use instead; `None` to use the original.
///
/// # Safety
/// `address` is null or has `length` bytes.
unsafe fn instead_of(address: *const sockaddr, length: socklen_t) -> Option<Replacement> {
    let length = length as usize;
    if address.is_null() || length < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: there are at least as many bytes as a `sockaddr_in` has, and any bytes are one.
    let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
    match c_int::from(v4.sin_family) {
        libc::AF_INET => {
            let host = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            let mut v4 = v4;
            v4.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
            is_virtual_address(host.into()).then_some(Replacement::V4(v4))
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: there are as many bytes as a `sockaddr_in6` has, and any bytes are one.
            let mut v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let host = Ipv6Addr::from(v6.sin6_addr.s6_addr).to_canonical();
            v6.sin6_addr.s6_addr = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
            is_virtual_address(host).then_some(Replacement::V6(v6))
        }
        _ => None,
    }
}

/// Defines functions that take a socket address.
macro_rules! addressing {
    ($($name:ident = $c_name:literal;)*) => {$(
        /// Like the C library's function, but replaces addresses of virtual hosts by this machine's.
        ///
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
            // SAFETY: the caller gives an address of this length, as the C library asks.
            let instead = unsafe { instead_of(address, length) };
            let address: *const c_void = match &instead {
                None => address.cast(),
                Some(Replacement::V4(v4)) => (&raw const *v4).cast(),
                Some(Replacement::V6(v6)) => (&raw const *v6).cast(),
            };
            call_next!(
                $c_name,
                fn(c_int, *const c_void, socklen_t) -> c_int,
                (socket, address, length),
                -1
            )
        }
    )*};
}

addressing! {
    connect = c"connect";
    bind = c"bind";
}
