//! `bareverbs serve` as a process: several cards and ports, a capture that states its clock, impossible
//! options.

use crate::support::KillOnDrop;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn serve(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    command.arg("serve").args(arguments).current_dir(directory).stdin(Stdio::null());
    command
}

fn refused(arguments: &[&str], complaint: &str) {
    let directory = TempDir::new().expect("a directory");
    let output: Output = serve(directory.path(), arguments).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(complaint), "{arguments:?}: {said}");
}

#[test]
fn impossible_options_are_refused_with_status_2() {
    refused(&[], "--socket");
    refused(&["--socket", "a", "--faults", "lost=1"], "'lost=1'");
    refused(&["--socket", "a", "--ports", "3"], "--ports");
    refused(&["--socket", "a", "--link", "ib", "--link", "eth"], "once for each");
    refused(&["--socket", "none/a"], "cannot listen at none/a");
    refused(&["--socket", "a", "--capture", "none/c"], "none/c");
    refused(&["--socket", "a", "--wire", "w"], "needs --wire-to");
    refused(&["--socket", "a", "--wire", "tap:t", "--wire-to", "w"], "needs no --wire-to");
    refused(&["--socket", "a", "--wire", "tap:t"], "the ports are InfiniBand");
    refused(&["--socket", "a", "--socket", "b", "--wire", "tap:t"], "the ports are InfiniBand");
    refused(&["--socket", "a", "--link", "eth", "--wire", "tap:lo"], "'lo'");
    refused(&["--socket", "a", "--partitions", "none"], "cannot read the partitions of none");
    refused(&["--socket", "a", "--link", "eth", "--partitions", "/dev/null"], "needs InfiniBand ports");
    refused(&["--link-down", "none/a"], "no `bareverbs serve` answers at none/a.cable");
    refused(&["--link-up", "a", "--socket", "b"], "cannot be used with");
    let two = ["--socket", "a", "--socket", "b", "--link", "ib", "--link", "eth"];
    refused(&[&two[..], &["--wire", "w", "--wire-to", "x"]].concat(), "one link layer");
}

#[test]
fn a_file_of_partitions_that_is_wrong_is_refused_with_its_line() {
    let directory = TempDir::new().expect("a directory");
    fs::write(directory.path().join("p.conf"), "Default=0x7fff : ALL;\nstorage=0x8010 : SOMEBODY;\n")
        .expect("a file");
    let output =
        serve(directory.path(), &["--socket", "a", "--partitions", "p.conf"]).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("p.conf") && said.contains("line 2: 'SOMEBODY'"), "{said}");
}

/// Every socket that a card needs counts, and a start that fails leaves none behind.
#[test]
fn colliding_paths_are_refused_and_leave_no_socket() {
    for sockets in [
        &["--socket", "a", "--socket", "a"][..],
        &["--socket", "a", "--socket", "./a"],
        &["--socket", "a.cable", "--socket", "a"],
        &["--ports", "2", "--socket", "a", "--socket", "a.1"],
        &["--dpu", "a", "--socket", "a.arm"],
    ] {
        refused(sockets, "would be the socket of two");
    }
    let directory = TempDir::new().expect("a directory");
    fs::write(directory.path().join("b"), "mine").expect("a file");
    let output = serve(directory.path(), &["--socket", "a", "--socket", "b"]).output().expect("the program");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let left: Vec<_> = fs::read_dir(directory.path())
        .expect("a directory")
        .map(|entry| entry.expect("one").file_name())
        .collect();
    assert_eq!(left, ["b"]);
}

/// A device at PATH.cable of another server keeps its socket.
#[test]
fn the_socket_of_another_server_stays() {
    let directory = TempDir::new().expect("a directory");
    let start = |name: &str| {
        let child = serve(directory.path(), &["--socket", name]).stderr(Stdio::piped()).spawn();
        let mut server = KillOnDrop(child.expect("the program"));
        let mut said = BufReader::new(server.stderr.take().expect("piped")).lines();
        assert!(said.by_ref().map_while(Result::ok).any(|line| line.contains("serving at")));
        // A server whose log nobody can read ends.
        (server, said)
    };
    let number = || fs::metadata(directory.path().join("a.cable")).expect("a socket").ino();
    let _first = start("a.cable");
    let before = number();
    let _second = start("a");
    assert_eq!(number(), before, "the second server has replaced the socket");
}

#[test]
fn only_the_owner_may_connect() {
    let directory = TempDir::new().expect("a directory");
    let child = Command::new("sh")
        .args(["-c", "umask 0; exec \"$0\" serve --socket a", env!("CARGO_BIN_EXE_bareverbs")])
        .current_dir(directory.path())
        .stderr(Stdio::null())
        .spawn();
    let _server = KillOnDrop(child.expect("the program"));
    drop(connect(&directory.path().join("a")));
    for name in ["a", "a.cable"] {
        drop(connect(&directory.path().join(name)));
        let mode = fs::metadata(directory.path().join(name)).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

fn connect(path: &Path) -> UnixStream {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_port_of_every_card_has_a_socket_and_the_capture_an_interface_for_each() {
    let directory = TempDir::new().expect("a directory");
    let arguments = [
        "--socket",
        "one",
        "--socket",
        "two",
        "--ports",
        "2",
        "--capture",
        "all.pcapng",
        "--faults",
        "jitter=1us",
    ];
    let child = serve(directory.path(), &arguments).stderr(Stdio::null()).spawn().expect("the program");
    let _server = KillOnDrop(child);
    for name in ["one", "one.1", "two", "two.1"] {
        drop(connect(&directory.path().join(name)));
    }
    let capture = fs::read(directory.path().join("all.pcapng")).expect("a capture");
    let text = String::from_utf8_lossy(&capture);
    assert!(text.contains("real time") && !text.contains("virtual time"));
    assert!(["one", "one.1", "two", "two.1"].iter().all(|name| text.contains(name)));
}

#[test]
fn an_ended_server_leaves_no_socket() {
    for signal in [Signal::INT, Signal::TERM] {
        let directory = TempDir::new().expect("a directory");
        let mut command = serve(directory.path(), &["--socket", "a", "--socket", "b"]);
        let mut server = command.stderr(Stdio::piped()).spawn().expect("the program");
        let sockets = ["a", "b", "a.cable", "b.cable"].map(|name| directory.path().join(name));
        // It watches for signals by the time it reports that it serves.
        let said = BufReader::new(server.stderr.take().expect("piped"));
        assert_eq!(
            said.lines().map_while(Result::ok).filter(|line| line.contains("serving at")).take(2).count(),
            2
        );
        assert!(sockets.iter().all(|socket| socket.exists()));
        kill_process(Pid::from_child(&server), signal).expect("it runs");
        let ended = server.wait().expect("it ends");
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{ended}");
        assert!(sockets.iter().all(|socket| !socket.exists()));
    }
}

/// A file that never ends is refused with its limit.
#[test]
fn endless_files_are_refused() {
    let limit = format!("more than {} bytes", 64 << 20);
    refused(&["--socket", "a", "--topology", "/dev/zero"], &limit);
    refused(&["--socket", "a", "--partitions", "/dev/zero"], &limit);
    refused(&["--socket", "a", "--settings", "/dev/full"], "larger than 65536 bytes");
}
