//! The command as a user runs it: its output and its exit status.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bareverbs"))
        .arg("demo")
        .args(arguments)
        .output()
        .expect("the command can be started")
}

/// A directory for this test, removed at its end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bareverbs-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("written");
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn json(output: &Output) -> Value {
    let text = std::str::from_utf8(&output.stdout).expect("text");
    assert!(output.status.success(), "{} {}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), 1, "one object and nothing else: {text}");
    serde_json::from_str(text).expect("JSON")
}

#[track_caller]
fn refused(arguments: &[&str], complaint: &str) {
    let output = demo(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(complaint), "{error}");
    assert!(output.stdout.is_empty());
}

/// Every option checks a negative number itself, so that the message is about the number.
#[test]
fn negative_numbers_are_refused_as_values() {
    for (words, complaint) in [
        ("ping -i -5 peer", "invalid value '-5' for '--interval"),
        ("ping -p -5 peer", "-5 is not in 1..=65535"),
        ("serve --socket a --seed -1", "invalid value '-1'"),
        ("advise --hops -3", "invalid value '-3'"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_bareverbs")).args(words.split(' ')).output();
        let output = output.expect("the command can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(complaint) && !error.contains("-- -"), "{words}: {error}");
    }
}

#[track_caller]
fn check(found: &Value, rows: u64) {
    assert_eq!(found["rows"], rows);
    let ways = found["ways"].as_array().expect("ways");
    let names: Vec<&str> = ways.iter().filter_map(|way| way["name"].as_str()).collect();
    assert_eq!(names, ["kernel-dpu", "kernel-nic", "read", "program", "cpu", "advised"]);
    for way in ways {
        assert_eq!((&way["lookups"], &way["verified"]), (&found["rows"], &found["rows"]));
        assert_eq!(way["absent_confirmed"], rows.div_ceil(10).min(1000));
        let trips = way["round_trips_mean"].as_f64().expect("a number");
        let is_right = match way["name"].as_str() {
            Some("read") => trips >= 2.0,
            Some("advised") => trips >= 1.0,
            _ => trips == 1.0,
        };
        assert!(is_right, "{way}");
        let latency = |name: &str| way["sim_latency_ns"][name].as_u64().expect("a number");
        assert!(0 < latency("p50") && latency("p50") <= latency("p99") && latency("p99") <= latency("p999"));
        assert!(way["lookups_per_second"].as_f64().expect("a number") > 0.0);
    }
}

/// The --data file is never overwritten, whatever path leads to it.
#[test]
fn a_capture_does_not_overwrite_the_data() {
    let files = Files::new("overwrite");
    let data = files.write("data.csv", "a,1\n");
    let link = files.path("link");
    std::os::unix::fs::symlink(&data, &link).expect("a link");
    for capture in [&data, &link] {
        refused(
            &["--data", &data, "--capture", capture],
            "that is the file of --data, and would be overwritten",
        );
    }
    assert_eq!(std::fs::read(&data).expect("there"), b"a,1\n");
}

#[test]
fn unreadable_files_and_invalid_seeds_are_refused_with_the_reason() {
    let files = Files::new("strange");
    refused(
        &["--data", &files.write("utf16", b"\xff\xfea\0,\0b\0\n\0")],
        "the file is UTF-16; save it as UTF-8",
    );
    refused(&["--data", &files.write("quote.csv", "a,\"b\n1,2\n")], "line 1: a quotation mark opens a cell");
    refused(&["--seed", "-1"], "invalid value '-1' for '--seed <SEED>': expected a whole number from 0");
}

#[test]
fn data_comes_from_the_standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bareverbs"))
        .args(["demo", "--json", "--data", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    child.stdin.take().expect("a pipe").write_all(b"a,1\nb,2\n").expect("written");
    check(&json(&child.wait_with_output().expect("it ends")), 2);
}

#[test]
fn the_demo_serves_a_given_data_file() {
    let files = Files::new("own");
    let lines: String = (0..50).map(|n| format!("key {n}\t{}\n", "v".repeat(n * 700))).collect();
    let path = files.write("data.tsv", format!("Key\tValue\n{lines}"));
    for preset in ["strom-10g", "strom-100g", "bf3-arm"] {
        let found =
            json(&demo(&["--json", "--data", &path, "--preset", preset, "--loss", "0.01", "--seed", "9"]));
        assert_eq!(
            (&found["preset"], &found["seed"], &found["loss"]),
            (&preset.into(), &9.into(), &0.01.into())
        );
        check(&found, 50);
    }
}

#[test]
fn the_report_shows_programs_replaced_while_they_answer() {
    let files = Files::new("swaps");
    let path = files.write("data.csv", "a,1\nb,2\nc,3\n");
    let found = json(&demo(&["--json", "--data", &path, "--swaps", "20", "--loss", "0.01"]));
    check(&found, 3);
    assert_eq!(found["program_swaps"], 20);
    let text = demo(&["--data", &path, "--swaps", "5"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("replaced 5 times") && text.contains("all verified"), "{text}");
}

#[test]
fn the_report_shows_changes_of_the_table_during_lookups() {
    let files = Files::new("changes");
    let lines: String = (0..40).map(|n| format!("key {n},{}\n", "v".repeat(n * 9))).collect();
    let path = files.write("data.csv", lines);
    let found =
        json(&demo(&["--json", "--data", &path, "--changes", "200", "--swaps", "5", "--loss", "0.01"]));
    check(&found, 40);
    assert_eq!((&found["writer"]["changes"], &found["program_swaps"]), (&200.into(), &5.into()));
    let buckets = |at: usize| found["writer"]["buckets"][at].as_u64().expect("a number");
    assert!(buckets(1) > buckets(0), "{found}");
    let text = demo(&["--data", &path, "--changes", "20"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("changed 20 times") && text.contains("all verified"), "{text}");
}

#[test]
fn the_same_seed_gives_the_same_digest() {
    let files = Files::new("seed");
    let path = files.write("data", "a,1\nb,2\n");
    let digest = |seed: &str| {
        let found = json(&demo(&["--json", "--data", &path, "--seed", seed, "--loss", "0.1"]));
        check(&found, 2);
        found["digest"].as_str().expect("a string").to_owned()
    };
    assert_eq!(digest("7"), digest("7"));
    assert_ne!(digest("7"), digest("8"));
}

#[test]
fn a_capture_is_a_pcapng_file() {
    let files = Files::new("capture");
    let (data, capture) = (files.write("data.csv", "a,1\n"), files.path("out.pcapng"));
    let output = demo(&["--data", &data, "--capture", &capture]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("frames captured in") && text.contains("all verified"),
        "{text}"
    );
    let bytes = std::fs::read(Path::new(&capture)).expect("written");
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "section header block");
    assert!(bytes.len() > 1000);
}

#[test]
fn the_printed_report_says_that_time_is_simulated() {
    let files = Files::new("people");
    let data = files.write("data.csv", "a,1\n");
    let output = demo(&["--data", &data, "--preset", "bf3-arm"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("sim p99.9") && text.contains("bf3-arm, not a measurement"), "{text}");
    assert!(output.stderr.is_empty(), "no progress bar without a terminal");
}

#[test]
fn impossible_options_are_refused_with_status_2() {
    let files = Files::new("bad");
    let empty = files.write("empty.csv", "");
    let header = files.write("header.csv", "key,value\n");
    let twice = files.write("twice.csv", "a,1\nb,2\na,3\n");
    let long_key = files.write("long.csv", format!("a,1\n{},2\n", "k".repeat(65)));
    let long_value = files.write("value.csv", format!("a,{}\n", "v".repeat(65_537)));
    let lonely = files.write("lonely.csv", "a\n");
    let good = files.write("good.csv", "a,1\n");
    refused(&["--data", &files.path("missing.csv")], "cannot read");
    refused(&["--data", &empty], "nothing to look up");
    refused(&["--data", &header], "nothing to look up");
    refused(&["--data", &twice], "line 1 and again in line 3");
    refused(&["--data", &long_key], "line 2: the key has 65 bytes");
    refused(&["--data", &long_value], "line 1: the value has 65537 bytes");
    refused(&["--data", &lonely], "one column");
    refused(&["--data", &good, "--loss", "1"], "less than 1");
    refused(&["--data", &good, "--loss", "-0.1"], "--loss");
    refused(&["--data", &good, "--loss", "much"], "not a number");
    refused(&["--data", &good, "--preset", "cx-7"], "strom-10g");
    refused(&["--data", &good, "--capture", &files.path("no/such/dir/x.pcapng")], "cannot be written");
}

#[test]
fn bad_data_does_not_cost_an_older_capture() {
    let files = Files::new("keep");
    let (data, capture) = (files.write("data.csv", ""), files.write("old.pcapng", "precious"));
    refused(&["--data", &data, "--capture", &capture], "nothing to look up");
    assert_eq!(std::fs::read(&capture).expect("still there"), b"precious");
}

#[test]
fn a_network_that_loses_nearly_everything_is_a_failure_and_not_a_hang() {
    let files = Files::new("lost");
    let data = files.write("data.csv", "a,1\n");
    let output = demo(&["--json", "--data", &data, "--loss", "0.99"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the connection broke"));
}

#[test]
fn advice_for_a_lookup_that_reads_nothing_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    let output = command.args(["advise", "--hops", "4,0"]).output().expect("the command can be started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
    assert!(error.contains("every lookup reads at least one element: give 1 or more"), "{error}");
}

fn explain(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bareverbs"))
        .arg("explain")
        .args(arguments)
        .output()
        .expect("the command can be started")
}

#[test]
fn explain_prints_cause_values_and_what_to_try() {
    let output = explain(&["IBV_WC_RETRY_EXC_ERR"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for part in ["cause", "compare", "try", "rq_psn", "path MTU"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = explain(&["12", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["schema"], "bareverbs.explain.v1");
    let rows = found["explain"].as_array().expect("an array");
    assert!(
        rows.iter().any(|row| row["name"] == "IBV_WC_RETRY_EXC_ERR" && row["kind"] == "completion status")
    );
    let unknown = explain(&["what"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(unknown.stdout.is_empty());
    let near = explain(&["IBV_WC_RETRY_EXEC_ERR"]);
    let error = String::from_utf8_lossy(&near.stderr);
    assert!(near.status.code() == Some(2) && error.contains("did you mean IBV_WC_RETRY_EXC_ERR"), "{error}");
}

/// `bareverbs explain | head -1`: a reader may stop at any time.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for arguments in [&["explain"][..], &["explain", "--json"], &["gids"], &["devinfo", "-v"], &["doctor"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command.args(arguments).stdout(writer).output().expect("the command can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*error), (Some(0), ""), "{arguments:?}");
    }
}
