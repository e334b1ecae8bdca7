//! A program that polls runs its own device on the processor that it would otherwise waste.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use anyhow::{Result, ensure};

/// Seconds for which both programs poll.
const SECONDS: u32 = 2;
/// How many rounds a program must run its device in this time; it can do a hundred thousand.
const ROUNDS: u64 = 1000;

/// A test of perftest that does nothing but post and poll, at both ends.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if !is_installed("ib_send_lat") {
        return Ok(Verdict::Skip("ib_send_lat is not installed (Debian: apt-get install perftest)".into()));
    }
    let port = free_port()?;
    let program = |host: &str, peer: &str| {
        let command = format!("ib_send_lat -F -D {SECONDS} -p {port}{peer}");
        HostedProgram { host: host.into(), command: command.split_whitespace().map(str::to_owned).collect() }
    };
    let mut server = installation.start(&program("a", ""), &[])?;
    server.wait_for_port(installation, port)?;
    let client = installation.start(&program("b", " a"), &[])?;
    for host in ["a", "b"] {
        installation.wait_for_driven_rounds(host, ROUNDS)?;
    }
    for ended in [client.finish()?, server.finish()?] {
        ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    }
    Ok(Verdict::Pass(format!("{ROUNDS} rounds and more at each end")))
}
