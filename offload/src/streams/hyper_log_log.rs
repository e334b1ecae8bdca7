//! Counts the distinct values of a passing stream: HyperLogLog (Flajolet et al., 2007), StRoM's kernel of that name.
//!
//! A sketch of `M` registers takes a few kilobytes however long the stream is; its standard error is 1.04/√M. Sketches
//! of several nodes are merged by the maximum of each register; the result equals that of one node that has seen all
//! streams. The estimator is that of Ertl (2017, "New cardinality estimation algorithms for HyperLogLog sketches"),
//! which has no thresholds between small and large counts.

use super::{StreamFault, StreamKernel, StreamWrite};
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

/// Passes a stream unchanged into a region while a sketch counts its values. Each piece is written before the next is
/// taken.
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
pub struct CountingTap<const M: usize, const PIECE: usize> {
    sketch: Sketch<M>,
    grant: Grant,
    /// Where the next piece is written, from the start of the region.
    next: u64,
    piece: [u8; PIECE],
    length: usize,
    pending: Option<(Writable, bool)>,
    begun: [u8; 8],
    begun_bytes: usize,
}

impl<const M: usize, const PIECE: usize> CountingTap<M, PIECE> {
    /// A stream that is written to the start of the region of `grant`.
    pub const fn new(grant: Grant) -> Self {
        Self {
            sketch: Sketch::new(),
            grant,
            next: 0,
            piece: [0; PIECE],
            length: 0,
            pending: None,
            begun: [0; 8],
            begun_bytes: 0,
        }
    }

    /// The sketch so far.
    pub const fn sketch(&self) -> &Sketch<M> {
        &self.sketch
    }

    fn see(&mut self, bytes: &[u8]) {
        let completing = if self.begun_bytes > 0 { (8 - self.begun_bytes).min(bytes.len()) } else { 0 };
        let (first, rest) = bytes.split_at(completing);
        self.begin(first);
        let (values, rest) = rest.as_chunks::<8>();
        values.iter().for_each(|value| self.sketch.add(u64::from_le_bytes(*value)));
        self.begin(rest);
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

impl<const M: usize, const PIECE: usize> StreamKernel for CountingTap<M, PIECE> {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, StreamFault> {
        let length = bytes.len().min(PIECE);
        if self.pending.is_some() || length == 0 {
            return Ok(0);
        }
        let offset = self.next;
        let to = self.grant.check_write(offset, length as u32).map_err(|_| StreamFault::Region { offset })?;
        let bytes = &bytes[..length];
        self.piece[..length].copy_from_slice(bytes);
        self.see(bytes);
        (self.length, self.pending) = (length, Some((to, false)));
        self.next += length as u64;
        Ok(length)
    }

    fn finish(&mut self) -> Result<bool, StreamFault> {
        match self.begun_bytes {
            0 => Ok(true),
            bytes => Err(StreamFault::Incomplete { bytes }),
        }
    }

    fn poll_write(&mut self) -> Option<StreamWrite<'_>> {
        let (to, handed_out) = self.pending.as_mut().filter(|(_, handed_out)| !handed_out)?;
        *handed_out = true;
        Some(StreamWrite { tag: 0, to: *to, bytes: self.piece.get(..self.length)? })
    }

    fn write_done(&mut self, _tag: usize) {
        self.pending = self.pending.filter(|(_, handed_out)| !handed_out);
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

        #[test]
        fn a_tap_copies_the_stream_and_counts_each_value_once(
            stream in proptest::collection::vec(any::<u64>(), 0..100),
            pieces in proptest::collection::vec(1_usize..50, 1..20),
        ) {
            let bytes: Vec<u8> = stream.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mut tap = CountingTap::<64, 32>::new(Grant::new(0, bytes.len() as u64).expect("no wrap").writable());
            let (mut region, mut at) = (vec![0; bytes.len()], 0);
            for length in pieces.iter().cycle() {
                let end = bytes.len().min(at + length);
                at += tap.take(&bytes[at..end]).expect("room");
                if end > 0 {
                    prop_assert_eq!(tap.take(&[1]), Ok(0), "the piece before is not written");
                }
                while let Some(write) = tap.poll_write() {
                    region[write.to.range().offset() as usize..][..write.bytes.len()].copy_from_slice(write.bytes);
                    tap.write_done(0);
                }
                if at == bytes.len() {
                    break;
                }
            }
            prop_assert_eq!(tap.finish(), Ok(true));
            prop_assert_eq!(&region, &bytes);
            let mut expected = Sketch::new();
            stream.iter().for_each(|value| expected.add(*value));
            prop_assert_eq!(tap.sketch(), &expected);
        }
    }

    #[test]
    fn a_tap_writes_nothing_outside() {
        let mut tap = CountingTap::<16, 64>::new(Grant::new(0, 12).expect("no wrap").writable());
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
