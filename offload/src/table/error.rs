//! Errors of a table.

use super::reader_id::ReaderId;
use crate::kernels::kv_layout::{MAX_KEY, MAX_VALUE};
use core::fmt;

/// An access outside the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFault {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: usize,
}

/// Why a table could not be created, opened or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableError {
    /// The memory holds nothing but the lines, or not even those, or is too large to be addressed.
    BadSize {
        /// Bytes of the memory.
        length: u64,
        /// Requested number of lines.
        lines: u64,
    },
    /// The key is empty or too long.
    KeyLength {
        /// Its length in bytes.
        length: usize,
    },
    /// The value is too long.
    ValueLength {
        /// Its length in bytes.
        length: usize,
    },
    /// There is no room for an object, or for the lines of a growing table.
    HeapFull {
        /// Contiguous bytes needed.
        size: u64,
        /// Free bytes, in pieces that do not fit or never used.
        free: u64,
        /// Bytes that become free when their readers have finished.
        retired: u64,
    },
    /// All overflow lines are in use.
    LinesFull {
        /// Number of overflow lines of the table.
        limit: u32,
    },
    /// Too many replaced objects await readers that may still read them.
    ReadersPending {
        /// The most objects that can wait.
        limit: usize,
        /// The reader that is furthest behind; `None` if an unexpired lease is the cause.
        behind: Option<ReaderId>,
    },
    /// There is no room for another reader.
    TooManyReaders {
        /// The most readers that can be attached.
        limit: usize,
    },
    /// The key is already in the table.
    KeyExists,
    /// The key is not in the table.
    NoSuchKey,
    /// The key does not have the expected version.
    VersionMismatch {
        /// Its version; `None` if it is not in the table.
        found: Option<u64>,
    },
    /// The buffer is too small for the value.
    BufferTooSmall {
        /// Length of the value in bytes.
        needed: usize,
    },
    /// The memory does not begin with a table.
    NotATable,
    /// Opening a table of this size needs a larger `marks` buffer.
    TooFewMarks {
        /// Words given.
        given: usize,
        /// Words needed.
        needed: usize,
    },
    /// A line that only this writer writes does not hold what it wrote, or refers to something impossible.
    Corrupt {
        /// Offset of the line.
        line: u64,
    },
    /// The memory refused an access.
    Memory(MemoryFault),
}

/// Why not all rows were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadError {
    /// Number of rows loaded; the next row is the one that failed.
    pub loaded: u64,
    /// Why it failed.
    pub cause: TableError,
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
                write!(f, "{length} bytes cannot hold a table of {lines} lines and its objects")
            }
            Self::KeyLength { length } => write!(f, "a key has 1 to {MAX_KEY} bytes, this one {length}"),
            Self::ValueLength { length } => {
                write!(f, "a value has at most {MAX_VALUE} bytes, this one {length}")
            }
            Self::HeapFull { size, free, retired } => write!(
                f,
                "no room for {size} bytes in one piece: {free} bytes free, {retired} may still be in use by readers"
            ),
            Self::LinesFull { limit } => write!(
                f,
                "all {limit} overflow lines are taken: give the table more buckets, or let it grow (max_buckets)"
            ),
            Self::ReadersPending { limit, behind } => pending(f, limit, behind),
            Self::TooManyReaders { limit } => {
                write!(f, "{limit} readers are attached already: detach one that is gone")
            }
            Self::KeyExists => f.write_str("the key is in the table already"),
            Self::NoSuchKey => f.write_str("the key is not in the table"),
            Self::VersionMismatch { found: Some(found) } => {
                write!(f, "the key has version {found}, not the expected one: read it again")
            }
            Self::VersionMismatch { found: None } => {
                f.write_str("a version of the key was expected, but the key is not in the table")
            }
            Self::BufferTooSmall { needed } => {
                write!(f, "the value has {needed} bytes, more than the buffer")
            }
            Self::NotATable => f.write_str("the memory does not begin with a table of this format"),
            Self::TooFewMarks { given, needed } => {
                write!(f, "opening the table takes {needed} words for marks, only {given} were given")
            }
            Self::Corrupt { line } => {
                write!(f, "the line at offset {line:#x} was changed by someone other than its writer")
            }
            Self::Memory(fault) => fault.fmt(f),
        }
    }
}

fn pending(f: &mut fmt::Formatter<'_>, limit: usize, behind: Option<ReaderId>) -> fmt::Result {
    match behind {
        Some(reader) => write!(
            f,
            "{limit} replaced objects wait for {reader}: have it announce its progress, or detach it if it is gone"
        ),
        None => write!(
            f,
            "{limit} replaced objects wait for the end of the lease: change the table less often, or shorten it"
        ),
    }
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "access of {} bytes at offset {:#x} leaves the table", self.length, self.offset)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loading stopped after {} rows: {}", self.loaded, self.cause)
    }
}

impl core::error::Error for TableError {}
impl core::error::Error for MemoryFault {}
impl core::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.cause)
    }
}
