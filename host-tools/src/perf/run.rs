//! Drives the traffic, and the results of a test.

use super::bench::Bench;
use super::data::DataCheck;
use super::figures::{Bandwidth, Latency};
use super::interrupt;
use super::plan::TestPlan;
use super::stream::Stream;
use super::turns::Turns;
use crate::counters::Readings;
use crate::seat::Seat;
use anyhow::{Result, bail};
use bareverbs_core::hal::Hal;
use bareverbs_perftest::Role;
use bareverbs_perftest::exchange::Destination;
use bareverbs_prm::time::{Duration, Time};

/// The results of a test.
#[derive(Debug)]
pub(crate) struct PerfOutcome {
    /// The plan that was carried out.
    pub(crate) plan: TestPlan,
    /// `None` if both ends were ours.
    pub(crate) role: Option<Role>,
    pub(crate) rows: Vec<SizeRow>,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    pub(crate) gid_index: u8,
    pub(crate) on_ethernet: bool,
    pub(crate) own: Vec<Destination>,
    pub(crate) peers: Vec<Destination>,
    pub(crate) peer_version: Option<String>,
    /// The counters of this process's queue pairs; `None` if the device had no set for them.
    pub(crate) counters: Option<Readings>,
    /// How busy the machine's processors were, if that was requested.
    pub(crate) busy_percent: Option<f64>,
    /// `None` if the peer's data is unknown.
    pub(crate) data: Option<DataCheck>,
}

impl PerfOutcome {
    /// Whether this end has shown its rows during the test: a server that only offers its memory has none of
    /// its own.
    pub(crate) fn has_shown_rows(&self) -> bool {
        let is_client = self.plan.is_client(self.role == Some(Role::Client));
        let is_idle_server =
            self.role.is_some() && !self.plan.sends(is_client) && !self.plan.receives(is_client);
        self.plan.endless && !is_idle_server
    }
}

/// The figures of a size.
#[derive(Debug)]
pub(crate) enum SizeRow {
    Bandwidth(BandwidthRow),
    Latency(Box<Latency>),
}

/// Bandwidth of a size: this end's results and the peer's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BandwidthRow {
    pub(crate) own: Option<Bandwidth>,
    pub(crate) peer: Option<Bandwidth>,
}

impl SizeRow {
    pub(crate) const fn bandwidth(own: Bandwidth) -> Self {
        Self::Bandwidth(BandwidthRow { own: Some(own), peer: None })
    }

    pub(crate) const fn bandwidth_of_peer(peer: Bandwidth) -> Self {
        Self::Bandwidth(BandwidthRow { own: None, peer: Some(peer) })
    }

    pub(crate) const fn both_directions(own: Bandwidth, peer: Bandwidth) -> Self {
        Self::Bandwidth(BandwidthRow { own: Some(own), peer: Some(peer) })
    }
}

impl BandwidthRow {
    /// Both directions together.
    pub(crate) fn total(&self) -> Bandwidth {
        match (self.own, self.peer) {
            (Some(own), Some(peer)) => Bandwidth {
                peak: own.peak + peer.peak,
                average: own.average + peer.average,
                messages: own.messages + peer.messages,
                ..own
            },
            (one, other) => one.or(other).unwrap_or(Bandwidth::NONE),
        }
    }
}

impl Bandwidth {
    /// The results of an end that has measured nothing.
    pub(crate) const NONE: Self = Self { size: 0, iterations: 0, peak: 0.0, average: 0.0, messages: 0.0 };
}

/// The traffic of one end.
pub(crate) trait EndTraffic<H: Hal> {
    /// Does everything that can be done now. Returns whether there was anything.
    fn step(&mut self, bench: &mut Bench<'_, H>) -> Result<bool>;
    /// Whether this end has finished its part.
    fn is_done(&self, now: Time) -> bool;
    /// Its progress, for messages.
    fn state(&self) -> String;
    /// When it has something to do, if nothing happens before.
    fn wakeup(&self) -> Option<Time> {
        None
    }
}

impl<H: Hal> EndTraffic<H> for Stream<'_> {
    fn step(&mut self, bench: &mut Bench<'_, H>) -> Result<bool> {
        Stream::step(self, bench)
    }

