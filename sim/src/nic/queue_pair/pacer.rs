//! Pacing: the congestion controller of a queue pair stands between its requests and the scheduler.
//!
//! What has to wait stays in the send queue, so that its payload is read when its frame leaves. Answers never wait: they are the
//! peer's requests, and its controller holds those back. READ responses are charged to the rate.

use crate::transport::congestion::Controller;
use bareverbs_prm::time::Time;

/// The controller of a queue pair; without one nothing waits.
#[derive(Debug, Default)]
pub(super) struct Pacer(pub(super) Option<Box<dyn Controller>>);

impl Pacer {
    /// When the next request may leave, if it has to wait.
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
