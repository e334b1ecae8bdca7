//! `bareverbs ping` as two processes: on two hosts of a network, with faults on the way, and on two served devices.

use crate::support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::Output;
use support::{Hosts, Served, bareverbs, free_port, object_of, wait_for};

/// The output of the probing end and of the answering end; each gets its own arguments.
fn ask(hosts: &Hosts, asker: &str, answerer: &str) -> [Output; 2] {
    let port = free_port();
    let common = ["ping", "-p", &port, "--peer-timeout", "30"];
    let words = |own: &str, last: &str| -> Vec<String> {
        let all = common.into_iter().chain(own.split_whitespace()).chain([last]);
        all.map(str::to_owned).collect()
    };
    let (asker, answerer) = (words(asker, "a"), words(answerer, "--server"));
    let [asker, answerer] =
        [&asker, &answerer].map(|words| words.iter().map(String::as_str).collect::<Vec<_>>());
    hosts.both(&answerer, &asker)
}

fn count(found: &Value, name: &str) -> u64 {
    found[name].as_u64().unwrap_or_else(|| panic!("{name} in {found}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_peer_that_is_there_answers_every_probe_over_datagrams_and_over_a_connection() {
    for way in ["UD", "RC"] {
        let both = format!("-c {way}");
        let [asked, answered] = ask(&Hosts::new(), &format!("{both} -n 20 -i 1 --json"), &both);
        assert_eq!((asked.status.code(), answered.status.code()), (Some(0), Some(0)), "{way}: {asked:?}");
        let found = object_of("ping", &asked);
        assert_eq!([count(&found, "sent"), count(&found, "received"), count(&found, "lost")], [20, 20, 0]);
        assert!(found["round_trip_us"]["p50"].as_f64() > Some(0.0), "{found}");
        assert!(said(&answered).contains("20 probes answered"), "{}", said(&answered));
    }
}

#[test]
fn the_text_is_that_of_ibping_with_more() {
    let [asked, _] = ask(&Hosts::new(), "-n 2 -i 1", "");
    let text = String::from_utf8_lossy(&asked.stdout);
    assert!(text.starts_with("Pong from ") && text.contains("seq 1 time "), "{text}");
    assert!(text.contains("2 packets transmitted, 2 received, 0% packet loss, 0 duplicates"), "{text}");
    assert!(text.contains("p50/p99") && !text.contains("explain"), "{text}");
}

#[test]
fn loss_duplicates_and_reordering_are_counted_as_the_wire_made_them() {
    let hosts = Hosts::new();
    // Scripted: the third, the fifth and the seventh outgoing datagram.
    let faults = "out:3=drop,out:5=duplicate,out:7=delay=200ms";
    let [asked, answered] = ask(&hosts, &format!("-n 10 -i 10 -W 1000 --json --faults {faults}"), "");
    let found = object_of("ping", &asked);
    assert_eq!((asked.status.code(), answered.status.code()), (Some(1), Some(0)), "{found}");
    let counts = ["sent", "received", "lost", "late", "duplicates", "out_of_order", "strays"];
    assert_eq!(counts.map(|name| count(&found, name)), [10, 9, 1, 0, 1, 1, 0], "{found}");
    let findings = ["PING_LOST", "PING_DUPLICATE", "PING_OUT_OF_ORDER"];
    assert_eq!(found["findings"], Value::from(findings.to_vec()));
    let [asked, _] = ask(&hosts, "-n 4 -i 10 -W 1500 --json --faults out:2=delay=4000ms", "");
    let found = object_of("ping", &asked);
    assert_eq!((asked.status.code(), count(&found, "lost")), (Some(1), 1), "{found}");
}

#[test]
fn a_connection_recovers_from_loss_and_duplication() {
    let asker = "-c RC -n 30 -i 1 -W 20000 --json --faults loss=0.05,duplicate=0.2 --seed 7";
    let [asked, _] = ask(&Hosts::new(), asker, "-c RC");
    let found = object_of("ping", &asked);
    assert_eq!(asked.status.code(), Some(0), "{found}");
    assert_eq!(["received", "lost", "duplicates"].map(|name| count(&found, name)), [30, 0, 0], "{found}");
}

/// Both ends agree over TCP before the first datagram, so only the probes notice a dead wire.
#[test]
fn a_wire_that_carries_nothing_loses_all_and_breaks_a_connection() {
    let [asked, _] = ask(&Hosts::new(), "-n 3 -i 1 -W 100 --json --faults loss=1", "");
    let found = object_of("ping", &asked);
    assert_eq!((asked.status.code(), count(&found, "lost")), (Some(1), 3), "{found}");
    assert!(found["round_trip_us"].is_null(), "{found}");
    let [asked, _] = ask(&Hosts::new(), "-c RC -n 3 -i 1 -W 20000 --json --faults loss=1", "-c RC");
    let found = object_of("ping", &asked);
    assert_eq!((asked.status.code(), count(&found, "received")), (Some(1), 0), "{found}");
    assert!(found["failure"].as_str().is_some_and(|why| why.contains("TRANSPORT_RETRY_EXC_ERR")), "{found}");
}

#[test]
fn no_way_to_the_peer_is_exit_status_2_with_the_reason() {
    let hosts = Hosts::new();
    for (asker, answerer, reason) in
        [("-x 0", "-x 1", "one is IPv4, the other is not"), ("-c RC", "-c UD", "give both the same -c")]
    {
        let [asked, _] = ask(&hosts, asker, answerer);
        assert!(asked.status.code() == Some(2) && said(&asked).contains(reason), "{}", said(&asked));
        assert!(asked.stdout.is_empty());
    }
    let refusal = |words: &str| {
        let words: Vec<_> = ["ping"].into_iter().chain(words.split(' ')).collect();
        let output = hosts.on("b", &words).output().expect("the program");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output));
        said(&output)
    };
    let closed = format!("a -p {} --peer-timeout 1", free_port());
    for (words, reason) in [
        (closed.as_str(), "nobody listens at 127.0.0.1"),
        ("nobody.invalid", "neither a host of the network"),
        ("-x 9 a", "the port has no GID index 9"),
        ("-n 0 a", "0 is not in 1..="),
        ("-c XRC a", "possible values"),
        ("-c MAD --link ib foo", "\"foo\" is not the LID of a port (1 to 49151)"),
        ("--faults burn=1 a", "burn"),
        ("-n 3", "PEER"),
        ("--server a", "cannot be used with"),
    ] {
        assert!(refusal(words).contains(reason), "{words}: {}", refusal(words));
    }
    let alone = support::output_of(std::env::temp_dir().as_path(), &["ping", "a"]);
    assert!(
        alone.status.code() == Some(2) && said(&alone).contains("is not connected to another process"),
        "{}",
        said(&alone)
    );
}

