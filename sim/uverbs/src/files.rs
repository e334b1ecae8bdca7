//! Open device files and their objects. An object has a handle in its file, stays alive while others use it, and is
//! destroyed with its file at the latest.

use crate::Errno;
use crate::device_index::DeviceIndex;
use crate::devx_object::{DevxObject, UserMemory};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bareverbs_prm::ids::{Cqn, Mkey, Pdn, Qpn, Srqn, UarIndex, Xrcdn};

/// Identifies an open device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub(crate) u32);

impl FileId {
    /// The file with a number from [`Self::raw`].
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The device it belongs to.
    pub const fn device(self) -> DeviceIndex {
        DeviceIndex::of_file(self.0)
    }

    /// A number for the caller's tables; never `u32::MAX`.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// A registered range of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) key: Mkey,
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// Address of the first byte in work requests.
    pub(crate) first: u64,
    pub(crate) access: u32,
}

/// The object behind a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    /// A protection domain.
    ProtectionDomain(Pdn),
    /// A doorbell page.
    Uar(UarIndex),
    /// A memory region.
    MemoryRegion(Region),
    /// A memory window.
    MemoryWindow(Mkey),
    /// A completion queue.
    CompletionQueue(Cqn),
    /// A queue pair.
    QueuePair(Qpn),
    /// A shared receive queue, of either kind.
    SharedReceiveQueue(Srqn),
    /// An address handle; the device knows nothing of it.
    AddressHandle,
    /// An XRC domain.
    XrcDomain(Xrcdn),
    /// An object of a command of the program.
    Devx(DevxObject),
    /// Memory for such objects.
    UserMemory(UserMemory),
}

/// An object and the handles of the objects that it keeps alive.
#[derive(Debug)]
struct Held {
    object: Object,
    uses: Vec<u32>,
}

/// One open file.
#[derive(Debug, Default)]
pub(crate) struct DeviceFile {
    /// Whether GET_CONTEXT was called: nothing else works before.
    pub(crate) has_context: bool,
    /// Version of completion entries that GET_CONTEXT negotiated.
    pub(crate) cqe_version: u8,
    /// The user context; zero without DEVX.
    pub(crate) uid: u16,
    objects: BTreeMap<u32, Held>,
    next: u32,
}

/// Looks up an object of one kind.
macro_rules! look_ups {
    ($($name:ident: $variant:ident -> $ty:ty;)*) => {$(
        pub(crate) fn $name(&self, handle: u32) -> Result<$ty, Errno> {
            match self.get(handle)? {
                Object::$variant(found) => Ok(found),
                _ => Err(Errno::Invalid),
            }
        }
    )*};
}

impl DeviceFile {
    look_ups! {
        protection_domain: ProtectionDomain -> Pdn;
        uar: Uar -> UarIndex;
        memory_region: MemoryRegion -> Region;
        memory_window: MemoryWindow -> Mkey;
        completion_queue: CompletionQueue -> Cqn;
        queue_pair: QueuePair -> Qpn;
        shared_receive_queue: SharedReceiveQueue -> Srqn;
        xrc_domain: XrcDomain -> Xrcdn;
        devx: Devx -> DevxObject;
        user_memory: UserMemory -> UserMemory;
    }

    /// Adds an object that uses others, and returns its handle.
    pub(crate) fn insert(&mut self, object: Object, uses: &[u32]) -> Result<u32, Errno> {
        let handle = self.next;
        self.next = self.next.checked_add(1).ok_or(Errno::NoMemory)?;
        self.objects.insert(handle, Held { object, uses: uses.to_vec() });
        Ok(handle)
    }

    /// Replaces an object with another.
    pub(crate) fn replace(&mut self, handle: u32, object: Object, uses: &[u32]) {
        self.objects.insert(handle, Held { object, uses: uses.to_vec() });
    }

    /// The object with this handle.
    pub(crate) fn get(&self, handle: u32) -> Result<Object, Errno> {
        self.objects.get(&handle).map(|entry| entry.object).ok_or(Errno::NoEntry)
    }

    /// Every object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Object> {
        self.objects.values().map(|entry| entry.object)
    }

    /// Every object with its handle.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (u32, Object)> {
        self.objects.iter().map(|(handle, entry)| (*handle, entry.object))
    }

    /// How often an object is used: a queue pair may use a completion queue twice.
    pub(crate) fn users(&self, handle: u32) -> u64 {
        let all = self.objects.values().flat_map(|entry| &entry.uses);
        all.filter(|used| **used == handle).count() as u64
    }

    /// Numbers of the queue pairs that use an object.
    pub(crate) fn queue_pairs_with(&self, handle: u32) -> Vec<u32> {
        let users = self.objects.values().filter(|entry| entry.uses.contains(&handle));
        let number =
            |entry: &Held| if let Object::QueuePair(qpn) = entry.object { Some(qpn.value()) } else { None };
        users.filter_map(number).collect()
    }

    /// The handles that an object uses.
    pub(crate) fn uses(&self, handle: u32) -> Vec<u32> {
        self.objects.get(&handle).map(|entry| entry.uses.clone()).unwrap_or_default()
    }

    /// Whether another object uses this one.
    pub(crate) fn is_used(&self, handle: u32) -> bool {
        self.objects.values().any(|entry| entry.uses.contains(&handle))
    }

    /// Removes a handle.
    pub(crate) fn remove(&mut self, handle: u32) {
        self.objects.remove(&handle);
    }

    /// Whether a doorbell page belongs to this file.
    pub(crate) fn owns_page(&self, page: UarIndex) -> bool {
        self.objects.values().any(|entry| entry.object == Object::Uar(page))
    }

    /// All objects, ordered so that users precede what they use. Doorbell pages come last, because queues of any age
    /// ring them.
    pub(crate) fn take_all(&mut self) -> Vec<Object> {
        let objects = core::mem::take(&mut self.objects).into_values().rev().map(|entry| entry.object);
        let (pages, mut others): (Vec<_>, Vec<_>) =
            objects.partition(|object| matches!(object, Object::Uar(_)));
        others.extend(pages);
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_begin_at_zero_and_are_never_given_twice() {
        let mut file = DeviceFile::default();
        let object = Object::Uar(UarIndex::from_low_bits(16));
        assert_eq!(file.insert(object, &[]), Ok(0));
        assert_eq!(file.insert(object, &[0]), Ok(1));
        assert!(file.is_used(0));
        file.remove(1);
        assert!(!file.is_used(0));
        assert_eq!((file.get(1), file.insert(object, &[])), (Err(Errno::NoEntry), Ok(2)));
    }
}
