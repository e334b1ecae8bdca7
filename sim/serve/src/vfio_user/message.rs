//! Messages of vfio-user (libvfio-user, `docs/vfio-user.rst`, version 0.9): decoding of requests, encoding of replies.
//!
//! Numbers are in native byte order. This module validates the form of a client's message: its length against its
//! counts, its indices against their ranges. The command handler and the device validate what it asks for.

use std::fs::File;
use std::io::{self, ErrorKind};
use vfio_bindings::bindings::vfio::{VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest accepted message including its header: the capability `max_data_xfer_size` plus what precedes the data.
pub(super) const LONGEST: usize = LONGEST_DATA + 64;
const LONGEST_DATA: usize = 1 << 20;
/// Most file descriptors in a message.
pub(super) const FILES: usize = 16;

/// Flags of a header: message type, no reply, error.
const KIND: u32 = 0xf;
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Flags of a mapping.
const MAP_READ: u32 = 1;
const MAP_WRITE: u32 = 1 << 1;
/// Flag of an unmapping: all mappings, regardless of the range.
const UNMAP_ALL: u32 = 1 << 2;

/// The header of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Header {
    id: u16,
    command: u16,
    /// Length of the whole message in bytes.
    size: u32,
    flags: u32,
    error: u32,
}

impl Header {
    /// Bytes of the header.
    pub(super) const SIZE: usize = size_of::<Self>();

    /// Length of the body, if the size is plausible.
    pub(super) fn body_length(self) -> Option<usize> {
        let size = usize::try_from(self.size).ok().filter(|size| *size <= LONGEST)?;
        size.checked_sub(Self::SIZE)
    }

    /// Whether the client expects a reply.
    pub(super) const fn wants_reply(self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// Encodes the reply to a message with this header.
    pub(super) fn reply(self, outcome: &io::Result<Vec<u8>>) -> Vec<u8> {
        let (body, flags, error) = match outcome {
            Ok(body) => (body.as_slice(), REPLY, 0),
            Err(error) => (&[][..], REPLY | ERROR, errno(error)),
        };
        let size = (Self::SIZE + body.len()) as u32;
        let header = Self { size, flags, error, ..self };
        [header.as_bytes(), body].concat()
    }
}

/// The errno to send to the client.
fn errno(error: &io::Error) -> u32 {
    let number = error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::QuotaExceeded => libc::EDQUOT,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::BrokenPipe => libc::EIO,
        _ => libc::EINVAL,
    });
    number.unsigned_abs()
}

/// The error for an invalid message.
pub(super) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what)
}

/// Commands of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Version {
        major: u16,
    },
    Map {
        address: u64,
        size: u64,
        offset: u64,
        readable: bool,
        writable: bool,
    },
    /// The reply repeats the body.
    Unmap {
        address: u64,
        size: u64,
        all: bool,
        body: Vec<u8>,
    },
    DeviceInfo,
    RegionInfo {
        index: u32,
    },
    InterruptInfo {
        index: u32,
    },
    SetInterrupts {
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
    },
    Read {
        region: u32,
        offset: u64,
        length: u32,
    },
    Write {
        region: u32,
        offset: u64,
        bytes: Vec<u8>,
    },
    Reset,
}

/// Bodies as laid out in the specification.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct VersionBody {
    major: u16,
    minor: u16,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MapBody {
    argsz: u32,
    flags: u32,
    offset: u64,
    address: u64,
    size: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct UnmapBody {
    argsz: u32,
    flags: u32,
    address: u64,
    size: u64,
}

/// Properties of the device.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) regions: u32,
    pub(super) interrupts: u32,
}

/// Properties of a region.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RegionInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) capabilities: u32,
    pub(super) size: u64,
    pub(super) offset: u64,
}

/// Properties of an interrupt type.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InterruptInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) count: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SetInterruptsBody {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct AccessBody {
    offset: u64,
    region: u32,
    count: u32,
}

/// The structure at the start of a body, and the rest.
fn prefix<T: FromBytes + Immutable + KnownLayout>(body: &[u8]) -> io::Result<(T, &[u8])> {
    T::read_from_prefix(body).map_err(|_| invalid("the message is shorter than what it must hold"))
}

/// Checks that an index is below `count`.
fn index(index: u32, count: u32) -> io::Result<u32> {
    if index < count { Ok(index) } else { Err(invalid("there is no region or interrupt of this index")) }
}

