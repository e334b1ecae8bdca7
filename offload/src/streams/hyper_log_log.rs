//! Counts the distinct values of a passing stream: HyperLogLog (Flajolet et al., 2007), StRoM's kernel of that name.
//!
//! A sketch of `M` registers takes a few kilobytes however long the stream is; its standard error is 1.04/√M. Sketches
//! of several nodes are merged by the maximum of each register; the result equals that of one node that has seen all
//! streams. The estimator is that of Ertl (2017, "New cardinality estimation algorithms for HyperLogLog sketches"),
//! which has no thresholds between small and large counts.

use super::{StreamFault, StreamKernel, StreamWrite, Tap};
use crate::grant::{Grant, Writable};

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// A sketch of `M` registers: a power of two from 16 to 65,536. Values have eight bytes.
///
/// ```
/// use bareverbs_offload::streams::hyper_log_log::Sketch;
///
/// let (mut here, mut there) = (Sketch::<4096>::new(), Sketch::<4096>::new());
/// (0..60_000_u64).for_each(|value| here.add(value));
/// (40_000..100_000_u64).for_each(|value| there.add(value));
/// here.merge(&there);
/// assert!((95_000.0..105_000.0).contains(&here.estimate()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch<const M: usize> {
    registers: [u8; M],
}

impl<const M: usize> Default for Sketch<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const M: usize> Sketch<M> {
    const SIZE: () =
        assert!(M.is_power_of_two() && M >= 16 && M <= 1 << 16, "a power of two from 16 to 65,536");
    /// Bits of a hash that choose the register.
    const CHOICE: u32 = M.trailing_zeros();
    /// The greatest value of a register: all other bits of the hash are zero.
    const TOP: usize = (64 - Self::CHOICE) as usize + 1;

    /// An empty sketch.
    pub const fn new() -> Self {
        let () = Self::SIZE;
        Self { registers: [0; M] }
    }

    /// The sketch with these registers, obtained from another node's [`Sketch::registers`]; `None` if no sketch can
    /// have them.
    pub fn from_registers(registers: &[u8]) -> Option<Self> {
        let () = Self::SIZE;
        let registers: [u8; M] = registers.try_into().ok()?;
        let possible = registers.iter().all(|register| usize::from(*register) <= Self::TOP);
        possible.then_some(Self { registers })
    }

    /// The registers, for sending to the node that merges.
    pub const fn registers(&self) -> &[u8; M] {
        &self.registers
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        let hash = mixed(value);
        let register = &mut self.registers[(hash >> (64 - Self::CHOICE)) as usize & (M - 1)];
        // The bit that is set here bounds the count.
        let rank = (hash << Self::CHOICE | 1 << (Self::CHOICE - 1)).leading_zeros() as u8 + 1;
        *register = rank.max(*register);
    }

    /// Merges `other` into this sketch, which then covers both streams.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            *own = (*own).max(*other);
        }
    }

    /// Estimated number of distinct values.
    pub fn estimate(&self) -> f64 {
        let mut counts = [0_u32; 65];
        for register in &self.registers {
            if let Some(count) = counts.get_mut(usize::from(*register)) {
                *count += 1;
            }
        }
        let registers = M as f64;
        let share = |rank: usize| f64::from(counts.get(rank).copied().unwrap_or_default()) / registers;
        let mut sum = registers * tau(1.0 - share(Self::TOP));
        for rank in (1..Self::TOP).rev() {
            sum = 0.5 * (sum + registers * share(rank));
        }
        ALPHA * registers * registers / (sum + registers * sigma(share(0)))
    }
}

/// A bijection that leaves no pattern in the bits (the finaliser of SplitMix64). Different values have different hashes.
const fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// x + Σ x^(2^k) 2^(k-1): the contribution of registers that are still zero. Infinite if all are.
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// (1 - x - Σ (1 - x^(2^-k))² 2^-k) / 3: the contribution of registers that cannot rise any more.
fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut root, mut weight, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = square_root(root);
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// The square root of a number from 0 to 1, by Newton's method: `core` has no square root.
fn square_root(number: f64) -> f64 {
    let mut root = 1.0;
    for _ in 0..64 {
        root = 0.5 * (root + number / root);
    }
    root
}

/// Counts the distinct values of eight bytes in bytes that come in pieces of any length.
///
/// ```
/// use bareverbs_offload::streams::Tap;
/// use bareverbs_offload::streams::hyper_log_log::ValueCounter;
///
/// let mut counter = ValueCounter::<64>::new();
/// counter.see(&[7; 12]);
/// counter.see(&[7; 4]);
/// assert_eq!(counter.sketch().estimate().round(), 1.0); // the same value twice
/// assert_eq!(counter.begun(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueCounter<const M: usize> {
    sketch: Sketch<M>,
    /// The beginning of a value whose rest has not arrived.
    begun: [u8; 8],
    begun_bytes: usize,
}

