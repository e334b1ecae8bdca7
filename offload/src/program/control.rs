//! Deployment over the wire. Any client can send these requests; the runtime obeys only connections that may deploy.
//!
//! Each has an op-code, parameters and an answer like any other request; none needs a region. Numbers are big-endian.
//!
//! | op-code | parameters | answer, after the outcome |
//! |---|---|---|
//! | `PROG_PUT` | total bytes 2, offset 2, bytes | – |
//! | `PROG_SET` | op-code 8, SHA-256 32 | version 8 |
//! | `PROG_DEL` | op-code 8 | version 8 that was removed |
//! | `PROG_LST` | first version 8 | up to two of: op-code 8, version 8, SHA-256 32, instructions 2, running 4, current 1, zero 1 |
//!
//! An answer begins with its outcome, 8 bytes: kind 1, zero 1, instruction 2, detail 4. `PROG_PUT` uploads a program in
//! pieces; each piece starts where the last one ended, the first at zero. `PROG_SET` verifies and deploys the uploaded
//! program if it has this digest. If the verifier refuses it, the answer has the reason as detail, the instruction, and
//! 8 bytes with the reason's value.

use super::code::Program;
use super::engine::Engine;
use super::limits::MAX_INSTRUCTIONS;
use super::refusal::Refusal;
use super::store::{Deployed, ProgramStore, StoreError};
use super::verify::DeployError;
use crate::kernel::{Caller, Opcode, Status};
use core::fmt;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Uploads a piece of a program.
pub const PUT: Opcode = Opcode(u64::from_be_bytes(*b"PROG_PUT"));
/// Deploys the uploaded program.
pub const SET: Opcode = Opcode(u64::from_be_bytes(*b"PROG_SET"));
/// Removes a program.
pub const REMOVE: Opcode = Opcode(u64::from_be_bytes(*b"PROG_DEL"));
/// Lists programs.
pub const LIST: Opcode = Opcode(u64::from_be_bytes(*b"PROG_LST"));
/// Most bytes of an answer.
pub const MAX_RESPONSE: usize = 128;

/// Bytes of the parameters of `PROG_PUT` before the piece.
pub const PUT_HEADER: usize = size_of::<PutBytes>();
/// Most bytes of a program.
pub const MAX_BYTES: usize = MAX_INSTRUCTIONS * 8;
/// Most versions that one answer lists.
pub const LISTED: usize = (MAX_RESPONSE - size_of::<OutcomeBytes>()) / size_of::<ListedBytes>();