    fn is_done(&self, now: Time) -> bool {
        Stream::is_done(self, now)
    }

    fn state(&self) -> String {
        Stream::state(self)
    }

    fn wakeup(&self) -> Option<Time> {
        Stream::wakeup(self)
    }
}

impl<H: Hal> EndTraffic<H> for Turns<'_> {
    fn step(&mut self, bench: &mut Bench<'_, H>) -> Result<bool> {
        Turns::step(self, bench)
    }

    fn is_done(&self, now: Time) -> bool {
        Turns::is_done(self, now)
    }

    fn state(&self) -> String {
        Turns::state(self)
    }

    fn wakeup(&self) -> Option<Time> {
        Turns::wakeup(self)
    }
}

/// Detects that nothing has happened for too long.
#[derive(Debug)]
struct StallWatch {
    last: Time,
    timeout: Duration,
}

impl StallWatch {
    fn new(plan: &TestPlan, now: Time) -> Self {
        let nanos = u64::try_from(plan.timeout.as_nanos()).unwrap_or(u64::MAX);
        Self { last: now, timeout: Duration::from_nanos(nanos) }
    }

    fn look(&mut self, now: Time, busy: bool, state: impl Fn() -> String) -> Result<()> {
        if busy {
            self.last = now;
        } else if now.since(self.last) > self.timeout {
            bail!(
                "nothing happened for {} s: {}. Without acknowledgements (UC, UD) a lost message is never \
                 sent again; otherwise the peer has stopped",
                self.timeout.as_nanos() / 1_000_000_000,
                state()
            );
        }
        Ok(())
    }
}

/// When to poll again: after a sleep, or at the first earlier moment at which somebody has something to do.
/// Ignores moments in the past: a caller that names one is waiting for something else.
fn next_look<const N: usize>(now: Time, seat: &Seat, wakeups: [Option<Time>; N]) -> Time {
    wakeups.into_iter().flatten().filter(|wakeup| *wakeup > now).fold(now + seat.rest, Time::min)
}

/// Drives one end until it has finished.
pub(crate) fn drive<H: Hal>(
    plan: &TestPlan,
    seat: &Seat,
    bench: &mut Bench<'_, H>,
    traffic: &mut dyn EndTraffic<H>,
) -> Result<()> {
    let hal = bench.device.hal();
    let mut watch = StallWatch::new(plan, hal.now());
    loop {
        let busy = traffic.step(bench)?;
        let now = hal.now();
        if traffic.is_done(now) || plan.endless && interrupt::is_wanted() {
            return Ok(());
        }
        let rest = next_look(now, seat, [traffic.wakeup()]);
        hal.relax(if busy { now } else { rest });
        watch.look(now, busy, || traffic.state())?;
    }
}

/// One of two ends in one world.
pub(crate) struct Side<'a, 'd, H: Hal> {
    pub(crate) bench: &'a mut Bench<'d, H>,
    pub(crate) traffic: &'a mut dyn EndTraffic<H>,
}

/// Drives both ends of a test in one world.
pub(crate) fn drive_both<H: Hal>(
    plan: &TestPlan,
    seat: &Seat,
    client: Side<'_, '_, H>,
    server: Side<'_, '_, H>,
) -> Result<()> {
    let hal = client.bench.device.hal();
    let mut watch = StallWatch::new(plan, hal.now());
    loop {
        let busy = client.traffic.step(client.bench)? | server.traffic.step(server.bench)?;
        let now = hal.now();
        if client.traffic.is_done(now) && server.traffic.is_done(now) {
            return Ok(());
        }
        let rest = next_look(now, seat, [client.traffic.wakeup(), server.traffic.wakeup()]);
        hal.relax(if busy { now } else { rest });
        watch.look(now, busy, || {
            format!("client: {}; server: {}", client.traffic.state(), server.traffic.state())
        })?;
    }
}