impl<const M: usize> Default for ValueCounter<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const M: usize> ValueCounter<M> {
    /// A counter that has seen nothing.
    pub const fn new() -> Self {
        Self { sketch: Sketch::new(), begun: [0; 8], begun_bytes: 0 }
    }

    /// The sketch so far.
    pub const fn sketch(&self) -> &Sketch<M> {
        &self.sketch
    }

    /// Bytes of a value that has not arrived whole.
    pub const fn begun(&self) -> usize {
        self.begun_bytes
    }

    /// Keeps a part of a value until the rest arrives.
    fn begin(&mut self, part: &[u8]) {
        self.begun[self.begun_bytes..][..part.len()].copy_from_slice(part);
        self.begun_bytes += part.len();
        if self.begun_bytes == 8 {
            self.sketch.add(u64::from_le_bytes(self.begun));
            self.begun_bytes = 0;
        }
    }
}

impl<const M: usize> Tap for ValueCounter<M> {
    fn see(&mut self, bytes: &[u8]) {
        let completing = if self.begun_bytes > 0 { (8 - self.begun_bytes).min(bytes.len()) } else { 0 };
        let (first, rest) = bytes.split_at(completing);
        self.begin(first);
        let (values, rest) = rest.as_chunks::<8>();
        values.iter().for_each(|value| self.sketch.add(u64::from_le_bytes(*value)));
        self.begin(rest);
    }
}

/// Writes of a [`CountingTap`] at a time.
const WRITES: usize = 8;

/// A piece of the stream that is being written or waits to be.
#[derive(Debug, Clone, Copy)]
struct Piece {
    to: Writable,
    /// First byte in the buffer.
    begin: usize,
    state: PieceState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceState {
    Waiting,
    HandedOut,
    Written,
}

impl Piece {
    const fn end(&self) -> usize {
        self.begin + self.to.range().length() as usize
    }
}

/// Passes a stream unchanged into a region while a sketch counts its values. Up to `BUFFER` bytes, in up to 8 writes,
/// are being written at a time.
///
/// ```
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::streams::StreamKernel;
/// use bareverbs_offload::streams::hyper_log_log::CountingTap;
///
/// let mut tap: CountingTap<64, 4096> = CountingTap::new(Grant::new(0x1000, 1 << 20)?.writable());
/// assert_eq!(tap.take(&[7; 16]), Ok(16));
/// assert_eq!(tap.poll_write().map(|write| write.bytes.len()), Some(16));
/// tap.write_done(0);
/// assert_eq!(tap.sketch().estimate().round(), 1.0); // the same value twice
/// # Ok::<(), bareverbs_offload::grant::GrantFault>(())
/// ```
#[derive(Debug, Clone)]
pub struct CountingTap<const M: usize, const BUFFER: usize> {
    counter: ValueCounter<M>,
    grant: Grant,
    /// Where the next piece is written, from the start of the region.
    next: u64,
    /// A ring: pieces lie in it in the order of the stream.
    buffer: [u8; BUFFER],
    pieces: [Option<Piece>; WRITES],
    /// The place of the oldest piece.
    oldest: usize,
    count: usize,
}

impl<const M: usize, const BUFFER: usize> CountingTap<M, BUFFER> {
    /// A stream that is written to the start of the region of `grant`.
    pub const fn new(grant: Grant) -> Self {
        Self {
            counter: ValueCounter::new(),
            grant,
            next: 0,
            buffer: [0; BUFFER],
            pieces: [None; WRITES],
            oldest: 0,
            count: 0,
        }
    }

    /// The sketch so far.
    pub const fn sketch(&self) -> &Sketch<M> {
        self.counter.sketch()
    }

    /// The piece that is the `nth` in the order of the stream, and its place.
    fn nth(&self, nth: usize) -> (usize, Option<Piece>) {
        let place = (self.oldest + nth) % WRITES;
        (place, self.pieces[place].filter(|_| nth < self.count))
    }

