//! C library functions that a program calls on connection management files: it writes commands, and librdmacm checks
//! for a device file.
//!
//! A thread that waits for an event may be cancelled, which unwinds it. These functions let the unwinding pass and hold
//! nothing that would need to be dropped.

use crate::descriptors::{self, Descriptor};
use crate::device::{self, Written};
use crate::errno::{errno, keeping_errno, set_errno};
use crate::next::{address, call_next};
use bareverbs_uverbs::{ConnectionFileId, Errno};
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicPtr;
use libc::{size_t, ssize_t};
use std::os::fd::{AsRawFd, IntoRawFd};

/// Device number of `/dev/null`, which `bareverbs run` shows for the file.
const DEVICE_NUMBER: libc::dev_t = libc::makedev(1, 3);

unsafe extern "C-unwind" {
    fn recv(socket: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    fn pause() -> c_int;
}

/// Opens the file and returns its descriptor.
pub(crate) fn open() -> Result<c_int, Errno> {
    let (file, descriptor) = device::open_connections()?;
    if descriptors::insert(descriptor.as_raw_fd(), Descriptor::Connections(file)) {
        return Ok(descriptor.into_raw_fd());
    }
    device::close_connections(file);
    Err(Errno::NoMemory)
}

/// Like the C library's function, but executes connection management commands.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(descriptor: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    if let Descriptor::Connections(file) = descriptors::get(descriptor)
        // SAFETY: the descriptor and the buffer are what the caller gave.
        && let Some(answer) = unsafe { command(file, descriptor, buffer, length) }
    {
        return answer;
    }
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let next = address(&NEXT, c"write");
    if next.is_null() {
        set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the C library declares `write` with this type, and the arguments are those of our caller.
    unsafe {
        core::mem::transmute::<
            *mut c_void,
            unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t,
        >(next)(descriptor, buffer, length)
    }
}

/// Executes a command, and waits for an event if it asks for one; `None` if the descriptor has become something else.
///
/// # Safety
/// As of `write`.
unsafe fn command(
    file: ConnectionFileId,
    descriptor: c_int,
    buffer: *const c_void,
    length: size_t,
) -> Option<ssize_t> {
    loop {
        let place = buffer.addr() as u64;
        match keeping_errno(|| device::write_connections(file, descriptor, place, length)) {
            Written::Done => return Some(length.cast_signed()),
            Written::NotOurs => return None,
            // This library missed that it was closed: let the C library tell what the descriptor is now.
            Written::EventNotOurs if descriptors::get(descriptor) == Descriptor::Connections(file) => {
                return None;
            }
            Written::EventNotOurs => return Some(wait_in_closed_file()),
            Written::Failed(error) => {
                set_errno(error.raw());
                return Some(-1);
            }
            Written::NoEvent => {}
        }
        let mut byte = 0_u8;
        // SAFETY: `byte` has room for one. It is left in the socket. Signals, cancellation and O_NONBLOCK are the kernel's
        // business.
        let received = unsafe { recv(descriptor, (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
        if received == -1 && errno() == libc::EBADF {
            return Some(wait_in_closed_file());
        }
        keeping_errno(|| device::end_connection_wait(file));
        match received {
            1 => {}
            0 => {
                set_errno(Errno::Io.raw());
                return Some(-1);
            }
            _ => return Some(-1),
        }
    }
}

/// Another thread has closed the file while this one was asking for an event. In the kernel it would keep waiting until
/// a signal or the end of the process, and programs rely on that: a thread of rping would treat an error as the end of
/// the program.
fn wait_in_closed_file() -> ssize_t {
    // SAFETY: `pause` takes nothing. A thread that is cancelled in it unwinds through here, where nothing is to be dropped.
    let interrupted = unsafe { pause() };
    interrupted as ssize_t
}

/// Presents a socket as a device file.
///
/// # Safety
/// `status` is null or a `struct stat` that was filled.
unsafe fn disguise(descriptor: c_int, status: *mut libc::stat) {
    if !descriptors::is_connections(descriptor) {
        return;
    }
    // SAFETY: the caller's promise.
    if let Some(status) = unsafe { status.as_mut() } {
        status.st_mode = status.st_mode & !libc::S_IFMT | libc::S_IFCHR;
        status.st_rdev = DEVICE_NUMBER;
    }
}

/// Defines functions that describe a descriptor. On 64-bit machines all of them fill the same structure.
macro_rules! describing {
    ($($name:ident = $c_name:literal ($($before:ident: $before_ty:ty),*);)*) => {$(
        /// Like the C library's function, but connection management files are devices.
        ///
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $before_ty,)* descriptor: c_int, status: *mut libc::stat) -> c_int {
            let answer = call_next!(
                $c_name,
                fn($($before_ty,)* c_int, *mut libc::stat) -> c_int,
                ($($before,)* descriptor, status),
                -1
            );
            if answer == 0 {
                // SAFETY: the C library has filled it.
                unsafe { disguise(descriptor, status) };
            }
            answer
        }
    )*};
}

describing! {
    fstat = c"fstat" ();
    fstat64 = c"fstat64" ();
    __fxstat = c"__fxstat" (version: c_int);
    __fxstat64 = c"__fxstat64" (version: c_int);
}
