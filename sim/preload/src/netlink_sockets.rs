//! NETLINK_RDMA sockets, through which programs query devices: they find ours and none of the machine's.
//!
//! **What this is.** The program gets a netlink socket of a protocol that carries messages between programs. The kernel
//! handles bind, receive, poll and options. What the program sends is answered here, and the answers go to its socket.

use crate::descriptors::{self, Descriptor};
use crate::device;
use crate::errno::{keeping_errno, set_errno};
use crate::next::call_next;
use crate::own_work::OwnWork;
use crate::paths;
use crate::settings::Settings;
use bareverbs_serve::network::{NetworkDirectory, ObjectRequest};
use bareverbs_uverbs::netlink::{
    self, Inventory, InventoryDevice, ListedObject, ListedObjects, ObjectCounts, ObjectKind,
};
use bareverbs_uverbs::{DeviceAttributes, NullProcess, Uverbs, VirtualHost};
use core::ffi::{c_int, c_void};
use core::time::Duration;
use libc::{msghdr, size_t, sockaddr, socklen_t, ssize_t};
use rustix::net::netlink::{SocketAddrNetlink, USERSOCK};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

/// `NETLINK_RDMA` of `linux/netlink.h`.
const NETLINK_RDMA: c_int = 20;
/// Longest request datagram in bytes.
const LONGEST: usize = 1 << 16;
/// Most objects of a kind accepted from a process.
const MOST_OBJECTS: usize = 1 << 16;
/// Time limit for another process of the host to answer.
const TIMEOUT: Duration = Duration::from_millis(500);

/// A device, before a program uses it.
#[derive(Debug)]
struct Found {
    attributes: DeviceAttributes,
    /// Name of the host at this device.
    port: String,
    network: NetworkDirectory,
}

/// Devices of this host; `None` if there are none, for a reason that opening one reports.
fn found() -> Option<&'static [Found]> {
    static FOUND: OnceLock<Option<Vec<Found>>> = OnceLock::new();
    let find = || {
        let settings = Settings::read().ok()?;
        settings.ports.iter().map(|port| boot(&settings, port)).collect()
    };
    FOUND.get_or_init(find).as_deref()
}

fn boot(settings: &Settings, port: &VirtualHost) -> Option<Found> {
    let config = settings.nic_config(port, 0);
    let device = Uverbs::boot(config, &port.port_addresses(), &mut NullProcess).ok()?;
    let network = settings.network.clone();
    Some(Found { attributes: device.attributes().clone(), port: port.name().to_owned(), network })
}

impl Found {
    /// Numbers of objects of all processes of the host. A process that does not answer counts as having none.
    fn objects(&self) -> ObjectCounts {
        let processes = self.network.processes(&self.port);
        let said = processes.iter().filter_map(|&number| self.network.ask(&self.port, number, TIMEOUT).ok());
        said.fold(ObjectCounts::default(), |sum, said| sum.and(&ObjectCounts::from_lines(&said)))
    }

    /// Objects of a kind of all processes of the host.
    fn list(&self, kind: ObjectKind) -> Vec<ListedObject> {
        let processes = self.network.processes(&self.port);
        processes.into_iter().flat_map(|number| self.list_of(number, kind)).collect()
    }

    /// Objects of one process, fetched in as many answers as needed.
    fn list_of(&self, number: u8, kind: ObjectKind) -> Vec<ListedObject> {
        let mut listed: Vec<ListedObject> = Vec::new();
        let mut from = 0;
        while listed.len() < MOST_OBJECTS {
            let request = ObjectRequest { kind: kind.raw(), from };
            let told = self.network.ask_objects(&self.port, number, request, TIMEOUT).unwrap_or_default();
            let told = ListedObject::decode(&told);
            let next = told.last().and_then(|last| last.number().checked_add(1));
            listed.extend(told);
            match next {
                Some(next) if next > from => from = next,
                _ => break,
            }
        }
        listed
    }
}

/// Like the C library's function, but RDMA netlink sockets are answered here.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_ours = domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && paths::is_active();
    let protocol = if is_ours { libc::NETLINK_USERSOCK } else { protocol };
    let descriptor = call_next!(c"socket", fn(c_int, c_int, c_int) -> c_int, (domain, kind, protocol), -1);
    if descriptor < 0 || !is_ours {
        return descriptor;
    }
    keeping_errno(device::watch_forks);
    if !descriptors::insert(descriptor, Descriptor::Netlink) {
        call_next!(c"close", fn(c_int) -> c_int, (descriptor), -1);
        set_errno(libc::EMFILE);
        return -1;
    }
    descriptor
}

