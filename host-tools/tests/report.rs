//! `bareverbs report` of what devices did that a server has recorded while two processes used them.

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use support::{Served, bareverbs, free_port, object_of, output_of};

const MESSAGES: u64 = 50;

/// RDMA WRITEs from the second served device to the first.
fn write(directory: &Path) {
    let (port, count) = (free_port(), MESSAGES.to_string());
    let test = ["perf", "write", "bw", "-n", &count, "-s", "5000", "-Q", "1", "-p", &port, "--timeout", "60"];
    let mut server = bareverbs(directory, &[&test[..], &["--device", "vfio-user:nic"]].concat());
    let server = server.spawn().expect("the program");
    // The client asks again while nobody listens.
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
    let trace = std::fs::read(directory.join("run.json")).expect("a timeline");
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
    assert!(std::fs::read_to_string(directory.join("run.html")).expect("a page").contains("under way"));
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
