//! What a seed decides about a lane: its service, where its receives come from, where its completions go.

use crate::walk::plan::Dice;

/// Completion queues of a host.
pub const COMPLETION_QUEUES: usize = 3;
/// Shared receive queues of XRC of a host; the ordinary one is before them.
pub const EXTENDED_QUEUES: usize = 2;

/// The service of a lane, which is a queue pair at either host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneService {
    /// Reliable connection.
    Reliable,
    /// Unreliable connection.
    Unreliable,
    /// Datagrams between two queue pairs.
    Datagram,
    /// Extended reliable connection; the number is the side of the initiator.
    Extended(usize),
}

impl LaneService {
    /// Whether everything that is sent arrives.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Reliable | Self::Extended(_))
    }

    /// Whether a side sends.
    pub const fn sends(self, side: usize) -> bool {
        !matches!(self, Self::Extended(initiator) if initiator != side)
    }

    /// Whether a side has receives.
    pub const fn receives(self, side: usize) -> bool {
        !matches!(self, Self::Extended(initiator) if initiator == side)
    }
}

/// A lane.
#[derive(Debug, Clone, Copy)]
pub struct Lane {
    /// Its service.
    pub service: LaneService,
    /// For each side, whether its receives come from the shared receive queue of its host.
    pub shared: [bool; 2],
    /// For each side, the completion queues of sends and of receives.
    pub completions: [[usize; 2]; 2],
    /// First PSN of both sides.
    pub psn: u32,
}

impl Lane {
    /// Draws a lane.
    pub fn draw(dice: &mut Dice) -> Self {
        let service = match dice.below(10) {
            0..=3 => LaneService::Reliable,
            4 | 5 => LaneService::Unreliable,
            6 | 7 => LaneService::Datagram,
            _ => LaneService::Extended(dice.below(2)),
        };
        let mut queue = || dice.below(COMPLETION_QUEUES);
        let completions = [[queue(), queue()], [queue(), queue()]];
        let shared = [dice.percent(40), dice.percent(40)];
        // Some PSNs wrap around 24 bits.
        let psn = if dice.percent(30) { 0xff_fff0 } else { dice.word() & 0xff_ffff };
        Self { service, shared, completions, psn }
    }

    /// Whether the receives of a side are its own.
    pub const fn has_receive_queue(&self, side: usize) -> bool {
        !self.shared[side] && !matches!(self.service, LaneService::Extended(_))
    }

    /// Whether a side can be reset at once. With a shared queue, a receive that a message is just filling
    /// would be lost.
    pub const fn resets_at_once(&self) -> bool {
        self.has_receive_queue(0) && self.has_receive_queue(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_is_drawn_with_receives_of_its_own_and_shared() {
        let mut dice = Dice::new(1, "lanes");
        let lanes: Vec<_> = (0..200).map(|_| Lane::draw(&mut dice)).collect();
        for service in [LaneService::Reliable, LaneService::Unreliable, LaneService::Datagram] {
            for shared in [false, true] {
                assert!(lanes.iter().any(|lane| lane.service == service && lane.shared[0] == shared));
            }
        }
        for side in [0, 1] {
            assert!(lanes.iter().any(|lane| lane.service == LaneService::Extended(side)));
        }
    }
}
