//! One device in real time: a clock, frames from and to the outside, and its host's memory.
//!
//! **What this is.** The real-time runner. Where [`World`](bareverbs_sim::run::World) jumps from event to event, this
//! one uses the machine's clock and a [`FrameIo`]. The device is the same. Faults and capture sit between device and
//! frames, as on a link of the world; but arrival times depend on the machine, so there is no event digest.
//!
//! **What it may not do.** It blocks only in [`RealTime::rest`], and drops no frame silently: a frame that the peer
//! cannot take yet waits, and meanwhile the device is asked for no more.

mod card;
mod descriptor;
mod fault_script;
mod lane;
mod outside;
mod recorder;
mod tally;
mod tap;
mod udp;
mod unix_datagram;

pub use card::{Card, CardPort, Waker};
pub use fault_script::FaultScript;
pub use lane::{FaultCounters, Lane};
pub use outside::{Outside, OutsideIo};
pub use recorder::Recorder;
pub(crate) use tally::Tally;
pub use tap::TapIo;
pub use udp::UdpIo;
pub use unix_datagram::UnixDatagramIo;

use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::capture::{CaptureError, Direction};
use bareverbs_sim::net::fault::Faults;
use bareverbs_sim::nic::{DeviceEvent, HostMemory, LinkHistory};
use bareverbs_sim::run::{Device, RecordText};
use bareverbs_sim::wire::FrameBuffer;
use card::DmaSide;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

/// A source and sink of frames in real time, without frame check sequences. Nothing here blocks except
/// [`FrameIo::wait`].
pub trait FrameIo {
    /// Sends one frame; false if the peer cannot take it now.
    fn send(&mut self, frame: &[u8]) -> io::Result<bool>;
    /// Receives one frame into `frame`; false if there is none.
    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool>;
    /// Waits for a frame, for at most `limit`.
    fn wait(&mut self, limit: std::time::Duration) -> io::Result<()>;
    /// The device's end of the cable went down or came up, perhaps without having been down. Does nothing where the far
    /// end cannot see that.
    fn set_link_up(&mut self, _up: bool) {}
}

/// Frames to take from outside before the device is asked for its own.
const RECEIVE_BATCH: usize = 64;
/// Frames that may wait to be sent before the device is asked for no more.
const SEND_LIMIT: usize = 64;
/// [Work](Device::work_done) per turn of a device: memory accesses of some 10 to 100 ns each.
const TURN: u64 = 1 << 16;
/// Register that starts commands.
const COMMAND_DOORBELL: u64 = init_segment::COMMAND_DOORBELL as u64;
/// Longest pause, whatever the caller asks for, because the peer cannot signal that it has room again.
const LONGEST_REST: Duration = Duration::from_millis(1);
/// Pause while frames wait for the peer.
const BLOCKED_REST: Duration = Duration::from_micros(50);

/// Traffic on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameCounters {
    /// Frames received from outside.
    pub received: u64,
    /// Frames that the device sent.
    pub sent: u64,
    /// Number of times the peer could not take a frame at once.
    pub blocked: u64,
    /// Frames dropped, duplicated, corrupted or delayed by a fault, in both directions.
    pub faults: u64,
}

/// The runner; see the module.
///
/// ```no_run
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_prm::time::{Duration, Time};
/// use bareverbs_serve::real_time::{RealTime, UdpIo};
/// use bareverbs_sim::nic::{HostMemory, Nic, NicConfig};
/// use std::io;
///
/// /// Runs a device for a second. Its host talks to it by `mmio_read` and `mmio_write`.
/// fn run(memory: impl HostMemory) -> io::Result<()> {
///     let nic = Nic::new(NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1])));
///     let wire = UdpIo::bind(([127, 0, 0, 1], 9000).into(), ([127, 0, 0, 1], 9001).into())?;
///     let mut runner = RealTime::new(nic, memory, wire);
///     let end = Time::ZERO + Duration::from_secs(1);
///     while runner.now() < end {
///         if !runner.step()? {
///             runner.rest(end)?;
///         }
///     }
///     println!("{} frames came", runner.counters().received);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct RealTime<M, D, F> {
    device: D,
    memory: M,
    io: F,
    start: Instant,
    inbound: Lane,
    outbound: Lane,
    frame: Vec<u8>,
    outgoing: FrameBuffer,
    capture: Option<Recorder>,
    card: Option<CardPort>,
    interrupts: BTreeMap<u16, u64>,
    counters: FrameCounters,
    /// Work done by the device at the start of the turn.
    begun: u64,
    /// Whether due frames have to wait for the device's next turn.
    cut_off: bool,
    /// What the far end of the cable knows of this one.
    told: LinkHistory,
}

