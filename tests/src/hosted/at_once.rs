//! Many pairs of programs at the same time on few processors. Every pair must finish.

use super::listed::CLOSED_CHANNEL;
use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use anyhow::{Result, ensure};
use std::time::Duration;

/// Number of pairs. A host has up to 128 processes.
const PAIRS: usize = 100;
/// Time limit for all of them, on a machine with two processors.
const LIMIT: Duration = Duration::from_secs(300);

/// Pairs of a program that compares every byte it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crowd {
    /// The program and the options of both ends.
    command: &'static str,
    /// More options for each end.
    server: &'static str,
    client: &'static str,
    /// Faults on the way.
    faults: &'static str,
    package: &'static str,
}

/// The crowds. `rping` disconnects when it is done, so frames that are lost last are sent again before the
/// peer is gone.
pub const CROWDS: [Crowd; 2] = [
    Crowd {
        command: "ibv_rc_pingpong -g 0 -c -n 100",
        server: "",
        client: "a",
        faults: "",
        package: "ibverbs-utils",
    },
    Crowd {
        command: "rping -V -C 10 -S 4000",
        server: "-s",
        client: "-c -a a",
        faults: "loss=0.01,reorder=0.05,duplicate=0.02",
        package: "rdmacm-utils",
    },
];

impl Crowd {
    /// The name of the row.
    pub fn name(&self) -> String {
        let faults = if self.faults.is_empty() { "" } else { ", " };
        format!("a / b: {PAIRS} pairs of {} at once{faults}{}", self.command, self.faults)
    }

    /// Runs the pairs.
    pub fn judge(&self, installation: &Installation) -> Result<Verdict> {
        let program = self.command.split(' ').next().unwrap_or_default();
        if !is_installed(program) {
            return Ok(Verdict::Skip(format!(
                "{program} is not installed (Debian: apt-get install {})",
                self.package
            )));
        }
        let start = |host: &str, port: u16, further: &str| {
            let command = format!("{} -p {port} {further}", self.command);
            let command = command.split_whitespace().map(str::to_owned).collect();
            let options = ["--faults", self.faults, "--seed", &port.to_string()].map(str::to_owned);
            let options = if self.faults.is_empty() { &[] } else { &options[..] };
            let program = installation.start(&HostedProgram { host: host.into(), command }, options)?;
            anyhow::Ok(program.limit(LIMIT))
        };
        let mut servers = Vec::new();
        for _ in 0..PAIRS {
            let port = free_port()?;
            let mut server = start("a", port, self.server)?;
            server.wait_for_port(installation, port)?;
            servers.push((server, port));
        }
        let clients: Result<Vec<_>> =
            servers.iter().map(|(_, port)| start("b", *port, self.client)).collect();
        let servers = servers.into_iter().map(|(server, _)| server);
        for program in clients?.into_iter().chain(servers) {
            let ended = program.finish()?;
            let is_good = ended.status.success() || ended.said.contains(CLOSED_CHANNEL);
            ensure!(is_good, "{}, and said:\n{}", ended.status, ended.said);
        }
        Ok(Verdict::Pass(format!("{PAIRS} pairs")))
    }
}
