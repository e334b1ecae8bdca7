//! A second guest with a NIC of its own at the same switch: server there, client in the first.

use super::super::machine::{Configuration, HOST_FROM_GUEST, Machine};
use super::super::root::Root;
use super::super::table::{Entry, Report, Verdict};
use super::{ask, cases};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// TCP port at which the server listens in its guest.
const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(240);

/// Programs, and what one line of the client's output must contain.
const PROGRAMS: &[(&str, &str)] = &[
    ("ibv_rc_pingpong -n 200 -c", "iters in"),
    ("ibv_uc_pingpong -n 200 -c", "iters in"),
    ("ibv_ud_pingpong -n 200 -c", "iters in"),
    ("ib_write_bw -s 65536 -F -n 100", "100"),
    ("ib_read_lat -s 4096 -F -n 100", "100"),
    ("ib_atomic_bw -A CMP_AND_SWAP -F -n 100", "100"),
];

fn name(program: &str) -> String {
    format!("between two guests: {program}")
}

/// Boots the second guest if a case of it is wanted, and runs the cases.
pub fn run(
    (root, output): (&Root, &Path),
    first: &mut Machine,
    nic: PathBuf,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<()> {
    let programs: Vec<_> = PROGRAMS.iter().filter(|(program, _)| wanted(&name(program))).collect();
    if programs.is_empty() {
        return Ok(());
    }
    let configuration = Configuration {
        memory: 512,
        processors: 1,
        vfio_user: vec![nic],
        tcp_ports: vec![PORT],
        ..Configuration::default()
    };
    let mut second = Machine::boot(root, &configuration, &output.join("mlx5-second-console.log"))?;
    report.add(ask(&mut second, &cases::second_guest())?);
    for (program, line) in programs {
        let start = Instant::now();
        let verdict = exchange(first, &mut second, program, line)?;
        report.add(Entry { columns: vec![name(program)], verdict, elapsed: start.elapsed() });
    }
    Ok(())
}

/// Runs both ends of a program, to the end of both.
fn exchange(first: &mut Machine, second: &mut Machine, program: &str, wanted: &str) -> Result<Verdict> {
    let port = second.forward(PORT).context("the second guest has no port forwarded")?.port();
    let server = second.control.start(&cases::server(&format!("{program} -p {PORT}")), LIMIT)?;
    let listens = second.control.run(&cases::wait_for_server(), LIMIT)?;
    let command = format!("{program} -p {port} {HOST_FROM_GUEST}");
    let client = first.control.run(&command, LIMIT)?;
    let served =
        if client.is_success() { second.control.wait(&server)? } else { second.control.cancel(&server)? };
    let line = client.output.lines().rfind(|line| line.contains(wanted));
    let good = listens.is_success() && client.is_success() && served.is_success();
    Ok(match line.filter(|_| good) {
        Some(line) => Verdict::Pass(line.trim().to_owned()),
        None => Verdict::Fail(format!(
            "client {}: {}; server {}: {}",
            client.status,
            client.output.trim(),
            served.status,
            served.output.trim()
        )),
    })
}
