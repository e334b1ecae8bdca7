//! Probes over a queue pair that both ends create for the purpose: they meet over TCP, exchange their queue
//! pairs, and connect.

use super::outcome::PingOutcome;
use super::prober::{DEPTH, Probe, ProbeSchedule, Prober, SIZE};
use crate::Failure;
use crate::perf::bench::Bench;
use crate::perf::conversation::bytes_of;
use crate::perf::interrupt;
use crate::perf::plan::{TestPlan, Transport};
use crate::seat::{Seat, SeatedTask};
use anyhow::{Context as _, Result, bail, ensure};
use bareverbs_core::Device;
use bareverbs_core::hal::Hal;
use bareverbs_perftest::exchange::{Destination, Session};
use bareverbs_perftest::line::{Listener, WaitHook};
use bareverbs_prm::numbering::PathMtu;
use bareverbs_prm::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Longest sleep of an end that waits for TCP.
const REST: Duration = Duration::from_micros(50);
/// The mark "ping", which replaces the buffer's address in the exchange because nobody accesses memory here.
/// Its low half says how probes travel.
const MARK: u64 = 0x7069_6e67 << 32;

/// How to meet the peer.
enum Rendezvous<'a> {
    Connect(SocketAddr),
    Accept(&'a Listener),
}

/// A queue pair that is connected to the peer's.
struct ProbeLink<'a, 'd, H: Hal> {
    plan: &'a TestPlan,
    bench: Bench<'d, H>,
    own: Destination,
    /// Receives posted so far, and sends.
    receives: u64,
    sends: u64,
    /// Completed sends.
    done: u64,
}

/// Meets the peer and connects to it. When it returns, both ends have posted their receives.
fn begin<'a, 'd, H: Hal>(
    plan: &'a TestPlan,
    device: &'d Device<H>,
    seat: &Seat,
    rendezvous: &Rendezvous<'_>,
) -> Result<(Session<'static>, ProbeLink<'a, 'd, H>)> {
    let port = device.port()?;
    if port.state.is_down() {
        bail!("the port is down ({}); `bareverbs doctor` says why", port.state);
    }
    plan.gid_index(seat)?;
    let meanwhile: &mut WaitHook<'_> = &mut resting(device.hal());
    let mtu = bytes_of(port.active_mtu);
    let mut session = match rendezvous {
        Rendezvous::Connect(address) => Session::connect(*address, mtu, plan.timeout, meanwhile)?,
        Rendezvous::Accept(listener) => Session::accept(listener, mtu, plan.timeout, meanwhile)?,
    };
    let mut bench = Bench::set_up(device, seat, plan, true)?;
    let first = bench.own.first().context("a queue pair")?;
    let own = Destination { address: mark(plan.transport), rkey: 0, ..*first };
    let peer = session.hand_shake(&own, meanwhile)?;
    check_mark(&own, &peer)?;
    bench.peers = vec![peer];
    let mtu = PathMtu::from_raw(session.mtu().ilog2() as u8 - 7);
    bench.connect(seat, plan, mtu)?;
    let mut link = ProbeLink { plan, bench, own, receives: 0, sends: 0, done: 0 };
    for _ in 0..DEPTH {
        link.post_receive()?;
    }
    session.hand_shake(&own, meanwhile)?;
    Ok((session, link))
}

impl<H: Hal> ProbeLink<'_, '_, H> {
    fn post_receive(&mut self) -> Result<()> {
        self.bench.post_receive(self.plan, SIZE, 0, self.receives)?;
        self.receives += 1;
        Ok(())
    }

    fn take_sends(&mut self) -> Result<()> {
        let done = &mut self.done;
        self.bench.take_sends(|_, index, _| {
            *done = index;
            Ok(())
        })?;
        Ok(())
    }

    /// The peer's address in the fabric.
    fn peer(&self) -> String {
        match self.bench.peers.first() {
            Some(peer) if peer.gid.is_zero() => format!("LID {}", peer.lid),
            Some(peer) => peer.gid.to_string(),
            None => "nobody".to_owned(),
        }
    }
}

/// What an end does while it waits for the other over TCP: its device has to keep answering.
fn resting<H: Hal>(hal: &H) -> impl FnMut() -> Result<()> + '_ {
    || {
        hal.relax(hal.now() + REST);
        go_on()
    }
}

