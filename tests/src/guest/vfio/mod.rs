//! The judge of VFIO: Linux's own VFIO and IOMMU between our driver and the simulated NIC.
//!
//! Simulated NICs are served to a guest with an IOMMU. There `bareverbs vfio bind` binds them to `vfio-pci`,
//! and this same program, copied into the guest, drives two of them that are joined by a wire: the list of
//! conversations of [`crate::places`], the tools of `bareverbs`, a run that is killed, another run, every fault with its message, and
//! rdma-core's own VFIO driver as a second opinion. A failed case is not run again. Start reading at [`run`],
//! then [`cases`].

pub mod cases;
mod fleet;
pub mod payload;
mod tools;

use super::machine::{Configuration, Machine};
use super::process;
use super::root::Root;
use super::table::{Entry, Report, Verdict};
use super::{Skipped, command, interrupt};
use crate::places::{ConversationLine, ConversationOutcome};
use anyhow::Result;
use cases::{VfioCase, surrounded};
use fleet::{CROWDED, Fleet, NAMES};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// What to run, and where to put consoles.
#[derive(Debug, Clone)]
pub struct VfioOptions {
    /// Only cases whose name contains this; the set-up is always run.
    pub only: Option<String>,
    /// Number of operations in the mix, over all three runs.
    pub operations: u64,
    /// Directory for the consoles.
    pub output: PathBuf,
}

impl VfioOptions {
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}

/// Boots the guests and runs every case.
pub fn run(options: &VfioOptions) -> Result<Report> {
    let root = Root::prepare()?;
    require_old_enough(&root)?;
    std::fs::create_dir_all(&options.output)?;
    let programs = Programs::find()?;
    let mut report = Report::new(&["case"]);
    with_iommu(&root, &programs, options, &mut report)?;
    if options.wants("no IOMMU") {
        without_iommu(&root, &programs, options, &mut report)?;
    }
    for (what, why) in LACKING {
        report.add(entry(what, Verdict::Skip((*why).to_owned()), Duration::ZERO));
    }
    Ok(report)
}

/// What this kernel cannot show.
const LACKING: &[(&str, &str)] = &[
    (
        "iommufd and the device's own file",
        "no kernel of Debian 13 and its backports has CONFIG_IOMMUFD; hal/src/vfio/sequences.rs tests the requests",
    ),
    (
        "a hand at the latch of the slot (device_del)",
        "QEMU 11.1 ends by an assertion when a vfio-user device leaves its slot",
    ),
    (
        "no IOMMU, on request",
        "no kernel of Debian 13 and its backports has CONFIG_VFIO_NOIOMMU; hal/src/vfio/sequences.rs tests the requests",
    ),
];

/// This program and the command, as bytes for the guest.
struct Programs {
    rig: Vec<u8>,
    bareverbs: PathBuf,
    example: PathBuf,
}

impl Programs {
    /// Builds the programs other than this one.
    fn find() -> Result<Self> {
        let rig = std::fs::read(std::env::current_exe()?)?;
        Ok(Self { rig, bareverbs: command::build()?, example: command::build_example("vfio_write")? })
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let (bareverbs, example) = (std::fs::read(&self.bareverbs)?, std::fs::read(&self.example)?);
        Ok(vec![
            ("rig".into(), self.rig.clone()),
            ("bareverbs".into(), bareverbs),
            ("vfio_write".into(), example),
        ])
    }
}

/// Programs linked here run in the guest only if its C library is no older than this machine's.
fn require_old_enough(root: &Root) -> Result<()> {
    let version = |command: &mut Command| -> Result<Vec<u32>> {
        let text = process::output(command)?;
        let word = text.lines().next().and_then(|line| line.split_whitespace().last()).unwrap_or_default();
        Ok(word.split('.').filter_map(|part| part.parse().ok()).collect())
    };
    let ours = version(Command::new("ldd").arg("--version"))?;
    let guests = version(Command::new("chroot").arg(root.directory()).args(["ldd", "--version"]))?;
    if ours > guests {
        let why =
            format!("programs of this machine (C library {ours:?}) do not run in the guest ({guests:?})");
        return Err(Skipped(why).into());
    }
    Ok(())
}

fn with_iommu(root: &Root, programs: &Programs, options: &VfioOptions, report: &mut Report) -> Result<()> {
    let mut fleet = Fleet::start(&programs.bareverbs, &options.output.join("vfio-serve.log"))?;
    let configuration = Configuration {
        memory: 1536,
        devices: fleet::qemu_arguments(),
        sockets: fleet.sockets(),
        kernel_words: ["intel_iommu=on", "modprobe.blacklist=mlx5_core"].map(str::to_owned).to_vec(),
        files: programs.files()?,
        ..Configuration::default()
    };
    let mut machine = Machine::boot(root, &configuration, &options.output.join("vfio-console.log"))?;
    let names: Vec<&str> = NAMES.iter().copied().chain([CROWDED]).collect();
    prepare(&mut machine, &names)?;
    let third = options.operations / 2;
    for case in cases::before().into_iter().chain(cases::example()).chain(cases::rdma_core()) {
        ask(&mut machine, &mut fleet, &case, options, report)?;
    }
    tools::play(&mut machine, &fleet, &|name| options.wants(name), report)?;
    conversations(&mut machine, "runs 1 and 2", 2, options.operations - third, options, report)?;
    ask(&mut machine, &mut fleet, &cases::kill(), options, report)?;
    conversations(&mut machine, cases::AFTER_KILL, 1, third, options, report)?;
    cases::after().iter().try_for_each(|case| ask(&mut machine, &mut fleet, case, options, report))
}

