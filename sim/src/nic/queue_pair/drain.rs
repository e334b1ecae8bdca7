//! SQD and SQE: the send queue ends what has begun and rests, or stops and is flushed (IBTA v1.4 §10.3.1.5, §10.3.1.6). Receives go
//! on.

use super::{Bus, Effects, HostMemory, QueuePair};
use crate::nic::config::NicConfig;
use crate::transport::SendingSide;
use bareverbs_prm::numbering::{EventType, QpState};

impl QueuePair {
    /// RTS2SQD: no further message begins.
    pub(crate) fn drain<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        if let Some(requester) = &mut self.requester {
            requester.drain();
        }
        self.settle(bus)
    }

    /// The last message that had begun has ended: the queue is drained, and software is told. A service without a requester has
    /// ended what it took.
    pub(super) fn end_draining<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) {
        if self.requester.as_ref().is_none_or(SendingSide::is_drained) && !self.send.has_copies() {
            self.context.set_state(QpState::SqDrained);
            bus.queue_pair_event(self.number(), EventType::SqDrained);
        }
    }

    /// SQD2RTS: messages begin again.
    pub(crate) fn resume(&mut self) -> Effects {
        if let Some(requester) = &mut self.requester {
            requester.resume();
        }
        Effects::TURN
    }

    /// SQE: nothing is sent any more, and what is posted is flushed; receives go on.
    pub(super) fn enter_send_error(&mut self) {
        if !matches!(self.state(), QpState::Rts | QpState::SqDraining) {
            return;
        }
        self.context.set_state(QpState::SqError);
        if let Some(requester) = &mut self.requester {
            requester.flush();
        }
    }

    /// SQERR2RTS: sending goes on behind what was flushed. PSNs go on as well.
    pub(crate) fn recover_send_queue(&mut self, config: &NicConfig) -> Effects {
        self.send.clear_stop();
        if let Some(requester) = &self.requester {
            self.context.set_next_send_psn(requester.next_psn());
        }
        self.start_sending(config)
    }
}
