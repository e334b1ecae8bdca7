//! Compares what `ibv_devinfo -v` prints in the guest, above Linux's `mlx5_ib`, with what it prints under `bareverbs run`, where
//! `bareverbs-uverbs` takes the kernel's place.
//!
//! The guest and this machine may have different versions of libibverbs, so only fields that both print are compared.

use super::super::command;
use super::super::control::Control;
use super::super::table::{Entry, Verdict};
use crate::installation::{HostedProgram, Installation, printed_fields};
use anyhow::{Result, ensure};
use bareverbs_sim::nic::LinkLayer;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Name of the row.
pub(super) const NAME: &str = "ibv_devinfo -v is as under bareverbs run";
const COMMAND: [&str; 2] = ["ibv_devinfo", "-v"];
const LIMIT: Duration = Duration::from_secs(60);
/// Minimum number of equal fields.
const FEWEST: usize = 50;

/// Fields that name a device or its place in a subnet.
const IDENTITY: [&str; 6] = ["hca_id", "node_guid", "sys_image_guid", "port_lid", "sm_lid", "port"];

/// Fields that differ on purpose on both link layers: the guest's value, and the value under `bareverbs run`.
const DIFFERENT: &[Difference] = &[
    // A process has its share of the queue pair numbers of its host, and 16 READs for each of them.
    ("max_qp", "262144", "32768"),
    ("max_res_rd_atom", "4194304", "524288"),
    // Linux reports how many work requests of four blocks fit (`mlx5_ib_calc_max_qp_wr`).
    ("max_qp_wr", "8192", "32768"),
    // Linux creates one completion vector for each of the guest's processors.
    ("num_comp_vectors", "2", "64"),
];
/// The same on Ethernet only. `bareverbs run` offers no raw packet queue pairs, with their checksums, flow steering and segmentation.
const DIFFERENT_ON_ETHERNET: &[Difference] = &[
    ("device_cap_flags", "0x25321c26", "0x01321c26"),
    ("device_cap_flags_ex", "0x25321C26", "0x1321C26"),
    ("max_tso", "262144", "0"),
    ("max_rwq_indirection_tables", "65536", "0"),
    ("max_rwq_indirection_table_size", "2048", "0"),
    ("rx_hash_function", "0x1", "0x0"),
    ("rx_hash_fields_mask", "0x800000FF", "0x0"),
    ("max_wq_type_rq", "65536", "0"),
    // The interface of the guest has an MTU of 1500.
    ("active_mtu", "1024 (3)", "4096 (5)"),
];

/// A field, its value in the guest, and its value under `bareverbs run`.
type Difference = (&'static str, &'static str, &'static str);

/// Compares the first device of the guest with that of a host of `bareverbs run`.
pub(super) fn judge(control: &mut Control, link: LinkLayer) -> Entry {
    let start = Instant::now();
    let verdict = compare_devices(control, link)
        .map_or_else(|error| Verdict::Fail(format!("{error:#}")), Verdict::Pass);
    Entry { columns: vec![NAME.into()], verdict, elapsed: start.elapsed() }
}

fn compare_devices(control: &mut Control, link: LinkLayer) -> Result<String> {
    let linux = first_device(&control.require(&COMMAND.join(" "), LIMIT)?);
    command::build()?;
    command::build_library()?;
    let options: &[&str] = if link == LinkLayer::InfiniBand { &["--link", "ib"] } else { &[] };
    let options: Vec<String> = options.iter().map(|&word| word.to_owned()).collect();
    let program = HostedProgram { host: "a".into(), command: COMMAND.map(str::to_owned).to_vec() };
    let ours = first_device(&Installation::new()?.run(&program, &options)?.said);
    compare(&linux, &ours, link)
}

/// Fields of the first device in a text, without those that identify it.
fn first_device(text: &str) -> BTreeMap<String, String> {
    let text = text.split("hca_id:").nth(1).unwrap_or_default();
    let mut fields = printed_fields(text);
    fields.retain(|name, _| !IDENTITY.contains(&name.as_str()) && !name.starts_with("GID["));
    fields
}

fn compare(
    linux: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    link: LinkLayer,
) -> Result<String> {
    let on_this_link = if link == LinkLayer::Ethernet { DIFFERENT_ON_ETHERNET } else { &[] };
    let known = |name: &str| DIFFERENT.iter().chain(on_this_link).find(|(field, ..)| *field == name);
    let mut faults = Vec::new();
    let mut same = 0;
    for (name, linux) in linux {
        let Some(ours) = ours.get(name) else { continue };
        let (wanted_linux, wanted_ours) =
            known(name).map_or((linux.as_str(), linux.as_str()), |(_, linux, ours)| (*linux, *ours));
        if (linux.as_str(), ours.as_str()) != (wanted_linux, wanted_ours) {
            faults.push(format!(
                "{name}: {linux} in the guest, {ours} under bareverbs run; wanted {wanted_linux} and {wanted_ours}"
            ));
        }
        same += usize::from(linux == ours);
    }
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    ensure!(same >= FEWEST, "only {same} fields are the same");
    Ok(format!("{same} fields are the same"))
}
