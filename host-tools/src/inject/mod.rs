//! `bareverbs inject`: injects faults into the hosts of a `bareverbs run` network at given times.
//!
//! Faults have the syntax of simulated cluster trials (`bareverbs-cluster`). So a failure found by a seed can be
//! injected into real programs, for example a thousand times slower.

mod acts;
mod plan;

use crate::{Failure, network as networks};
use acts::Stage;
use anyhow::Context;
use clap::Args;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest sleep between two checks for an interruption.
const NAP: Duration = Duration::from_millis(20);

/// Inject faults into the hosts of a `bareverbs run` network while their programs run: `bareverbs inject cut:a@500ms+2s
/// loss:b:10@0s+5s`. The syntax is KIND:HOST@AFTER+DURATION; the kinds are cut, partition:HOST:OTHER,
/// loss:HOST:FRAMES-IN-1,000, pause and crash. All faults end with the command.
#[derive(Debug, Args)]
pub struct InjectArguments {
    /// Network of the hosts.
    #[arg(long, default_value = "default", value_parser = networks::parse_name)]
    pub network: String,
    /// Hosts for numbers in the faults, counted from 0. Default: the hosts of the network in the order of `bareverbs
    /// run --list`.
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Factor by which to stretch all times: a simulated cluster counts microseconds, programs take milliseconds.
    #[arg(long, default_value_t = 1, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..))]
    pub stretch: u32,
    /// End all unplugged cables, partitions and losses left behind by a killed command or by `bareverbs run
    /// --link-down`, and resume paused processes.
    #[arg(long, conflicts_with_all = ["faults", "hosts", "stretch"])]
    pub end: bool,
    /// The faults, or the replay line of a simulated cluster trial (`seed=6 hosts=3 operations=4
    /// cut:2@81000ns+900000ns`).
    #[arg(required_unless_present = "end", value_name = "FAULT")]
    pub faults: Vec<String>,
}

/// Applies the faults. Returns when the last one has ended.
pub fn run(arguments: &InjectArguments) -> Result<(), Failure> {
    inject(arguments).map_err(Failure::Input)
}

fn inject(arguments: &InjectArguments) -> anyhow::Result<()> {
    let network = networks::open(&networks::home()?, &arguments.network)?;
    if arguments.end {
        let ended = network.end_trouble()?.into_iter().chain(acts::wake_all(&network)?);
        ended.for_each(|what| println!("ended: {what}"));
        return Ok(());
    }
    let hosts = if arguments.hosts.is_empty() { network.hosts() } else { arguments.hosts.clone() };
    if let Some(unknown) = hosts.iter().find(|host| !network.has_host(host)) {
        anyhow::bail!(
            "there is no host {unknown:?} in the network at {}; its hosts are: {}",
            network.path().display(),
            network.hosts().join(", ")
        );
    }
    let steps = plan::steps(&plan::parse(&arguments.faults, &hosts)?, &hosts, arguments.stretch)?;
    let interrupted = interruption()?;
    let mut stage = Stage::new(network);
    let done = perform(&steps, &mut stage, &interrupted);
    // Undoes everything even if a step has failed.
    stage.end().and(done)
}

/// Carries out each step at its time, until interrupted.
fn perform(steps: &[plan::PlannedAct], stage: &mut Stage, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let start = Instant::now();
    for step in steps {
        while start.elapsed() < step.at {
            if interrupted.load(Ordering::Relaxed) {
                println!("interrupted: ending all faults that have begun");
                return Ok(());
            }
            std::thread::sleep(NAP.min(step.at.saturating_sub(start.elapsed())));
        }
        stage.perform(&step.act).with_context(|| format!("after {:?}, {}", step.at, step.act))?;
        println!("{:9.3} s  {}", start.elapsed().as_secs_f64(), step.act);
    }
    Ok(())
}

/// A flag that SIGINT and SIGTERM set. A second signal ends the process at once.
fn interruption() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot watch for interrupts")?;
    }
    Ok(flag)
}
