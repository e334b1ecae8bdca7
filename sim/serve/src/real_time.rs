//! One device in real time: a clock, Ethernet frames from and to somebody outside, and the memory of its host.
//!
//! **What this is.** The other runner: where [`World`](bareverbs_sim::run::World) jumps from event to event, this one asks the clock of
//! the machine and a [`FrameIo`]. The device is the same. Faults and capture sit between device and frames, as on a link
//! of the world, but what arrives when is up to the machine, so there is no event digest.
//!
//! **What it may not do.** It never blocks but in [`RealTime::rest`], and it never loses a frame in silence: one that the
//! other side cannot take yet waits, and while frames wait the device is asked for no more.

mod descriptor;
mod fault_script;
mod lane;
mod outside;
mod recorder;
mod tally;
mod tap;
mod udp;
mod unix_datagram;

pub use fault_script::FaultScript;
pub use lane::{FaultCounters, Lane};
pub use outside::{Outside, OutsideIo};
pub use recorder::Recorder;
pub(crate) use tally::Tally;
pub use tap::TapIo;
pub use udp::UdpIo;
pub use unix_datagram::UnixDatagramIo;

use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::capture::{CaptureError, Direction};
use bareverbs_sim::net::fault::Faults;
use bareverbs_sim::nic::{DeviceEvent, HostMemory};
use bareverbs_sim::run::{Device, RecordText};
use bareverbs_sim::wire::FrameBuffer;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

/// Ethernet frames in real time, without their frame check sequence. Nothing here blocks but [`FrameIo::wait`].
pub trait FrameIo {
    /// Sends one frame; false if the other side cannot take it now.
    fn send(&mut self, frame: &[u8]) -> io::Result<bool>;
    /// Receives one frame into `frame`; false if there is none.
    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool>;
    /// Waits until a frame has come, for `limit` at most.
    fn wait(&mut self, limit: std::time::Duration) -> io::Result<()>;
}

/// Frames that are taken from outside before the device is asked for its own.
const RECEIVE_BATCH: usize = 64;
/// Frames that may wait to be sent before the device is asked for no more.
const SEND_LIMIT: usize = 64;
/// [Effort](Device::effort) of a device after which a turn ends: pieces of memory of some 10 to 100 ns each.
const TURN: u64 = 1 << 16;
/// Register that starts commands: `command_doorbell_vector` of the initialization segment.
const COMMAND_DOORBELL: u64 = 0x18;
/// Longest rest, whatever the caller says: the other side cannot tell that it can take frames again.
const LONGEST_REST: Duration = Duration::from_millis(1);
/// Rest while frames wait for the other side.
const BLOCKED_REST: Duration = Duration::from_micros(50);

/// What went over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameCounters {
    /// Frames that came from outside.
    pub received: u64,
    /// Frames that the device sent.
    pub sent: u64,
    /// Times that the other side could not take a frame at once.
    pub blocked: u64,
    /// Frames that a fault took away, doubled, changed or delayed, in both directions.
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
    interrupts: BTreeMap<u16, u64>,
    counters: FrameCounters,
    /// What the device had done when the turn began.
    begun: u64,
    /// Frames that are due wait for the device's next turn.
    cut_off: bool,
}

impl<M: HostMemory, D: Device, F: FrameIo> RealTime<M, D, F> {
    /// Puts a device on the wire. Time begins now.
    pub fn new(mut device: D, mut memory: M, io: F) -> Self {
        device.set_link_up(Time::ZERO, &mut memory, true);
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
            interrupts: BTreeMap::new(),
            counters: FrameCounters::default(),
            begun: 0,
            cut_off: false,
        }
    }

    /// Writes every frame to `capture`, as the device sees it, with what a fault did to it, and, of a frame that it sends, of which queue
    /// pair and work request it is; and everything that the device does if `capture` has an interface for that.
    pub fn set_capture(&mut self, capture: Recorder) {
        self.device.observe(true);
        self.capture = Some(capture);
    }

    /// Ends the capture, for all that write it; `None` if there was none.
    pub fn finish_capture(&mut self) -> Option<Result<u64, CaptureError>> {
        let capture = self.capture.take()?;
        self.device.observe(false);
        capture.finish()
    }

    /// Puts faults on what the device receives and sends; `None` ends them.
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

    /// What went over the wire.
    pub fn counters(&self) -> FrameCounters {
        let faults = self.inbound.faulted().hit + self.outbound.faulted().hit;
        FrameCounters { faults, ..self.counters }
    }

    /// What faults did to frames for the device.
    pub fn inbound_faults(&self) -> FaultCounters {
        self.inbound.faulted()
    }

    /// What faults did to frames of the device.
    pub fn outbound_faults(&self) -> FaultCounters {
        self.outbound.faulted()
    }

    /// The host reads a register.
    pub fn mmio_read(&mut self, offset: u64) -> u32 {
        let now = self.now();
        self.device.handle_mmio_read(now, offset)
    }

    /// The host writes registers. A command finds done what the queues were asked before it, as far as they get in one turn: on a card they
    /// take a microsecond where firmware takes tens, and programs rely on it.
    pub fn mmio_write(&mut self, offset: u64, bytes: &[u8]) {
        if offset == COMMAND_DOORBELL {
            self.transmit();
        }
        let now = self.now();
        self.device.handle_mmio_write(now, &mut self.memory, offset, bytes);
    }

    /// Takes the interrupts of `vector` that the device raised since the last time.
    pub fn take_interrupts(&mut self, vector: u16) -> u64 {
        self.interrupts.remove(&vector).unwrap_or(0)
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, for what this runner does not know: configuration space, resets.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The memory of the host.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// The other side of the wire.
    pub fn io_mut(&mut self) -> &mut F {
        &mut self.io
    }

    /// The next vector that the device raised and nobody took.
    pub fn poll_interrupt(&mut self) -> Option<u16> {
        self.interrupts.pop_first().map(|(vector, _)| vector)
    }

    /// When [`Self::step`] has something to do, if nothing comes from outside before.
    pub fn poll_timeout(&self) -> Option<Time> {
        // A frame that is due and still here waits for the other side, which tells nobody when it can take it.
        let outbound = self.outbound.next_due().map(|due| due.max(self.now() + BLOCKED_REST));
        let due = [self.device.poll_timeout(), self.inbound.next_due(), outbound];
        due.into_iter().flatten().min()
    }

    /// A turn begins. Every [`Self::step`] is one; whoever hands over what the host asks for begins another for that.
    pub fn begin_turn(&mut self) {
        self.begun = self.device.effort();
    }

    /// Whether the device has done enough in this turn: others are to have theirs before the next.
    pub fn is_spent(&self) -> bool {
        self.device.effort() - self.begun >= TURN
    }

    /// Does what is due and does not wait; tells whether there was anything.
    pub fn step(&mut self) -> io::Result<bool> {
        self.begin_turn();
        let mut busy = self.receive()?;
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

    /// Writes what the device did since the last time.
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
            // What came before is not taken yet: the rest waits outside.
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
                // What the device has left waits for its next turn: clients and the wire are seen to first.
                return busy || self.device.has_yielded();
            }
            // What led to a frame stands before it.
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
