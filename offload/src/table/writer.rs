//! Changes a table while readers read it.
//!
//! The order is the contract: write a new object completely; make the sequence of the line odd; change its words; store
//! the even sequence and the seal in one word. Replaced memory stays untouched until its readers have finished.

use super::areas::{Area, FreeLines, Growth};
use super::chain::{Chain, LineAt};
use super::error::LoadError;
use super::heap::Heap;
use super::reader_id::ReaderId;
use super::readers::Readers;
use super::retired::{Replaced, Retired};
use super::{
    HEADER_SIZE, NEWEST_DESCRIPTOR, TableConfig, TableDescriptor, TableError, TableMemory, TablePolicy,
};
use crate::kernels::kv_layout::{
    Line, LineSlot, MAX_KEY, MAX_VALUE, ObjectFrame, ObjectRef, PEEK, Peeked, object_size, peek,
};
use crate::runtime::ReaderProgress;
use bareverbs_prm::time::Time;

/// Occupancy of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableUsage {
    /// Keys in the table.
    pub entries: u64,
    /// Number of buckets.
    pub buckets: u32,
    /// Chains that have yet to move to the lines of a growing table; zero if it is not growing.
    pub chains_to_move: u32,
    /// Overflow lines in use, including those that readers may still follow.
    pub overflow_lines: u32,
    /// Bytes free for objects.
    pub heap_free: u64,
    /// Bytes of objects that await their readers.
    pub retired: u64,
}

/// A value that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its length in bytes.
    pub length: usize,
    /// Its version.
    pub version: u64,
}

/// A slot in a line, and the line that leads to that one if it is not the first.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: LineAt,
    slot: usize,
    before: Option<LineAt>,
}

/// Where a key is, or where it could go.
enum Found {
    Here(Place, u64),
    FreeSlot(Place),
    /// All lines of the chain are full; this is the first.
    Full(LineAt),
}

/// What must be in the table for a put to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precondition {
    Absent,
    Present,
    Either,
    Version(Option<u64>),
}

impl Precondition {
    fn check(self, version: Option<u64>) -> Result<(), TableError> {
        match (self, version) {
            (Self::Absent, Some(_)) => Err(TableError::KeyExists),
            (Self::Present, None) => Err(TableError::NoSuchKey),
            (Self::Version(wanted), found) if wanted != found => Err(TableError::VersionMismatch { found }),
            _ => Ok(()),
        }
    }
}

/// A row with its hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hashed<'a> {
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// The only writer of a table.
///
/// ```
/// use bareverbs_offload::table::{TableConfig, TableError, TablePolicy, TableWriter};
/// use bareverbs_prm::time::{Duration, Time};
///
/// let mut memory = vec![0; 1 << 16];
/// let policy = TablePolicy { max_buckets: 1024, lease: Duration::from_micros(10) };
/// let config = TableConfig { buckets: 64, overflow_lines: 16, seed: [3; 16], policy };
/// let mut table = TableWriter::create(&mut memory[..], &config)?;
/// table.insert(Time::ZERO, b"key", b"value")?;
/// let version = table.upsert(Time::ZERO, b"key", b"another value")?;
/// let swapped = table.compare_and_swap(Time::ZERO, b"key", Some(version), b"a third")?;
/// let stale = table.compare_and_swap(Time::ZERO, b"key", Some(version), b"a fourth");
/// assert_eq!(stale, Err(TableError::VersionMismatch { found: Some(swapped) }));
/// assert_eq!(table.usage().entries, 1);
/// # Ok::<(), TableError>(())
/// ```
#[derive(Debug)]
pub struct TableWriter<M> {
    pub(super) memory: M,
    pub(super) descriptor: TableDescriptor,
    pub(super) heap: Heap,
    pub(super) free_lines: FreeLines,
    /// Overflow lines of all areas.
    pub(super) overflow_lines: u32,
    /// Overflow lines in use by chains.
    pub(super) linked: u32,
    pub(super) growth: Option<Growth>,
    pub(super) retired: Retired,
    pub(super) readers: Readers,
    pub(super) policy: TablePolicy,
    pub(super) entries: u64,
    pub(super) version: u64,
}

