//! Long-term limits of a connection's use of a DPU: tokens for requests, DMAs and bytes.
//!
//! Each kind is a token bucket in the form of the generic cell rate algorithm (ITU-T I.371): a single time represents
//! the level of the bucket, so there is nothing to refill and nothing to divide.

use bareverbs_prm::time::{Duration, Time};

/// What a connection may use. The default is unlimited.
///
/// ```
/// use bareverbs_offload::runtime::Allowance;
/// use bareverbs_prm::time::Duration;
///
/// // 100,000 requests per second, and up to 1 ms of them at once.
/// let allowance = Allowance {
///     per_request: Duration::from_micros(10),
///     burst: Duration::from_millis(1),
///     ..Allowance::UNLIMITED
/// };
/// assert_eq!(allowance.per_byte, Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowance {
    /// Time between two requests at the allowed rate, whatever their outcome.
    pub per_request: Duration,
    /// Time between two DMAs at the allowed rate.
    pub per_dma: Duration,
    /// Time per byte read, at the allowed rate.
    pub per_byte: Duration,
    /// How far ahead of its rate an idle connection may get. One request or DMA is always allowed then, however large.
    pub burst: Duration,
}

impl Allowance {
    /// No limit.
    pub const UNLIMITED: Self = Self {
        per_request: Duration::ZERO,
        per_dma: Duration::ZERO,
        per_byte: Duration::ZERO,
        burst: Duration::ZERO,
    };

    /// Whether anything costs tokens.
    fn limits(&self) -> bool {
        [self.per_request, self.per_dma, self.per_byte] != [Duration::ZERO; 3]
    }
}

/// A bucket, as the time when it will be full again.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    full_at: Time,
}

impl Bucket {
    /// When a token may be taken.
    const fn ready_at(&self, burst: Duration) -> Time {
        Time::from_picos(self.full_at.as_picos().saturating_sub(burst.as_picos()))
    }

    fn take(&mut self, now: Time, cost: Duration) {
        self.full_at = self.full_at.max(now) + cost;
    }
}

/// The buckets of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tokens {
    allowance: Allowance,
    /// Without limits, all buckets stay full and need no look.
    limited: bool,
    requests: Bucket,
    dmas: Bucket,
    bytes: Bucket,
}

impl Tokens {
    /// Full buckets.
    pub(super) fn new(allowance: Allowance) -> Self {
        Self { allowance, limited: allowance.limits(), ..Self::default() }
    }

    /// When the next request may be taken.
    pub(super) const fn request_at(&self) -> Time {
        self.requests.ready_at(self.allowance.burst)
    }

    #[inline]
    pub(super) fn take_request(&mut self, now: Time) {
        if self.limited {
            self.requests.take(now, self.allowance.per_request);
        }
    }

    /// When the next DMA may begin.
    #[inline]
    pub(super) fn dma_at(&self) -> Time {
        if !self.limited {
            return Time::ZERO;
        }
        let burst = self.allowance.burst;
        self.dmas.ready_at(burst).max(self.bytes.ready_at(burst))
    }

    #[inline]
    pub(super) fn take_dma(&mut self, now: Time, bytes: u32) {
        if self.limited {
            self.dmas.take(now, self.allowance.per_dma);
            self.bytes.take(now, self.allowance.per_byte.saturating_mul(bytes.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::ZERO + Duration::from_nanos(nanos)
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_its_rate() {
        let (per_request, burst) = (Duration::from_nanos(100), Duration::from_nanos(300));
        let mut tokens = Tokens::new(Allowance { per_request, burst, ..Allowance::UNLIMITED });
        let mut now = at(1_000);
        let begins: Vec<Time> = (0..8)
            .map(|_| {
                now = now.max(tokens.request_at());
                tokens.take_request(now);
                now
            })
            .collect();
        assert_eq!(begins, [1_000, 1_000, 1_000, 1_000, 1_100, 1_200, 1_300, 1_400].map(at));
        // An idle period fills the bucket, and no more than that.
        now = at(9_000);
        let mut at_once = 0;
        while tokens.request_at() <= now {
            tokens.take_request(now);
            at_once += 1;
        }
        assert_eq!(at_once, 4);
    }

    #[test]
    fn a_dma_larger_than_the_burst_passes_after_a_rest_and_is_paid_for() {
        let per_byte = Duration::from_picos(100);
        let burst = Duration::from_nanos(10);
        let mut tokens = Tokens::new(Allowance { per_byte, burst, ..Allowance::UNLIMITED });
        assert!(tokens.dma_at() <= at(0));
        tokens.take_dma(at(0), 65_536);
        assert_eq!(tokens.dma_at().as_picos(), 6_553_600 - 10_000);
    }

    #[test]
    fn a_new_connection_has_full_buckets() {
        let mut tokens = Tokens::new(Allowance::default());
        for _ in 0..1_000 {
            tokens.take_request(at(5));
            tokens.take_dma(at(5), u32::MAX);
        }
        assert_eq!((tokens.request_at(), tokens.dma_at()), (at(0), at(0)));
    }

    /// Each of the three kinds counts even if it is the only limit.
    #[test]
    fn one_limit_is_enough() {
        let cost = Duration::from_nanos(7);
        let kinds = [
            Allowance { per_request: cost, ..Allowance::UNLIMITED },
            Allowance { per_dma: cost, ..Allowance::UNLIMITED },
            Allowance { per_byte: cost, ..Allowance::UNLIMITED },
        ];
        let ready = kinds.map(|allowance| {
            let mut tokens = Tokens::new(allowance);
            tokens.take_request(at(5));
            tokens.take_dma(at(5), 2);
            (tokens.request_at(), tokens.dma_at())
        });
        assert_eq!(ready, [(at(12), at(5)), (at(5), at(12)), (at(5), at(19))]);
    }
}