/// The outcome of a deployment request.
///
/// ```
/// use bareverbs_offload::program::control::ControlOutcome;
///
/// let answer = [1, 0, 0, 0, 0, 0, 0, 124];
/// let (outcome, rest) = ControlOutcome::parse(&answer).unwrap();
/// assert_eq!(outcome, ControlOutcome::Gap { expected: 124 }, "the next piece begins at byte 124");
/// assert!(rest.is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlOutcome {
    /// The request succeeded.
    Done,
    /// The piece does not start where the last one ended, or belongs to a program of another length: restart at zero.
    Gap {
        /// Where the last piece ended.
        expected: u32,
    },
    /// The uploaded program is incomplete or does not have this digest.
    Digest {
        /// Number of bytes uploaded.
        bytes: u32,
    },
    /// The verifier refused the program.
    Refused(DeployError),
    /// The verifier refused the program for a reason that this version does not know.
    RefusedOtherwise {
        /// Number of the reason.
        reason: u32,
        /// The instruction.
        instruction: u16,
        /// The reason's value.
        value: u64,
    },
    /// All places are occupied.
    Full {
        /// Their number.
        places: u32,
    },
    /// Nothing is deployed under this op-code.
    Missing,
    /// The op-code belongs to a compiled-in kernel or to deployment itself.
    Taken,
    /// An outcome that this version does not know.
    Unknown(u8),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct OutcomeBytes {
    kind: u8,
    reserved: u8,
    instruction: U16,
    detail: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PutBytes {
    total: U16,
    offset: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct SetBytes {
    opcode: U64,
    digest: [u8; 32],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ListedBytes {
    opcode: U64,
    version: U64,
    digest: [u8; 32],
    instructions: U16,
    running: U32,
    current: u8,
    reserved: u8,
}

impl ControlOutcome {
    /// Decodes the outcome at the start of an answer and returns it with the bytes that follow.
    pub fn parse(response: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = OutcomeBytes::ref_from_prefix(response).ok()?;
        let (detail, instruction) = (raw.detail.get(), raw.instruction.get());
        let outcome = match raw.kind {
            0 => Self::Done,
            1 => Self::Gap { expected: detail },
            2 => Self::Digest { bytes: detail },
            3 => {
                let (value, rest) = U64::ref_from_prefix(rest).ok()?;
                let refusal = Refusal { reason: detail, instruction, value: value.get() };
                return Some((refusal.into(), rest));
            }
            4 => Self::Full { places: detail },
            5 => Self::Missing,
            6 => Self::Taken,
            other => Self::Unknown(other),
        };
        Some((outcome, rest))
    }

    /// The value that accompanies the verifier's reason.
    fn value(self) -> Option<u64> {
        match self {
            Self::Refused(error) => Some(Refusal::from(error).value),
            Self::RefusedOtherwise { value, .. } => Some(value),
            _ => None,
        }
    }

    fn bytes(self) -> OutcomeBytes {
        let (kind, detail, instruction) = match self {
            Self::Refused(error) => {
                let refusal = Refusal::from(error);
                (3, refusal.reason, refusal.instruction)
            }
            Self::RefusedOtherwise { reason, instruction, .. } => (3, reason, instruction),
            Self::Done => (0, 0, 0),
            Self::Gap { expected } => (1, expected, 0),
            Self::Digest { bytes } => (2, bytes, 0),
            Self::Full { places } => (4, places, 0),
            Self::Missing => (5, 0, 0),
            Self::Taken => (6, 0, 0),
            Self::Unknown(kind) => (kind, 0, 0),
        };
        OutcomeBytes { kind, reserved: 0, instruction: instruction.into(), detail: detail.into() }
    }
}

impl From<StoreError> for ControlOutcome {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { places } => Self::Full { places: places as u32 },
            StoreError::Missing(_) => Self::Missing,
            StoreError::Taken(_) => Self::Taken,
        }
    }
}

impl From<Refusal> for ControlOutcome {
    fn from(refusal: Refusal) -> Self {
        let Refusal { reason, instruction, value } = refusal;
        refusal.error().map_or(Self::RefusedOtherwise { reason, instruction, value }, Self::Refused)
    }
}

impl fmt::Display for ControlOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Gap { expected } => {
                write!(f, "the piece does not follow the {expected} bytes that were uploaded: begin again")
            }
            Self::Digest { bytes } => {
                write!(
                    f,
                    "the {bytes} uploaded bytes are not the whole program with this digest: begin again"
                )
            }
            Self::Refused(error) => write!(f, "the verifier refuses the program: {error}"),
            Self::RefusedOtherwise { reason, instruction, .. } => {
                write!(
                    f,
                    "the verifier refuses instruction {instruction} for reason {reason}, which this version does not know"
                )
            }
            Self::Full { places } => {
                write!(
                    f,
                    "all {places} places are taken: remove a program, or wait for the requests of old versions"
                )
            }
            Self::Missing => f.write_str("no program is deployed under this op-code: list the deployed ones"),
            Self::Taken => f.write_str("a kernel that is compiled in has this op-code: choose another one"),
            Self::Unknown(kind) => write!(f, "outcome {kind}, which this version does not know"),
        }
    }
}

/// Encodes the parameters of `PROG_PUT` for the piece at `offset`; `None` if they do not fit.
pub fn encode_put<'b>(
    program: &[u8],
    offset: usize,
    length: usize,
    buffer: &'b mut [u8],
) -> Option<&'b [u8]> {
    let piece = program.get(offset..offset.checked_add(length)?)?;
    let put = PutBytes {
        total: u16::try_from(program.len()).ok()?.into(),
        offset: u16::try_from(offset).ok()?.into(),
    };
    let (head, rest) = buffer.split_at_mut_checked(size_of::<PutBytes>())?;
    head.copy_from_slice(put.as_bytes());
    rest.get_mut(..length)?.copy_from_slice(piece);
    buffer.get(..size_of::<PutBytes>() + length)
}

/// Encodes the parameters of `PROG_SET`.
pub fn encode_set(opcode: Opcode, digest: [u8; 32]) -> [u8; 40] {
    zerocopy::transmute!(SetBytes { opcode: opcode.0.into(), digest })
}

/// Decodes the list that follows the outcome in the answer to `PROG_LST`.
pub fn parse_list(rest: &[u8]) -> impl Iterator<Item = Deployed> {
    let (listed, _) = rest.as_chunks::<{ size_of::<ListedBytes>() }>();
    listed.iter().filter_map(|bytes| ListedBytes::ref_from_bytes(bytes).ok()).map(|raw| Deployed {
        opcode: Opcode(raw.opcode.get()),
        version: raw.version.get(),
        digest: raw.digest,
        instructions: raw.instructions.get().into(),
        running: raw.running.get(),
        current: raw.current != 0,
    })
}

/// The answer to a deployment request.
#[derive(Debug, Clone, Copy)]
pub struct ControlResponse {
    bytes: [u8; MAX_RESPONSE],
    length: usize,
}

