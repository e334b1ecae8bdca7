//! The judges that live in a Linux guest. `guest rxe` lets Linux's Soft-RoCE judge the wire.

use anyhow::Result;
use bareverbs_sim::nic::LinkLayer;
use bareverbs_tests::guest::machine::{Configuration, Machine};
use bareverbs_tests::guest::root::Root;
use bareverbs_tests::guest::{Skipped, bare_metal, interrupt, mlx5, rxe, vfio};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Judges in a Linux guest: programs that nobody here wrote against the simulated NIC")]
struct Arguments {
    #[command(subcommand)]
    judge: Judge,
}

#[derive(Subcommand)]
enum Judge {
    /// Linux's Soft-RoCE judges the wire.
    Rxe {
        /// Only cases that contain this text, as in «ib_write_bw server 4096».
        #[arg(long)]
        only: Option<String>,
        /// Cases that have not begun after so many minutes are skipped.
        #[arg(long, default_value_t = 9)]
        minutes: u64,
        /// One path MTU for each program, size, role and family, not several.
        #[arg(long)]
        quick: bool,
    },
    /// Linux's mlx5_core and mlx5_ib judge the device model.
    Mlx5 {
        /// Only cases whose name contains this text.
        #[arg(long)]
        only: Option<String>,
        /// Repeat more often.
        #[arg(long)]
        long: bool,
        /// Link layer of the port.
        #[arg(long, value_enum, default_value_t = Link::Ib)]
        link: Link,
    },
    /// Linux's VFIO judges the driver's way through it.
    Vfio {
        /// Only cases whose name contains this text; «conversations» is the list of them.
        #[arg(long)]
        only: Option<String>,
        /// Operations of the mix, over all runs.
        #[arg(long, default_value_t = 100_000)]
        operations: u64,
    },
    /// What the VFIO judge runs in the guest.
    #[command(hide = true)]
    InGuest(vfio::payload::InGuest),
    /// Images without an operating system look keys up.
    BareMetal {
        /// Only processors whose name contains this text.
        #[arg(long)]
        only: Option<String>,
    },
    /// Build the guest's root file system and stop.
    Build,
    /// Boot the guest and run one shell command in it.
    Run {
        /// The command.
        command: String,
    },
}

/// Link layers.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Link {
    /// InfiniBand.
    Ib,
    /// Ethernet.
    Eth,
}

/// Exit status of what could not run here, neither good nor bad.
const CANNOT_RUN: u8 = 77;

fn main() -> ExitCode {
    match interrupt::install().and_then(|()| run(&Arguments::parse())) {
        Ok(code) => code,
        Err(error) => match error.downcast_ref::<Skipped>() {
            Some(skipped) => {
                println!("{skipped}");
                ExitCode::from(CANNOT_RUN)
            }
            None => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.judge {
        Judge::Rxe { only, minutes, quick } => judge_rxe(only.clone(), *minutes, *quick),
        Judge::Mlx5 { only, long, link } => judge_mlx5(only.clone(), *long, *link),
        Judge::Vfio { only, operations } => judge_vfio(only.clone(), *operations),
        Judge::InGuest(part) => vfio::payload::run(part),
        Judge::BareMetal { only } => judge_bare_metal(only.clone()),
        Judge::Build => Root::prepare().map(|_| ExitCode::SUCCESS),
        Judge::Run { command } => run_command(command),
    }
}

fn judge_rxe(only: Option<String>, minutes: u64, quick: bool) -> Result<ExitCode> {
    let limit = Duration::from_secs(minutes.saturating_mul(60));
    let report = rxe::run(&rxe::Options { quick, only, output: output_directory(), limit })?;
    println!("{report}");
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge_mlx5(only: Option<String>, long: bool, link: Link) -> Result<ExitCode> {
    // Both may run at a time: each has files of its own.
    let (link, files) = match link {
        Link::Ib => (LinkLayer::InfiniBand, "mlx5-ib"),
        Link::Eth => (LinkLayer::Ethernet, "mlx5-eth"),
    };
    let output = output_directory().join(files);
    let report = mlx5::run(&mlx5::Options { only, link, long, output })?;
    println!("{report}");
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge_vfio(only: Option<String>, operations: u64) -> Result<ExitCode> {
    let report = vfio::run(&vfio::Options { only, operations, output: output_directory() })?;
    println!("{report}");
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge_bare_metal(only: Option<String>) -> Result<ExitCode> {
    let report = bare_metal::run(&bare_metal::Options { only, output: output_directory() })?;
    println!("{report}");
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Consoles, logs and captures go to `target/guest`.
fn output_directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    target.join("guest")
}

fn run_command(command: &str) -> Result<ExitCode> {
    let root = Root::prepare()?;
    let mut machine =
        Machine::boot(&root, &Configuration::default(), &output_directory().join("console.log"))?;
    let outcome = machine.control.run(command, Duration::from_secs(300))?;
    print!("{}", outcome.output);
    Ok(ExitCode::from(u8::try_from(outcome.status).unwrap_or(1)))
}