/// Two served devices on one switch, on Ethernet by link-local GID and on InfiniBand by LID and by GID.
#[test]
fn served_devices_reach_each_other_by_gid_and_by_lid() {
    let directory = tempfile::tempdir().expect("a directory");
    for (link, words, address) in
        [("eth", "-x 1", "fe80:"), ("ib", "", "LID "), ("ib", "-x 0", "fe80:"), ("ib", "-c RC", "LID ")]
    {
        let _server = Served::start(directory.path(), &["--socket", "other", "--link", link]);
        wait_for(&directory.path().join("other"), "the second device is not served");
        let port = free_port();
        let end = |device: &str| {
            let mut command = bareverbs(directory.path(), &["ping", "--device", device, "-p", &port]);
            command.args(words.split_whitespace());
            command
        };
        let answerer = end("vfio-user:other").arg("--server").spawn().expect("the program");
        let asked =
            end("vfio-user:nic").args(["-n", "5", "-i", "1", "--json", "127.0.0.1"]).output().expect("it");
        let answered = answerer.wait_with_output().expect("the program");
        let found = object_of("ping", &asked);
        assert_eq!((asked.status.code(), count(&found, "received")), (Some(0), 5), "{found} {answered:?}");
        assert!(found["address"].as_str().is_some_and(|peer| peer.starts_with(address)), "{link} {found}");
        let _ = std::fs::remove_file(directory.path().join("other"));
    }
}