impl ControlResponse {
    fn new(outcome: ControlOutcome) -> Self {
        let mut response = Self { bytes: [0; MAX_RESPONSE], length: 0 };
        response.push(outcome.bytes().as_bytes());
        if let Some(value) = outcome.value() {
            response.push(&value.to_be_bytes());
        }
        response
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(bytes);
            self.length = end;
        }
    }

    fn version(result: Result<u64, StoreError>) -> Self {
        match result {
            Ok(version) => {
                let mut response = Self::new(ControlOutcome::Done);
                response.push(&version.to_be_bytes());
                response
            }
            Err(error) => Self::new(error.into()),
        }
    }

    /// The bytes of the answer.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

/// A program that one connection at a time uploads piece by piece.
pub(super) struct Upload {
    bytes: [u8; MAX_BYTES],
    /// Its total length in bytes, and the bytes uploaded so far.
    total: usize,
    received: usize,
    by: u16,
}

impl Upload {
    pub(super) const NONE: Self = Self { bytes: [0; MAX_BYTES], total: 0, received: 0, by: 0 };

    fn put(&mut self, caller: Caller, parameters: &[u8]) -> Result<ControlOutcome, Status> {
        let (put, piece) = PutBytes::ref_from_prefix(parameters).map_err(|_| Status::BadParameters)?;
        let (total, offset) = (usize::from(put.total.get()), usize::from(put.offset.get()));
        if total > MAX_BYTES || piece.is_empty() {
            return Err(Status::BadParameters);
        }
        if offset == 0 {
            (self.total, self.received, self.by) = (total, 0, caller.connection);
        }
        let end = offset + piece.len();
        let fits = self.by == caller.connection && self.received == offset && self.total == total;
        match self.bytes.get_mut(offset..end) {
            Some(place) if fits && end <= total => {
                place.copy_from_slice(piece);
                self.received = end;
                Ok(ControlOutcome::Done)
            }
            _ => Ok(ControlOutcome::Gap { expected: self.received as u32 }),
        }
    }

    /// The uploaded program, if it is complete and has this digest.
    fn take(&mut self, caller: Caller, digest: &[u8; 32]) -> Result<Program, ControlOutcome> {
        let whole = self.by == caller.connection && self.total > 0 && self.received == self.total;
        let not_it = ControlOutcome::Digest { bytes: self.received as u32 };
        if !whole {
            return Err(not_it);
        }
        let program =
            Program::verify(self.bytes.get(..self.total).unwrap_or(&[])).map_err(ControlOutcome::Refused)?;
        if program.digest() != *digest {
            return Err(not_it);
        }
        (self.total, self.received) = (0, 0);
        Ok(program)
    }
}

/// Whether the op-code is a deployment request.
pub const fn is_control(opcode: Opcode) -> bool {
    matches!(opcode, PUT | SET | REMOVE | LIST)
}

/// A deployment request.
pub(super) struct ControlCall<'a> {
    pub(super) caller: Caller,
    pub(super) opcode: Opcode,
    pub(super) parameters: &'a [u8],
}

/// Executes a deployment request. `taken` says which op-codes no program may have.
pub(super) fn obey<const PLACES: usize, E: Engine>(
    store: &mut ProgramStore<PLACES, E>,
    upload: &mut Upload,
    call: &ControlCall<'_>,
    taken: impl Fn(Opcode) -> bool,
) -> Result<ControlResponse, Status> {
    let ControlCall { caller, opcode, parameters } = *call;
    if !caller.may_deploy {
        return Err(Status::NotAllowed);
    }
    let number =
        || U64::ref_from_bytes(parameters).map(|number| number.get()).map_err(|_| Status::BadParameters);
    match opcode {
        PUT => upload.put(caller, parameters).map(ControlResponse::new),
        SET => {
            let set = SetBytes::ref_from_bytes(parameters).map_err(|_| Status::BadParameters)?;
            let target = Opcode(set.opcode.get());
            if is_control(target) || taken(target) {
                return Ok(ControlResponse::new(ControlOutcome::Taken));
            }
            Ok(match upload.take(caller, &set.digest) {
                Ok(program) => ControlResponse::version(store.deploy(target, program)),
                Err(outcome) => ControlResponse::new(outcome),
            })
        }
        REMOVE => Ok(ControlResponse::version(store.remove(Opcode(number()?)))),
        _ => Ok(list(store, number()?)),
    }
}

/// Versions from `first` on, in their order.
fn list<const PLACES: usize, E: Engine>(store: &ProgramStore<PLACES, E>, first: u64) -> ControlResponse {
    let mut response = ControlResponse::new(ControlOutcome::Done);
    let mut least = first;
    for _ in 0..LISTED {
        let from_here = store.list().filter(|deployed| deployed.version >= least);
        let Some(next) = from_here.min_by_key(|deployed| deployed.version) else { break };
        let listed = ListedBytes {
            opcode: next.opcode.0.into(),
            version: next.version.into(),
            digest: next.digest,
            instructions: (next.instructions as u16).into(),
            running: next.running.into(),
            current: next.current.into(),
            reserved: 0,
        };
        response.push(listed.as_bytes());
        least = next.version + 1;
    }
    response
}
