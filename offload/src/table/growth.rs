//! Growth: moves a table, chain by chain, to twice as many lines while readers read it.
//!
//! The chain of a bucket becomes two, written where nothing refers to them yet; then one word of its first line says
//! that it moved. Readers in the old chain finish there, since nobody changes it any more. The first line of a moved
//! chain keeps its mark for good, so old descriptors stay valid; the other lines are freed when their readers have
//! finished.

use super::areas::{Area, Growth};
use super::chain::{Chain, LineAt};
use super::retired::Replaced;
use super::{TableError, TableMemory, TableWriter};
use crate::kernels::kv_layout::{Line, LineSlot, SLOTS};
use bareverbs_prm::time::Time;

/// Chains that a change moves while the table grows.
const MOVES: usize = 2;
/// Keys for each bucket from which a table grows: two thirds of what its first lines hold.
const KEYS_PER_BUCKET: u64 = 2;
/// Offset of the word that names the next line.
const NEXT_WORD: u64 = 48;

/// A chain that is being written.
struct NewChain {
    chain: Chain,
    at: u64,
    line: Line,
    filled: usize,
}

impl NewChain {
    fn begin(chain: Chain) -> Self {
        Self { chain, at: chain.head, line: Line::default(), filled: 0 }
    }

    fn write(&self, memory: &mut impl TableMemory) -> Result<(), TableError> {
        LineAt { offset: self.at, chain: self.chain.number, line: self.line }.write_new(memory)
    }
}

impl<M: TableMemory> TableWriter<M> {
    /// Starts growing to twice as many buckets, regardless of the policy. Returns false if the table is growing
    /// already.
    ///
    /// # Errors
    /// [`TableError::HeapFull`]: there is no room for the lines.
    pub fn grow(&mut self) -> Result<bool, TableError> {
        let Some(doubled) = self.descriptor.area().doubled().filter(|_| self.growth.is_none()) else {
            return Ok(false);
        };
        let full = self.heap_full(doubled.bytes());
        let lines = self.heap.take_lines(doubled.bytes()).ok_or(full)?;
        let area = Area { lines, ..doubled };
        self.add_overflow_lines(&area)?;
        self.growth = Some(Growth { area, next: 0, unmoved: self.linked });
        Ok(true)
    }

    /// Moves the next chain. Returns whether any is left. Changes do this by themselves; a caller with nothing else to
    /// do may do it at once.
    ///
    /// # Errors
    /// [`TableError::ReadersPending`]: too many replaced objects await their readers. Nothing was moved.
    pub fn move_chain(&mut self, now: Time) -> Result<bool, TableError> {
        let Some(Growth { area: into, next: bucket, .. }) = self.growth else { return Ok(false) };
        self.reclaim(now)?;
        self.retired.check_room(1, &self.readers)?;
        let from = self.descriptor.area();
        let chain = from.chain(bucket);
        let head = chain.read(&self.memory, chain.head)?;
        let children = [into.chain(2 * bucket), into.chain(2 * bucket + 1)];
        let mut new = children.map(NewChain::begin);
        let mut at = head;
        let (mut old_lines, before) = (0, self.free_lines.count());
        loop {
            for slot in at.line.slots.iter().filter(|slot| !slot.object.is_none()) {
                let child = into.bucket_of(slot.fingerprint) - 2 * bucket;
                let child = new.get_mut(child as usize).ok_or(TableError::Corrupt { line: at.offset })?;
                self.add_to(child, *slot)?;
            }
            if at.line.next == 0 {
                break;
            }
            if old_lines == self.linked {
                return Err(TableError::Corrupt { line: at.offset });
            }
            old_lines += 1;
            at = chain.read(&self.memory, at.line.next)?;
        }
        for child in &new {
            child.write(&mut self.memory)?;
        }
        head.change(&mut self.memory, head.line.with_move(into.lines))?;
        self.linked = self.linked + (before - self.free_lines.count()) - old_lines;
        if old_lines > 0 {
            self.retired.push(Replaced::Lines(head.line.next), now, &mut self.readers)?;
        }
        self.moved(bucket, old_lines)
    }