impl<M: TableMemory> TableWriter<M> {
    /// Creates an empty table in `memory`, overwriting what it held.
    pub fn create(memory: M, config: &TableConfig) -> Result<Self, TableError> {
        let descriptor = TableDescriptor::plan(config, memory.length())?;
        let heap = Heap::new(descriptor.heap, descriptor.length);
        let mut writer = Self::around(memory, descriptor, heap, config.policy);
        // A writer that dies before the end leaves no table.
        writer.memory.write(0, &[0; HEADER_SIZE])?;
        writer.memory.order();
        writer.clear_lines()?;
        writer.add_overflow_lines(&descriptor.area())?;
        writer.memory.order();
        writer.memory.write(0, &descriptor.encode())?;
        writer.publish_newest()?;
        Ok(writer)
    }

    /// A writer of an empty table.
    pub(super) fn around(memory: M, descriptor: TableDescriptor, heap: Heap, policy: TablePolicy) -> Self {
        Self {
            memory,
            descriptor,
            heap,
            free_lines: FreeLines::default(),
            overflow_lines: 0,
            linked: 0,
            growth: None,
            retired: Retired::default(),
            readers: Readers::new(),
            policy,
            entries: 0,
            version: 0,
        }
    }

    fn clear_lines(&mut self) -> Result<(), TableError> {
        let area = self.descriptor.area();
        for bucket in 0..area.buckets {
            let Chain { head, number } = area.chain(bucket);
            self.memory.write(head, &Line::default().encode(number))?;
        }
        Ok(())
    }

    pub(super) fn add_overflow_lines(&mut self, area: &Area) -> Result<(), TableError> {
        self.overflow_lines += area.overflow_lines;
        Ok(self.free_lines.add(&mut self.memory, area)?)
    }

    /// Stores the newest descriptor, for clients that READ it.
    pub(super) fn publish_newest(&mut self) -> Result<(), TableError> {
        self.memory.write(NEWEST_DESCRIPTOR, &self.descriptor.encode())?;
        self.memory.order();
        Ok(())
    }

    /// What a client must know for lookups. It changes when the table has grown; an old one stays valid.
    pub const fn descriptor(&self) -> &TableDescriptor {
        &self.descriptor
    }

    /// The current occupancy.
    pub const fn usage(&self) -> TableUsage {
        TableUsage {
            entries: self.entries,
            buckets: self.descriptor.buckets,
            chains_to_move: match &self.growth {
                Some(growth) => self.descriptor.buckets - growth.next,
                None => 0,
            },
            overflow_lines: self.overflow_lines - self.free_lines.count(),
            heap_free: self.heap.free(),
            retired: self.retired.bytes(),
        }
    }

    /// The memory, for inspecting or corrupting it. The writer trusts what it finds.
    pub const fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Ends the writer and returns the memory.
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// Makes replaced bytes wait for a reader: a runtime whose kernels read the table. Attach it before they can.
    ///
    /// # Errors
    /// [`TableError::TooManyReaders`].
    pub fn attach(&mut self) -> Result<ReaderId, TableError> {
        self.readers.attach()
    }

    /// Removes a reader that is gone. Nothing that it began may still be running.
    pub fn detach(&mut self, reader: ReaderId) {
        self.readers.detach(reader);
    }

    /// Reports a reader's progress ([`Runtime::progress`](crate::runtime::Runtime::progress)). It must have been taken
    /// after all changes made so far; a remote reader's must be the answer to a request sent after them.
    pub fn announce(&mut self, reader: ReaderId, progress: ReaderProgress) {
        self.readers.announce(reader, progress);
    }

    /// Adds a key that is not in the table; returns its version.
    pub fn insert(&mut self, now: Time, key: &[u8], value: &[u8]) -> Result<u64, TableError> {
        self.put(now, &self.hashed(key, value), Precondition::Absent)
    }

    /// Replaces the value of a key that is in the table; returns its version.
    pub fn update(&mut self, now: Time, key: &[u8], value: &[u8]) -> Result<u64, TableError> {
        self.put(now, &self.hashed(key, value), Precondition::Present)
    }

    /// Sets the value of a key, whether or not it is in the table; returns its version.
    pub fn upsert(&mut self, now: Time, key: &[u8], value: &[u8]) -> Result<u64, TableError> {
        self.put(now, &self.hashed(key, value), Precondition::Either)
    }

    /// Sets the value of a key if it has the expected version (`None`: it is not in the table); returns the new
    /// version.
    ///
    /// # Errors
    /// [`TableError::VersionMismatch`] holds the key's version.
    pub fn compare_and_swap(
        &mut self,
        now: Time,
        key: &[u8],
        expected: Option<u64>,
        value: &[u8],
    ) -> Result<u64, TableError> {
        self.put(now, &self.hashed(key, value), Precondition::Version(expected))
    }

