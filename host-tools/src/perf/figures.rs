//! Figures: bandwidth from the times of posts and completions, latency from the times between posts.

use super::clock::Clock;
use bareverbs_prm::time::{Duration, Time};
use hdrhistogram::Histogram;

/// The most pairs of a post and a completion that the search for the peak considers.
const MOST_PAIRS: u64 = 1 << 26;
/// Longest time in a histogram, in picoseconds: an hour.
const LONGEST: u64 = 3600 * 1_000_000_000_000;
/// Significant digits of a histogram.
const DIGITS: u8 = 3;
/// Reported percentiles.
pub(crate) const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

/// The log of a bandwidth test.
#[derive(Debug, Default)]
pub(crate) struct BandwidthLog {
    posted: Vec<Time>,
    /// Number of completed messages, with times.
    done: Vec<(u64, Time)>,
    first: Option<Time>,
    last: Option<Time>,
    /// Messages that count.
    counted: u64,
    wants_peak: bool,
    /// Whether the measurement begins with the first message, as at a receiver; that message then takes no
    /// time.
    begins_with_message: bool,
    /// When a receiver last polled without success before its first message.
    waited: Option<Time>,
}

/// Bandwidth of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bandwidth {
    pub(crate) size: u64,
    pub(crate) iterations: u64,
    /// Bytes per second over the best run of messages; zero if the peak was not searched for.
    pub(crate) peak: f64,
    /// Bytes per second.
    pub(crate) average: f64,
    /// Messages per second.
    pub(crate) messages: f64,
}

impl BandwidthLog {
    pub(crate) fn new(wants_peak: bool) -> Self {
        Self { wants_peak, ..Self::default() }
    }

    /// Records that `count` messages were posted.
    pub(crate) fn post(&mut self, now: Time, count: u64) {
        self.first.get_or_insert(now);
        if self.wants_peak {
            self.posted.extend((0..count).map(|_| now));
        }
    }

    /// Records that `count` messages have completed, `total` so far.
    pub(crate) fn complete(&mut self, now: Time, count: u64, total: u64, clock: &Clock) {
        self.first.get_or_insert(now);
        self.last = Some(now);
        if clock.counts(now) {
            self.counted += count;
        }
        if self.wants_peak {
            self.done.push((total, now));
        }
    }

    /// Records that a receiver has polled without success.
    pub(crate) const fn wait(&mut self, now: Time) {
        if self.first.is_none() {
            self.waited = Some(now);
        }
    }

    /// Records that a receiver got a message.
    pub(crate) fn receive(&mut self, now: Time, clock: &Clock) {
        self.begins_with_message = true;
        self.complete(now, 1, 0, clock);
    }

    /// The figures for messages of `size` bytes.
    pub(crate) fn finish(&self, size: u32, clock: &Clock) -> Bandwidth {
        let (timed, elapsed) = match clock.sample() {
            Some(sample) => (self.counted, sample),
            None => self.span(),
        };
        let messages = rate(timed, elapsed);
        let size_bytes = f64::from(size);
        Bandwidth {
            size: size.into(),
            iterations: self.counted,
            peak: self.peak() * size_bytes,
            average: messages * size_bytes,
            messages,
        }
    }

    /// The number of messages that the time is for, and the time.
    fn span(&self) -> (u64, Duration) {
        let (Some(first), Some(last)) = (self.first, self.last) else { return (0, Duration::ZERO) };
        match self.waited {
            // Messages that were all found at once have arrived since the last poll.
            Some(waited) if self.begins_with_message && first == last => (self.counted, last.since(waited)),
            _ => (self.counted - u64::from(self.begins_with_message).min(self.counted), last.since(first)),
        }
    }

