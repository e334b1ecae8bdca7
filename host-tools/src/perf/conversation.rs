//! A test with a peer in another process: perftest's exchange, over TCP or an RDMA CM connection, around the
//! traffic.
//!
//! The order of the messages is perftest's, which differs from program to program. Our end takes one of its
//! two roles.

use super::bench::{Bench, check_partition};
use super::control::{CmMeeting, CmSide};
use super::data::{self, DataCheck};
use super::figures::Bandwidth;
use super::interrupt;
use super::live::LiveRows;
use super::plan::{Amount, Measure, Operation, TestPlan};
use super::processors::ProcessorTime;
use super::run::{PerfOutcome, SizeRow, drive};
use super::stream::Stream;
use super::turns::Turns;
use crate::Failure;
use crate::output::OutputReader;
use crate::seat::{Seat, SeatedTask};
use anyhow::{Context as _, Result, anyhow, bail};
use bareverbs_core::Device;
use bareverbs_core::hal::Hal;
use bareverbs_perftest::Role;
use bareverbs_perftest::exchange::{BandwidthReport, Session};
use bareverbs_perftest::line::Listener;
use bareverbs_prm::numbering::PathMtu;
use bareverbs_prm::time::Duration;
use std::net::SocketAddr;
use std::time::Instant;

/// How long the last packets of an unacknowledged connection may be in flight.
const ON_THEIR_WAY: std::time::Duration = std::time::Duration::from_secs(1);
/// Longest sleep during a wait for the peer: the device has to answer its packets.
const REST: Duration = Duration::from_micros(500);

/// How to meet the peer.
#[derive(Debug)]
pub(crate) enum Meeting {
    Connect(SocketAddr),
    Accept(Listener),
    /// `-R`.
    Cm(CmMeeting),
}

/// A test with a peer.
#[derive(Debug)]
pub(crate) struct Conversation<'a> {
    pub(crate) plan: &'a TestPlan,
    pub(crate) meeting: Meeting,
    pub(crate) live: LiveRows<'a>,
}

/// One end of a test in progress.
struct TestEnd<'a, 'd, H: Hal> {
    plan: &'a TestPlan,
    seat: &'a Seat,
    session: Session<'a>,
    /// With `-R`.
    cm: Option<&'a CmSide<'d, H>>,
    role: Role,
    bench: Bench<'d, H>,
    live: LiveRows<'a>,
}

impl SeatedTask for Conversation<'_> {
    type Output = PerfOutcome;

    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<PerfOutcome, Failure> {
        self.plan.gid_index(seat).map_err(Failure::Input)?;
        check_partition(device, self.plan).map_err(Failure::Input)?;
        let hal = device.hal();
        let mut meanwhile = || {
            hal.relax(hal.now() + REST);
            Ok(())
        };
        let mtu = path_mtu(device, self.plan)?;
        let (bytes, timeout) = (bytes_of(mtu), self.plan.timeout);
        self.plan.for_mtu(bytes).map_err(Failure::Input)?;
        let cm = match &self.meeting {
            Meeting::Cm(meeting) => Some(CmSide::open(device, seat, self.plan, meeting, mtu)?),
            Meeting::Connect(_) | Meeting::Accept(_) => None,
        };
        let (role, session) = match (&self.meeting, &cm) {
            (Meeting::Connect(address), _) => {
                (Role::Client, Session::connect(*address, bytes, timeout, &mut meanwhile))
            }
            (Meeting::Accept(listener), _) => {
                (Role::Server, Session::accept(listener, bytes, timeout, &mut meanwhile))
            }
            (Meeting::Cm(_), Some(cm)) => (cm.role(), cm.meet(device, bytes, timeout, &mut meanwhile)),
            (Meeting::Cm(_), None) => return Err(Failure::Run(anyhow!("RDMA CM is not open"))),
        };
        // There was no peer, or it does not speak this protocol: no test has begun.
        let session = session.map_err(Failure::Input)?;
        let plan = self.plan.for_mtu(session.mtu()).map_err(Failure::Input)?;
        let bench = Bench::set_up(device, seat, &plan, plan.is_client(role == Role::Client));
        let bench = bench.map_err(Failure::Input)?;
        let end = TestEnd { plan: &plan, seat, session, cm: cm.as_ref(), role, bench, live: self.live };
        Ok(end.run()?)
    }
}

