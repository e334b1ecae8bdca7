//! Bytes that show where they came from, and whether they arrived.
//!
//! Every end fills its buffer with a pattern that depends on the end, the queue pair and the offset. So we
//! know what a peer of ours should have written, sent or read; we do not know what perftest sends.

use super::bench::Bench;
use super::payload::Payload;
use super::plan::{Amount, Operation, TestPlan};
use anyhow::Result;
use bareverbs_core::hal::Hal;
use bareverbs_perftest::payload::mix;

/// The content of memory before the peer writes there.
const UNTOUCHED: u8 = 0xee;
/// Bytes of an atomic word.
const WORD: usize = 8;
/// Bytes that are compared at a time.
const PIECE: usize = 1 << 16;

/// The result of comparing the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DataCheck {
    /// Bytes whose value was known and that were compared.
    pub(crate) compared: u64,
    /// How many of them had another value.
    pub(crate) wrong: u64,
}

/// A pattern: that of an end's queue pair, or the payload that both ends have agreed on.
#[derive(Debug, Clone, Copy)]
struct Pattern<'a> {
    number: u32,
    payload: Option<&'a Payload>,
}

impl<'a> Pattern<'a> {
    const fn of(plan: &'a TestPlan, is_client: bool, lane: usize) -> Self {
        let number = ((is_client as u32) << 24) | (lane as u32 + 1);
        Self { number, payload: plan.run.payload.as_ref() }
    }

    fn bytes(self, offset: usize, length: usize) -> Vec<u8> {
        (offset..offset + length).map(|at| self.byte(at)).collect()
    }

    fn byte(self, at: usize) -> u8 {
        match self.payload {
            Some(payload) => payload.byte(at),
            None => mix((at / 4) as u32 ^ self.number.rotate_left(8)).to_le_bytes()[at % 4],
        }
    }
}

/// Fills the buffer of an end.
pub(crate) fn fill<H: Hal>(plan: &TestPlan, is_client: bool, bench: &Bench<'_, H>) -> Result<()> {
    for lane in 0..bench.count() {
        let (given, taken) = match plan.operation.fetches() {
            true => (bench.receive_at(lane), bench.send_at(lane)),
            false => (bench.send_at(lane), bench.receive_at(lane)),
        };
        let pattern = Pattern::of(plan, is_client, lane);
        for begin in (0..plan.room()).step_by(PIECE) {
            let length = PIECE.min(plan.room() - begin);
            bench.memory.copy_in(given + begin, &pattern.bytes(begin, length))?;
        }
        bench.memory.fill(taken, plan.room(), UNTOUCHED)?;
    }
    Ok(())
}

/// Restores the byte into which a latency test wrote the number of a message.
pub(crate) fn restore<H: Hal>(
    plan: &TestPlan,
    size: u32,
    is_client: bool,
    bench: &Bench<'_, H>,
) -> Result<()> {
    if plan.numbers_messages() {
        let last = size as usize - 1;
        bench.memory.copy_in(bench.send_at(0) + last, &[Pattern::of(plan, is_client, 0).byte(last)])?;
    }
    Ok(())
}

/// Compares the peer's data as far as this end can see them, after all sizes.
pub(crate) fn check<H: Hal>(plan: &TestPlan, is_client: bool, bench: &Bench<'_, H>) -> Result<DataCheck> {
    if plan.operation.is_atomic() {
        return check_words(plan, is_client, bench);
    }
    let sees = match plan.operation {
        Operation::Read => plan.sends(is_client),
        Operation::Send => plan.receives(is_client),
        _ => plan.sends(!is_client),
    };
    let mut found = DataCheck::default();
    for lane in (0..bench.count()).filter(|_| sees) {
        let place = match plan.operation {
            Operation::Read => bench.send_at(lane),
            _ => bench.receive_at(lane),
        };
        for begin in (0..plan.room()).step_by(PIECE) {
            let length = PIECE.min(plan.room() - begin);
            let mut bytes = vec![0; length];
            bench.memory.copy_out(place + begin, &mut bytes)?;
            compare(plan, &senders(plan, is_client, lane), begin, &bytes, &mut found);
        }
    }
    Ok(found)
}

