//! The error number of the C library.

use core::ffi::c_int;

/// Sets `errno`.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the C library gives each thread a place for its number.
    unsafe { *libc::__errno_location() = number };
}

/// The number of the last error.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library gives each thread a place for its number.
    unsafe { *libc::__errno_location() }
}

/// Does something and leaves `errno` as it was, as a system call that succeeds does.
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    let before = errno();
    let done = work();
    set_errno(before);
    done
}
