//! Faults on one direction of a link: random ones from a seed, or scripted ones that name the frame and the action.
//!
//! Faults act between the egress queue and the other end. Script entries that never fired are reported, because a test
//! that injects nothing proves nothing.

use bareverbs_prm::time::{Duration, Time};
use core::fmt;
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

/// A probability in units of 2^-32.
///
/// ```
/// use bareverbs_sim::net::Chance;
///
/// assert_eq!(Chance::from_ratio(0.0), Chance::NEVER);
/// assert_eq!(Chance::from_ratio(7.0), Chance::ALWAYS, "there is no more than always");
/// assert_ne!(Chance::from_ratio(0.001), Chance::NEVER);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chance(u64);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(1 << 32);

    /// The probability `ratio`, clamped to 0…1. NaN means never.
    pub fn from_ratio(ratio: f64) -> Self {
        Self((ratio.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64)
    }

    fn hits(self, random: &mut ChaCha8Rng) -> bool {
        self.0 != 0 && u64::from(random.next_u32()) < self.0
    }
}

/// Random faults. Each is drawn independently for every frame.
///
/// ```
/// use bareverbs_prm::time::Duration;
/// use bareverbs_sim::net::{Chance, RandomFaults};
///
/// // One frame of a thousand is lost, one of a hundred overtaken; all come late by up to 2 µs.
/// let faults = RandomFaults {
///     reorder: Chance::from_ratio(0.01),
///     reorder_by: Duration::from_micros(20),
///     jitter: Duration::from_micros(2),
///     ..RandomFaults::loss(0.001)
/// };
/// assert_eq!(faults.corrupt, Chance::NEVER);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RandomFaults {
    /// The frame is lost.
    pub loss: Chance,
    /// The frame is delivered twice.
    pub duplicate: Chance,
    /// One bit of the frame is flipped.
    pub corrupt: Chance,
    /// The frame is delayed by up to `reorder_by`, so that later frames overtake it.
    pub reorder: Chance,
    /// Longest delay of a reordered frame.
    pub reorder_by: Duration,
    /// Largest delay that every frame is subject to.
    pub jitter: Duration,
}

impl RandomFaults {
    /// Nothing but loss.
    pub fn loss(ratio: f64) -> Self {
        Self { loss: Chance::from_ratio(ratio), ..Self::default() }
    }
}

/// Which frame triggers a scripted fault. Frames are counted per direction, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The n-th frame.
    Frame(u64),
    /// The n-th frame with this BTH opcode.
    Opcode {
        /// The full 8-bit opcode field of the base transport header.
        opcode: u8,
        /// Its number among frames with this opcode.
        nth: u64,
    },
    /// Every frame sent in `from <= time < until`, as if the cable were cut.
    During {
        /// Start.
        from: Time,
        /// End.
        until: Time,
    },
}

/// What a fault does to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Drop it.
    Drop,
    /// Deliver it twice.
    Duplicate,
    /// Flip one bit, counted from the first bit of the frame and taken modulo its length.
    FlipBit(u32),
    /// Delay its delivery.
    Delay(Duration),
    /// Hold it until this many later frames have been sent, or for [`HOLD_LIMIT`] at most.
    HoldBehind(u32),
}

/// Longest time to hold a frame for later ones that may never come.
pub const HOLD_LIMIT: Duration = Duration::from_micros(50);

/// A fault and its trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptedFault {
    /// The trigger.
    pub when: Trigger,
    /// The action.
    pub action: Action,
}

/// Identifies a scripted fault of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultId(pub u32);

/// A scripted fault that has not fired, and its direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfiredFault {
    /// The fault's ID.
    pub id: FaultId,
    /// Direction, as `sender>receiver`.
    pub direction: String,
    /// Trigger and action.
    pub fault: ScriptedFault,
    /// Frames that passed without triggering it.
    pub frames_seen: u64,
}

impl fmt::Display for UnfiredFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, direction, fault, frames_seen } = self;
        write!(f, "fault #{} on {direction} never fired: {:?} at {:?}", id.0, fault.action, fault.when)?;
        write!(f, " ({frames_seen} frames passed)")
    }
}

/// What happened to a frame on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Fate {
    /// It arrived.
    #[default]
    Delivered,
    /// A fault dropped it.
    Dropped,
    /// It arrived with a bit flipped.
    Corrupted,
    /// It arrived late.
    Delayed,
    /// It is a duplicate.
    Duplicate,
    /// The egress buffer was full.
    TailDropped,
    /// The link was down.
    LinkDown,
    /// Sender and receiver were partitioned.
    Partitioned,
}

