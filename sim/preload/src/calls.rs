//! Replacements of C library functions. Their names, types and caller obligations are the C library's.
//!
//! C declares `open`, `openat`, `ioctl` and `fcntl` with variadic arguments. On the supported machines (x86-64,
//! AArch64) such an argument is passed like a fixed one, so these are defined with fixed arguments.

use crate::connection_calls;
use crate::descriptors::{self, Descriptor};
use crate::device;
use crate::errno::{keeping_errno, set_errno};
use crate::next::call_next;
use crate::own_work;
use crate::paths::{Redirected, Special};
use bareverbs_uverbs::{DeviceIndex, Errno, Mapping};
use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use core::ptr::null_mut;
use libc::{mode_t, off_t, size_t, ssize_t};

/// `RDMA_VERBS_IOCTL`.
const VERBS_IOCTL: c_ulong = 0xc018_1b01;

fn fail(error: Errno) -> c_int {
    set_errno(error.raw());
    -1
}

/// If `open` succeeded, turns the descriptor opened in place of the device file into one of the device. The connection
/// management file has a descriptor of its own.
fn adopt(path: &Redirected, descriptor: c_int) -> c_int {
    if descriptor < 0 || path.special() == Special::None {
        return descriptor;
    }
    let opened = keeping_errno(|| match path.special() {
        Special::Connections => connection_calls::open(),
        Special::Device(index) => open_device(index, descriptor),
        Special::None => Ok(descriptor),
    });
    if opened != Ok(descriptor) {
        call_next!(c"close", fn(c_int) -> c_int, (descriptor), -1);
    }
    opened.unwrap_or_else(fail)
}

fn open_device(index: DeviceIndex, descriptor: c_int) -> Result<c_int, Errno> {
    let file = device::open(index)?;
    if descriptors::insert(descriptor, Descriptor::Device(file)) {
        return Ok(descriptor);
    }
    device::close(file);
    Err(Errno::NoMemory)
}

/// Defines functions that open a file.
macro_rules! opening {
    ($($name:ident = $c_name:literal [$($before:ident: $before_ty:ty)?] ($($after:ident: $after_ty:ty),*);)*) => {$(
        /// Like the C library's function, but handles replaced paths and the device file.
        ///
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $before_ty,)? path: *const c_char $(, $after: $after_ty)*) -> c_int {
            // SAFETY: the caller gives a C string, as the C library asks.
            let path = unsafe { Redirected::of(path) };
            let descriptor = call_next!(
                $c_name,
                fn($($before_ty,)? *const c_char $(, $after_ty)*) -> c_int,
                ($($before,)? path.as_ptr() $(, $after)*),
                -1
            );
            adopt(&path, descriptor)
        }
    )*};
}

opening! {
    open = c"open" [] (flags: c_int, mode: mode_t);
    open64 = c"open64" [] (flags: c_int, mode: mode_t);
    __open_2 = c"__open_2" [] (flags: c_int);
    __open64_2 = c"__open64_2" [] (flags: c_int);
    openat = c"openat" [directory: c_int] (flags: c_int, mode: mode_t);
    openat64 = c"openat64" [directory: c_int] (flags: c_int, mode: mode_t);
    __openat_2 = c"__openat_2" [directory: c_int] (flags: c_int);
    __openat64_2 = c"__openat64_2" [directory: c_int] (flags: c_int);
}

/// Defines functions that take a path and do not involve the device.
macro_rules! following {
    ($(
        $name:ident = $c_name:literal [$($before:ident: $before_ty:ty),*] ($($after:ident: $after_ty:ty),*)
        -> $ret:ty, $failure:expr;
    )*) => {$(
        /// Like the C library's function, but handles replaced paths.
        ///
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $before_ty,)* path: *const c_char $(, $after: $after_ty)*) -> $ret {
            // SAFETY: the caller gives a C string, as the C library asks.
            let path = unsafe { Redirected::of(path) };
            call_next!(
                $c_name,
                fn($($before_ty,)* *const c_char $(, $after_ty)*) -> $ret,
                ($($before,)* path.as_ptr() $(, $after)*),
                $failure
            )
        }
    )*};
}

