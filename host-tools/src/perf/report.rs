//! The output of a test: perftest's columns, and one JSON object.

use super::figures::{Bandwidth, Latency, PERCENTILES};
use super::output_arguments::{OnlyNumber, OutputArguments};
use super::plan::{Amount, Measure, Operation, TestPlan, Transport};
use super::run::{BandwidthRow, PerfOutcome, SizeRow};
use super::samples::{self, SampleUnit};
use crate::counters::known;
use bareverbs_perftest::exchange::Destination;
use serde_json::{Value, json};
use std::fmt::Write as _;

const LINE: &str = "---------------------------------------------------------------------------------------";

/// The circumstances of the test.
#[derive(Debug)]
pub(crate) struct TestContext {
    pub(crate) device: String,
    pub(crate) peer: Option<String>,
    /// Whether the time is that of a simulator.
    pub(crate) simulated: bool,
}

/// Only one number for each size, after the lists of latencies that were requested.
pub(crate) fn only(outcome: &PerfOutcome, output: &OutputArguments) -> String {
    let line = |row: &SizeRow| lines_of(row, &outcome.plan, output);
    outcome.rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The one number of a row.
fn number_of(row: &SizeRow, number: OnlyNumber, plan: &TestPlan) -> String {
    let value = match (row, number) {
        (SizeRow::Latency(latency), _) => latency.mean / time_unit(plan).picos,
        (SizeRow::Bandwidth(row), OnlyNumber::MessageRate) => row.total().messages / 1e6,
        (SizeRow::Bandwidth(row), _) => row.total().average / unit(plan),
    };
    format!("{value:.6}")
}

/// The text.
pub(crate) fn text(outcome: &PerfOutcome, context: &TestContext, output: &OutputArguments) -> String {
    let busy = outcome.busy_percent.map(|busy| format!("\t    {busy:<3.2}")).unwrap_or_default();
    let rows = outcome.rows.iter().map(|row| lines_of(row, &outcome.plan, output) + &busy + "\n");
    let mut rows: String = rows.collect();
    if output.both {
        rows.push_str(&each_direction(outcome));
    }
    format!("{}\n{rows}{}", beginning(outcome, context), ending(outcome, context, output))
}

/// The figures of each direction.
fn each_direction(outcome: &PerfOutcome) -> String {
    let mut text = String::new();
    for (whose, is_own) in [("Local", true), ("Remote", false)] {
        let _ = writeln!(text, "{LINE}\n\n {whose} results: \n{LINE}\n{}", columns(&outcome.plan));
        for row in &outcome.rows {
            let SizeRow::Bandwidth(row) = row else { continue };
            let own = row.own.filter(|_| is_own);
            let peer = row.peer.filter(|_| !is_own);
            let _ = writeln!(text, "{}", bandwidth_row(&BandwidthRow { own, peer }, &outcome.plan));
        }
    }
    text
}

/// The lines before the rows.
pub(crate) fn beginning(outcome: &PerfOutcome, context: &TestContext) -> String {
    let mut text = head(outcome, context);
    for (whose, ends) in [("local", &outcome.own), ("remote", &outcome.peers)] {
        for end in ends {
            let _ = writeln!(text, "{}", address(whose, end, &outcome.plan));
        }
    }
    let _ = write!(text, "{LINE}\n{}", columns(&outcome.plan));
    text
}

/// A row, after the lists of latencies that were requested.
pub(crate) fn lines_of(row: &SizeRow, plan: &TestPlan, output: &OutputArguments) -> String {
    let mut lists = samples::lists(row, output, time_unit(plan));
    if let Some(number) = output.number {
        return lists + &number_of(row, number, plan);
    }
    if !lists.is_empty() {
        let _ = writeln!(lists, "{LINE}\n{}", columns(plan));
    }
    lists
        + &match row {
            SizeRow::Bandwidth(row) => bandwidth_row(row, plan),
            SizeRow::Latency(latency) => latency_row(latency, plan),
        }
}

/// The lines after the rows.
pub(crate) fn ending(outcome: &PerfOutcome, context: &TestContext, output: &OutputArguments) -> String {
    let mut text = format!("{LINE}\n{}", data_line(outcome));
    text.push_str(&counters_line(outcome));
    for name in &output.counters {
        let value = outcome.counters.as_ref().and_then(|counters| counters.get(name));
        let value = value.map_or_else(|| "not counted".to_owned(), u64::to_string);
        let _ = write!(text, "\n {name:<16}: {value}");
    }
    if context.simulated {
        text.push_str("\n sim: the device is simulated, so these figures say nothing about a real NIC");
    }
    text
}

fn head(outcome: &PerfOutcome, context: &TestContext) -> String {
    let plan = &outcome.plan;
    let shares = plan.shared_receives || plan.transport == Transport::Xrc;
    let mut lines = vec![
        LINE.to_owned(),
        format!("                    {}", title(plan)),
        format!(
            " Device          : {}\t\tPeer           : {}",
            context.device,
            context.peer.as_deref().unwrap_or("-")
        ),
        format!(" Number of qps   : {}\t\tTransport type : IB", plan.queue_pairs),
        format!(
            " Connection type : {}\t\tUsing SRQ      : {}",
            serde_name(&plan.transport),
            on_or_off(shares)
        ),
        format!(" TX depth        : {}", plan.tx_depth),
    ];
    if plan.post_list > 1 {
        lines.push(format!(" Post List       : {}", plan.post_list));
    }
    if plan.takes_receives() {
        lines.push(format!(" RX depth        : {}", plan.rx_depth));
    }
    if plan.measure == Measure::Bandwidth {
        lines.push(format!(" CQ Moderation   : {}", plan.cq_moderation));
    }
    lines.push(format!(" Mtu             : {}[B]", outcome.mtu));
    lines.push(format!(" Link type       : {}", link_type(outcome)));
    lines.push(format!(" GID index       : {}", outcome.gid_index));
    lines.push(match plan.operation.fetches() {
        true => format!(" Outstand reads  : {}", plan.outstanding),
        false => format!(" Max inline data : {}[B]", plan.inline),
    });
    lines.push(format!(" Data ex. method : {}", exchange_method(outcome)));
    lines.push(LINE.to_owned());
    lines.join("\n") + "\n"
}

const fn on_or_off(on: bool) -> &'static str {
    if on { "ON" } else { "OFF" }
}

