//! The owner's side of the remote hash table: who makes it, changes it and hands out its description.
//!
//! Readers come through RDMA or through a kernel and hold no lock; the order in which [`TableWriter`] writes is what
//! keeps them from believing half a change. One writer per table. The bytes are described in
//! [`crate::kernels::kv_layout`].

mod heap;
mod writer;

pub use writer::{TableUsage, TableWriter};

use crate::kernels::checksum::crc32c;
use crate::kernels::kv_layout::{LINE_SIZE, MAX_KEY, MAX_VALUE, hash_key};
use crate::kernels::kv_lookup::Parameters;
use bareverbs_prm::time::Duration;
use core::fmt;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Memory that holds a table. Offsets count from the start of the table.
pub trait TableMemory {
    /// Bytes of the memory.
    fn length(&self) -> u64;
    /// Copies bytes out.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault>;
    /// Copies bytes in. Aligned words of 8 bytes must reach readers whole.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault>;
    /// What was written before is seen by readers before what is written after.
    fn order(&mut self) {
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
    }
}

/// An access outside of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFault {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: usize,
}

impl TableMemory for &mut [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        let range = slice_range(offset, buffer.len())?;
        buffer.copy_from_slice(self.get(range).ok_or(MemoryFault { offset, length: buffer.len() })?);
        Ok(())
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let range = slice_range(offset, bytes.len())?;
        self.get_mut(range).ok_or(MemoryFault { offset, length: bytes.len() })?.copy_from_slice(bytes);
        Ok(())
    }
}

fn slice_range(offset: u64, length: usize) -> Result<core::ops::Range<usize>, MemoryFault> {
    let fault = MemoryFault { offset, length };
    let begin = usize::try_from(offset).map_err(|_| fault)?;
    Ok(begin..begin.checked_add(length).ok_or(fault)?)
}

/// What a table is to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableConfig {
    /// Lines that hashes point at; a line holds three keys.
    pub buckets: u32,
    /// Lines to chain to full ones.
    pub overflow_lines: u32,
    /// The seed of the hash.
    pub seed: [u8; 16],
    /// How long a replaced object is left alone: longer than any reader may take.
    pub grace: Duration,
}

/// Where the parts of a table are; what a client must know to look anything up.
///
/// ```
/// use bareverbs_offload::table::{TableConfig, TableDescriptor, TableWriter};
/// use bareverbs_prm::time::Duration;
///
/// let mut memory = vec![0; 1 << 16];
/// let config = TableConfig { buckets: 64, overflow_lines: 16, seed: [3; 16], grace: Duration::from_micros(10) };
/// let descriptor = *TableWriter::create(&mut memory[..], &config)?.descriptor();
/// assert_eq!((descriptor.lines, descriptor.heap), (64, 64 + 80 * 64));
/// assert_eq!(TableDescriptor::parse(&descriptor.encode()), Some(descriptor));
/// # Ok::<(), bareverbs_offload::table::TableError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableDescriptor {
    /// Lines that hashes point at.
    pub buckets: u32,
    /// Lines to chain to full ones.
    pub overflow_lines: u32,
    /// The seed of the hash.
    pub seed: [u8; 16],
    /// Offset of the first line.
    pub lines: u64,
    /// Offset of the first object.
    pub heap: u64,
    /// Bytes of the whole table.
    pub length: u64,
}

/// Bytes of an encoded descriptor; it stands at offset zero of every table.
pub const DESCRIPTOR_SIZE: usize = 64;
const DESCRIPTOR_MAGIC: u64 = u64::from_be_bytes(*b"bvkvtab1");

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DescriptorBytes {
    magic: U64,
    buckets: U32,
    overflow_lines: U32,
    seed: [u8; 16],
    lines: U64,
    heap: U64,
    length: U64,
    reserved: U32,
    crc: U32,
}

const _: () = assert!(size_of::<DescriptorBytes>() == DESCRIPTOR_SIZE);

impl TableDescriptor {
    /// The layout of a table of `length` bytes, if its lines leave room for objects.
    fn plan(config: &TableConfig, length: u64) -> Result<Self, TableError> {
        let lines = DESCRIPTOR_SIZE as u64;
        let count = u64::from(config.buckets) + u64::from(config.overflow_lines);
        let heap = lines + count * u64::from(LINE_SIZE);
        if config.buckets == 0 || heap >= length || length >> 48 != 0 {
            return Err(TableError::BadSize { length, lines: count });
        }
        let TableConfig { buckets, overflow_lines, seed, .. } = *config;
        Ok(Self { buckets, overflow_lines, seed, lines, heap, length })
    }

