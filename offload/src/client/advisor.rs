//! Chooses the way to take – READs, a kernel, or a processor of the server – from measurements, request by request.
//!
//! Each way has an estimate of its time for each class of lookups: the number of elements to read and the length of
//! the value. It begins as a guess ([`Prior`]) and follows the measurements, so it covers load, retries and queues
//! without modelling them. Now and then a lookup goes to a way that does not look best; otherwise a way that has
//! become faster would never be noticed. A way that looks three times as slow as the best is tried eight times less
//! often, one that looks nearly as fast four times more often. A measurement counts as at most 1.5 times the estimate:
//! a lost frame costs a timer, a thousand times a lookup, on any way, and says nothing about the way.
//!
//! Pure: the caller passes the time. There is no division; a measurement costs an addition and a shift.

use bareverbs_prm::time::Duration;

/// Classes by the number of elements: 1, 2, 3 to 4, 5 to 8 and so on.
const CHAINS: usize = 8;
/// Classes by the length of the value: up to 64 bytes, up to 256 and so on, four times the previous.
const SIZES: usize = 7;
/// A measurement moves an estimate by one part in 2 to this power.
const WEIGHT: u32 = 3;
/// Once in this many lookups of a class, a way other than the best is tried; a power of two.
const TRY_EVERY: u32 = 128;
/// The same for ways that seem three times as slow.
const TRY_SLOW_EVERY: u32 = 1024;
/// The same for ways that seem at most half as slow again.
const TRY_CLOSE_EVERY: u32 = 32;

/// A way to get a lookup answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// RDMA READs, one for each element.
    Read = 0,
    /// A kernel near the data.
    Kernel = 1,
    /// A processor of the server.
    Cpu = 2,
}

impl Choice {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Kernel, Self::Cpu];
}

/// A lookup, as far as it is known in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupSize {
    /// Elements to be read, the value included.
    pub elements: u16,
    /// Bytes of the value.
    pub bytes: u32,
}

impl LookupSize {
    const fn class(self) -> (usize, usize) {
        let elements = if self.elements < 2 { 0 } else { (self.elements - 1).ilog2() as usize + 1 };
        let bytes = if self.bytes <= 64 { 0 } else { ((self.bytes - 1) >> 6).ilog2() as usize / 2 + 1 };
        (if elements < CHAINS { elements } else { CHAINS - 1 }, if bytes < SIZES { bytes } else { SIZES - 1 })
    }
}

/// The assumed cost of a way before any measurement. The preset of `bareverbs advise` prints some.
///
/// ```
/// use bareverbs_offload::client::advisor::{LookupSize, Prior};
/// use bareverbs_prm::time::Duration;
///
/// let micros = Duration::from_micros;
/// let kernel = Prior { fixed: micros(7), per_element: micros(2), ..Prior::default() };
/// assert_eq!(kernel.time(LookupSize { elements: 4, bytes: 64 }), micros(15));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prior {
    /// Per lookup.
    pub fixed: Duration,
    /// Per element.
    pub per_element: Duration,
    /// Per byte of the value.
    pub per_byte: Duration,
}

impl Prior {
    /// The time that a lookup takes.
    pub fn time(&self, lookup: LookupSize) -> Duration {
        self.fixed
            + self.per_element.saturating_mul(lookup.elements.into())
            + self.per_byte.saturating_mul(lookup.bytes.into())
    }
}

/// What is known about one way for one class.
#[derive(Debug, Clone, Copy, Default)]
struct Estimate {
    /// Picoseconds, or zero before anything was measured.
    measured: u64,
}

/// Chooses a way and learns from its measured time.
///
/// ```
/// use bareverbs_offload::client::advisor::{Advisor, Choice, Prior, LookupSize};
/// use bareverbs_prm::time::Duration;
///
/// let micros = Duration::from_micros;
/// let prior = |fixed, per_element| Prior { fixed: micros(fixed), per_element: micros(per_element), per_byte: Duration::ZERO };
/// // READs cost 4 µs an element, a kernel 7 µs and 2 µs an element; nobody answers on the processor.
/// let mut advisor = Advisor::new([Some(prior(0, 4)), Some(prior(7, 2)), None]);
/// let (short, long) = (LookupSize { elements: 2, bytes: 64 }, LookupSize { elements: 16, bytes: 64 });
/// assert_eq!((advisor.choose(short), advisor.choose(long)), (Choice::Read, Choice::Kernel));
/// // The DPU is busy: its answers take longer than READs.
/// (0..40).for_each(|_| advisor.learn(long, Choice::Kernel, micros(90)));
/// assert_eq!(advisor.choose(long), Choice::Read);
/// ```
#[derive(Debug, Clone)]
pub struct Advisor {
    priors: [Option<Prior>; 3],
    estimates: [[[Estimate; 3]; SIZES]; CHAINS],
    /// Lookups of each class.
    asked: [[u32; SIZES]; CHAINS],
}