impl Fate {
    /// Whether the frame reaches the other end.
    pub const fn arrives(self) -> bool {
        !matches!(self, Self::Dropped | Self::TailDropped | Self::LinkDown | Self::Partitioned)
    }

    /// Comment for a capture.
    pub const fn comment(self) -> Option<&'static str> {
        match self {
            Self::Delivered => None,
            Self::Dropped => Some("fault: dropped"),
            Self::Corrupted => Some("fault: bit flipped"),
            Self::Delayed => Some("fault: delayed"),
            Self::Duplicate => Some("fault: duplicate"),
            Self::TailDropped => Some("dropped: egress buffer full"),
            Self::LinkDown => Some("dropped: link down"),
            Self::Partitioned => Some("dropped: partition"),
        }
    }
}

/// Decision on one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// The frame's fate.
    pub fate: Fate,
    /// Whether to deliver a second copy.
    pub duplicate: bool,
    /// Extra delay.
    pub delay: Duration,
    /// Number of later frames to hold it behind.
    pub hold: u32,
}

impl Verdict {
    fn apply(&mut self, action: Action, frame: &mut [u8]) {
        match action {
            Action::Drop => self.fate = Fate::Dropped,
            Action::Duplicate => self.duplicate = true,
            Action::FlipBit(bit) => self.corrupt(bit, frame),
            Action::Delay(delay) => self.postpone(delay),
            Action::HoldBehind(frames) => self.hold = frames,
        }
    }

    fn corrupt(&mut self, bit: u32, frame: &mut [u8]) {
        let bits = frame.len() as u64 * 8;
        if bits == 0 {
            return;
        }
        let bit = u64::from(bit) % bits;
        frame[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
        if self.fate.arrives() {
            self.fate = Fate::Corrupted;
        }
    }

    fn postpone(&mut self, delay: Duration) {
        self.delay = self.delay + delay;
        if self.fate == Fate::Delivered {
            self.fate = Fate::Delayed;
        }
    }
}

/// The faults on one direction of a link.
///
/// ```
/// use bareverbs_prm::time::Time;
/// use bareverbs_sim::net::fault::Faults;
/// use bareverbs_sim::net::{Action, Fate, FaultId, ScriptedFault, Trigger};
/// use bareverbs_sim::run::Seed;
///
/// let mut faults = Faults::new(Seed(1).stream("faults"));
/// faults.arm(FaultId(0), ScriptedFault { when: Trigger::Frame(2), action: Action::Drop });
/// let fates = [1, 2, 3].map(|byte| faults.judge(Time::ZERO, &mut [byte; 60]).fate);
/// assert_eq!(fates, [Fate::Delivered, Fate::Dropped, Fate::Delivered]);
/// assert_eq!(faults.unfired().count(), 0);
/// ```
#[derive(Debug)]
pub struct Faults {
    random: RandomFaults,
    stream: ChaCha8Rng,
    script: Vec<Armed>,
    frames: u64,
    opcodes: [u64; 256],
    infiniband: bool,
}

#[derive(Debug)]
struct Armed {
    id: FaultId,
    fault: ScriptedFault,
    fired: u64,
}

impl Faults {
    /// No faults yet. `stream` is the source of randomness.
    pub fn new(stream: ChaCha8Rng) -> Self {
        Self {
            random: RandomFaults::default(),
            stream,
            script: Vec::new(),
            frames: 0,
            opcodes: [0; 256],
            infiniband: false,
        }
    }

    /// Makes this the faults of an InfiniBand link, whose packets carry the opcode at another offset.
    #[must_use]
    pub const fn of_infiniband(mut self) -> Self {
        self.infiniband = true;
        self
    }

    /// Sets the random faults.
    pub fn set_random(&mut self, random: RandomFaults) {
        self.random = random;
    }

    /// Adds a scripted fault. The first one starts the frame count.
    pub fn arm(&mut self, id: FaultId, fault: ScriptedFault) {
        self.script.push(Armed { id, fault, fired: 0 });
    }

    /// Scripted faults that have not fired, with the number of frames seen.
    pub fn unfired(&self) -> impl Iterator<Item = (FaultId, ScriptedFault, u64)> + '_ {
        self.script.iter().filter(|armed| armed.fired == 0).map(|armed| (armed.id, armed.fault, self.frames))
    }

