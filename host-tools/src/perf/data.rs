//! Bytes that show where they came from, and whether they arrived.
//!
//! Every end fills its buffer with a pattern that depends on the end, the queue pair and the offset. So we
//! know what a peer of ours should have written, sent or read; we do not know what perftest sends.

use super::bench::Bench;
use super::payload::Payload;
use super::plan::{Amount, Operation, TestPlan, step_of};
use anyhow::Result;
use bareverbs_core::hal::Hal;
use bareverbs_perftest::payload::mix;
use core::cmp::Reverse;
use core::ops::Range;

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
        let all = offset..offset + length;
        match self.payload {
            Some(payload) => all.map(|at| payload.byte(at)).collect(),
            None => self.words(all),
        }
    }

    /// The bytes of a range, of which a word makes four.
    fn words(self, range: Range<usize>) -> Vec<u8> {
        let words = range.start / 4..range.end.div_ceil(4);
        let bytes: Vec<u8> = words.flat_map(|word| self.word(word)).collect();
        let before = range.start % 4;
        bytes[before..before + range.len()].to_vec()
    }

    fn word(self, index: usize) -> [u8; 4] {
        mix(index as u32 ^ self.number.rotate_left(8)).to_le_bytes()
    }

    fn byte(self, at: usize) -> u8 {
        match self.payload {
            Some(payload) => payload.byte(at),
            None => self.word(at / 4)[at % 4],
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
    let coverage = Coverage::of(plan);
    let held = bytes_held(senders, begin, bytes);
    for ((at, &byte), holds) in (begin..).zip(bytes).zip(held) {
        if coverage.is_number(at) {
            continue;
        }
        let good = match (coverage.contains(at), plan.amount) {
            (true, Amount::Iterations(_)) => holds,
            (true, Amount::Time { .. }) => holds || byte == UNTOUCHED,
            (false, _) => byte == UNTOUCHED,
        };
        found.compared += 1;
        found.wrong += u64::from(!good);
    }
}

/// Which bytes match the pattern of any sender. Only one pattern is in memory at a time, since a shared receive queue
/// may have thousands of senders.
fn bytes_held(senders: &[Pattern<'_>], begin: usize, bytes: &[u8]) -> Vec<bool> {
    let mut held = vec![false; bytes.len()];
    for sender in senders {
        let pattern = sender.bytes(begin, bytes.len());
        for ((held, byte), expected) in held.iter_mut().zip(bytes).zip(pattern) {
            *held |= *byte == expected;
        }
    }
    held
}

/// Messages of one size side by side: where the next one begins, and where the last one does not reach.
#[derive(Debug, Clone, Copy)]
struct MessageRow {
    size: usize,
    step: usize,
    end: usize,
}

/// The bytes of a slot that messages of any size cover.
#[derive(Debug)]
struct Coverage {
    /// The longest messages first, which cover most.
    rows: Vec<MessageRow>,
    /// Offsets of bytes that hold the number of a message.
    numbers: Vec<usize>,
}

impl Coverage {
    fn of(plan: &TestPlan) -> Self {
        let count_of = |plan: &TestPlan| match plan.amount {
            Amount::Iterations(count) => count,
            Amount::Time { .. } => u64::MAX,
        };
        let count = count_of(plan).max(plan.of_warm_up().as_ref().map_or(0, count_of));
        let row = |&size: &u32| {
            let step = step_of(size) as usize;
            let used = u64::from(plan.slots(size)).min(count) as usize;
            MessageRow { size: size as usize, step, end: used * step }
        };
        let mut rows: Vec<MessageRow> = plan.sizes.iter().map(row).collect();
        rows.sort_by_key(|row| Reverse(row.size));
        let last = |size: &u32| (*size as usize).checked_sub(1);
        let numbers = plan.sizes.iter().filter(|_| plan.numbers_messages()).filter_map(last).collect();
        Self { rows, numbers }
    }

    fn contains(&self, at: usize) -> bool {
        self.rows.iter().any(|row| at < row.end && at % row.step < row.size)
    }

    fn is_number(&self, at: usize) -> bool {
        self.numbers.contains(&at)
    }
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
