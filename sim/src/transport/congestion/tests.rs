//! The guarantees of a fixed rate.

use super::{Controller, Fixed};
use bareverbs_prm::time::{Duration, Time};
use proptest::prelude::*;

const GIGABIT: u64 = 1_000_000_000;

#[test]
fn a_frame_takes_its_time_at_the_rate() {
    let mut rate = Fixed::new(GIGABIT);
    assert!(rate.may_send(Time::ZERO) <= Time::ZERO, "the first frame leaves at once");
    rate.on_sent(Time::ZERO, 125);
    assert_eq!(rate.may_send(Time::ZERO), Time::ZERO + Duration::from_micros(1));
}

#[test]
fn unused_time_is_not_saved_up() {
    let mut rate = Fixed::new(GIGABIT);
    let late = Time::ZERO + Duration::from_millis(5);
    rate.on_sent(late, 125);
    assert_eq!(rate.may_send(late), late + Duration::from_micros(1));
}

#[test]
fn a_rate_of_zero_is_the_slowest_there_is() {
    assert_eq!(Fixed::new(0).duration_of(1), Duration::from_secs(8));
    assert_eq!(Fixed::new(1).duration_of(usize::MAX), Duration::from_picos(u64::MAX), "without overflow");
}

#[test]
fn notifications_and_acknowledgements_change_nothing() {
    let mut rate = Fixed::new(GIGABIT);
    rate.on_sent(Time::ZERO, 125);
    let before = rate;
    rate.on_cnp(Time::ZERO);
    rate.on_ack(Time::ZERO);
    rate.handle_timeout(Time::ZERO);
    assert_eq!((rate, rate.poll_timeout()), (before, None));
}

proptest! {
    /// A sender that uses every chance to send exceeds the rate by at most the frame in flight.
    #[test]
    fn the_rate_is_never_exceeded(
        rate in 1_000_000u64..400 * GIGABIT,
        frames in prop::collection::vec((64usize..9000, 0u64..100_000), 1..50),
    ) {
        let (mut controller, mut now, mut sent) = (Fixed::new(rate), Time::ZERO, 0u128);
        for (bytes, pause) in frames {
            now = now.max(controller.may_send(now)) + Duration::from_picos(pause);
            prop_assert!(sent * 8 * 1_000_000_000_000 <= u128::from(now.as_picos()) * u128::from(rate));
            controller.on_sent(now, bytes);
            sent += bytes as u128;
        }
    }
}
