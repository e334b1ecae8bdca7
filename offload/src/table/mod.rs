//! The owner's side of the remote hash table: creates and changes it, and hands out its descriptor.
//!
//! Readers come through RDMA or through a kernel and hold no lock; the order of [`TableWriter`]'s writes keeps them
//! from believing half a change. A table has one writer. [`crate::kernels::kv_layout`] describes the bytes, ADR 0033
//! the order.
//!
//! * [`TableWriter`] inserts, updates, swaps, deletes, and loads many rows at once.
//! * A table grows while it is read, chain by chain, up to [`TablePolicy::max_buckets`].
//! * Replaced memory is reused when its readers have finished ([`TableWriter::attach`]), or after
//!   [`TablePolicy::lease`].
//! * [`TableWriter::open`] continues where a writer ended, at any point of a change.

mod areas;
mod chain;
mod error;
mod growth;
mod heap;
mod memory;
mod reader_id;
mod readers;
mod reopen;
mod retired;
mod writer;

pub use error::{LoadError, MemoryFault, TableError};
pub use memory::TableMemory;
pub use reader_id::ReaderId;
pub use reopen::marks_for;
pub use writer::{Stored, TableUsage, TableWriter};

use crate::kernels::checksum::crc32c;
use crate::kernels::kv_layout::{LINE_SIZE, MAX_BUCKETS, hash_key};
use crate::kernels::kv_lookup::Parameters;
use areas::Area;
use bareverbs_prm::time::Duration;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Configuration of a new table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableConfig {
    /// Number of buckets, each with one line; a line holds three keys.
    pub buckets: u32,
    /// Lines for chaining to full ones.
    pub overflow_lines: u32,
    /// The seed of the hash.
    pub seed: [u8; 16],
    /// How far the table may grow, and how long replaced bytes stay untouched.
    pub policy: TablePolicy,
}

/// What a writer may do with a table. The policy is not stored in the table: the next writer may have another one.
///
/// ```
/// use bareverbs_offload::table::TablePolicy;
/// use bareverbs_prm::time::Duration;
///
/// // The table may grow to 4096 buckets. Clients use RDMA READs, and take less than 1 ms for a lookup.
/// let policy = TablePolicy { max_buckets: 4096, lease: Duration::from_millis(1) };
/// assert_eq!(TablePolicy::default().lease, Duration::ZERO);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TablePolicy {
    /// The most buckets that the table may grow to. With less than twice its current number it keeps its size.
    pub max_buckets: u32,
    /// How long a client that looks up by RDMA READs may go on reading replaced bytes. Its reads are self-checking, so
    /// a client that takes longer has to read again but is never wrong. Zero: there are no such clients. Kernels are
    /// awaited in any case; see [`TableWriter::attach`].
    pub lease: Duration,
}

/// The layout of a table: what a client must know for lookups.
///
/// It stays valid when the table grows: a lookup with an old one reads one more element for each doubling since.
/// [`TableWriter::descriptor`] is the newest, and is stored at [`NEWEST_DESCRIPTOR`] in the table for clients that READ
/// it.
///
/// ```
/// use bareverbs_offload::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
///
/// let mut memory = vec![0; 1 << 16];
/// let config =
///     TableConfig { buckets: 64, overflow_lines: 16, seed: [3; 16], policy: TablePolicy::default() };
/// let descriptor = *TableWriter::create(&mut memory[..], &config)?.descriptor();
/// assert_eq!((descriptor.lines, descriptor.heap), (128, 128 + 80 * 64));
/// assert_eq!(TableDescriptor::parse(&descriptor.encode()), Some(descriptor));
/// # Ok::<(), bareverbs_offload::table::TableError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableDescriptor {
    /// Number of buckets, each with one line.
    pub buckets: u32,
    /// Lines for chaining to full ones.
    pub overflow_lines: u32,
    /// The seed of the hash.
    pub seed: [u8; 16],
    /// Offset of the first line.
    pub lines: u64,
    /// Offset of the first object.
    pub heap: u64,
    /// Length of the whole table in bytes.
    pub length: u64,
}

/// Bytes of an encoded descriptor. The one with which the table was created is at offset zero.
pub const DESCRIPTOR_SIZE: usize = 64;
/// Offset of the newest descriptor. Its checksum is wrong while it is being written; use the one at zero then.
pub const NEWEST_DESCRIPTOR: u64 = DESCRIPTOR_SIZE as u64;
/// Bytes before the first line.
pub const HEADER_SIZE: usize = 2 * DESCRIPTOR_SIZE;
const DESCRIPTOR_MAGIC: u64 = u64::from_be_bytes(*b"bvkvtab2");

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
        let lines = HEADER_SIZE as u64;
        let count = u64::from(config.buckets) + u64::from(config.overflow_lines);
        let heap = lines + count * u64::from(LINE_SIZE);
        if config.buckets == 0 || config.buckets > MAX_BUCKETS || heap >= length || length >> 48 != 0 {
            return Err(TableError::BadSize { length, lines: count });
        }
        let TableConfig { buckets, overflow_lines, seed, .. } = *config;
        Ok(Self { buckets, overflow_lines, seed, lines, heap, length })
    }

    const fn area(&self) -> Area {
        Area { lines: self.lines, buckets: self.buckets, overflow_lines: self.overflow_lines }
    }

    /// The same table after its lines moved to `area`.
    const fn grown_to(self, area: Area) -> Self {
        let Area { lines, buckets, overflow_lines } = area;
        Self { lines, buckets, overflow_lines, ..self }
    }

    /// Encodes the descriptor.
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

    /// Decodes a descriptor; `None` if magic or checksum is wrong.
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

    /// The parameters of the lookup kernel for `key` in this table.
    pub fn lookup<'k>(&self, key: &'k [u8]) -> Parameters<'k> {
        Parameters { hash: self.hash(key), lines: self.lines, buckets: self.buckets, key }
    }
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod journal;
#[cfg(test)]
mod tear_tests;
#[cfg(test)]
mod tests;
