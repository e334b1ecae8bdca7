//! Cost model of a DMA engine: latency, bandwidth and operation rate.

use bareverbs_prm::time::{Duration, Time};

/// Cost of copies by one engine. Latencies of copies overlap; bandwidth and operation rate are shared.
///
/// ```
/// use bareverbs_prm::time::Duration;
/// use bareverbs_sim::run::DmaCost;
///
/// let cost = DmaCost { bytes_per_second: 16_000_000_000, ..DmaCost::latency(Duration::from_micros(1)) };
/// assert_eq!(cost.alone(4096), Duration::from_nanos(1_256));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaCost {
    /// Latency of a copy, without the time for its bytes.
    pub latency: Duration,
    /// Time that an operation occupies the engine, without its bytes: the reciprocal of the operation rate.
    pub per_operation: Duration,
    /// Bandwidth in bytes per second; zero means unlimited.
    pub bytes_per_second: u64,
}

impl DmaCost {
    /// Copies cost nothing.
    pub const FREE: Self =
        Self { latency: Duration::ZERO, per_operation: Duration::ZERO, bytes_per_second: 0 };

    /// Latency only.
    pub const fn latency(latency: Duration) -> Self {
        Self { latency, ..Self::FREE }
    }

    /// The engine of a BlueField: `D(s) = 1.6 µs + s / 26 GB/s`, the middle of the published range (1.3 to 2.0 µs). Its
    /// operation rates match a BlueField-2's within 10 % (smartnic-bench, OSDI 2023: 10.5, 6.8, 3.9, 1.5, 0.39 million
    /// per second at up to 256 B, 1, 4, 16, 64 KiB).
    pub const BLUEFIELD: Self = Self {
        latency: Duration::from_nanos(1_600),
        per_operation: Duration::from_nanos(95),
        bytes_per_second: 26_000_000_000,
    };

    /// Transfer time of the bytes alone.
    pub const fn transfer(&self, bytes: u64) -> Duration {
        match self.bytes_per_second {
            0 => Duration::ZERO,
            rate => {
                let picos = bytes as u128 * 1_000_000_000_000 / rate as u128;
                Duration::from_picos(if picos > u64::MAX as u128 { u64::MAX } else { picos as u64 })
            }
        }
    }

    /// Duration of a copy on an idle engine.
    pub const fn alone(&self, bytes: u64) -> Duration {
        self.latency.saturating_add(self.transfer(bytes))
    }
}

/// The schedule of one engine.
///
/// ```
/// use bareverbs_prm::time::{Duration, Time};
/// use bareverbs_sim::run::{DmaClock, DmaCost};
///
/// // Two copies of 1 µs each that share the bandwidth: the second one begins when the bytes of the first are through.
/// let cost = DmaCost { bytes_per_second: 16_000_000_000, ..DmaCost::latency(Duration::from_micros(1)) };
/// let mut engine = DmaClock::new(cost);
/// assert_eq!(engine.admit(Time::ZERO, 16_000), Time::ZERO + Duration::from_micros(2));
/// assert_eq!(engine.admit(Time::ZERO, 16_000), Time::ZERO + Duration::from_micros(3));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct DmaClock {
    cost: DmaCost,
    free_at: Time,
}

impl DmaClock {
    /// An idle engine.
    pub const fn new(cost: DmaCost) -> Self {
        Self { cost, free_at: Time::ZERO }
    }

    /// Admits a copy requested at `now` and returns when it ends. It starts once earlier copies leave the engine.
    pub fn admit(&mut self, now: Time, bytes: u64) -> Time {
        let start = now.max(self.free_at);
        self.free_at = start + self.cost.per_operation + self.cost.transfer(bytes);
        start + self.cost.alone(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations per second of a saturated engine.
    fn rate(bytes: u64) -> f64 {
        let mut clock = DmaClock::new(DmaCost::BLUEFIELD);
        let ends = (0..1_000).map(|_| clock.admit(Time::ZERO, bytes)).last().unwrap();
        let first = DmaCost::BLUEFIELD.alone(bytes);
        999.0 / ((ends - (Time::ZERO + first)).as_picos() as f64 * 1e-12)
    }

    #[test]
    fn a_bluefield_copies_as_often_as_was_measured() {
        for (bytes, measured) in
            [(256, 10.5e6), (1 << 10, 6.8e6), (4 << 10, 3.9e6), (16 << 10, 1.5e6), (64 << 10, 0.39e6)]
        {
            let error = rate(bytes) / measured - 1.0;
            assert!(
                error.abs() < 0.10,
                "{bytes} bytes: {:.3e} a second, {:+.1} %",
                rate(bytes),
                error * 100.0
            );
        }
    }

    #[test]
    fn a_copy_alone_takes_latency_and_bytes_and_a_second_one_waits_its_turn() {
        let mut clock = DmaClock::new(DmaCost::BLUEFIELD);
        let nanos = |time: Time| (time - Time::ZERO).as_picos() / 1_000;
        assert_eq!(nanos(clock.admit(Time::ZERO, 26_000)), 2_600);
        assert_eq!(nanos(clock.admit(Time::ZERO, 64)), 1_095 + 1_600 + 2);
        let later = Time::ZERO + Duration::from_micros(10);
        assert_eq!(nanos(clock.admit(later, 0)), 11_600, "an idle engine keeps nobody waiting");
    }

    #[test]
    fn a_free_engine_takes_no_time() {
        let mut clock = DmaClock::new(DmaCost::FREE);
        assert_eq!(clock.admit(Time::ZERO, u64::MAX), Time::ZERO);
    }
}
