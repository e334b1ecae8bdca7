//! Work requests from the doorbell to the end: the slice of each, and the arrow through everything that
//! belongs to it.

use super::events::{EventWriter, FlowStep, Place};
use super::tracks::{OpenSlice, SlicePlace, TrackKind, Tracks};
use bareverbs_prm::ids::Qpn;
use bareverbs_sim::nic::WorkName;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

/// Work requests in flight that are tracked; further ones are only counted.
const UNDER_WAY: usize = 1 << 16;
/// Work requests that are remembered after their end: a datagram is still in flight then.
const ENDED: usize = 1 << 12;
/// Doorbells of a queue that are remembered until their work requests are fetched.
const DOORBELLS: usize = 1 << 10;
/// Queues whose doorbells are remembered.
const QUEUES: usize = 1 << 12;
/// Name of the arrow from the doorbell over work request and frames to the CQE.
const WORK: &str = "work request";
/// Name of the arrow to a frame that came after the CQE.
const LATE: &str = "frame";

/// A work request of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) device: usize,
    pub(super) qpn: Qpn,
    pub(super) index: u16,
}

/// A tracked work request.
#[derive(Debug)]
struct UnderWay {
    slice: OpenSlice,
    /// Number of its arrow.
    flow: u64,
    /// Time of the latest slice on its arrow; later ones must not be shown before it.
    latest: u64,
}

/// A doorbell that was rung.
#[derive(Debug, Clone, Copy)]
struct Doorbell {
    posted: u16,
    place: Place,
}

/// Work requests, and their doorbells.
#[derive(Debug, Default)]
pub(super) struct Works {
    under_way: BTreeMap<Key, UnderWay>,
    ended: BTreeMap<Key, Place>,
    ended_in_order: VecDeque<Key>,
    doorbells: BTreeMap<(usize, Qpn), VecDeque<Doorbell>>,
    depths: BTreeMap<usize, u64>,
    flows: u64,
    /// Work requests that did not fit.
    pub(super) not_shown: u64,
}

impl Works {
    /// Records a doorbell, which is shown at `place`.
    pub(super) fn ring(&mut self, place: Place, qpn: Qpn, posted: u16) {
        let key = (place.device, qpn);
        if self.doorbells.len() >= QUEUES && !self.doorbells.contains_key(&key) {
            return;
        }
        let queue = self.doorbells.entry(key).or_default();
        if queue.len() == DOORBELLS {
            queue.pop_front();
        }
        queue.push_back(Doorbell { posted, place });
    }

    /// The doorbell that announced a work request: the first whose counter is beyond it.
    fn doorbell_of(&mut self, key: Key) -> Option<Place> {
        let queue = self.doorbells.get_mut(&(key.device, key.qpn))?;
        let is_beyond = |posted: u16| (posted.wrapping_sub(key.index) as i16) > 0;
        while queue.len() > 1 && queue.front().is_some_and(|doorbell| !is_beyond(doorbell.posted)) {
            queue.pop_front();
        }
        queue.front().filter(|doorbell| is_beyond(doorbell.posted)).map(|doorbell| doorbell.place)
    }

    /// Records that a work request was fetched from the ring.
    pub(super) fn fetch<W: Write>(
        &mut self,
        out: &mut EventWriter<W>,
        tracks: &mut Tracks,
        key: Key,
        fetched: FetchedWork,
    ) -> io::Result<()> {
        let FetchedWork { nanos, work, bytes } = fetched;
        let doorbell = self.doorbell_of(key);
        let nanos = doorbell.map_or(nanos, |place| place.nanos.max(nanos));
        // A queue pair that was reset counts from zero again, and its work requests in flight have ended.
        if let Some(old) = self.remove(key) {
            tracks.end(out, old.slice, nanos, &json!({"ended": "by a reset"}))?;
        }
        let at = SlicePlace { device: key.device, kind: TrackKind::Work(key.qpn), nanos };
        let begun = match self.under_way.len() < UNDER_WAY {
            true => {
                tracks.begin(out, at, &work.to_string(), &json!({"bytes": bytes, "qp": key.qpn.value()}))?
            }
            false => None,
        };
        let Some(slice) = begun else {
            self.not_shown += 1;
            return Ok(());
        };
        self.flows += 1;
        let id = self.flows;
        let step = match doorbell {
            Some(place) => {
                out.flow(FlowStep::Start, place, WORK, id)?;
                FlowStep::Step
            }
            None => FlowStep::Start,
        };
        out.flow(step, slice.place, WORK, id)?;
        *self.depths.entry(key.device).or_default() += 1;
        self.under_way.insert(key, UnderWay { slice, flow: self.flows, latest: slice.place.nanos });
        Ok(())
    }

    /// The earliest time at which a frame of a work request may begin.
    pub(super) fn not_before(&self, key: Key) -> u64 {
        let under_way = self.under_way.get(&key).map(|work| work.slice.place.nanos);
        under_way.or_else(|| self.ended.get(&key).map(|place| place.nanos)).unwrap_or(0)
    }

    /// Records a frame of a work request, which is shown at `place`.
    pub(super) fn frame<W: Write>(
        &mut self,
        out: &mut EventWriter<W>,
        key: Key,
        place: Place,
    ) -> io::Result<()> {
        if let Some(work) = self.under_way.get_mut(&key) {
            work.latest = work.latest.max(place.nanos);
            return out.flow(FlowStep::Step, place, WORK, work.flow);
        }
        let Some(&slice) = self.ended.get(&key) else { return Ok(()) };
        self.flows += 1;
        let id = self.flows;
        out.flow(FlowStep::Start, slice, LATE, id)?;
        out.flow(FlowStep::End, place, LATE, id)
    }

    /// The earliest time at which the CQE of a work request may be shown.
    pub(super) fn latest(&self, key: Key) -> u64 {
        self.under_way.get(&key).map_or(0, |work| work.latest)
    }

    /// Records the end of a work request. Its CQE, if it has one, is shown at `entry`.
    pub(super) fn end<W: Write>(
        &mut self,
        out: &mut EventWriter<W>,
        tracks: &mut Tracks,
        key: Key,
        ended: EndedWork,
    ) -> io::Result<()> {
        let Some(work) = self.remove(key) else { return Ok(()) };
        if let Some(entry) = ended.entry {
            out.flow(FlowStep::End, entry, WORK, work.flow)?;
        }
        let arguments = if ended.syndrome == 0 { Value::Null } else { json!({"syndrome": ended.syndrome}) };
        tracks.end(out, work.slice, ended.nanos, &arguments)?;
        if self.ended_in_order.len() == ENDED
            && let Some(oldest) = self.ended_in_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        self.ended_in_order.push_back(key);
        self.ended.insert(key, work.slice.place);
        Ok(())
    }

    /// Number of a device's work requests in flight.
    pub(super) fn depth(&self, device: usize) -> u64 {
        self.depths.get(&device).copied().unwrap_or(0)
    }

    fn remove(&mut self, key: Key) -> Option<UnderWay> {
        let work = self.under_way.remove(&key)?;
        self.depths.entry(key.device).and_modify(|depth| *depth -= 1);
        Some(work)
    }
}

/// A fetched work request.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchedWork {
    pub(super) nanos: u64,
    pub(super) work: WorkName,
    pub(super) bytes: u32,
}

/// The end of a work request.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedWork {
    pub(super) nanos: u64,
    /// Error syndrome; 0 if it succeeded.
    pub(super) syndrome: u8,
    pub(super) entry: Option<Place>,
}
