//! `bareverbs vfio list`.

use crate::Failure;
use crate::output::json_object;
use bareverbs_hal::memory::{HugePagePool, PageKind};
use bareverbs_hal::pci::{Function, Need, Tree};
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Table};
use serde_json::{Value, json};

pub(super) fn run(tree: &Tree, as_json: bool) -> Result<String, Failure> {
    let functions = tree.functions();
    let pools =
        [PageKind::Huge, PageKind::Gigantic].map(|kind| (kind, HugePagePool::read(tree.root(), kind)));
    let limit = Need::of_this_process(0, false).locked_limit;
    if as_json {
        let pages: Vec<Value> = pools
            .iter()
            .map(|(kind, pool)| json!({"bytes": kind.bytes(), "total": pool.total, "free": pool.free}))
            .collect();
        let functions: Vec<Value> = functions.iter().map(|function| describe(tree, function)).collect();
        return json_object(
            "functions",
            json!({"list": functions, "huge_pages": pages, "locked_memory_limit_bytes": limit}),
        );
    }
    let mut text = if functions.is_empty() {
        "no PCI function of vendor 15b3 (Mellanox/NVIDIA) in this machine".to_owned()
    } else {
        table(&functions)
    };
    for (kind, pool) in pools {
        text.push_str(&format!("\n{kind}: {} of {} free", pool.free, pool.total));
    }
    let limit = limit.map_or("no limit".to_owned(), |limit| format!("{} KiB", limit >> 10));
    text.push_str(&format!("\nlocked memory: {limit} (ulimit -l)"));
    Ok(text)
}

fn table(functions: &[Function]) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(["address", "id", "device", "driver", "IOMMU group", "NUMA", "interfaces", "support"]);
    for function in functions {
        let optional = |value: Option<u32>| value.map_or("-".to_owned(), |value| value.to_string());
        table.add_row([
            Cell::new(function.address),
            Cell::new(format!("{:04x}:{:04x}", function.vendor, function.device)),
            Cell::new(function.name()),
            Cell::new(function.driver.as_deref().unwrap_or("-")),
            Cell::new(optional(function.group)),
            Cell::new(optional(function.numa_node)),
            Cell::new(if function.interfaces.is_empty() {
                "-".into()
            } else {
                function.interfaces.join(",")
            }),
            Cell::new(function.support()),
        ]);
    }
    table.to_string()
}

/// Everything that is known about a function.
pub(super) fn describe(tree: &Tree, function: &Function) -> Value {
    let group = function.group.map(|group| tree.group_members(group, function.address)).unwrap_or_default();
    let others: Vec<Value> = group
        .iter()
        .map(|member| {
            json!({
                "address": member.function.address.to_string(),
                "driver": member.function.driver,
                "in_the_way": member.in_the_way,
            })
        })
        .collect();
    let system_uses: Vec<String> = tree.system_uses(function).iter().map(ToString::to_string).collect();
    json!({
        "address": function.address.to_string(),
        "vendor": format!("{:04x}", function.vendor),
        "device": format!("{:04x}", function.device),
        "name": function.name(),
        "support": function.support().to_string(),
        "driver": function.driver,
        "driver_override": function.driver_override,
        "iommu_group": function.group,
        "others_in_group": others,
        "numa_node": function.numa_node,
        "interfaces": function.interfaces,
        "physical_function": function.physical_function.map(|address| address.to_string()),
        "needed_by_the_system": system_uses,
    })
}
