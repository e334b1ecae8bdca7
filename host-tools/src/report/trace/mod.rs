//! A timeline for Perfetto's public viewers: Chrome's trace event format, written while the capture is read.
//! It has a process for each device; tracks of its program, its host, its driver, its NIC, its kernels and
//! its wire; an arrow for each work request from the doorbell over its frames to the CQE; and an arrow from a
//! request to the response that names its PSN. A capture without records only has the wire.
//!
//! * `events`: the format. `tracks`: what is shown where. `work`: work requests and their arrows.

mod events;
mod tracks;
mod work;

use super::frames::{Frame, Item, Record};
use super::tally::{Pair, address, refusal};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::psn::Psn;
use bareverbs_sim::nic::{DeviceEvent, FrameOrigin, FrameWork};
use bareverbs_sim::run::RecordText;
use bareverbs_sim::wire::Packet;
use events::{EventWriter, FlowStep, Place};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write};
use std::net::Ipv6Addr;
use tracks::{OpenSlice, SlicePlace, TrackKind, Tracks};
use work::{EndedWork, FetchedWork, Key, Works};

/// Open spans of hosts, and open calls of kernels, at a time; further ones are only counted.
const OPEN: usize = 1 << 14;
/// How long a frame is shown if the capture does not say when it was written, in nanoseconds.
const SHOWN: u64 = 50;
/// Name of the arrow from a request to its response.
const ANSWER: &str = "answer";

/// Writes a timeline.
pub(super) struct Timeline<W: Write> {
    out: EventWriter<W>,
    tracks: Tracks,
    works: Works,
    spans: BTreeMap<(usize, u64), OpenSlice>,
    calls: BTreeMap<(usize, Qpn), VecDeque<OpenSlice>>,
    calls_open: usize,
    first: Option<u64>,
    last: u64,
    /// Spans and calls that did not fit.
    not_shown: u64,
}

/// The ID of the arrow from a request to the response that names its PSN. It can be computed from either.
fn answer_id(asks: Ipv6Addr, answers: Ipv6Addr, psn: Psn) -> u64 {
    let mut hasher = DefaultHasher::new();
    (asks, answers, psn.value()).hash(&mut hasher);
    hasher.finish()
}

impl<W: Write> Timeline<W> {
    pub(super) fn begin(out: W) -> io::Result<Self> {
        Ok(Self {
            out: EventWriter::begin_file(out)?,
            tracks: Tracks::default(),
            works: Works::default(),
            spans: BTreeMap::new(),
            calls: BTreeMap::new(),
            calls_open: 0,
            first: None,
            last: 0,
            not_shown: 0,
        })
    }

