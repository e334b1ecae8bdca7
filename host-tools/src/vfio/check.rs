//! `bareverbs vfio check BDF`: shows each obstacle with the command that removes it.

use super::common::FunctionArgument;
use crate::Failure;
use crate::output::json_object;
use bareverbs_hal::pci::{Check, Finding, Need, State, Tree};
use clap::Args;
use serde_json::{Value, json};

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    #[command(flatten)]
    which: FunctionArgument,
    /// DMA memory needed from the start, in MiB.
    #[arg(long, default_value_t = 32)]
    memory: usize,
    /// Run without an IOMMU.
    #[arg(long)]
    no_iommu: bool,
}

pub(super) fn run(tree: &Tree, arguments: &CheckArguments, as_json: bool) -> Result<(String, bool), Failure> {
    let memory = arguments.memory.checked_mul(1 << 20);
    let memory = memory.ok_or_else(|| Failure::Input(anyhow::anyhow!("--memory is too large")))?;
    let need = Need::of_this_process(memory, arguments.no_iommu);
    let findings =
        tree.preflight(arguments.which.address, &need).map_err(|error| Failure::Input(error.into()))?;
    let ready = findings.iter().all(|finding| finding.state != State::Bad);
    if as_json {
        let rows: Vec<Value> = findings.iter().map(row).collect();
        let value = json!({"address": arguments.which.address.to_string(), "ready": ready, "findings": rows});
        return Ok((json_object("check", value)?, ready));
    }
    let mut lines: Vec<String> =
        findings.iter().map(|finding| format!("{:8} {finding}", word(finding.state))).collect();
    lines.push(format!(
        "{} {}",
        arguments.which.address,
        if ready { "can be opened" } else { "cannot be opened" }
    ));
    Ok((lines.join("\n"), ready))
}

fn row(finding: &Finding) -> Value {
    json!({
        "check": finding.check.to_string(),
        "id": id_of(finding.check),
        "state": word(finding.state),
        "seen": finding.seen,
        "repair": finding.repair,
    })
}

/// Its ID in `bareverbs explain` and `doctor`. The NUMA node is shown but not judged.
pub(crate) const fn id_of(check: Check) -> Option<&'static str> {
    Some(match check {
        Check::DeviceId => "host.device-id",
        Check::Driver => "host.driver",
        Check::Iommu => "host.iommu",
        Check::Group => "host.iommu-group",
        Check::Permission => "host.permission",
        Check::LockedMemory => "host.memlock",
        Check::HugePages => "host.hugepages",
        Check::Numa => return None,
    })
}

fn word(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Warning => "warning",
        State::Bad => "bad",
    }
}
