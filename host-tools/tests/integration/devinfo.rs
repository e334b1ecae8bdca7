//! `bareverbs devinfo` as a process, on a device that another process serves; and other inspecting commands,
//! on a device of a network's host.

use crate::support;

use bareverbs_prm::ids::MacAddress;
use bareverbs_serve::vfio_user::{Server, ServerConfig};
use bareverbs_sim::nic::NicConfig;
use serde_json::json;
use std::path::Path;
use std::process::Output;
use support::{Hosts, Served, object_of, output_of};
use tempfile::TempDir;

fn devinfo(directory: &Path, arguments: &[&str]) -> Output {
    output_of(directory, &[&["devinfo"], arguments].concat())
}

#[test]
fn a_served_device_is_shown_and_compared() {
    let directory = TempDir::new().expect("a directory");
    let _server = Served::start(directory.path(), &["--link", "eth"]);
    let output = devinfo(directory.path(), &["--device", "vfio-user:nic", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let object = object_of("devinfo", &output);
    assert_eq!(
        (&object["device"]["vendor_id"], &object["port"]["link_layer"]),
        (&"0x02c9".into(), &"Ethernet".into())
    );
    let output = devinfo(directory.path(), &["--diff", "vfio-user:nic", "vfio-user:nic"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    let output = devinfo(directory.path(), &["--diff", "vfio-user:nic", "sim:infiniband"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("link_layer"));
}

/// `serve --link-down` pulls the cable of one device of a running server; resets do not plug it in again.
#[test]
fn a_pulled_cable_of_a_served_device_is_shown() {
    let directory = TempDir::new().expect("a directory");
    let _server = Served::start(directory.path(), &["--socket", "other", "--link", "eth"]);
    support::wait_for(&directory.path().join("other.cable"), "the cable has no socket");
    let port = |socket: &str| {
        let device = format!("vfio-user:{socket}");
        let output = devinfo(directory.path(), &["--device", &device, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let port = object_of("devinfo", &output)["port"].take();
        (port["state"].as_u64(), port["phys_state"].clone(), port["fec_reason"].clone())
    };
    let up = (Some(4), json!("LinkUp"), json!(null));
    let down = (Some(1), json!("Polling"), json!("there is no link"));
    assert_eq!(port("nic"), up);
    for (option, state) in [("--link-down", &down), ("--link-up", &up)] {
        let output = output_of(directory.path(), &["serve", option, "nic"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        for _ in 0..2 {
            assert_eq!((&port("nic"), &port("other")), (state, &up), "{option}");
        }
    }
}

/// Both ends of a cable, each served by its own process.
#[test]
fn gids_doctor_and_monitor_look_at_served_devices() {
    let directory = TempDir::new().expect("a directory");
    let _server = Served::start(directory.path(), &["--socket", "other", "--link", "eth"]);
    let said = |words: &[&str]| {
        let output = output_of(directory.path(), &[words, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        (object_of(words[0], &output), output.stdout)
    };
    let here = ["--device", "vfio-user:nic", "--address", "10.0.0.1/24"];
    let (gids, _) = said(&[&["gids"][..], &here, &["--peer", "10.0.0.2"]].concat());
    let used: Vec<_> =
        gids["entries"].as_array().expect("a table").iter().map(|row| row["used"] == true).collect();
    assert_eq!(used.iter().filter(|used| **used).count(), 1, "{gids}");
    let there = ["--device", "vfio-user:other", "--address", "10.0.0.2/24"];
    let (_, other) = said(&[&["doctor", "--root", "/nowhere"][..], &there].concat());
    std::fs::write(directory.path().join("other.json"), other).expect("a file");
    let (doctor, _) =
        said(&[&["doctor", "--root", "/nowhere"][..], &here, &["--peer", "other.json"]].concat());
    let rules = doctor["rules"].as_array().expect("rules");
    for id in ["port.link-type", "port.polling", "gid.no-route", "mtu.ends", "counters.retransmission"] {
        let rule = rules.iter().find(|rule| rule["id"] == id).expect(id);
        assert_eq!(rule["outcome"], "silent", "{doctor}");
    }
    let (monitor, _) = said(&["monitor", "--once", "--device", "vfio-user:nic"]);
    assert!(monitor["counters"]["tx_packets_phy"]["value"].is_u64(), "{monitor}");
}

#[test]
fn a_cable_that_is_pulled_out_is_seen_until_it_is_plugged_in_again() {
    let directory = TempDir::new().expect("a directory");
    let nic = NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1]));
    let mut server =
        Server::bind(&directory.path().join("nic"), ServerConfig::new(nic)).expect("a served device");
    let cable = server.cable();
    std::thread::spawn(move || while server.serve().is_ok() {});
    for (is_plugged, state, physical) in [(true, 4, "LinkUp"), (false, 1, "Polling"), (true, 4, "LinkUp")] {
        cable.set_plugged(is_plugged);
        let output = devinfo(directory.path(), &["--device", "vfio-user:nic", "--json"]);
        let port = &object_of("devinfo", &output)["port"];
        assert_eq!((&port["state"], &port["phys_state"]), (&state.into(), &physical.into()), "{port}");
        let words = ["doctor", "--device", "vfio-user:nic", "--root", "/nowhere", "--json"];
        let output = output_of(directory.path(), &words);
        assert_eq!(output.status.code(), Some(i32::from(!is_plugged)));
        let doctor = object_of("doctor", &output);
        let bad = doctor["findings"].as_array().expect("findings").iter();
        let bad: Vec<_> =
            bad.filter(|found| found["severity"] == "bad").map(|found| found["id"].clone()).collect();
        let wanted: &[&str] = if is_plugged { &[] } else { &["port.polling"] };
        assert_eq!(bad, wanted, "{doctor}");
    }
}

#[test]
fn missing_devices_are_refused_with_status_2() {
    let directory = TempDir::new().expect("a directory");
    for (device, complaint) in [
        ("vfio-user:none", "opening vfio-user:none"),
        ("ff:1f.7", "there is no PCI function 0000:ff:1f.7"),
        ("mlx5_0", "does not name a device"),
    ] {
        let output = devinfo(directory.path(), &["--device", device]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{device}: {error}");
        assert!(error.contains(complaint), "{device}: {error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn doctor_and_monitor_look_at_the_device_of_a_host() {
    let hosts = Hosts::new();
    let said = |words: &[&str]| {
        let output = hosts.on("a", words).output().expect("the program");
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        object_of(words[0], &output)
    };
    let devinfo = said(&["devinfo", "--json"]);
    let gids = said(&["gids", "--json"]);
    let doctor = said(&["doctor", "--json", "--root", "/nowhere"]);
    for object in [&devinfo, &gids, &doctor] {
        assert_eq!(object["selector"], "sim (host a)");
    }
    let of = |object: &serde_json::Value| {
        let rows = object.as_array().expect("a table").iter();
        rows.map(|row| row["gid"].as_str().and_then(|gid| gid.parse::<std::net::Ipv6Addr>().ok()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(&doctor["end"]["gids"]),
        of(&gids["entries"]),
        "the doctor judges the addresses that programs of the host have"
    );
}

#[test]
fn the_doctor_sees_the_lid_of_a_host_on_infiniband() {
    let hosts = Hosts::new();
    let output = hosts.on("a", &["doctor", "--json", "--root", "/nowhere", "--link", "ib"]).output();
    let doctor = object_of("doctor", &output.expect("the program"));
    assert_eq!(
        (&doctor["good"], &doctor["end"]["port"]["link_layer"]),
        (&true.into(), &"InfiniBand".into()),
        "{doctor}"
    );
    assert!(doctor["end"]["port"]["lid"].as_u64() > Some(0), "{doctor}");
}

#[test]
fn a_host_has_its_addresses_and_its_wire_is_the_networks() {
    let hosts = Hosts::new();
    for (words, complaint) in [
        (&["doctor", "--address", "10.0.0.1/24", "--device", "sim"][..], "cannot be used with"),
        (&["doctor", "--device", "vfio-user:nic"], "wire of its own"),
        (&["monitor", "--once"], "bareverbs run --list"),
        (&["monitor", "--loss", "0.1", "--once"], "leave out --host"),
    ] {
        let output = hosts.on("a", words).output().expect("the program");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(complaint), "{words:?}: {error}");
    }
    let output = output_of(hosts.home(), &["doctor", "--peer", "10.0.0.2", "--root", "/nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("name one with --device or --host"));
}
