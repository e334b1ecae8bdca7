//! Flow control of an Ethernet port: a receive buffer and pause frames (IEEE 802.3 annex 31B).
//!
//! The model processes a frame on arrival. What it meters is the room that the frame occupies until the host has taken
//! it at the rate of its PCIe slot. A frame without room is dropped; with pause frames enabled, a half-full buffer
//! first stops the peer.

use super::config::{NicConfig, PortBuffer};
use super::ethernet::traffic::{PRIORITIES, priority_of};
use crate::wire::MIN_FRAME;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};

/// Where MAC control frames go; no bridge forwards them (IEEE 802.1D table 7-10).
const CONTROL_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 1];
/// EtherType of MAC control.
const CONTROL_TYPE: [u8; 2] = [0x88, 0x08];
/// Operation PAUSE.
const PAUSE: [u8; 2] = [0, 1];
/// Bit times of a quantum.
const QUANTUM_BITS: u64 = 512;
const PICOS_PER_SECOND: u128 = 1_000_000_000_000;

/// Flow control of a port, and its counters since the device was created.
#[derive(Debug, Clone)]
pub(super) struct FlowControl {
    /// Pause frames are sent (`pptx`).
    pub(super) sends: bool,
    /// Pause frames are obeyed (`pprx`).
    pub(super) obeys: bool,
    pub(super) counted: FlowTally,
    buffer: Option<MeteredBuffer>,
    /// Picoseconds per pause quantum at the link speed.
    quantum: u64,
    /// Quanta of the pause frame that is due.
    due_quanta: Option<u16>,
    /// End of the pause that the last frame requested from the peer.
    peer_paused_until: Time,
    /// This port is paused until then.
    paused_until: Option<Time>,
    /// Nothing is paused or pending. Checked for every frame.
    is_quiet: bool,
}

/// Counters of flow control.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlowTally {
    pub(super) received: u64,
    pub(super) sent: u64,
    /// MAC control frames with an operation other than PAUSE.
    pub(super) unsupported: u64,
    /// How long received pause frames stopped this port.
    pub(super) received_time: Duration,
    /// How long sent pause frames stopped the peer.
    pub(super) sent_time: Duration,
    /// Changes from sending to stopped.
    pub(super) transitions: u64,
    /// Frames that found no room, by priority.
    pub(super) discards: [u64; PRIORITIES],
}

/// A buffer and its fill level at the last frame.
#[derive(Debug, Clone)]
struct MeteredBuffer {
    size: u64,
    bits_per_second: u64,
    level: u64,
    at: Time,
}

impl FlowControl {
    pub(super) fn new(config: &NicConfig) -> Self {
        let bits = u128::from(config.link_speed().bits_per_second());
        let quantum = u128::from(QUANTUM_BITS) * PICOS_PER_SECOND / bits;
        Self {
            sends: config.starts_with_pause,
            obeys: config.starts_with_pause,
            counted: FlowTally::default(),
            buffer: config.receive_buffer.map(MeteredBuffer::new),
            quantum: quantum as u64,
            due_quanta: None,
            peer_paused_until: Time::ZERO,
            paused_until: None,
            is_quiet: true,
        }
    }

    /// Returns to the state after power-on but keeps the counters.
    pub(super) fn reset(&mut self, config: &NicConfig) {
        *self = Self { counted: self.counted, ..Self::new(config) };
    }

    /// Whether the port has a limited receive buffer; one without it accepts everything at once.
    #[inline]
    pub(super) const fn is_metered(&self) -> bool {
        self.buffer.is_some()
    }

    /// Whether nothing is stopped and no pause frame is due, which is the usual state.
    #[inline]
    pub(super) const fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Recomputes [`Self::is_quiet`] after a change.
    const fn update_quiet(&mut self) {
        self.is_quiet = self.paused_until.is_none() && self.due_quanta.is_none();
    }

    #[cfg(test)]
    pub(super) const fn is_stopped(&self) -> bool {
        self.paused_until.is_some()
    }

    pub(super) const fn has_due_frame(&self) -> bool {
        self.due_quanta.is_some()
    }

    /// When the port may send again.
    pub(super) const fn poll_timeout(&self) -> Option<Time> {
        self.paused_until
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.paused_until = self.paused_until.filter(|until| *until > now);
        self.update_quiet();
    }

