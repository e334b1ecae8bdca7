//! The tracks of a timeline. A track is a thread to the viewers, and slices on one thread must not overlap
//! partially: overlapping slices get lanes of their own, and simultaneous moments are shown a nanosecond
//! apart.

use super::events::{EventWriter, Place};
use bareverbs_prm::ids::{Cqn, Qpn};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Most tracks of a timeline; further slices share the last one of their kind.
const TRACKS: usize = 1 << 16;
/// Most lanes of one kind of track.
const LANES: usize = 1024;
/// How long a moment is shown, in nanoseconds, unless the next one comes before.
const SHOWN: u64 = 50;

/// The contents of a track. The viewers show them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TrackKind {
    /// A process that has the device, by process ID.
    Program(u32),
    Host,
    Driver,
    Work(Qpn),
    Completions(Cqn),
    Received,
    Kernel,
    KernelReads,
    /// Frames whose time of writing is in the capture.
    Wire,
    /// Frames of other captures, by the queue pair that they are for.
    WireTo(Qpn),
    /// Frames that are not RoCE.
    OtherFrames,
}

impl TrackKind {
    fn name(self) -> String {
        match self {
            Self::Program(pid) => format!("program: process {pid}"),
            Self::Host => "host".to_owned(),
            Self::Driver => "driver: doorbells, commands, interrupts".to_owned(),
            Self::Work(qpn) => format!("NIC: work of qp {qpn}"),
            Self::Completions(cqn) => format!("NIC: entries of cq {cqn}"),
            Self::Received => "NIC: packets that came".to_owned(),
            Self::Kernel => "kernel".to_owned(),
            Self::KernelReads => "kernel: reads of host memory".to_owned(),
            Self::Wire => "wire".to_owned(),
            Self::WireTo(qpn) => format!("wire: to qp {qpn}"),
            Self::OtherFrames => "wire: not RoCE".to_owned(),
        }
    }
}

/// Where and when to show something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlicePlace {
    pub(super) device: usize,
    pub(super) kind: TrackKind,
    /// Time since the beginning of the capture.
    pub(super) nanos: u64,
}

/// One thread of the timeline.
#[derive(Debug)]
struct Track {
    tid: u32,
    /// Nothing may begin before this time.
    free_from: u64,
    /// Whether a slice has begun whose end is not known.
    open: bool,
    /// When the current moment began.
    moment: Option<u64>,
}

/// All tracks of all devices.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    tracks: BTreeMap<(usize, TrackKind), Vec<Track>>,
    count: usize,
}

/// A slice that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenSlice {
    pub(super) place: Place,
    kind: TrackKind,
    lane: usize,
}

impl Tracks {
    /// Shows a moment, not before `nanos`; returns where.
    pub(super) fn moment<W: Write>(
        &mut self,
        out: &mut EventWriter<W>,
        at: SlicePlace,
        name: &str,
        arguments: &Value,
    ) -> io::Result<Place> {
        let SlicePlace { device, kind, nanos } = at;
        let track = self.lane(device, kind, 0);
        let start = track.free_from.max(nanos);
        let tid = track.tid;
        let before = track.moment.replace(start);
        track.free_from = start + 1;
        if let Some(before) = before {
            out.end(Place { device, tid, nanos: start.min(before + SHOWN) }, &Value::Null)?;
        }
        let place = Place { device, tid, nanos: start };
        out.begin(place, name, arguments)?;
        Ok(place)
    }

    /// Begins a slice on a free lane.
    pub(super) fn begin<W: Write>(
        &mut self,
        out: &mut EventWriter<W>,
        at: SlicePlace,
        name: &str,
        arguments: &Value,
    ) -> io::Result<Option<OpenSlice>> {
        let SlicePlace { device, kind, nanos } = at;
        let Some(lane) = self.free_lane(device, kind, nanos) else { return Ok(None) };
        let track = self.lane(device, kind, lane);
        track.open = true;
        let place = Place { device, tid: track.tid, nanos };
        out.begin(place, name, arguments)?;
        Ok(Some(OpenSlice { place, kind, lane }))
    }

    /// Ends it.
    pub(super) fn end<W: Write>(
        &mut self,
        out: &mut EventWriter<W>,
        begun: OpenSlice,
        nanos: u64,
        arguments: &Value,
    ) -> io::Result<()> {
        let OpenSlice { place, kind, lane } = begun;
        let nanos = nanos.max(place.nanos + 1);
        let track = self.lane(place.device, kind, lane);
        (track.open, track.free_from) = (false, nanos);
        out.end(Place { nanos, ..place }, arguments)
    }

    /// Shows a slice whose end is known.
    pub(super) fn slice<W: Write>(
        &mut self,
        out: &mut EventWriter<W>,
        at: SlicePlace,
        end: u64,
        name: &str,
        arguments: &Value,
    ) -> io::Result<Place> {
        let SlicePlace { device, kind, nanos } = at;
        let lane = self.free_lane(device, kind, nanos).unwrap_or(0);
        let track = self.lane(device, kind, lane);
        let start = nanos.max(track.free_from);
        track.free_from = end.max(start + 1);
        let (place, length) = (Place { device, tid: track.tid, nanos: start }, track.free_from - start);
        out.complete(place, length, name, arguments)?;
        Ok(place)
    }

    /// The most recently used of the free lanes.
    fn free_lane(&self, device: usize, kind: TrackKind, nanos: u64) -> Option<usize> {
        let Some(lanes) = self.tracks.get(&(device, kind)) else { return Some(0) };
        let free = lanes.iter().enumerate().filter(|(_, track)| !track.open && track.free_from <= nanos);
        let best = free.max_by_key(|(lane, track)| (track.free_from, core::cmp::Reverse(*lane)));
        let room = lanes.len() < LANES && self.count < TRACKS;
        best.map(|(lane, _)| lane).or(room.then_some(lanes.len()))
    }

    fn lane(&mut self, device: usize, kind: TrackKind, lane: usize) -> &mut Track {
        let lanes = self.tracks.entry((device, kind)).or_default();
        while lanes.len() <= lane {
            self.count += 1;
            let tid = self.count as u32;
            lanes.push(Track { tid, free_from: 0, open: false, moment: None });
        }
        &mut lanes[lane]
    }

    /// Ends open slices and names all tracks.
    pub(super) fn finish<W: Write>(&mut self, out: &mut EventWriter<W>, last: u64) -> io::Result<()> {
        for (order, (&(device, kind), lanes)) in self.tracks.iter().enumerate() {
            for (lane, track) in lanes.iter().enumerate() {
                let Track { tid, free_from, open, moment } = *track;
                if let Some(moment) = moment {
                    out.end(Place { device, tid, nanos: moment + SHOWN }, &Value::Null)?;
                }
                if open {
                    let not_ended = serde_json::json!({"ended": "not in this capture"});
                    out.end(Place { device, tid, nanos: last.max(free_from) + 1 }, &not_ended)?;
                }
                let name = match lane {
                    0 => kind.name(),
                    _ => format!("{} ({})", kind.name(), lane + 1),
                };
                out.name_thread(device, tid, &name, order * LANES + lane)?;
            }
        }
        Ok(())
    }
}