/// The requested path MTU, or the port's.
pub(crate) fn path_mtu<H: Hal>(device: &Device<H>, plan: &TestPlan) -> Result<PathMtu, Failure> {
    let active = device.port().map_err(anyhow::Error::from)?.active_mtu;
    match plan.mtu {
        Some(mtu) if mtu.raw() > active.raw() => Err(Failure::Input(anyhow!(
            "the port carries a path MTU of {} bytes, not of {}",
            bytes_of(active),
            bytes_of(mtu)
        ))),
        mtu => Ok(mtu.unwrap_or(active)),
    }
}

/// Bytes of a path MTU.
pub(crate) const fn bytes_of(mtu: PathMtu) -> u32 {
    128 << mtu.raw()
}

impl<H: Hal> TestEnd<'_, '_, H> {
    /// Whether this end is the client of the traffic.
    fn is_client(&self) -> bool {
        self.plan.is_client(self.role == Role::Client)
    }

    fn run(mut self) -> Result<PerfOutcome> {
        data::fill(self.plan, self.is_client(), &self.bench)?;
        self.connect()?;
        self.session.set_limit(self.plan.idle_timeout());
        let begin = self.plan.run.processor_use.then(ProcessorTime::now).transpose()?;
        let rows = match (self.plan.measure, self.plan.takes_receives()) {
            (Measure::Latency, _) => self.latency()?,
            (Measure::Bandwidth, true) => self.two_sided_bandwidth()?,
            (Measure::Bandwidth, false) => self.one_sided_bandwidth()?,
        };
        let end = begin.map(|_| ProcessorTime::now()).transpose()?;
        let data = match self.session.peer_is_ours() {
            true => Some(self.check_data()?),
            false => None,
        };
        if let Some(cm) = self.cm {
            cm.part()?;
        }
        self.keep();
        let busy_percent = begin.zip(end).and_then(|(begin, end)| end.busy_percent_since(begin));
        Ok(PerfOutcome { busy_percent, ..self.outcome(rows, data)? })
    }

    /// Keeps the queue pairs for as long as was requested; the peer may still need answers.
    fn keep(&self) {
        let (hal, begin) = (self.bench.device.hal(), Instant::now());
        while begin.elapsed() < self.plan.run.keep {
            hal.relax(hal.now() + REST);
        }
    }

    fn outcome(&self, rows: Vec<SizeRow>, data: Option<DataCheck>) -> Result<PerfOutcome> {
        Ok(PerfOutcome {
            plan: self.plan.clone(),
            role: Some(self.role),
            rows,
            mtu: self.session.mtu(),
            gid_index: self.bench.gid_index(),
            on_ethernet: !self.seat.gids.is_empty(),
            own: self.bench.own.clone(),
            peers: self.bench.peers.clone(),
            peer_version: Some(self.session.peer_version()),
            counters: self.bench.counters()?,
            busy_percent: None,
            data,
        })
    }

    /// Exchanges the queue pairs and connects them.
    fn connect(&mut self) -> Result<()> {
        let mtu = PathMtu::from_raw(self.session.mtu().ilog2() as u8 - 7);
        if let Some(cm) = self.cm {
            self.synchronise()?;
            cm.connect_all(&mut self.bench, self.plan, mtu)?;
            self.synchronise()?;
        }
        let is_send = self.plan.operation == Operation::Send;
        if self.plan.measure == Measure::Latency && !is_send {
            self.synchronise()?;
        }
        self.exchange_all()?;
        if self.cm.is_none() {
            self.bench.connect(self.seat, self.plan, mtu)?;
        }
        if is_send {
            self.synchronise()?;
        }
        self.exchange_all()?;
        if is_send { Ok(()) } else { self.synchronise() }
    }

    fn exchange_all(&mut self) -> Result<()> {
        let mut peers = Vec::new();
        for lane in 0..self.bench.own.len() {
            peers.push(self.shake(lane)?);
        }
        self.bench.peers = peers;
        Ok(())
    }

