//! Faults on one direction of a link: by chance from a seed, or by a script that says which frame and what.
//!
//! Faults sit between the egress queue and the other end. A script entry that never fired is reported: a test that
//! injects nothing proves nothing.

use bareverbs_prm::time::{Duration, Time};
use core::fmt;
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

/// A probability in parts of 2^32.
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

    /// The chance `ratio`, between 0 and 1; what lies outside is clamped, what is no number is never.
    pub fn from_ratio(ratio: f64) -> Self {
        Self((ratio.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64)
    }

    fn hits(self, random: &mut ChaCha8Rng) -> bool {
        self.0 != 0 && u64::from(random.next_u32()) < self.0
    }
}

/// Faults by chance; each frame is asked for each of them.
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
    /// The frame comes twice.
    pub duplicate: Chance,
    /// One bit of the frame is flipped.
    pub corrupt: Chance,
    /// The frame comes late by up to `reorder_by`, so that later ones overtake it.
    pub reorder: Chance,
    /// Longest delay of a reordered frame.
    pub reorder_by: Duration,
    /// Every frame comes late by up to this.
    pub jitter: Duration,
}

impl RandomFaults {
    /// Nothing but loss.
    pub fn loss(ratio: f64) -> Self {
        Self { loss: Chance::from_ratio(ratio), ..Self::default() }
    }
}

/// Which frame a scripted fault waits for. Frames are counted per direction, the first is number 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The frame of this number.
    Frame(u64),
    /// The frame of this number among those with this BTH op-code.
    Opcode {
        /// All eight bits of the op-code field of the base transport header.
        opcode: u8,
        /// Number among them.
        nth: u64,
    },
    /// Every frame sent in `from <= time < until`: a cut cable.
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
    /// Lose it.
    Drop,
    /// Deliver it twice.
    Duplicate,
    /// Flip the bit of this number (modulo the length), counted from the first bit of the frame.
    FlipBit(u32),
    /// Deliver it later.
    Delay(Duration),
    /// Hold it until this many later frames have been sent, or until [`HOLD_LIMIT`] has passed.
    HoldBehind(u32),
}

/// Longest time a frame is held for later ones that may never come.
pub const HOLD_LIMIT: Duration = Duration::from_micros(50);

/// A fault and the frame it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptedFault {
    /// Which frame.
    pub when: Trigger,
    /// What.
    pub action: Action,
}

/// Names a scripted fault of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultId(pub u32);

/// A scripted fault that has not fired, with the direction it is armed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfiredFault {
    /// Its name.
    pub id: FaultId,
    /// `sender>receiver`.
    pub direction: String,
    /// What it waits for and would do.
    pub fault: ScriptedFault,
    /// Frames that passed without matching.
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
    /// A fault lost it.
    Dropped,
    /// It arrived with a flipped bit.
    Corrupted,
    /// It arrived late.
    Delayed,
    /// It is the second copy.
    Duplicate,
    /// A full egress buffer lost it.
    TailDropped,
    /// The link was down.
    LinkDown,
    /// Sender and receiver were parted.
    Partitioned,
}

impl Fate {
    /// Whether the frame reaches the other end.
    pub const fn arrives(self) -> bool {
        !matches!(self, Self::Dropped | Self::TailDropped | Self::LinkDown | Self::Partitioned)
    }

    /// What a capture says of it.
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

/// What the faults of a direction decided on one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// What becomes of the frame.
    pub fate: Fate,
    /// Whether a second copy follows.
    pub duplicate: bool,
    /// How much later it arrives.
    pub delay: Duration,
    /// How many later frames go first.
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

/// The faults of one direction.
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
    /// No faults yet; chances will be drawn from `stream`.
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

    /// The same on a link of InfiniBand, whose packets have their op-codes elsewhere.
    #[must_use]
    pub const fn of_infiniband(mut self) -> Self {
        self.infiniband = true;
        self
    }

    /// Sets the faults by chance.
    pub fn set_random(&mut self, random: RandomFaults) {
        self.random = random;
    }

    /// Adds a scripted fault. Frames are counted from now on if it is the first one.
    pub fn arm(&mut self, id: FaultId, fault: ScriptedFault) {
        self.script.push(Armed { id, fault, fired: 0 });
    }

    /// Scripted faults that have not fired, and how many frames have been seen.
    pub fn unfired(&self) -> impl Iterator<Item = (FaultId, ScriptedFault, u64)> + '_ {
        self.script.iter().filter(|armed| armed.fired == 0).map(|armed| (armed.id, armed.fault, self.frames))
    }

    /// Decides on a frame that leaves at `now`, and flips its bits if that is decided.
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

/// The BTH op-code of a RoCE frame, of either version. RoCEv2 A17.3.
pub fn bth_opcode(frame: &[u8]) -> Option<u8> {
    bth(frame)?.first().copied()
}

/// The destination queue pair of a RoCE frame, of either version. IBTA v1.4 §9.2.6, RoCEv2 A17.3.
pub fn destination_qpn(frame: &[u8]) -> Option<u32> {
    let [_, high, middle, low] = *bth(frame)?.get(4..8)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}

/// A RoCE frame from its BTH on.
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

/// The BTH op-code of a packet of InfiniBand. IBTA v1.4 §7.7.5.
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