    pub(super) fn take(&mut self, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Frame(frame) => self.frame(frame),
            Item::Record(record) => self.record(record),
        }
    }

    /// Time since the first thing in the capture.
    fn since(&mut self, nanos: u64) -> u64 {
        let since = nanos.saturating_sub(*self.first.get_or_insert(nanos));
        self.last = self.last.max(since);
        since
    }

    fn frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let end = self.since(frame.nanos);
        let device = frame.interface;
        let Ok(packet) = &frame.packet else {
            let at = SlicePlace { device, kind: TrackKind::OtherFrames, nanos: end };
            let arguments = json!({"bytes": frame.bytes});
            self.tracks.slice(&mut self.out, at, end + SHOWN, "not RoCE", &arguments)?;
            return Ok(());
        };
        let key = frame.origin.as_ref().and_then(|origin| key_of(device, origin));
        let at = self.slice_place(frame, packet, end, key);
        let end = if at.kind == TrackKind::Wire { end } else { end + SHOWN };
        let arguments = arguments_of(frame, packet);
        let place = self.tracks.slice(&mut self.out, at, end, &name_of(frame, packet), &arguments)?;
        if let Some(key) = key {
            self.works.frame(&mut self.out, key, place)?;
        }
        self.answer(packet, place)
    }

    /// Where to show a frame that arrived at `end`: from when its device wrote it, if that is known.
    fn slice_place(&self, frame: &Frame<'_>, packet: &Packet<'_>, end: u64, key: Option<Key>) -> SlicePlace {
        let device = frame.interface;
        let Some(built) = frame.origin.and_then(|origin| origin.built) else {
            return SlicePlace { device, kind: TrackKind::WireTo(packet.bth.destination), nanos: end };
        };
        let built = built.as_nanos().saturating_sub(self.first.unwrap_or(0)).min(end);
        let nanos = key.map_or(built, |key| built.max(self.works.not_before(key)));
        SlicePlace { device, kind: TrackKind::Wire, nanos }
    }

    fn answer(&mut self, packet: &Packet<'_>, place: Place) -> io::Result<()> {
        let pair = Pair::of(packet);
        let response = packet.bth.opcode.is_response();
        let (asks, answers) = if response { (pair.to, pair.from) } else { (pair.from, pair.to) };
        let step = if response { FlowStep::End } else { FlowStep::Start };
        self.out.flow(step, place, ANSWER, answer_id(asks, answers, packet.bth.psn))
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let (nanos, device) = (self.since(record.nanos), record.interface);
        match &record.what {
            Ok(RecordText::Device(event)) => self.device(device, nanos, event),
            Ok(RecordText::Program { pid, name }) => {
                let at = SlicePlace { device, kind: TrackKind::Program(*pid), nanos };
                // Nobody records its end, so the program has the device until the end of its recording.
                self.tracks.begin(&mut self.out, at, name, &json!({"pid": pid})).map(drop)
            }
            Ok(RecordText::SpanBegan { id, name }) => self.span(device, nanos, *id, name),
            Ok(RecordText::SpanEnded { id }) => match self.spans.remove(&(device, *id)) {
                Some(begun) => self.tracks.end(&mut self.out, begun, nanos, &Value::Null),
                None => Ok(()),
            },
            Ok(RecordText::Lost(count)) => {
                let name = format!("{count} records are missing");
                self.moment(device, TrackKind::Driver, nanos, &name, &Value::Null).map(drop)
            }
            // The summary counts them.
            Err(_) => Ok(()),
        }
    }

    fn moment(
        &mut self,
        device: usize,
        kind: TrackKind,
        nanos: u64,
        name: &str,
        arguments: &Value,
    ) -> io::Result<Place> {
        self.tracks.moment(&mut self.out, SlicePlace { device, kind, nanos }, name, arguments)
    }

    fn device(&mut self, device: usize, nanos: u64, event: &DeviceEvent) -> io::Result<()> {
        let text = event.to_string();
        match *event {
            DeviceEvent::SendDoorbell { qpn, posted } => {
                let place = self.moment(device, TrackKind::Driver, nanos, &text, &Value::Null)?;
                self.works.ring(place, qpn, posted);
                Ok(())
            }
            DeviceEvent::WqeFetched { qpn, work, bytes } => {
                let key = Key { device, qpn, index: work.index };
                self.works.fetch(&mut self.out, &mut self.tracks, key, FetchedWork { nanos, work, bytes })?;
                self.show_depth(device, nanos)
            }
            DeviceEvent::WqeEnded { qpn, wqe } => {
                let key = Key { device, qpn, index: wqe };
                self.end_work(key, EndedWork { nanos, syndrome: 0, entry: None })
            }
            DeviceEvent::LoopedBack(origin) => self.loopback(device, nanos, &text, &origin),
            DeviceEvent::CompletionWritten { .. } => self.completion(device, nanos, event),
            DeviceEvent::CompletionArmed { .. }
            | DeviceEvent::CommandExecuted { .. }
            | DeviceEvent::Interrupt { .. } => {
                self.moment(device, TrackKind::Driver, nanos, &text, &Value::Null).map(drop)
            }
            DeviceEvent::PacketReceived { qpn, opcode, psn } => {
                let arguments = json!({"qp": qpn.value(), "psn": psn.value()});
                self.moment(device, TrackKind::Received, nanos, &opcode.to_string(), &arguments).map(drop)
            }
            DeviceEvent::KernelRead { .. } => {
                self.moment(device, TrackKind::KernelReads, nanos, &text, &Value::Null).map(drop)
            }
            DeviceEvent::KernelCalled { qpn, kernel } => self.call(device, nanos, qpn, kernel),
            DeviceEvent::KernelReplied { qpn, bytes } => self.reply(device, nanos, qpn, bytes),
        }
    }

    /// A packet that never left the device is part of its work request.
    fn loopback(&mut self, device: usize, nanos: u64, text: &str, origin: &FrameOrigin) -> io::Result<()> {
        let key = key_of(device, origin);
        let nanos = key.map_or(nanos, |key| nanos.max(self.works.not_before(key)));
        let at = SlicePlace { device, kind: TrackKind::Wire, nanos };
        let place = self.tracks.slice(&mut self.out, at, nanos + 1, text, &Value::Null)?;
        key.map_or(Ok(()), |key| self.works.frame(&mut self.out, key, place))
    }

    fn completion(&mut self, device: usize, nanos: u64, event: &DeviceEvent) -> io::Result<()> {
        let DeviceEvent::CompletionWritten { cqn, qpn, wqe, opcode, syndrome } = *event else {
            return Ok(());
        };
        let sends = matches!(opcode, CqeOpcode::Requester | CqeOpcode::RequesterError);
        let key = Key { device, qpn, index: wqe };
        let shown = if sends { nanos.max(self.works.latest(key)) } else { nanos };
        let entry =
            self.moment(device, TrackKind::Completions(cqn), shown, &event.to_string(), &Value::Null)?;
        if sends {
            self.end_work(key, EndedWork { nanos, syndrome, entry: Some(entry) })?;
        }
        Ok(())
    }

    fn end_work(&mut self, key: Key, ended: EndedWork) -> io::Result<()> {
        self.works.end(&mut self.out, &mut self.tracks, key, ended)?;
        self.show_depth(key.device, ended.nanos)
    }

    fn show_depth(&mut self, device: usize, nanos: u64) -> io::Result<()> {
        let depth = self.works.depth(device);
        self.out.counter(Place { device, tid: 0, nanos }, "work requests under way", depth)
    }

    fn span(&mut self, device: usize, nanos: u64, id: u64, name: &str) -> io::Result<()> {
        let at = SlicePlace { device, kind: TrackKind::Host, nanos };
        let begun = match self.spans.len() < OPEN && !self.spans.contains_key(&(device, id)) {
            true => self.tracks.begin(&mut self.out, at, name, &Value::Null)?,
            false => None,
        };
        match begun {
            Some(begun) => drop(self.spans.insert((device, id), begun)),
            None => self.not_shown += 1,
        }
        Ok(())
    }

    fn call(&mut self, device: usize, nanos: u64, qpn: Qpn, kernel: u64) -> io::Result<()> {
        let at = SlicePlace { device, kind: TrackKind::Kernel, nanos };
        let (name, arguments) = (format!("kernel {kernel:#x}"), json!({"qp": qpn.value()}));
        let begun = match self.calls_open < OPEN {
            true => self.tracks.begin(&mut self.out, at, &name, &arguments)?,
            false => None,
        };
        match begun {
            Some(begun) => {
                self.calls_open += 1;
                self.calls.entry((device, qpn)).or_default().push_back(begun);
            }
            None => self.not_shown += 1,
        }
        Ok(())
    }

    /// Replies of one queue pair come in the order of its calls, or nearly.
    fn reply(&mut self, device: usize, nanos: u64, qpn: Qpn, bytes: u32) -> io::Result<()> {
        let calls = self.calls.get_mut(&(device, qpn));
        let Some(begun) = calls.and_then(VecDeque::pop_front) else { return Ok(()) };
        self.calls_open -= 1;
        self.tracks.end(&mut self.out, begun, nanos, &json!({"reply_bytes": bytes}))
    }

    /// Names the tracks and ends the file; returns how many work requests, spans and calls did not fit.
    pub(super) fn finish(self, interfaces: &[String]) -> io::Result<u64> {
        let not_shown = self.not_shown + self.works.not_shown;
        self.finish_into(interfaces).map(|_| not_shown)
    }

    /// Like [`Self::finish`], but returns the writer.
    pub(super) fn finish_into(mut self, interfaces: &[String]) -> io::Result<W> {
        self.tracks.finish(&mut self.out, self.last)?;
        for (device, name) in interfaces.iter().enumerate() {
            self.out.name_process(device, name)?;
        }
        self.out.finish()
    }
}

/// The work request of a frame.
fn key_of(device: usize, origin: &FrameOrigin) -> Option<Key> {
    match origin.work {
        FrameWork::Wqe(work) => Some(Key { device, qpn: origin.qpn, index: work.index }),
        FrameWork::KernelReply | FrameWork::Answer => None,
    }
}

fn name_of(frame: &Frame<'_>, packet: &Packet<'_>) -> String {
    let again = frame.origin.and_then(|origin| origin.again);
    let name = match (frame.note, refusal(packet)) {
        (Some(note), _) => format!("{} ({note})", packet.bth.opcode),
        (None, Some((refusal, _))) => format!("NAK: {refusal}"),
        (None, None) => packet.bth.opcode.to_string(),
    };
    again.map_or(name.clone(), |cause| format!("{name}, again: {cause}"))
}

fn arguments_of(frame: &Frame<'_>, packet: &Packet<'_>) -> Value {
    let pair = Pair::of(packet);
    let mut arguments = json!({
        "psn": packet.bth.psn.value(), "qp": packet.bth.destination.value(), "bytes": frame.bytes,
        "from": address(pair.from), "to": address(pair.to),
    });
    if let Some(origin) = &frame.origin {
        arguments["origin"] = origin.to_string().into();
    }
    arguments
}
