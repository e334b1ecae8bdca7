//! The events of a queue pair that an observer sees. Nothing here is called unless the device is observed.

use super::replies::REPLY;
use super::{Bus, QueuePair};
use crate::nic::observer::{DeviceEvent, FrameOrigin, FrameWork, Observer};
use crate::nic::optional_state::OptionalState;
use crate::nic::send_queue::SendQueue;
use crate::transport::{RequestPacket, RetransmissionCause};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Time;

impl QueuePair {
    /// A doorbell was rung.
    #[cold]
    pub(super) fn doorbell_event(&self) -> DeviceEvent {
        DeviceEvent::SendDoorbell { qpn: self.number(), posted: self.send.queue().posted() }
    }

    /// A frame of a request was written.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_request<M>(&self, bus: &mut Bus<'_, M>, packet: RequestPacket) {
        let work = match self.send.work_of(packet.token) {
            Some(work) if packet.token & REPLY == 0 => FrameWork::Wqe(work),
            _ => FrameWork::KernelReply,
        };
        self.observe_frame(bus, work, packet.header.psn, packet.retransmission);
    }

    /// A response to the peer was written.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_response<M>(&self, bus: &mut Bus<'_, M>, psn: Psn) {
        self.observe_frame(bus, FrameWork::Answer, psn, None);
    }

    fn observe_frame<M>(
        &self,
        bus: &mut Bus<'_, M>,
        work: FrameWork,
        psn: Psn,
        again: Option<RetransmissionCause>,
    ) {
        if let Some(observer) = &mut bus.shared.optional.observer {
            let (qpn, psn, built) = (self.number(), Some(psn), Some(bus.now));
            observer.set_frame(Some(FrameOrigin { qpn, work, psn, again, built }));
        }
    }
}

/// The queue pair fetched a WQE from its ring; it is the newest one.
#[inline]
pub(super) fn observe_fetch(optional: &mut OptionalState, now: Time, qpn: Qpn, queue: &SendQueue) {
    if let Some(observer) = &mut optional.observer {
        observe_newest(observer, now, qpn, queue);
    }
}

#[cold]
#[inline(never)]
fn observe_newest(observer: &mut Observer, now: Time, qpn: Qpn, queue: &SendQueue) {
    if let Some((work, bytes)) = queue.newest() {
        observer.push(now, DeviceEvent::WqeFetched { qpn, work, bytes });
    }
}
