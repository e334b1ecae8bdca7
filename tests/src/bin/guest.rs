//! Runs the judges that live in a Linux guest, for example `guest rxe`, where Linux's Soft-RoCE judges the
//! wire.

use anyhow::{Result, ensure};
use bareverbs_sim::nic::LinkLayer;
use bareverbs_tests::guest::floor::{Floor, Floors, Scope};
use bareverbs_tests::guest::kernel::Kernel;
use bareverbs_tests::guest::machine::{Configuration, Machine};
use bareverbs_tests::guest::root::Root;
use bareverbs_tests::guest::table::Report;
use bareverbs_tests::guest::{
    Skipped, bare_metal, devx, interrupt, mlx5, programs, recipe, rxe, soak, storage, subnet, vfio,
    without_guest,
};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Judges in a Linux guest: programs of other projects against the simulated NIC")]
struct GuestArguments {
    #[command(subcommand)]
    judge: Judge,
}

#[derive(Subcommand)]
enum Judge {
    /// Linux's Soft-RoCE judges the wire.
    Rxe {
        /// Only cases that contain this text, as in "ib_write_bw server 4096".
        #[arg(long)]
        only: Option<String>,
        /// Cases that have not started after this many minutes count as failed.
        #[arg(long, default_value_t = 20)]
        minutes: u64,
        /// One path MTU for each program and size, not several.
        #[arg(long)]
        quick: bool,
        /// Record each row's verdict in the list in `tests/judges` instead of comparing with it.
        #[arg(long)]
        record: bool,
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
        #[arg(long, value_enum, default_value_t = LinkLayerArgument::Ib)]
        link: LinkLayerArgument,
        /// Only the cases that differ from kernel to kernel.
        #[arg(long, conflicts_with = "long")]
        quick: bool,
        /// The guest's kernel, installed if it is not there.
        #[arg(long, value_enum, default_value_t)]
        kernel: Kernel,
        /// Record each row's verdict in the list in `tests/judges` instead of comparing with it.
        #[arg(long)]
        record: bool,
    },
    /// Linux's VFIO judges the driver that runs on it.
    Vfio {
        /// Only cases whose name contains this text, such as "conversations".
        #[arg(long)]
        only: Option<String>,
        /// Total number of operations in the random mix.
        #[arg(long, default_value_t = 100_000)]
        operations: u64,
        /// Record each row's verdict in the list in `tests/judges` instead of comparing with it.
        #[arg(long)]
        record: bool,
    },
    /// Storage of Linux's kernel, NVMe, NFS and iSER, judges fast registration.
    Storage(KernelJudge),
    /// Linux's mlx5_ib judges the driver in a device that the kernel owns (DEVX).
    Devx {
        /// Only rows whose name contains this text.
        #[arg(long)]
        only: Option<String>,
        /// The guest's kernel, installed if it is not there.
        #[arg(long, value_enum, default_value_t)]
        kernel: Kernel,
        /// Record each row's verdict in the list in `tests/judges` instead of comparing with it.
        #[arg(long)]
        record: bool,
    },
    /// UCX, OpenMPI, libfabric, qperf and DPDK judge the device model.
    Programs {
        #[command(flatten)]
        judge: KernelJudge,
        /// The program of Snabb, built from its public repository: run only its driver for ConnectX cards.
        #[arg(long, value_name = "FILE")]
        snabb: Option<PathBuf>,
    },
    /// The programs of infiniband-diags judge subnet management, from two ports at two switches.
    Subnet {
        /// Only rows whose name contains this text.
        #[arg(long)]
        only: Option<String>,
        /// Only the rows that cannot pass unless most of the subnet works.
        #[arg(long)]
        quick: bool,
        /// The guest's kernel, installed if it is not there.
        #[arg(long, value_enum, default_value_t)]
        kernel: Kernel,
        /// Record each row's verdict in the list in `tests/judges` instead of comparing with it.
        #[arg(long)]
        record: bool,
    },
    /// Stress two guests of one `bareverbs serve` with resets, rebinds, reboots and lost frames; check bytes, memory and descriptors.
    Soak {
        /// Start no new round after this many minutes.
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
    /// What the VFIO judge runs in the guest.
    #[command(hide = true)]
    InGuest(vfio::payload::InGuest),
    /// Boot the images without an operating system, which look up keys.
    BareMetal {
        /// Only processors whose name contains this text.
        #[arg(long)]
        only: Option<String>,
        /// Record each row's verdict in the list in `tests/judges` instead of comparing with it.
        #[arg(long)]
        record: bool,
    },
    /// Run `run-judge` with the programs of a Debian suite, on this machine and without a guest.
    #[command(name = "run-judge")]
    Hosted {
        /// Debian suite. trixie is the guest's; for another one, such as bookworm or sid, the command makes a root with these programs. Give this option first.
        #[arg(long, value_name = "SUITE", default_value = recipe::SUITE)]
        debian: String,
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the guest's root file system and stop.
    Build,
    /// Boot the guest and run one shell command in it.
    Run {
        /// The command.
        command: String,
    },
}

/// A judge that runs on any kernel, in a short and in a long form.
#[derive(clap::Args)]
struct KernelJudge {
    /// Only rows whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// More bytes, transports and operations.
    #[arg(long)]
    long: bool,
    /// The guest's kernel, installed if it is not there.
    #[arg(long, value_enum, default_value_t)]
    kernel: Kernel,
    /// Record each row's verdict in the list in `tests/judges` instead of comparing with it.
    #[arg(long)]
    record: bool,
}

impl KernelJudge {
    fn asked(&self) -> Asked<'_> {
        Asked { only: &self.only, record: self.record }
    }

    fn extent(&self) -> Extent {
        Extent { long: self.long, quick: false, kernel: self.kernel }
    }
}

/// Link layers.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum LinkLayerArgument {
    /// InfiniBand.
    Ib,
    /// Ethernet.
    Eth,
}