/// From queue pair 1 to queue pair 1 on InfiniBand, without TCP.
#[test]
fn management_datagrams_are_answered_from_lid_to_lid() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let _server = Served::start(here, &["--socket", "other", "--link", "ib"]);
    wait_for(&here.join("other"), "the second device is not served");
    let ping =
        |words: &str| bareverbs(here, &["ping", "-c", "MAD"]).args(words.split(' ')).output().expect("it");
    let mut answerer = bareverbs(here, &["ping", "-c", "MAD", "--server"]);
    let mut answerer = answerer.args(["--device", "vfio-user:other"]).spawn().expect("the program");
    let mut words = BufReader::new(answerer.stderr.take().expect("a pipe"));
    let mut ready = String::new();
    words.read_line(&mut ready).expect("a pipe");
    let lid = ready.trim_end().strip_prefix("answering ibping at LID ").expect(&ready).to_owned();
    let asked = ping(&format!("--device vfio-user:nic -n 5 -i 1 -W 5000 --json {lid}"));
    let found = object_of("ping", &asked);
    assert_eq!((&found["connection"], count(&found, "received")), (&"MAD".into(), 5), "{found}");
    assert!(found["address"].as_str().is_some_and(|peer| peer.contains(", LID ")), "{found}");
    // The ports of the subnet have the LIDs 1 to 3: these two, and perhaps the switch. Nobody answers at this
    // end's own.
    for other in ["1", "2", "3"].into_iter().filter(|other| *other != lid) {
        let asked = ping(&format!("--device vfio-user:nic -n 1 -W 300 {other}"));
        assert_eq!(asked.status.code(), Some(1), "LID {other}: {asked:?}");
    }
    // The answering end still waits for requests.
    for (words, reason) in [
        ("--device vfio-user:nic 0xc000", "is not the LID of a port"),
        ("--device vfio-user:nic other", "is not the LID of a port"),
        ("--device vfio-user:nic --server --peer-timeout 1", "no request arrived within"),
    ] {
        let output = ping(words);
        assert!(output.status.code() == Some(2) && said(&output).contains(reason), "{words}: {output:?}");
    }
    let mut answered = String::new();
    kill_process(Pid::from_child(&answerer), Signal::INT).expect("it runs");
    words.read_to_string(&mut answered).expect("a pipe");
    assert!(answerer.wait().expect("the program").success(), "{answered}");
    assert!(answered.contains("5 probes answered"), "{answered}");
}

#[test]
fn a_signal_ends_an_end_that_waits_for_its_peer() {
    for signal in [Signal::INT, Signal::TERM] {
        let hosts = Hosts::new();
        let mut answerer =
            hosts.on("a", &["ping", "--server", "-p", &free_port()]).spawn().expect("the program");
        let mut words = BufReader::new(answerer.stderr.take().expect("a pipe"));
        let mut said = String::new();
        words.read_line(&mut said).expect("a pipe");
        kill_process(Pid::from_child(&answerer), signal).expect("it runs");
        words.read_to_string(&mut said).expect("a pipe");
        assert_eq!(answerer.wait().expect("the program").code(), Some(0), "{said}");
        assert!(said.contains("0 probes answered"), "{said}");
    }
}

#[test]
fn management_datagrams_are_for_infiniband() {
    let output = Hosts::new().on("a", &["ping", "-c", "MAD", "3"]).output().expect("the program");
    assert!(
        output.status.code() == Some(2) && said(&output).contains("ibping needs InfiniBand"),
        "{output:?}"
    );
}
