//! `bareverbs perf`: bandwidth and latency of RDMA operations, with perftest's options and columns, on any HAL.
//!
//! The peer can be an unmodified perftest program (4.5 or later, which share one exchange), another `bareverbs perf`
//! or, with the simulator in virtual time, this process.

mod arguments;
pub(crate) mod bench;
mod clock;
mod control;
pub(crate) mod conversation;
mod data;
mod figures;
mod foreign;
pub(crate) mod interrupt;
mod lane;
mod live;
mod output_arguments;
mod pair;
mod payload;
mod placement;
pub(crate) mod plan;
mod plot;
mod processors;
mod report;
mod run;
mod run_control;
pub(crate) mod run_options;
mod samples;
mod stream;
mod turns;

pub use arguments::PerfArguments;

use crate::Failure;
use crate::output::{json_object, print};
use crate::place::DeviceSelector;
use anyhow::{Context as _, anyhow};
use bareverbs_perftest::line::Listener;
use bench::device_config;
use control::CmMeeting;
use conversation::{Conversation, Meeting};
use live::LiveRows;
use output_arguments::OutputArguments;
use plan::TestPlan;
use report::TestContext;
use run::{PerfOutcome, SizeRow};
use signal_hook::consts::SIGINT;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Runs the test. Returns false if a limit was missed or data were wrong.
pub fn run(arguments: &PerfArguments) -> Result<bool, Failure> {
    let (text, good) = execute(arguments)?;
    if !text.is_empty() {
        print(&text)?;
    }
    Ok(good)
}

fn execute(arguments: &PerfArguments) -> Result<(String, bool), Failure> {
    let plan = arguments.plan().map_err(Failure::Input)?;
    arguments.placement.apply().map_err(Failure::Input)?;
    for path in [arguments.report.plot.as_deref(), arguments.report.json_path()].into_iter().flatten() {
        check_writable(path)?;
    }
    let seat = &arguments.seat;
    let is_pair = !plan.rdma_cm
        && arguments.peer.is_none()
        && seat.host().is_none()
        && matches!(seat.device, DeviceSelector::Simulated(_));
    let context = TestContext {
        device: seat.name(),
        peer: arguments.peer.clone(),
        simulated: !matches!(seat.device, DeviceSelector::Pci(_)),
    };
    let live = LiveRows { context: &context, output: &arguments.report };
    let outcome = if is_pair { alone(arguments, &plan)? } else { with_peer(arguments, &plan, live)? };
    if let Some(path) = &arguments.report.plot {
        plot::draw(&outcome, &context, path).map_err(Failure::Run)?;
    }
    let good = judge(&outcome, &arguments.report);
    let json = || json_object("perf", report::object(&outcome, &context));
    if let Some(path) = arguments.report.json_path() {
        let written = std::fs::write(path, json()? + "\n");
        written.with_context(|| format!("writing JSON to {}", path.display())).map_err(Failure::Run)?;
    }
    let text = match arguments.report.json {
        true => json()?,
        false => match (arguments.report.number, outcome.has_shown_rows()) {
            (Some(_), true) => String::new(),
            (None, true) => report::ending(&outcome, &context, &arguments.report),
            (Some(_), false) => report::only(&outcome, &arguments.report),
            (None, false) => report::text(&outcome, &context, &arguments.report),
        },
    };
    if context.simulated && arguments.report.number.is_some() {
        eprintln!("the device is simulated, so this figure says nothing about a real NIC");
    }
    Ok((text, good))
}

/// Checks that a file can be written, so that a failure shows before a long test.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.map(drop).with_context(|| format!("cannot write {}", path.display())).map_err(Failure::Input)
}

/// Runs both ends in this process.
fn alone(arguments: &PerfArguments, plan: &TestPlan) -> Result<PerfOutcome, Failure> {
    if arguments.seat.device != DeviceSelector::Simulated(bareverbs_sim::nic::LinkLayer::Ethernet) {
        return Err(Failure::Input(anyhow!(
            "{}: both ends in one process are Ethernet ports; for InfiniBand use two sockets of one `bareverbs serve --link ib`",
            arguments.seat.device
        )));
    }
    if plan.endless {
        return Err(Failure::Input(anyhow!(
            "--run_infinitely: both ends are in this process and their time is virtual, so seconds pass at \
             once; name a peer, or use -D without it"
        )));
    }
    for (given, option) in [
        (plan.run.reversed, "--reversed: both ends are in this process, and none waits for the other"),
        (plan.run.processor_use, "--cpu_util: both ends are in this process and their time is virtual"),
        (
            plan.cycles.is_some(),
            "-C: both ends are in this process and their time is virtual, so that no cycles pass in it",
        ),
    ] {
        if given {
            return Err(Failure::Input(anyhow!("{option}; name a peer, or leave out the option")));
        }
    }
    pair::run(plan)
}

fn with_peer(arguments: &PerfArguments, plan: &TestPlan, live: LiveRows<'_>) -> Result<PerfOutcome, Failure> {
    let (seat, port) = (&arguments.seat, arguments.port());
    if plan.endless {
        interrupt::watch(&[SIGINT]).map_err(Failure::Run)?;
    }
    if seat.host().is_none() && matches!(seat.device, DeviceSelector::Simulated(_)) {
        return Err(Failure::Input(anyhow!(
            "{} is not connected to another process: name its host in a network of `bareverbs run` (--host \
             NAME), or leave out the peer to have both ends here",
            seat.device
        )));
    }
    let meeting = match &arguments.peer {
        peer if plan.rdma_cm => Meeting::Cm(CmMeeting { peer: peer.clone(), port }),
        Some(peer) if arguments.meets_by_ipv6() => {
            Meeting::Connect(seat.resolve_ipv6(peer, port).map_err(Failure::Input)?)
        }
        Some(peer) => Meeting::Connect(seat.resolve(peer, port).map_err(Failure::Input)?),
        None => {
            let any: IpAddr = match arguments.meets_by_ipv6() {
                true => Ipv6Addr::UNSPECIFIED.into(),
                false => Ipv4Addr::UNSPECIFIED.into(),
            };
            let listener = Listener::bind_to((any, port).into());
            eprintln!("waiting for the client at TCP port {port}");
            let listener = listener.context("choose another port with -p, at both ends");
            Meeting::Accept(listener.map_err(Failure::Input)?.telling(|stranger| eprintln!("{stranger}")))
        }
    };
    seat.with_device(device_config(plan), Conversation { plan, meeting, live })
}

/// Whether every limit was met and all data was right. Anything else is reported on standard error.
fn judge(outcome: &PerfOutcome, limits: &OutputArguments) -> bool {
    let mut good = true;
    let mut miss = |what: String| {
        eprintln!("failed: {what}");
        good = false;
    };
    if let Some(data) = outcome.data.filter(|data| data.wrong > 0) {
        miss(format!("{} of {} bytes differ from what the peer sent", data.wrong, data.compared));
    }
    for row in &outcome.rows {
        let SizeRow::Bandwidth(row) = row else { continue };
        let total = row.total();
        let (average, rate) = (total.average / report::unit(&outcome.plan), total.messages / 1e6);
        if let Some(limit) = limits.limit_bandwidth.filter(|limit| average < *limit) {
            miss(format!("{average:.2} at {} bytes is below the limit of {limit} (-w)", total.size));
        }
        if let Some(limit) = limits.limit_message_rate.filter(|limit| rate < *limit) {
            miss(format!(
                "{rate:.6} million messages/s at {} bytes are below the limit of {limit} (-y)",
                total.size
            ));
        }
    }
    good
}

#[cfg(test)]
mod tests;