    /// Messages per second in the fastest run, from the post of its first message to the completion of its
    /// last.
    fn peak(&self) -> f64 {
        let window = MOST_PAIRS / (self.done.len() as u64).max(1);
        let mut best = 0.0_f64;
        for &(total, now) in &self.done {
            let begin = total.saturating_sub(window);
            let posted = self.posted.get(begin as usize..total as usize).unwrap_or_default();
            for (index, &post) in posted.iter().enumerate() {
                best = best.max(rate(total - begin - index as u64, now.since(post)));
            }
        }
        best
    }
}

/// A rate per second; zero if no time has passed.
fn rate(count: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_picos() as f64 / 1e12;
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The log of a latency test.
#[derive(Debug)]
pub(crate) struct LatencyLog {
    histogram: Histogram<u64>,
    last: Option<Time>,
    /// The divisor from round trip to latency: 2 if a message goes each way.
    parts: u64,
    counted: u64,
    mean: f64,
    /// Sum of squared distances from the mean (Welford).
    squares: f64,
    shortest: u64,
    longest: u64,
    /// All samples in order, if they will be listed.
    samples: Option<Vec<u64>>,
}

/// Latency of one size. Times are in picoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Latency {
    pub(crate) size: u64,
    /// Round trips that count.
    pub(crate) iterations: u64,
    pub(crate) minimum: f64,
    pub(crate) maximum: f64,
    pub(crate) mean: f64,
    /// Standard deviation of all samples.
    pub(crate) deviation: f64,
    /// By percentile, in the order of [`PERCENTILES`].
    pub(crate) percentiles: [f64; 6],
    /// Round trips per second.
    pub(crate) rate: f64,
    pub(crate) histogram: Histogram<u64>,
    /// All samples in order, if they will be listed.
    pub(crate) samples: Option<Vec<u64>>,
}