following! {
    stat = c"stat" [] (status: *mut c_void) -> c_int, -1;
    stat64 = c"stat64" [] (status: *mut c_void) -> c_int, -1;
    lstat = c"lstat" [] (status: *mut c_void) -> c_int, -1;
    lstat64 = c"lstat64" [] (status: *mut c_void) -> c_int, -1;
    fstatat = c"fstatat" [directory: c_int] (status: *mut c_void, flags: c_int) -> c_int, -1;
    fstatat64 = c"fstatat64" [directory: c_int] (status: *mut c_void, flags: c_int) -> c_int, -1;
    statx = c"statx" [directory: c_int] (flags: c_int, mask: c_uint, status: *mut c_void) -> c_int, -1;
    __xstat = c"__xstat" [version: c_int] (status: *mut c_void) -> c_int, -1;
    __xstat64 = c"__xstat64" [version: c_int] (status: *mut c_void) -> c_int, -1;
    __lxstat = c"__lxstat" [version: c_int] (status: *mut c_void) -> c_int, -1;
    __lxstat64 = c"__lxstat64" [version: c_int] (status: *mut c_void) -> c_int, -1;
    access = c"access" [] (mode: c_int) -> c_int, -1;
    faccessat = c"faccessat" [directory: c_int] (mode: c_int, flags: c_int) -> c_int, -1;
    readlink = c"readlink" [] (buffer: *mut c_char, size: size_t) -> ssize_t, -1;
    readlinkat = c"readlinkat" [directory: c_int] (buffer: *mut c_char, size: size_t) -> ssize_t, -1;
    realpath = c"realpath" [] (resolved: *mut c_char) -> *mut c_char, null_mut();
    __realpath_chk = c"__realpath_chk" [] (resolved: *mut c_char, room: size_t) -> *mut c_char, null_mut();
    __readlink_chk = c"__readlink_chk" [] (buffer: *mut c_char, size: size_t, room: size_t) -> ssize_t, -1;
    opendir = c"opendir" [] () -> *mut c_void, null_mut();
    chdir = c"chdir" [] () -> c_int, -1;
    getxattr = c"getxattr" [] (name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, -1;
    lgetxattr = c"lgetxattr" [] (name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t, -1;
    listxattr = c"listxattr" [] (list: *mut c_char, size: size_t) -> ssize_t, -1;
    llistxattr = c"llistxattr" [] (list: *mut c_char, size: size_t) -> ssize_t, -1;
    euidaccess = c"euidaccess" [] (mode: c_int) -> c_int, -1;
    eaccess = c"eaccess" [] (mode: c_int) -> c_int, -1;
    scandir = c"scandir" [] (list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int, -1;
    scandir64 = c"scandir64" [] (list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int, -1;
    fopen = c"fopen" [] (mode: *const c_char) -> *mut c_void, null_mut();
    fopen64 = c"fopen64" [] (mode: *const c_char) -> *mut c_void, null_mut();
}

/// Closes a file when its last descriptor is closed.
fn release(was: Descriptor) {
    if was == Descriptor::Other || descriptors::is_open(was) {
        return;
    }
    match was {
        Descriptor::Device(file) => device::close(file),
        Descriptor::Events(file) => device::close_event_file(file),
        Descriptor::Connections(file) => device::close_connections(file),
        Descriptor::Other | Descriptor::Netlink | Descriptor::Inherited => {}
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    // What this library itself closes was never a file of the program.
    if !own_work::is_going_on() {
        release(descriptors::take(descriptor));
    }
    call_next!(c"close", fn(c_int) -> c_int, (descriptor), -1)
}

/// Notes that `copy` now is a duplicate of `original`, and that its previous file is closed.
fn duplicate(original: c_int, copy: c_int) -> c_int {
    if copy >= 0 && copy != original {
        let was = descriptors::take(copy);
        match descriptors::get(original) {
            Descriptor::Other => {}
            what => drop(descriptors::insert(copy, what)),
        }
        release(was);
    }
    copy
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(original: c_int) -> c_int {
    duplicate(original, call_next!(c"dup", fn(c_int) -> c_int, (original), -1))
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(original: c_int, copy: c_int) -> c_int {
    duplicate(original, call_next!(c"dup2", fn(c_int, c_int) -> c_int, (original, copy), -1))
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(original: c_int, copy: c_int, flags: c_int) -> c_int {
    duplicate(original, call_next!(c"dup3", fn(c_int, c_int, c_int) -> c_int, (original, copy, flags), -1))
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let answer =
        call_next!(c"fcntl", fn(c_int, c_int, *mut c_void) -> c_int, (descriptor, command, argument), -1);
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate(descriptor, answer),
        _ => answer,
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise; on 64-bit machines the two are the same.
    unsafe { fcntl(descriptor, command, argument) }
}

/// Like the C library's function, but handles the device file.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request != VERBS_IOCTL {
        return call_next!(
            c"ioctl",
            fn(c_int, c_ulong, *mut c_void) -> c_int,
            (descriptor, request, argument),
            -1
        );
    }
    match descriptors::get(descriptor) {
        Descriptor::Device(file) => {
            keeping_errno(|| device::ioctl(file, argument.addr() as u64)).map_or_else(fail, |()| 0)
        }
        Descriptor::Inherited => fail(Errno::Io),
        Descriptor::Other | Descriptor::Events(_) | Descriptor::Netlink | Descriptor::Connections(_) => {
            call_next!(
                c"ioctl",
                fn(c_int, c_ulong, *mut c_void) -> c_int,
                (descriptor, request, argument),
                -1
            )
        }
    }
}

/// Address and flags of a mapping request.
#[derive(Clone, Copy)]
struct MapRequest {
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
}

/// Maps anonymous memory: a doorbell page is memory that the device polls.
fn map_memory(request: MapRequest) -> *mut c_void {
    let flags = request.flags & !libc::MAP_SHARED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    call_next!(
        c"mmap",
        fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void,
        (request.address, request.length, request.protection | libc::PROT_READ, flags, -1, 0),
        libc::MAP_FAILED
    )
}

/// Maps a page of the kernel's: it starts with these bytes and is read-only for the program.
fn map_bytes(request: MapRequest, bytes: &[u8]) -> *mut c_void {
    if request.protection & (libc::PROT_WRITE | libc::PROT_EXEC) != 0 {
        fail(Errno::Permission);
        return libc::MAP_FAILED;
    }
    let length = request.length;
    let mapped = map_memory(MapRequest { protection: libc::PROT_READ | libc::PROT_WRITE, ..request });
    if mapped != libc::MAP_FAILED {
        // SAFETY: the page was mapped a line above, writable, and nobody else knows of it; the bytes are fewer than it has.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), mapped.cast(), bytes.len().min(length));
            libc::mprotect(mapped, length, libc::PROT_READ);
        }
    }
    mapped
}

fn map_device(descriptor: c_int, request: MapRequest, offset: off_t) -> Option<*mut c_void> {
    let mapped = match descriptors::get(descriptor) {
        Descriptor::Other | Descriptor::Events(_) | Descriptor::Netlink | Descriptor::Connections(_) => {
            return None;
        }
        Descriptor::Inherited => Err(Errno::Io),
        Descriptor::Device(file) => device::map(file, offset.cast_unsigned(), request.length as u64),
    };
    Some(mapped.map_or_else(
        |error| {
            fail(error);
            libc::MAP_FAILED
        },
        |mapping| match mapping {
            Mapping::Doorbells(_) => map_memory(request),
            Mapping::Clock(bytes) => map_bytes(request, &bytes),
        },
    ))
}

/// Defines `mmap` under both its names.
macro_rules! mapping {
    ($($name:ident = $c_name:literal;)*) => {$(
        /// Like the C library's function, but handles the device file.
        ///
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            length: size_t,
            protection: c_int,
            flags: c_int,
            descriptor: c_int,
            offset: off_t,
        ) -> *mut c_void {
            let request = MapRequest { address, length, protection, flags };
            if flags & libc::MAP_ANONYMOUS == 0
                && let Some(mapped) = map_device(descriptor, request, offset)
            {
                return mapped;
            }
            call_next!(
                $c_name,
                fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void,
                (address, length, protection, flags, descriptor, offset),
                libc::MAP_FAILED
            )
        }
    )*};
}

mapping! {
    mmap = c"mmap";
    mmap64 = c"mmap64";
}
