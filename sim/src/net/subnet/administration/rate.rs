//! Rates of links and paths (IBTA v1.4 §15.2.5.16, table 216). The codes are not in order of speed.

use crate::wire::management::attributes::PortInfo;

/// Rate in units of 0.1 Gb/s and its code, slowest first.
const RATES: [(u32, u8); 22] = [
    (25, 2),
    (50, 5),
    (100, 3),
    (140, 11),
    (200, 6),
    (250, 15),
    (280, 19),
    (300, 4),
    (400, 7),
    (500, 20),
    (560, 12),
    (600, 8),
    (800, 9),
    (1_000, 16),
    (1_120, 13),
    (1_200, 10),
    (1_680, 14),
    (2_000, 17),
    (3_000, 18),
    (4_000, 21),
    (6_000, 22),
    (8_000, 23),
];

/// Rank of a rate code, slowest first; `None` for an invalid code.
pub(super) fn rank(rate: u8) -> Option<u8> {
    RATES.iter().zip(0..).find(|((_, number), _)| *number == rate).map(|(_, rank)| rank)
}

/// Rate code of a rank.
pub(super) fn of_rank(rank: u8) -> Option<u8> {
    RATES.get(usize::from(rank)).map(|(_, rate)| *rate)
}

/// Rate of a port: lanes times lane speed, rounded down to one that has a code. An extended speed takes precedence.
pub(super) fn of_port(info: &PortInfo) -> u8 {
    let lanes = match info.link_width_active() {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    let lane = match (info.link_speed_ext_active(), info.link_speed_active()) {
        (8.., _) => 1_000,
        (4.., _) => 500,
        (2.., _) => 250,
        (1, _) => 140,
        (_, 4..) => 100,
        (_, 2..) => 50,
        _ => 25,
    };
    RATES.iter().rev().find(|(speed, _)| *speed <= lanes * lane).map_or(RATES[0].1, |(_, rate)| *rate)
}

/// The slower of two.
pub(super) fn slower(one: u8, other: u8) -> u8 {
    if rank(one) <= rank(other) { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_the_order_of_their_speed() {
        assert!(RATES.is_sorted_by(|one, other| one.0 < other.0));
        let mut numbers: Vec<u8> = RATES.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (2..=23).collect::<Vec<_>>());
        assert_eq!(
            (slower(3, 5), slower(16, 12), rank(2), rank(1), of_rank(22)),
            (5, 12, Some(0), None, None)
        );
        assert!(numbers.iter().all(|rate| rank(*rate).and_then(of_rank) == Some(*rate)));
    }

    #[test]
    fn a_port_has_the_rate_of_its_lanes() {
        let rate = |width: u8, basic: u8, extended: u8| {
            let mut info = PortInfo::new();
            info.set_link_width_active(width).set_link_speed_active(basic);
            of_port(info.set_link_speed_ext_active(extended))
        };
        assert_eq!([rate(1, 1, 0), rate(2, 1, 0), rate(2, 4, 0), rate(8, 2, 0)], [2, 3, 7, 8]);
        assert_eq!([rate(2, 4, 1), rate(2, 4, 2), rate(2, 4, 4), rate(2, 4, 8)], [12, 16, 17, 21]);
        assert_eq!([rate(1, 4, 8), rate(16, 4, 4), rate(8, 4, 8)], [16, 16, 23]);
    }
}