impl<M: HostMemory, D: Device, F: FrameIo> RealTime<M, D, F> {
    /// Connects a device to the wire. Its time starts now.
    pub fn new(mut device: D, mut memory: M, io: F) -> Self {
        device.set_link_up(Time::ZERO, &mut memory, true);
        let card = device.vhca_id().and_then(|id| Card::default().join(id, Box::new(|| ())));
        Self {
            device,
            memory,
            io,
            start: Instant::now(),
            inbound: Lane::default(),
            outbound: Lane::default(),
            frame: Vec::new(),
            outgoing: FrameBuffer::new(),
            capture: None,
            card,
            interrupts: BTreeMap::new(),
            counters: FrameCounters::default(),
            begun: 0,
            cut_off: false,
            told: LinkHistory { is_up: true, drops: 0, trainings: 0 },
        }
    }

    /// Captures every frame as the device sees it, with what a fault did to it and, for outgoing frames, its queue pair
    /// and work request. Also records the device's actions if `capture` has an interface for them.
    pub fn set_capture(&mut self, capture: Recorder) {
        self.device.observe(true);
        self.capture = Some(capture);
    }

    /// Makes the device a function of a card with other functions. Before that it is the only function of its own card.
    pub fn set_card(&mut self, card: CardPort) {
        self.card = Some(card);
    }

    /// Ends the capture for everybody who writes it; `None` if there was none.
    pub fn finish_capture(&mut self) -> Option<Result<u64, CaptureError>> {
        let capture = self.capture.take()?;
        self.device.observe(false);
        capture.finish()
    }

    /// Sets the faults on the device's incoming and outgoing frames; `None` removes them.
    pub fn set_faults(&mut self, inbound: Option<Faults>, outbound: Option<Faults>) {
        self.inbound.set_faults(inbound);
        self.outbound.set_faults(outbound);
    }

    /// Time since the start.
    #[inline]
    pub fn now(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }

    /// Traffic on the wire.
    pub fn counters(&self) -> FrameCounters {
        let faults = self.inbound.faulted().hit + self.outbound.faulted().hit;
        FrameCounters { faults, ..self.counters }
    }

    /// Faults on incoming frames.
    pub fn inbound_faults(&self) -> FaultCounters {
        self.inbound.faulted()
    }

    /// Faults on outgoing frames.
    pub fn outbound_faults(&self) -> FaultCounters {
        self.outbound.faulted()
    }

    /// Handles a register read by the host.
    pub fn mmio_read(&mut self, offset: u64) -> u32 {
        let now = self.now();
        self.device.handle_mmio_read(now, offset)
    }

    /// Handles a register write by the host. Before a command runs, work posted earlier is processed, as far as one
    /// turn allows: on hardware that takes a microsecond while firmware takes tens of them, and programs rely on it.
    pub fn mmio_write(&mut self, offset: u64, bytes: &[u8]) {
        if offset == COMMAND_DOORBELL {
            self.transmit();
            self.serve_card();
        }
        let now = self.now();
        let Self { card, device, memory, .. } = self;
        match card {
            Some(card) if offset == COMMAND_DOORBELL => {
                card.changing(device, |device| device.handle_mmio_write(now, memory, offset, bytes));
            }
            _ => device.handle_mmio_write(now, memory, offset, bytes),
        }
    }

