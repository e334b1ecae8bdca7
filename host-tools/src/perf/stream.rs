//! The traffic of a bandwidth test at one end, as steps that never wait: both ends of a test in one world
//! take turns.

use super::bench::Bench;
use super::clock::Clock;
use super::figures::{Bandwidth, BandwidthLog};
use super::lane::Message;
use super::plan::{RateLimit, RateUnit, TestPlan};
use anyhow::{Result, ensure};
use bareverbs_core::hal::Hal;
use bareverbs_prm::time::{Duration, Time};

/// The progress of one queue pair.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    sent: u64,
    done: u64,
    received: u64,
    receives_posted: u64,
    /// Consumed receives that wait to be posted again in a list.
    to_post: u64,
}

/// One end of the traffic of one size.
pub(crate) struct Stream<'p> {
    plan: &'p TestPlan,
    size: u32,
    sends: bool,
    receives: bool,
    /// Whether this end waits for the client's first message before it sends: a server that sends as well.
    waits_for_first: bool,
    progress: Vec<Progress>,
    clock: Clock,
    log: BandwidthLog,
    pacer: Option<Pacer>,
    messages: Vec<Message>,
}

impl<'p> Stream<'p> {
    /// Posts the receives of messages of `size` bytes. The peer may send after this.
    pub(crate) fn prepare<H: Hal>(
        plan: &'p TestPlan,
        size: u32,
        is_client: bool,
        bench: &mut Bench<'_, H>,
    ) -> Result<Self> {
        let (sends, receives) = (plan.sends(is_client), plan.receives(is_client));
        let clock = Clock::new(plan.amount);
        let mut progress = vec![Progress::default(); bench.count()];
        for (lane, progress) in progress.iter_mut().enumerate().filter(|_| receives) {
            let wanted = clock.count().unwrap_or(u64::MAX).min(plan.receives_each().into());
            let list = u64::from(plan.run.receive_list);
            while progress.receives_posted < wanted {
                post_receives(plan, size, lane, progress.receives_posted, bench)?;
                progress.receives_posted += list;
            }
        }
        let waits_for_first = sends && receives && !is_client;
        let mut log = BandwidthLog::new(plan.peak && sends);
        if receives && !sends {
            // Messages may all be there when this end polls for the first time.
            log.wait(bench.device.hal().now());
        }
        let pacer = plan.rate_limit.map(|limit| Pacer::new(&limit, size));
        Ok(Self {
            plan,
            size,
            sends,
            receives,
            waits_for_first,
            progress,
            clock,
            log,
            pacer,
            messages: Vec::new(),
        })
    }

    /// Does everything that can be done now. Returns whether there was anything.
    pub(crate) fn step<H: Hal>(&mut self, bench: &mut Bench<'_, H>) -> Result<bool> {
        let now = bench.device.hal().now();
        if self.sends && !self.waits_for_first {
            self.clock.begin(now);
        }
        let mut busy = self.receives && self.take_receives(now, bench)?;
        busy |= self.sends && self.take_sends(now, bench)?;
        if self.sends && !self.waits_for_first {
            for lane in 0..self.progress.len() {
                busy |= self.send(lane, bench)?;
            }
        }
        Ok(busy)
    }

    /// Whether this end has finished its part.
    pub(crate) fn is_done(&self, now: Time) -> bool {
        if !self.sends && !self.receives {
            return true;
        }
        let Some(count) = self.clock.count() else { return self.clock.is_over(now) };
        let done = |progress: &Progress| {
            (!self.sends || progress.done >= count) && (!self.receives || progress.received >= count)
        };
        self.progress.iter().all(done)
    }

    /// The progress of this end, for the message if it stalls.
    pub(crate) fn state(&self) -> String {
        let sum = |part: fn(&Progress) -> u64| self.progress.iter().map(part).sum::<u64>();
        format!(
            "{} of its messages of {} bytes were posted, {} of them done; {} have arrived",
            sum(|progress| progress.sent),
            self.size,
            sum(|progress| progress.done),
            sum(|progress| progress.received)
        )
    }

    /// When the next burst may be sent.
    pub(crate) fn wakeup(&self) -> Option<Time> {
        self.pacer.map(|pacer| pacer.next)
    }

    /// The figures of this end.
    pub(crate) fn finish(&self) -> Bandwidth {
        self.log.finish(self.size, &self.clock)
    }

    /// The figures of the finished period; starts the next one.
    pub(crate) fn next_period(&mut self) -> Bandwidth {
        let period = self.finish();
        self.log = BandwidthLog::new(false);
        self.clock = Clock::new(self.plan.amount);
        period
    }