/// The same devices in a machine that has no IOMMU.
fn without_iommu(root: &Root, programs: &Programs, options: &VfioOptions, report: &mut Report) -> Result<()> {
    let mut fleet = Fleet::start(&programs.bareverbs, &options.output.join("vfio-serve.log"))?;
    let devices = fleet::qemu_arguments().into_iter().skip(2).collect();
    let kernel_words = vec!["modprobe.blacklist=mlx5_core".to_owned()];
    let (sockets, files) = (fleet.sockets(), programs.files()?);
    let configuration = Configuration { devices, kernel_words, sockets, files, ..Configuration::default() };
    let mut machine = Machine::boot(root, &configuration, &options.output.join("vfio-bare-console.log"))?;
    let names: Vec<&str> = NAMES.iter().copied().chain([CROWDED]).collect();
    prepare(&mut machine, &names)?;
    cases::no_iommu().iter().try_for_each(|case| ask(&mut machine, &mut fleet, case, options, report))
}

/// Installs the programs and sets a shell variable for each device, in the order of their addresses.
fn prepare(machine: &mut Machine, names: &[&str]) -> Result<()> {
    let [rig, bareverbs, example] = ["rig", "bareverbs", "vfio_write"].map(Machine::path_inside);
    let command = format!(
        "mkdir -p /tmp/bin && cp {rig} {bareverbs} {example} /tmp/bin && chmod 755 /tmp/bin/* && cd /sys/bus/pci/devices || exit 1
         set -- {}
         for f in $(ls); do
             [ $(cat $f/vendor) = 0x15b3 ] || continue
             echo \"$1=$f; export $1\"; shift
         done >/tmp/devices; [ $# = 0 ] || {{ echo \"missing: $*\"; exit 1; }}",
        names.join(" ")
    );
    machine.control.require(&command, Duration::from_secs(60)).map(drop)
}

fn ask(
    machine: &mut Machine,
    fleet: &mut Fleet,
    case: &VfioCase,
    options: &VfioOptions,
    report: &mut Report,
) -> Result<()> {
    if !case.set_up && !options.wants(case.name) {
        return Ok(());
    }
    let start = Instant::now();
    let job = machine.control.start(&surrounded(&case.command), case.limit)?;
    if let Some(after) = case.kill_server_after {
        wait_until(start + after)?;
        fleet.kill_mortal()?;
    }
    let outcome = machine.control.wait(&job)?;
    let verdict = match (outcome.is_success(), case.seen(&outcome.output)) {
        (true, Ok(seen)) => Verdict::Pass(seen),
        (true, Err(missing)) => Verdict::Fail(missing),
        (false, _) => Verdict::Fail(format!("status {}: {}", outcome.status, outcome.output.trim())),
    };
    report.add(entry(case.name, verdict, start.elapsed()));
    Ok(())
}

fn wait_until(moment: Instant) -> Result<()> {
    while Instant::now() < moment {
        interrupt::check()?;
        std::thread::sleep(process::TICK);
    }
    Ok(())
}

/// The list of conversations over real VFIO; each line becomes an entry.
fn conversations(
    machine: &mut Machine,
    when: &str,
    rounds: u32,
    operations: u64,
    options: &VfioOptions,
    report: &mut Report,
) -> Result<()> {
    if !options.wants(cases::CONVERSATIONS) && !options.wants(when) {
        return Ok(());
    }
    let start = Instant::now();
    let each = operations.div_ceil(rounds.into());
    let command = format!("$rig conversations $a $b --operations {each} --rounds {rounds}");
    let outcome = machine.control.run(&surrounded(&command), Duration::from_secs(900))?;
    let lines: Vec<ConversationLine> = outcome.output.lines().filter_map(ConversationLine::parse).collect();
    for line in &lines {
        let verdict = match &line.outcome {
            ConversationOutcome::Pass(seen) => Verdict::Pass(seen.clone()),
            ConversationOutcome::Fail(seen) => Verdict::Fail(seen.clone()),
            ConversationOutcome::Skip(why) => Verdict::Skip(why.clone()),
        };
        report.add(entry(&format!("{when}: {}", line.name), verdict, Duration::ZERO));
    }
    let verdict = match outcome.status {
        0 if !lines.is_empty() => {
            Verdict::Pass(format!("{} conversations, {operations} mixed operations", lines.len()))
        }
        status => Verdict::Fail(format!("status {status}: {}", outcome.output.trim())),
    };
    report.add(entry(&format!("{when}: all"), verdict, start.elapsed()));
    Ok(())
}

fn entry(name: &str, verdict: Verdict, elapsed: Duration) -> Entry {
    Entry { columns: vec![name.to_owned()], verdict, elapsed }
}
