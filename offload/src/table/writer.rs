//! Changes a table under the eyes of its readers.
//!
//! The order is the contract: write a new object completely; make the sequence of the line odd; change its words; store
//! the even sequence and the checksum in one word. A replaced object is left alone for a grace period, since a reader
//! that holds the old line may be reading it.

use super::heap::{Heap, footprint};
use super::{TableConfig, TableDescriptor, TableError, TableMemory};
use crate::kernels::kv_layout::{
    LINE_SIZE, Line, LineSlot, MAX_KEY, MAX_VALUE, ObjectFrame, ObjectRef, PEEK, bucket_of, object_size,
    peek_key,
};
use bareverbs_prm::time::{Duration, Time};
use heapless::Deque;

/// Objects that can be in their grace period at a time.
const RETIRED: usize = 256;
/// Offset of the word with sequence and checksum in a line.
const LAST_WORD: usize = 56;

/// How full a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableUsage {
    /// Keys in the table.
    pub entries: u64,
    /// Overflow lines in use.
    pub overflow_lines: u32,
    /// Bytes free for objects.
    pub heap_free: u64,
    /// Bytes of objects in their grace period.
    pub retired: u64,
}

#[derive(Debug, Clone, Copy)]
struct Retired {
    object: ObjectRef,
    since: Time,
}

/// A place in a line.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    line: Line,
    slot: usize,
}

/// Where a key is, or where it could go.
enum Found {
    Here(Place),
    FreeSlot(Place),
    /// All lines of the chain are full; this is the last.
    EndOfChain {
        offset: u64,
        line: Line,
    },
}

/// The one who may change a table.
///
/// ```
/// use bareverbs_offload::table::{TableConfig, TableWriter};
/// use bareverbs_prm::time::{Duration, Time};
///
/// let mut memory = vec![0; 1 << 16];
/// let config = TableConfig { buckets: 64, overflow_lines: 16, seed: [3; 16], grace: Duration::from_micros(10) };
/// let mut table = TableWriter::create(&mut memory[..], &config)?;
/// table.insert(Time::ZERO, b"key", b"value")?;
/// table.update(Time::ZERO, b"key", b"another value")?;
/// assert_eq!(table.usage().entries, 1);
/// # Ok::<(), bareverbs_offload::table::TableError>(())
/// ```
#[derive(Debug)]
pub struct TableWriter<M> {
    memory: M,
    descriptor: TableDescriptor,
    heap: Heap,
    retired: Deque<Retired, RETIRED>,
    retired_bytes: u64,
    grace: Duration,
    overflow_used: u32,
    entries: u64,
    version: u64,
}

impl<M: TableMemory> TableWriter<M> {
    /// Makes an empty table in `memory`, whatever that held before.
    pub fn create(memory: M, config: &TableConfig) -> Result<Self, TableError> {
        let descriptor = TableDescriptor::plan(config, memory.length())?;
        let mut writer = Self {
            memory,
            descriptor,
            heap: Heap::new(descriptor.heap, descriptor.length),
            retired: Deque::new(),
            retired_bytes: 0,
            grace: config.grace,
            overflow_used: 0,
            entries: 0,
            version: 0,
        };
        writer.clear_lines()?;
        writer.memory.write(0, &descriptor.encode())?;
        writer.memory.order();
        Ok(writer)
    }

    fn clear_lines(&mut self) -> Result<(), TableError> {
        let empty = Line::default().encode();
        for index in 0..self.descriptor.buckets {
            self.memory.write(self.line_offset(index.into()), &empty)?;
        }
        Ok(())
    }

    fn line_offset(&self, index: u64) -> u64 {
        self.descriptor.lines + index * u64::from(LINE_SIZE)
    }

    /// What a client must know.
    pub const fn descriptor(&self) -> &TableDescriptor {
        &self.descriptor
    }

    /// How full the table is.
    pub const fn usage(&self) -> TableUsage {
        TableUsage {
            entries: self.entries,
            overflow_lines: self.overflow_used,
            heap_free: self.heap.free(),
            retired: self.retired_bytes,
        }
    }

