//! The memory of an end: one region for all queue pairs, or with `--mr_per_qp` one for each. Its users see
//! one range: first the slots that queue pairs send from, then those that they receive into, then memory that
//! belongs to no queue pair.

use crate::perf::plan::TestPlan;
use anyhow::{Result, anyhow};
use bareverbs_core::hal::{Hal, HalError};
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion, MemorySlice, RegisterError};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::{Device, RangeError};
use bareverbs_prm::ids::Mkey;

/// The memory. A range must not cross from one slot into the next.
pub(crate) struct Buffer<'d, H: Hal> {
    regions: Vec<MemoryRegion<&'d Device<H>>>,
    room: usize,
}

impl<'d, H: Hal> Buffer<'d, H> {
    /// Memory for `count` queue pairs, and `more` bytes.
    pub(super) fn allocate(
        domain: &ProtectionDomain<&'d Device<H>>,
        plan: &TestPlan,
        queue_pairs: usize,
        more: usize,
    ) -> Result<Self> {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_ATOMIC;
        let room = plan.room();
        let (count, rooms) = if plan.run.region_each { (queue_pairs, 2) } else { (1, 2 * queue_pairs) };
        let allocate = |_| {
            let bytes = rooms * room + more;
            MemoryRegion::allocate(domain, bytes, access).map_err(|error| match error {
                RegisterError::Memory(HalError::OutOfDmaMemory { .. }) => {
                    anyhow!(
                        "the device has no memory for a buffer of {bytes} bytes: choose a smaller -s or -q"
                    )
                }
                error => anyhow!(error).context(format!("a buffer of {bytes} bytes")),
            })
        };
        Ok(Self { regions: (0..count).map(allocate).collect::<Result<_>>()?, room })
    }

    /// The region of an offset, and the offset within it.
    fn place(&self, at: usize) -> (&MemoryRegion<&'d Device<H>>, usize) {
        let count = self.regions.len();
        let (room, within) = (at / self.room, at % self.room);
        let (first, rest) = (&self.regions[0], at.saturating_sub(2 * count * self.room));
        match self.regions.get(room % count) {
            Some(region) if count > 1 && room < 2 * count => (region, room / count * self.room + within),
            _ if count > 1 => (first, 2 * self.room + rest),
            _ => (first, at),
        }
    }

    /// Its address, and the key with which a peer accesses it.
    pub(super) fn remote(&self, at: usize) -> (u64, Mkey) {
        let (region, offset) = self.place(at);
        (region.address() + offset as u64, region.rkey())
    }

    pub(crate) fn slice(&self, at: usize, length: usize) -> Result<MemorySlice, RangeError> {
        let (region, offset) = self.place(at);
        region.slice(offset, length)
    }

    pub(crate) fn copy_in(&self, at: usize, bytes: &[u8]) -> Result<(), RangeError> {
        let (region, offset) = self.place(at);
        region.copy_in(offset, bytes)
    }

    pub(crate) fn copy_out(&self, at: usize, buffer: &mut [u8]) -> Result<(), RangeError> {
        let (region, offset) = self.place(at);
        region.copy_out(offset, buffer)
    }

    pub(crate) fn fill(&self, at: usize, length: usize, byte: u8) -> Result<(), RangeError> {
        let (region, offset) = self.place(at);
        region.fill(offset, length, byte)
    }

    pub(crate) fn load_u64(&self, at: usize) -> Result<u64, RangeError> {
        let (region, offset) = self.place(at);
        region.load_u64(offset)
    }
}