impl Command {
    /// Decodes a message.
    pub(super) fn decode(header: Header, body: &[u8]) -> io::Result<Self> {
        if header.flags & KIND != 0 {
            return Err(invalid("a reply, but nothing was asked"));
        }
        Ok(match header.command {
            1 => Self::Version { major: prefix::<VersionBody>(body)?.0.major },
            2 => Self::map(&prefix(body)?.0),
            3 => Self::unmap(&prefix(body)?.0, body),
            4 => Self::DeviceInfo,
            5 => {
                Self::RegionInfo { index: index(prefix::<RegionInfo>(body)?.0.index, VFIO_PCI_NUM_REGIONS)? }
            }
            7 => {
                let asked: InterruptInfo = prefix(body)?.0;
                Self::InterruptInfo { index: index(asked.index, VFIO_PCI_NUM_IRQS)? }
            }
            8 => Self::set_interrupts(&prefix(body)?.0)?,
            9 => Self::read(&prefix(body)?.0)?,
            10 => {
                let (access, bytes) = prefix(body)?;
                Self::write(&access, bytes)?
            }
            13 => Self::Reset,
            _ => {
                return Err(io::Error::new(
                    ErrorKind::Unsupported,
                    "a command that this server does not have",
                ));
            }
        })
    }

    fn map(body: &MapBody) -> Self {
        let (readable, writable) = (body.flags & MAP_READ != 0, body.flags & MAP_WRITE != 0);
        Self::Map { address: body.address, size: body.size, offset: body.offset, readable, writable }
    }

    fn unmap(unmap: &UnmapBody, body: &[u8]) -> Self {
        let body = body[..size_of::<UnmapBody>()].to_vec();
        Self::Unmap { address: unmap.address, size: unmap.size, all: unmap.flags & UNMAP_ALL != 0, body }
    }

    fn set_interrupts(body: &SetInterruptsBody) -> io::Result<Self> {
        let index = index(body.index, VFIO_PCI_NUM_IRQS)?;
        Ok(Self::SetInterrupts { index, flags: body.flags, start: body.start, count: body.count })
    }

    fn read(body: &AccessBody) -> io::Result<Self> {
        let region = index(body.region, VFIO_PCI_NUM_REGIONS)?;
        Ok(Self::Read { region, offset: body.offset, length: body.count })
    }

    fn write(body: &AccessBody, bytes: &[u8]) -> io::Result<Self> {
        if bytes.len() as u64 != u64::from(body.count) {
            return Err(invalid("a write whose count is not the number of its bytes"));
        }
        let region = index(body.region, VFIO_PCI_NUM_REGIONS)?;
        Ok(Self::Write { region, offset: body.offset, bytes: bytes.to_vec() })
    }
}

/// Body of the reply to a version request: our version and capabilities.
pub(super) fn version_reply() -> Vec<u8> {
    let capabilities = format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{FILES},\"max_data_xfer_size\":{LONGEST_DATA},\"migration\":{{\"pgsize\":4096}}}}}}\0"
    );
    [VersionBody { major: 0, minor: 0 }.as_bytes(), capabilities.as_bytes()].concat()
}

/// Body of the reply to an access: its location and the data read.
pub(super) fn access_reply(region: u32, offset: u64, count: u32, read: &[u8]) -> Vec<u8> {
    [AccessBody { offset, region, count }.as_bytes(), read].concat()
}

/// A complete message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<File>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(command: u16, flags: u32) -> Header {
        Header { id: 7, command, size: 16, flags, error: 0 }
    }

    #[test]
    fn a_refusal_carries_its_error_number() {
        let refused: io::Result<Vec<u8>> = Err(io::Error::new(ErrorKind::AlreadyExists, "overlaps"));
        let reply = header(2, 0).reply(&refused);
        let expected =
            Header { id: 7, command: 2, size: 16, flags: REPLY | ERROR, error: libc::EEXIST as u32 };
        assert_eq!(Header::read_from_bytes(&reply).unwrap(), expected);
        let reply = header(9, 0).reply(&Ok(vec![1, 2, 3]));
        assert_eq!((reply.len(), &reply[4..8], &reply[16..]), (19, &19u32.to_ne_bytes()[..], &[1, 2, 3][..]));
    }

    #[test]
    fn impossible_message_lengths_are_refused() {
        for (size, length) in
            [(16, Some(0)), (15, None), (0, None), (u32::MAX, None), (LONGEST as u32, Some(LONGEST - 16))]
        {
            assert_eq!(Header { size, ..header(1, 0) }.body_length(), length, "{size}");
        }
    }

    #[test]
    fn a_write_has_as_many_bytes_as_it_counts() {
        let body = access_reply(0, 8, 3, b"abc");
        let write = Command::Write { region: 0, offset: 8, bytes: b"abc".to_vec() };
        assert_eq!(Command::decode(header(10, 0), &body).unwrap(), write);
        assert!(Command::decode(header(10, 0), &body[..18]).is_err());
        assert!(Command::decode(header(10, 0), &access_reply(0, 8, u32::MAX, b"abc")).is_err());
        assert!(Command::decode(header(10, REPLY), &body).is_err());
    }

    proptest! {
        #[test]
        fn any_message_is_understood_or_refused(command: u16, flags: u32, body: Vec<u8>) {
            let _ = Command::decode(header(command % 20, flags), &body);
        }
    }
}
