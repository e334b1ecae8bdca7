//! `bareverbs perf` as two processes on two hosts of a network.

use serde_json::Value;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn perf(home: &Path, host: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    command.args(["perf"]).args(arguments).args(["--json", "--host", host, "--timeout", "30"]);
    command.env("XDG_RUNTIME_DIR", home).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn object(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let mut object: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    object["perf"].take()
}

/// Both ends of a test: what client and server say.
fn both(arguments: &[&str]) -> [Value; 2] {
    let home = tempfile::tempdir().expect("a directory");
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    let port = port.expect("a port").port().to_string();
    let arguments = [arguments, &["-p", &port]].concat();
    let server = perf(home.path(), "a", &arguments).spawn().expect("the program");
    let (host, begin) = (home.path().join("bareverbs/networks/default/hosts/a"), Instant::now());
    while !host.is_dir() {
        assert!(begin.elapsed() < Duration::from_secs(30), "the server is in no network");
        std::thread::sleep(Duration::from_millis(10));
    }
    let client = perf(home.path(), "b", &[&arguments[..], &["a"]].concat()).output().expect("the program");
    let server = server.wait_with_output().expect("the program");
    [&client, &server].map(|output| {
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        object(output)
    })
}

#[test]
fn both_ends_agree_and_every_byte_is_compared() {
    for arguments in [
        &["write", "bw", "-n", "100"][..],
        &["read", "bw", "-n", "100", "-b", "-q", "2", "-s", "3000"],
        &["send", "lat", "-n", "20", "-c", "UD"],
        &["write", "lat", "-n", "20", "-c", "UC", "-s", "5000"],
        &["atomic", "bw", "-n", "100"],
        &["send", "bw", "-n", "100", "-b", "-e"],
    ] {
        let [client, server] = both(arguments);
        assert_eq!((client["role"].as_str(), server["role"].as_str()), (Some("client"), Some("server")));
        assert_eq!(client["local"], server["remote"], "{arguments:?}");
        assert_eq!(client["remote"], server["local"], "{arguments:?}");
        let compared = |end: &Value| {
            assert_eq!(end["data"]["wrong_bytes"], 0, "{arguments:?}: {end}");
            end["data"]["compared_bytes"].as_u64().expect("data was known")
        };
        assert!(compared(&client) + compared(&server) >= 8, "{arguments:?}");
        if client["measure"] == "bandwidth" && client["options"]["bidirectional"] == false {
            let [own, told] = [&client["results"][0]["local"], &server["results"][0]["remote"]];
            let rate = |end: &Value| end["average_bytes_per_s"].as_f64().expect("a rate");
            assert!((rate(own) / rate(told) - 1.0).abs() < 1e-9, "{arguments:?}: {own} {told}");
        }
    }
}

#[test]
fn a_peer_that_is_not_there_is_named_with_where_it_was_looked_for() {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = perf(home.path(), "b", &["write", "bw", "-p", "9", "--timeout", "1", "b"]);
    let output = command.output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
    assert!(said.contains("--timeout"), "given twice: {said}");
    let mut command = perf(home.path(), "b", &["write", "bw", "-p", "9", "no-such-host.invalid"]);
    let output = command.output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no host of the network"), "{said}");
}