impl Advisor {
    /// An advisor without measurements. A way without a prior is unavailable. If all are, the answer is READ.
    pub const fn new(priors: [Option<Prior>; 3]) -> Self {
        Self {
            priors,
            estimates: [[[Estimate { measured: 0 }; 3]; SIZES]; CHAINS],
            asked: [[0; SIZES]; CHAINS],
        }
    }

    /// Expected time of a lookup on an available way.
    pub fn expected(&self, lookup: LookupSize, choice: Choice) -> Option<Duration> {
        let prior = self.priors[choice as usize]?;
        let (chain, size) = lookup.class();
        match self.estimates[chain][size][choice as usize].measured {
            0 => Some(prior.time(lookup)),
            measured => Some(Duration::from_picos(measured)),
        }
    }

    /// Chooses the way for this lookup.
    pub fn choose(&mut self, lookup: LookupSize) -> Choice {
        let (chain, size) = lookup.class();
        let asked = self.asked[chain][size].wrapping_add(1);
        self.asked[chain][size] = asked;
        let Some((best, time)) = self.best(lookup) else { return Choice::Read };
        let others = Choice::ALL.into_iter().filter(|choice| *choice != best);
        let due = others.enumerate().find(|(number, choice)| {
            let Some(expected) = self.expected(lookup, *choice) else { return false };
            let every = match expected {
                slow if slow > time.saturating_mul(3) => TRY_SLOW_EVERY,
                close if close.saturating_mul(2) < time.saturating_mul(3) => TRY_CLOSE_EVERY,
                _ => TRY_EVERY,
            };
            // Each of the other ways has its own turn.
            asked & (every - 1) == every / 2 + *number as u32
        });
        due.map_or(best, |(_, choice)| choice)
    }

    /// The way that looks best and its expected time; `None` if none is available.
    pub fn best(&self, lookup: LookupSize) -> Option<(Choice, Duration)> {
        let expected =
            Choice::ALL.into_iter().filter_map(|choice| Some((choice, self.expected(lookup, choice)?)));
        expected.min_by_key(|(_, time)| *time)
    }