    /// Decides on a frame that leaves at `now`. Flips bits of it if the decision says so.
    pub fn judge(&mut self, now: Time, frame: &mut [u8]) -> Verdict {
        let opcode = if self.infiniband { infiniband_opcode(frame) } else { bth_opcode(frame) };
        self.count(opcode);
        let mut verdict = Verdict::default();
        self.play_script(now, opcode, frame, &mut verdict);
        self.roll_dice(frame, &mut verdict);
        if verdict.hold > 0 && verdict.fate == Fate::Delivered {
            verdict.fate = Fate::Delayed;
        }
        verdict
    }

    fn count(&mut self, opcode: Option<u8>) {
        self.frames += 1;
        if let Some(opcode) = opcode {
            self.opcodes[usize::from(opcode)] += 1;
        }
    }

    fn play_script(&mut self, now: Time, opcode: Option<u8>, frame: &mut [u8], verdict: &mut Verdict) {
        let (frames, opcodes) = (self.frames, &self.opcodes);
        for armed in &mut self.script {
            let matches = match armed.fault.when {
                Trigger::Frame(number) => number == frames,
                Trigger::Opcode { opcode: wanted, nth } => {
                    opcode == Some(wanted) && opcodes[usize::from(wanted)] == nth
                }
                Trigger::During { from, until } => from <= now && now < until,
            };
            if matches {
                armed.fired += 1;
                verdict.apply(armed.fault.action, frame);
            }
        }
    }

    fn roll_dice(&mut self, frame: &mut [u8], verdict: &mut Verdict) {
        let RandomFaults { loss, duplicate, corrupt, reorder, reorder_by, jitter } = self.random;
        let stream = &mut self.stream;
        if loss.hits(stream) {
            verdict.apply(Action::Drop, frame);
        }
        if duplicate.hits(stream) {
            verdict.apply(Action::Duplicate, frame);
        }
        if corrupt.hits(stream) {
            verdict.apply(Action::FlipBit(stream.next_u32()), frame);
        }
        if reorder.hits(stream) {
            verdict.apply(Action::Delay(up_to(reorder_by, stream)), frame);
        }
        if jitter != Duration::ZERO {
            verdict.delay = verdict.delay + up_to(jitter, stream);
        }
    }
}

fn up_to(longest: Duration, stream: &mut ChaCha8Rng) -> Duration {
    let scaled = (u128::from(longest.as_picos()) * u128::from(stream.next_u32())) >> 32;
    Duration::from_picos(scaled as u64)
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_ROCE_V1: u16 = 0x8915;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ROUTE_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const ROCE_PORT: u16 = 4791;

/// BTH opcode of a RoCEv1 or RoCEv2 frame. RoCEv2 A17.3.
pub fn bth_opcode(frame: &[u8]) -> Option<u8> {
    bth(frame)?.first().copied()
}

/// Destination QPN of a RoCEv1 or RoCEv2 frame. IBTA v1.4 §9.2.6, RoCEv2 A17.3.
pub fn destination_qpn(frame: &[u8]) -> Option<u32> {
    let [_, high, middle, low] = *bth(frame)?.get(4..8)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}

/// The part of a RoCE frame that starts with its BTH.
fn bth(frame: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    let mut ethertype = be16(frame, at)?;
    while ethertype == ETHERTYPE_VLAN {
        at += 4;
        ethertype = be16(frame, at)?;
    }
    let ip = at + 2;
    let udp = match ethertype {
        ETHERTYPE_IPV4 => ip + usize::from(frame.get(ip)? & 0xf) * 4,
        ETHERTYPE_IPV6 => ip + 40,
        ETHERTYPE_ROCE_V1 => return frame.get(ip + ROUTE_HEADER..),
        _ => return None,
    };
    if be16(frame, udp + 2)? != ROCE_PORT {
        return None;
    }
    frame.get(udp + UDP_HEADER..)
}

/// BTH opcode of an InfiniBand packet. IBTA v1.4 §7.7.5.
fn infiniband_opcode(frame: &[u8]) -> Option<u8> {
    match frame.get(1)? & 3 {
        2 => frame.get(8).copied(),
        3 => frame.get(8 + 40).copied(),
        _ => None,
    }
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

#[cfg(test)]
mod tests;
