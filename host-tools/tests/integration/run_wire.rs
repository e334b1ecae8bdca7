//! `bareverbs run --wire`: hosts of a network and a peer outside, over a wire. Every byte that `bareverbs
//! perf` moves is compared.

use crate::support;

use bareverbs_serve::network::NetworkDirectory;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Hosts, KillOnDrop, Served, bareverbs, free_port, object_of, wait_for};

/// Path of the socket of a network's bridge, in a test's home directory.
const BRIDGE: &str = "bareverbs/networks/default/outside";
const BRIDGE_INFINIBAND: &str = "bareverbs/networks/default/outside-ib";
/// Time limit of both ends of a test.
const TIMEOUT: [&str; 2] = ["--timeout", "60"];

/// A process that ends with the test.
struct Running(KillOnDrop);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(KillOnDrop(command.stdout(Stdio::null()).spawn().expect("the program")))
    }

    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it was killed");
    }
}

/// The bridge of the network in `home`.
fn bridge(home: &Path, arguments: &[&str]) -> Running {
    bridge_of(home, BRIDGE, arguments)
}

/// The bridge that creates this socket.
fn bridge_of(home: &Path, socket: &str, arguments: &[&str]) -> Running {
    let _ = std::fs::remove_file(home.join(socket));
    let mut command = bareverbs(home, &["run"]);
    command.args(arguments).env("XDG_RUNTIME_DIR", home).stderr(Stdio::inherit());
    let running = Running::start(&mut command);
    wait_for(&home.join(socket), "the bridge has no socket");
    running
}

fn compared(end: &Value) -> u64 {
    assert_eq!(end["data"]["wrong_bytes"], 0, "{end}");
    end["data"]["compared_bytes"].as_u64().expect("data was known")
}

fn object(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object_of("perf", output)
}

/// Runs both ends of a test; returns how many bytes they compared.
fn meet(mut server: Command, client: impl FnOnce() -> Command) -> u64 {
    let server = server.spawn().expect("the program");
    let client = client().output().expect("the program");
    let server = server.wait_with_output().expect("the program");
    compared(&object(&client)) + compared(&object(&server))
}

/// A test between hosts of two networks, whose names mean nothing to each other: they meet over this
/// machine's TCP.
fn between(left: &Hosts, right: &Hosts, test: &[&str]) -> u64 {
    let port = free_port();
    let words = [test, &["-p", &port, "--json"], &TIMEOUT].concat();
    let client = [&words[..], &["127.0.0.1"]].concat();
    meet(left.on("a", &words), || {
        std::thread::sleep(Duration::from_millis(300));
        right.on("far", &client)
    })
}

#[test]
fn hosts_of_two_networks_find_each_other_by_arp_over_a_wire_of_udp() {
    let (left, right) = (Hosts::new(), Hosts::new());
    let [one, other] = [(); 2].map(|()| format!("udp:127.0.0.1:{}", free_port()));
    let _left = bridge(left.home(), &["--wire", &one, "--wire-to", &other]);
    let _right = bridge(right.home(), &["--wire", &other, "--wire-to", &one]);
    for test in [
        &["perf", "write", "bw", "-n", "200", "-s", "65536"][..],
        &["perf", "send", "lat", "-n", "50", "-c", "UD"],
        &["perf", "read", "bw", "-n", "100", "-q", "2"],
    ] {
        assert!(between(&left, &right, test) >= 8, "{test:?}");
    }
    let list = right.list();
    let line = list.lines().find(|line| line.contains("(wire)")).unwrap_or_else(|| panic!("{list}"));
    assert!(line.contains(&other) && line.contains(&one), "{line}");
}

/// Each subnet has its own manager, and the hosts have different LIDs.
#[test]
fn hosts_of_two_infiniband_networks_meet_by_lid_over_a_wire() {
    let (left, right) = (Hosts::new(), Hosts::new());
    for (hosts, host, settings) in [(&left, "a", "lid 18\n"), (&right, "far", "lid 52\n")] {
        // As `bareverbs run --lid` sets it.
        let network = NetworkDirectory::create(&hosts.home().join("bareverbs/networks/default"));
        let network = network.expect("a network");
        network.add_host(host).expect("a host");
        network.set_settings(host, settings).expect("its settings");
    }
    let [one, other] = [(); 2].map(|()| format!("udp:127.0.0.1:{}", free_port()));
    let end = |home: &Path, own: &str, peer: &str| {
        bridge_of(home, BRIDGE_INFINIBAND, &["--link", "ib", "--wire", own, "--wire-to", peer])
    };
    let (_left, _right) = (end(left.home(), &one, &other), end(right.home(), &other, &one));
    for test in [
        &["perf", "write", "bw", "-n", "200", "-s", "65536", "--link", "ib"][..],
        &["perf", "send", "lat", "-n", "50", "-c", "UD", "--link", "ib"],
    ] {
        assert!(between(&left, &right, test) >= 8, "{test:?}");
    }
    let list = right.list();
    let has = |words: &[&str]| list.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(has(&["(wire)", &one]) && has(&["far", "lid=52"]), "{list}");
}

