//! Open device files and the objects that belong to them. An object has a handle in its file, users that keep it alive, and
//! dies with its file at the latest.

use crate::Errno;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bareverbs_prm::ids::{Pdn, UarIndex};

/// An open device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub(crate) u32);

impl FileId {
    /// The file of a number that [`Self::raw`] gave.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// A number for tables of the caller's; never `u32::MAX`.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// What a handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    /// A protection domain.
    ProtectionDomain(Pdn),
    /// A page of doorbells.
    Uar(UarIndex),
}

/// One open file.
#[derive(Debug, Default)]
pub(crate) struct DeviceFile {
    /// Whether GET_CONTEXT was called: nothing else works before.
    pub(crate) has_context: bool,
    objects: BTreeMap<u32, Object>,
    next: u32,
}

impl DeviceFile {
    /// Keeps an object and gives its handle.
    pub(crate) fn insert(&mut self, object: Object) -> Result<u32, Errno> {
        let handle = self.next;
        self.next = self.next.checked_add(1).ok_or(Errno::NoMemory)?;
        self.objects.insert(handle, object);
        Ok(handle)
    }

    /// The object of a handle.
    pub(crate) fn get(&self, handle: u32) -> Result<Object, Errno> {
        self.objects.get(&handle).copied().ok_or(Errno::NoEntry)
    }

    /// Forgets a handle.
    pub(crate) fn remove(&mut self, handle: u32) {
        self.objects.remove(&handle);
    }

    /// Whether a doorbell page belongs to this file.
    pub(crate) fn owns_page(&self, page: UarIndex) -> bool {
        self.objects.values().any(|object| *object == Object::Uar(page))
    }

    /// Every object, those made last first, so that users go before what they use.
    pub(crate) fn take_all(&mut self) -> Vec<Object> {
        core::mem::take(&mut self.objects).into_values().rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_begin_at_zero_and_are_never_given_twice() {
        let mut file = DeviceFile::default();
        let object = Object::Uar(UarIndex::from_low_bits(16));
        assert_eq!(file.insert(object), Ok(0));
        assert_eq!(file.insert(object), Ok(1));
        file.remove(1);
        assert_eq!((file.get(1), file.insert(object)), (Err(Errno::NoEntry), Ok(2)));
    }
}
