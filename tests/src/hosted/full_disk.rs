//! A capture for which there is no room on the disk: the program is told so and goes on.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use anyhow::{Result, ensure};

/// Longest file that the program with the capture may write, in blocks of 512 bytes (`ulimit -f`): more than a ring of frames has.
const BLOCKS: u32 = 8192;
/// What is written is several times as much.
const MESSAGES: u32 = 500;

/// Runs a test of perftest whose capture reaches the longest length that a file may have, which the kernel refuses as it refuses to
/// write to a full disk.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if !is_installed("ib_write_bw") {
        return Ok(Verdict::Skip("ib_write_bw is not installed (Debian: apt-get install perftest)".into()));
    }
    let directory = installation.own_directory("full")?;
    let capture = directory.join("x.pcapng");
    let port = free_port()?;
    let program = |host: &str, peer: &str| {
        let command = format!("ib_write_bw -F -n {MESSAGES} -p {port}{peer}");
        HostedProgram { host: host.into(), command: command.split_whitespace().map(str::to_owned).collect() }
    };
    let mut server = installation.start(&program("a", ""), &[])?;
    server.wait_for_port(installation, port)?;
    let options = ["--capture".to_owned(), capture.to_string_lossy().into_owned()];
    let client = installation.start_limited(&program("b", " a"), &options, BLOCKS)?;
    let (client, server) = (client.finish()?, server.finish()?);
    for ended in [&server, &client] {
        ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    }
    for words in ["the capture stopped", "check space", "the program goes on"] {
        ensure!(client.said.contains(words), "«{words}» is not in what was said:\n{}", client.said);
    }
    let written = capture.metadata()?.len();
    ensure!(written > 0, "nothing was captured before");
    Ok(Verdict::Pass(format!("{written} bytes")))
}
