//! `bareverbs ping`: whether and how fast a peer answers, over datagrams or a reliable connection.
//!
//! `tally` counts the fates of the probes, `prober` sends them at their times, `meeting` is the path over a
//! queue pair of the test's own, on which both ends agree over TCP with perftest's exchange, `general` is the
//! path over management datagrams, which `ibping` understands (`datagram`), and `outcome` is the output. This
//! command repairs nothing: it reports what it saw.

mod datagram;
mod general;
mod meeting;
mod outcome;
mod prober;
mod tally;

use crate::Failure;
use crate::output::{json_object, print};
use crate::perf::bench::device_config;
use crate::perf::interrupt;
use crate::perf::plan::{Amount, Measure, Operation, TestPlan, Transport};
use crate::perf::run_options::RunControl;
use crate::place::DeviceSelector;
use crate::seat::SeatArguments;
use anyhow::Context as _;
use bareverbs_core::DeviceConfig;
use bareverbs_perftest::line::Listener;
use bareverbs_prm::time::Duration;
use clap::{Args, ValueEnum};
use general::{LidPinger, LidResponder};
use meeting::{PeerPinger, PeerResponder};
use outcome::{PingContext, PingOutcome};
use prober::{DEPTH, ProbeSchedule, SIZE};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::Ipv4Addr;

/// How probes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProbeWay {
    /// Datagrams: a lost one stays lost.
    #[value(name = "UD", alias = "ud")]
    Ud,
    /// A reliable connection: the transport retransmits.
    #[value(name = "RC", alias = "rc")]
    Rc,
    /// MADs compatible with ibping, which can be the other end; the peer is a LID. InfiniBand only.
    #[value(name = "MAD", alias = "mad")]
    Mad,
}

impl ProbeWay {
    const fn name(self) -> &'static str {
        match self {
            Self::Ud => "UD",
            Self::Rc => "RC",
            Self::Mad => "MAD",
        }
    }
}

/// Arguments of `bareverbs ping`.
#[derive(Debug, Clone, Args)]
pub struct PingArguments {
    /// The peer: a name or address where `bareverbs ping --server` listens on TCP; with -c MAD a LID, or a host of the
    /// network.
    #[arg(required_unless_present = "server")]
    peer: Option<String>,
    /// Answer the next peer and exit; with -c MAD answer everyone, until --peer-timeout has passed without a request. Ctrl-C (SIGINT) or
    /// SIGTERM ends it too.
    #[arg(long, visible_alias = "listen", conflicts_with = "peer")]
    server: bool,
    #[command(flatten)]
    seat: SeatArguments,
    /// Number of probes.
    #[arg(short = 'n', long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000_000), conflicts_with = "server")]
    count: u64,
    /// Milliseconds between probes.
    #[arg(short, long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(0..=60_000), conflicts_with = "server")]
    interval: u64,
    /// Time limit of an answer in milliseconds. A probe with a later answer counts as lost.
    #[arg(short = 'W', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000), conflicts_with = "server")]
    timeout: u64,
    /// UD, RC or MAD; the same at both ends.
    #[arg(short, long, default_value = "UD")]
    connection: ProbeWay,
    /// GID index. [default: the first RoCEv2 entry, IPv4 before IPv6; on InfiniBand none: the LID alone]
    #[arg(short = 'x', long = "gid-index", alias = "gid_index")]
    gid_index: Option<u8>,
    /// TCP port where the ends meet.
    #[arg(short, long, default_value_t = 18516, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Longest wait in seconds for a connection, or for the peer over TCP.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    peer_timeout: u64,
    /// Print one JSON object instead of text.
    #[arg(long, conflicts_with = "server")]
    json: bool,
}

/// Sends probes, or answers them. Returns false if a probe was lost.
///
/// # Errors
/// [`Failure::Input`] if the peer cannot be reached, with the reason.
pub fn run(arguments: &PingArguments) -> Result<bool, Failure> {
    arguments.seat.check_cable()?;
    match (&arguments.peer, arguments.connection) {
        (Some(peer), ProbeWay::Mad) => ask_lid(arguments, peer),
        (Some(peer), _) => ask(arguments, peer),
        (None, ProbeWay::Mad) => answer_lids(arguments),
        (None, _) => answer(arguments),
    }
}

