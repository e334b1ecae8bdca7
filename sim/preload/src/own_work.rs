//! Tracks when a thread works for this library. While it holds the device, descriptors it opens and closes are not the
//! program's.

use crate::next::call_next;
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use libc::sigset_t;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While this lives, its thread works for this library.
#[derive(Debug)]
pub(crate) struct OwnWork(());

impl OwnWork {
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for OwnWork {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

/// Whether this thread is working for this library.
pub(crate) fn is_going_on() -> bool {
    DEPTH.get() > 0
}

/// Free stack in bytes that a thread of the program needs to run a round of the device.
const STACK_OF_A_ROUND: usize = 256 << 10;

thread_local! {
    static MAY_WORK: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Whether this thread of the program may run a round of the device: it is not inside this library, its stack has room,
/// and it does not block the signals of its own faults, which copies may raise.
pub(crate) fn may_work_here() -> bool {
    let may = DEPTH.try_with(|depth| {
        depth.get() == 0
            && MAY_WORK.get().unwrap_or_else(|| {
                let may = has_room() && takes_faults();
                MAY_WORK.set(Some(may));
                may
            })
    });
    may.unwrap_or(false)
}

/// This thread's signal mask may have changed.
fn ask_again() {
    let _ = MAY_WORK.try_with(|may| may.set(None));
}

/// Defines functions that change a thread's signal mask.
macro_rules! masking {
    ($($name:ident = $c_name:literal, $failure:expr;)*) => {$(
        /// Like the C library's function; also notes that this thread's signal mask may have changed.
        ///
        /// # Safety
        /// As in the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
            if !new.is_null() {
                ask_again();
            }
            call_next!($c_name, fn(c_int, *const sigset_t, *mut sigset_t) -> c_int, (how, new, old), $failure)
        }
    )*};
}

masking! {
    sigprocmask = c"sigprocmask", -1;
    pthread_sigmask = c"pthread_sigmask", libc::ENOSYS;
}

/// Whether the stack of this thread has room for a round.
fn has_room() -> bool {
    let local = 0_u8;
    let here = core::hint::black_box(&raw const local).addr();
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut size) = (core::ptr::null_mut(), 0);
    // SAFETY: `pthread_getattr_np` fills the attributes if it succeeds; only then they are asked and destroyed.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return false;
        }
        let known = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut size) == 0;
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        known && here.checked_sub(lowest.addr()).is_some_and(|room| room >= STACK_OF_A_ROUND)
    }
}

/// Whether this thread accepts the signals of its own faults.
fn takes_faults() -> bool {
    let mut blocked = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: without a new set the kernel only fills `blocked`; it is asked if that succeeded.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), blocked.as_mut_ptr()) == 0
            && [libc::SIGSEGV, libc::SIGBUS]
                .iter()
                .all(|signal| libc::sigismember(blocked.as_ptr(), *signal) == 0)
    }
}
