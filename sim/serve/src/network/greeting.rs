//! The first message on a connection between two processes, and the answer to a status request.

use bareverbs_prm::ids::{Gid, MacAddress};
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Version of the protocol between processes and of their rings.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"bvnet\0\0\0";
/// Magic, version (4 bytes, little-endian), kind.
const LENGTH: usize = 13;
/// Bytes of a neighbour request after that: the wanted GID, then MAC address and GID of the requester.
const NEIGHBOUR_REQUEST_LENGTH: usize = 38;
/// Bytes of an object request: kind and lowest number.
const OBJECT_REQUEST_LENGTH: usize = 6;
/// Longest status answer in bytes.
const LONGEST_STATUS: usize = 4096;
/// Longest objects answer in bytes.
pub const LONGEST_OBJECTS: usize = 32 << 10;

/// Why a process connects to another. The connection lasts as long as both live.
///
/// ```
/// use bareverbs_serve::network::Greeting;
/// use std::os::unix::net::UnixStream;
///
/// # fn main() -> std::io::Result<()> {
/// let (caller, called) = UnixStream::pair()?;
/// Greeting::Status.send(&caller, None)?;
/// let (greeting, file) = Greeting::receive(&called)?;
/// assert_eq!((greeting, file.is_none()), (Greeting::Status, true));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// To send frames, through the ring in the accompanying memory file.
    Frames,
    /// To ask for its status.
    Status,
    /// To ask the bridge for a MAC address outside.
    Neighbour(NeighbourRequest),
    /// To ask for its RDMA objects. A process that does not report them hangs up.
    Objects(ObjectRequest),
}

/// A request for objects of one kind, from a number on. Requester and responder define the kinds and the format of the
/// answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectRequest {
    /// Number of the kind.
    pub kind: u16,
    /// Lowest number requested.
    pub from: u32,
}

impl ObjectRequest {
    fn encode(self) -> [u8; OBJECT_REQUEST_LENGTH] {
        let mut bytes = [0; OBJECT_REQUEST_LENGTH];
        bytes[..2].copy_from_slice(&self.kind.to_le_bytes());
        bytes[2..].copy_from_slice(&self.from.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [k0, k1, from @ ..] = <[u8; OBJECT_REQUEST_LENGTH]>::try_from(bytes).ok()?;
        Some(Self { kind: u16::from_le_bytes([k0, k1]), from: u32::from_le_bytes(from) })
    }
}

/// A request for the owner of a GID outside the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourRequest {
    /// The GID to look up.
    pub wanted: Gid,
    /// MAC address of the requesting host.
    pub asker_mac: MacAddress,
    /// GID of the requesting host, in the same address family.
    pub asker: Gid,
}

impl NeighbourRequest {
    fn encode(&self) -> [u8; NEIGHBOUR_REQUEST_LENGTH] {
        let mut bytes = [0; NEIGHBOUR_REQUEST_LENGTH];
        bytes[..16].copy_from_slice(&self.wanted.0);
        bytes[16..22].copy_from_slice(&self.asker_mac.0);
        bytes[22..].copy_from_slice(&self.asker.0);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NEIGHBOUR_REQUEST_LENGTH] = bytes.try_into().ok()?;
        let (wanted, rest) = bytes.split_first_chunk()?;
        let (asker_mac, asker) = rest.split_first_chunk()?;
        let asker = Gid(asker.try_into().ok()?);
        Some(Self { wanted: Gid(*wanted), asker_mac: MacAddress(*asker_mac), asker })
    }
}

impl Greeting {
    const fn to_raw(self) -> u8 {
        match self {
            Self::Frames => 1,
            Self::Status => 2,
            Self::Neighbour(_) => 3,
            Self::Objects(_) => 4,
        }
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &[self.to_raw()]].concat();
        match self {
            Self::Neighbour(request) => bytes.extend_from_slice(&request.encode()),
            Self::Objects(request) => bytes.extend_from_slice(&request.encode()),
            Self::Frames | Self::Status => {}
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> io::Result<Self> {
        let behind = bytes.get(LENGTH..).unwrap_or_default();
        let neighbour = NeighbourRequest::decode(behind).map(Self::Neighbour);
        let objects = ObjectRequest::decode(behind).map(Self::Objects);
        let known = [Self::Frames, Self::Status].into_iter().chain(neighbour).chain(objects);
        let said = known.into_iter().find(|greeting| greeting.encode() == *bytes);
        said.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "not a greeting of this version"))
    }

    /// Sends it, together with a file.
    pub fn send(self, connection: impl AsFd, file: Option<&OwnedFd>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let bytes = self.encode();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(connection, &[IoSlice::new(&bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Receives a greeting and an accompanying file. `WouldBlock`: nothing has arrived yet; `UnexpectedEof`: the peer
    /// has hung up.
    pub fn receive(connection: impl AsFd) -> io::Result<(Self, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; LENGTH + NEIGHBOUR_REQUEST_LENGTH + 1];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(connection, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
        let mut file = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                file = files.last().or(file);
            }
        }
        if received.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok((Self::decode(&bytes[..received.bytes])?, file))
    }
}

/// Answers [`Greeting::Status`] with lines of a name, a space and a value.
pub fn answer_status(connection: impl AsFd, lines: &str) -> io::Result<()> {
    let bytes = lines.as_bytes();
    let bytes = &bytes[..bytes.len().min(LONGEST_STATUS)];
    rustix::net::send(connection, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Receives the answer; `WouldBlock` if it has not arrived yet.
pub fn receive_status(connection: impl AsFd) -> io::Result<String> {
    let mut bytes = vec![0; LONGEST_STATUS];
    let (length, _) = rustix::net::recv(connection, bytes.as_mut_slice(), RecvFlags::DONTWAIT)?;
    if length == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Answers [`Greeting::Objects`] with at most [`LONGEST_OBJECTS`] bytes.
pub fn answer_objects(connection: impl AsFd, objects: &[u8]) -> io::Result<()> {
    // An empty message would look like the end of the connection.
    let bytes = [&[0], objects].concat();
    rustix::net::send(connection, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Receives the answer; `WouldBlock` if it has not arrived yet, `UnexpectedEof` if it never will.
pub fn receive_objects(connection: impl AsFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; LONGEST_OBJECTS + 1];
    let (length, _) = rustix::net::recv(connection, bytes.as_mut_slice(), RecvFlags::DONTWAIT)?;
    if length == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(length);
    Ok(bytes.split_off(1))
}

/// Whether the peer has hung up or violated the protocol.
pub fn has_hung_up(connection: impl AsFd) -> bool {
    let mut byte = [0; 1];
    let received = rustix::net::recv(connection, byte.as_mut_slice(), RecvFlags::DONTWAIT);
    !matches!(received, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
}