    fn synchronise(&mut self) -> Result<()> {
        self.shake(0).map(drop)
    }

    fn shake(&mut self, lane: usize) -> Result<bareverbs_perftest::exchange::Destination> {
        let own = *self.bench.own.get(lane).context("a queue pair")?;
        let hal = self.bench.device.hal();
        self.session.hand_shake(&own, &mut || {
            hal.relax(hal.now() + REST);
            Ok(())
        })
    }

    /// Sends this end's results and receives the peer's.
    fn exchange_reports(&mut self, own: &Bandwidth) -> Result<Bandwidth> {
        let unit = self.unit();
        let report = BandwidthReport {
            size: own.size,
            iterations: own.iterations,
            peak: own.peak / unit,
            average: own.average / unit,
            message_rate: own.messages / 1e6,
        };
        let hal = self.bench.device.hal();
        let peer = self.session.exchange_reports(&report, &mut || {
            hal.relax(hal.now() + REST);
            Ok(())
        })?;
        Ok(Bandwidth {
            size: peer.size,
            iterations: peer.iterations,
            peak: peer.peak * unit,
            average: peer.average * unit,
            messages: peer.message_rate * 1e6,
        })
    }

    /// The unit of rates in reports.
    fn unit(&self) -> f64 {
        if self.plan.gigabits { 1e9 / 8.0 } else { 1_048_576.0 }
    }

    /// `ib_write_bw`, `ib_read_bw`, `ib_atomic_bw`. In a one-way test the server waits for the client's
    /// report. If both ends send, they synchronise before each size, and with `-a` after it too (except for
    /// atomics, which have one size).
    fn one_sided_bandwidth(&mut self) -> Result<Vec<SizeRow>> {
        if !self.plan.bidirectional && !self.is_client() {
            self.synchronise()?;
            let report = self.exchange_reports(&Bandwidth::NONE)?;
            self.synchronise()?;
            return Ok(vec![SizeRow::bandwidth_of_peer(report)]);
        }
        let mut rows = if self.plan.endless { self.periods(false)? } else { Vec::new() };
        for size in self.finite_sizes() {
            self.warm_up(size)?;
            let own = self.stream(size, self.plan.bidirectional)?;
            if self.plan.bidirectional {
                if self.plan.all_sizes && !self.plan.operation.is_atomic() {
                    self.synchronise()?;
                }
                let peer = self.exchange_reports(&own)?;
                rows.push(SizeRow::both_directions(own, peer));
            } else {
                rows.push(SizeRow::bandwidth(own));
            }
        }
        if !self.plan.bidirectional {
            let last = match rows.last() {
                Some(SizeRow::Bandwidth(last)) => last.own,
                _ => None,
            };
            self.synchronise()?;
            self.exchange_reports(&last.unwrap_or(Bandwidth::NONE))?;
        }
        self.synchronise()?;
        Ok(rows)
    }

    /// `ib_send_bw`, and `ib_write_bw --write_with_imm`. Both ends synchronise before each size, and with
    /// `-a` after it too: after the reports of a SEND, before those of an RDMA WRITE.
    fn two_sided_bandwidth(&mut self) -> Result<Vec<SizeRow>> {
        let mut rows = if self.plan.endless { self.periods(true)? } else { Vec::new() };
        let is_send = self.plan.operation == Operation::Send;
        for size in self.finite_sizes() {
            let own = self.stream(size, true)?;
            if self.plan.all_sizes && !is_send {
                self.synchronise()?;
            }
            let by_time = matches!(self.plan.amount, Amount::Time { .. });
            if self.plan.bidirectional && !by_time {
                let peer = self.exchange_reports(&own)?;
                rows.push(SizeRow::both_directions(own, peer));
            } else {
                rows.push(SizeRow::bandwidth(own));
            }
            if self.plan.all_sizes && is_send {
                self.synchronise()?;
            }
        }
        self.synchronise()?;
        Ok(rows)
    }

    /// The sizes, for traffic that ends by itself.
    fn finite_sizes(&self) -> Vec<u32> {
        if self.plan.endless { Vec::new() } else { self.plan.sizes.clone() }
    }

