//! `bareverbs inject`: what faults do to hosts with running programs, and that nothing of them remains.

use crate::support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::process::{Output, Stdio};
use support::{Hosts, bareverbs, free_port, object_of};

fn inject(hosts: &Hosts, arguments: &[&str]) -> std::process::Command {
    let mut command = bareverbs(hosts.home(), &["inject"]);
    command.args(arguments).env("XDG_RUNTIME_DIR", hosts.home());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Local ACK timeouts: with the one, queue pairs give up after some milliseconds; with the other, they wait seconds for a peer on a busy machine.
const SHORT: &str = "8";
const LONG: &str = "17";

/// A test between hosts a and b, with this local ACK timeout.
fn transfer(hosts: &Hosts, timeout: &str) -> [Output; 2] {
    let port = free_port();
    let server =
        ["perf", "write", "bw", "-n", "100", "-u", timeout, "--timeout", "20", "-p", &port, "--json"];
    hosts.both(&server, &[&server[..], &["a"]].concat())
}

#[test]
fn a_partition_lasts_until_its_command_is_interrupted() {
    let hosts = Hosts::new();
    for end in transfer(&hosts, LONG) {
        assert_eq!(object_of("perf", &end)["data"]["wrong_bytes"], 0, "before");
    }
    let apart = inject(&hosts, &["partition:a:b@0s+600s"]).spawn().expect("the program");
    support::wait_for(&hosts.home().join("bareverbs/networks/default/apart/a:b"), "nothing keeps them apart");
    let [client, _] = transfer(&hosts, SHORT);
    assert!(!client.status.success() && said(&client).contains("RETRY"), "{}", said(&client));
    kill_process(Pid::from_child(&apart), Signal::INT).expect("it runs");
    let ended = apart.wait_with_output().expect("it ends");
    assert!(ended.status.success() && said(&ended).contains("interrupted"), "{}", said(&ended));
    for end in transfer(&hosts, LONG) {
        assert_eq!(object_of("perf", &end)["data"]["wrong_bytes"], 0, "{}", said(&end));
    }
}

#[test]
fn a_host_crashes_and_faults_of_a_killed_command_are_ended() {
    let hosts = Hosts::new();
    let port = free_port();
    let waiting = ["perf", "write", "bw", "-p", &port, "--timeout", "60"];
    let mut server = hosts.on("a", &waiting).spawn().expect("the program");
    support::wait_for(
        &hosts.home().join("bareverbs/networks/default/hosts/a/0"),
        "the server is in no network",
    );
    let crash = inject(&hosts, &["crash:a@0s+0s"]).output().expect("the program");
    assert!(crash.status.success() && said(&crash).contains("a crashes"), "{}", said(&crash));
    assert!(!server.wait().expect("it was killed").success());
    let mut killed = inject(&hosts, &["cut:a@0s+600s", "loss:a:30@0s+600s"]).spawn().expect("the program");
    support::wait_for(&hosts.home().join("bareverbs/networks/default/faults/a"), "nothing is lost");
    killed.kill().and_then(|()| killed.wait()).expect("it runs");
    let end = || said(&inject(&hosts, &["--end"]).output().expect("the program"));
    assert_eq!([end(), end()], ["ended: cut a\nended: faults a\n", ""]);
}

/// A stopped process does not answer when asked for its process ID.
#[test]
fn a_pause_of_a_killed_command_can_be_ended() {
    let hosts = Hosts::new();
    let (port, home) = (free_port(), hosts.home());
    let mut server =
        hosts.on("a", &["ping", "--server", "-p", &port, "--peer-timeout", "60"]).spawn().expect("it");
    support::wait_for(&home.join("bareverbs/networks/default/hosts/a/0"), "the server is in no network");
    let mut killed = inject(&hosts, &["pause:a@0s+600s"]).stderr(Stdio::null()).spawn().expect("the program");
    let mut line = String::new();
    let said_first = BufReader::new(killed.stdout.take().expect("a pipe")).read_line(&mut line);
    assert!(said_first.is_ok() && line.contains("a is paused"), "{line}");
    killed.kill().and_then(|()| killed.wait()).expect("it runs");
    let end = || said(&inject(&hosts, &["--end"]).output().expect("the program"));
    assert_eq!([end(), end()], [format!("ended: pause a (process {})\n", server.id()), String::new()]);
    let ping =
        hosts.on("b", &["ping", "a", "-n", "2", "-i", "1", "-p", &port]).output().expect("the program");
    assert!(ping.status.success(), "{}", said(&ping));
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn impossible_requests_are_refused_with_an_explanation() {
    let hosts = Hosts::new();
    for (arguments, words) in [
        (&["cut:a@0s+1s"][..], "'cut:a@0s+1s' is not a fault of the hosts"),
        (&["--hosts", "nobody", "cut:0@0s+1s"], "there is no host \"nobody\""),
        (&["--stretch", "0", "cut:0@0s+1s"], "--stretch"),
        (&[], "required"),
    ] {
        let output = inject(&hosts, arguments).output().expect("the program");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(words), "{arguments:?}: {}", said(&output));
    }
}
