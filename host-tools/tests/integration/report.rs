//! `bareverbs report` on devices' actions that a server has recorded while two processes used them.

use crate::support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;
use support::{Served, bareverbs, free_port, object_of, output_of};

const MESSAGES: u64 = 50;

/// RDMA WRITEs from the second served device to the first.
fn write(directory: &Path) {
    let (port, count) = (free_port(), MESSAGES.to_string());
    let test = ["perf", "write", "bw", "-n", &count, "-s", "5000", "-Q", "1", "-p", &port, "--timeout", "60"];
    let mut server = bareverbs(directory, &[&test[..], &["--device", "vfio-user:nic"]].concat());
    let server = server.spawn().expect("the program");
    // The client retries while nobody listens.
    let client = output_of(directory, &[&test[..], &["--device", "vfio-user:other", "127.0.0.1"]].concat());
    for output in [client, server.wait_with_output().expect("the program")] {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_recording_of_served_devices_becomes_a_page_and_a_timeline() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let options = ["--socket", "other", "--link", "eth", "--capture", "run.pcapng", "--records"];
    let served = Served::start(directory, &options);
    support::wait_for(&directory.join("other"), "the server opened no second socket");
    write(directory);
    drop(served);
    let files = ["report", "run.pcapng", "--html", "run.html", "--trace", "run.json", "--json"];
    let output = output_of(directory, &files);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = object_of("report", &output);
    let devices = &report["device"];
    let count = |name: &str| devices[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
    assert_eq!((count("records_lost"), count("records_not_read"), count("completions_in_error")), (0, 0, 0));
    assert!(count("work_requests") >= MESSAGES && count("completions") > 0, "{devices}");
    assert!(count("doorbells") > 0 && count("commands") > 10, "{devices}");
    let trace = fs::read(directory.join("run.json")).expect("a timeline");
    let trace: Value = serde_json::from_slice(&trace).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let named: BTreeSet<&str> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .filter_map(|event| event["args"]["name"].as_str())
        .collect();
    assert_eq!(named, BTreeSet::from(["nic", "other"]), "a process for each device");
    let flows = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count() as u64;
    assert!(flows("s") >= MESSAGES && flows("f") >= MESSAGES, "an arrow for each work request");
    assert!(fs::read_to_string(directory.join("run.html")).expect("a page").contains("under way"));
}

#[test]
fn records_without_a_capture_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for arguments in [&["serve", "--socket", "nic", "--records"][..], &["run", "--records", "--", "true"]] {
        let output = output_of(directory.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("--capture"), "{arguments:?}: {said}");
    }
}

/// Frames and records of the large capture; more if `BAREVERBS_EVENTS` asks for them.
const EVENTS: usize = 400_000;
/// How much the memory of a report may vary whatever the length of the capture, because of the allocator.
const VARIATION: u64 = 1 << 20;

/// The blocks of a pcapng file.
fn blocks(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(length) = bytes.get(4..8) {
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        let (block, rest) = bytes.split_at(length);
        found.push(block.to_vec());
        bytes = rest;
    }
    found
}

/// Enhanced packet block (pcapng); its time stamp is in two halves.
const FRAME: [u8; 4] = [6, 0, 0, 0];

fn later(block: &mut [u8], nanos: u64) {
    let half = |at: usize| u64::from(u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes")));
    let time = (half(12) << 32 | half(16)) + nanos;
    block[12..16].copy_from_slice(&((time >> 32) as u32).to_le_bytes());
    block[16..20].copy_from_slice(&(time as u32).to_le_bytes());
}

/// A recording of a demo, repeated until it has this many events, each copy a second later.
fn long_recording(of: &Path, to: &Path, events: usize) {
    let blocks = blocks(&fs::read(of).expect("a capture"));
    let (mut frames, heads): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|block| block[..4] == FRAME);
    let mut file = BufWriter::new(fs::File::create(to).expect("a file"));
    heads.iter().try_for_each(|block| file.write_all(block)).expect("written");
    for _ in 0..events.div_ceil(frames.len()) {
        for frame in &mut frames {
            file.write_all(frame).expect("written");
            later(frame, 1_000_000_000);
        }
    }
    file.flush().expect("written");
}

/// The peak memory of a report on a capture, and how many events it saw.
fn memory_of_report(directory: &Path, capture: &str) -> (u64, u64) {
    let words = ["report", capture, "--html", "page.html", "--trace", "/dev/null", "--json"];
    let found = directory.join("found.json");
    // A file, because an unread pipe would block it.
    let stdout = fs::File::create(&found).expect("a file");
    let mut child = bareverbs(directory, &words).stdout(stdout).spawn().expect("the program");
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().expect("the program").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let kibibytes = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        most = most.max(kibibytes.map_or(0, |number| number.trim().parse().expect("a number")) << 10);
        std::thread::sleep(Duration::from_millis(2));
    }
    let found: Value = serde_json::from_slice(&fs::read(found).expect("a file")).expect("JSON");
    let found = &found["report"];
    let count = |of: &Value| of.as_u64().expect("a count");
    (most, count(&found["frames"]) + count(&found["device"]["records"]))
}

#[test]
fn memory_of_a_report_does_not_grow_with_the_recording() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let rows: String = (0..20).map(|row| format!("key {row},value {row}\n")).collect();
    fs::write(here.join("rows.csv"), format!("key,value\n{rows}")).expect("a file");
    let words = ["demo", "--data", "rows.csv", "--loss", "0.01", "--capture", "one.pcapng", "--records"];
    let demo = output_of(here, &words);
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
    let many = std::env::var("BAREVERBS_EVENTS").map_or(EVENTS, |text| text.parse().expect("a number"));
    // By then every table of the report is as full as it gets.
    let few = many / 2;
    for (name, events) in [("few", few), ("many", many)] {
        long_recording(&here.join("one.pcapng"), &here.join(name), events);
    }
    let [(small, seen), (large, all)] = ["few", "many"].map(|name| memory_of_report(here, name));
    println!("{seen} events: {small} bytes of memory; {all} events: {large} bytes");
    assert!(small > 0 && seen >= few as u64 && all >= many as u64, "{seen} and {all} events");
    assert!(large < small + VARIATION, "{small} bytes for {seen} events, {large} for {all}");
}
