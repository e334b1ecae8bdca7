//! Link widths and speeds, and their notation: `4xEDR`.

use core::fmt;

/// Speed of one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneSpeed {
    /// Single data rate, 2.5 Gbaud.
    SDR,
    /// Double data rate, 5 Gbaud.
    DDR,
    /// Quad data rate, 10 Gbaud.
    QDR,
    /// Mellanox's proprietary 10.3125 Gbaud.
    FDR10,
    /// Fourteen data rate, 14.0625 Gbaud.
    FDR,
    /// Enhanced data rate, 25.78125 Gbaud.
    EDR,
    /// High data rate, 50 Gb/s.
    HDR,
    /// Next data rate, 100 Gb/s.
    NDR,
    /// Extreme data rate, 200 Gb/s.
    XDR,
}

/// Names, and data rate per lane in Mb/s.
const SPEEDS: [(LaneSpeed, &str, u64); 9] = [
    (LaneSpeed::SDR, "SDR", 2_000),
    (LaneSpeed::DDR, "DDR", 4_000),
    (LaneSpeed::QDR, "QDR", 8_000),
    (LaneSpeed::FDR10, "FDR10", 10_000),
    (LaneSpeed::FDR, "FDR", 13_636),
    (LaneSpeed::EDR, "EDR", 25_000),
    (LaneSpeed::HDR, "HDR", 50_000),
    (LaneSpeed::NDR, "NDR", 100_000),
    (LaneSpeed::XDR, "XDR", 200_000),
];

/// Width and speed of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Number of lanes: 1, 2, 4, 8 or 12.
    pub lanes: u8,
    /// Speed of each lane.
    pub lane: LaneSpeed,
}

impl LinkSpeed {
    /// Four lanes of EDR.
    pub const EDR_4X: Self = Self { lanes: 4, lane: LaneSpeed::EDR };

    /// Data rate in bits per second.
    pub fn bits_per_second(self) -> u64 {
        u64::from(self.lanes) * self.entry().2 * 1_000_000
    }

    /// Parses `4xEDR`.
    pub(super) fn parse(word: &str) -> Option<Self> {
        let (lanes, name) = word.split_once('x')?;
        let lanes = lanes.parse().ok().filter(|lanes| matches!(lanes, 1 | 2 | 4 | 8 | 12))?;
        let (lane, ..) = SPEEDS.iter().find(|(_, word, _)| *word == name)?;
        Some(Self { lanes, lane: *lane })
    }

    /// Speed from the active fields of a PortInfo: `LinkWidthActive`, `LinkSpeedActive`, `LinkSpeedExtActive` (IBTA
    /// v1.4 §14.2.5.6).
    pub(crate) const fn of_port(width: u8, speed: u8, extended: u8) -> Self {
        let lanes = match width {
            2 => 4,
            4 => 8,
            8 => 12,
            16 => 2,
            _ => 1,
        };
        let lane = match (extended, speed) {
            (1, _) => LaneSpeed::FDR,
            (2, _) => LaneSpeed::EDR,
            (4, _) => LaneSpeed::HDR,
            (8, _) => LaneSpeed::NDR,
            (_, 4) => LaneSpeed::QDR,
            (_, 2) => LaneSpeed::DDR,
            _ => LaneSpeed::SDR,
        };
        Self { lanes, lane }
    }

    fn entry(self) -> &'static (LaneSpeed, &'static str, u64) {
        // Every speed is in the table; the fallback is the slowest.
        SPEEDS.iter().find(|(lane, ..)| *lane == self.lane).unwrap_or(&SPEEDS[0])
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.lanes, self.entry().1)
    }
}
