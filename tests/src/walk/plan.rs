//! What a random walk does next, drawn from a seed.

use bareverbs_prm::numbering::PathMtu;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::fault::{Chance, RandomFaults};
use bareverbs_sim::run::Seed;
use core::fmt;
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

/// Bytes that each outstanding request has for itself on either side, guard bytes around it included.
pub const SLOT: usize = 16 << 10;
/// Bytes before the data of a slot. They and the bytes after the data must not change.
pub const GUARD: usize = 64;
/// Requests of one side that may be outstanding.
pub const SLOTS: usize = 48;
/// Inline data that a walk's queue pairs ask for, in bytes.
pub const MAX_INLINE: usize = 96;
/// Most pieces of a request.
pub const MAX_PIECES: usize = 4;

/// A source of choices.
#[derive(Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The random choices of a seed; `name` separates independent streams.
    pub fn new(seed: u64, name: &str) -> Self {
        Self(Seed(seed).stream(name))
    }

    /// A number below `bound`, which is at least one.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u64::from(self.0.next_u32()) * bound as u64) >> 32) as usize
    }

    /// True with a probability of `percent`.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Any 32 bits.
    pub fn word(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A separate stream of choices that does not depend on how many are drawn from this one later.
    pub fn split(&mut self) -> Self {
        let seed = u64::from(self.word()) << 32 | u64::from(self.word());
        Self::new(seed, "split")
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// Everything that a walk depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// The seed of everything else.
    pub seed: u64,
    /// Frames lost, in percent; with loss come duplicates and reordering.
    pub loss: u32,
    /// IPv6 GIDs instead of IPv4.
    pub ipv6: bool,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Requests that both sides post together.
    pub requests: usize,
}

impl Conditions {
    /// The conditions of a seed.
    pub fn of(seed: u64, loss: u32, requests: usize) -> Self {
        const MTUS: [PathMtu; 5] =
            [PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024, PathMtu::Mtu2048, PathMtu::Mtu4096];
        let mut dice = Dice::new(seed, "conditions");
        Self { seed, loss, ipv6: dice.percent(50), mtu: MTUS[dice.below(MTUS.len())], requests }
    }

    /// Conditions from the environment variable `BAREVERBS_WALK`, as `seed:loss:requests`.
    ///
    /// # Panics
    /// If it has another form.
    pub fn asked() -> Option<Self> {
        let text = std::env::var("BAREVERBS_WALK").ok()?;
        let mut numbers = text.split(':').map(|number| number.parse().expect("seed:loss:requests"));
        let mut number = || numbers.next().expect("seed:loss:requests");
        Some(Self::of(number(), number() as u32, number() as usize))
    }

    /// How many seeds to walk: `BAREVERBS_SEEDS`, or `usual`.
    pub fn seeds(usual: u64) -> u64 {
        std::env::var("BAREVERBS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    }

    /// The command that repeats the walk under these conditions, for the test file of this name.
    pub fn replay(&self, test: &str) -> String {
        let Self { seed, loss, requests, .. } = self;
        format!(
            "{self}; replay with BAREVERBS_WALK={seed}:{loss}:{requests} cargo test -p bareverbs-tests --test integration {test}"
        )
    }

    /// Whether the cable duplicates and reorders packets: always with loss, and for half of the seeds
    /// without.
    pub fn is_disturbed(&self) -> bool {
        self.loss > 0 || self.seed % 2 == 1
    }

    /// The faults of the cable. Loss brings flipped bits with it.
    pub fn faults(&self) -> RandomFaults {
        let disturbed = self.is_disturbed();
        let chance =
            |percent: f64| if disturbed { Chance::from_ratio(percent / 100.0) } else { Chance::NEVER };
        RandomFaults {
            loss: Chance::from_ratio(f64::from(self.loss) / 100.0),
            duplicate: chance(1.0),
            reorder: chance(1.0),
            reorder_by: Duration::from_micros(5),
            corrupt: if self.loss > 0 { chance(0.2) } else { Chance::NEVER },
            jitter: Duration::ZERO,
        }
    }

    /// Bytes of a packet.
    pub fn mtu_bytes(&self) -> usize {
        128 << self.mtu.raw()
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, loss, ipv6, requests, .. } = self;
        let ip = if *ipv6 { "IPv6" } else { "IPv4" };
        write!(f, "seed {seed}: {requests} requests, {loss} % loss, {ip}, MTU {}", self.mtu_bytes())
    }
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// SEND, with immediate data or without.
    Send(Option<u32>),
    /// RDMA WRITE, with immediate data or without.
    Write(Option<u32>),
    /// RDMA READ.
    Read,
}

impl Kind {
    /// Whether the peer needs a posted receive for it.
    pub fn consumes_receive(self) -> bool {
        matches!(self, Self::Send(_) | Self::Write(Some(_)))
    }
    /// Immediate data, if there is some.
    pub fn immediate(self) -> Option<u32> {
        match self {
            Self::Send(data) | Self::Write(data) => data,
            Self::Read => None,
        }
    }
}

/// One work request to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What it does.
    pub kind: Kind,
    /// Lengths of its pieces; empty for a message without bytes.
    pub pieces: Vec<usize>,
    /// Whether the WQE carries its data inline.
    pub inline: bool,
    /// Whether success produces a completion.
    pub signalled: bool,
}

impl Item {
    /// Draws a request.
    pub fn draw(dice: &mut Dice, mtu: usize) -> Self {
        let kind = draw_kind(dice);
        let length = draw_length(dice, mtu);
        let inline = kind != Kind::Read && length <= MAX_INLINE && dice.percent(50);
        let pieces = draw_pieces(dice, length);
        Self { kind, pieces, inline, signalled: dice.percent(60) }
    }

    /// Bytes of the message.
    pub fn length(&self) -> usize {
        self.pieces.iter().sum()
    }
}

fn draw_kind(dice: &mut Dice) -> Kind {
    match dice.below(6) {
        0 => Kind::Send(None),
        1 => Kind::Send(Some(dice.word())),
        2 | 3 => Kind::Write(None),
        4 => Kind::Write(Some(dice.word())),
        _ => Kind::Read,
    }
}

/// Short, around one packet, or several packets; now and then zero.
pub fn draw_length(dice: &mut Dice, mtu: usize) -> usize {
    let longest = SLOT - 2 * GUARD;
    let length = match dice.below(8) {
        0 => dice.below(2),
        1..=3 => 1 + dice.below(MAX_INLINE),
        4 | 5 => (mtu - 2) + dice.below(5),
        6 => 2 * mtu - 1 + dice.below(3),
        _ => 1 + dice.below(6 * mtu),
    };
    length.min(longest)
}

/// Cuts a length into pieces.
pub fn draw_pieces(dice: &mut Dice, length: usize) -> Vec<usize> {
    let (mut left, mut pieces) = (length, Vec::new());
    while left > 0 {
        let last = pieces.len() + 1 == MAX_PIECES || dice.percent(60);
        let piece = if last { left } else { 1 + dice.below(left) };
        pieces.push(piece);
        left -= piece;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_requests_and_another_seed_others() {
        let draw = |seed| {
            let mut dice = Dice::new(seed, "requests");
            (0..50).map(|_| Item::draw(&mut dice, 1024)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn every_kind_of_request_is_drawn_and_fits_its_slot() {
        let mut dice = Dice::new(3, "requests");
        let items: Vec<_> = (0..2000).map(|_| Item::draw(&mut dice, 4096)).collect();
        assert!(
            items.iter().all(|item| item.length() <= SLOT - 2 * GUARD && item.pieces.len() <= MAX_PIECES)
        );
        assert!(items.iter().any(|item| item.length() == 0));
        assert!(items.iter().any(|item| item.length() > 2 * 4096));
        assert!(items.iter().any(|item| item.inline && item.pieces.len() > 1));
        for wanted in [Kind::Read, Kind::Send(None), Kind::Write(None)] {
            assert!(items.iter().any(|item| item.kind == wanted));
        }
    }
}
