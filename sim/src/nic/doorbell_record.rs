//! Doorbell records: the counters in memory by which software says how far it has posted (PRM, doorbell
//! records).

use super::memory::{DmaFault, HostMemory};
use super::user_memory::UserMemory;
use bareverbs_prm::doorbell::QueuePairRecord;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Bytes of each of the two counters of a record.
const HALF: usize = 4;
/// Reserved bytes before the counter in each half.
const RESERVED: usize = 2;
/// Offsets of the two halves.
const RECEIVE_HALF: usize = 0;
const SEND_HALF: usize = 4;

/// The contents of one half of a work queue's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posted {
    /// Modulo 2^16.
    pub(crate) counter: u16,
    /// Whether the bits above the counter are zero.
    pub(crate) reserved_clear: bool,
}

/// A doorbell record: 8 bytes that never cross a page.
#[derive(Debug, Clone)]
pub(crate) struct DoorbellRecord {
    /// Its I/O virtual address.
    pub(crate) address: u64,
    /// The user memory object that contains it.
    _held: Option<Arc<UserMemory>>,
}

impl DoorbellRecord {
    /// The record at an address.
    pub(crate) const fn at(address: u64) -> Self {
        Self { address, _held: None }
    }

    /// The record at an address within a user memory object.
    pub(crate) const fn within(object: Arc<UserMemory>, address: u64) -> Self {
        Self { address, _held: Some(object) }
    }

    /// How many sends are posted.
    pub(crate) fn read_sends<M: HostMemory>(&self, memory: &mut M) -> Result<Posted, DmaFault> {
        let (record, reserved_clear) = self.read_half(memory, SEND_HALF)?;
        Ok(Posted { counter: record.send_counter(), reserved_clear })
    }

    /// How many receives are posted.
    pub(crate) fn read_receives<M: HostMemory + ?Sized>(&self, memory: &mut M) -> Result<Posted, DmaFault> {
        let (record, reserved_clear) = self.read_half(memory, RECEIVE_HALF)?;
        Ok(Posted { counter: record.receive_counter(), reserved_clear })
    }

    /// Reads only one half, since software may write the other at the same time. Also returns whether the
    /// bits above its counter are zero.
    #[inline]
    fn read_half<M: HostMemory + ?Sized>(
        &self,
        memory: &mut M,
        at: usize,
    ) -> Result<(QueuePairRecord, bool), DmaFault> {
        let mut record = QueuePairRecord::new();
        memory.read(self.address.wrapping_add(at as u64), &mut record.as_mut_bytes()[at..at + HALF])?;
        let reserved_clear = record.as_bytes()[at..at + RESERVED] == [0; RESERVED];
        Ok((record, reserved_clear))
    }
}
