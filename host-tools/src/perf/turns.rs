//! The traffic of a latency test at one end: one message at a time, as steps that never wait.

use super::bench::Bench;
use super::clock::Clock;
use super::figures::{Latency, LatencyLog};
use super::plan::{Operation, TestPlan};
use anyhow::{Result, ensure};
use bareverbs_core::hal::Hal;
use bareverbs_prm::time::Time;

/// The next step of this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Wait for the peer's message.
    Receive,
    Send,
    /// Wait for the send to complete.
    Complete,
    Nothing,
}

/// One end of the traffic of one size.
pub(crate) struct Turns<'p> {
    plan: &'p TestPlan,
    size: u32,
    next: Next,
    sent: u64,
    received: u64,
    /// Messages that arrived before it was their turn.
    waiting: u64,
    receives_posted: u64,
    /// When this end began to pause before its next message.
    rests_since: Option<Time>,
    is_client: bool,
    clock: Clock,
    log: LatencyLog,
}

impl<'p> Turns<'p> {
    /// Posts the receives of messages of `size` bytes. The peer may send after this.
    pub(crate) fn prepare<H: Hal>(
        plan: &'p TestPlan,
        size: u32,
        is_client: bool,
        bench: &mut Bench<'_, H>,
    ) -> Result<Self> {
        let clock = Clock::new(plan.amount);
        let mut receives_posted = 0;
        if plan.takes_receives() {
            let wanted = clock.count().unwrap_or(u64::MAX).min(plan.receives_each().into());
            while receives_posted < wanted {
                bench.post_receive(plan, size, 0, receives_posted)?;
                receives_posted += 1;
            }
        }
        let next = match (plan.operation, is_client) {
            // The listener writes first, as with perftest.
            (Operation::Write, true) | (Operation::Send, false) => Next::Receive,
            (operation, false) if operation.fetches() => Next::Nothing,
            _ => Next::Send,
        };
        let log = LatencyLog::new(if plan.operation.fetches() { 1 } else { 2 }, plan.keeps_samples)?;
        let (sent, received, waiting) = (0, 0, 0);
        let rests_since = None;
        Ok(Self {
            plan,
            size,
            next,
            sent,
            received,
            waiting,
            receives_posted,
            rests_since,
            is_client,
            clock,
            log,
        })
    }

    /// Does everything that can be done now. Returns whether there was anything.
    pub(crate) fn step<H: Hal>(&mut self, bench: &mut Bench<'_, H>) -> Result<bool> {
        let now = bench.device.hal().now();
        if self.is_client || self.next != Next::Receive {
            self.clock.begin(now);
        }
        let busy = self.take_receives(bench)?;
        Ok(busy
            | match self.next {
                Next::Receive => self.receive(now, bench)?,
                Next::Send => self.send(now, bench)?,
                Next::Complete => self.complete(bench)?,
                Next::Nothing => false,
            })
    }

    /// Whether this end has finished its part.
    pub(crate) fn is_done(&self, now: Time) -> bool {
        self.next == Next::Nothing || self.clock.is_over(now)
    }

    /// The progress of this end, for the message if it stalls.
    pub(crate) fn state(&self) -> String {
        format!("{} messages of {} bytes were sent, {} have arrived", self.sent, self.size, self.received)
    }

    /// The figures of this end.
    pub(crate) fn finish(self) -> Latency {
        self.log.finish(self.size)
    }

    fn receive<H: Hal>(&mut self, now: Time, bench: &mut Bench<'_, H>) -> Result<bool> {
        let has_come = match self.plan.numbers_messages() {
            true => self.sees_number(bench)?,
            false => self.waiting > 0,
        };
        if !has_come {
            return Ok(false);
        }
        self.waiting = self.waiting.saturating_sub(1);
        self.received += 1;
        self.clock.begin(now);
        self.next = self.after_receive();
        Ok(true)
    }

    /// The last byte of a message is its number: once it is there, so is the whole message.
    fn sees_number<H: Hal>(&self, bench: &Bench<'_, H>) -> Result<bool> {
        let mut byte = [0];
        bench.memory.copy_out(bench.receive_at(0) + self.size as usize - 1, &mut byte)?;
        Ok(byte[0] == (self.received + 1) as u8)
    }

    fn take_receives<H: Hal>(&mut self, bench: &mut Bench<'_, H>) -> Result<bool> {
        if !self.plan.takes_receives() {
            return Ok(false);
        }
        let (size, mut came) = (self.size, 0);
        let busy = bench.take_receives(|_, index, bytes| {
            ensure!(bytes == size, "message {index} has {bytes} bytes instead of {size}");
            came += 1;
            Ok(())
        })?;
        self.waiting += came;
        for _ in 0..came {
            if self.clock.count().is_none_or(|count| self.receives_posted < count) {
                bench.post_receive(self.plan, self.size, 0, self.receives_posted)?;
                self.receives_posted += 1;
            }
        }
        Ok(busy)
    }

    /// When the pause before the next message is over.
    pub(crate) fn wakeup(&self) -> Option<Time> {
        self.rests_since.map(|since| since + self.plan.run.gap)
    }

    fn send<H: Hal>(&mut self, now: Time, bench: &mut Bench<'_, H>) -> Result<bool> {
        let since = *self.rests_since.get_or_insert(now);
        if now < since + self.plan.run.gap {
            return Ok(false);
        }
        self.rests_since = None;
        self.log.post(now, now.since(since), &self.clock);
        if self.plan.numbers_messages() {
            let number = [(self.sent + 1) as u8];
            bench.memory.copy_in(bench.send_at(0) + self.size as usize - 1, &number)?;
        }
        let message = bench.message(self.plan, self.size, 0, self.sent, true)?;
        bench.post(0, &[message])?;
        self.sent += 1;
        self.next = Next::Complete;
        Ok(true)
    }

    fn complete<H: Hal>(&mut self, bench: &mut Bench<'_, H>) -> Result<bool> {
        let mut done = false;
        bench.take_sends(|_, _, _| {
            done = true;
            Ok(())
        })?;
        if done {
            self.next = self.after_send();
        }
        Ok(done)
    }

    fn after_send(&self) -> Next {
        let count = self.clock.count().unwrap_or(u64::MAX);
        match self.plan.operation.fetches() {
            true if self.sent < count => Next::Send,
            false if self.received < count => Next::Receive,
            _ => Next::Nothing,
        }
    }

    fn after_receive(&self) -> Next {
        let count = self.clock.count().unwrap_or(u64::MAX);
        if self.sent < count { Next::Send } else { Next::Nothing }
    }
}
