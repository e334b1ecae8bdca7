//! Rows of tools that inspect one function: `devinfo`, `gids`, `doctor`, `monitor`.

use super::super::fleet;
use super::bench::{ToolBench, ToolEnd, compare};
use anyhow::{Context, Result, ensure};
use bareverbs_prm::ids::MacAddress;
use bareverbs_sim::nic::{LinkLayer, NicConfig};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// PCI addresses of the inspected function and of its peer.
const OWN: &str = "10.0.0.1";
const PEER: &str = "10.0.0.2";
/// The board of every simulated card.
const BOARD: &str = "BV_SIM_0000000";
/// Fields in which devices of the same model differ.
const ADDRESSES: [&str; 4] = ["node_guid", "sys_image_guid", "port_guid", "mac"];

/// EUI-64 of a MAC address, in the groups of `ibv_devinfo`.
fn guid(MacAddress([a, b, c, d, e, f]): MacAddress) -> String {
    format!("{:02x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}", a ^ 2)
}

/// Values that `devinfo` must show for a function with this configuration, whatever the state of its port.
fn device_of(nic: &NicConfig) -> Vec<(&'static str, Value)> {
    let NicConfig { mac, limits, firmware_revision: [major, minor, subminor], .. } = *nic;
    let power = |logarithm: u8| Value::from(1_u64 << logarithm);
    vec![
        ("/device/fw_ver", format!("{major}.{minor}.{subminor:04}").into()),
        ("/device/vendor_id", "0x02c9".into()),
        ("/device/vendor_part_id", nic.device_id.into()),
        ("/device/hw_ver", 0.into()),
        ("/device/board_id", BOARD.into()),
        ("/device/node_guid", guid(mac).into()),
        ("/device/sys_image_guid", guid(mac).into()),
        ("/device/phys_port_cnt", 1.into()),
        ("/port/port_guid", guid(mac).into()),
        ("/port/max_mtu", 4096.into()),
        ("/limits/max_qp", power(limits.log_max_qp)),
        ("/limits/max_qp_wr", power(limits.log_max_qp_size)),
        ("/limits/max_cq", power(limits.log_max_cq)),
        ("/limits/max_cqe", ((1_u64 << limits.log_max_cq_size) - 1).into()),
        ("/limits/max_mr", power(limits.log_max_mkey)),
        ("/limits/max_pd", power(limits.log_max_pd)),
        ("/limits/max_qp_rd_atom", power(limits.log_max_initiator_depth)),
        ("/limits/max_msg_sz", power(limits.log_max_message)),
    ]
}

pub(super) fn devinfo(bench: &mut ToolBench<'_>) -> Result<String> {
    let nic = fleet::config("a");
    let rate = nic.link_speed().bits_per_second() / 1_000_000;
    let mut wanted = device_of(&nic);
    wanted.extend([
        ("/port/state", 4.into()),
        ("/port/phys_state", "LinkUp".into()),
        ("/port/link_layer", "Ethernet".into()),
        ("/port/rate_mbps", rate.into()),
        ("/port/active_width", 4.into()),
        ("/port/active_speed_mbps", (rate / 4).into()),
        ("/port/fastest_mbps", (nic.speed.bits_per_second() / 1_000_000).into()),
        ("/port/active_mtu", 4096.into()),
        ("/port/mac", nic.mac.to_string().into()),
        ("/port/port_lid", 0.into()),
        ("/limits/gid_tbl_len", nic.limits.roce_addresses.into()),
        ("/cmd_hca_cap/port_type", 1.into()),
    ]);
    let shown = bench.run("devinfo --device $a --json")?.ended(0)?.object("devinfo")?;
    let count = compare(&shown, &wanted)?;
    Ok(format!("{count} fields, {} at {rate} Mbit/s", nic.mac))
}

pub(super) fn devinfo_infiniband(bench: &mut ToolBench<'_>) -> Result<String> {
    let nic = fleet::config("ib");
    ensure!(nic.link_layer == LinkLayer::InfiniBand && nic.starts_down, "the fleet has another one");
    let mut wanted = device_of(&nic);
    wanted.extend([
        ("/port/state", 1.into()),
        ("/port/phys_state", "Disabled".into()),
        ("/port/link_layer", "InfiniBand".into()),
        ("/port/rate_mbps", Value::Null),
        ("/cmd_hca_cap/port_type", 0.into()),
    ]);
    let shown = bench.run("devinfo --device $ib --json")?.ended(0)?.object("devinfo")?;
    Ok(format!("{} fields, PORT_DOWN and Disabled", compare(&shown, &wanted)?))
}

