//! The C library's `errno`.

use core::ffi::c_int;

/// Sets `errno`.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the C library gives each thread a place for its number.
    unsafe { *libc::__errno_location() = number };
}

/// Returns `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library gives each thread a place for its number.
    unsafe { *libc::__errno_location() }
}

/// Runs `work` and restores `errno`, as a successful system call leaves it unchanged.
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    let before = errno();
    let done = work();
    set_errno(before);
    done
}