impl LatencyLog {
    /// # Errors
    /// The histogram refuses its bounds, which does not happen.
    pub(crate) fn new(parts: u64, keeps_samples: bool) -> anyhow::Result<Self> {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS)?;
        Ok(Self {
            histogram,
            last: None,
            parts,
            counted: 0,
            mean: 0.0,
            squares: 0.0,
            shortest: u64::MAX,
            longest: 0,
            samples: keeps_samples.then(Vec::new),
        })
    }

    /// Records a post: the time since the previous one, without this end's pause, is a round trip.
    pub(crate) fn post(&mut self, now: Time, rest: Duration, clock: &Clock) {
        if let Some(last) = self.last.replace(now).filter(|_| clock.counts(now)) {
            self.sample(now.since(last).saturating_sub(rest).as_picos() / self.parts);
        }
    }

    fn sample(&mut self, picos: u64) {
        self.histogram.saturating_record(picos);
        self.samples.iter_mut().for_each(|samples| samples.push(picos));
        self.counted += 1;
        (self.shortest, self.longest) = (self.shortest.min(picos), self.longest.max(picos));
        let distance = picos as f64 - self.mean;
        self.mean += distance / self.counted as f64;
        self.squares += distance * (picos as f64 - self.mean);
    }

    pub(crate) fn finish(self, size: u32) -> Latency {
        let count = self.counted.max(1) as f64;
        let seconds = self.mean * self.parts as f64 * count / 1e12;
        let at = |percentile| self.histogram.value_at_percentile(percentile).min(self.longest) as f64;
        Latency {
            size: size.into(),
            iterations: self.counted,
            minimum: if self.counted == 0 { 0.0 } else { self.shortest as f64 },
            maximum: self.longest as f64,
            mean: self.mean,
            deviation: (self.squares / count).sqrt(),
            percentiles: PERCENTILES.map(at),
            rate: if seconds > 0.0 { count / seconds } else { 0.0 },
            histogram: self.histogram,
            samples: self.samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Amount;
    use super::*;

    const COUNTED: Clock = Clock::new(Amount::Iterations(4));

    fn at(micros: f64) -> Time {
        Time::ZERO + Duration::from_nanos((micros * 1000.0) as u64)
    }

    #[test]
    fn the_deviation_is_that_of_the_samples_and_the_maximum_is_one() {
        let mut log = LatencyLog::new(1, true).unwrap();
        // 1.6, 2.0, 2.4 µs: perftest reports a deviation of 0, because it truncates the distances to
        // integers.
        for time in [0.0, 1.6, 3.6, 6.0] {
            log.post(at(time), Duration::ZERO, &COUNTED);
        }
        let found = log.finish(2);
        assert_eq!((found.iterations, found.minimum, found.maximum), (3, 1.6e6, 2.4e6));
        assert!(
            (found.mean - 2.0e6).abs() < 1.0 && (found.deviation - 0.326_599e6).abs() < 10.0,
            "{found:?}"
        );
        assert_eq!(found.samples, Some(vec![1_600_000, 2_000_000, 2_400_000]));
        assert!((found.percentiles[0] - 2.0e6).abs() < 2e3 && found.percentiles[3] == 2.4e6, "{found:?}");
    }

    #[test]
    fn a_message_each_way_takes_half_the_round_trip() {
        let mut log = LatencyLog::new(2, false).unwrap();
        log.post(at(0.0), Duration::ZERO, &COUNTED);
        log.post(at(7.0), Duration::from_micros(4), &COUNTED);
        let found = log.finish(2);
        assert_eq!((found.mean, found.deviation, found.samples.is_none()), (1.5e6, 0.0, true));
        assert!((found.rate - 1e6 / 3.0).abs() < 1e-3);
    }

    #[test]
    fn a_log_without_samples_reports_zeros() {
        let found = LatencyLog::new(2, false).unwrap().finish(2);
        assert_eq!((found.iterations, found.minimum, found.maximum, found.rate), (0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn bandwidth_is_from_the_first_post_to_the_last_completion_and_the_peak_over_the_best_run() {
        let mut log = BandwidthLog::new(true);
        log.post(at(0.0), 2);
        log.complete(at(4.0), 1, 1, &COUNTED);
        log.complete(at(5.0), 1, 2, &COUNTED);
        log.post(at(8.0), 2);
        log.complete(at(10.0), 2, 4, &COUNTED);
        let found = log.finish(1000, &COUNTED);
        let near = |is: f64, wanted: f64| assert!((is / wanted - 1.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.iterations, 4);
        near(found.messages, 4e5);
        near(found.average, 4e8);
        // The last two took 2 µs.
        near(found.peak, 1e9);
    }

    #[test]
    fn a_receiver_measures_from_its_first_message_or_from_when_it_was_ready() {
        let received = |times: &[f64]| {
            let mut log = BandwidthLog::new(false);
            log.wait(at(1.0));
            log.wait(at(2.0));
            times.iter().for_each(|time| log.receive(at(*time), &COUNTED));
            log.wait(at(9.0));
            log.finish(10, &COUNTED)
        };
        let near = |found: Bandwidth, wanted: f64| {
            assert!((found.messages / wanted - 1.0).abs() < 1e-9, "{found:?}")
        };
        near(received(&[4.0, 5.0, 6.0]), 1e6);
        near(received(&[6.0, 6.0]), 5e5);
        assert_eq!(received(&[]).messages, 0.0);
    }

    #[test]
    fn a_timed_test_counts_only_messages_between_its_margins() {
        let (total, margin) = (Duration::from_micros(10), Duration::from_micros(2));
        let mut clock = Clock::new(Amount::Time { total, margin });
        clock.begin(at(0.0));
        let mut log = BandwidthLog::new(false);
        for done in 1..=10 {
            log.complete(at(done as f64), 1, done, &clock);
        }
        let found = log.finish(6, &clock);
        assert!(found.iterations == 6 && (found.average / 6e6 - 1.0).abs() < 1e-9, "{found:?}");
        assert!(clock.is_over(at(10.0)) && !clock.is_over(at(9.0)) && !clock.wants_more(at(10.0), 0));
    }
}