    /// Traffic until somebody interrupts it: a row for each period, shown when the period is over. Traffic
    /// after the last row is not reported.
    fn periods(&mut self, meet: bool) -> Result<Vec<SizeRow>> {
        let size = self.plan.largest();
        let mut stream = Stream::prepare(self.plan, size, self.is_client(), &mut self.bench)?;
        if meet {
            self.synchronise()?;
        }
        if self.live.begin(&self.outcome(Vec::new(), None)?)? == OutputReader::Gone {
            return Ok(Vec::new());
        }
        let mut rows = Vec::new();
        loop {
            drive(self.plan, self.seat, &mut self.bench, &mut stream)?;
            if interrupt::is_wanted() {
                return Ok(rows);
            }
            let row = SizeRow::bandwidth(stream.next_period());
            let is_read = self.live.row(&row, self.plan)?;
            rows.push(row);
            // Nobody reads the output any more: ends as if interrupted.
            if is_read == OutputReader::Gone {
                return Ok(rows);
            }
        }
    }

    /// Sends uncounted messages, if this end sends.
    fn warm_up(&mut self, size: u32) -> Result<()> {
        let Some(plan) = self.plan.of_warm_up() else { return Ok(()) };
        let mut stream = Stream::prepare(&plan, size, self.is_client(), &mut self.bench)?;
        drive(&plan, self.seat, &mut self.bench, &mut stream)
    }

    /// Runs the traffic of one size; `meet` says whether both ends synchronise before it.
    fn stream(&mut self, size: u32, meet: bool) -> Result<Bandwidth> {
        let mut stream = Stream::prepare(self.plan, size, self.is_client(), &mut self.bench)?;
        if meet {
            self.synchronise()?;
        }
        drive(self.plan, self.seat, &mut self.bench, &mut stream)?;
        Ok(stream.finish())
    }

    /// `ib_*_lat`. If messages consume receives, both ends synchronise before each size. The server of
    /// `ib_read_lat` and `ib_atomic_lat` waits for the end, and `ib_write_lat` ends without a message.
    fn latency(&mut self) -> Result<Vec<SizeRow>> {
        let mut rows = Vec::new();
        let is_idle = self.plan.operation.fetches() && !self.is_client();
        for size in self.plan.sizes.clone().into_iter().filter(|_| !is_idle) {
            let is_client = self.is_client();
            let mut turns = Turns::prepare(self.plan, size, is_client, &mut self.bench)?;
            if self.plan.takes_receives() {
                self.synchronise()?;
            }
            drive(self.plan, self.seat, &mut self.bench, &mut turns)?;
            rows.push(SizeRow::Latency(Box::new(turns.finish())));
            data::restore(self.plan, size, is_client, &self.bench)?;
        }
        match self.plan.operation {
            Operation::Write => self.linger(),
            _ => self.synchronise()?,
        }
        Ok(rows)
    }

    /// Keeps answering, because the peer's last message may still wait for its acknowledgement.
    fn linger(&self) {
        let (hal, begin) = (self.bench.device.hal(), Instant::now());
        while begin.elapsed() < ON_THEIR_WAY / 4 {
            hal.relax(hal.now() + REST);
        }
    }

    /// Checks the data, after waiting for unacknowledged packets that may still be in flight.
    fn check_data(&mut self) -> Result<DataCheck> {
        let begin = Instant::now();
        loop {
            let found = data::check(self.plan, self.is_client(), &self.bench)?;
            if found.wrong == 0 || begin.elapsed() > ON_THEIR_WAY {
                return Ok(found);
            }
            let hal = self.bench.device.hal();
            hal.relax(hal.now() + REST);
        }
    }
}

impl TestPlan {
    /// The plan with only the sizes that fit: a datagram is one packet.
    pub(crate) fn for_mtu(&self, mtu: u32) -> Result<Self> {
        let mut plan = self.clone();
        if self.transport == super::plan::Transport::Ud {
            plan.sizes.retain(|size| *size <= mtu);
            if plan.sizes.is_empty() {
                bail!(
                    "a datagram holds at most a path MTU, which is {mtu} bytes here, not {}",
                    self.largest()
                );
            }
        }
        Ok(plan)
    }
}