pub(crate) fn title(plan: &TestPlan) -> String {
    let operation = match plan.operation {
        Operation::Write => "RDMA_Write",
        Operation::Read => "RDMA_Read",
        Operation::Send => "Send",
        Operation::FetchAdd => "Atomic FETCH_AND_ADD",
        Operation::CompareSwap => "Atomic CMP_AND_SWAP",
    };
    let immediate = if plan.immediate { " with immediate" } else { "" };
    let direction = if plan.bidirectional { "Bidirectional " } else { "" };
    let measure = if plan.measure == Measure::Bandwidth { "BW" } else { "Latency" };
    format!("{operation}{immediate} {direction}{measure} Test")
}

const fn link_type(outcome: &PerfOutcome) -> &'static str {
    if outcome.on_ethernet { "Ethernet" } else { "IB" }
}

fn exchange_method(outcome: &PerfOutcome) -> String {
    match &outcome.peer_version {
        Some(version) if outcome.plan.rdma_cm => format!("rdma_cm (the peer speaks perftest {version})"),
        Some(version) => format!("Ethernet (the peer speaks perftest {version})"),
        None => "within this process".to_owned(),
    }
}

fn serde_name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

fn address(whose: &str, end: &Destination, plan: &TestPlan) -> String {
    let Destination { lid, qpn, psn, outstanding_reads, rkey, address, gid, shared_queue } = end;
    let mut line =
        format!(" {whose} address: LID {lid:#06x} QPN {:#06x} PSN {:#x}", qpn.value(), psn.value());
    if plan.operation.fetches() {
        let _ = write!(line, " OUT {outstanding_reads:#04x}");
    }
    if plan.operation != Operation::Send {
        let _ = write!(line, " RKey {rkey:#08x} VAddr {address:#018x}");
    }
    if let Some(queue) = shared_queue {
        let _ = write!(line, " SRQn {:#08x}", queue.value());
    }
    let bytes: Vec<String> = gid.0.iter().map(|byte| format!("{byte:02}")).collect();
    if !gid.is_zero() {
        let _ = write!(line, "\n GID: {}", bytes.join(":"));
    }
    line
}