    /// Upserts rows one after the other; returns their number.
    ///
    /// # Errors
    /// The first row that cannot be stored ends the load. The rows before it are in the table.
    pub fn load<'r>(
        &mut self,
        now: Time,
        rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>,
    ) -> Result<u64, LoadError> {
        let mut loaded = 0;
        for (key, value) in rows {
            self.upsert(now, key, value).map_err(|cause| LoadError { loaded, cause })?;
            loaded += 1;
        }
        Ok(loaded)
    }

    /// Copies the value of a key to the start of `buffer`.
    pub fn get(&self, key: &[u8], buffer: &mut [u8]) -> Result<Option<Stored>, TableError> {
        let hash = self.descriptor.hash(key);
        let Found::Here(place, version) = self.find(hash, key)? else { return Ok(None) };
        let object = place.at.line.slots[place.slot].object.offset();
        let peeked = self.peek(object)?;
        let (begin, length) = (object + peeked.value_offset(), peeked.value_length as usize);
        let value = buffer.get_mut(..length).ok_or(TableError::BufferTooSmall { needed: length })?;
        self.memory.read(begin, value)?;
        Ok(Some(Stored { length, version }))
    }

    /// Removes a key from the table.
    pub fn delete(&mut self, now: Time, key: &[u8]) -> Result<(), TableError> {
        self.delete_hashed(now, &self.hashed(key, &[]))
    }

    pub(super) fn delete_hashed(&mut self, now: Time, row: &Hashed<'_>) -> Result<(), TableError> {
        check_lengths(row)?;
        self.tidy(now)?;
        let Found::Here(place, _) = self.find(row.hash, row.key)? else { return Err(TableError::NoSuchKey) };
        self.retired.check_room(2, &self.readers)?;
        let fingerprint = place.at.line.slots[place.slot].fingerprint;
        let old = self.point(&place, LineSlot { fingerprint, object: ObjectRef::NONE })?;
        self.entries -= 1;
        self.retired.push(Replaced::Object(old), now, &mut self.readers)?;
        self.unlink_if_empty(now, row.hash, &place)
    }

    /// Removes a line from its chain if its last entry is gone.
    fn unlink_if_empty(&mut self, now: Time, hash: u64, place: &Place) -> Result<(), TableError> {
        let Place { at, slot, before: Some(before) } = place else { return Ok(()) };
        let others = at.line.slots.iter().enumerate().filter(|(index, _)| index != slot);
        if others.into_iter().any(|(_, slot)| !slot.object.is_none()) {
            return Ok(());
        }
        before.change(&mut self.memory, Line { next: at.line.next, ..before.line })?;
        self.linked -= 1;
        let stays = self.stays(hash);
        if let Some(growth) = self.growth.as_mut().filter(|_| stays) {
            growth.unmoved -= 1;
        }
        self.retired.push(Replaced::Line(at.offset), now, &mut self.readers)
    }

    /// Frees replaced memory that nobody reads any more. Every change does this too.
    pub fn reclaim(&mut self, now: Time) -> Result<(), TableError> {
        while let Some(what) = self.retired.pop(now, self.policy.lease, &self.readers) {
            match what {
                Replaced::Object(object) => {
                    self.heap.give(&mut self.memory, object.offset(), object.size())?;
                }
                Replaced::Line(line) => self.free_lines.give(&mut self.memory, line)?,
                Replaced::Lines(first) => self.free_chain(first)?,
            }
        }
        Ok(())
    }

    /// Begins every change: frees what can be freed, and moves some chains if the table is growing.
    fn tidy(&mut self, now: Time) -> Result<(), TableError> {
        self.reclaim(now)?;
        self.move_some(now)
    }

    fn hashed<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Hashed<'a> {
        Hashed { hash: self.descriptor.hash(key), key, value }
    }

    pub(super) fn put(
        &mut self,
        now: Time,
        row: &Hashed<'_>,
        precondition: Precondition,
    ) -> Result<u64, TableError> {
        check_lengths(row)?;
        self.tidy(now)?;
        loop {
            match self.find(row.hash, row.key)? {
                Found::Here(place, version) => {
                    precondition.check(Some(version))?;
                    return self.replace(now, row, &place);
                }
                Found::FreeSlot(place) => {
                    precondition.check(None)?;
                    let object = self.store(row)?;
                    self.point(&place, LineSlot { fingerprint: row.hash, object })?;
                    return self.added();
                }
                Found::Full(head) => {
                    precondition.check(None)?;
                    if self.extend(&head, row)? {
                        return self.added();
                    }
                    self.make_lines(now)?;
                }
            }
        }
    }

    fn added(&mut self) -> Result<u64, TableError> {
        self.entries += 1;
        self.grow_if_full()?;
        Ok(self.version)
    }

    fn replace(&mut self, now: Time, row: &Hashed<'_>, place: &Place) -> Result<u64, TableError> {
        self.retired.check_room(1, &self.readers)?;
        let object = self.store(row)?;
        let old = self.point(place, LineSlot { fingerprint: row.hash, object })?;
        self.retired.push(Replaced::Object(old), now, &mut self.readers)?;
        Ok(self.version)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Result<Found, TableError> {
        let chain = self.chain(hash);
        let head = chain.read(&self.memory, chain.head)?;
        let (mut at, mut before, mut free) = (head, None, None);
        // A chain cannot be longer than there are lines.
        for _ in 0..=self.linked {
            for (slot, entry) in at.line.slots.iter().enumerate() {
                let place = Place { at, slot, before };
                if entry.object.is_none() {
                    free = free.or(Some(place));
                } else if entry.fingerprint == hash
                    && let Some(version) = self.version_of(entry.object, key)?
                {
                    return Ok(Found::Here(place, version));
                }
            }
            if at.line.next == 0 {
                return Ok(free.map_or(Found::Full(head), Found::FreeSlot));
            }
            before = Some(at);
            at = chain.read(&self.memory, at.line.next)?;
        }
        Err(TableError::Corrupt { line: at.offset })
    }

    /// The version of an object, if it has this key.
    fn version_of(&self, object: ObjectRef, key: &[u8]) -> Result<Option<u64>, TableError> {
        let peeked = self.peek(object.offset())?;
        Ok((peeked.key() == key).then_some(peeked.version))
    }

    pub(super) fn peek(&self, object: u64) -> Result<Peeked, TableError> {
        let mut buffer = [0; PEEK];
        let length = self.memory.length().saturating_sub(object).min(PEEK as u64);
        self.memory.read(object, &mut buffer[..length as usize])?;
        peek(&buffer).ok_or(TableError::Corrupt { line: object })
    }

    /// Writes an object that nothing refers to yet.
    fn store(&mut self, row: &Hashed<'_>) -> Result<ObjectRef, TableError> {
        let Hashed { hash, key, value } = *row;
        let size = object_size(key.len(), value.len());
        let full = self.heap_full(size.into());
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

    pub(super) const fn heap_full(&self, size: u64) -> TableError {
        TableError::HeapFull { size, free: self.heap.free(), retired: self.retired.bytes() }
    }

    /// Points a slot at another object, and returns the previous one.
    fn point(&mut self, place: &Place, slot: LineSlot) -> Result<ObjectRef, TableError> {
        let mut line = place.at.line;
        let old = core::mem::replace(&mut line.slots[place.slot], slot);
        place.at.change(&mut self.memory, line)?;
        Ok(old.object)
    }

    /// Adds a line with one entry after the first of a chain; returns whether there was one. It goes after
    /// the first, so that a reader who is on a line that this chain had used before misses none.
    fn extend(&mut self, head: &LineAt, row: &Hashed<'_>) -> Result<bool, TableError> {
        let Some(offset) = self.take_line(row.hash)? else { return Ok(false) };
        let object = match self.store(row) {
            Ok(object) => object,
            Err(error) => {
                self.free_lines.give(&mut self.memory, offset)?;
                return Err(error);
            }
        };
        let mut line = Line { next: head.line.next, ..Line::default() };
        line.slots[0] = LineSlot { fingerprint: row.hash, object };
        LineAt { offset, chain: head.chain, line }.write_new(&mut self.memory)?;
        head.change(&mut self.memory, Line { next: offset, ..head.line })?;
        self.linked += 1;
        let stays = self.stays(row.hash);
        if let Some(growth) = self.growth.as_mut().filter(|_| stays) {
            growth.unmoved += 1;
        }
        Ok(true)
    }
}

fn check_lengths(row: &Hashed<'_>) -> Result<(), TableError> {
    if row.key.is_empty() || row.key.len() > MAX_KEY {
        return Err(TableError::KeyLength { length: row.key.len() });
    }
    if row.value.len() > MAX_VALUE {
        return Err(TableError::ValueLength { length: row.value.len() });
    }
    Ok(())
}
