//! The program's descriptors for device files, event files, connection management files and the sockets answered here.
//! A number alone proves nothing, because a descriptor can be closed without this library noticing. So a device file is
//! checked against what the kernel reports.

use bareverbs_uverbs::{ConnectionFileId, EventFileId, FileId};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::process;

/// Most descriptors that can be tracked.
const ROOM: usize = 1 << 16;
/// Not one of ours.
const NONE: u64 = 0;
/// A device file that a parent process opened.
const INHERITED: u64 = u64::MAX;
/// Type tags in the upper half of a value; the lower half is a number.
const DEVICE: u64 = 1 << 32;
const EVENTS: u64 = 2 << 32;
const NETLINK: u64 = 3 << 32;
const CONNECTIONS: u64 = 4 << 32;
/// A connection management file opened by a parent process; no file has this number.
const INHERITED_CONNECTIONS: u64 = CONNECTIONS | u32::MAX as u64;

/// Number of the process whose descriptors these are; 0 before the first is remembered.
static OWNER: AtomicU32 = AtomicU32::new(0);
static TABLE: [AtomicU64; ROOM] = [const { AtomicU64::new(NONE) }; ROOM];

/// What a descriptor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// Not one of ours.
    Other,
    /// A device file.
    Device(FileId),
    /// An event file.
    Events(EventFileId),
    /// A socket for device queries.
    Netlink,
    /// A connection management file.
    Connections(ConnectionFileId),
    /// A device file of the parent process, unusable in a child.
    Inherited,
}

impl Descriptor {
    fn encode(self) -> u64 {
        match self {
            Self::Other => NONE,
            Self::Device(file) => DEVICE | u64::from(file.raw()),
            Self::Events(file) => EVENTS | u64::from(file.raw()),
            Self::Netlink => NETLINK,
            Self::Connections(file) => CONNECTIONS | u64::from(file.raw()),
            Self::Inherited => INHERITED,
        }
    }

    fn decode(value: u64) -> Self {
        match value >> 32 << 32 {
            DEVICE => Self::Device(FileId::from_raw(value as u32)),
            EVENTS => Self::Events(EventFileId::from_raw(value as u32)),
            NETLINK => Self::Netlink,
            CONNECTIONS => Self::Connections(ConnectionFileId::from_raw(value as u32)),
            NONE => Self::Other,
            _ => Self::Inherited,
        }
    }
}

fn slot(descriptor: c_int) -> Option<&'static AtomicU64> {
    TABLE.get(usize::try_from(descriptor).ok()?)
}

/// Whether this process owns these descriptors. A child of `vfork` has the memory of its parent, but its own
/// descriptors: what it closes before it becomes another program stays open in its parent.
fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == process::id()
}

/// Records what a descriptor refers to; false if the number is too high. Forks must be watched before this: see [`inherit`].
pub(crate) fn insert(descriptor: c_int, what: Descriptor) -> bool {
    if OWNER.load(Ordering::Relaxed) == 0 {
        OWNER.store(process::id(), Ordering::Relaxed);
    }
    if !is_owner() {
        return true;
    }
    let slot = slot(descriptor);
    if let Some(slot) = slot {
        slot.store(what.encode(), Ordering::Release);
    }
    slot.is_some()
}

/// Whether a descriptor is recorded as a connection management file.
pub(crate) fn is_connections(descriptor: c_int) -> bool {
    let value = slot(descriptor).map_or(NONE, |slot| slot.load(Ordering::Acquire));
    matches!(Descriptor::decode(value), Descriptor::Connections(_))
}

/// What a descriptor refers to now.
pub(crate) fn get(descriptor: c_int) -> Descriptor {
    let Some(slot) = slot(descriptor) else { return Descriptor::Other };
    let found = Descriptor::decode(slot.load(Ordering::Acquire));
    if matches!(found, Descriptor::Device(_) | Descriptor::Inherited) && !is_null_device(descriptor) {
        slot.store(NONE, Ordering::Release);
        return Descriptor::Other;
    }
    found
}

/// Removes a descriptor and returns what it referred to.
pub(crate) fn take(descriptor: c_int) -> Descriptor {
    let Some(slot) = slot(descriptor) else { return Descriptor::Other };
    // Most descriptors are not ours; this check costs them no system call.
    if slot.load(Ordering::Relaxed) == NONE || !is_owner() {
        return Descriptor::Other;
    }
    Descriptor::decode(slot.swap(NONE, Ordering::AcqRel))
}

/// Whether another descriptor refers to the same file.
pub(crate) fn is_open(what: Descriptor) -> bool {
    TABLE.iter().any(|slot| slot.load(Ordering::Acquire) == what.encode())
}

/// After a fork: the child has the descriptors, but not the device.
pub(crate) fn inherit() {
    OWNER.store(process::id(), Ordering::Relaxed);
    for slot in &TABLE {
        match Descriptor::decode(slot.load(Ordering::Relaxed)) {
            Descriptor::Device(_) => slot.store(INHERITED, Ordering::Relaxed),
            Descriptor::Events(_) => slot.store(NONE, Ordering::Relaxed),
            Descriptor::Connections(_) => slot.store(INHERITED_CONNECTIONS, Ordering::Relaxed),
            Descriptor::Other | Descriptor::Netlink | Descriptor::Inherited => {}
        }
    }
}

/// Whether the kernel reports the descriptor as `/dev/null`, which stands for a device file.
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
