//! Every rule has facts in which only its problem exists, and facts in which it has nothing to report.
//! Problems of a device or the network are made in the simulator, problems of a machine in a tree of files.
//! No fact is written by hand.

mod cases;
mod scenes;

use super::*;
use crate::place::view_of_test;
use crate::test_arguments::{parse, parsed};
use cases::{BASELINES, CASES, Case};
use rules::{Judged, Outcome};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The page that shows the table to readers.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/doctor.md");
const BEGIN: &str = "<!-- begin: the rules, made by the tests of `doctor` -->\n";
const END: &str = "<!-- end -->";

fn fired(judged: &[Judged]) -> Vec<&'static str> {
    judged.iter().filter(|(_, outcome)| outcome.severity().is_some()).map(|(rule, _)| rule.id).collect()
}

#[test]
fn each_fault_raises_exactly_its_findings() {
    let mut faults = Vec::new();
    for Case { id, broken, with, facts, .. } in CASES {
        let judged = rules::judge(&facts());
        let expected: BTreeSet<&str> = with.iter().copied().chain([*id]).collect();
        let found: BTreeSet<&str> = fired(&judged).into_iter().collect();
        if found != expected {
            let seen = judged.iter().filter(|(_, outcome)| outcome.severity().is_some());
            let seen: Vec<String> = seen.map(|(rule, outcome)| format!("{}: {outcome:?}", rule.id)).collect();
            faults.push(format!("{id} ({broken}) should give {expected:?}: {seen:#?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn healthy_facts_raise_no_finding() {
    for (name, facts) in BASELINES {
        let judged = rules::judge(&facts());
        assert_eq!(fired(&judged), [""; 0], "{name}: {judged:#?}");
    }
}

/// In a virtual machine the slot reports no speed, and Linux writes "Unknown".
#[test]
fn a_slot_of_unknown_speed_raises_no_finding() {
    let files = scenes::ready_machine();
    files.write(&format!("sys/bus/pci/devices/{}/max_link_speed", scenes::FUNCTION), "Unknown\n");
    let judged = rules::judge(&files.facts(None));
    let (_, slot) = judged.iter().find(|(rule, _)| rule.id == "host.pcie-link").expect("the rule");
    assert_eq!(*slot, Outcome::NotAsked("sysfs does not report the slot's speed"));
}

/// A rule that never runs would be silent too.
#[test]
fn every_rule_has_a_case_and_was_asked_where_it_is_silent() {
    let asked: BTreeSet<&str> = BASELINES
        .iter()
        .flat_map(|(_, facts)| rules::judge(&facts()))
        .filter(|(_, outcome)| *outcome == Outcome::Silent)
        .map(|(rule, _)| rule.id)
        .collect();
    for rule in RULES {
        assert!(CASES.iter().any(|case| case.id == rule.id), "no case breaks rule {}", rule.id);
        assert!(asked.contains(rule.id), "no healthy scene applies rule {}", rule.id);
    }
    let ids: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), RULES.len(), "two rules share an id");
    assert!(CASES.iter().all(|case| ids.contains(case.id)));
}

#[test]
fn every_finding_has_evidence_and_a_fix() {
    for case in CASES {
        for (rule, outcome) in rules::judge(&(case.facts)()) {
            let Outcome::Fires(found) = outcome else { continue };
            assert!(!found.evidence.is_empty() && !found.fix.is_empty(), "{}: {found:?}", rule.id);
            if rule.id == case.id {
                for word in case.says {
                    assert!(found.evidence.contains(word), "{}: no '{word}' in {}", rule.id, found.evidence);
                }
            }
        }
    }
}

/// The table on the page matches the tests.
#[test]
fn the_page_has_the_table() {
    let page = std::fs::read_to_string(PAGE).expect("docs/doctor.md");
    let (_, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (shown, _) = rest.split_once(END).expect("where the table ends");
    let table = table();
    assert_eq!(shown, table, "docs/doctor.md: put this between the marks:\n{table}");
}

fn table() -> String {
    let mut text = String::from("| id | broken in the test | severity | silent in |\n|---|---|---|---|\n");
    let outcomes: Vec<(&str, Vec<Judged>)> =
        BASELINES.iter().map(|(name, facts)| (*name, rules::judge(&facts()))).collect();
    for case in CASES {
        let judged = rules::judge(&(case.facts)());
        let severity =
            judged.iter().find(|(rule, _)| rule.id == case.id).and_then(|(_, outcome)| outcome.severity());
        let silent: Vec<&str> = outcomes
            .iter()
            .filter(|(_, judged)| {
                judged.iter().any(|(rule, outcome)| rule.id == case.id && *outcome == Outcome::Silent)
            })
            .map(|(name, _)| *name)
            .collect();
        let severity = severity.map_or("-", Severity::name);
        let _ = writeln!(text, "| `{}` | {} | {severity} | {} |", case.id, case.broken, silent.join(", "));
    }
    text
}

fn shown(words: &[&str]) -> (String, bool) {
    execute(&parsed(words)).unwrap_or_else(|failure| panic!("{failure:?}"))
}

const ONE: [&str; 4] = ["--device", "sim", "--address", "10.0.0.1/24"];

#[test]
fn a_simulated_device_is_in_order_and_its_wire_has_neither_pause_frames_nor_marks() {
    let (text, good) = shown(&[&ONE[..], &["--peer", "10.0.0.2", "--root", "/nowhere"]].concat());
    assert!(good, "{text}");
    assert!(text.starts_with("note     flow.pause-off: "), "{text}");
    assert!(text.contains("\nnote     flow.ecn-off: "), "{text}");
    assert!(text.contains("\nsim:ethernet: 2 found, "), "{text}");
}

#[test]
fn an_unreachable_peer_is_a_bad_finding() {
    let (text, good) =
        shown(&[&ONE[..], &["--peer", "10.0.0.2", "--vlan", "7", "--root", "/nowhere"]].concat());
    assert!(!good);
    assert!(text.contains("bad      gid.vlan: the peer 10.0.0.2 is in VLAN 7, and this port has "), "{text}");
}

#[test]
fn each_end_parses_the_messages_of_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("other.json");
    let other = ["--device", "sim:infiniband", "--json", "--root", "/nowhere"];
    std::fs::write(&path, shown(&other).0).expect("written");
    let peer = path.to_str().expect("text");
    let (text, good) = shown(&[&ONE[..], &["--peer", peer, "--json", "--root", "/nowhere"]].concat());
    assert!(!good);
    let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&object["schema"], &object["doctor"]["good"]),
        (&"bareverbs.doctor.v1".into(), &false.into())
    );
    let findings = object["doctor"]["findings"].as_array().expect("findings");
    assert_eq!(findings[0]["id"], "port.link-type");
    assert_eq!(findings[0]["severity"], "bad");
    assert!(findings[0]["fix"].as_str().is_some_and(|fix| fix.contains("LINK_TYPE_P1=1")), "{findings:?}");
    assert_eq!(object["doctor"]["rules"].as_array().map(Vec::len), Some(RULES.len()));
}

