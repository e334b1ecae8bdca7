//! A long mix of all operations, many in flight at a time. Each has its own memory, which is checked when it
//! completes.

use super::ends::Ends;
use super::operations::pattern;
use anyhow::{Context, Result, ensure};
use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Operations in flight at a time, each with its own slot of memory.
const SLOTS: usize = 16;
/// Bytes of a slot, on either side.
const SLOT: usize = 8192;
/// Longest operation: more than two packets.
const LONGEST: usize = 2500;
/// Where a slot of end A has results, and where a slot of end B has its received bytes and its atomic.
const RESULT: usize = 4096;
const ATOMIC: usize = 8184;

/// The kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MixOperation {
    Send,
    SendImmediate,
    SendInline,
    SendPieces,
    Write,
    WriteImmediate,
    WriteInline,
    WritePieces,
    Read,
    CompareSwap,
    FetchAdd,
}

const MIX: [MixOperation; 11] = [
    MixOperation::Send,
    MixOperation::SendImmediate,
    MixOperation::SendInline,
    MixOperation::SendPieces,
    MixOperation::Write,
    MixOperation::WriteImmediate,
    MixOperation::WriteInline,
    MixOperation::WritePieces,
    MixOperation::Read,
    MixOperation::CompareSwap,
    MixOperation::FetchAdd,
];

impl MixOperation {
    fn is_inline(self) -> bool {
        matches!(self, Self::SendInline | Self::WriteInline)
    }

    /// Whether it takes a receive of the other end.
    fn takes_receive(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImmediate | Self::SendInline | Self::SendPieces | Self::WriteImmediate
        )
    }

    fn has_immediate(self) -> bool {
        matches!(self, Self::SendImmediate | Self::WriteImmediate)
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }
}

/// One operation of a batch.
#[derive(Debug, Clone)]
struct Operation {
    kind: MixOperation,
    slot: usize,
    id: u64,
    bytes: Vec<u8>,
    /// The number that is compared or added, and the value of the atomic before.
    operand: u64,
    before: u64,
}

struct Mix {
    random: ChaCha8Rng,
    /// The expected value of each slot's atomic.
    atomics: [u64; SLOTS],
    counts: [u64; MIX.len()],
}

/// Runs this many operations and returns how many there were of each kind.
pub(super) fn run<H: Hal>(ends: &mut Ends<H>, operations: u64, seed: u64) -> Result<String> {
    let mut mix =
        Mix { random: ChaCha8Rng::seed_from_u64(seed), atomics: [0; SLOTS], counts: [0; MIX.len()] };
    for slot in 0..SLOTS {
        ends.b.memory.store_u64(slot * SLOT + ATOMIC, 0)?;
    }
    let mut done = 0;
    while done < operations {
        let count = (operations - done).min(SLOTS as u64);
        let batch: Vec<Operation> = (0..count).map(|at| mix.draw(at as usize, done + at)).collect();
        one_batch(ends, &batch).with_context(|| format!("seed {seed}, operations from {done} on"))?;
        done += count;
    }
    let counts = MIX.iter().zip(mix.counts).map(|(kind, count)| format!("{kind:?} {count}"));
    Ok(format!("{done} verified: {}", counts.collect::<Vec<_>>().join(", ")))
}

impl Mix {
    fn draw(&mut self, slot: usize, id: u64) -> Operation {
        let which = self.random.next_u32() as usize % MIX.len();
        let kind = MIX[which];
        self.counts[which] += 1;
        let long = self.random.next_u32().is_multiple_of(8) && !kind.is_inline();
        let limit = if long { LONGEST } else { 90 };
        let length = 1 + self.random.next_u32() as usize % limit;
        let bytes = pattern(length, id as usize);
        let before = self.atomics[slot];
        // Every other comparison fails.
        let operand = before + u64::from(kind == MixOperation::CompareSwap && id % 2 == 1);
        match kind {
            MixOperation::FetchAdd => self.atomics[slot] = before.wrapping_add(operand | 1),
            MixOperation::CompareSwap if operand == before => self.atomics[slot] = id,
            _ => {}
        }
        let operand = if kind == MixOperation::FetchAdd { operand | 1 } else { operand };
        Operation { kind, slot, id, bytes, operand, before }
    }
}

fn one_batch<H: Hal>(ends: &mut Ends<H>, batch: &[Operation]) -> Result<()> {
    batch.iter().try_for_each(|operation| prepare(ends, operation))?;
    ends.b.device.hal().barrier(Barrier::ToDevice);
    post_receives(ends, batch)?;
    post_sends(ends, batch)?;
    for operation in batch {
        let done = ends.sent().with_context(|| format!("{:?} {}", operation.kind, operation.id))?;
        ensure!(done.wr_id == operation.id, "completion {} instead of {}", done.wr_id, operation.id);
    }
    for operation in batch.iter().filter(|operation| operation.kind.takes_receive()) {
        let received = ends.received().with_context(|| format!("{:?} {}", operation.kind, operation.id))?;
        let immediate = operation.kind.has_immediate().then_some(operation.id as u32);
        let wanted = (operation.id, operation.bytes.len(), immediate);
        let seen = (received.wr_id, received.byte_count as usize, received.immediate);
        ensure!(seen == wanted, "received {seen:?} instead of {wanted:?}");
    }
    ends.b.device.hal().barrier(Barrier::FromDevice);
    batch.iter().try_for_each(|operation| verify(ends, operation))
}