#[test]
fn a_host_and_the_device_of_a_virtual_machine_are_on_one_wire() {
    let hosts = Hosts::new();
    let directory = tempfile::tempdir().expect("a directory");
    let [inside, outside] = ["inside", "outside"].map(|name| path(directory.path(), name));
    let served = ["--link", "eth", "--wire", &outside, "--wire-to", &inside];
    let _served = Served::start(directory.path(), &served);
    let device = format!("vfio-user:{}", path(directory.path(), "nic"));
    let about =
        bareverbs(directory.path(), &["gids", "--device", &device, "--json"]).output().expect("the program");
    let mac = mac_of(&object_of("gids", &about));
    let neighbour = format!("10.9.0.1={mac}");
    let _bridge = bridge(hosts.home(), &["--wire", &inside, "--wire-to", &outside, "--neighbor", &neighbour]);
    let port = free_port();
    let test = ["perf", "write", "bw", "-n", "200", "-s", "20000", "-p", &port, "--json"];
    let test = [&test[..], &TIMEOUT].concat();
    let own = ["-d", &device, "--address", "10.9.0.1/8", "--peer-mac", &host_mac("b"), "-x", "3"];
    let server = bareverbs(directory.path(), &[&test[..], &own].concat());
    let bytes = meet(server, || {
        std::thread::sleep(Duration::from_millis(500));
        hosts.on("b", &[&test[..], &["127.0.0.1"]].concat())
    });
    assert!(bytes >= 20000, "{bytes}");
}

#[test]
fn a_killed_bridge_stops_no_host_and_can_be_replaced() {
    let (left, right) = (Hosts::new(), Hosts::new());
    let directory = tempfile::tempdir().expect("a directory");
    let [one, other] = ["one", "other"].map(|name| path(directory.path(), name));
    let start = |home: &Path, own: &str, peer: &str| bridge(home, &["--wire", own, "--wire-to", peer]);
    let killed = start(left.home(), &one, &other);
    let _right = start(right.home(), &other, &one);
    let test = ["perf", "send", "bw", "-n", "100"];
    between(&left, &right, &test);
    killed.kill();
    assert!(directory.path().join("one").exists(), "a killed program leaves its socket behind");
    let port = free_port();
    let words = [&test[..], &["-p", &port, "--json"], &TIMEOUT].concat();
    let [client, server] = left.both(&words, &[&words[..], &["a"]].concat());
    assert!(compared(&object(&client)) + compared(&object(&server)) >= 8, "within the network");
    let _again = start(left.home(), &one, &other);
    between(&left, &right, &test);
}

#[test]
fn a_peer_that_nobody_knows_is_not_there_after_the_bridge_has_asked() {
    let (left, right) = (Hosts::new(), Hosts::new());
    let [one, other] = [(); 2].map(|()| format!("udp:127.0.0.1:{}", free_port()));
    // Nobody is at the other end of the wire.
    let _left = bridge(left.home(), &["--wire", &one, "--wire-to", &other]);
    let port = free_port();
    let words = ["perf", "write", "bw", "-p", &port, "--json", "--timeout", "20"];
    let start = Instant::now();
    let mut server = right.on("b", &words);
    let server = server.spawn().expect("the program");
    std::thread::sleep(Duration::from_millis(300));
    let client = left.on("a", &[&words[..], &["127.0.0.1"]].concat()).output().expect("the program");
    Running(KillOnDrop(server)).kill();
    let said = String::from_utf8_lossy(&client.stderr);
    assert!(!client.status.success() && said.contains("MAC address"), "{said}");
    assert!(start.elapsed() < Duration::from_secs(15), "three requests take a second");
}

#[test]
fn a_second_wire_and_words_that_do_not_fit_are_refused() {
    let hosts = Hosts::new();
    let [one, other] = [(); 2].map(|()| format!("udp:127.0.0.1:{}", free_port()));
    let _first = bridge(hosts.home(), &["--wire", &one, "--wire-to", &other]);
    let refusal = |arguments: &[&str]| {
        let mut command = bareverbs(hosts.home(), &["run"]);
        let output =
            command.args(arguments).env("XDG_RUNTIME_DIR", hosts.home()).output().expect("the program");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let third = format!("udp:127.0.0.1:{}", free_port());
    assert!(refusal(&["--wire", &third, "--wire-to", &other]).contains("already has the wire"));
    assert!(refusal(&["--wire", &one, "--wire-to", &other]).contains(&one[4..]), "the address is taken");
    assert!(refusal(&["--wire", "tap:bv0", "--", "true"]).contains("--wire"));
    assert!(refusal(&["--wire", "/a"]).contains("--wire-to"));
    assert!(refusal(&["--link", "ib", "--wire", "tap:bv0"]).contains("InfiniBand"));
    let neighbour =
        ["--link", "ib", "--wire", &third, "--wire-to", &other, "--neighbor", "10.0.0.1=02:00:00:00:00:01"];
    assert!(refusal(&neighbour).contains("LID"));
    assert!(refusal(&["--neighbor", "10.0.0.1=02:00:00:00:00:01", "--", "true"]).contains("--neighbor"));
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().expect("UTF-8").to_owned()
}

/// The MAC address of a host, which is derived from its name.
fn host_mac(name: &str) -> String {
    bareverbs_uverbs::VirtualHost::new(name).expect("a name").mac().to_string()
}

/// The MAC address of a port, from its first GID.
fn mac_of(gids: &Value) -> String {
    let gid = gids["entries"][0]["gid"].as_str().unwrap_or_else(|| panic!("{gids}"));
    let octets = gid.parse::<std::net::Ipv6Addr>().expect("an address").octets();
    let [.., a, b, c, 0xff, 0xfe, d, e, f] = octets else { panic!("{gid} is not made of a MAC address") };
    [a ^ 2, b, c, d, e, f].map(|byte| format!("{byte:02x}")).join(":")
}
