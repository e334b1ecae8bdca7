//! The time-stamp counter, measured once against the timer that every PC has.

use bareverbs_prm::time::Time;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::instructions::port::Port;

/// Hz of the interval timer.
const TIMER_HZ: u64 = 1_193_182;
/// Ticks that are waited: 10 ms.
const TICKS: u64 = TIMER_HZ / 100;
/// Fraction bits of the scale.
const SHIFT: u32 = 24;

/// Picoseconds of one tick of the counter, times 2^[`SHIFT`].
static SCALE: AtomicU64 = AtomicU64::new(0);
static START: AtomicU64 = AtomicU64::new(0);

fn counter() -> u64 {
    // SAFETY: every processor with 64 bits has the instruction.
    unsafe { _rdtsc() }
}

/// Measures the counter against channel 2 of the interval timer.
pub fn calibrate() {
    let begin = counter();
    wait_for_timer();
    let elapsed = counter().wrapping_sub(begin).max(1);
    let picos = u128::from(TICKS) * 1_000_000_000_000 / u128::from(TIMER_HZ);
    let scale = (picos << SHIFT) / u128::from(elapsed);
    SCALE.store(u64::try_from(scale).unwrap_or(u64::MAX), Ordering::Relaxed);
    START.store(counter(), Ordering::Relaxed);
}

fn wait_for_timer() {
    let (mut control, mut channel, mut gate) =
        (Port::<u8>::new(0x43), Port::<u8>::new(0x42), Port::<u8>::new(0x61));
    let [low, high, ..] = TICKS.to_le_bytes();
    // SAFETY: the ports of the interval timer; channel 2 drives nothing but the speaker, whose gate stays closed.
    unsafe {
        let closed = gate.read() & !0b11;
        gate.write(closed);
        control.write(0b1011_0000); // channel 2, low byte then high byte, count once
        channel.write(low);
        channel.write(high);
        gate.write(closed | 0b01);
        // The output bit rises when the count is over; a machine without the timer gets a bounded wait.
        for _ in 0..100_000_000_u32 {
            if gate.read() & 0b10_0000 != 0 {
                break;
            }
        }
    }
}

/// Time since the calibration.
pub fn now() -> Time {
    let ticks = counter().wrapping_sub(START.load(Ordering::Relaxed));
    let picos = (u128::from(ticks) * u128::from(SCALE.load(Ordering::Relaxed))) >> SHIFT;
    Time::from_picos(picos as u64)
}
