//! Counts of a capture, in memory that does not grow with it.

use super::device::{CAUSES, DeviceInterval, DeviceTally};
use super::frames::{Frame, Record};
use super::latency::{Latencies, RequestKind};
use bareverbs_sim::wire::{Aeth, Extension, NakCode, Network, Packet, ServiceClass, Syndrome};
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;

/// Flows that are tracked; frames of further ones are counted together.
const FLOWS: usize = 4096;
/// Requests of a flow that are remembered until they are acknowledged.
const OUTSTANDING: usize = 1024;
/// Steps of the time axis.
pub(super) const STEPS: usize = 256;
/// After how many transmissions of a packet the connection counts as failed.
const REPETITIONS: u32 = 4;
/// Half of the PSN space: a PSN less far ahead is newer (IBTA v1.4 §9.7.2).
const HALF: u32 = 1 << 23;
const PSN_MASK: u32 = (1 << 24) - 1;

/// One direction between two addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) from: Ipv6Addr,
    pub(super) to: Ipv6Addr,
}

impl Pair {
    pub(super) fn of(packet: &Packet<'_>) -> Self {
        let (from, to) = ends(&packet.route.network);
        Self { from, to }
    }

    pub(super) const fn back(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

/// Requests to one queue pair. A frame that passes several interfaces is in a capture several times and is
/// counted at the one where it was first seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Flow {
    pub(super) interface: usize,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) repeated: u64,
    pub(super) lost: u64,
    pub(super) refusals: BTreeMap<&'static str, u64>,
    highest: Option<u32>,
    /// The packet that was last repeated, and how often.
    repeating: (u32, u32),
    /// PSN, time and kind of unacknowledged requests.
    outstanding: VecDeque<(u32, u64, RequestKind)>,
}

/// A step of the time axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) repeated: u64,
    pub(super) lost: u64,
    /// Packets that a switch marked, and the notifications about them.
    pub(super) marked: u64,
    pub(super) notified: u64,
    /// Most unacknowledged requests.
    pub(super) depth: u64,
    /// Retransmitted packets, by cause.
    pub(super) again: [u64; CAUSES],
    /// Activity of devices.
    pub(super) device: DeviceInterval,
}

/// The first failed connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) nanos: u64,
    pub(super) pair: Pair,
    pub(super) qpn: u32,
    pub(super) cause: String,
    /// The argument of `bareverbs explain` for details.
    pub(super) explain: &'static str,
}

/// All counts.
pub(super) struct CaptureTally {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    /// Frames that are not RoCE, or damaged.
    pub(super) unread: BTreeMap<String, u64>,
    /// Times of the first and the last frame.
    pub(super) span: Option<(u64, u64)>,
    pub(super) flows: BTreeMap<(Pair, u32), Flow>,
    /// Frames of flows beyond the limit.
    pub(super) further: u64,
    /// From request to acknowledgement, in nanoseconds.
    pub(super) latency: Latencies,
    pub(super) steps: [Interval; STEPS],
    /// Length of a step in nanoseconds; it doubles when the capture is longer.
    pub(super) step_nanos: u64,
    pub(super) broken: Option<Broken>,
    /// The flow of acknowledgements for a queue pair, and the interface at which they are counted.
    partners: BTreeMap<(Pair, u32), (u32, usize)>,
    depth: u64,
    /// Activity of devices.
    pub(super) device: DeviceTally,
}