/// Sections and names of the fields that differ.
fn differences(end: &ToolEnd) -> Result<BTreeMap<String, Value>> {
    let object = end.object("devinfo_diff")?;
    let rows = object["differences"].as_array().context("rows")?;
    let row = |row: &Value| Ok((row["name"].as_str().context("a name")?.to_owned(), row.clone()));
    rows.iter().map(row).collect()
}

pub(super) fn difference(bench: &mut ToolBench<'_>) -> Result<String> {
    let differences = differences(&bench.run("devinfo --diff $a $b --json")?.ended(0)?)?;
    let names: Vec<&str> = differences.keys().map(String::as_str).collect();
    let mut wanted = ADDRESSES;
    wanted.sort_unstable();
    ensure!(names == wanted, "{names:?} differ");
    let macs = ["a", "b"].map(|name| Value::from(fleet::config(name).mac.to_string()));
    let mac = &differences["mac"];
    ensure!([&mac["a"], &mac["b"]] == [&macs[0], &macs[1]], "the MAC addresses are {mac}");
    let said = bench.run("devinfo --diff $a $b")?.ended(0)?.said;
    ensure!(said.trim().ends_with("differ only in their addresses"), "{said}");
    Ok(names.join(", "))
}

pub(super) fn difference_of_link_layers(bench: &mut ToolBench<'_>) -> Result<String> {
    let differences = differences(&bench.run("devinfo --diff $a $ib --json")?.ended(1)?)?;
    let sides = |name: &str| {
        let row = differences.get(name).with_context(|| format!("{name} does not differ"))?;
        Ok::<_, anyhow::Error>((row["a"].clone(), row["b"].clone()))
    };
    for (name, own, other) in [("link_layer", "Ethernet", "InfiniBand"), ("phys_state", "LinkUp", "Disabled")]
    {
        let sides = sides(name)?;
        ensure!(sides == (json!(own), json!(other)), "{name}: {sides:?}");
    }
    ensure!(!differences.contains_key("fw_ver"), "the firmware is the same");
    Ok(format!("{} differences, link_layer and phys_state among them", differences.len()))
}

