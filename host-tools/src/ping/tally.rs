//! The fates of the probes: answered, lost, answered twice, out of order.

use anyhow::Result;
use bareverbs_prm::time::{Duration, Time};
use hdrhistogram::Histogram;

/// Longest round trip in a histogram, in picoseconds: an hour.
const LONGEST: u64 = 3600 * 1_000_000_000_000;
/// Significant digits of a histogram.
const DIGITS: u8 = 3;

/// The state of a probe so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeState {
    UnderWay(Time),
    Answered,
}

/// The kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// The first to its probe, after this many picoseconds.
    First {
        picos: u64,
    },
    /// The first to its probe, but too late to count.
    Late {
        picos: u64,
    },
    Duplicate,
    /// To a probe that was never sent.
    Stray,
}

/// The counts.
#[derive(Debug)]
pub(super) struct ProbeTally {
    probes: Vec<ProbeState>,
    /// Time limit for an answer.
    timeout: Duration,
    /// Probes that were answered in time.
    pub(super) received: u64,
    /// Probes that were answered too late.
    pub(super) late: u64,
    pub(super) duplicates: u64,
    /// Answers that came after one to a later probe.
    pub(super) reordered: u64,
    pub(super) strays: u64,
    latest: Option<u64>,
    pub(super) round_trips: Histogram<u64>,
    sum: u128,
}

impl ProbeTally {
    pub(super) fn new(timeout: Duration) -> Result<Self> {
        let round_trips = Histogram::new_with_bounds(1, LONGEST, DIGITS)?;
        Ok(Self {
            probes: Vec::new(),
            timeout,
            received: 0,
            late: 0,
            duplicates: 0,
            reordered: 0,
            strays: 0,
            latest: None,
            round_trips,
            sum: 0,
        })
    }

    /// Records that the next probe leaves; returns its number.
    pub(super) fn send(&mut self, now: Time) -> u64 {
        self.probes.push(ProbeState::UnderWay(now));
        self.probes.len() as u64 - 1
    }

    /// Records an answer to probe `number`.
    pub(super) fn answer(&mut self, now: Time, number: u64) -> Reply {
        let reply = self.judge(now, number);
        match reply {
            Reply::Stray => self.strays += 1,
            Reply::Duplicate => self.duplicates += 1,
            Reply::Late { .. } => self.late += 1,
            Reply::First { picos } => {
                self.received += 1;
                self.round_trips.saturating_record(picos);
                self.sum += u128::from(picos);
            }
        }
        if matches!(reply, Reply::First { .. } | Reply::Late { .. }) {
            self.reordered += u64::from(self.latest.is_some_and(|latest| latest > number));
            self.latest = self.latest.max(Some(number));
        }
        reply
    }

    fn judge(&mut self, now: Time, number: u64) -> Reply {
        let place = usize::try_from(number).ok().and_then(|number| self.probes.get_mut(number));
        let Some(state) = place else { return Reply::Stray };
        match core::mem::replace(state, ProbeState::Answered) {
            ProbeState::Answered => Reply::Duplicate,
            ProbeState::UnderWay(sent) => {
                let trip = now.since(sent);
                let picos = trip.as_picos();
                if trip > self.timeout { Reply::Late { picos } } else { Reply::First { picos } }
            }
        }
    }

    pub(super) fn sent(&self) -> u64 {
        self.probes.len() as u64
    }

    pub(super) fn lost(&self) -> u64 {
        self.sent() - self.received
    }

    /// Mean round trip in picoseconds; zero if nothing was answered.
    pub(super) fn mean(&self) -> f64 {
        if self.received == 0 { 0.0 } else { self.sum as f64 / self.received as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn every_reply_is_classified() {
        let mut tally = ProbeTally::new(Duration::from_secs(1)).unwrap();
        for number in 0..4 {
            assert_eq!(tally.send(at(10 * number)), number);
        }
        assert_eq!(tally.answer(at(5), 0), Reply::First { picos: 5_000_000 });
        assert_eq!(tally.answer(at(6), 0), Reply::Duplicate);
        assert_eq!(tally.answer(at(40), 3), Reply::First { picos: 10_000_000 });
        assert_eq!(tally.answer(at(41), 1), Reply::First { picos: 31_000_000 });
        assert_eq!((tally.answer(at(42), 4), tally.answer(at(43), u64::MAX)), (Reply::Stray, Reply::Stray));
        let ProbeTally { received, duplicates, reordered, strays, .. } = tally;
        assert_eq!((tally.sent(), received, duplicates, reordered, strays, tally.lost()), (4, 3, 1, 1, 2, 1));
        assert!((tally.mean() - 46e6 / 3.0).abs() < 1.0);
    }

    #[test]
    fn a_late_reply_leaves_its_probe_lost() {
        let mut tally = ProbeTally::new(Duration::from_micros(10)).unwrap();
        (0..2).for_each(|number| assert_eq!(tally.send(at(number)), number));
        assert_eq!(tally.answer(at(11), 1), Reply::First { picos: 10_000_000 });
        assert_eq!(tally.answer(at(11), 0), Reply::Late { picos: 11_000_000 });
        assert_eq!(tally.answer(at(12), 0), Reply::Duplicate);
        let ProbeTally { received, late, duplicates, reordered, .. } = tally;
        assert_eq!((received, late, duplicates, reordered, tally.lost()), (1, 1, 1, 1, 1));
        assert_eq!(tally.round_trips.len(), 1, "a lost probe has no round-trip time");
    }

    #[test]
    fn no_round_trip_without_replies() {
        let tally = ProbeTally::new(Duration::from_secs(1)).unwrap();
        assert_eq!((tally.lost(), tally.mean()), (0, 0.0));
    }
}