fn answer_lids(arguments: &PingArguments) -> Result<bool, Failure> {
    interrupt::watch(&[SIGINT, SIGTERM])?;
    let responder = LidResponder { timeout: Duration::from_secs(arguments.peer_timeout) };
    let answered = arguments.seat.with_device(DeviceConfig::default(), responder)?;
    eprintln!("{answered} probes answered");
    Ok(true)
}

fn ask_lid(arguments: &PingArguments, peer: &str) -> Result<bool, Failure> {
    let pinger = LidPinger { peer, schedule: arguments.schedule(), quiet: arguments.json };
    let outcome = arguments.seat.with_device(DeviceConfig::default(), pinger)?;
    arguments.show(peer, &outcome)
}

fn answer(arguments: &PingArguments) -> Result<bool, Failure> {
    interrupt::watch(&[SIGINT, SIGTERM])?;
    let plan = arguments.plan();
    let listener = Listener::bind_to((Ipv4Addr::UNSPECIFIED, arguments.port).into());
    let listener = listener.context("choose another port with -p, at both ends").map_err(Failure::Input)?;
    let listener = listener.telling(|stranger| eprintln!("{stranger}"));
    eprintln!("waiting for probes; the peer connects to TCP port {} of this end", arguments.port);
    let responder = PeerResponder { plan: &plan, listener };
    let answered = arguments.seat.with_device(device_config(&plan), responder)?;
    eprintln!("{answered} probes answered");
    Ok(true)
}

fn ask(arguments: &PingArguments, peer: &str) -> Result<bool, Failure> {
    let plan = arguments.plan();
    let address = arguments.seat.resolve(peer, arguments.port).map_err(Failure::Input)?;
    let pinger = PeerPinger { plan: &plan, address, schedule: arguments.schedule(), quiet: arguments.json };
    let outcome = arguments.seat.with_device(device_config(&plan), pinger)?;
    arguments.show(peer, &outcome)
}

impl PingArguments {
    /// Shows the outcome. Returns whether it is good.
    fn show(&self, peer: &str, outcome: &PingOutcome) -> Result<bool, Failure> {
        let context = PingContext {
            peer,
            connection: self.connection.name(),
            simulated: !matches!(self.seat.device, DeviceSelector::Pci(_)),
        };
        print(&match self.json {
            true => json_object("ping", outcome.object(&context))?,
            false => outcome.trailer(&context),
        })?;
        Ok(outcome.is_good())
    }

    fn schedule(&self) -> ProbeSchedule {
        ProbeSchedule {
            count: self.count,
            interval: Duration::from_millis(self.interval),
            timeout: Duration::from_millis(self.timeout),
        }
    }

    fn plan(&self) -> TestPlan {
        TestPlan {
            operation: Operation::Send,
            measure: Measure::Bandwidth,
            transport: if self.connection == ProbeWay::Rc { Transport::Rc } else { Transport::Ud },
            sizes: vec![SIZE],
            all_sizes: false,
            amount: Amount::Iterations(self.count),
            queue_pairs: 1,
            post_list: 1,
            tx_depth: DEPTH,
            rx_depth: DEPTH,
            cq_moderation: 1,
            bidirectional: true,
            events: false,
            inline: 0,
            mtu: None,
            outstanding: 1,
            gid_selection: self.gid_index.into(),
            peer_lid: None,
            pkey_index: 0,
            ack_timeout: 14,
            retry_count: 7,
            service_level: 0,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            rate_limit: None,
            rdma_cm: false,
            shared_receives: false,
            immediate: false,
            keeps_samples: false,
            peak: false,
            gigabits: false,
            timeout: std::time::Duration::from_secs(self.peer_timeout),
            endless: false,
            cycles: None,
            run: RunControl::default(),
        }
    }
}
