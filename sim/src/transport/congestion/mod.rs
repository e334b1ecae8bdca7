//! Congestion control: what decides when a queue pair may send its next frame.
//!
//! **What this is.** Each queue pair may have a [`Controller`]. The queue pair asks it before each frame of a
//! request or datagram, and reports to it every frame sent, every congestion notification packet (CNP) and
//! every acknowledgement. [`Fixed`] is the simplest controller: a rate that never changes. A queue pair
//! without a controller sends as fast as the port takes its frames.
//!
//! **What it may not do.** A controller has no clock: time is an argument, and the controller says when it
//! wants to be called again. It must not know queue pairs, packets or other controllers.

mod fixed;
#[cfg(test)]
mod tests;

pub use fixed::Fixed;

use bareverbs_prm::time::Time;
use core::fmt::Debug;

/// Decides when a queue pair may send: the reaction point of DCQCN or of another algorithm.
pub trait Controller: Debug {
    /// When the next frame may leave. A time that is not after `now` means at once.
    fn may_send(&self, now: Time) -> Time;
    /// A frame of `bytes` bytes left. It belongs to a request, a datagram or a READ response; READ responses
    /// are charged but never held back.
    fn on_sent(&mut self, now: Time, bytes: usize);
    /// The peer's notification point saw marked packets of this queue pair (RoCEv2 A17.9.3).
    fn on_cnp(&mut self, now: Time) {
        let _ = now;
    }
    /// The peer acknowledged something.
    fn on_ack(&mut self, now: Time) {
        let _ = now;
    }
    /// Handles the timers that are due at `now`, such as those that raise a rate again.
    fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }
    /// When to call [`Self::handle_timeout`] next.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