#[test]
fn without_a_device_only_the_machine_is_looked_at() {
    let root = scenes::container("eth0", "10.0.0.1");
    let (text, good) = shown(&["--root", root.path().to_str().expect("text")]);
    assert!(good && text.ends_with("no device was opened: name one with --device"), "{text}");
    let root = scenes::container("net1", "10.0.0.1");
    let (text, good) = shown(&["--root", root.path().to_str().expect("text")]);
    assert!(!good && text.contains("container.no-netdev"), "{text}");
}

#[test]
fn impossible_options_are_refused() {
    for words in [
        &["--device", "mlx5_0"][..],
        &["--device", "sim", "--peer", "10.0.0.1", "--version", "3"],
        &["--device", "sim", "--peer", "10.0.0.1", "--vlan", "0"],
        &["--device", "sim", "--address", "10.0.0.1/64"],
    ] {
        assert!(parse::<DoctorArguments>(words).is_err(), "{words:?}");
    }
    for (words, why) in [
        (["--device", "sim", "--peer", "/no/such/file"], "cannot read /no/such/file"),
        (["--device", "sim", "--counters", "/no/such/file"], "cannot read /no/such/file"),
        (["--device", "vfio-user:/no/such", "--peer", "10.0.0.1"], "opening vfio-user:/no/such"),
    ] {
        let Err(Failure::Input(error)) = execute(&parsed(&words)) else {
            panic!("{words:?} was not refused")
        };
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
    let words = ["--peer", "10.0.0.1", "--root", "/nowhere"];
    let Err(Failure::Input(error)) = execute(&parsed(&words)) else {
        panic!("a peer was compared without local devices")
    };
    assert!(error.to_string().contains("name one with --device or --host"), "{error}");
}

/// A device of the kernel: what only a register or the health buffer has is not asked, and the kernel's routes decide.
#[test]
fn a_kernel_knows_its_routes_and_keeps_its_registers() {
    let scene = scenes::Scene::new([scenes::ethernet(1), scenes::ethernet(2)]);
    let mut facts = scene.of_kernel(&view_of_test(), ["10.0.0.1/24", "10.9.9.2/24"]);
    let judged = rules::judge(&facts);
    assert_eq!(fired(&judged), [""; 0], "{judged:#?}");
    for id in ["firmware.health", "port.slow", "mtu.small", "flow.pause-off", "counters.loss-unmarked"] {
        let (_, outcome) = judged.iter().find(|(rule, _)| rule.id == id).expect("the rule");
        assert!(matches!(outcome, Outcome::NotAsked(_)), "{id}: {outcome:?}");
    }
    let peer = facts.peer.as_ref().expect("a peer").gids.last().expect("an address").gid;
    facts.no_way = vec![(peer, "nobody answers".to_owned())];
    let judged = rules::judge(&facts);
    let (_, outcome) = judged.iter().find(|(rule, _)| rule.id == "gid.no-route").expect("the rule");
    let Outcome::Fires(found) = outcome else { panic!("{judged:#?}") };
    assert!(
        found.evidence.contains("the kernel finds no route to the peer 10.9.9.2: nobody answers"),
        "{found:?}"
    );
}