    /// Returns and resets the number of interrupts on `vector`.
    pub fn take_interrupts(&mut self, vector: u16) -> u64 {
        self.interrupts.remove(&vector).unwrap_or(0)
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, for what this runner does not handle: configuration space, resets.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Plugs the cable in or unplugs it. The device reports the change to its host.
    pub fn set_link_up(&mut self, up: bool) {
        let now = self.now();
        self.device.set_link_up(now, &mut self.memory, up);
        // The device reports the change with its next input.
        self.device.handle_timeout(now, &mut self.memory);
    }

    /// The memory of the host.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// The peer's end of the wire.
    pub fn io_mut(&mut self) -> &mut F {
        &mut self.io
    }

    /// The next raised vector that nobody has taken.
    pub fn poll_interrupt(&mut self) -> Option<u16> {
        self.interrupts.pop_first().map(|(vector, _)| vector)
    }

    /// When [`Self::step`] has work to do, unless a frame arrives earlier.
    pub fn poll_timeout(&self) -> Option<Time> {
        // An outgoing frame that is due waits for the peer, which cannot signal that it has room.
        let outbound = self.outbound.next_due().map(|due| due.max(self.now() + BLOCKED_REST));
        // So does what another function of the card has no room for.
        let card = self.device.has_card_output().then(|| self.now() + BLOCKED_REST);
        let due = [self.device.poll_timeout(), self.inbound.next_due(), outbound, card];
        due.into_iter().flatten().min()
    }

    /// Starts a turn. Every [`Self::step`] is one; a caller that passes on the host's requests starts another one for
    /// them.
    pub fn begin_turn(&mut self) {
        self.begun = self.device.work_done();
    }

    /// Whether the device has used up its turn: others go first before its next one.
    pub fn is_spent(&self) -> bool {
        self.device.work_done() - self.begun >= TURN
    }

    /// Does what is due without waiting. Returns whether there was anything.
    pub fn step(&mut self) -> io::Result<bool> {
        self.begin_turn();
        self.tell_far_end();
        let mut busy = self.serve_card();
        busy |= self.receive()?;
        busy |= self.deliver();
        busy |= self.expire();
        busy |= self.transmit();
        busy |= self.send()?;
        self.record();
        while let Some(vector) = self.device.poll_interrupt() {
            *self.interrupts.entry(vector).or_default() += 1;
            if let Some(capture) = &self.capture {
                let (now, event) = (self.now(), DeviceEvent::Interrupt { vector });
                capture.record(now, now, &RecordText::Device(event));
            }
        }
        Ok(busy)
    }

    /// Tells the far end of the cable that the link went down or came up. After a reset it came up.
    fn tell_far_end(&mut self) {
        let link = self.device.link();
        if link == self.told {
            return;
        }
        if self.told.is_up && (!link.is_up || link.drops != self.told.drops) {
            self.io.set_link_up(false);
        }
        if link.is_up {
            self.io.set_link_up(true);
        }
        self.told = link;
    }

    fn serve_card(&mut self) -> bool {
        let now = self.now();
        let Self { card, device, memory, .. } = self;
        card.as_mut().is_some_and(|card| card.serve(&mut DmaSide { device, memory, now }))
    }

    /// Writes the device's new records.
    fn record(&mut self) {
        let now = self.now();
        if let Some(capture) = &self.capture {
            capture.records_of(now, &mut self.device);
        }
    }

    /// Waits until something may be due: a frame, a timer of the device, or `deadline`.
    pub fn rest(&mut self, deadline: Time) -> io::Result<()> {
        let longest = if self.outbound.is_empty() { LONGEST_REST } else { BLOCKED_REST };
        let now = self.now();
        let due = [self.device.poll_timeout(), self.inbound.next_due(), self.outbound.next_due()];
        let wake = due.into_iter().flatten().fold(deadline.min(now + longest), Time::min);
        if wake > now {
            self.io.wait(std::time::Duration::from_nanos((wake - now).as_nanos()))?;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<bool> {
        if self.cut_off {
            // Earlier frames have not been taken yet, so leave the rest outside.
            return Ok(true);
        }
        for count in 0..RECEIVE_BATCH {
            if !self.io.receive(&mut self.frame)? {
                return Ok(count > 0);
            }
            self.counters.received += 1;
            let now = self.now();
            let fate = self.inbound.push(now, &mut self.frame);
            if let Some(capture) = &self.capture {
                capture.frame(Direction::Inbound, &self.frame, fate);
            }
        }
        Ok(true)
    }

    fn deliver(&mut self) -> bool {
        let mut busy = false;
        let now = self.now();
        while !self.is_spent() && self.inbound.pop(now, &mut self.frame) {
            self.device.handle_frame(now, &mut self.memory, &self.frame);
            busy = true;
        }
        self.cut_off = self.is_spent() && self.inbound.front(now).is_some();
        busy
    }

    fn expire(&mut self) -> bool {
        let now = self.now();
        let due = self.device.poll_timeout().is_some_and(|due| due <= now);
        if due {
            self.device.handle_timeout(now, &mut self.memory);
        }
        due
    }

    fn transmit(&mut self) -> bool {
        let mut busy = false;
        while self.outbound.len() < SEND_LIMIT && self.device.has_transmit() {
            if self.is_spent() {
                return true;
            }
            let now = self.now();
            if self.device.poll_transmit(now, &mut self.memory, &mut self.outgoing).is_none() {
                // The rest of the device's work waits for its next turn: clients and the wire come first.
                return busy || self.device.has_yielded();
            }
            // Records of what led to a frame precede it.
            self.record();
            let fate = self.outbound.push(now, &mut self.outgoing);
            if let Some(capture) = &self.capture {
                capture.sent(&self.outgoing, fate, self.device.take_frame_origin());
            }
            busy = true;
        }
        busy
    }

    fn send(&mut self) -> io::Result<bool> {
        let mut busy = false;
        let now = self.now();
        while let Some(frame) = self.outbound.front(now) {
            if !self.io.send(frame)? {
                self.counters.blocked += 1;
                break;
            }
            self.outbound.remove_front();
            self.counters.sent += 1;
            busy = true;
        }
        Ok(busy)
    }
}

#[cfg(test)]
mod tests;
