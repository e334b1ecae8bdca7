//! The judge of the device model: Linux's own `mlx5_core` and `mlx5_ib`, and rdma-core's programs on top of
//! them.
//!
//! This process serves the simulated NIC over vfio-user, and a guest binds its drivers to it. Every
//! [`cases::Mlx5Case`] is a shell command in the guest with the output that it must have. The other side of
//! the traffic is then a process on our driver ([`our_process`]), the command `bareverbs` with a NIC of its
//! own, a second guest, or this machine's own network. No case runs twice to turn a failure into a pass, and
//! the output of the guest's programs is compared as it is. Start reading at [`cases::all`].

pub mod cases;
mod device_info;
mod ethernet;
pub(super) mod nic;
pub(super) mod options;
pub mod our_process;
pub(super) mod our_tools;
pub mod suite;
pub(super) mod this_machine;
mod two_guests;

pub use options::Mlx5Options;

use super::command;
use super::kernel;
use super::machine::{Configuration, Machine};
use super::root::Root;
use super::rxe::bout;
use super::rxe::guest_side::GuestDevice;
use super::rxe::our_side::Nic;
use super::table::{Entry, Report, Verdict};
use anyhow::{Context, Result};
use bareverbs_serve::real_time::UnixDatagramIo;
use bareverbs_sim::nic::LinkLayer;
use cases::Mlx5Case;
use nic::ServedNics;
use options::ask;
use our_process::Sides;
use our_tools::{GuestPort, ToolSides};
use std::time::{Duration, Instant};
use two_guests::Guests;

/// Numbers of the NICs of the first guest and of the second guest. The first guest's third NIC is at the
/// switch on Ethernet and has faults on InfiniBand.
const FIRST: usize = 0;
const OTHER: usize = 1;
const THIRD: usize = 2;
const SECOND_GUEST: usize = 3;
/// Number of the NIC that the command `bareverbs` has.
const TOOLS: usize = 4;
/// Faults on the frames of the faulty NIC, in both directions.
const FAULTS: &str = "loss=0.01,duplicate=0.01,reorder=0.01";
/// Seed of the faults, and of the addresses of our own NIC.
const SEED: u64 = 11;
const REBOOT: &str = "reboot of the guest";
/// Reboots of a long run.
const REBOOTS: u32 = 4;

/// Boots the guest and runs every case.
pub fn run(options: &Mlx5Options) -> Result<Report> {
    let root = Root::with_kernel(options.kernel)?;
    std::fs::create_dir_all(&options.output)?;
    let mut judge = Mlx5Judge::start(&root, options)?;
    match options.link {
        LinkLayer::InfiniBand => judge.infiniband()?,
        LinkLayer::Ethernet => judge.ethernet()?,
    }
    Ok(judge.report)
}

/// The guest, the NICs of both guests, and the results so far.
struct Mlx5Judge<'a> {
    // Dropped in this order: guests before what serves them.
    machine: Machine,
    nics: ServedNics,
    root: &'a Root,
    options: &'a Mlx5Options,
    report: Report,
}

impl<'a> Mlx5Judge<'a> {
    /// Powers the NICs on and boots the guest. One NIC is left for another process to serve: on InfiniBand
    /// the one with faults, on Ethernet that of the second guest.
    fn start(root: &'a Root, options: &'a Mlx5Options) -> Result<Self> {
        let (here, by_command, faults) = match options.link {
            LinkLayer::InfiniBand => (&[FIRST, OTHER, SECOND_GUEST, TOOLS][..], THIRD, Some(FAULTS)),
            LinkLayer::Ethernet => (&[FIRST, OTHER, THIRD, TOOLS][..], SECOND_GUEST, None),
        };
        let mut nics = ServedNics::start(options.link, here, &options.output)?;
        nics.serve_by_command(by_command, faults, &options.output)?;
        let configuration = configuration(&nics, options);
        let machine = Machine::boot(root, &configuration, &options.output.join("mlx5-console.log"))?;
        Ok(Self { machine, nics, root, options, report: Report::new(&["case"]) })
    }

    fn infiniband(&mut self) -> Result<()> {
        let (options, long) = (self.options, self.options.long);
        self.ask_all(cases::all(long))?;
        if options.quick {
            return Ok(());
        }
        self.compare_device_info();
        self.ask_all(cases::over_faults(long))?;
        self.machine.control.require(cases::HIDE_FAULTY, Duration::from_secs(60))?;
        self.play_with_our_process(|_, wire| {
            Ok(Sides { nic: Nic::infiniband(wire, SEED)?, guest: GuestDevice::infiniband("mlx5_0") })
        })?;
        self.play_with_our_tools(None)?;
        let (mut guests, report) = self.guests();
        guests.infiniband(report)?;
        let is_up = !options.wants(REBOOT) || self.reboot(if long { REBOOTS } else { 1 })?;
        self.report.add(self.nics.entry("commands of the drivers"));
        if is_up { self.suite() } else { Ok(()) }
    }

    /// Reboots the guest several times. Returns false once it does not come back, since no more cases can run
    /// then.
    fn reboot(&mut self, times: u32) -> Result<bool> {
        for _ in 0..times {
            let entry = reboot(&mut self.machine)?;
            let failed = matches!(entry.verdict, Verdict::Fail(_));
            self.report.add(entry);
            if failed {
                return Ok(false);
            }
            self.ask_all(cases::after_reboot())?;
        }
        self.machine.control.require(cases::HIDE_FAULTY, Duration::from_secs(60))?;
        Ok(true)
    }

