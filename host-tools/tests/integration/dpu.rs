//! `bareverbs dpu serve` over two served devices on one switch: tenants look keys up, deploy, list, replace
//! and remove programs, and are refused.

use crate::support;

use serde_json::Value;
use std::fs;
use std::process::Stdio;
use support::bareverbs;
use support::dpu_service::{CONFIG, DpuService, GUEST, OWNER, program, said, write_key};

fn versions(list: &Value) -> Vec<(String, u64, u64)> {
    let rows = list.as_array().expect("a list").iter();
    rows.map(|row| {
        let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name} in {row}"));
        (row["opcode"].as_str().expect("text").to_owned(), number("version"), number("instructions"))
    })
    .collect()
}

#[test]
fn programs_are_deployed_called_replaced_and_removed_from_afar() {
    let service = DpuService::start(&[]);
    let found = service.object("dpu-get", "owner", &["dpu", "get", "key-7", "key-49", "-n", "5"]);
    for (key, number) in found["keys"].as_array().expect("keys").iter().zip([7_usize, 49]) {
        let value = format!("value of key-{number}").repeat(1 + number % 16);
        assert_eq!(
            (&key["agree"], key["value_text"].as_str()),
            (&Value::from(true), Some(value.as_str())),
            "{key}"
        );
        let ways: Vec<&str> =
            key["ways"].as_array().expect("ways").iter().filter_map(|way| way["way"].as_str()).collect();
        assert_eq!(ways, ["kernel", "read"]);
        // One request and one answer by kernel; at least one READ for the line and one for the object.
        assert!(
            key["ways"][0]["round_trips"] == 1 && key["ways"][1]["round_trips"].as_u64() >= Some(2),
            "{key}"
        );
        assert!(key["ways"][0]["latency_us"]["median"].as_f64() > Some(0.0));
    }
    let lookup = program("kv_lookup.o");
    let deploy = ["kernel", "deploy", &lookup, "--opcode", "KVLOOKPR"];
    let first = service.object("kernel-deploy", "owner", &deploy);
    assert_eq!((&first["opcode"], first["sha256"].as_str().map(str::len)), (&"KVLOOKPR".into(), Some(64)));
    let by_program = ["dpu", "get", "key-7", "--way", "program", "--program", "KVLOOKPR", "--way", "kernel"];
    // A tenant that may not deploy may call what others deployed.
    let called = service.object("dpu-get", "guest", &by_program);
    assert_eq!(called["keys"][0]["agree"], true, "{called}");
    let sum = program("sum_list.o");
    service.object("kernel-deploy", "owner", &["kernel", "deploy", &sum, "--opcode", "SUM"]);
    let replaced = service.object("kernel-deploy", "owner", &deploy);
    assert!(replaced["version"].as_u64() > first["version"].as_u64());
    let list = service.object("kernel-list", "owner", &["kernel", "list"]);
    let names: Vec<String> = versions(&list).into_iter().map(|(name, ..)| name).collect();
    assert!(
        names.len() == 2 && names.contains(&"SUM".into()) && names.contains(&"KVLOOKPR".into()),
        "{list}"
    );
    let removed = service.object("kernel-remove", "owner", &["kernel", "remove", "KVLOOKPR"]);
    assert_eq!(removed["version"], replaced["version"]);
    let output = service.run("guest", &["dpu", "get", "key-7", "--way", "program", "--program", "KVLOOKPR"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no kernel is deployed under this op-code"));
    service.refused(("owner", "owner.key"), &["kernel", "remove", "KVLOOKPR"], 1, "no program is deployed");
}

/// A lookup as a program that the service translates. Other processors than x86-64 and aarch64 have no translator.
#[test]
fn a_service_with_machine_code_answers_as_its_kernel_does() {
    if let Err(error) = bareverbs_offload_native::MachineCode::new() {
        println!("SKIPPED: {error}");
        return;
    }
    let config = format!("{CONFIG}[programs]\nmachine_code = true\n{OWNER}");
    let service = DpuService::start_with(&["--link", "eth"], &config, &["--demo-table", "50"]);
    let lookup = program("kv_lookup.o");
    let deploy = ["kernel", "deploy", &lookup, "--opcode", "KVLOOKPR"];
    service.object("kernel-deploy", "owner", &deploy);
    let ways = ["--way", "program", "--program", "KVLOOKPR", "--way", "kernel"];
    let found = service.object("dpu-get", "owner", &[&["dpu", "get", "key-7", "key-49"], &ways[..]].concat());
    for (key, number) in found["keys"].as_array().expect("keys").iter().zip([7_usize, 49]) {
        let value = format!("value of key-{number}").repeat(1 + number % 16);
        assert_eq!(
            (&key["agree"], key["value_text"].as_str()),
            (&true.into(), Some(value.as_str())),
            "{key}"
        );
    }
}

/// These programs write to the memory of the table, in which nobody looks up keys here.
#[test]
fn programs_write_for_tenants_with_the_right() {
    let service = DpuService::start(&[]);
    for (file, opcode) in [("sequencer.o", "NUMBERS"), ("put.o", "PUT")] {
        service.object("kernel-deploy", "owner", &["kernel", "deploy", &program(file), "--opcode", opcode]);
    }
    let numbers = ["kernel", "call", "NUMBERS", "--parameters"];
    let counter = format!("{:016x}", 64_u64.swap_bytes());
    let three = format!("{counter}{:016x}", 3_u64.swap_bytes());
    let put = ["kernel", "call", "PUT", "--parameters"];
    let record = format!("{counter}{}", "ab".repeat(9));
    // A tenant that may not write changes nothing; the program reads first.
    for words in [[&numbers[..], &[&three]].concat(), [&put[..], &[&record]].concat()] {
        let output = service.run("guest", &words);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("no answer: the grant is read-only"), "{text}");
    }
    let number = |words: &[&str]| {
        let called = service.object("kernel-call", "owner", words);
        assert_eq!((&called["status"], &called["hops"]), (&"ok".into(), &2.into()), "{called}");
        u64::from_str_radix(called["answer"].as_str().expect("digits"), 16).expect("a number")
    };
    let first = number(&[&numbers[..], &[&three]].concat());
    assert_eq!(number(&[&numbers[..], &[&three]].concat()), first.wrapping_add(3));
    assert_eq!(number(&[&numbers[..], &[&three]].concat()), first.wrapping_add(6));
    let version = number(&[&put[..], &[&record]].concat()).swap_bytes();
    assert_eq!(version, first.wrapping_add(9).swap_bytes(), "the value that the sequencer left");
    assert_eq!(number(&[&put[..], &[&record]].concat()).swap_bytes(), version.wrapping_add(1));
    let long = "00".repeat(449);
    let owner = ("owner", "owner.key");
    service.refused(
        owner,
        &["kernel", "call", "PUT", "--parameters", &long],
        2,
        "with 449 bytes of parameters",
    );
    service.refused(
        owner,
        &["kernel", "call", "PUT", "--parameters", "0"],
        2,
        "an even number of hexadecimal digits",
    );
}

#[test]
fn a_refused_tenant_learns_the_reason() {
    let service = DpuService::start(&[]);
    let get = ["dpu", "get", "key-1"];
    let by_kernel = ["dpu", "get", "key-1", "--way", "kernel"];
    service.refused(("guest", "wrong.key"), &by_kernel, 2, "no \\\"guest\\\" with this key is known here");
    service.refused(("nobody", "guest.key"), &by_kernel, 2, "no \\\"nobody\\\" with this key is known here");
    service.refused(("guest", "none.key"), &by_kernel, 2, "key file none.key: No such file");
    service.refused(("guest", "guest.key"), &get, 2, "may not READ the table by itself");
    service.refused(
        ("guest", "guest.key"),
        &["kernel", "list"],
        2,
        "tenant \\\"guest\\\" may not deploy programs",
    );
    let lookup = program("kv_lookup.o");
    let owner = ("owner", "owner.key");
    service.refused(owner, &["kernel", "deploy", &lookup, "--opcode", "KVLOOKUP"], 1, "compiled in");
    fs::write(service.directory.path().join("bad.bin"), [0xff; 8]).expect("written");
    service.refused(owner, &["kernel", "deploy", "bad.bin", "--opcode", "BAD"], 1, "instruction 0");
    service.refused(owner, &["kernel", "deploy", "none.o", "--opcode", "BAD"], 2, "none.o");
    service.refused(
        owner,
        &["kernel", "deploy", &lookup, "--opcode", "NINELETTERS"],
        2,
        "up to eight letters",
    );
    // A missing key is a result, not an error.
    let output = service.run("guest", &["dpu", "get", "key-50", "--way", "kernel"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("key-50: no value") && text.contains("not found"), "{text}");
}

#[test]
fn signals_change_the_tenants_and_end_the_service() {
    let mut service = DpuService::start(&["--openmetrics", "127.0.0.1:0"]);
    let get = ["dpu", "get", "key-1", "--way", "kernel"];
    service.succeeds("guest", &get);
    // Signals may arrive while the device answers.
    for _ in 0..100 {
        service.signal("-HUP");
    }
    service.succeeds("guest", &get);
    let config = service.directory.path().join("dpu.toml");
    fs::write(&config, format!("{CONFIG}{OWNER}")).expect("written");
    service.signal("-HUP");
    while !service.logged("the tenants were read again").contains("guest") {}
    service.refused(("guest", "guest.key"), &get, 2, "no \\\"guest\\\" with this key");
    fs::write(&config, "tenants = \"none\"").expect("written");
    service.signal("-HUP");
    service.logged("the tenants stay as they are");
    service.succeeds("owner", &get);
    service.signal("-TERM");
    service.logged("ending: ");
    service.logged("ended");
    service.ends_well();
}

#[test]
fn a_service_that_cannot_be_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    write_key(here, "owner.key", "0f");
    let refusal = |config: &str, more: &str| {
        fs::write(here.join("dpu.toml"), config).expect("written");
        let mut command = bareverbs(here, &["dpu", "serve", "--config", "dpu.toml"]);
        let output =
            command.args(more.split_whitespace()).stdout(Stdio::piped()).output().expect("the program");
        assert_eq!(output.status.code(), Some(2), "{config}: {}", said(&output));
        said(&output)
    };
    let listen = "listen = \"127.0.0.1:0\"\n";
    for (config, more, reason) in [
        (String::new(), "", "missing field `listen`"),
        (format!("{listen}{OWNER}"), "", "no device"),
        (format!("{listen}{OWNER}"), "--device sim", "is not connected to another process"),
        (format!("{CONFIG}{OWNER}"), "", "no table"),
        (format!("{CONFIG}{GUEST}"), "--demo-table 3", "guest.key"),
        (format!("{CONFIG}{OWNER}"), "--demo-table 3", "opening vfio-user:nic"),
        (format!("{CONFIG}[table]\ndata = \"none.csv\"\n{OWNER}"), "", "none.csv"),
    ] {
        let said = refusal(&config, more);
        assert!(said.contains(reason), "{config} {more:?}: {said}");
    }
}

/// Silent strangers keep no tenant out.
#[test]
fn silent_callers_keep_no_tenant_out() {
    let service = DpuService::start(&[]);
    let silent: Vec<_> =
        (0..40).map(|_| std::net::TcpStream::connect(service.address()).expect("taken")).collect();
    service.succeeds("guest", &["dpu", "get", "key-1", "--way", "kernel"]);
    drop(silent);
}
