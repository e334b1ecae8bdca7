//! Rows of tools that need both ends of the wire: `perf` and `ping`, each end a process with a function of its own.

use super::bench::{ToolBench, ToolEnd, compare};
use super::looks::counters;
use crate::perftest_rows::agree;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Messages of the bandwidth test. Each fills 16 packets of the path MTU.
const WRITES: u64 = 200;
const WRITE_BYTES: u64 = 65_536;
const PATH_MTU: u64 = 4096;
/// Round trips of the latency test.
const TRIPS: u64 = 200;
/// Probes of a ping.
const PROBES: u64 = 20;
/// Answered probes before the answering end is killed.
const ANSWERS: u32 = 5;
/// TCP port in the guest at which both ends meet.
const MEETING: &str = "-p 19000";
/// Seconds for which an end waits for the other.
const TIMEOUT: &str = "30";

/// Runs a measurement in which both ends compare the data; `client_words` are for the client only. With an ACK timeout of 4.3 s (`-u 20`), a
/// busy machine causes no retransmission.
fn perf(bench: &mut ToolBench<'_>, words: &str, client_words: &str) -> Result<[ToolEnd; 2]> {
    let end = |device: &str| format!("perf {words} -u 20 -d {device} {MEETING} --timeout {TIMEOUT}");
    let [server, client] = bench.pair(&end("$a"), &format!("{} {client_words} 127.0.0.1", end("$b")))?;
    Ok([server.ended(0)?, client.ended(0)?])
}

/// Number of bytes that an end compared and found right.
fn compared(end: &ToolEnd) -> Result<u64> {
    let value = |line: &str| {
        line.split_once(':')
            .filter(|(name, _)| name.trim() == "Data")
            .map(|(_, value)| value.trim().to_owned())
    };
    let line = end.said.lines().find_map(value);
    let line = line.with_context(|| format!("nothing was compared: {}", end.said))?;
    let count = line.split(' ').next().and_then(|count| count.parse().ok());
    ensure!(line.ends_with("bytes compared, all equal"), "{line}");
    count.with_context(|| format!("no number: {line}"))
}

pub(super) fn write_bandwidth(bench: &mut ToolBench<'_>) -> Result<String> {
    let [a, b] = [counters(bench, "$a")?, counters(bench, "$b")?];
    let words = format!("write bw -n {WRITES} -s {WRITE_BYTES}");
    let [server, client] = perf(bench, &words, "")?;
    agree(&server.said, &client.said)
        .with_context(|| format!("server: {}\nclient: {}", server.said, client.said))?;
    let bytes = compared(&server)?;
    ensure!(bytes == WRITE_BYTES, "the server has compared {bytes} bytes");
    let [a_then, b_then] = [counters(bench, "$a")?, counters(bench, "$b")?];
    let risen = |name: &str| [a_then[name] - a[name], b_then[name] - b[name]];
    let data = WRITES * WRITE_BYTES / PATH_MTU;
    let [received, acknowledged] = risen("rx_packets_phy");
    let [answered, sent] = risen("tx_packets_phy");
    ensure!(sent == data && received == data, "{sent} packets were sent and {received} received, of {data}");
    ensure!(acknowledged == answered && answered >= 1, "{answered} answers sent, {acknowledged} received");
    Ok(format!("{bytes} bytes are right, {sent} packets sent and received, {answered} answers"))
}

pub(super) fn send_latency(bench: &mut ToolBench<'_>) -> Result<String> {
    let words = format!("send lat -n {TRIPS}");
    let [server, client] = perf(bench, &words, "")?;
    agree(&server.said, &client.said)
        .with_context(|| format!("server: {}\nclient: {}", server.said, client.said))?;
    ensure!(compared(&server)? > 0 && compared(&client)? > 0, "nothing was compared");
    let [_, client] = perf(bench, &words, "--json")?;
    let object = client.object("perf")?;
    let wanted = [
        ("/clock", json!("real")),
        ("/data/wrong_bytes", json!(0)),
        ("/options/link_layer", json!("Ethernet")),
        ("/options/mtu_bytes", json!(PATH_MTU)),
        ("/counters/out_of_sequence", json!(0)),
        ("/counters/local_ack_timeout_err", json!(0)),
    ];
    compare(&object, &wanted)?;
    let row = object.pointer("/results/0/latency_us").context("a row")?;
    let at = |pointer: &str| row.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("{row}"));
    let times = [at("/min")?, at("/percentiles/p50")?, at("/percentiles/p99")?, at("/max")?];
    ensure!(times[0] > 0.0 && times.is_sorted(), "{row}");
    Ok(format!("{TRIPS} round trips each, p50 {:.0} us", times[1]))
}

