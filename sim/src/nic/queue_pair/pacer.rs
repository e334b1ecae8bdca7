//! Pacing: the congestion controller of a queue pair decides when its requests reach the scheduler.
//!
//! A request that has to wait stays in the send queue, so its payload is read only when its frame leaves.
//! Responses never wait: they answer requests of the peer, which the controller of the peer already paces.
//! READ responses still count against the rate.

use crate::transport::congestion::Controller;
use bareverbs_prm::time::Time;

/// The congestion controller of a queue pair; without one nothing waits.
#[derive(Debug, Default)]
pub(super) struct Pacer(pub(super) Option<Box<dyn Controller>>);

impl Pacer {
    /// When the next request may leave, or `None` if it may leave now.
    #[inline]
    pub(super) fn waits_until(&self, now: Time) -> Option<Time> {
        let next = self.0.as_ref()?.may_send(now);
        (next > now).then_some(next)
    }

    #[inline]
    pub(super) fn on_sent(&mut self, now: Time, bytes: usize) {
        if let Some(controller) = &mut self.0 {
            controller.on_sent(now, bytes);
        }
    }

    #[inline]
    pub(super) fn on_ack(&mut self, now: Time) {
        if let Some(controller) = &mut self.0 {
            controller.on_ack(now);
        }
    }

    #[inline]
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if let Some(controller) = &mut self.0 {
            controller.handle_timeout(now);
        }
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.0.as_ref()?.poll_timeout()
    }
}
