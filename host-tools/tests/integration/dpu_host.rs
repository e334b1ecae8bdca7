//! `bareverbs dpu host` on the host's function of a served DPU, `bareverbs dpu serve` on that of its Arm
//! cores, and tenants at another device: the service reads the memory of the host, which changes it, leaves
//! and returns.

use crate::support;

use std::fs;
use support::dpu_service::{DpuService, said, write_key};
use support::logged_process::LoggedProcess;
use support::{bareverbs_on_card, wait_for};

const CONFIG: &str = "listen = \"127.0.0.1:0\"\ndevice = \"vfio-user:bf.arm\"\n[table]\nshared_by = \"host\"\n[limits]\ntime_us = 10_000_000\n\
                      [[tenant]]\nname = \"host\"\nkey_file = \"wrong.key\"\n\
                      [[tenant]]\nname = \"owner\"\nkey_file = \"owner.key\"\ndeploy = true\nwrite = true\nread = true\n";

/// The companion process.
fn companion(service: &DpuService, more: &[&str]) -> LoggedProcess {
    let common = ["dpu", "host", "--device", "vfio-user:bf", "--server", service.address()];
    let credentials = ["--tenant", "host", "--key-file", "wrong.key"];
    let words = [&common[..], &credentials, more].concat();
    LoggedProcess::start(bareverbs_on_card(service.directory.path(), &words))
}

/// A service on the Arm cores of a DPU that has no table yet.
fn service() -> DpuService {
    let service = DpuService::start_with(&["--dpu", "bf", "--link", "eth"], CONFIG, &[]);
    wait_for(&service.directory.path().join("bf"), "the host's function is not served");
    service
}

/// The value of a key, looked up by kernel.
fn value(service: &DpuService, key: &str) -> Option<String> {
    let words = ["dpu", "get", key, "--way", "kernel", "--json"];
    let output = service.run("owner", &words);
    let object: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
    let looked_up = &object["dpu-get"]["keys"][0];
    let way = &looked_up["ways"][0];
    let absent = "not found";
    assert!(
        way["status"].is_null() || way["status"] == absent,
        "the lookup of {key:?} ended otherwise: {object}"
    );
    looked_up["value_text"].as_str().map(str::to_owned)
}

#[test]
fn the_service_reads_what_the_host_shares_changes_and_takes_back() {
    let mut service = service();
    let get = ["dpu", "get", "a", "--way", "kernel"];
    let owner = ("owner", "owner.key");
    service.refused(owner, &get, 2, "the host has not shared its table yet");
    let rows = service.directory.path().join("rows.csv");
    fs::write(&rows, "a,one\nb,two\n").expect("written");
    let mut host = companion(&service, &["--data", "rows.csv"]);
    host.logged("the table is shared");
    assert_eq!(value(&service, "a").as_deref(), Some("one"));
    service.refused(owner, &["dpu", "get", "a", "--way", "read"], 2, "it is in the memory of the host");
    // A program runs on the Arm cores, too.
    let lookup = support::dpu_service::program("kv_lookup.o");
    service.object("kernel-deploy", "owner", &["kernel", "deploy", &lookup, "--opcode", "KVLOOKPR"]);
    service.succeeds(
        "owner",
        &["dpu", "get", "a", "b", "--way", "program", "--program", "KVLOOKPR", "--way", "kernel"],
    );
    // The host changes its table while the service uses it.
    fs::write(&rows, "a,uno\nc,three\n").expect("written");
    host.signal("-HUP");
    assert!(host.logged("the rows were read again").contains("changes=3"));
    let now = ["a", "b", "c"].map(|key| value(&service, key));
    assert_eq!(now, [Some("uno".into()), None, Some("three".into())]);
    // A dying host takes its memory with it.
    host.child.kill().expect("killed");
    service.logged("the table is gone");
    service.refused(owner, &get, 2, "the host has not shared its table yet");
    let mut host = companion(&service, &["--demo-table", "20"]);
    host.logged("the table is shared");
    assert_eq!(value(&service, "key-7"), Some("value of key-7".repeat(8)));
    host.signal("-TERM");
    assert!(host.child.wait().expect("the program").success());
    service.logged("the table is gone");
}

#[test]
fn only_the_host_that_the_configuration_names_may_share() {
    let service = service();
    let share =
        ["dpu", "host", "--device", "vfio-user:bf", "--server", service.address(), "--demo-table", "3"];
    let complaint = |more: &[&str]| {
        let output = support::output_of(service.directory.path(), &[&share[..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    let other = complaint(&["--tenant", "owner", "--key-file", "owner.key"]);
    assert!(other.contains("may not share a table"), "{other}");
    write_key(service.directory.path(), "other.key", "77");
    let stranger = complaint(&["--tenant", "host", "--key-file", "other.key"]);
    assert!(stranger.contains("with this key is known here"), "{stranger}");
    // A function of another card knows its session's secret, but owns no key of this card.
    let elsewhere =
        ["dpu", "host", "--device", "vfio-user:nic", "--server", service.address(), "--demo-table", "3"];
    let words = [&elsewhere[..], &["--tenant", "host", "--key-file", "wrong.key"]].concat();
    let output = support::output_of(service.directory.path(), &words);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("shares no memory keys with other functions"), "{}", said(&output));
}
