//! Captures of `bareverbs run`, checked by other programs: tshark dissects every frame, and Python recomputes
//! every ICRC.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use crate::judges::{Version, python_agrees_on_every_icrc, tshark_accepts, tshark_fields};
use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use std::panic::catch_unwind;
use std::path::Path;

/// Messages of the test, and the least number of frames that each side's capture must hold.
const MESSAGES: usize = 100;

/// Captures a test of perftest on both of its hosts, with faults on one of them.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if let Some(program) = ["ib_send_bw", "tshark"].into_iter().find(|program| !is_installed(program)) {
        return Ok(Verdict::Skip(format!(
            "{program} is not installed (Debian: apt-get install perftest tshark)"
        )));
    }
    let directory = installation.own_directory("captures")?;
    let port = free_port()?;
    let mut started = Vec::new();
    for (host, peer, faults) in [("a", "", "loss=0"), ("b", " a", "loss=0.02,duplicate=0.02")] {
        let command = format!("ib_send_bw -F -n {MESSAGES} -s 4096 -p {port}{peer}");
        let command = command.split_whitespace().map(str::to_owned).collect();
        let capture = directory.join(format!("{host}.pcapng")).to_string_lossy().into_owned();
        let options = ["--faults", faults, "--capture", &capture].map(str::to_owned);
        let mut program = installation.start(&HostedProgram { host: host.into(), command }, &options)?;
        if peer.is_empty() {
            program.wait_for_port(installation, port)?;
        }
        started.push(program);
    }
    for program in started {
        let ended = program.finish()?;
        ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    }
    let counts = ["a", "b"].map(|host| check(&directory.join(format!("{host}.pcapng"))));
    let [a, b] = counts;
    Ok(Verdict::Pass(format!("{} and {} frames", a?, b?)))
}

/// Records a program's device, and lets `bareverbs report` make a page and a timeline of the recording.
pub fn judge_recording(installation: &Installation) -> Result<Verdict> {
    if !is_installed("ib_write_bw") {
        return Ok(Verdict::Skip("ib_write_bw is not installed (Debian: apt-get install perftest)".into()));
    }
    let directory = installation.own_directory("recordings")?;
    let path = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let (port, recording) = (free_port()?, path("b.pcapng"));
    let program = |host: &str, peer: &str| {
        let command = format!("ib_write_bw -F -n {MESSAGES} -s 5000 -Q 1 -p {port}{peer}");
        HostedProgram { host: host.into(), command: command.split_whitespace().map(str::to_owned).collect() }
    };
    let mut server = installation.start(&program("a", ""), &[])?;
    server.wait_for_port(installation, port)?;
    let options = ["--loss", "0.02", "--capture", &recording, "--records"].map(str::to_owned);
    for ended in [installation.run(&program("b", " a"), &options)?, server.finish()?] {
        ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    }
    let (page, timeline) = (path("b.html"), path("b.json"));
    let words = ["report", &recording, "--html", &page, "--trace", &timeline, "--json"];
    let ended = installation.run_tool(&words)?;
    let mut object: Value = serde_json::from_str(&ended.said).with_context(|| ended.said.clone())?;
    let devices = object["report"]["device"].take();
    let count = |name: &str| devices[name].as_u64().with_context(|| format!("{name} in {devices}"));
    ensure!(count("records_lost")? == 0 && count("records_not_read")? == 0, "{devices}");
    ensure!(count("work_requests")? >= MESSAGES as u64 && count("completions")? > 0, "{devices}");
    let trace: Value = serde_json::from_slice(&std::fs::read(&timeline)?)?;
    let events = trace["traceEvents"].as_array().context("events")?;
    let is_program = |event: &&Value| event["name"] == "ib_write_bw" && event["args"]["pid"].is_u64();
    let programs = events.iter().filter(is_program).count();
    ensure!(programs == 1, "{programs} tracks of programs; the host ran one, with one device");
    let arrows = events.iter().filter(|event| event["ph"] == "f").count();
    ensure!(arrows >= MESSAGES, "{arrows} arrows end in the timeline");
    Ok(Verdict::Pass(format!("{} records, {arrows} arrows", count("records")?)))
}

/// The number of frames in a capture that both judges accept.
fn check(capture: &Path) -> Result<usize> {
    let looked = catch_unwind(|| {
        let frames = tshark_fields(capture, &["frame.number"]).map_or(0, |rows| rows.len());
        tshark_accepts(Version::Two, capture, frames);
        python_agrees_on_every_icrc(Version::Two, capture, frames);
        frames
    });
    let frames = looked.map_err(|refusal| {
        let said = refusal.downcast_ref::<String>().cloned();
        anyhow!("{}: {}", capture.display(), said.unwrap_or_else(|| "a judge refuses it".into()))
    })?;
    ensure!(frames > MESSAGES, "{} has {frames} frames only", capture.display());
    Ok(frames)
}
