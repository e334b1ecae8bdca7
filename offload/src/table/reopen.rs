//! Opens a table whose writer ended at any point of a change.
//!
//! Only the lines say what a table contains and how far it has grown: the first line of a moved chain names its new
//! place. So nothing can contradict them. Whatever no line leads to is free.

use super::areas::{Area, Growth};
use super::chain::Chain;
use super::heap::{Heap, footprint};
use super::{
    DESCRIPTOR_SIZE, HEADER_SIZE, TableConfig, TableDescriptor, TableError, TableMemory, TablePolicy,
    TableWriter,
};
use crate::kernels::kv_layout::{LINE_SIZE, ObjectRef, UNIT};
use heapless::Vec;

/// How often a table can have doubled.
const GENERATIONS: usize = 31;

/// Words of `marks` that [`TableWriter::open`] needs for a table of this length in bytes: one bit per 16 bytes.
pub const fn marks_for(length: u64) -> usize {
    length.div_ceil(UNIT as u64).div_ceil(64) as usize
}

/// A bit for each [`UNIT`] in use.
struct Marks<'m>(&'m mut [u64]);

impl Marks<'_> {
    /// Marks bytes as in use; returns whether none of them was marked before.
    fn set(&mut self, begin: u64, length: u64) -> bool {
        let mut fresh = true;
        for unit in begin / u64::from(UNIT)..(begin + length).div_ceil(UNIT.into()) {
            let Some(word) = self.0.get_mut((unit / 64) as usize) else { return false };
            let bit = 1 << (unit % 64);
            fresh &= *word & bit == 0;
            *word |= bit;
        }
        fresh
    }

    fn is_set(&self, offset: u64) -> bool {
        let unit = offset / u64::from(UNIT);
        self.0.get((unit / 64) as usize).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }
}

/// How many chains of an area have moved.
struct Moved {
    chains: u32,
    to: u64,
}

impl<M: TableMemory> TableWriter<M> {
    /// Continues with a table whose writer ended or died. Each key has its value from before or after the change that
    /// the writer was making. `marks` is scratch space of [`marks_for`] words. Readers must be attached again; those
    /// that read while the table is opened may have to read again.
    ///
    /// # Errors
    /// The memory holds no table, or lines that no writer wrote.
    ///
    /// ```
    /// use bareverbs_offload::table::{TableConfig, TablePolicy, TableWriter, marks_for};
    /// use bareverbs_prm::time::Time;
    ///
    /// let mut memory = vec![0; 1 << 16];
    /// let policy = TablePolicy { max_buckets: 1024, ..TablePolicy::default() };
    /// let config = TableConfig { buckets: 64, overflow_lines: 16, seed: [3; 16], policy };
    /// let mut table = TableWriter::create(&mut memory[..], &config)?;
    /// let version = table.insert(Time::ZERO, b"key", b"value")?;
    /// drop(table);
    ///
    /// let mut marks = vec![0; marks_for(1 << 16)];
    /// let table = TableWriter::open(&mut memory[..], policy, &mut marks)?;
    /// let mut value = [0; 5];
    /// assert_eq!(table.get(b"key", &mut value)?.map(|found| found.version), Some(version));
    /// assert_eq!(&value, b"value");
    /// # Ok::<(), bareverbs_offload::table::TableError>(())
    /// ```
    pub fn open(memory: M, policy: TablePolicy, marks: &mut [u64]) -> Result<Self, TableError> {
        let descriptor = read_descriptor(&memory)?;
        let needed = marks_for(descriptor.length);
        if marks.len() < needed {
            return Err(TableError::TooFewMarks { given: marks.len(), needed });
        }
        marks.fill(0);
        let mut marks = Marks(marks);
        let heap = Heap::new(descriptor.heap, descriptor.length);
        let mut writer = Self::around(memory, descriptor, heap, policy);
        marks.set(0, HEADER_SIZE as u64);
        let areas = writer.find_areas(&mut marks)?;
        let mut overflow = Overflow(areas);
        writer.take_stock(&mut marks, &mut overflow)?;
        writer.free_the_rest(&mut marks, &overflow)?;
        writer.publish_newest()?;
        Ok(writer)
    }

    /// Follows the growth of the table from its first lines on, and restores the descriptor and growth of the
    /// writer that ended.
    fn find_areas(&mut self, marks: &mut Marks<'_>) -> Result<Vec<Area, GENERATIONS>, TableError> {
        let mut areas = Vec::new();
        loop {
            let area = self.descriptor.area();
            let corrupt = TableError::Corrupt { line: area.lines };
            // The new lines and those of the heap must not overlap.
            let fits =
                area.end() <= self.descriptor.length && marks.set(area.lines, area.overflow() - area.lines);
            if !fits || areas.push(area).is_err() {
                return Err(corrupt);
            }
            let moved = self.count_moved(&area)?;
            if moved.chains == 0 {
                return Ok(areas);
            }
            let next = area.doubled().ok_or(corrupt)?;
            let next = Area { lines: moved.to, ..next };
            if moved.chains < area.buckets {
                let fits = next.end() <= self.descriptor.length
                    && marks.set(next.lines, next.overflow() - next.lines);
                if !fits || areas.push(next).is_err() {
                    return Err(corrupt);
                }
                self.growth = Some(Growth { area: next, next: moved.chains, unmoved: 0 });
                return Ok(areas);
            }
            self.descriptor = self.descriptor.grown_to(next);
        }
    }