fn ping_over(bench: &mut ToolBench<'_>, connection: &str) -> Result<String> {
    let options = format!("-c {connection} {MEETING} --peer-timeout {TIMEOUT}");
    let client = format!("ping 127.0.0.1 -d $b {options} -n {PROBES} -i 5 --json");
    let [server, client] = bench.pair(&format!("ping --server -d $a {options}"), &client)?;
    server.ended(0)?.complains(&format!("{PROBES} probes answered"))?;
    let object = client.ended(0)?.object("ping")?;
    let wanted = [
        ("/sent", json!(PROBES)),
        ("/received", json!(PROBES)),
        ("/lost", json!(0)),
        ("/duplicates", json!(0)),
        ("/connection", json!(connection)),
        ("/findings", json!([])),
        ("/failure", Value::Null),
    ];
    compare(&object, &wanted)?;
    let p50 = object.pointer("/round_trip_us/p50").and_then(Value::as_f64).context("a round trip")?;
    ensure!(p50 > 0.0, "{object}");
    Ok(format!("{PROBES} of {PROBES} probes, p50 {p50:.0} us"))
}

pub(super) fn ping(bench: &mut ToolBench<'_>) -> Result<String> {
    ping_over(bench, "UD")
}

pub(super) fn ping_connected(bench: &mut ToolBench<'_>) -> Result<String> {
    ping_over(bench, "RC")
}

/// The answering end is killed: later probes are lost, and the exit status says so.
pub(super) fn ping_killed(bench: &mut ToolBench<'_>) -> Result<String> {
    let server = format!("exec bareverbs ping --server -d $a {MEETING} --peer-timeout {TIMEOUT}");
    let client = format!(
        "bareverbs ping 127.0.0.1 -d $b {MEETING} --peer-timeout {TIMEOUT} -n {PROBES} -i 100 -W 300 & client=$!
         for i in $(seq 600); do [ $(grep -c '^Pong.* ms$' /tmp/tool1.out) -ge {ANSWERS} ] && break; sleep 0.05; done
         kill -9 $p0; wait $client"
    );
    let [server, client] = bench.play([server, client])?;
    server.ended(128 + 9)?;
    let client = client.ended(1)?;
    let summary = client.said.lines().find(|line| line.contains("packets transmitted"));
    let summary = summary.with_context(|| format!("no summary: {}", client.said))?;
    let numbers: Vec<u64> = summary.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [sent, received, ..] = numbers[..] else { anyhow::bail!("{summary}") };
    // A line of an answer that came too late to count goes on after its time.
    let in_time = |line: &&str| line.starts_with("Pong") && line.ends_with(" ms");
    let answered = client.said.lines().filter(in_time).count() as u64;
    ensure!(sent == PROBES && received == answered, "{answered} answers were shown: {}", client.said);
    ensure!((u64::from(ANSWERS)..PROBES).contains(&received), "{}", client.said);
    ensure!(client.said.contains("bareverbs explain PING_LOST"), "{}", client.said);
    Ok(summary.to_owned())
}

pub(super) fn ping_nobody(bench: &mut ToolBench<'_>) -> Result<String> {
    let end = bench.run("ping 127.0.0.1 -d $b -p 19007 --peer-timeout 2")?.ended(2)?;
    let wanted = "nobody listens at 127.0.0.1:19007 (TCP)";
    end.complains(wanted)?;
    Ok(wanted.to_owned())
}

pub(super) fn ping_down(bench: &mut ToolBench<'_>) -> Result<String> {
    let cable = bench.fleet.cable("b")?;
    cable.set_plugged(false);
    let end = bench.run(&format!("ping 127.0.0.1 -d $b {MEETING} --peer-timeout 2"));
    cable.set_plugged(true);
    end?.ended(2)?.complains("the port is down (")?;
    Ok("the port is down".to_owned())
}
