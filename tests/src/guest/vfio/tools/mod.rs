//! The tools of `bareverbs` on functions that the guest bound to `vfio-pci`. The judge compares what they show with the configuration of the
//! devices and with each other.
//!
//! [`bench`] runs the command in the guest, alone or at both ends of the wire. [`looks`] has the rows of tools that inspect one function
//! (`devinfo`, `gids`, `doctor`, `monitor`), [`pairs`] those of `perf` and `ping`. Every row compares values; an exit status alone proves
//! nothing. Start reading at [`ROWS`].

mod bench;
mod looks;
mod pairs;

use super::super::machine::Machine;
use super::super::table::{Entry, Report, Verdict};
use super::fleet::Fleet;
use anyhow::Result;
use bench::ToolBench;
use std::time::Instant;

/// A row: its name, and its function, which returns the sentence for the table.
struct ToolCase {
    name: &'static str,
    judge: fn(&mut ToolBench<'_>) -> Result<String>,
}

const fn row(name: &'static str, judge: fn(&mut ToolBench<'_>) -> Result<String>) -> ToolCase {
    ToolCase { name, judge }
}

/// All rows, in their order.
const ROWS: &[ToolCase] = &[
    row("tools: devinfo shows what the function was made like", looks::devinfo),
    row("tools: devinfo of an InfiniBand function that is switched off", looks::devinfo_infiniband),
    row("tools: devinfo --diff of two functions", looks::difference),
    row("tools: devinfo --diff of two link layers", looks::difference_of_link_layers),
    row("tools: gids", looks::gids),
    row("tools: doctor, all well", looks::doctor_all_well),
    row("tools: doctor --peer with what the other end says", looks::doctor_both_ends),
    row("tools: doctor, the cable is pulled out and plugged in", looks::doctor_cable),
    row("tools: doctor, no driver has the function", looks::doctor_unbound),
    row("tools: doctor, the port is switched off", looks::doctor_disabled),
    row("tools: doctor, another card", looks::doctor_other_card),
    row("tools: perf write bw between two functions, and monitor counts its packets", pairs::write_bandwidth),
    row("tools: monitor --once shows what --json does", looks::monitor),
    row("tools: perf send lat between two functions", pairs::send_latency),
    row("tools: ping between two functions", pairs::ping),
    row("tools: ping -c RC between two functions", pairs::ping_connected),
    row("tools: ping, the other end is killed", pairs::ping_killed),
    row("tools: ping, nobody listens", pairs::ping_nobody),
    row("tools: ping, the port is down", pairs::ping_down),
];

/// Runs the wanted rows.
pub(super) fn play(
    machine: &mut Machine,
    fleet: &Fleet,
    wants: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<()> {
    for ToolCase { name, judge } in ROWS.iter().filter(|row| wants(row.name)) {
        let start = Instant::now();
        let verdict = match judge(&mut ToolBench { machine, fleet }) {
            Ok(seen) => Verdict::Pass(seen),
            Err(error) => Verdict::Fail(format!("{error:#}")),
        };
        report.add(Entry { columns: vec![(*name).to_owned()], verdict, elapsed: start.elapsed() });
    }
    Ok(())
}
