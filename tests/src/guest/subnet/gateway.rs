//! This machine in the subnet: `bareverbs ipoib`, with a NIC of its own at the far switch, connects a TAP
//! interface, so the guest's IPoIB talks to the kernel of this machine.

use super::super::command;
use super::super::machine::Machine;
use super::super::mlx5::nic::ServedNics;
use super::super::mlx5::this_machine::echo;
use super::super::process::{self, KillOnDrop, TICK};
use super::super::table::{Entry, Report, Verdict};
use super::ipoib::row;
use super::row::DiagnosticRow;
use anyhow::{Context, Result, ensure};
use bareverbs_serve::fabric::Fabric;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of the NIC.
const NUMBER: usize = 4;
/// How long the gateway may take to join.
const JOINED_WITHIN: Duration = Duration::from_secs(60);
/// What it prints then.
const JOINED: &str = "is in the subnet";
/// What every case must print.
const PING: &str = "20 packets transmitted, 20 received, 0% packet loss";
const STREAM: &str = "stream: 4 MiB there and back are the same";
const NAMES: [&str; 4] = [
    "IPoIB with this machine: ping",
    "IPoIB with this machine: ping of IPv6",
    "IPoIB with this machine: TCP",
    "IPoIB with this machine: TCP over IPv6",
];

/// Addresses of both sides. The networks are this process's own, because judges may run side by side.
struct Addresses {
    here: [IpAddr; 2],
    guest: [IpAddr; 2],
}

impl Addresses {
    fn of_process(process: u32) -> Self {
        let ipv4 = |host| IpAddr::from(Ipv4Addr::new(169, 254, 80 + (process % 128) as u8, host));
        let ipv6 = |host| IpAddr::from(Ipv6Addr::new(0xfd44, 0x6276, 0, process as u16, 0, 0, 0, host));
        Self { here: [ipv4(1), ipv6(1)], guest: [ipv4(2), ipv6(2)] }
    }

    /// The addresses with their prefix lengths.
    fn with_prefix([ipv4, ipv6]: &[IpAddr; 2]) -> [String; 2] {
        [format!("{ipv4}/30"), format!("{ipv6}/64")]
    }
}

/// Where the NIC of this machine is plugged in, and where its log goes.
pub(super) struct FarSwitch<'a> {
    pub(super) nics: &'a ServedNics,
    pub(super) fabric: &'a Fabric,
    pub(super) output: &'a Path,
}

/// Runs the rows that are wanted. If this machine cannot have the interface, all of them are skipped.
pub(super) fn play(
    machine: &mut Machine,
    functions: &str,
    far: &FarSwitch<'_>,
    only: Option<&str>,
    report: &mut Report,
) -> Result<()> {
    let is_wanted = |name: &&str| only.is_none_or(|only| name.contains(only));
    let names: Vec<&str> = NAMES.into_iter().filter(is_wanted).collect();
    if names.is_empty() {
        return Ok(());
    }
    let (tap, addresses) = (format!("bvg{}", std::process::id()), Addresses::of_process(std::process::id()));
    far.nics.serve_at(NUMBER, far.fabric)?;
    let _gateway = match join(far.nics, &tap, &addresses, &far.output.join("subnet-ipoib.log")) {
        Ok(gateway) => gateway,
        Err(reason) => {
            names.into_iter().for_each(|name| report.add(entry(name, Verdict::Skip(format!("{reason:#}")))));
            return Ok(());
        }
    };
    let [ipv4, ipv6] = Addresses::with_prefix(&addresses.guest);
    let command =
        format!("ip -n near addr replace {ipv4} dev near0 && ip -n near addr replace {ipv6} dev near0 nodad");
    machine.control.require(&command, JOINED_WITHIN)?;
    let listeners = addresses.here.map(|here| TcpListener::bind((here, 0)));
    for (row, name) in NAMES.into_iter().enumerate().filter(|(_, name)| names.contains(name)) {
        let family = row % 2;
        let here = addresses.here[family];
        if row < 2 {
            let ping = said(name, &format!("ping_far {here} -c 20 -i 0.05"), PING);
            report.add(ping.ask(machine, functions, None)?);
            continue;
        }
        let listener = listeners[family].as_ref().map_err(|error| anyhow::anyhow!("{here}: {error}"))?;
        let (port, echo) = (listener.local_addr()?.port(), echo(listener.try_clone()?));
        let stream = said(name, &format!("transfer stream {port} {here} 4"), STREAM);
        report.add(stream.ask(machine, functions, None)?);
        // The guest has already seen whatever went wrong here.
        if let Err(error) = echo.join().map_err(|_| anyhow::anyhow!("it panicked")).and_then(|ended| ended) {
            eprintln!("guest: the other end of the stream: {error:#}");
        }
    }
    Ok(())
}

fn said(name: &'static str, command: &str, wanted: &str) -> DiagnosticRow {
    row(name, command, [wanted.to_owned()])
}

fn entry(name: &str, verdict: Verdict) -> Entry {
    Entry { columns: vec![name.to_owned()], verdict, elapsed: Duration::ZERO }
}

/// Starts the gateway, waits until it has joined, and gives the interface its addresses.
fn join(nics: &ServedNics, tap: &str, addresses: &Addresses, log: &Path) -> Result<KillOnDrop> {
    ensure!(process::exists("ip"), "iproute2 is not installed");
    ensure!(Path::new("/dev/net/tun").exists(), "this machine has no /dev/net/tun");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(command::build()?).args(["ipoib", "--tap", tap]);
    command.arg("--device").arg(format!("vfio-user:{}", nics.socket(NUMBER).display()));
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    let mut gateway = KillOnDrop(command.spawn().context("cannot run bareverbs ipoib")?);
    let deadline = Instant::now() + JOINED_WITHIN;
    loop {
        let said = fs::read_to_string(log).unwrap_or_default();
        if said.contains(JOINED) {
            break;
        }
        let ended = gateway.0.try_wait()?;
        ensure!(
            ended.is_none() && Instant::now() < deadline,
            "bareverbs ipoib does not join: {}",
            said.trim()
        );
        std::thread::sleep(TICK);
    }
    for address in Addresses::with_prefix(&addresses.here) {
        let words = ["addr", "replace", &address, "dev", tap];
        let nodad = if address.contains(':') { Some("nodad") } else { None };
        process::output(Command::new("ip").args(words).args(nodad))?;
    }
    Ok(gateway)
}
