//! What a program reads from an event file.

use crate::device_index::DeviceIndex;
use crate::uapi::AsyncEventDesc;
use zerocopy::IntoBytes;

/// Identifies a file from which a program reads events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventFileId(u32);

impl EventFileId {
    /// The file with a number from [`Self::raw`].
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The device it belongs to.
    pub const fn device(self) -> DeviceIndex {
        DeviceIndex::of_file(self.0)
    }

    /// A number for the caller's tables; never `u32::MAX`.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// Kinds of event files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventFileKind {
    /// A completion channel. Records of 8 bytes: the `user_handle` of a completion queue.
    Completion,
    /// Asynchronous events. Records of 16 bytes: the element, the event type and four zeros.
    Asynchronous,
}

impl EventFileKind {
    /// Bytes per record. A shorter read fails with `EINVAL` and does not consume the record.
    pub const fn record_size(self) -> usize {
        match self {
            Self::Completion => 8,
            Self::Asynchronous => 16,
        }
    }
}

/// A record for an event file, in native byte order. Its first 8 bytes are the element concerned.
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

    /// The bytes that the program reads: 8 or 16.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The element: `user_handle` of the object concerned, or the port number.
    pub fn element(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.bytes;
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }
}