/// An error once a signal asks the answering end to end. The other end does not watch for signals.
fn go_on() -> Result<()> {
    ensure!(!interrupt::is_wanted(), "a signal has ended the wait");
    Ok(())
}

const fn mark(transport: Transport) -> u64 {
    MARK | transport as u64
}

/// Checks that the peer pings too, and in the same way.
fn check_mark(own: &Destination, peer: &Destination) -> Result<()> {
    if peer.address >> 32 != MARK >> 32 {
        bail!(
            "the peer is not `bareverbs ping`: it may be `bareverbs perf` or an ib_* program, which measure but do not ping"
        );
    }
    if peer.address != own.address {
        bail!("one end pings over UD and the other over RC: give both the same -c");
    }
    Ok(())
}

impl<H: Hal> Probe for ProbeLink<'_, '_, H> {
    fn may_send(&self) -> bool {
        self.sends - self.done < DEPTH.into()
    }

    /// Sends a probe: its number, padded with zeros.
    fn send(&mut self, number: u64) -> Result<()> {
        let at = self.bench.send_at(0) + self.plan.slot(SIZE, self.sends);
        self.bench.memory.copy_in(at, &number.to_be_bytes())?;
        let message = self.bench.message(self.plan, SIZE, 0, self.sends, true)?;
        self.sends += 1;
        self.bench.post(0, &[message])
    }

    fn take(&mut self) -> Result<Vec<u64>> {
        self.take_sends()?;
        let (plan, mut places) = (self.plan, Vec::new());
        self.bench.take_receives(|_, index, bytes| {
            places.push((plan.slot(SIZE, index), bytes));
            Ok(())
        })?;
        let mut numbers = Vec::with_capacity(places.len());
        for (place, bytes) in places {
            let mut number = [0; 8];
            self.bench.memory.copy_out(self.bench.receive_at(0) + place, &mut number)?;
            self.post_receive()?;
            // A message of another length is not a probe.
            if bytes == SIZE {
                numbers.push(u64::from_be_bytes(number));
            }
        }
        Ok(numbers)
    }
}

/// Answers until the peer leaves or a signal ends it; returns the number of answers.
pub(super) struct PeerResponder<'a> {
    pub(super) plan: &'a TestPlan,
    pub(super) listener: Listener,
}

impl SeatedTask for PeerResponder<'_> {
    type Output = u64;

    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<u64, Failure> {
        let begun = begin(self.plan, device, seat, &Rendezvous::Accept(&self.listener));
        let (mut session, mut link) = match begun {
            Err(_) if interrupt::is_wanted() => return Ok(0),
            begun => begun.map_err(Failure::Input)?,
        };
        let (own, hal) = (link.own, device.hal());
        let (mut answered, mut waiting) = (0, VecDeque::new());
        let ended = session.hand_shake(&own, &mut || {
            // Probes that cannot be answered yet stay in the receive queue, which limits them.
            match waiting.len() < DEPTH as usize {
                true => waiting.extend(link.take()?),
                false => link.take_sends()?,
            }
            while link.may_send() {
                let Some(number) = waiting.pop_front() else { break };
                link.send(number)?;
                answered += 1;
            }
            hal.relax(hal.now() + seat.rest);
            go_on()
        });
        match ended {
            Err(error) if !interrupt::is_wanted() => Err(Failure::Run(error)),
            _ => Ok(answered),
        }
    }
}

/// Sends probes and waits for their answers.
pub(super) struct PeerPinger<'a> {
    pub(super) plan: &'a TestPlan,
    pub(super) address: SocketAddr,
    pub(super) schedule: ProbeSchedule,
    pub(super) quiet: bool,
}

impl SeatedTask for PeerPinger<'_> {
    type Output = PingOutcome;

    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<PingOutcome, Failure> {
        let (mut session, mut link) =
            begin(self.plan, device, seat, &Rendezvous::Connect(self.address)).map_err(Failure::Input)?;
        let address = link.peer();
        let prober = Prober {
            hal: device.hal(),
            schedule: self.schedule,
            rest: seat.rest,
            peer: &address,
            quiet: self.quiet,
        };
        let probed = prober.probe(&mut link)?;
        if let Err(error) = session.hand_shake(&link.own, &mut resting(device.hal())) {
            eprintln!("the peer did not say goodbye: {error:#}");
        }
        Ok(PingOutcome { probed, address })
    }
}