/// The heading of the columns.
fn columns(plan: &TestPlan) -> String {
    let unit = if plan.gigabits { "Gb/sec" } else { "MiB/sec" };
    let time = time_unit(plan).name;
    let busy = if plan.run.processor_use { "    CPU_Util[%]" } else { "" };
    let columns = match (plan.measure, plan.amount) {
        (Measure::Bandwidth, _) => {
            format!(" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]")
        }
        (Measure::Latency, Amount::Time { .. }) => {
            format!(" #bytes        #iterations       t_avg[{time}]    tps average")
        }
        (Measure::Latency, _) => {
            format!(
                " #bytes #iterations    t_min[{time}]    t_max[{time}]  t_typical[{time}]    t_avg[{time}]    \
                 t_stdev[{time}]   99% percentile[{time}]   99.9% percentile[{time}] "
            )
        }
    };
    columns + busy
}

fn bandwidth_row(row: &BandwidthRow, plan: &TestPlan) -> String {
    let Bandwidth { size, iterations, peak, average, messages } = row.total();
    let unit = unit(plan);
    let (peak, average, rate) = (peak / unit, average / unit, messages / 1e6);
    if plan.gigabits && average < 0.1 {
        return format!(
            " {size:<7}    {iterations}           {peak:<7.6}            {average:<7.6}            {rate:<7.6}"
        );
    }
    format!(" {size:<7}    {iterations:<10}       {peak:<7.2}            {average:<7.2}\t\t   {rate:<7.6}")
}

/// Bytes per second in one unit of rates.
pub(crate) const fn unit(plan: &TestPlan) -> f64 {
    if plan.gigabits { 1e9 / 8.0 } else { 1_048_576.0 }
}

/// The unit of times, with its picoseconds.
fn time_unit(plan: &TestPlan) -> SampleUnit {
    let micros = SampleUnit { name: "usec", picos: 1e6 };
    plan.cycles.map_or(micros, |cycles| SampleUnit { name: "cycles", picos: 1e6 / cycles })
}

fn latency_row(latency: &Latency, plan: &TestPlan) -> String {
    let Latency { size, iterations, rate, .. } = latency;
    let unit = time_unit(plan).picos;
    let micros = |picos: f64| picos / unit;
    if matches!(plan.amount, Amount::Time { .. }) {
        return format!(
            " {size:<7}       {iterations}            {:<7.2}        {rate:<7.2}",
            micros(latency.mean)
        );
    }
    let [typical, _, p99, p999, ..] = latency.percentiles.map(micros);
    // As perftest counts: messages, all of which except the first end a sample.
    format!(
        " {size:<7} {}          {:<7.2}        {:<7.2}      {typical:<7.2}  \t       {:<7.2}     \t{:<7.2}\t\t{p99:<7.2} \t\t{p999:<7.2}",
        iterations + 1,
        micros(latency.minimum),
        micros(latency.maximum),
        micros(latency.mean),
        micros(latency.deviation)
    )
}

fn data_line(outcome: &PerfOutcome) -> String {
    match &outcome.data {
        Some(data) if data.compared == 0 => " Data            : not visible at this end".to_owned(),
        Some(data) if data.wrong == 0 => {
            format!(" Data            : {} bytes compared, all equal", data.compared)
        }
        Some(data) => format!(" Data            : {} of {} bytes are WRONG", data.wrong, data.compared),
        None => " Data            : not checked: the bytes that perftest sends are unknown".to_owned(),
    }
}

/// Counters that rose although they should not have; empty if there are none.
fn counters_line(outcome: &PerfOutcome) -> String {
    let counted = outcome.counters.iter().flatten();
    let abnormal = counted
        .filter(|(name, value)| **value > 0 && known(name).is_some_and(|known| known.abnormal.is_some()));
    let listed: Vec<String> = abnormal.map(|(name, value)| format!("{name} {value}")).collect();
    match listed.is_empty() {
        true => String::new(),
        false => format!("\n Counters        : {} (`bareverbs explain NAME`)", listed.join(", ")),
    }
}

