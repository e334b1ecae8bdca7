//! Memory that records each store of its writer, for tests that stop the writer after any of them.

use super::writer::{Hashed, Precondition};
use super::{MemoryFault, TableMemory, TableWriter};
use bareverbs_prm::time::Time;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;

/// One store of at most 8 bytes within an aligned word.
pub(super) type Store = (usize, Vec<u8>);

/// The memory.
#[derive(Clone)]
pub(super) struct Journal {
    pub(super) bytes: Vec<u8>,
    pub(super) stores: Rc<RefCell<Vec<Store>>>,
}

impl Journal {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, stores: Rc::default() }
    }

    /// The stores since the last call.
    pub(super) fn take_stores(&self) -> Vec<Store> {
        core::mem::take(&mut self.stores.borrow_mut())
    }
}

impl TableMemory for Journal {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        let fault = MemoryFault { offset, length: buffer.len() };
        let bytes = usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(fault)?);
        Ok(())
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.bytes.as_mut_slice().write(offset, bytes)?;
        let (mut at, mut rest) = (offset as usize, bytes);
        while !rest.is_empty() {
            let (store, more) = rest.split_at(rest.len().min(8 - at % 8));
            self.stores.borrow_mut().push((at, store.to_vec()));
            at += store.len();
            rest = more;
        }
        Ok(())
    }
}

/// Applies stores to a copy of the memory.
pub(super) fn apply<'s>(memory: &mut [u8], stores: impl IntoIterator<Item = &'s Store>) {
    for (to, store) in stores {
        memory[*to..][..store.len()].copy_from_slice(store);
    }
}

/// Changes under a hash that the test chooses, so that it can produce collisions.
impl<M: TableMemory> TableWriter<M> {
    pub(super) fn insert_hashed(
        &mut self,
        now: Time,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<u64, super::TableError> {
        self.put(now, &Hashed { hash, key, value }, Precondition::Absent)
    }

    pub(super) fn update_hashed(
        &mut self,
        now: Time,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<u64, super::TableError> {
        self.put(now, &Hashed { hash, key, value }, Precondition::Present)
    }

    pub(super) fn remove_hashed(
        &mut self,
        now: Time,
        hash: u64,
        key: &[u8],
    ) -> Result<(), super::TableError> {
        self.delete_hashed(now, &Hashed { hash, key, value: &[] })
    }
}