/// Whether datagrams sent on this descriptor are answered here.
fn is_ours(descriptor: c_int) -> bool {
    descriptors::get(descriptor) == Descriptor::Netlink
}

/// Answers a datagram sent on one of our sockets. Returns the result of the program's call.
fn answer(descriptor: c_int, datagram: &[u8]) -> ssize_t {
    match keeping_errno(|| deliver(descriptor, datagram)) {
        Ok(()) => datagram.len() as ssize_t,
        Err(error) => {
            set_errno(error.raw_os_error());
            -1
        }
    }
}

fn deliver(descriptor: c_int, datagram: &[u8]) -> rustix::io::Result<()> {
    let _own_work = OwnWork::begin();
    // SAFETY: the program has just given the number of an open socket, and keeps it open during its call.
    let theirs = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let found = found().ok_or(rustix::io::Errno::NODEV)?;
    let port = port_of(theirs)?;
    let asks_for_objects = netlink::asks_for_objects(datagram);
    let kinds = netlink::kinds_asked_for(datagram);
    let list = |found: &Found| kinds.iter().map(|kind| (*kind, found.list(*kind))).collect();
    let listed: Vec<ListedObjects> = found.iter().map(list).collect();
    let described = |(found, listed): (&'static Found, _)| {
        let objects = if asks_for_objects { found.objects() } else { ObjectCounts::default() };
        let has_cable = found.network.has_cable(&found.port);
        InventoryDevice { attributes: &found.attributes, has_cable, objects, listed }
    };
    let devices: Vec<InventoryDevice<'_>> = found.iter().zip(&listed).map(described).collect();
    let answers = netlink::answer(datagram, port, &Inventory(&devices));
    let ours = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(USERSOCK),
    )?;
    for message in answers {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendto(&ours, &message, flags, &SocketAddrNetlink::new(port, 0))?;
    }
    Ok(())
}

/// Netlink port number of a socket; assigns one if it has none.
fn port_of(socket: BorrowedFd<'_>) -> rustix::io::Result<u32> {
    let port = || SocketAddrNetlink::try_from(rustix::net::getsockname(socket)?).map(|address| address.pid());
    match port()? {
        0 => {
            rustix::net::bind(socket, &SocketAddrNetlink::new(0, 0))?;
            port()
        }
        port => Ok(port),
    }
}

/// Like the C library's function, but handles RDMA netlink sockets.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(descriptor: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if !is_ours(descriptor) {
        return call_next!(
            c"sendmsg",
            fn(c_int, *const msghdr, c_int) -> ssize_t,
            (descriptor, message, flags),
            -1
        );
    }
    // SAFETY: the caller gives a message, whose parts are as many and as long as it says.
    let parts = unsafe {
        let message = &*message;
        let parts = core::ptr::slice_from_raw_parts(message.msg_iov.cast_const(), message.msg_iovlen);
        (&*parts)
            .iter()
            .map(|part| &*core::ptr::slice_from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len))
    };
    let datagram: Vec<u8> = parts.flatten().copied().take(LONGEST + 1).collect();
    send_datagram(descriptor, &datagram)
}

/// Like the C library's function, but handles RDMA netlink sockets.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    descriptor: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> ssize_t {
    if !is_ours(descriptor) {
        return call_next!(
            c"sendto",
            fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t,
            (descriptor, bytes, length, flags, address, address_length),
            -1
        );
    }
    // SAFETY: the caller gives so many bytes.
    send_datagram(descriptor, unsafe { &*core::ptr::slice_from_raw_parts(bytes.cast(), length) })
}

/// Like the C library's function, but handles RDMA netlink sockets.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    descriptor: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: `send` is `sendto` without an address, and the caller's promise is the same.
    unsafe { sendto(descriptor, bytes, length, flags, core::ptr::null(), 0) }
}

fn send_datagram(descriptor: c_int, datagram: &[u8]) -> ssize_t {
    if datagram.len() > LONGEST {
        set_errno(libc::EMSGSIZE);
        return -1;
    }
    answer(descriptor, datagram)
}
