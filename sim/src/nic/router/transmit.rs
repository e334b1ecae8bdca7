//! Transmission: queue pairs with work take turns at the port.

use crate::nic::device::DeviceParts;
use crate::nic::ethernet::EthernetObjects;
use crate::nic::queue_pair::{Transmit, TransmitClass};
use crate::nic::wqe::Format;
use crate::nic::{HostMemory, Nic};
use crate::wire::FrameBuffer;
use bareverbs_prm::ids::{Qpn, UarIndex};
use bareverbs_prm::time::Time;

impl Nic {
    /// A send doorbell.
    pub(super) fn ring_send_queue<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        page: UarIndex,
        qpn: Qpn,
    ) {
        if EthernetObjects::is_send_queue(qpn) {
            return self.ring_packet_queue(now, memory, page, qpn);
        }
        let mut parts = self.parts(now, memory);
        let known = parts.queue_pairs.get_mut(qpn.value()).filter(|qp| qp.context.uar_page() == page);
        let Some(qp) = known else {
            parts.bus.shared.counters.doorbells_ignored += 1;
            return;
        };
        parts.bus.shared.counters.send_doorbells += 1;
        let effects = qp.on_doorbell(&mut parts.bus);
        parts.schedule.apply(qp, effects);
    }

    /// Whether [`Self::poll_transmit`] may have a frame. It may still return none, for example while the port is
    /// paused.
    pub fn has_transmit(&self) -> bool {
        !self.schedule.is_empty() || !self.outbox.is_empty() || self.ethernet.has_transmit()
    }

    /// Whether the last [`Self::poll_transmit`] returned nothing only because enough frames were looped back, or enough
    /// memory keys resolved, for one turn. There may be more to do at once, after the caller has served everything
    /// else.
    pub const fn has_yielded(&self) -> bool {
        self.shared.mkeys.budget().is_spent()
    }

    /// Work done so far, counted in steps through indirect keys. A real-time runner limits a turn by it.
    pub const fn work_done(&self) -> u64 {
        self.shared.mkeys.budget().total()
    }

    /// Writes the next frame to `frame`, whose capacity is used again. Queue pairs with work take turns, one frame each;
    /// a queue pair answers before it asks. `None` if there is no frame, or if [`Self::has_yielded`].
    // A simulation calls this from two places, one of which is cold. Without the attribute the compiler would
    // not inline it into either.
    #[inline(always)]
    pub fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        self.shared.mkeys.budget().begin_turn();
        if !self.flow.is_quiet() {
            return self.transmit_control(frame);
        }
        let transmit = self.next_frame(now, memory, frame);
        self.settle(now, memory);
        transmit
    }

    /// Sends a pause frame. It goes before everything else, even from a port that is itself stopped (IEEE
    /// 802.3 annex 31B.3.2). A stopped port sends nothing else.
    #[cold]
    #[inline(never)]
    fn transmit_control(&mut self, frame: &mut FrameBuffer) -> Option<Transmit> {
        frame.replace(&self.flow.poll_frame(self.shared.port.mac())?);
        if self.outbox.front().is_some_and(|finished| finished.bytes.is_empty()) {
            self.outbox.pop_front();
        }
        if let Some(observer) = &mut self.shared.optional.observer {
            observer.set_frame(None);
        }
        self.count_sent(frame);
        Some(Transmit { class: TransmitClass::Request, qpn: Qpn::from_low_bits(0), icrc: 0 })
    }

    /// The next frame. RDMA and Ethernet take turns.
    #[inline(always)]
    fn next_frame<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        if self.ethernet.take_turn() {
            let sent =
                if self.ethernet.has_transmit() { self.transmit_packet(now, memory, frame) } else { None };
            return sent.or_else(|| self.transmit_rdma(now, memory, frame));
        }
        let sent = self.transmit_rdma(now, memory, frame);
        sent.or_else(|| self.transmit_packet(now, memory, frame))
    }

    fn transmit_rdma<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        loop {
            if let Some(transmit) = self.transmit_finished(frame) {
                return Some(transmit);
            }
            if self.has_yielded() {
                return None;
            }
            let number = self.schedule.next()?;
            if let Some(transmit) = self.take_turn(now, memory, number, frame) {
                return Some(transmit);
            }
        }
    }

    /// Sends a frame that was completed earlier.
    fn transmit_finished(&mut self, frame: &mut FrameBuffer) -> Option<Transmit> {
        let finished = self.outbox.pop_front()?;
        *frame = finished.bytes;
        if let Some(observer) = &mut self.shared.optional.observer {
            observer.set_frame(finished.origin);
        }
        self.count_sent(frame);
        Some(Transmit { class: TransmitClass::Request, qpn: finished.qpn, icrc: finished.icrc })
    }

    /// The turn of a queue pair: a frame for the wire, if it has one. If this were inlined into the loop of
    /// [`Self::transmit_rdma`], the compiler would compute the addresses of all parts of the device before
    /// checking whose turn it is.
    #[inline(never)]
    fn take_turn<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        number: u32,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        let DeviceParts { queue_pairs, schedule, mut bus, .. } = self.parts(now, memory);
        let Some(qp) = queue_pairs.get_mut(number) else {
            bus.shared.counters.turns_of_destroyed += 1;
            return None;
        };
        qp.queued = false;
        if qp.format != Format::Connected {
            self.send_datagrams(now, memory, number);
            return None;
        }
        let (polled, effects) = qp.poll_frame(&mut bus, frame);
        schedule.apply(qp, effects);
        let polled = polled?;
        if polled.loops_back {
            self.shared.counters.frames_looped_back += 1;
            self.shared.counters.bytes_looped_back += frame.len() as u64;
            self.shared.mkeys.budget().add_frame();
            if let Some(observer) = &mut self.shared.optional.observer {
                observer.frame_looped_back(now);
            }
            self.accept_buffer(now, memory, frame);
            return None;
        }
        if !self.shared.port.reaches_others() {
            self.shared.counters.frames_without_path += 1;
            return None;
        }
        self.count_sent(frame);
        Some(polled.transmit)
    }
}