    fn ethernet(&mut self) -> Result<()> {
        let (ours, card) = self.machine.wire_sockets(0);
        self.nics.join(ours, card)?;
        self.ask_all(ethernet::all(self.options.long))?;
        if self.options.quick {
            return Ok(());
        }
        self.compare_device_info();
        let apart = self.machine.control.require(&ethernet::apart(), Duration::from_secs(60))?;
        let (device, netdev) = apart.trim().split_once(' ').context("the third device has no name")?;
        self.play_with_our_process(|machine, wire| {
            let nic = Nic::ethernet(wire, SEED, nic::mac(THIRD))?;
            Ok(Sides { nic, guest: GuestDevice::roce(machine, device, netdev)? })
        })?;
        self.play_with_our_tools(Some([device, netdev]))?;
        let (mut guests, report) = self.guests();
        guests.ethernet(device, netdev, report)?;
        let Self { machine, nics, options, report, .. } = self;
        this_machine::play(machine, netdev, nics, options, report)?;
        self.ask_all(vec![cases::clean("after the other guests")])?;
        self.report.add(self.nics.losses());
        self.report.add(self.nics.entry("commands of the drivers"));
        if suite_names(self.options).is_some() {
            self.machine.control.require(&ethernet::alone(), Duration::from_secs(60))?;
        }
        self.suite()
    }

    fn compare_device_info(&mut self) {
        if self.options.wants(device_info::NAME) {
            self.report.add(device_info::judge(&mut self.machine.control, self.options.link));
        }
    }

    fn ask_all(&mut self, cases: Vec<Mlx5Case>) -> Result<()> {
        for case in cases {
            if case.set_up || self.options.wants(&case.name) {
                self.report.add(ask(&mut self.machine, &case)?);
            }
        }
        Ok(())
    }

    /// Runs the cases of our own process. `open` opens both sides, ours at the end of a new wire.
    fn play_with_our_process(
        &mut self,
        open: impl FnOnce(&mut Machine, UnixDatagramIo) -> Result<Sides>,
    ) -> Result<()> {
        let Self { machine, nics, options, report, .. } = self;
        let wanted = |name: &str| options.wants(name);
        let cases = our_process::cases(options.link, options.long);
        if !our_process::any(&cases, &wanted) {
            return Ok(());
        }
        let (own, switch) = nics.wire("ours")?;
        let sides = open(machine, UnixDatagramIo::bind(&own, &switch)?)?;
        sides.play(machine, &cases, &options.output, &wanted, report)
    }

    /// Runs the cases of our own tools. On Ethernet, `port` names the guest's device and its network device.
    fn play_with_our_tools(&mut self, port: Option<[&str; 2]>) -> Result<()> {
        let Self { machine, nics, options, report, .. } = self;
        let peer = match port {
            None => GuestPort::infiniband(),
            Some([device, netdev]) => {
                GuestPort::ethernet(machine, device, netdev, [THIRD, TOOLS].map(nic::mac))?
            }
        };
        let (bareverbs, socket) = (command::build()?, nics.socket(TOOLS));
        let mut sides = ToolSides { machine, bareverbs, socket, output: &options.output, peer };
        sides.play(&|name| options.wants(name), report)
    }

    fn guests(&mut self) -> (Guests<'_>, &mut Report) {
        let Self { machine, nics, root, options, report } = self;
        (Guests { first: machine, nics, nic: nics.socket(SECOND_GUEST), root, options }, report)
    }

    fn suite(&mut self) -> Result<()> {
        let Some(names) = suite_names(self.options) else { return Ok(()) };
        let limit = Duration::from_secs(if self.options.long { 3600 } else { 600 });
        suite::run(&mut self.machine, &names, limit, |entry| self.report.add(entry))?;
        self.report.add(self.nics.refusals("commands of the suite"));
        Ok(())
    }
}

/// The guest has three NICs. On Ethernet, the third one's switch has another network card too.
fn configuration(nics: &ServedNics, options: &Mlx5Options) -> Configuration {
    let ethernet = options.link == LinkLayer::Ethernet;
    Configuration {
        vfio_user: [FIRST, OTHER, THIRD].map(|index| nics.socket(index)).to_vec(),
        wires: if ethernet { vec![ethernet::SOFT_ROCE_MAC] } else { Vec::new() },
        files: vec![(suite::RUNNER.0.to_owned(), suite::RUNNER.1.into()), bout::payload()],
        tcp_ports: vec![bout::PORT],
        reboots: !ethernet,
        // On InfiniBand, the short form has the cache of memory keys until it reloads the drivers.
        kernel_words: kernel::short_form_words(options.long || !ethernet),
        ..Configuration::default()
    }
}

fn reboot(machine: &mut Machine) -> Result<Entry> {
    let start = Instant::now();
    let verdict = match machine.reboot() {
        Ok(kernel) => Verdict::Pass(format!("Linux {kernel} is up again")),
        Err(error) => Verdict::Fail(format!("{error:#}")),
    };
    Ok(Entry { columns: vec![REBOOT.to_owned()], verdict, elapsed: start.elapsed() })
}

/// What is to be run of rdma-core's suite. `--only` chooses modules whose name contains it; a longer name, as in
/// "test_mr.MRTest.test_dereg_mr", chooses a class or a test. `--long` looks among all modules.
fn suite_names(options: &Mlx5Options) -> Option<Vec<&str>> {
    let every_run = match options.link {
        LinkLayer::InfiniBand => suite::ON_INFINIBAND,
        LinkLayer::Ethernet => suite::ON_ETHERNET,
    };
    let Some(only) = options.only.as_deref() else {
        return Some(if options.long { Vec::new() } else { every_run.to_vec() });
    };
    let chosen: Vec<&str> = every_run.iter().copied().filter(|module| module.contains(only)).collect();
    if options.long || chosen.is_empty() {
        return only.starts_with("test_").then(|| vec![only]);
    }
    Some(chosen)
}