    fn take_sends<H: Hal>(&mut self, now: Time, bench: &mut Bench<'_, H>) -> Result<bool> {
        let Self { progress, log, clock, .. } = self;
        bench.take_sends(|lane, index, _| {
            let Some(own) = progress.get_mut(lane) else { return Ok(()) };
            let count = index.saturating_sub(own.done);
            own.done = index;
            let total = progress.iter().map(|progress| progress.done).sum();
            log.complete(now, count, total, clock);
            Ok(())
        })
    }

    fn take_receives<H: Hal>(&mut self, now: Time, bench: &mut Bench<'_, H>) -> Result<bool> {
        let Self { plan, size, sends, progress, log, clock, waits_for_first, .. } = self;
        let mut repost = Vec::new();
        let list = u64::from(plan.run.receive_list);
        let busy = bench.take_receives(|lane, index, bytes| {
            let Some(own) = progress.get_mut(lane) else { return Ok(()) };
            ensure!(
                bytes == *size,
                "message {index} of queue pair {lane} has {bytes} bytes instead of {size}"
            );
            *waits_for_first = false;
            own.received += 1;
            clock.begin(now);
            if !*sends {
                log.receive(now, clock);
            }
            own.to_post += 1;
            if own.to_post == list && clock.count().is_none_or(|count| own.receives_posted < count) {
                repost.push((lane, own.receives_posted));
                own.receives_posted += list;
                own.to_post = 0;
            }
            Ok(())
        })?;
        if !busy && !*sends {
            log.wait(now);
        }
        for (lane, index) in repost {
            post_receives(plan, *size, lane, index, bench)?;
        }
        Ok(busy)
    }

    /// Posts as much as the queue has room for.
    fn send<H: Hal>(&mut self, lane: usize, bench: &mut Bench<'_, H>) -> Result<bool> {
        let list = u64::from(self.plan.post_list);
        let mut busy = false;
        loop {
            let now = bench.device.hal().now();
            let Progress { sent, done, .. } = self.progress[lane];
            let has_room = sent - done + list <= self.plan.tx_depth.into();
            if !has_room || !self.clock.wants_more(now, sent) {
                return Ok(busy);
            }
            if self.pacer.as_mut().is_some_and(|pacer| !pacer.may_send(now, list)) {
                return Ok(busy);
            }
            self.messages.clear();
            for index in sent..sent + list {
                let signalled = self.is_signalled(index);
                self.messages.push(bench.message(self.plan, self.size, lane, index, signalled)?);
            }
            self.log.post(now, list);
            bench.post(lane, &self.messages)?;
            self.progress[lane].sent += list;
            busy = true;
        }
    }

    /// Every n-th message is signalled, and so are the last one and the last that the queue has room for.
    fn is_signalled(&self, index: u64) -> bool {
        let every = u64::from(self.plan.cq_moderation.max(1));
        (index + 1).is_multiple_of(every) || self.clock.count() == Some(index + 1)
    }
}

/// Posts a list of receives, beginning with message number `first`.
fn post_receives<H: Hal>(
    plan: &TestPlan,
    size: u32,
    lane: usize,
    first: u64,
    bench: &mut Bench<'_, H>,
) -> Result<()> {
    match u64::from(plan.run.receive_list) {
        1 => bench.post_receive(plan, size, lane, first),
        list => bench.post_receives(plan, size, lane, first..first + list),
    }
}

/// Paces bursts.
#[derive(Debug, Clone, Copy)]
struct Pacer {
    gap: Duration,
    burst: u64,
    next: Time,
    left: u64,
}

impl Pacer {
    fn new(limit: &RateLimit, size: u32) -> Self {
        let bytes = f64::from(size.max(1));
        let messages = match limit.unit {
            RateUnit::Mebibytes => limit.rate * 1_048_576.0 / bytes,
            RateUnit::Gigabits => limit.rate * 1e9 / 8.0 / bytes,
            RateUnit::Messages => limit.rate,
        };
        let gap = Duration::from_picos((1e12 * f64::from(limit.burst) / messages) as u64);
        Self { gap, burst: limit.burst.into(), next: Time::ZERO, left: 0 }
    }

    /// Whether `count` messages may be sent now.
    fn may_send(&mut self, now: Time, count: u64) -> bool {
        if self.left == 0 {
            if now < self.next {
                return false;
            }
            // Counts from the planned time, so that delays do not add up; but a long pause is not made up
            // for.
            self.next = if now > self.next + self.gap { now + self.gap } else { self.next + self.gap };
            self.left = self.burst;
        }
        self.left = self.left.saturating_sub(count);
        true
    }
}