/// Fills the source of the operation, and fills its destination with different bytes.
fn prepare<H: Hal>(ends: &Ends<H>, operation: &Operation) -> Result<()> {
    let (base, length) = (operation.slot * SLOT, operation.bytes.len());
    match operation.kind {
        MixOperation::Read => {
            ends.b.memory.copy_in(base, &operation.bytes)?;
            ends.a.memory.fill(base + RESULT, length, 0xee)?;
        }
        kind if kind.is_atomic() => ends.a.memory.store_u64(base + RESULT, u64::MAX)?,
        kind => {
            ends.a.memory.copy_in(base, &operation.bytes)?;
            ends.b.memory.fill(base + if is_send(kind) { RESULT } else { 0 }, length, 0xee)?;
        }
    }
    Ok(())
}

fn is_send(kind: MixOperation) -> bool {
    kind.takes_receive() && kind != MixOperation::WriteImmediate
}

fn post_receives<H: Hal>(ends: &mut Ends<H>, batch: &[Operation]) -> Result<()> {
    let side = &mut ends.b;
    let mut receives = side.queue_pair.receive_batch();
    for operation in batch.iter().filter(|operation| operation.kind.takes_receive()) {
        let base = operation.slot * SLOT + RESULT;
        let (first, rest) = (side.memory.slice(base, 40)?, side.memory.slice(base + 40, LONGEST)?);
        let pieces = [first, rest];
        let list = if is_send(operation.kind) { &pieces[..] } else { &[] };
        receives.post(&ReceiveRequest::new(operation.id, list))?;
    }
    receives.ring();
    Ok(())
}

fn post_sends<H: Hal>(ends: &mut Ends<H>, batch: &[Operation]) -> Result<()> {
    let (memory, there) = (&ends.a.memory, &ends.b.memory);
    let mut sends = ends.a.queue_pair.send_batch();
    for operation in batch {
        let Operation { kind, slot, id, ref bytes, operand, .. } = *operation;
        let (base, length) = (slot * SLOT, bytes.len());
        let whole = [memory.slice(base, length)?];
        let half = length / 2;
        let pieces = [memory.slice(base, half)?, memory.slice(base + half, length - half)?];
        let pieces = if half == 0 { &pieces[1..] } else { &pieces[..] };
        let result = [memory.slice(base + RESULT, length)?];
        let old = [memory.slice(base + RESULT, 8)?];
        let (target, atomic) = (there.remote(base as u64), there.remote((base + ATOMIC) as u64));
        let request = match kind {
            MixOperation::Send => WorkRequest::send(id, &whole),
            MixOperation::SendImmediate => WorkRequest::send(id, &whole).immediate(id as u32),
            MixOperation::SendInline => WorkRequest::send_inline(id, bytes),
            MixOperation::SendPieces => WorkRequest::send(id, pieces),
            MixOperation::Write => WorkRequest::write(id, &whole, target),
            MixOperation::WriteImmediate => WorkRequest::write(id, &whole, target).immediate(id as u32),
            MixOperation::WriteInline => WorkRequest::write_inline(id, bytes, target),
            MixOperation::WritePieces => WorkRequest::write(id, pieces, target),
            MixOperation::Read => WorkRequest::read(id, &result, target),
            MixOperation::CompareSwap => WorkRequest::compare_swap(id, &old, atomic, operand, id),
            MixOperation::FetchAdd => WorkRequest::fetch_add(id, &old, atomic, operand),
        };
        sends.post(&request)?;
    }
    sends.ring();
    Ok(())
}

/// Checks that the bytes are where they should be.
fn verify<H: Hal>(ends: &Ends<H>, operation: &Operation) -> Result<()> {
    let Operation { kind, slot, id, ref bytes, operand, before } = *operation;
    let base = slot * SLOT;
    if kind.is_atomic() {
        let after = match kind {
            MixOperation::FetchAdd => before.wrapping_add(operand),
            _ if operand == before => id,
            _ => before,
        };
        let seen = (ends.a.memory.load_u64(base + RESULT)?, ends.b.memory.load_u64(base + ATOMIC)?);
        ensure!(seen == (before, after), "{kind:?} {id}: {seen:?} instead of {:?}", (before, after));
        return Ok(());
    }
    let found = match kind {
        MixOperation::Read => ends.a.bytes(base + RESULT, bytes.len())?,
        kind if is_send(kind) => ends.b.bytes(base + RESULT, bytes.len())?,
        _ => ends.b.bytes(base, bytes.len())?,
    };
    ensure!(found == *bytes, "{kind:?} {id}: {} bytes are not what was sent", bytes.len());
    Ok(())
}