    /// The memory, for who wants to see what is there, or to break it. The writer believes what it finds.
    pub const fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    /// The memory back, for who has no more changes to make.
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// Adds a key that is not in the table.
    pub fn insert(&mut self, now: Time, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        let hash = self.descriptor.hash(key);
        self.insert_hashed(now, hash, key, value)
    }

    /// [`TableWriter::insert`] under a hash of the caller's choice, so that tests can have collisions.
    pub(super) fn insert_hashed(
        &mut self,
        now: Time,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TableError> {
        check_lengths(key, value)?;
        self.reclaim(now)?;
        match self.find(hash, key)? {
            Found::Here(_) => return Err(TableError::KeyExists),
            Found::FreeSlot(place) => {
                let object = self.store(hash, key, value)?;
                self.point(place, LineSlot { fingerprint: hash, object })?;
            }
            Found::EndOfChain { offset, line } => self.extend(offset, line, hash, key, value)?,
        }
        self.entries += 1;
        Ok(())
    }

    /// Gives a key that is in the table another value.
    pub fn update(&mut self, now: Time, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        let hash = self.descriptor.hash(key);
        self.update_hashed(now, hash, key, value)
    }

    pub(super) fn update_hashed(
        &mut self,
        now: Time,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TableError> {
        check_lengths(key, value)?;
        let place = self.existing(now, hash, key)?;
        let object = self.store(hash, key, value)?;
        let old = self.point(place, LineSlot { fingerprint: hash, object })?;
        self.retire(now, old)
    }

    /// Takes a key out of the table.
    pub fn delete(&mut self, now: Time, key: &[u8]) -> Result<(), TableError> {
        let hash = self.descriptor.hash(key);
        self.delete_hashed(now, hash, key)
    }

    pub(super) fn delete_hashed(&mut self, now: Time, hash: u64, key: &[u8]) -> Result<(), TableError> {
        check_lengths(key, &[])?;
        let place = self.existing(now, hash, key)?;
        let old = self.point(place, LineSlot::default())?;
        self.entries -= 1;
        self.retire(now, old)
    }

    /// Frees what was replaced long enough ago. Every change does this, too.
    pub fn reclaim(&mut self, now: Time) -> Result<(), TableError> {
        while let Some(oldest) = self.retired.front() {
            if now.since(oldest.since) < self.grace {
                break;
            }
            let object = oldest.object;
            self.heap.give(&mut self.memory, object.offset(), object.size())?;
            self.retired_bytes -= footprint(object.size());
            self.retired.pop_front();
        }
        Ok(())
    }

    /// Where a key is, with a place kept for the object it is going to lose.
    fn existing(&mut self, now: Time, hash: u64, key: &[u8]) -> Result<Place, TableError> {
        self.reclaim(now)?;
        if self.retired.is_full() {
            return Err(TableError::GracePending { limit: RETIRED });
        }
        match self.find(hash, key)? {
            Found::Here(place) => Ok(place),
            _ => Err(TableError::NoSuchKey),
        }
    }

    fn retire(&mut self, now: Time, object: ObjectRef) -> Result<(), TableError> {
        let retired = Retired { object, since: now };
        self.retired.push_back(retired).map_err(|_| TableError::GracePending { limit: RETIRED })?;
        self.retired_bytes += footprint(object.size());
        Ok(())
    }

    fn find(&self, hash: u64, key: &[u8]) -> Result<Found, TableError> {
        let mut offset = self.line_offset(bucket_of(hash, self.descriptor.buckets).into());
        let mut free = None;
        // A chain cannot be longer than there are lines.
        for _ in 0..=self.overflow_used {
            let line = self.read_line(offset)?;
            for (slot, entry) in line.slots.iter().enumerate() {
                let place = Place { offset, line, slot };
                if entry.object.is_none() {
                    free = free.or(Some(place));
                } else if entry.fingerprint == hash && self.holds(entry.object, key)? {
                    return Ok(Found::Here(place));
                }
            }
            if line.next == 0 {
                return Ok(free.map_or(Found::EndOfChain { offset, line }, Found::FreeSlot));
            }
            offset = line.next;
        }
        Err(TableError::Corrupt { line: offset })
    }

    fn read_line(&self, offset: u64) -> Result<Line, TableError> {
        let mut bytes = [0; LINE_SIZE as usize];
        self.memory.read(offset, &mut bytes)?;
        Line::parse(&bytes).map_err(|_| TableError::Corrupt { line: offset })
    }

    fn holds(&self, object: ObjectRef, key: &[u8]) -> Result<bool, TableError> {
        let mut buffer = [0; PEEK];
        let length = PEEK.min(object.size() as usize);
        self.memory.read(object.offset(), &mut buffer[..length])?;
        Ok(peek_key(&buffer) == Some(key))
    }

    /// Writes an object that nobody refers to yet.
    fn store(&mut self, hash: u64, key: &[u8], value: &[u8]) -> Result<ObjectRef, TableError> {
        let size = object_size(key.len(), value.len());
        let full = TableError::HeapFull { size, free: self.heap.free(), retired: self.retired_bytes };
        let version = self.version.wrapping_add(1);
        let frame =
            ObjectFrame::new(hash, key, value, version).ok_or(TableError::KeyLength { length: key.len() })?;
        let offset = self.heap.take(&self.memory, size)?.ok_or(full)?;
        let object = ObjectRef::new(offset, size).ok_or(full)?;
        self.version = version;
        let mut at = offset;
        for part in [frame.header(), key, value, frame.end()] {
            self.memory.write(at, part)?;
            at += part.len() as u64;
        }
        self.memory.order();
        Ok(object)
    }

    /// Points a slot at another object, and returns the one it pointed at.
    fn point(&mut self, place: Place, slot: LineSlot) -> Result<ObjectRef, TableError> {
        let mut line = place.line;
        let old = core::mem::replace(&mut line.slots[place.slot], slot);
        self.change_line(place.offset, &place.line, line)?;
        Ok(old.object)
    }

    /// Adds a line with one entry to the end of a chain.
    fn extend(
        &mut self,
        offset: u64,
        last: Line,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TableError> {
        if self.overflow_used == self.descriptor.overflow_lines {
            return Err(TableError::LinesFull { limit: self.descriptor.overflow_lines });
        }
        let object = self.store(hash, key, value)?;
        let mut line = Line::default();
        line.slots[0] = LineSlot { fingerprint: hash, object };
        let next = self.line_offset(u64::from(self.descriptor.buckets) + u64::from(self.overflow_used));
        self.memory.write(next, &line.encode())?;
        self.memory.order();
        self.overflow_used += 1;
        self.change_line(offset, &last, Line { next, ..last })
    }

    /// The three acts of a change: odd sequence; the words that differ; even sequence with checksum.
    fn change_line(&mut self, offset: u64, old: &Line, new: Line) -> Result<(), TableError> {
        let before = old.encode();
        let after = Line { sequence: old.sequence.wrapping_add(2), ..new }.encode();
        let odd = old.sequence.wrapping_add(1).to_be_bytes();
        let mut last_word = [0; 8];
        last_word[..4].copy_from_slice(&odd);
        last_word[4..].copy_from_slice(&before[LAST_WORD + 4..]);
        self.memory.write(offset + LAST_WORD as u64, &last_word)?;
        self.memory.order();
        for at in (0..LAST_WORD).step_by(8) {
            if before[at..at + 8] != after[at..at + 8] {
                self.memory.write(offset + at as u64, &after[at..at + 8])?;
            }
        }
        self.memory.order();
        self.memory.write(offset + LAST_WORD as u64, &after[LAST_WORD..])?;
        self.memory.order();
        Ok(())
    }
}

fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), TableError> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(TableError::KeyLength { length: key.len() });
    }
    if value.len() > MAX_VALUE {
        return Err(TableError::ValueLength { length: value.len() });
    }
    Ok(())
}