    /// Records the measured time of a choice. `lookup` states the number of elements that it really took.
    pub fn learn(&mut self, lookup: LookupSize, choice: Choice, time: Duration) {
        let (chain, size) = lookup.class();
        let expected = self.expected(lookup, choice).unwrap_or_default().as_picos();
        let most = if expected == 0 { u64::MAX } else { expected.saturating_add(expected >> 1) };
        let estimate = &mut self.estimates[chain][size][choice as usize].measured;
        let time = time.as_picos().clamp(1, most.max(1));
        *estimate = match *estimate {
            0 => time,
            before => before.saturating_sub(before >> WEIGHT).saturating_add(time >> WEIGHT).max(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ordered_and_none_is_left_out() {
        let class = |elements, bytes| LookupSize { elements, bytes }.class();
        let chains = [0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 65, u16::MAX].map(|elements| class(elements, 0).0);
        assert_eq!(chains, [0, 0, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 7]);
        let sizes =
            [0, 64, 65, 256, 257, 1024, 4096, 16_384, 65_536, u32::MAX].map(|bytes| class(1, bytes).1);
        assert_eq!(sizes, [0, 0, 1, 1, 2, 2, 3, 4, 5, 6]);
    }

    /// A place: R, B and D for 64 bytes in nanoseconds, as in docs/offload.md, and the cost of a byte.
    #[derive(Clone, Copy)]
    struct Truth {
        read: u64,
        fixed: u64,
        hop: u64,
        byte_picos: u64,
    }

    const PLACES: [Truth; 3] = [
        Truth { read: 6_080, fixed: 4_970, hop: 1_110, byte_picos: 1_100 },
        Truth { read: 4_140, fixed: 3_140, hop: 1_000, byte_picos: 160 },
        Truth { read: 3_600, fixed: 6_800, hop: 2_000, byte_picos: 80 },
    ];

    impl Truth {
        fn priors(&self, percent: u64) -> [Option<Prior>; 3] {
            let nanos = |n: u64| Duration::from_nanos(n * percent / 100);
            let per_byte = Duration::from_picos(self.byte_picos);
            let prior = |fixed, per_element| Some(Prior { fixed, per_element, per_byte });
            [
                prior(Duration::ZERO, Duration::from_nanos(self.read)),
                prior(nanos(self.fixed), nanos(self.hop)),
                prior(nanos(5_000), nanos(100)),
            ]
        }

        /// How long each way takes when the DPU is loaded to `load` percent and `retries` percent of the
        /// reads are repeated. A core of the server has the DPU's load; it serves a request in 2 µs plus some
        /// time for each element.
        fn times(&self, lookup: LookupSize, load: u64, retries: u64) -> [u64; 3] {
            let elements = u64::from(lookup.elements);
            let bytes = u64::from(lookup.bytes) * self.byte_picos / 1_000;
            let again = |time: u64| time * (100 + retries) / 100;
            let queue = |service: u64| service * load / (2 * (100 - load));
            let kernel = again(self.hop * elements);
            [
                again(self.read * elements) + bytes,
                self.fixed + kernel + bytes + queue(kernel),
                5_000 + 100 * elements + bytes + 4 * queue(2_000 + 100 * elements),
            ]
        }
    }

    /// A pseudorandom sequence.
    fn noise(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *state >> 33
    }

    /// The mean time of 600 lookups after the first 100, divided by that of the best way.
    fn regret(truth: &Truth, lookup: LookupSize, times: [u64; 3], state: &mut u64) -> f64 {
        // The priors are wrong by a quarter, in either direction.
        let mut advisor = Advisor::new(truth.priors(75 + 50 * (noise(state) % 2)));
        let best = *times.iter().min().expect("three ways") as f64;
        let mut spent = 0.0;
        for asked in 0..700 {
            let choice = advisor.choose(lookup);
            let time = times[choice as usize];
            if asked >= 100 {
                spent += time as f64;
            }
            // A measurement is off by up to 20 %.
            let measured = time * (80 + noise(state) % 41) / 100;
            advisor.learn(lookup, choice, Duration::from_nanos(measured));
        }
        spent / 600.0 / best
    }

    /// One lookup in a hundred waits for a retransmission timer, whichever way it takes.
    #[test]
    fn occasional_retransmissions_do_not_change_the_choice() {
        let lookup = LookupSize { elements: 2, bytes: 64 };
        let prior = |micros| Some(Prior { fixed: Duration::from_micros(micros), ..Prior::default() });
        let mut total = 0;
        for seed in 1..50 {
            let mut state = seed;
            let mut advisor = Advisor::new([prior(12), prior(7), prior(6)]);
            let mut chosen = [0_u32; 3];
            for _ in 0..300 {
                let choice = advisor.choose(lookup);
                chosen[choice as usize] += 1;
                let lost = noise(&mut state).is_multiple_of(100);
                let nanos = [12_600, 7_400, 6_300][choice as usize] + if lost { 1_050_000 } else { 0 };
                advisor.learn(lookup, choice, Duration::from_nanos(nanos));
            }
            total += chosen[Choice::Cpu as usize];
        }
        // Three losses in quick succession turn the advisor away for a while.
        assert!(total > 49 * 280, "the fastest way was taken {total} times of {}", 49 * 300);
    }

    /// The grid: places, elements, sizes, load and retries.
    #[test]
    fn the_advice_is_within_ten_percent_of_the_best_way_at_95_of_100_points() {
        let (mut points, mut good, mut sum, mut state) = (0_u32, 0_u32, 0.0, 1);
        for truth in PLACES {
            for elements in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] {
                for bytes in [64, 512, 4_096, 16_384, 65_536] {
                    for (load, retries) in [(10, 0), (30, 5), (50, 0), (70, 20), (90, 0), (90, 20)] {
                        let lookup = LookupSize { elements, bytes };
                        let times = truth.times(lookup, load, retries);
                        let regret = regret(&truth, lookup, times, &mut state);
                        points += 1;
                        good += u32::from(regret <= 1.1);
                        sum += regret - 1.0;
                    }
                }
            }
        }
        let mean = sum / f64::from(points);
        assert!(good * 100 >= points * 95, "{good} of {points} points, mean regret {mean}");
        assert!(mean <= 0.05, "mean regret {mean}");
    }

    #[test]
    fn the_advisor_notices_a_faster_way_and_never_chooses_a_missing_one() {
        let prior = |micros| Some(Prior { fixed: Duration::from_micros(micros), ..Prior::default() });
        let lookup = LookupSize { elements: 4, bytes: 64 };
        let mut advisor = Advisor::new([prior(10), prior(14), None]);
        let mut kernels = 0;
        for _ in 0..2_000 {
            let choice = advisor.choose(lookup);
            assert_ne!(choice, Choice::Cpu);
            kernels += u32::from(choice == Choice::Kernel);
            advisor.learn(lookup, choice, Duration::from_micros(if choice == Choice::Read { 10 } else { 5 }));
        }
        assert!(kernels > 1_900, "{kernels}");
        assert_eq!(Advisor::new([None; 3]).choose(lookup), Choice::Read);
    }
}
