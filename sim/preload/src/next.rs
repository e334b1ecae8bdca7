//! The functions that ours replace: the C library's, or another preloaded library's.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Finds the next function of this name; null if there is none.
pub(crate) fn address(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: `name` is a C string, and RTLD_NEXT asks behind this library.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cache.store(found, Ordering::Relaxed);
    found
}

/// Finds a function in a library that the process has loaded, even if not globally; null if there is none.
pub(crate) fn address_in(library: &CStr, cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = address(cache, name);
    if !found.is_null() {
        return found;
    }
    // SAFETY: both are C strings. The library is not loaded if it is not there yet, and stays loaded, since its functions are kept.
    let found = unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() { core::ptr::null_mut() } else { libc::dlsym(handle, name.as_ptr()) }
    };
    cache.store(found, Ordering::Relaxed);
    found
}

/// Calls the next function with this name and type. If there is none, sets `errno` to ENOSYS and returns the failure
/// value.
macro_rules! call_next {
    ($name:literal, fn($($ty:ty),*) -> $ret:ty, ($($argument:expr),*), $failure:expr) => {{
        static CACHE: core::sync::atomic::AtomicPtr<core::ffi::c_void> =
            core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());
        let address = $crate::next::address(&CACHE, $name);
        if address.is_null() {
            $crate::errno::set_errno(libc::ENOSYS);
            $failure
        } else {
            // SAFETY: the C library declares the function of this name with this type, and the caller's arguments are those
            // of our function of the same name and type, for which the program answers.
            unsafe {
                core::mem::transmute::<*mut core::ffi::c_void, unsafe extern "C" fn($($ty),*) -> $ret>(address)(
                    $($argument),*
                )
            }
        }
    }};
}
pub(crate) use call_next;