    /// The part of the buffer for the next piece. It is empty if there is no room.
    fn room(&self) -> core::ops::Range<usize> {
        let Some(oldest) = self.nth(0).1 else { return 0..BUFFER };
        let end = self.nth(self.count - 1).1.map_or(0, |newest| newest.end());
        match () {
            () if self.count == WRITES => 0..0,
            // The pieces do not wrap around, so what lies after them is free, and what lies before.
            () if end > oldest.begin && end < BUFFER => end..BUFFER,
            () if end > oldest.begin => 0..oldest.begin,
            () => end..oldest.begin,
        }
    }
}

impl<const M: usize, const BUFFER: usize> StreamKernel for CountingTap<M, BUFFER> {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, StreamFault> {
        let room = self.room();
        let length = bytes.len().min(room.len());
        if length == 0 {
            return Ok(0);
        }
        let offset = self.next;
        let to = self.grant.check_write(offset, length as u32).map_err(|_| StreamFault::Region { offset })?;
        let bytes = &bytes[..length];
        self.buffer[room.start..][..length].copy_from_slice(bytes);
        self.counter.see(bytes);
        let (place, _) = self.nth(self.count);
        self.pieces[place] = Some(Piece { to, begin: room.start, state: PieceState::Waiting });
        self.count += 1;
        self.next += length as u64;
        Ok(length)
    }

    fn finish(&mut self) -> Result<bool, StreamFault> {
        match self.counter.begun() {
            0 => Ok(true),
            bytes => Err(StreamFault::Incomplete { bytes }),
        }
    }

    fn poll_write(&mut self) -> Option<StreamWrite<'_>> {
        let waits = |piece: &Piece| piece.state == PieceState::Waiting;
        let (tag, piece) = (0..self.count).find_map(|nth| {
            let (place, piece) = self.nth(nth);
            Some((place, piece.filter(waits)?))
        })?;
        self.pieces[tag] = Some(Piece { state: PieceState::HandedOut, ..piece });
        Some(StreamWrite { tag, to: piece.to, bytes: self.buffer.get(piece.begin..piece.end())? })
    }