    fn moved(&mut self, bucket: u32, old_lines: u32) -> Result<bool, TableError> {
        let left = self.descriptor.buckets - bucket - 1;
        match &mut self.growth {
            Some(growth) if left > 0 => {
                growth.next = bucket + 1;
                growth.unmoved -= old_lines;
                Ok(true)
            }
            Some(growth) => {
                self.descriptor = self.descriptor.grown_to(growth.area);
                self.growth = None;
                self.publish_newest()?;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    fn add_to(&mut self, new: &mut NewChain, slot: LineSlot) -> Result<(), TableError> {
        if new.filled == SLOTS {
            // The lines reserved for unmoved chains suffice: two chains need no more lines than the one they
            // replace.
            let full = TableError::LinesFull { limit: self.overflow_lines };
            let line = self.free_lines.take(&self.memory)?.ok_or(full)?;
            new.line.next = line;
            new.write(&mut self.memory)?;
            (new.at, new.line, new.filled) = (line, Line::default(), 0);
        }
        new.line.slots[new.filled] = slot;
        new.filled += 1;
        Ok(())
    }

    /// The chain of a hash, where it is now.
    pub(super) fn chain(&self, hash: u64) -> Chain {
        let area = self.descriptor.area();
        match &self.growth {
            Some(growth) if area.bucket_of(hash) < growth.next => {
                growth.area.chain(growth.area.bucket_of(hash))
            }
            _ => area.chain(area.bucket_of(hash)),
        }
    }

    /// Whether the chain of a hash has not yet moved to the new lines.
    pub(super) fn stays(&self, hash: u64) -> bool {
        self.growth.as_ref().is_some_and(|growth| self.descriptor.area().bucket_of(hash) >= growth.next)
    }

    /// A line for the chain of this hash; `None` if all are taken or reserved for chains that have yet to
    /// move.
    pub(super) fn take_line(&mut self, hash: u64) -> Result<Option<u64>, TableError> {
        let kept = self.growth.as_ref().map_or(0, |growth| growth.unmoved);
        if self.free_lines.count() <= kept + u32::from(self.stays(hash)) {
            return Ok(None);
        }
        Ok(self.free_lines.take(&self.memory)?)
    }

    /// Frees lines by growing one step further, or reports that there are none.
    pub(super) fn make_lines(&mut self, now: Time) -> Result<(), TableError> {
        if self.growth.is_none() && !(self.may_grow() && self.grow()?) {
            return Err(TableError::LinesFull { limit: self.overflow_lines });
        }
        self.move_chain(now).map(drop)
    }

    fn may_grow(&self) -> bool {
        self.descriptor.area().doubled().is_some_and(|area| area.buckets <= self.policy.max_buckets)
    }

    /// Starts to grow when the table is full enough. A table without room to grow stays as it is until a key
    /// does not fit.
    pub(super) fn grow_if_full(&mut self) -> Result<(), TableError> {
        let full = self.entries > KEYS_PER_BUCKET * u64::from(self.descriptor.buckets);
        if !full || self.growth.is_some() || !self.may_grow() {
            return Ok(());
        }
        match self.grow() {
            Err(TableError::HeapFull { .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    pub(super) fn move_some(&mut self, now: Time) -> Result<(), TableError> {
        for _ in 0..MOVES {
            match self.move_chain(now) {
                Ok(true) => {}
                // The change may still succeed; if not, it reports that itself.
                Ok(false) | Err(TableError::ReadersPending { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Frees a line and all that follow it.
    pub(super) fn free_chain(&mut self, first: u64) -> Result<(), TableError> {
        let mut line = first;
        for _ in 0..self.overflow_lines {
            let mut next = [0; 8];
            self.memory.read(line + NEXT_WORD, &mut next)?;
            self.free_lines.give(&mut self.memory, line)?;
            line = u64::from_be_bytes(next);
            if line == 0 {
                return Ok(());
            }
        }
        Err(TableError::Corrupt { line: first })
    }
}