impl CaptureTally {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            frames: 0,
            bytes: 0,
            unread: BTreeMap::new(),
            span: None,
            flows: BTreeMap::new(),
            further: 0,
            latency: Latencies::new()?,
            steps: [Interval::default(); STEPS],
            step_nanos: 1000,
            broken: None,
            partners: BTreeMap::new(),
            depth: 0,
            device: DeviceTally::default(),
        })
    }

    /// Counts a frame.
    pub(super) fn take(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        self.bytes += frame.bytes as u64;
        let (first, last) = self.span.unwrap_or((frame.nanos, frame.nanos));
        self.span = Some((first.min(frame.nanos), last.max(frame.nanos)));
        let repeated = match &frame.packet {
            Ok(packet) => self.packet(frame, packet),
            Err(error) => {
                *self.unread.entry(error.to_string()).or_insert(0) += 1;
                false
            }
        };
        let (depth, lost) = (self.depth, frame.is_lost());
        let (marked, notified) = frame.packet.as_ref().map_or((false, false), congestion);
        let cause = frame.origin.and_then(|origin| origin.again);
        if let Some(cause) = cause {
            self.device.again[cause as usize] += 1;
        }
        let step = self.step(frame.nanos);
        step.frames += 1;
        step.bytes += frame.bytes as u64;
        step.repeated += u64::from(repeated);
        step.lost += u64::from(lost);
        step.marked += u64::from(marked);
        step.notified += u64::from(notified);
        step.depth = step.depth.max(depth);
        if let Some(cause) = cause {
            step.again[cause as usize] += 1;
        }
    }

    /// Counts a record of a device.
    pub(super) fn record(&mut self, record: &Record<'_>) {
        let (first, last) = self.span.unwrap_or((record.nanos, record.nanos));
        self.span = Some((first.min(record.nanos), last.max(record.nanos)));
        let counted = self.device.take(record);
        self.step(record.nanos).device.add(counted);
    }

    /// The step of a time. When the axis is full, its steps become twice as long.
    fn step(&mut self, nanos: u64) -> &mut Interval {
        let since = nanos - self.span.map_or(nanos, |(first, _)| first).min(nanos);
        while since / self.step_nanos >= STEPS as u64 {
            for at in 0..STEPS / 2 {
                self.steps[at] = self.steps[2 * at].and(self.steps[2 * at + 1]);
            }
            self.steps[STEPS / 2..].fill(Interval::default());
            self.step_nanos *= 2;
        }
        &mut self.steps[(since / self.step_nanos) as usize]
    }

    /// Counts a packet. Returns true if it was sent before.
    fn packet(&mut self, frame: &Frame<'_>, packet: &Packet<'_>) -> bool {
        let pair = Pair::of(packet);
        if packet.bth.opcode.is_response() {
            self.response(frame, packet, pair);
            return false;
        }
        if !matches!(packet.bth.service, ServiceClass::ReliableConnection) {
            return false;
        }
        let key = (pair, packet.bth.destination.value());
        if self.flows.len() >= FLOWS && !self.flows.contains_key(&key) {
            self.further += 1;
            return false;
        }
        let flow =
            self.flows.entry(key).or_insert_with(|| Flow { interface: frame.interface, ..Flow::default() });
        if flow.interface != frame.interface {
            return false;
        }
        flow.frames += 1;
        flow.bytes += frame.bytes as u64;
        flow.lost += u64::from(frame.is_lost());
        let psn = packet.bth.psn.value();
        if flow.is_new(psn) {
            if flow.outstanding.len() == OUTSTANDING {
                flow.outstanding.pop_front();
                self.depth -= 1;
            }
            let kind = RequestKind::of(packet.bth.opcode.kind());
            flow.outstanding.push_back((psn, frame.nanos, kind));
            self.depth += 1;
            return false;
        }
        flow.repeated += 1;
        let times = if flow.repeating.0 == psn { flow.repeating.1 + 1 } else { 2 };
        flow.repeating = (psn, times);
        if times == REPETITIONS && self.broken.is_none() {
            self.broken = Some(Broken {
                nanos: frame.nanos,
                pair,
                qpn: key.1,
                cause: format!("packet {psn} was sent {times} times and not acknowledged"),
                explain: "IBV_WC_RETRY_EXC_ERR",
            });
        }
        true
    }

    fn response(&mut self, frame: &Frame<'_>, packet: &Packet<'_>, pair: Pair) {
        let (qpn, psn) = (packet.bth.destination.value(), packet.bth.psn.value());
        let Some(key) = self.requester(frame.interface, pair, qpn, psn) else { return };
        let refusal = refusal(packet);
        let Some(flow) = self.flows.get_mut(&key) else { return };
        if let Some((name, fatal)) = refusal {
            *flow.refusals.entry(name).or_insert(0) += 1;
            if let Some(explain) = fatal.filter(|_| self.broken.is_none()) {
                let cause = format!("the responder refused packet {psn}: {name}");
                self.broken = Some(Broken { nanos: frame.nanos, pair: key.0, qpn: key.1, cause, explain });
            }
            return;
        }
        if frame.is_lost() {
            return;
        }
        while let Some(&(asked, when, kind)) = flow.outstanding.front() {
            if is_ahead(asked, psn) {
                break;
            }
            flow.outstanding.pop_front();
            self.depth -= 1;
            self.latency.record(kind, frame.nanos.saturating_sub(when));
        }
    }

    /// The flow that a response to `qpn` belongs to: the one in the other direction that waits for its PSN. A
    /// base transport header names only the receiver, so the first response decides.
    fn requester(&mut self, interface: usize, pair: Pair, qpn: u32, psn: u32) -> Option<(Pair, u32)> {
        let (there, answered) = (pair.back(), (pair, qpn));
        if let Some((partner, counts)) = self.partners.get(&answered) {
            return (*counts == interface).then_some((there, *partner));
        }
        let waits = |flow: &Flow| flow.outstanding.iter().any(|(asked, ..)| *asked == psn);
        let mut flows = self.flows.range((there, 0)..=(there, u32::MAX));
        let (key, _) = flows.find(|(_, flow)| waits(flow))?;
        let key = *key;
        if self.partners.len() < FLOWS {
            self.partners.insert(answered, (key.1, interface));
        }
        Some(key)
    }
}

