//! `bareverbs inject`: faults while programs run.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use crate::judges::tshark_fields;
use anyhow::{Context, Result, ensure};

/// Seconds for which both programs send back and forth.
const SECONDS: u32 = 3;
/// The faults, which take two thirds of that time.
const FAULTS: [&str; 4] =
    ["cut:a@100ms+200ms", "partition:a:b@500ms+200ms", "loss:b:30@900ms+600ms", "pause:a@1700ms+200ms"];
/// Number of events: the beginning and the end of each fault.
const ACTS: usize = 2 * FAULTS.len();

/// A test of perftest survives a pulled cable, a partition, lost frames and a paused host. The capture must
/// hold the frames that were lost.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if let Some(program) = ["ib_send_lat", "tshark"].into_iter().find(|program| !is_installed(program)) {
        return Ok(Verdict::Skip(format!(
            "{program} is not installed (Debian: apt-get install perftest tshark)"
        )));
    }
    let capture = installation.own_directory("trouble")?.join("b.pcapng");
    let port = free_port()?;
    let program = |host: &str, peer: &str| {
        let command = format!("ib_send_lat -F -D {SECONDS} -p {port}{peer}");
        HostedProgram { host: host.into(), command: command.split_whitespace().map(str::to_owned).collect() }
    };
    let mut server = installation.start(&program("a", ""), &[])?;
    server.wait_for_port(installation, port)?;
    let options = ["--capture".to_owned(), capture.to_string_lossy().into_owned()];
    let client = installation.start(&program("b", " a"), &options)?;
    installation.wait_for_frames("b", 100)?;
    let injected = installation.run_tool(&[&["inject", "--hosts", "a,b"][..], &FAULTS].concat())?;
    for ended in [client.finish()?, server.finish()?, injected.clone()] {
        ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    }
    ensure!(injected.said.lines().count() == ACTS, "not {ACTS} acts:\n{}", injected.said);
    let comments = tshark_fields(&capture, &["frame.comment"]).context("tshark reads no capture")?;
    let lost = comments.iter().flatten().filter(|comment| comment.contains("fault: dropped")).count();
    ensure!(lost > 0, "of {} frames that were captured none was lost", comments.len());
    Ok(Verdict::Pass(format!("{lost} frames lost")))
}