/// Exit status when nothing could run here: neither a pass nor a failure.
const CANNOT_RUN: u8 = 77;

fn main() -> ExitCode {
    match interrupt::install().and_then(|()| run(&GuestArguments::parse())) {
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

fn run(arguments: &GuestArguments) -> Result<ExitCode> {
    match &arguments.judge {
        Judge::Rxe { only, minutes, quick, record } => {
            judge_rxe(&Asked { only, record: *record }, *minutes, *quick)
        }
        Judge::Mlx5 { only, long, link, quick, kernel, record } => {
            let extent = Extent { long: *long, quick: *quick, kernel: *kernel };
            judge_mlx5(&Asked { only, record: *record }, extent, *link)
        }
        Judge::Vfio { only, operations, record } => judge_vfio(&Asked { only, record: *record }, *operations),
        Judge::Storage(judge) => judge_storage(&judge.asked(), judge.extent()),
        Judge::Devx { only, kernel, record } => judge_devx(&Asked { only, record: *record }, *kernel),
        Judge::Programs { judge, snabb: Some(program) } => judge_snabb(&judge.asked(), program),
        Judge::Programs { judge, .. } => judge_programs(&judge.asked(), judge.extent()),
        Judge::Subnet { only, quick, kernel, record } => {
            let extent = Extent { long: false, quick: *quick, kernel: *kernel };
            judge_subnet(&Asked { only, record: *record }, extent)
        }
        Judge::Soak { minutes } => soak(*minutes),
        Judge::InGuest(part) => vfio::payload::run(part),
        Judge::BareMetal { only, record } => judge_bare_metal(&Asked { only, record: *record }),
        Judge::Hosted { debian, arguments } => {
            let status = without_guest::run_judge(debian, arguments)?;
            Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Judge::Build => Root::prepare().map(|_| ExitCode::SUCCESS),
        Judge::Run { command } => run_command(command),
    }
}

/// How much a judge asks, and on which kernel.
#[derive(Clone, Copy)]
struct Extent {
    long: bool,
    quick: bool,
    kernel: Kernel,
}

impl Extent {
    /// The name of the list for this part of a judge.
    fn list_name(self, judge: &str) -> String {
        let suffix = match (self.long, self.quick) {
            (true, _) => "-long",
            (_, true) => "-quick",
            _ => "",
        };
        self.kernel.list_name(&format!("{judge}{suffix}"))
    }
}

/// Which rows a judge runs, and whether it records them.
struct Asked<'a> {
    only: &'a Option<String>,
    record: bool,
}

impl Asked<'_> {
    /// The rows that are wanted. Recording a list needs all of them.
    fn only(&self) -> Result<Option<String>> {
        ensure!(!self.record || self.only.is_none(), "--record needs a whole run, without --only");
        Ok(self.only.clone())
    }

    /// Shows the report and compares it with the judge's list, or records a new list from it.
    fn conclude(&self, name: &str, report: &Report, excuses: &'static [&'static str]) -> Result<ExitCode> {
        println!("{report}");
        let floors = Floors::of_this_tree();
        let is_good = match (self.record, floors.read(name)) {
            (true, before) => record(&floors, name, report, before.ok().flatten().as_ref())?,
            (false, before) => match before? {
                Some(floor) => {
                    let comparison = floor.compare(report, Scope { whole: self.only.is_none(), excuses });
                    println!("{}: {comparison}", floors.path(name).display());
                    comparison.is_success() && report.is_success()
                }
                None => {
                    println!("{name} has no list yet: --record writes {}", floors.path(name).display());
                    report.is_success()
                }
            },
        };
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Writes the list of a judge. Rows that failed keep their old entry in the list; the result is then false.
fn record(floors: &Floors, name: &str, report: &Report, before: Option<&Floor>) -> Result<bool> {
    let (floor, failed) = Floor::record(report, before);
    floors.write(name, &floor)?;
    println!("{} is written", floors.path(name).display());
    for row in &failed {
        println!("not recorded, because it failed: {row}");
    }
    Ok(failed.is_empty() && report.is_success())
}

fn judge_rxe(asked: &Asked<'_>, minutes: u64, quick: bool) -> Result<ExitCode> {
    let (only, output) = (asked.only()?, output_directory());
    let limit = Duration::from_secs(minutes.saturating_mul(60));
    let report = rxe::run(&rxe::RxeOptions { quick, only, output, limit })?;
    asked.conclude(if quick { "rxe-quick" } else { "rxe" }, &report, rxe::EXCUSES)
}

fn judge_mlx5(asked: &Asked<'_>, extent: Extent, link: LinkLayerArgument) -> Result<ExitCode> {
    let only = asked.only()?;
    // Both link layers may run at the same time, so each has its own files.
    let (link, files) = match link {
        LinkLayerArgument::Ib => (LinkLayer::InfiniBand, "mlx5-ib"),
        LinkLayerArgument::Eth => (LinkLayer::Ethernet, "mlx5-eth"),
    };
    let name = extent.list_name(files);
    let output = output_directory().join(&name);
    let Extent { long, quick, kernel } = extent;
    let report = mlx5::run(&mlx5::Mlx5Options { only, link, long, quick, kernel, output })?;
    asked.conclude(&name, &report, rxe::EXCUSES)
}

fn judge_vfio(asked: &Asked<'_>, operations: u64) -> Result<ExitCode> {
    let only = asked.only()?;
    let report = vfio::run(&vfio::VfioOptions { only, operations, output: output_directory() })?;
    asked.conclude("vfio", &report, &[])
}

fn judge_storage(asked: &Asked<'_>, extent: Extent) -> Result<ExitCode> {
    let (only, name) = (asked.only()?, extent.list_name("storage"));
    let Extent { long, kernel, .. } = extent;
    let output = output_directory().join(&name);
    let report = storage::run(&storage::StorageOptions { only, long, kernel, output })?;
    asked.conclude(&name, &report, &[])
}

fn judge_devx(asked: &Asked<'_>, kernel: Kernel) -> Result<ExitCode> {
    let (only, name) = (asked.only()?, kernel.list_name("devx"));
    let output = output_directory().join(&name);
    let report = devx::run(&devx::DevxOptions { only, kernel, output })?;
    asked.conclude(&name, &report, &[])
}

fn judge_programs(asked: &Asked<'_>, extent: Extent) -> Result<ExitCode> {
    let (only, name) = (asked.only()?, extent.list_name("programs"));
    let Extent { long, kernel, .. } = extent;
    let output = output_directory().join(&name);
    let report = programs::run(&programs::ProgramsOptions { only, long, kernel, output })?;
    asked.conclude(&name, &report, &[])
}

fn judge_snabb(asked: &Asked<'_>, program: &Path) -> Result<ExitCode> {
    let report = programs::snabb::run(program, &output_directory().join("snabb"))?;
    asked.conclude("snabb", &report, &[])
}

fn judge_subnet(asked: &Asked<'_>, extent: Extent) -> Result<ExitCode> {
    let (only, name) = (asked.only()?, extent.list_name("subnet"));
    let Extent { quick, kernel, .. } = extent;
    let output = output_directory().join(&name);
    let report = subnet::run(&subnet::SubnetOptions { only, quick, kernel, output })?;
    asked.conclude(&name, &report, &[])
}

/// The soak has no list: its report says how much was done.
fn soak(minutes: u64) -> Result<ExitCode> {
    let limit = Duration::from_secs(minutes.saturating_mul(60));
    let report = soak::run(&soak::SoakOptions { limit, output: output_directory().join("soak") })?;
    println!("{report}");
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge_bare_metal(asked: &Asked<'_>) -> Result<ExitCode> {
    let only = asked.only()?;
    let report = bare_metal::run(&bare_metal::BareMetalOptions { only, output: output_directory() })?;
    asked.conclude("bare-metal", &report, &[])
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