impl Flow {
    /// Whether a PSN is beyond all earlier ones.
    fn is_new(&mut self, psn: u32) -> bool {
        let new = self.highest.is_none_or(|highest| is_ahead(psn, highest));
        if new {
            self.highest = Some(psn);
        }
        new
    }
}

impl Interval {
    fn and(self, other: Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            bytes: self.bytes + other.bytes,
            repeated: self.repeated + other.repeated,
            lost: self.lost + other.lost,
            marked: self.marked + other.marked,
            notified: self.notified + other.notified,
            depth: self.depth.max(other.depth),
            again: core::array::from_fn(|cause| self.again[cause] + other.again[cause]),
            device: self.device.and(other.device),
        }
    }
}

/// Whether a RoCEv2 packet was marked on its way, and whether it is a congestion notification (RoCEv2
/// A17.9.3).
fn congestion(packet: &Packet<'_>) -> (bool, bool) {
    const EXPERIENCED: u8 = 0b11;
    let has_ip = matches!(packet.route.network, Network::V4 { .. } | Network::V6 { .. });
    let is_marked = has_ip && packet.route.traffic_class & EXPERIENCED == EXPERIENCED;
    (is_marked, packet.bth.service == ServiceClass::CongestionNotification)
}

/// Whether `psn` is newer than `other`.
const fn is_ahead(psn: u32, other: u32) -> bool {
    let distance = psn.wrapping_sub(other) & PSN_MASK;
    distance != 0 && distance < HALF
}

/// The name of a refusal, and its explanation if it ends the connection.
pub(super) fn refusal(packet: &Packet<'_>) -> Option<(&'static str, Option<&'static str>)> {
    let (Extension::Aeth(Aeth { syndrome, .. }) | Extension::AtomicAck(Aeth { syndrome, .. }, _)) =
        packet.extension
    else {
        return None;
    };
    Some(match syndrome {
        Syndrome::Ack(_) => return None,
        Syndrome::RnrNak(_) => ("receiver not ready", None),
        Syndrome::Nak(NakCode::SequenceError) => ("PSN sequence error", None),
        Syndrome::Nak(NakCode::InvalidRequest) => ("invalid request", Some("IBV_WC_REM_INV_REQ_ERR")),
        Syndrome::Nak(NakCode::RemoteAccess) => ("remote access error", Some("IBV_WC_REM_ACCESS_ERR")),
        Syndrome::Nak(NakCode::RemoteOperational) => ("remote operational error", Some("IBV_WC_REM_OP_ERR")),
        _ => ("a refusal that this report does not know", None),
    })
}

/// Addresses of a packet; a LID is in the last two bytes.
fn ends(network: &Network) -> (Ipv6Addr, Ipv6Addr) {
    match network {
        Network::V4 { source, destination } => (source.to_ipv6_mapped(), destination.to_ipv6_mapped()),
        Network::V6 { source, destination } => (*source, *destination),
        Network::Version1(route) => (route.source, route.destination),
        Network::InfiniBand(local) => {
            (Ipv6Addr::from_bits(local.source.into()), Ipv6Addr::from_bits(local.destination.into()))
        }
    }
}

/// The address in its usual notation.
pub(super) fn address(end: Ipv6Addr) -> String {
    match (end.to_ipv4_mapped(), end.to_bits()) {
        (Some(ip), _) => ip.to_string(),
        (None, lid) if lid <= 0xffff => format!("LID {lid:#06x}"),
        _ => end.to_string(),
    }
}
