//! Tests of the modules that can be tested alone. The library itself cannot be linked to a test, because it
//! would replace functions of the C library there.

#[path = "../src/errno.rs"]
#[cfg(target_arch = "x86_64")]
#[expect(dead_code, reason = "the functions of the C library use the rest")]
mod errno;
#[path = "../src/guarded.rs"]
#[cfg(target_arch = "x86_64")]
mod guarded;
#[path = "../src/memory.rs"]
mod memory;
#[path = "../src/next.rs"]
#[cfg(target_arch = "x86_64")]
#[expect(dead_code, reason = "the functions of libibverbs use the rest")]
mod next;
#[path = "../src/verbs_layout.rs"]
#[expect(dead_code, reason = "the members are for the functions that replace others")]
mod verbs_layout;

/// Structure, member, offset and width, as `tests/vectors/verbs/layout.csv` has them. Offsets of a `verbs_context` count backwards from
/// the `ibv_context` at its end.
fn layout_table() -> String {
    use core::mem::offset_of;
    use verbs_layout::{Context, ExtendedQueuePair, QueuePair, VerbsContext};
    let end = offset_of!(VerbsContext, context);
    let rows = [
        ("ibv_context", "(sizeof)", 0, size_of::<Context>()),
        ("ibv_context", "ops.poll_cq", offset_of!(Context, ops.poll_cq), 8),
        ("ibv_context", "ops.post_send", offset_of!(Context, ops.post_send), 8),
        ("ibv_context", "cmd_fd", offset_of!(Context, cmd_fd), 4),
        ("ibv_context", "abi_compat", offset_of!(Context, abi_compat), 8),
        ("verbs_context", "create_qp_ex", end - offset_of!(VerbsContext, create_qp_ex), 8),
        ("verbs_context", "sz", end - offset_of!(VerbsContext, sz), 8),
        ("ibv_qp", "(sizeof)", 0, size_of::<QueuePair>()),
        ("ibv_qp", "context", offset_of!(QueuePair, owned.context), 8),
        ("ibv_qp_ex", "wr_complete", offset_of!(ExtendedQueuePair, wr_complete), 8),
    ];
    let line = |(structure, member, offset, width)| format!("{structure},{member},{offset},{width}\n");
    rows.map(line).concat()
}

#[test]
fn the_structures_of_libibverbs_are_what_its_header_says() {
    let expected = include_str!("../../../tests/vectors/verbs/layout.csv");
    assert_eq!(expected, format!("structure,member,byte_offset,byte_width\n{}", layout_table()));
}

#[test]
fn ranges_are_looked_up_in_the_kernels_table() {
    let maps = "1000-3000 r--p 0 00:00 0 /x\n3000-4000 rw-p 0 00:00 0\n5000-6000 rw-p 0 00:00 0\n6000-7000 ---p 0 00:00 0\n";
    let covers = |address, end, write| memory::covers(maps, address, end, write);
    assert!(covers(0x1000, 0x4000, false) && covers(0x3fff, 0x4000, true));
    assert!(!covers(0x2fff, 0x4000, true), "not writable");
    assert!(!covers(0x3000, 0x5001, true), "a gap");
    assert!(!covers(0x5000, 0x6001, false), "not readable");
    assert!(!covers(0xfff, 0x1001, false) && !covers(0x8000, 0x8001, false));
}

#[test]
fn a_wrong_address_is_an_error() {
    let mut byte = 0_u8;
    // SAFETY: `byte` is one byte.
    let copied = unsafe { memory::copy(memory::Way::FromProgram, 16, &raw mut byte, 1) };
    assert!(copied.is_err());
    let is_mapped = |address, length| memory::is_mapped(address, length, true).unwrap();
    let own = (&raw const byte).addr() as u64;
    assert!(!is_mapped(16, 1) && is_mapped(own, 1) && !is_mapped(own, u64::MAX));
}

/// A page that nobody may access.
#[cfg(target_arch = "x86_64")]
fn forbidden_page() -> *mut u8 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: the kernel chooses a place where nothing is.
    let page = unsafe { mmap_anonymous(core::ptr::null_mut(), 8192, ProtFlags::empty(), MapFlags::PRIVATE) };
    page.unwrap().cast()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_guarded_copy_survives_a_wrong_address_and_the_program_keeps_its_handlers() {
    static SEEN: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
    extern "C" fn note(_: core::ffi::c_int) {
        SEEN.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
    assert!(guarded::guard() && guarded::guard());
    let handler = note as extern "C" fn(core::ffi::c_int) as usize;
    // SAFETY: a handler for a signal.
    unsafe { libc::signal(libc::SIGSEGV, handler) };
    let page = forbidden_page();
    for length in [0, 1, 3, 4, 5, 8, 9, 64, 4096] {
        let from: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_add(1)).collect();
        let mut to = vec![0_u8; length];
        // SAFETY: both sides have `length` bytes, or are a page that faults.
        unsafe {
            assert!(guarded::copy(to.as_mut_ptr(), from.as_ptr(), length));
            assert_eq!(to, from);
            assert_eq!(guarded::copy(page, from.as_ptr(), length), length == 0);
            assert_eq!(guarded::copy(to.as_mut_ptr(), page, length), length == 0);
        }
    }
    assert_eq!(SEEN.load(core::sync::atomic::Ordering::Relaxed), 0, "the handler saw a copy's fault");
    // SAFETY: raises a signal for which there is a handler, and puts back what was there.
    unsafe {
        libc::raise(libc::SIGSEGV);
        assert_eq!(libc::signal(libc::SIGSEGV, libc::SIG_DFL), handler);
    }
    assert_eq!(SEEN.load(core::sync::atomic::Ordering::Relaxed), 1);
}
