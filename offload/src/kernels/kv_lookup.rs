//! Looks one key up in the remote hash table: line, candidates, object, next line.
//!
//! The same state machine runs on the cores of a DPU, in the NIC, and in a client that reads with RDMA READ;
//! only the one who fetches differs. Everything that was read is checked before it is used (see
//! [`super::kv_layout`]). After a torn read the lookup starts again from the first line, because the line
//! before may be outdated and the memory may have been reused.
//!
//! A lookup needs no extra request in a table that has grown: the first line of a moved chain names the new
//! lines, and the lookup continues there.

use super::kv_layout::{
    LINE_SIZE, Line, MAX_KEY, MAX_OBJECT, ObjectRef, SLOTS, Torn, bucket_of, chain_of, parse_object,
};
use crate::grant::{Checked, Grant};
use crate::kernel::{Emission, Kernel, Opcode, Status, Step};
use bareverbs_prm::mutation::mutated;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The parameters of a lookup: the hash of the key, where the table lies in the region, and the key itself.
///
/// ```
/// use bareverbs_offload::kernels::kv_layout::hash_key;
/// use bareverbs_offload::kernels::kv_lookup::{MAX_PARAMETERS, Parameters};
///
/// let key = b"user:4711";
/// let parameters = Parameters { hash: hash_key(&[3; 16], key), lines: 64, buckets: 1024, key };
/// let mut buffer = [0; MAX_PARAMETERS];
/// let bytes = parameters.encode(&mut buffer).unwrap();
/// assert_eq!(Parameters::parse(bytes), Ok(parameters));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// [`super::kv_layout::hash_key`] of the key.
    pub hash: u64,
    /// Offset of the first bucket line.
    pub lines: u64,
    /// Number of buckets.
    pub buckets: u32,
    /// The key, 1 to 64 bytes.
    pub key: &'a [u8],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ParameterBytes {
    hash: U64,
    lines: U64,
    buckets: U32,
    key_length: U16,
    reserved: U16,
}

/// Bytes of the parameters before the key.
const FIXED: usize = size_of::<ParameterBytes>();
/// Most bytes that the parameters of a lookup take.
pub const MAX_PARAMETERS: usize = FIXED + MAX_KEY;

impl<'a> Parameters<'a> {
    /// Decodes parameters; refuses anything but exactly one key of a table with buckets.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Status> {
        let (fixed, key) = ParameterBytes::ref_from_prefix(bytes).map_err(|_| Status::BadParameters)?;
        let exact = key.len() == usize::from(fixed.key_length.get()) && fixed.reserved == U16::ZERO;
        if !exact || key.is_empty() || key.len() > MAX_KEY || fixed.buckets == U32::ZERO {
            return Err(Status::BadParameters);
        }
        Ok(Self { hash: fixed.hash.get(), lines: fixed.lines.get(), buckets: fixed.buckets.get(), key })
    }

    /// Writes the parameters to `buffer` and returns their bytes; `None` if key or buffer have the wrong size.
    pub fn encode<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        if self.key.is_empty() || self.key.len() > MAX_KEY {
            return None;
        }
        let bytes = buffer.get_mut(..FIXED + self.key.len())?;
        let fixed = ParameterBytes {
            hash: self.hash.into(),
            lines: self.lines.into(),
            buckets: self.buckets.into(),
            key_length: (self.key.len() as u16).into(),
            reserved: U16::ZERO,
        };
        bytes[..FIXED].copy_from_slice(fixed.as_bytes());
        bytes[FIXED..].copy_from_slice(self.key);
        Some(bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Line,
    Object,
}

/// One lookup in progress.
#[derive(Debug, Clone)]
pub struct KvLookup {
    hash: u64,
    /// The first line of the chain.
    head: Checked,
    chain: u32,
    buckets: u32,
    next: u64,
    candidates: [ObjectRef; SLOTS],
    waiting: Waiting,
    key_length: u8,
    key: [u8; MAX_KEY],
}

impl Kernel for KvLookup {
    /// "KVLOOKUP" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"KVLOOKUP"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let parameters = Parameters::parse(parameters)?;
        let mut lookup = Self::without_key(&parameters, grant)?;
        let step = lookup.begin(parameters.key);
        Ok((lookup, step))
    }

    #[inline]
    fn start_in<'p>(
        parameters: &[u8],
        grant: &Grant,
        put: impl FnOnce(Self) -> &'p mut Self,
    ) -> Result<Step, Status> {
        let parameters = Parameters::parse(parameters)?;
        Ok(put(Self::without_key(&parameters, grant)?).begin(parameters.key))
    }

    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        match self.waiting {
            Waiting::Line => self.take_line(bytes, grant),
            Waiting::Object => self.take_object(bytes, grant),
        }
    }
}