pub(super) fn gids(bench: &mut ToolBench<'_>) -> Result<String> {
    let words = format!("gids --device $a --address {OWN}/24 --peer {PEER}");
    let object = bench.run(&format!("{words} --json"))?.ended(0)?.object("gids")?;
    let rows = object["entries"].as_array().context("a table")?;
    let local = format!("fe80:0000:0000:0000:{}", guid(fleet::config("a").mac));
    let mapped = "0000:0000:0000:0000:0000:ffff:0a00:0001";
    let wanted = [(&*local, "v1"), (&*local, "v2"), (mapped, "v1"), (mapped, "v2")];
    ensure!(rows.len() == wanted.len(), "{object}");
    for (index, (row, (gid, version))) in rows.iter().zip(wanted).enumerate() {
        let used = index == wanted.len() - 1;
        let expected = [("/index", json!(index)), ("/gid", json!(gid)), ("/version", json!(version))];
        compare(row, &expected)?;
        ensure!(row["used"] == used && row["why"].is_string(), "{row}");
    }
    let text = bench.run(&words)?.ended(0)?.said;
    let shown = |line: &&str| line.contains(mapped) && line.contains(OWN) && line.contains("use this");
    let line = text.lines().find(shown).with_context(|| format!("nobody is used: {text}"))?;
    Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Identifiers of the doctor's bad findings, and the outcome of each rule.
fn bad(end: &ToolEnd) -> Result<(Vec<String>, BTreeMap<String, String>)> {
    let object = end.object("doctor")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |name: &str| object[name].as_array().with_context(|| format!("no {name} in {object}"));
    let of_severity = |severity: &str| -> Result<Vec<String>> {
        let found = list("findings")?.iter().filter(|found| found["severity"] == severity);
        Ok(found.map(|found| text(&found["id"])).collect())
    };
    let warnings = of_severity("warning")?;
    ensure!(warnings.is_empty(), "warned of {warnings:?}");
    let findings = of_severity("bad")?;
    ensure!(object["good"] == findings.is_empty(), "good is {}", object["good"]);
    let rules = list("rules")?.iter().map(|rule| (text(&rule["id"]), text(&rule["outcome"]))).collect();
    Ok((findings, rules))
}

/// The doctor reports exactly this bad finding.
fn finds(bench: &mut ToolBench<'_>, words: &str, id: &str) -> Result<String> {
    let end = bench.run(&format!("doctor {words} --json"))?.ended(1)?;
    let (findings, _) = bad(&end)?;
    ensure!(findings == [id], "{findings:?} and not {id}: {}", end.said);
    Ok(id.to_owned())
}

fn finds_nothing(bench: &mut ToolBench<'_>, words: &str, silent: &[&str]) -> Result<usize> {
    let (findings, rules) = bad(&bench.run(&format!("doctor {words} --json"))?.ended(0)?)?;
    ensure!(findings.is_empty(), "{findings:?}");
    for id in silent {
        let outcome = rules.get(*id).map(String::as_str);
        ensure!(outcome == Some("silent"), "{id}: {outcome:?}");
    }
    Ok(rules.values().filter(|outcome| *outcome == "silent").count())
}

/// Rules about the machine and the slot, which apply to PCI functions only.
const OF_THE_MACHINE: [&str; 6] =
    ["host.device-id", "host.driver", "host.iommu", "host.iommu-group", "host.permission", "host.memlock"];

pub(super) fn doctor_all_well(bench: &mut ToolBench<'_>) -> Result<String> {
    let rules =
        [&OF_THE_MACHINE[..], &["firmware.health", "port.polling", "port.slow", "mtu.small"]].concat();
    let silent = finds_nothing(bench, &format!("--device $a --address {OWN}/24"), &rules)?;
    Ok(format!("nothing bad, {silent} rules in order"))
}

/// Compares what the doctor reports at one end with what `devinfo` shows at the other.
pub(super) fn doctor_both_ends(bench: &mut ToolBench<'_>) -> Result<String> {
    bench.require(&format!("bareverbs doctor --device $b --address {PEER}/24 --json >/tmp/peer.json"))?;
    let rules = ["port.link-type", "gid.no-route", "gid.family", "gid.version", "mtu.ends"];
    let words = format!("--device $a --address {OWN}/24 --peer /tmp/peer.json");
    let silent = finds_nothing(bench, &words, &rules)?;
    finds(bench, "--device $a --address 10.9.9.9/24 --peer /tmp/peer.json", "gid.no-route")?;
    Ok(format!("{silent} rules in order; gid.no-route in another network"))
}

pub(super) fn doctor_cable(bench: &mut ToolBench<'_>) -> Result<String> {
    let cable = bench.fleet.cable("a")?;
    cable.set_plugged(false);
    let found = finds(bench, "--device $a", "port.polling");
    let shown = bench.run("devinfo --device $a --json");
    cable.set_plugged(true);
    let shown = shown?.ended(0)?.object("devinfo")?;
    compare(&shown, &[("/port/state", 1.into()), ("/port/phys_state", "Polling".into())])?;
    let found = found?;
    finds_nothing(bench, "--device $a", &["port.polling"])?;
    Ok(format!("{found}, and nothing when it is back"))
}

pub(super) fn doctor_unbound(bench: &mut ToolBench<'_>) -> Result<String> {
    bench.require("bareverbs vfio unbind $b")?;
    let found = finds(bench, "--device $b", "host.driver");
    bench.require("bareverbs vfio bind $b")?;
    let found = found?;
    finds_nothing(bench, "--device $b", &["host.driver"])?;
    Ok(format!("{found}, and nothing when vfio-pci has it"))
}

pub(super) fn doctor_disabled(bench: &mut ToolBench<'_>) -> Result<String> {
    finds(bench, "--device $ib", "port.disabled")
}

pub(super) fn doctor_other_card(bench: &mut ToolBench<'_>) -> Result<String> {
    finds(bench, "--device $old", "host.device-id")
}

/// The counters that `monitor --once --json` shows.
pub(super) fn counters(bench: &mut ToolBench<'_>, device: &str) -> Result<BTreeMap<String, u64>> {
    let words = format!("monitor --once --json --device {device}");
    let object = bench.run(&words)?.ended(0)?.object("monitor")?;
    let counters = object["counters"].as_object().context("counters")?;
    let value = |(name, counter): (&String, &Value)| {
        Ok((name.clone(), counter["value"].as_u64().with_context(|| format!("{name}: {counter}"))?))
    };
    counters.iter().map(value).collect()
}

/// The wire is idle meanwhile, so both tools must show the same values.
pub(super) fn monitor(bench: &mut ToolBench<'_>) -> Result<String> {
    let counters = counters(bench, "$a")?;
    ensure!(counters.contains_key("rx_crc_errors_phy"), "{counters:?}");
    let text = bench.run("monitor --once --device $a")?.ended(0)?.said;
    let shown: BTreeMap<String, u64> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        })
        .filter(|(name, _)| counters.contains_key(name))
        .collect();
    let (zero, counted): (BTreeMap<_, _>, BTreeMap<_, _>) =
        counters.into_iter().partition(|(_, value)| *value == 0);
    ensure!(!counted.is_empty(), "nothing has counted: the row before this one sends packets");
    ensure!(shown == counted, "text shows {shown:?}, and JSON {counted:?}");
    let quiet = format!("{} counters are zero", zero.len());
    ensure!(text.contains(&quiet), "'{quiet}' is not in: {text}");
    Ok(format!("{} counters that have counted, {quiet}", counted.len()))
}
