//! Which descriptors of the program are device files. A number alone proves nothing, since there are ways to close a
//! descriptor that nobody can see: what is found here is compared with what the kernel says of the descriptor.

use bareverbs_uverbs::FileId;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

/// Descriptors that can be remembered.
const ROOM: usize = 1 << 16;
/// No device file.
const NONE: u32 = 0;
/// A device file that a parent process opened.
const INHERITED: u32 = u32::MAX;

static TABLE: [AtomicU32; ROOM] = [const { AtomicU32::new(NONE) }; ROOM];

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// Not ours.
    Other,
    /// A device file.
    Device(FileId),
    /// A device file of the parent process, which a child cannot use.
    Inherited,
}

fn slot(descriptor: c_int) -> Option<&'static AtomicU32> {
    TABLE.get(usize::try_from(descriptor).ok()?)
}

fn decode(value: u32) -> Descriptor {
    match value {
        NONE => Descriptor::Other,
        INHERITED => Descriptor::Inherited,
        value => Descriptor::Device(FileId::from_raw(value - 1)),
    }
}

/// Remembers a device file; false if there is no room for the number.
pub(crate) fn insert(descriptor: c_int, file: FileId) -> bool {
    let slot = slot(descriptor);
    if let Some(slot) = slot {
        slot.store(file.raw().wrapping_add(1), Ordering::Release);
    }
    slot.is_some()
}

/// What a descriptor is now.
pub(crate) fn get(descriptor: c_int) -> Descriptor {
    let Some(slot) = slot(descriptor) else { return Descriptor::Other };
    let found = decode(slot.load(Ordering::Acquire));
    if found != Descriptor::Other && !is_null_device(descriptor) {
        slot.store(NONE, Ordering::Release);
        return Descriptor::Other;
    }
    found
}

/// Forgets a descriptor and says what it was.
pub(crate) fn take(descriptor: c_int) -> Descriptor {
    slot(descriptor).map_or(Descriptor::Other, |slot| decode(slot.swap(NONE, Ordering::AcqRel)))
}

/// Whether another descriptor is the same file.
pub(crate) fn is_open(file: FileId) -> bool {
    TABLE.iter().any(|slot| decode(slot.load(Ordering::Acquire)) == Descriptor::Device(file))
}

/// After a fork: the child has the descriptors, but not the device.
pub(crate) fn inherit() {
    for slot in &TABLE {
        if slot.load(Ordering::Relaxed) != NONE {
            slot.store(INHERITED, Ordering::Relaxed);
        }
    }
}

/// Whether the kernel knows the descriptor as `/dev/null`, as which device files are open.
fn is_null_device(descriptor: c_int) -> bool {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills `status`, or says that it did not.
    let status = unsafe {
        if libc::fstat(descriptor, status.as_mut_ptr()) != 0 {
            return false;
        }
        status.assume_init()
    };
    status.st_mode & libc::S_IFMT == libc::S_IFCHR && status.st_rdev == libc::makedev(1, 3)
}