impl KvLookup {
    /// A lookup whose key is still missing.
    #[inline]
    fn without_key(parameters: &Parameters<'_>, grant: &Grant) -> Result<Self, Status> {
        let Parameters { hash, lines, buckets, .. } = *parameters;
        let (head, chain) = head_of(hash, lines, buckets, grant)?;
        Ok(Self {
            hash,
            head,
            chain,
            buckets,
            next: 0,
            candidates: [ObjectRef::NONE; SLOTS],
            waiting: Waiting::Line,
            key_length: 0,
            key: [0; MAX_KEY],
        })
    }

    /// Asks for the first line. The key has at most [`MAX_KEY`] bytes.
    #[inline]
    fn begin(&mut self, key: &[u8]) -> Step {
        self.key_length = key.len() as u8;
        self.key[..key.len()].copy_from_slice(key);
        Step::Fetch(self.head)
    }

    fn key(&self) -> &[u8] {
        &self.key[..usize::from(self.key_length)]
    }

    fn take_line(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        match Line::parse(bytes, self.chain) {
            Ok(line) => match line.moved_to() {
                Some(lines) => self.follow(lines, grant),
                None => {
                    self.remember(&line);
                    self.advance(grant)
                }
            },
            Err(Torn::Changing) => self.again(Status::Busy),
            Err(Torn::Mismatch) => self.again(Status::Inconsistent),
        }
    }

    /// Continues in the lines of the table that this one has grown to.
    fn follow(&mut self, lines: u64, grant: &Grant) -> Step {
        let Some(buckets) = self.buckets.checked_mul(2) else { return Step::Done(Status::OutOfBounds) };
        match head_of(self.hash, lines, buckets, grant) {
            Ok((head, chain)) => {
                (self.head, self.chain, self.buckets) = (head, chain, buckets);
                Step::Fetch(head)
            }
            Err(status) => Step::Done(status),
        }
    }

    fn remember(&mut self, line: &Line) {
        self.next = line.next;
        let hash = self.hash;
        self.candidates =
            line.slots.map(|slot| if slot.fingerprint == hash { slot.object } else { ObjectRef::NONE });
    }

    fn take_object(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        match parse_object(bytes) {
            // If the object does not match its reference, it was replaced after the line was read.
            Ok(object) if object.hash != self.hash && !mutated("replaced_is_collision") => {
                self.again(Status::Inconsistent)
            }
            Ok(object) if object.key == self.key() => Step::Emit(Emission {
                offset: object.value_offset,
                length: object.value.len() as u32,
                version: object.version,
            }),
            Ok(_another_key_with_this_hash) => self.advance(grant),
            Err(_) => self.again(Status::Inconsistent),
        }
    }

    /// Starts again with the first line.
    fn again(&mut self, otherwise: Status) -> Step {
        self.waiting = Waiting::Line;
        Step::Refetch { range: self.head, otherwise }
    }

    /// Goes to the next candidate of this line, or to the next line, or ends.
    fn advance(&mut self, grant: &Grant) -> Step {
        if let Some(candidate) = self.candidates.iter_mut().find(|object| !object.is_none()) {
            let object = core::mem::take(candidate);
            return self.fetch_object(object, grant);
        }
        if self.next == 0 {
            return Step::Done(Status::NotFound);
        }
        match check_line(self.next, grant) {
            Ok(line) => {
                self.waiting = Waiting::Line;
                Step::Fetch(line)
            }
            Err(status) => Step::Done(status),
        }
    }

    fn fetch_object(&mut self, object: ObjectRef, grant: &Grant) -> Step {
        if object.size() > MAX_OBJECT {
            return Step::Done(Status::OutOfBounds);
        }
        match grant.check(object.offset(), object.size()) {
            Ok(range) => {
                self.waiting = Waiting::Object;
                Step::Fetch(range)
            }
            Err(fault) => Step::Done(fault.into()),
        }
    }
}

/// The first line of the chain of a hash, and the number of the chain.
fn head_of(hash: u64, lines: u64, buckets: u32, grant: &Grant) -> Result<(Checked, u32), Status> {
    let bucket = bucket_of(hash, buckets);
    let offset = lines.checked_add(u64::from(bucket) * u64::from(LINE_SIZE)).ok_or(Status::OutOfBounds)?;
    Ok((check_line(offset, grant)?, chain_of(bucket, buckets)))
}

/// A line must lie wholly in the region and be aligned, as every line of a writer is.
fn check_line(offset: u64, grant: &Grant) -> Result<Checked, Status> {
    if !offset.is_multiple_of(u64::from(LINE_SIZE)) {
        return Err(Status::OutOfBounds);
    }
    Ok(grant.check(offset, LINE_SIZE)?)
}

#[cfg(test)]
mod tests;
