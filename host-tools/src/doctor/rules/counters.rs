//! Rules about counters. Where single events are normal, constants here say how many make a finding.

use super::finding::{Found, Outcome, Severity, note};
use crate::counters::{AbnormalKind, Readings, known};
use crate::doctor::facts::Facts;

/// Number of events from which on they are a storm.
const STORM: u64 = 10;
/// In a storm, there are at most this many packets for each event.
const PACKETS_PER_EVENT: u64 = 1000;
const NO_COUNTERS: &str = "neither the device nor --counters gives any";

/// Counters of a category that are not zero.
fn raised(readings: &Readings, kind: AbnormalKind) -> Vec<(&str, u64)> {
    let abnormal = |name: &str| known(name).and_then(|known| known.abnormal);
    let rows = readings.iter().filter(|(_, value)| **value > 0);
    rows.filter(|(name, _)| abnormal(name).is_some_and(|abnormal| abnormal.kind == kind))
        .map(|(name, value)| (name.as_str(), *value))
        .collect()
}

fn total(rows: &[(&str, u64)]) -> u64 {
    rows.iter().fold(0, |sum, (_, value)| sum.saturating_add(*value))
}

/// Packets of the port; `None` if no counter has them.
fn packets(readings: &Readings) -> Option<u64> {
    let [sent, received] = ["tx_packets_phy", "rx_packets_phy"].map(|name| readings.get(name).copied());
    Some(sent?.saturating_add(received?))
}

/// Whether there are many events in relation to the packets.
fn is_storm(readings: &Readings, events: u64) -> bool {
    events >= STORM && packets(readings).is_none_or(|packets| packets / PACKETS_PER_EVENT <= events)
}

/// A finding of a category: the counters, and the text for the largest of them.
fn found(severity: Severity, rows: &[(&str, u64)], more: &str) -> Option<Found> {
    let (name, _) = rows.iter().max_by_key(|(_, value)| *value)?;
    let abnormal = known(name)?.abnormal?;
    let list: Vec<String> = rows.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let evidence = format!("{}{more}: {}", list.join(", "), abnormal.says);
    Some(Found { severity, evidence, fix: abnormal.fix.to_owned() })
}

fn of_packets(readings: &Readings) -> String {
    packets(readings).map_or(String::new(), |packets| format!(" of {packets} packets"))
}

fn storm(facts: &Facts, kind: AbnormalKind) -> Outcome {
    let Some(readings) = &facts.counters else { return Outcome::NotAsked(NO_COUNTERS) };
    let rows = raised(readings, kind);
    if !is_storm(readings, total(&rows)) {
        return Outcome::Silent;
    }
    Outcome::of(found(Severity::Warning, &rows, &of_packets(readings)))
}

fn any(facts: &Facts, kind: AbnormalKind, severity: Severity) -> Outcome {
    let Some(readings) = &facts.counters else { return Outcome::NotAsked(NO_COUNTERS) };
    Outcome::of(found(severity, &raised(readings, kind), ""))
}

pub(super) fn retransmission(facts: &Facts) -> Outcome {
    storm(facts, AbnormalKind::Retransmission)
}

pub(super) fn not_ready(facts: &Facts) -> Outcome {
    storm(facts, AbnormalKind::NotReady)
}

/// Loss that no congestion mark announced.
pub(super) fn unmarked_loss(facts: &Facts) -> Outcome {
    let Some(readings) = &facts.counters else { return Outcome::NotAsked(NO_COUNTERS) };
    if !readings.contains_key("np_ecn_marked_roce_packets") {
        return Outcome::NotAsked("there are no counters of congestion notification");
    }
    let lost = ["out_of_sequence", "packet_seq_err", "implied_nak_seq_err"];
    let lost: Vec<(&str, u64)> =
        lost.iter().filter_map(|name| Some((*name, *readings.get(*name)?))).filter(|row| row.1 > 0).collect();
    let announced = !raised(readings, AbnormalKind::Congestion).is_empty()
        || !raised(readings, AbnormalKind::Paused).is_empty();
    if announced || !is_storm(readings, total(&lost)) {
        return Outcome::Silent;
    }
    let list: Vec<String> = lost.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    Outcome::Fires(note(
        format!("{}, and no packet was marked and no pause frame came", list.join(", ")),
        "if the fabric is meant to be lossless: PFC or ECN is off for the priority that RoCE has, at a port or at a switch on the way; \
         mlnx_qos -i IF, cma_roce_tos, and the configuration of the switch",
    ))
}

pub(super) fn fault(facts: &Facts) -> Outcome {
    any(facts, AbnormalKind::Fault, Severity::Warning)
}

pub(super) fn link(facts: &Facts) -> Outcome {
    any(facts, AbnormalKind::Link, Severity::Warning)
}

pub(super) fn discard(facts: &Facts) -> Outcome {
    any(facts, AbnormalKind::Discard, Severity::Warning)
}

pub(super) fn paused(facts: &Facts) -> Outcome {
    any(facts, AbnormalKind::Paused, Severity::Note)
}

pub(super) fn congestion(facts: &Facts) -> Outcome {
    any(facts, AbnormalKind::Congestion, Severity::Note)
}