/// The possible senders of messages in a slot: the opposite queue pair, or any one with a shared receive
/// queue.
fn senders(plan: &TestPlan, is_client: bool, lane: usize) -> Vec<Pattern<'_>> {
    let lanes = if plan.shared_receives { 0..plan.queue_pairs as usize } else { lane..lane + 1 };
    lanes.map(|lane| Pattern::of(plan, !is_client, lane)).collect()
}

/// Bytes covered by a message hold the pattern, and all others are untouched. In a test by time it is not
/// known which are covered.
fn compare(plan: &TestPlan, senders: &[Pattern<'_>], begin: usize, bytes: &[u8], found: &mut DataCheck) {
    let numbers = plan.numbers_messages();
    for (at, byte) in (begin..).zip(bytes) {
        // The last byte of a message holds its number.
        if numbers && plan.sizes.iter().any(|size| at + 1 == *size as usize) {
            continue;
        }
        let holds = senders.iter().any(|pattern| *byte == pattern.byte(at));
        let good = match (is_covered(plan, at), plan.amount) {
            (true, Amount::Iterations(_)) => holds,
            (true, Amount::Time { .. }) => holds || *byte == UNTOUCHED,
            (false, _) => *byte == UNTOUCHED,
        };
        found.compared += 1;
        found.wrong += u64::from(!good);
    }
}

/// Whether a message of any size covers this byte of its slot.
fn is_covered(plan: &TestPlan, at: usize) -> bool {
    let count_of = |plan: &TestPlan| match plan.amount {
        Amount::Iterations(count) => count,
        Amount::Time { .. } => u64::MAX,
    };
    let count = count_of(plan).max(plan.of_warm_up().as_ref().map_or(0, count_of));
    plan.sizes.iter().any(|&size| {
        let used = u64::from(plan.slots(size)).min(count);
        let step = (size.max(1) as usize).next_multiple_of(super::plan::CACHE_LINE as usize);
        let (slot, within) = (at / step, at % step);
        if plan.slots(size) == 1 {
            at < size as usize
        } else {
            (slot as u64) < used && within < size as usize
        }
    })
}

/// How many of `count` messages use one of the slots, which take turns.
const fn times_of(count: u64, slots: u64, slot: u64) -> u64 {
    count / slots + (slot < count % slots) as u64
}

/// Checks that the server's words have grown by the number of additions. Compare-and-swap leaves a word
/// unchanged, unless it was zero.
fn check_words<H: Hal>(plan: &TestPlan, is_client: bool, bench: &Bench<'_, H>) -> Result<DataCheck> {
    let (Amount::Iterations(count), true) = (plan.amount, plan.sends(!is_client)) else {
        return Ok(DataCheck::default());
    };
    let mut found = DataCheck::default();
    for lane in 0..bench.count() {
        let pattern = Pattern::of(plan, is_client, lane);
        let slots = u64::from(plan.slots(WORD as u32));
        // Slots that only a warm-up has used are not checked.
        for slot in 0..slots.min(count) {
            let at = plan.slot(WORD as u32, slot);
            let was = pattern.bytes(at, WORD).iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            let warm_up = plan.of_warm_up().map_or(0, |warm_up| match warm_up.amount {
                Amount::Iterations(count) => times_of(count, slots, slot),
                Amount::Time { .. } => 0,
            });
            let times = warm_up + times_of(count, slots, slot);
            let expected = match plan.operation {
                Operation::FetchAdd => u64::wrapping_add(was, times),
                _ if was == 0 => 1,
                _ => was,
            };
            let is = bench.memory.load_u64(bench.receive_at(lane) + at)?;
            found.compared += WORD as u64;
            found.wrong += WORD as u64 * u64::from(u64::from_le(is) != expected);
        }
    }
    Ok(found)
}
