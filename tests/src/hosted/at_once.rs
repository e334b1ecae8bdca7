//! Many pairs of programs at the same time, on few processors: every one of them gets through.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use anyhow::{Result, ensure};
use std::time::Duration;

/// Pairs. A host has up to 128 processes.
const PAIRS: usize = 100;
/// For all of them, on a machine with two processors.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the pairs, whose programs compare every byte that they receive.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if !is_installed("ibv_rc_pingpong") {
        return Ok(Verdict::Skip(
            "ibv_rc_pingpong is not installed (Debian: apt-get install ibverbs-utils)".into(),
        ));
    }
    let start = |host: &str, port: u16, peer: &str| {
        let command = format!("ibv_rc_pingpong -g 0 -c -n 100 -p {port} {peer}");
        let command = command.split_whitespace().map(str::to_owned).collect();
        let program = installation.start(&HostedProgram { host: host.into(), command }, &[])?;
        anyhow::Ok(program.limit(LIMIT))
    };
    let mut servers = Vec::new();
    for _ in 0..PAIRS {
        let port = free_port()?;
        let mut server = start("a", port, "")?;
        server.wait_for_port(installation, port)?;
        servers.push((server, port));
    }
    let clients: Result<Vec<_>> = servers.iter().map(|(_, port)| start("b", *port, "a")).collect();
    let servers = servers.into_iter().map(|(server, _)| server);
    for program in clients?.into_iter().chain(servers) {
        let ended = program.finish()?;
        ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
        ensure!(ended.said.contains("bytes"), "it said:\n{}", ended.said);
    }
    Ok(Verdict::Pass(format!("{PAIRS} pairs")))
}