    fn write_done(&mut self, tag: usize) {
        let Some(Some(piece)) = self.pieces.get_mut(tag) else { return };
        if piece.state != PieceState::HandedOut {
            return;
        }
        piece.state = PieceState::Written;
        // Room comes back in the order of the stream.
        while self.nth(0).1.is_some_and(|piece| piece.state == PieceState::Written) {
            self.pieces[self.oldest] = None;
            self.oldest = (self.oldest + 1) % WRITES;
            self.count -= 1;
        }
        if self.count == 0 {
            self.oldest = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Distinct values, with another stream for each seed.
    fn values(seed: u64, count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |n| mixed(n ^ mixed(seed)).rotate_left(17))
    }

    /// The root mean square of the relative error over many streams.
    fn error<const M: usize>(count: u64, streams: u64) -> f64 {
        let squares: f64 = (0..streams)
            .map(|seed| {
                let mut sketch = Sketch::<M>::new();
                values(seed, count).for_each(|value| sketch.add(value));
                (sketch.estimate() / count as f64 - 1.0).powi(2)
            })
            .sum();
        (squares / streams as f64).sqrt()
    }

    /// The standard error is 1.04/√M; a sample of 200 streams lies within 20 % of it (four standard
    /// deviations).
    #[test]
    fn the_error_is_that_of_the_theory_for_small_counts_and_large() {
        for count in [10, 100, 1_000, 3_000, 20_000] {
            let (small, large) = (error::<64>(count, 200), error::<1024>(count, 200));
            assert!(small <= 1.2 * 1.04 / 8.0, "{count}: {small}");
            assert!(large <= 1.2 * 1.04 / 32.0, "{count}: {large}");
        }
        // It must not be better than the theory either: such a test would measure nothing.
        assert!(error::<64>(20_000, 200) > 0.8 * 1.04 / 8.0);
    }

    #[test]
    fn an_empty_sketch_estimates_zero_and_a_full_one_is_finite() {
        assert_eq!(Sketch::<16>::new().estimate(), 0.0);
        let top = [61; 16];
        let full = Sketch::<16>::from_registers(&top).expect("as far as they rise");
        assert!(full.estimate() > 1e18);
        let nearly = Sketch::<16>::from_registers(&[[61; 8], [60; 8]].concat()).expect("possible");
        assert!(nearly.estimate() > 1e17 && nearly.estimate() < full.estimate());
        assert_eq!(Sketch::<16>::from_registers(&[62; 16]), None);
        assert_eq!(Sketch::<16>::from_registers(&[0; 15]), None);
        assert!((square_root(0.25) - 0.5).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn merging_is_seeing_all_streams_in_any_order(
            streams in proptest::collection::vec(proptest::collection::vec(any::<u64>(), 0..200), 1..5),
        ) {
            let sketches: Vec<Sketch<64>> = streams
                .iter()
                .map(|stream| {
                    let mut sketch = Sketch::<64>::new();
                    stream.iter().for_each(|value| sketch.add(*value));
                    Sketch::<64>::from_registers(sketch.registers()).expect("its own")
                })
                .collect();
            let mut all = Sketch::new();
            streams.iter().rev().flatten().for_each(|value| all.add(*value));
            let merged = sketches.iter().fold(Sketch::new(), |mut merged, sketch| {
                merged.merge(sketch);
                merged
            });
            prop_assert_eq!(&merged, &all);
            let mut twice = merged.clone();
            twice.merge(&sketches[0]);
            prop_assert_eq!(twice, merged, "merging a sketch again changes nothing");
        }

        /// Writes end in any order.
        #[test]
        fn a_tap_copies_the_stream_and_counts_each_value_once(
            stream in proptest::collection::vec(any::<u64>(), 0..100),
            pieces in proptest::collection::vec((1_usize..50, any::<prop::sample::Index>()), 1..20),
        ) {
            let bytes: Vec<u8> = stream.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mut tap = CountingTap::<64, 32>::new(Grant::new(0, bytes.len() as u64).expect("no wrap").writable());
            let (mut region, mut at, mut refused) = (vec![0; bytes.len()], 0, 0);
            let mut under_way: Vec<(usize, usize, Vec<u8>)> = vec![];
            for (length, ends) in pieces.iter().cycle() {
                if at == bytes.len() && under_way.is_empty() {
                    break;
                }
                let end = bytes.len().min(at + length);
                let taken = tap.take(&bytes[at..end]).expect("in the region");
                refused += usize::from(taken < end - at);
                at += taken;
                while let Some(write) = tap.poll_write() {
                    under_way.push((write.tag, write.to.range().offset() as usize, write.bytes.to_vec()));
                }
                prop_assert!(under_way.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>() <= 32);
                if !under_way.is_empty() {
                    let (tag, to, bytes) = under_way.swap_remove(ends.index(under_way.len()));
                    region[to..to + bytes.len()].copy_from_slice(&bytes);
                    tap.write_done(tag);
                }
            }
            prop_assert_eq!(tap.finish(), Ok(true));
            prop_assert_eq!(&region, &bytes, "refused {} times", refused);
            let mut expected = Sketch::new();
            stream.iter().for_each(|value| expected.add(*value));
            prop_assert_eq!(tap.sketch(), &expected);
        }
    }

    #[test]
    fn a_tap_takes_no_more_than_its_buffer_holds_while_no_write_ends() {
        let mut tap = CountingTap::<16, 64>::new(Grant::new(0, 1 << 20).expect("no wrap").writable());
        assert_eq!([40, 40, 40].map(|length| tap.take(&vec![1; length])), [Ok(40), Ok(24), Ok(0)]);
        let tags = [(); 2].map(|()| tap.poll_write().expect("taken").tag);
        tap.write_done(tags[1]);
        assert_eq!(tap.take(&[1; 8]), Ok(0), "the older piece lies before it");
        tap.write_done(tags[0]);
        // The buffer is a ring: what is free lies before a piece that is being written.
        let tag = {
            assert_eq!([40, 1, 40].map(|length| tap.take(&vec![1; length])), [Ok(40), Ok(1), Ok(23)]);
            tap.poll_write().expect("taken").tag
        };
        tap.write_done(tag);
        assert_eq!([16, 40, 1].map(|length| tap.take(&vec![1; length])), [Ok(16), Ok(24), Ok(0)]);
        while let Some(tag) = tap.poll_write().map(|write| write.tag) {
            tap.write_done(tag);
        }
        let taken: usize = (0..20).map(|_| tap.take(&[1]).expect("in the region")).sum();
        assert_eq!(taken, WRITES, "as many writes as it has places for");
    }

    #[test]
    fn a_tap_writes_nothing_outside() {
        let mut tap = CountingTap::<16, 8>::new(Grant::new(0, 12).expect("no wrap").writable());
        assert_eq!(tap.take(&[1; 8]), Ok(8));
        assert_eq!(tap.take(&[1; 8]), Ok(0), "the first is not written");
        tap.write_done(0);
        assert_eq!(tap.take(&[1; 8]), Ok(0), "a write that was not handed out cannot complete");
        assert_eq!(tap.poll_write().map(|write| write.bytes.len()), Some(8));
        tap.write_done(0);
        assert_eq!(tap.take(&[1; 8]), Err(StreamFault::Region { offset: 8 }));
        assert_eq!(tap.take(&[1; 4]), Ok(4));
        assert_eq!(tap.finish(), Err(StreamFault::Incomplete { bytes: 4 }));
        let mut tap = CountingTap::<16, 64>::new(Grant::new(0, 12).expect("no wrap"));
        assert_eq!(tap.take(&[1]), Err(StreamFault::Region { offset: 0 }), "the grant is read-only");
    }
}