    /// Takes a frame for this port and returns whether it fits. If the buffer is then half full, a pause
    /// frame becomes due.
    pub(super) fn takes(&mut self, now: Time, frame: &[u8]) -> bool {
        let Some(buffer) = &mut self.buffer else { return true };
        let fits = buffer.take(now, frame.len() as u64);
        let (wait, step) = (buffer.wait(), buffer.time_of(buffer.size / 8));
        if !fits {
            self.counted.discards[priority_of(frame)] += 1;
        }
        // Frames that were already on the way lengthen the wait. Only a clear increase is worth another pause
        // frame.
        if self.sends
            && let Some(wait) = wait
            && (now >= self.peer_paused_until || now + wait > self.peer_paused_until + step)
        {
            self.request_pause(now, wait);
        }
        fits
    }

    /// Drops what was to be sent, including a pause frame.
    pub(super) const fn forget_frame(&mut self) {
        self.due_quanta = None;
        self.update_quiet();
    }

    fn request_pause(&mut self, now: Time, wait: Duration) {
        let quanta = wait.as_picos().div_ceil(self.quantum).min(u16::MAX.into());
        let wait = Duration::from_picos(quanta * self.quantum);
        let left = self.peer_paused_until.since(now);
        self.due_quanta = Some(quanta as u16);
        self.peer_paused_until = now + wait;
        self.update_quiet();
        self.counted.sent_time = longer(self.counted.sent_time, wait, left);
    }

    /// The pause frame that is due, if any.
    pub(super) fn poll_frame(&mut self, source: MacAddress) -> Option<[u8; MIN_FRAME]> {
        let quanta = self.due_quanta.take()?;
        self.update_quiet();
        self.counted.sent += 1;
        let mut frame = [0; MIN_FRAME];
        frame[..6].copy_from_slice(&CONTROL_ADDRESS);
        frame[6..12].copy_from_slice(&source.0);
        frame[12..14].copy_from_slice(&CONTROL_TYPE);
        frame[14..16].copy_from_slice(&PAUSE);
        frame[16..18].copy_from_slice(&quanta.to_be_bytes());
        Some(frame)
    }

    /// Takes a MAC control frame, which ends at the port. Returns `false` for any other frame.
    pub(super) fn handle_control(&mut self, now: Time, frame: &[u8]) -> bool {
        let Some((header, rest)) = frame.split_first_chunk::<14>() else { return false };
        if header[..6] != CONTROL_ADDRESS || header[12..] != CONTROL_TYPE {
            return false;
        }
        match rest.first_chunk::<4>() {
            Some(&[high, low, first, second]) if [high, low] == PAUSE => {
                self.counted.received += 1;
                if self.obeys {
                    self.stop(now, u16::from_be_bytes([first, second]));
                }
            }
            _ => self.counted.unsupported += 1,
        }
        true
    }

    /// Stops the port. The latest pause frame replaces the earlier ones, and 0 quanta end the pause.
    fn stop(&mut self, now: Time, quanta: u16) {
        let wait = Duration::from_picos(u64::from(quanta) * self.quantum);
        let left = self.paused_until.map_or(Duration::from_picos(0), |until| until.since(now));
        self.counted.received_time = longer(self.counted.received_time, wait, left);
        self.counted.transitions += u64::from(self.paused_until.is_none() && quanta > 0);
        self.paused_until = (quanta > 0).then_some(now + wait);
        self.update_quiet();
    }
}

/// Adds a pause to the total. It replaces the rest of the previous pause.
fn longer(total: Duration, wait: Duration, left: Duration) -> Duration {
    Duration::from_picos((total.as_picos() + wait.as_picos()).saturating_sub(left.as_picos()))
}

impl MeteredBuffer {
    const fn new(config: PortBuffer) -> Self {
        let bits = if config.bits_per_second == 0 { 1 } else { config.bits_per_second };
        Self { size: config.bytes as u64, bits_per_second: bits, level: 0, at: Time::ZERO }
    }

    /// Drains what the host took since the last frame, then adds `length` bytes if they fit.
    fn take(&mut self, now: Time, length: u64) -> bool {
        let taken = u128::from(now.since(self.at).as_picos()) * u128::from(self.bits_per_second)
            / (8 * PICOS_PER_SECOND);
        self.level = self.level.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
        self.at = now;
        // An empty buffer accepts even a frame longer than itself, because the host drains it while it
        // arrives.
        let fits = self.level == 0 || self.level + length <= self.size;
        self.level += if fits { length } else { 0 };
        fits
    }

    /// If the buffer is half full, how long the host takes to drain it to a quarter.
    fn wait(&self) -> Option<Duration> {
        if self.level < self.size / 2 {
            return None;
        }
        Some(self.time_of(self.level - self.size / 4))
    }

