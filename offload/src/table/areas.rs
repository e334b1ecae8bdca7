//! Where the lines of a table begin, and which overflow lines are free.

use super::chain::Chain;
use super::error::MemoryFault;
use super::memory::TableMemory;
use crate::kernels::kv_layout::{LINE_SIZE, MAX_BUCKETS, bucket_of, chain_of};

/// Lines that were allocated together: one for each bucket, then overflow lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Area {
    /// Offset of the first line.
    pub(super) lines: u64,
    pub(super) buckets: u32,
    pub(super) overflow_lines: u32,
}

/// A table that is moving to other lines.
#[derive(Debug)]
pub(super) struct Growth {
    pub(super) area: Area,
    /// The first bucket whose chain has not moved.
    pub(super) next: u32,
    /// Overflow lines of chains that have not moved: this many are reserved for them, and they need no more.
    pub(super) unmoved: u32,
}

impl Area {
    pub(super) fn bucket_of(&self, hash: u64) -> u32 {
        bucket_of(hash, self.buckets)
    }

    pub(super) fn chain(&self, bucket: u32) -> Chain {
        Chain { head: self.lines + line_bytes(bucket), number: chain_of(bucket, self.buckets) }
    }

    pub(super) fn overflow(&self) -> u64 {
        self.lines + line_bytes(self.buckets)
    }

    /// Offset after the last line.
    pub(super) fn end(&self) -> u64 {
        self.overflow() + line_bytes(self.overflow_lines)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.end() - self.lines
    }

    /// An area with twice as much of everything, without its place; `None` if that is too much.
    pub(super) fn doubled(&self) -> Option<Self> {
        let buckets = self.buckets.checked_mul(2).filter(|buckets| *buckets <= MAX_BUCKETS)?;
        Some(Self { lines: 0, buckets, overflow_lines: self.overflow_lines.checked_mul(2)? })
    }
}

fn line_bytes(lines: u32) -> u64 {
    u64::from(lines) * u64::from(LINE_SIZE)
}

/// Unused overflow lines: a list linked through the lines themselves, and a range that was never used.
#[derive(Debug, Default)]
pub(super) struct FreeLines {
    head: u64,
    listed: u32,
    fresh: u64,
    fresh_left: u32,
}

impl FreeLines {
    pub(super) const fn count(&self) -> u32 {
        self.listed + self.fresh_left
    }

    pub(super) fn take(&mut self, memory: &impl TableMemory) -> Result<Option<u64>, MemoryFault> {
        if self.listed > 0 {
            let (line, mut next) = (self.head, [0; 8]);
            memory.read(line, &mut next)?;
            self.head = u64::from_be_bytes(next);
            self.listed -= 1;
            return Ok(Some(line));
        }
        if self.fresh_left == 0 {
            return Ok(None);
        }
        let line = self.fresh;
        self.fresh += u64::from(LINE_SIZE);
        self.fresh_left -= 1;
        Ok(Some(line))
    }

    /// Frees a line. Its checksum is wrong from now on, so no reader accepts it.
    pub(super) fn give(&mut self, memory: &mut impl TableMemory, line: u64) -> Result<(), MemoryFault> {
        memory.write(line, &self.head.to_be_bytes())?;
        self.head = line;
        self.listed += 1;
        Ok(())
    }

    /// Adds the overflow lines of an area, none of which was used.
    pub(super) fn add(&mut self, memory: &mut impl TableMemory, area: &Area) -> Result<(), MemoryFault> {
        while self.fresh_left > 0 {
            let line = self.fresh;
            self.fresh += u64::from(LINE_SIZE);
            self.fresh_left -= 1;
            self.give(memory, line)?;
        }
        (self.fresh, self.fresh_left) = (area.overflow(), area.overflow_lines);
        Ok(())
    }
}
