//! Fast copies between our memory and the program's that survive invalid addresses.
//!
//! **What this is.** A copy routine in assembly with known instruction addresses. If one of them faults, the handler of
//! SIGSEGV and SIGBUS makes the copy return an error. Every other fault goes to the program's handler, or has its
//! default effect. To keep the program's handlers and ours apart, `sigaction` and `signal` for these two signals only
//! record the requested actions once the device exists.
//!
//! **What it may not do.** It must run in a thread that does not block these two signals, because the kernel kills a
//! process whose thread blocks the signal of its own fault.

use crate::next::call_next;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::{sigaction as Action, siginfo_t, ucontext_t};

core::arch::global_asm!(
    ".globl bareverbs_copy_begin",
    ".globl bareverbs_copy_end",
    ".globl bareverbs_copy_failed",
    // rdi: to, rsi: from, rdx: length, at least 1. The last byte is written after all others: whoever polls
    // it then finds the rest.
    "bareverbs_copy_begin:",
    "mov rcx, rdx",
    "dec rcx",
    "cmp rcx, 7",
    "je 2f",
    "cmp rcx, 3",
    "je 3f",
    "rep movsb",
    "mov al, [rsi]",
    "mov [rdi], al",
    "jmp bareverbs_copy_end",
    // Copies of 8 and 4 bytes are single accesses, so doorbell records and counters are read whole.
    "2:",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "jmp bareverbs_copy_end",
    "3:",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "bareverbs_copy_end:",
    "xor eax, eax",
    "ret",
    "bareverbs_copy_failed:",
    "mov eax, 1",
    "ret",
);

unsafe extern "C" {
    fn bareverbs_copy_begin(to: *mut u8, from: *const u8, length: usize) -> c_int;
    fn bareverbs_copy_end();
    fn bareverbs_copy_failed();
}

/// Copies bytes, the last one last, and 4 or 8 bytes as single accesses; false if an address is not accessible.
///
/// # Safety
/// The side that is ours has `length` bytes that may be read or written. The program answers for the other side. [`guard`]
/// has succeeded, and this thread does not block SIGSEGV and SIGBUS.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) -> bool {
    // SAFETY: the caller's promise; a fault at the other side makes the copy return.
    length == 0 || unsafe { bareverbs_copy_begin(to, from, length) } == 0
}

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The program's action for each of [`SIGNALS`]; null before [`guard`]. Replaced actions are leaked, because a handler
/// may be reading them; programs set these handlers a few times at most.
static WANTED: [AtomicPtr<Action>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

fn wanted(signal: c_int) -> Option<&'static AtomicPtr<Action>> {
    SIGNALS.iter().position(|known| *known == signal).map(|at| &WANTED[at])
}

/// The C library's `sigaction`.
fn set(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    call_next!(c"sigaction", fn(c_int, *const Action, *mut Action) -> c_int, (signal, new, old), -1)
}

/// Enables guarded copies; false if that is impossible. Idempotent.
pub(crate) fn guard() -> bool {
    SIGNALS.iter().all(|&signal| {
        let Some(place) = wanted(signal) else { return false };
        if !place.load(Ordering::Acquire).is_null() {
            return true;
        }
        // SAFETY: all zeros are an action, which is filled in below.
        let mut before: Action = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut ours = before;
        ours.sa_sigaction = handle as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        if set(signal, core::ptr::null(), &raw mut before) != 0 {
            return false;
        }
        place.store(Box::into_raw(Box::new(before)), Ordering::Release);
        set(signal, &raw const ours, null_mut()) == 0
    })
}

extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the handler of a signal the context of the thread.
    let place = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    let at = *place as usize;
    if (bareverbs_copy_begin as *const () as usize..bareverbs_copy_end as *const () as usize).contains(&at) {
        *place = bareverbs_copy_failed as *const () as i64;
        return;
    }
    let action = wanted(signal).map_or(null_mut(), |place| place.load(Ordering::Acquire));
    // SAFETY: what is stored there is never freed.
    match unsafe { action.as_ref() } {
        Some(action) if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN => {
            // SAFETY: the program gave this handler for this signal; one that takes fewer arguments does not look at the others.
            unsafe {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    core::mem::transmute(action.sa_sigaction);
                handler(signal, info, context);
            }
        }
        // The fault will repeat, and the kernel then takes the default action.
        _ => {
            // SAFETY: all zeros are the action of the kernel.
            let default: Action = unsafe { MaybeUninit::zeroed().assume_init() };
            set(signal, &raw const default, null_mut());
        }
    }
}

/// Like the C library's function, but the program's handlers of SIGSEGV and SIGBUS run after ours.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let known = wanted(signal).filter(|place| !place.load(Ordering::Acquire).is_null());
    let Some(place) = known else { return set(signal, new, old) };
    // SAFETY: the caller gives actions, or null; what is stored is an action and never freed.
    unsafe {
        let before = *place.load(Ordering::Acquire);
        if let Some(new) = new.as_ref() {
            place.store(Box::into_raw(Box::new(*new)), Ordering::Release);
        }
        if let Some(old) = old.as_mut() {
            *old = before;
        }
    }
    0
}

/// Like the C library's function, but the program's handlers of SIGSEGV and SIGBUS run after ours.
///
/// # Safety
/// As in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    if wanted(signal).is_none_or(|place| place.load(Ordering::Acquire).is_null()) {
        return call_next!(c"signal", fn(c_int, usize) -> usize, (signal, handler), libc::SIG_ERR);
    }
    // SAFETY: all zeros are an action; then its handler is what the program gave.
    unsafe {
        let mut new: Action = MaybeUninit::zeroed().assume_init();
        let mut old = new;
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        sigaction(signal, &raw const new, &raw mut old);
        old.sa_sigaction
    }
}
