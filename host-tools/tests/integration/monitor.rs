//! `bareverbs monitor` as a process: one sample, and the exporter during simulated traffic.

use crate::support::KillOnDrop;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

fn monitor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    command.arg("monitor").args(arguments);
    command
}

#[test]
fn one_sample_is_what_the_doctor_reads() {
    let output = monitor(&["--once", "--json", "--loss", "0.1"]).output().expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(object["schema"], "bareverbs.monitor.v1");
    assert!(object["monitor"]["counters"]["packet_seq_err"]["says"].is_string(), "{object}");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("counters");
    std::fs::write(&path, &output.stdout).expect("written");
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    let output = doctor.arg("doctor").arg("--counters").arg(&path).args(["--root", "/nowhere"]).output();
    let output = output.expect("the program");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("warning  counters.retransmission: "), "{text}");
}

/// How long a monitor may take to end.
const LIMIT: Duration = Duration::from_secs(60);

/// A monitor that ends with the test.
struct Running(KillOnDrop);

impl Running {
    /// Its exit status; it has to end by itself.
    fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().expect("the program") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("a process");
    }
}

fn scrape(address: &str) -> String {
    let mut client = TcpStream::connect(address).expect("the exporter listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: test\r\nAccept: application/openmetrics-text\r\n\r\n";
    client.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    answer
}

fn sent(exposition: &str) -> Option<u64> {
    let line = exposition.lines().find(|line| line.starts_with("bareverbs_tx_packets_phy_total{"))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// A listening exporter, and its address.
fn exporter() -> (Running, String) {
    let mut command = monitor(&["--openmetrics", "127.0.0.1:0", "--interval", "10"]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program");
    let mut running = Running(KillOnDrop(child));
    let mut line = String::new();
    let stderr = running.0.stderr.take().expect("standard error");
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("serving http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    (running, address)
}

#[test]
fn the_exporter_shows_traffic_that_goes_on() {
    let (_running, address) = exporter();
    let mut seen = Vec::new();
    for _ in 0..300 {
        let answer = scrape(&address);
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        seen.extend(sent(&answer));
        if seen.last() > seen.first() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the count of packets does not rise: {seen:?}");
}

/// The device is closed properly: over VFIO and vfio-user the next user finds it free.
#[test]
fn signals_end_it_in_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let (mut running, address) = exporter();
        assert!(scrape(&address).starts_with("HTTP/1.1 200 OK"));
        running.signal(signal);
        assert_eq!(running.end().code(), Some(0), "{signal:?}");
    }
}

/// `bareverbs monitor | head`: the next sample is far in the future.
#[test]
fn monitor_ends_when_its_reader_does() {
    for more in [&["--json"][..], &[]] {
        let mut command = monitor(&[&["--interval", "3600000"][..], more].concat());
        let child = command.stdout(Stdio::piped()).spawn().expect("the program");
        let mut running = Running(KillOnDrop(child));
        let mut stdout = running.0.stdout.take().expect("standard output");
        stdout.read_exact(&mut [0; 8]).expect("the first sample");
        drop(stdout);
        assert_eq!(running.end().code(), Some(0), "{more:?}");
    }
}
