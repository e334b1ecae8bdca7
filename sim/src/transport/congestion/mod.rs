//! Congestion control: what decides when a queue pair may send its next frame.
//!
//! **What this is.** [`Controller`] is the seat: one per queue pair, asked before each frame of a request or datagram, told of every frame that
//! was sent, of every congestion notification (CNP) and of every acknowledgement. [`Fixed`] is the first who sits there: a rate that
//! never changes. A queue pair without a controller sends as fast as the port takes its frames.
//!
//! **What it may not do.** A controller has no clock: time is an argument, and it says when it wants to be called again. It knows no
//! queue pair, no packet and no other controller.

mod fixed;
#[cfg(test)]
mod tests;

pub use fixed::Fixed;

use bareverbs_prm::time::Time;
use core::fmt::Debug;

/// What decides when a queue pair may send: the reaction point of DCQCN, or whatever takes its place.
pub trait Controller: Debug {
    /// When the next frame may leave; `now` or earlier: at once.
    fn may_send(&self, now: Time) -> Time;
    /// A frame of `bytes` bytes left: of a request or datagram, or of a READ response, which is charged and never held back.
    fn on_sent(&mut self, now: Time, bytes: usize);
    /// The peer's notification point saw marked packets of this queue pair (RoCEv2 A17.9.3).
    fn on_cnp(&mut self, now: Time) {
        let _ = now;
    }
    /// The peer acknowledged something.
    fn on_ack(&mut self, now: Time) {
        let _ = now;
    }
    /// Does what is due at `now`: timers that raise a rate again.
    fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }
    /// When to call [`Self::handle_timeout`] next.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