    /// How many chains have moved, counted from the first bucket; completes unfinished changes in their first
    /// lines.
    fn count_moved(&mut self, area: &Area) -> Result<Moved, TableError> {
        let mut moved = Moved { chains: 0, to: 0 };
        for bucket in 0..area.buckets {
            let chain = area.chain(bucket);
            let head = chain.mend(&mut self.memory, chain.head)?;
            let Some(to) = head.line.moved_to() else { continue };
            let in_order = moved.chains == bucket && (bucket == 0 || to == moved.to);
            let is_line = to >= self.descriptor.heap && to.is_multiple_of(LINE_SIZE.into());
            if !in_order || !is_line || to >= self.descriptor.length {
                return Err(TableError::Corrupt { line: chain.head });
            }
            moved = Moved { chains: bucket + 1, to };
        }
        Ok(moved)
    }

    /// Visits all chains in use: counts their keys, and marks their lines and objects.
    fn take_stock(&mut self, marks: &mut Marks<'_>, overflow: &mut Overflow) -> Result<(), TableError> {
        let area = self.descriptor.area();
        let (into, gone) = self.growth.as_ref().map_or((area, 0), |growth| (growth.area, growth.next));
        for bucket in 0..if gone > 0 { 2 * gone } else { 0 } {
            self.take_chain(into.chain(bucket), marks, overflow)?;
        }
        let gone_lines = self.linked;
        for bucket in gone..area.buckets {
            self.take_chain(area.chain(bucket), marks, overflow)?;
        }
        if let Some(growth) = &mut self.growth {
            growth.unmoved = self.linked - gone_lines;
        }
        Ok(())
    }

    fn take_chain(
        &mut self,
        chain: Chain,
        marks: &mut Marks<'_>,
        overflow: &mut Overflow,
    ) -> Result<(), TableError> {
        let mut offset = chain.head;
        loop {
            let at = chain.mend(&mut self.memory, offset)?;
            for slot in at.line.slots.iter().filter(|slot| !slot.object.is_none()) {
                self.take_object(offset, slot.fingerprint, slot.object, marks)?;
            }
            if at.line.next == 0 {
                return Ok(());
            }
            let corrupt = TableError::Corrupt { line: offset };
            offset = at.line.next;
            // A line that is already marked would make the chain endless.
            if !overflow.has(offset) || !marks.set(offset, LINE_SIZE.into()) {
                return Err(corrupt);
            }
            self.linked += 1;
        }
    }

    fn take_object(
        &mut self,
        line: u64,
        hash: u64,
        object: ObjectRef,
        marks: &mut Marks<'_>,
    ) -> Result<(), TableError> {
        let (begin, length) = (object.offset(), footprint(object.size()));
        let inside = begin >= HEADER_SIZE as u64 && begin + length <= self.descriptor.length;
        if !inside || !marks.set(begin, length) {
            return Err(TableError::Corrupt { line });
        }
        let peeked = self.peek(begin)?;
        if peeked.hash != hash {
            return Err(TableError::Corrupt { line });
        }
        self.entries += 1;
        self.version = self.version.max(peeked.version);
        Ok(())
    }

    /// Frees all lines and all bytes of the heap that are not marked.
    fn free_the_rest(&mut self, marks: &mut Marks<'_>, overflow: &Overflow) -> Result<(), TableError> {
        for area in &overflow.0 {
            self.overflow_lines += area.overflow_lines;
            for line in (area.overflow()..area.end()).step_by(LINE_SIZE as usize) {
                if !marks.is_set(line) {
                    self.free_lines.give(&mut self.memory, line)?;
                    marks.set(line, LINE_SIZE.into());
                }
            }
        }
        let (begin, end) = (self.descriptor.heap, self.descriptor.length / u64::from(UNIT) * u64::from(UNIT));
        let mut gap = begin;
        self.heap = Heap::new(end, end);
        for at in (begin..end).step_by(UNIT as usize) {
            if marks.is_set(at) {
                self.heap.give_gap(&mut self.memory, gap, at)?;
                gap = at + u64::from(UNIT);
            }
        }
        self.heap.never_used(gap, self.descriptor.length);
        Ok(())
    }
}

/// Where overflow lines can be.
struct Overflow(Vec<Area, GENERATIONS>);

impl Overflow {
    fn has(&self, line: u64) -> bool {
        self.0.iter().any(|area| {
            (area.overflow()..area.end()).contains(&line)
                && (line - area.lines).is_multiple_of(LINE_SIZE.into())
        })
    }
}

/// The descriptor with which the table was created, if it is valid and fits the memory.
fn read_descriptor(memory: &impl TableMemory) -> Result<TableDescriptor, TableError> {
    let mut bytes = [0; DESCRIPTOR_SIZE];
    memory.read(0, &mut bytes)?;
    let descriptor = TableDescriptor::parse(&bytes).ok_or(TableError::NotATable)?;
    let TableDescriptor { buckets, overflow_lines, seed, length, .. } = descriptor;
    let config = TableConfig { buckets, overflow_lines, seed, policy: TablePolicy::default() };
    let planned = TableDescriptor::plan(&config, length)?;
    if planned == descriptor && length <= memory.length() {
        Ok(descriptor)
    } else {
        Err(TableError::NotATable)
    }
}