/// The object `perf` of the JSON output.
pub(crate) fn object(outcome: &PerfOutcome, context: &TestContext) -> Value {
    let plan = &outcome.plan;
    let iterations = match plan.amount {
        Amount::Iterations(count) => Some(count),
        Amount::Time { .. } => None,
    };
    let (duration, margin) = match plan.amount {
        Amount::Iterations(_) => (None, None),
        Amount::Time { total, margin } => {
            (Some(total.as_picos() as f64 / 1e12), Some(margin.as_picos() as f64 / 1e12))
        }
    };
    json!({
        "operation": plan.operation,
        "measure": plan.measure,
        "connection": plan.transport,
        "selector": context.device,
        "peer": context.peer,
        "role": outcome.role.map(|role| role.to_string()),
        "peer_version": outcome.peer_version,
        "clock": if context.simulated { "sim" } else { "real" },
        "options": {
            "queue_pairs": plan.queue_pairs,
            "iterations": iterations,
            "duration_s": duration,
            "margin_s": margin,
            "tx_depth": plan.tx_depth,
            "rx_depth": plan.rx_depth,
            "post_list": plan.post_list,
            "cq_moderation": plan.cq_moderation,
            "bidirectional": plan.bidirectional,
            "shared_receives": plan.shared_receives,
            "immediate": plan.immediate,
            "events": plan.events,
            "latency_gap_us": plan.run.gap.as_nanos() as f64 / 1e3,
            "reversed": plan.run.reversed,
            "region_each": plan.run.region_each,
            "warms_up": plan.run.warms_up,
            "receive_list": plan.run.receive_list,
            "vector": plan.run.vector,
            "pkey_index": plan.pkey_index,
            "inline_bytes": plan.inline,
            "outstanding_reads": plan.outstanding,
            "mtu_bytes": outcome.mtu,
            "gid_index": outcome.gid_index,
            "link_layer": link_type(outcome),
        },
        "local": outcome.own.iter().map(end).collect::<Vec<_>>(),
        "remote": outcome.peers.iter().map(end).collect::<Vec<_>>(),
        "results": outcome.rows.iter().map(result).collect::<Vec<_>>(),
        "counters": outcome.counters,
        "busy_percent": outcome.busy_percent,
        "data": outcome.data.map(|data| json!({"compared_bytes": data.compared, "wrong_bytes": data.wrong})),
    })
}

fn end(end: &Destination) -> Value {
    let gid = (!end.gid.is_zero()).then(|| end.gid.to_string());
    json!({
        "lid": end.lid,
        "qpn": end.qpn.value(),
        "psn": end.psn.value(),
        "rkey": end.rkey,
        "address": end.address,
        "gid": gid,
        "srqn": end.shared_queue.map(|queue| queue.value()),
    })
}

fn result(row: &SizeRow) -> Value {
    match row {
        SizeRow::Bandwidth(row) => {
            let total = row.total();
            json!({
                "size_bytes": total.size,
                "iterations": total.iterations,
                "bandwidth": bandwidth(&total),
                "local": row.own.as_ref().map(bandwidth),
                "remote": row.peer.as_ref().map(bandwidth),
            })
        }
        SizeRow::Latency(latency) => {
            let micros = |picos: f64| picos / 1e6;
            let percentile = |(percentile, picos): (&f64, &f64)| {
                (format!("p{percentile}").replace('.', "_"), json!(micros(*picos)))
            };
            let percentiles: serde_json::Map<String, Value> =
                PERCENTILES.iter().zip(&latency.percentiles).map(percentile).collect();
            let mut object = json!({
                "size_bytes": latency.size,
                "iterations": latency.iterations,
                "latency_us": {
                    "min": micros(latency.minimum),
                    "max": micros(latency.maximum),
                    "mean": micros(latency.mean),
                    "stdev": micros(latency.deviation),
                    "percentiles": percentiles,
                },
                "round_trips_per_s": latency.rate,
            });
            if let Some(samples) = &latency.samples {
                object["samples_us"] = samples.iter().map(|picos| micros(*picos as f64)).collect();
            }
            object
        }
    }
}

fn bandwidth(bandwidth: &Bandwidth) -> Value {
    let Bandwidth { peak, average, messages, .. } = bandwidth;
    json!({
        "peak_bytes_per_s": peak,
        "average_bytes_per_s": average,
        "messages_per_s": messages,
    })
}
