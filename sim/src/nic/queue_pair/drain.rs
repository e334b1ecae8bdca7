//! SQD and SQE. In SQD the send queue finishes the messages that have begun and then idles; in SQE it stops
//! and is flushed (IBTA v1.4 §10.3.1.5, §10.3.1.6). Receives continue in both.

use super::{Bus, Effects, HostMemory, QueuePair};
use crate::nic::config::NicConfig;
use crate::transport::ConnectionRequester;
use bareverbs_prm::numbering::{EventType, QpState};

impl QueuePair {
    /// RTS2SQD: starts no further message.
    pub(crate) fn drain<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        if let Some(requester) = &mut self.requester {
            requester.drain();
        }
        self.settle(bus)
    }

    /// Marks the queue drained and notifies software once the last message that had begun has ended. A
    /// service without a requester ends each message as it sends it, so only copies can still be pending
    /// there.
    pub(super) fn end_draining<M: HostMemory + ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        if self.requester.as_ref().is_none_or(ConnectionRequester::is_drained) && !self.send.has_copies() {
            self.context.set_state(QpState::SqDrained);
            bus.queue_pair_event(self.number(), EventType::SqDrained);
        }
    }

    /// SQD2RTS: starts messages again.
    pub(crate) fn resume(&mut self) -> Effects {
        if let Some(requester) = &mut self.requester {
            requester.resume();
        }
        Effects::TURN
    }

    /// SQE: stops sending and flushes what is posted. Receives continue.
    pub(super) fn enter_send_error(&mut self) {
        if !matches!(self.state(), QpState::Rts | QpState::SqDraining) {
            return;
        }
        self.context.set_state(QpState::SqError);
        if let Some(requester) = &mut self.requester {
            requester.flush();
        }
    }

    /// SQERR2RTS: resumes sending after the flushed requests. PSNs continue from where they were.
    pub(crate) fn recover_send_queue(&mut self, config: &NicConfig) -> Effects {
        self.send.clear_stop();
        if let Some(requester) = &self.requester {
            self.context.set_next_send_psn(requester.next_psn());
        }
        self.start_sending(config)
    }
}
