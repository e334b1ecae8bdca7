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

/// Fields that differ on purpose.
const DIFFERENT: &[Difference] = &[
    everywhere("max_qp", "a process has its part of a host's numbers"),
    everywhere("max_res_rd_atom", "16 for each queue pair"),
    everywhere("max_qp_wr", "the served card has shorter queues"),
    everywhere("num_comp_vectors", "Linux has one for each processor of the guest"),
    on_ethernet("active_mtu", "the guest's interface has the MTU of its network, 1500"),
    on_ethernet("device_cap_flags", "raw packets: checksums and flow steering"),
    on_ethernet("device_cap_flags_ex", "raw packets: checksums and flow steering"),
    on_ethernet("max_tso", "raw packets"),
    on_ethernet("max_rwq_indirection_tables", "raw packets"),
    on_ethernet("max_rwq_indirection_table_size", "raw packets"),
    on_ethernet("rx_hash_function", "raw packets"),
    on_ethernet("rx_hash_fields_mask", "raw packets"),
    on_ethernet("max_wq_type_rq", "raw packets"),
];

/// A field whose two values have to differ, and why. `bareverbs run` offers no raw packet queue pairs.
struct Difference {
    field: &'static str,
    why: &'static str,
    is_on_infiniband: bool,
}

const fn everywhere(field: &'static str, why: &'static str) -> Difference {
    Difference { field, why, is_on_infiniband: true }
}

const fn on_ethernet(field: &'static str, why: &'static str) -> Difference {
    Difference { field, why, is_on_infiniband: false }
}

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
    let is_known = |name: &str| {
        let applies = |known: &&Difference| known.is_on_infiniband || link == LinkLayer::Ethernet;
        DIFFERENT.iter().filter(applies).find(|known| known.field == name)
    };
    let mut faults = Vec::new();
    let mut same = 0;
    for (name, linux) in linux {
        let Some(ours) = ours.get(name) else { continue };
        match (is_known(name), linux == ours) {
            (None, true) => same += 1,
            (Some(_), false) => {}
            (None, false) => faults.push(format!("{name}: {linux} in the guest, {ours} under bareverbs run")),
            (Some(known), true) => {
                faults.push(format!("{name} is {linux} in both; it was not, since: {}", known.why))
            }
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    ensure!(same >= FEWEST, "only {same} fields are the same");
    Ok(format!("{same} fields are the same"))
}
