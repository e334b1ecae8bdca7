//! The libibverbs functions with which a program posts requests and polls for completions. The threads that call them
//! also run the device.
//!
//! **What this is.** A polling program keeps a core busy. On a machine without a free core the NIC's thread is too
//! late: it must sleep to leave the core to the program, and a sleep takes longer than many messages. But the program's
//! own thread is running, and waits for the device. libibverbs calls its driver through function pointers in the device
//! context and in each queue pair. A round of the device runs after `post_send` and `wr_complete`, and before
//! `poll_cq`; the driver's functions are called as usual. ADR 0034 explains this choice and the alternatives.
//!
//! **What it may not do.** Nothing depends on it: the NIC's thread serves a program that calls its driver in another
//! way. [`crate::verbs_layout`] has the replaced pointers; a context that is not extended keeps its `create_qp_ex`.

use crate::descriptors::{self, Descriptor};
use crate::device;
use crate::errno::set_errno;
use crate::next;
use crate::verbs_layout::{Context, ExtendedQueuePair, IS_EXTENDED, Owned, QueuePair, VerbsContext};
use core::cell::Cell;
use core::ffi::{CStr, c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};

const LIBRARY: &CStr = c"libibverbs.so.1";

type OpenDevice = unsafe extern "C" fn(*mut c_void) -> *mut Context;
type PollCq = unsafe extern "C" fn(*mut Owned, c_int, *mut c_void) -> c_int;
type PostSend = unsafe extern "C" fn(*mut Owned, *mut c_void, *mut *mut c_void) -> c_int;
type CreateQpEx = unsafe extern "C" fn(*mut Context, *mut c_void) -> *mut QueuePair;
type ToQpEx = unsafe extern "C" fn(*mut QueuePair) -> *mut ExtendedQueuePair;
type WrComplete = unsafe extern "C" fn(*mut ExtendedQueuePair) -> c_int;

/// The driver's functions. A process has one driver for our devices, so one of each suffices.
static POLL_CQ: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static POST_SEND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static CREATE_QP_EX: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static WR_COMPLETE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Replaces a driver's function pointer by `ours` and records the original in `theirs`. Leaves a pointer alone that
/// differs from the recorded one.
fn stand_before(place: &mut *mut c_void, theirs: &AtomicPtr<c_void>, ours: *mut c_void) {
    let found = *place;
    if found.is_null() || found == ours {
        return;
    }
    let noted = theirs.compare_exchange(core::ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire);
    if noted.is_ok() || noted == Err(found) {
        *place = ours;
    }
}

/// Like libibverbs' function; requests and polls on our devices also drive them.
///
/// # Safety
/// As in libibverbs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut c_void) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let next = next::address_in(LIBRARY, &NEXT, c"ibv_open_device");
    if next.is_null() {
        set_errno(libc::ENOSYS);
        return core::ptr::null_mut();
    }
    // SAFETY: libibverbs declares the function so, and the caller promises what it asks. What it gives is null or a context that
    // nobody else knows yet.
    unsafe {
        let context = core::mem::transmute::<*mut c_void, OpenDevice>(next)(device);
        if let Some(context) = context.as_mut() {
            replace(context);
        }
        context.cast()
    }
}

/// Replaces the function pointers in a context of one of our devices.
///
/// # Safety
/// libibverbs has just made the context.
unsafe fn replace(context: &mut Context) {
    if !matches!(descriptors::get(context.cmd_fd), Descriptor::Device(_)) {
        return;
    }
    stand_before(&mut context.ops.poll_cq, &POLL_CQ, poll_cq as PollCq as *mut c_void);
    stand_before(&mut context.ops.post_send, &POST_SEND, post_send as PostSend as *mut c_void);
    if context.abi_compat.addr() != IS_EXTENDED {
        return;
    }
    // SAFETY: an extended context is the last member of a `verbs_context`, whose size tells how far it reaches.
    unsafe {
        let extended = (&raw mut *context).byte_sub(offset_of!(VerbsContext, context)).cast::<VerbsContext>();
        if (*extended).sz >= size_of::<VerbsContext>() {
            stand_before(
                &mut (*extended).create_qp_ex,
                &CREATE_QP_EX,
                create_qp_ex as CreateQpEx as *mut c_void,
            );
        }
    }
}

/// Number of posts without a poll in between after which the device is driven again. A round for each would cost more
/// than the requests.
const BATCH: u32 = 16;

thread_local! {
    /// Posts of this thread since it last polled.
    static POSTED: Cell<u32> = const { Cell::new(0) };
}

/// Drives the device after the first post, which may be the only one, and after every [`BATCH`] further ones.
fn drive_behind_post() {
    let posted = POSTED.replace(POSTED.get().wrapping_add(1));
    if posted.is_multiple_of(BATCH) {
        device::drive();
    }
}

unsafe extern "C" fn poll_cq(queue: *mut Owned, entries: c_int, completions: *mut c_void) -> c_int {
    POSTED.set(0);
    device::drive();
    // SAFETY: this function is reached through a context only after the driver's was noted; the arguments are the caller's.
    unsafe {
        core::mem::transmute::<*mut c_void, PollCq>(POLL_CQ.load(Ordering::Acquire))(
            queue,
            entries,
            completions,
        )
    }
}

unsafe extern "C" fn post_send(queue: *mut Owned, requests: *mut c_void, failed: *mut *mut c_void) -> c_int {
    // SAFETY: as in `poll_cq`.
    let posted = unsafe {
        core::mem::transmute::<*mut c_void, PostSend>(POST_SEND.load(Ordering::Acquire))(
            queue, requests, failed,
        )
    };
    drive_behind_post();
    posted
}

unsafe extern "C" fn create_qp_ex(context: *mut Context, attributes: *mut c_void) -> *mut QueuePair {
    static TO_QP_EX: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let to_qp_ex = next::address_in(LIBRARY, &TO_QP_EX, c"ibv_qp_to_qp_ex");
    // SAFETY: as in `poll_cq`. `ibv_qp_to_qp_ex` gives null for a queue pair without the functions of an extended one.
    unsafe {
        let made = core::mem::transmute::<*mut c_void, CreateQpEx>(CREATE_QP_EX.load(Ordering::Acquire))(
            context, attributes,
        );
        if !made.is_null()
            && !to_qp_ex.is_null()
            && let Some(extended) = core::mem::transmute::<*mut c_void, ToQpEx>(to_qp_ex)(made).as_mut()
        {
            stand_before(&mut extended.wr_complete, &WR_COMPLETE, wr_complete as WrComplete as *mut c_void);
        }
        made
    }
}

unsafe extern "C" fn wr_complete(queue: *mut ExtendedQueuePair) -> c_int {
    // SAFETY: as in `poll_cq`.
    let posted = unsafe {
        core::mem::transmute::<*mut c_void, WrComplete>(WR_COMPLETE.load(Ordering::Acquire))(queue)
    };
    drive_behind_post();
    posted
}
