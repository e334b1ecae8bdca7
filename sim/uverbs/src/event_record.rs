//! What a program reads from a file of events.

use crate::device_index::DeviceIndex;
use crate::uapi::AsyncEventDesc;
use zerocopy::IntoBytes;

/// A file from which a program reads events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventFileId(u32);

impl EventFileId {
    /// The file of a number that [`Self::raw`] gave.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Whose it is.
    pub const fn device(self) -> DeviceIndex {
        DeviceIndex::of_file(self.0)
    }

    /// A number for tables of the caller's; never `u32::MAX`.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// What is read from a file of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventFileKind {
    /// A completion channel: records of 8 bytes, the `user_handle` of a completion queue.
    Completion,
    /// Asynchronous events: records of 16 bytes, the element, the type of the event and four zeros.
    Asynchronous,
}

impl EventFileKind {
    /// Bytes of a record. A read of fewer fails with `EINVAL` and leaves the record where it is.
    pub const fn record_size(self) -> usize {
        match self {
            Self::Completion => 8,
            Self::Asynchronous => 16,
        }
    }
}

/// One record for a file of events, in the machine's byte order. Its first 8 bytes are the element that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRecord {
    /// The file.
    pub file: EventFileId,
    bytes: [u8; 16],
    length: usize,
}

impl EventRecord {
    pub(crate) fn new(file: EventFileId, kind: EventFileKind, element: u64, event_type: u32) -> Self {
        let record = AsyncEventDesc { element, event_type, reserved: 0 };
        let mut bytes = [0; 16];
        bytes.copy_from_slice(record.as_bytes());
        Self { file, bytes, length: kind.record_size() }
    }

    /// What the program reads: 8 or 16 bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The `user_handle` of the object that the event is about, or the number of the port.
    pub fn element(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.bytes;
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }
}