    /// The bytes of the descriptor.
    pub fn encode(&self) -> [u8; DESCRIPTOR_SIZE] {
        let mut raw = DescriptorBytes {
            magic: DESCRIPTOR_MAGIC.into(),
            buckets: self.buckets.into(),
            overflow_lines: self.overflow_lines.into(),
            seed: self.seed,
            lines: self.lines.into(),
            heap: self.heap.into(),
            length: self.length.into(),
            reserved: U32::ZERO,
            crc: U32::ZERO,
        };
        raw.crc = crc32c(&raw.as_bytes()[..DESCRIPTOR_SIZE - 4]).into();
        zerocopy::transmute!(raw)
    }

    /// Decodes a descriptor; `None` if magic or checksum are wrong.
    pub fn parse(bytes: &[u8; DESCRIPTOR_SIZE]) -> Option<Self> {
        let raw = DescriptorBytes::ref_from_bytes(bytes).ok()?;
        let whole =
            raw.magic.get() == DESCRIPTOR_MAGIC && raw.crc.get() == crc32c(&bytes[..DESCRIPTOR_SIZE - 4]);
        whole.then(|| Self {
            buckets: raw.buckets.get(),
            overflow_lines: raw.overflow_lines.get(),
            seed: raw.seed,
            lines: raw.lines.get(),
            heap: raw.heap.get(),
            length: raw.length.get(),
        })
    }

    /// The hash of a key in this table.
    pub fn hash(&self, key: &[u8]) -> u64 {
        hash_key(&self.seed, key)
    }

    /// What the lookup kernel has to be told to find `key` in this table.
    pub fn lookup<'k>(&self, key: &'k [u8]) -> Parameters<'k> {
        Parameters { hash: self.hash(key), lines: self.lines, buckets: self.buckets, key }
    }
}

/// Why a table could not be made or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableError {
    /// The memory does not hold the lines and anything besides, or is too large to be addressed.
    BadSize {
        /// Bytes of the memory.
        length: u64,
        /// Lines that were asked for.
        lines: u64,
    },
    /// The key has no bytes or too many.
    KeyLength {
        /// Its bytes.
        length: usize,
    },
    /// The value has too many bytes.
    ValueLength {
        /// Its bytes.
        length: usize,
    },
    /// There is no room for an object of this size.
    HeapFull {
        /// Bytes of the object.
        size: u32,
        /// Bytes that are free, in pieces that do not fit, or never used.
        free: u64,
        /// Bytes that become free after their grace period.
        retired: u64,
    },
    /// All overflow lines are taken.
    LinesFull {
        /// Overflow lines that the table has.
        limit: u32,
    },
    /// Too many objects are in their grace period.
    GracePending {
        /// Most objects that can be.
        limit: usize,
    },
    /// The key is in the table already.
    KeyExists,
    /// The key is not in the table.
    NoSuchKey,
    /// A line that only this writer writes does not hold what it wrote.
    Corrupt {
        /// Offset of the line.
        line: u64,
    },
    /// The memory refused an access.
    Memory(MemoryFault),
}

impl From<MemoryFault> for TableError {
    fn from(fault: MemoryFault) -> Self {
        Self::Memory(fault)
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadSize { length, lines } => {
                write!(f, "{length} bytes cannot hold a table of {lines} lines and objects besides")
            }
            Self::KeyLength { length } => write!(f, "a key has 1 to {MAX_KEY} bytes, this one {length}"),
            Self::ValueLength { length } => {
                write!(f, "a value has at most {MAX_VALUE} bytes, this one {length}")
            }
            Self::HeapFull { size, free, retired } => write!(
                f,
                "no room for an object of {size} bytes: {free} bytes free, {retired} in their grace period"
            ),
            Self::LinesFull { limit } => {
                write!(f, "all {limit} overflow lines are taken: give the table more buckets")
            }
            Self::GracePending { limit } => {
                write!(f, "{limit} replaced objects are in their grace period: change the table less often")
            }
            Self::KeyExists => f.write_str("the key is in the table already"),
            Self::NoSuchKey => f.write_str("the key is not in the table"),
            Self::Corrupt { line } => {
                write!(f, "the line at offset {line:#x} was changed by somebody else than its writer")
            }
            Self::Memory(fault) => fault.fmt(f),
        }
    }
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "access of {} bytes at offset {:#x} leaves the table", self.length, self.offset)
    }
}

impl core::error::Error for TableError {}
impl core::error::Error for MemoryFault {}

#[cfg(test)]
mod tear_tests;
#[cfg(test)]
mod tests;