    /// How long the host takes to drain this many bytes.
    fn time_of(&self, bytes: u64) -> Duration {
        let picos = u128::from(bytes) * 8 * PICOS_PER_SECOND / u128::from(self.bits_per_second);
        Duration::from_picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::PortSpeed;

    /// A host that drains one byte per nanosecond, with a buffer of 1,000 bytes.
    fn slow_host() -> FlowControl {
        let receive_buffer = Some(PortBuffer { bytes: 1000, bits_per_second: 8_000_000_000 });
        FlowControl::new(&NicConfig { receive_buffer, starts_with_pause: true, ..NicConfig::default() })
    }

    const fn at(nanos: u64) -> Time {
        Time::from_picos(nanos * 1000)
    }

    /// A frame of priority 3.
    fn frame(length: usize) -> Vec<u8> {
        let mut frame = vec![0; length];
        frame[12..15].copy_from_slice(&[0x81, 0, 3 << 5]);
        frame
    }

    #[test]
    fn a_receive_buffer_drains_at_the_rate_of_the_host() {
        let mut flow = slow_host();
        flow.sends = false;
        assert!(flow.takes(at(0), &frame(600)));
        assert!(!flow.takes(at(100), &frame(600)), "500 bytes are left in it");
        assert!(flow.takes(at(200), &frame(600)));
        assert_eq!(flow.counted.discards, [0, 0, 0, 1, 0, 0, 0, 0]);
        assert!(flow.is_quiet());
        assert!(slow_host().takes(at(0), &frame(9000)), "longer than the buffer, which is empty");
    }

    #[test]
    fn a_buffer_that_is_half_full_stops_the_other_end_until_a_quarter_is_left() {
        let mut flow = slow_host();
        assert!(flow.takes(at(0), &frame(499)) && flow.is_quiet());
        assert!(flow.takes(at(0), &frame(101)) && flow.has_due_frame());
        let sent = flow.poll_frame(MacAddress([2, 0, 0, 0, 0, 1])).expect("a frame");
        assert_eq!(sent[..14], [0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08]);
        // 350 ns, in quanta of 5.12 ns at 100 Gbit/s.
        assert_eq!(sent[14..18], [0, 1, 0, 69]);
        assert!(flow.takes(at(10), &frame(60)) && flow.is_quiet(), "the peer has already been told");
        assert_eq!((flow.counted.sent, flow.counted.sent_time.as_nanos()), (1, 353));
        assert!(
            flow.takes(at(10), &frame(300)) && flow.has_due_frame(),
            "many frames came anyway, so the pause is extended"
        );
        let mut other = FlowControl::new(&NicConfig { starts_with_pause: true, ..NicConfig::default() });
        assert!(other.handle_control(at(1000), &sent) && other.is_stopped());
        assert_eq!(other.poll_timeout(), Some(Time::from_picos(1_353_280)));
        other.handle_timeout(at(1300));
        assert!(other.is_stopped());
        other.handle_timeout(at(1354));
        assert!(other.is_quiet());
        let counted = other.counted;
        assert_eq!((counted.received, counted.transitions, counted.received_time.as_nanos()), (1, 1, 353));
    }

    #[test]
    fn zero_quanta_end_a_pause_and_a_port_that_ignores_pauses_only_counts_them() {
        let mut pause = slow_host();
        pause.due_quanta = Some(100);
        let stop = pause.poll_frame(MacAddress::default()).expect("a frame");
        let mut go = stop;
        go[16..18].fill(0);
        assert!(pause.handle_control(at(0), &stop) && pause.is_stopped());
        assert!(pause.handle_control(at(12), &go) && pause.is_quiet());
        assert_eq!((pause.counted.received, pause.counted.received_time.as_nanos()), (2, 12));
        pause.obeys = false;
        assert!(pause.handle_control(at(20), &stop) && pause.is_quiet());
        let mut unknown = stop;
        unknown[15] = 2;
        assert!(pause.handle_control(at(20), &unknown));
        assert_eq!((pause.counted.received, pause.counted.unsupported), (3, 1));
        assert!(!pause.handle_control(at(20), &frame(60)) && !pause.handle_control(at(20), &[1, 0x80]));
    }

    #[test]
    fn a_quantum_is_longer_on_a_slower_link() {
        let cable = Some(PortSpeed::Gbps10);
        let slow = FlowControl::new(&NicConfig { cable, ..NicConfig::default() });
        assert_eq!((slow.quantum, slow_host().quantum), (51_200, 5_120));
    }
}
