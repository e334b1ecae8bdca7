//! How the router reaches its queue pairs: it looks up a number, builds a [`Bus`] and applies the
//! [`Effects`].

use super::Nic;
use crate::nic::HostMemory;
use crate::nic::bus::Bus;
use crate::nic::contexts::Slab;
use crate::nic::ethernet::EthernetObjects;
use crate::nic::observer::DeviceEvent;
use crate::nic::optional_state::OptionalState;
use crate::nic::queue_counters::CounterSets;
use crate::nic::queue_pair::{Effects, QueuePair};
use crate::nic::schedule::TurnSchedule;
use crate::nic::wqe::Format;
use crate::transport::congestion::Controller;
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::time::Time;

/// A device split into the parts that one input needs: its tables, the scheduler, and what a queue may use.
pub(in crate::nic) struct DeviceParts<'a, M: ?Sized> {
    pub(in crate::nic) queue_pairs: &'a mut Slab<QueuePair>,
    pub(in crate::nic) schedule: &'a mut TurnSchedule,
    pub(in crate::nic) ethernet: &'a mut EthernetObjects,
    pub(in crate::nic) counter_sets: &'a mut CounterSets,
    pub(in crate::nic) bus: Bus<'a, M>,
}

impl Nic {
    #[inline]
    pub(in crate::nic) fn parts<'a, M: ?Sized>(
        &'a mut self,
        now: Time,
        memory: &'a mut M,
    ) -> DeviceParts<'a, M> {
        DeviceParts {
            queue_pairs: &mut self.queue_pairs,
            schedule: &mut self.schedule,
            ethernet: &mut self.ethernet,
            counter_sets: &mut self.counter_sets,
            bus: Bus {
                now,
                memory,
                config: &self.config,
                features: self.firmware.capabilities.features(),
                shared: &mut self.shared,
            },
        }
    }

    /// Runs `act` on a queue pair and applies the effects; `None` if there is no such queue pair.
    pub(in crate::nic) fn with_queue_pair<M: HostMemory + ?Sized>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        act: impl FnOnce(&mut QueuePair, &mut Bus<'_, M>) -> Effects,
    ) -> Option<()> {
        let mut parts = self.parts(now, memory);
        let qp = parts.queue_pairs.get_mut(qpn.value())?;
        let effects = act(qp, &mut parts.bus);
        parts.schedule.apply(qp, effects);
        Some(())
    }

    /// Attaches a congestion controller to a queue pair that sends, connected or datagram, or removes it.
    /// Returns `false` if there is no such queue pair.
    pub fn set_controller<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        qpn: Qpn,
        controller: Option<Box<dyn Controller>>,
    ) -> bool {
        let mut parts = self.parts(now, memory);
        let qp = parts.queue_pairs.get_mut(qpn.value());
        let Some(qp) = qp.filter(|qp| qp.format != Format::KeyUpdate) else { return false };
        let effects = qp.set_controller(&mut parts.bus, controller);
        parts.schedule.apply(qp, effects);
        true
    }

    /// Handles a broken completion queue: every queue pair that uses it enters the error state.
    pub(in crate::nic) fn break_users<M: HostMemory>(&mut self, now: Time, memory: &mut M, cqn: Cqn) {
        let mut parts = self.parts(now, memory);
        let uses = |qp: &QueuePair| qp.context.cqn_snd() == cqn || qp.context.cqn_rcv() == cqn;
        for (_, qp) in parts.queue_pairs.iter_mut().filter(|(_, qp)| uses(qp)) {
            let effects = qp.on_broken_completion_queue(&mut parts.bus);
            parts.schedule.apply(qp, effects);
        }
    }

    /// Takes replies of the RPC engine. A reply for a queue pair that cannot send is dropped.
    pub(in crate::nic) fn take_replies(&mut self, now: Time) {
        let OptionalState { engine: Some(engine), observer, .. } = &mut self.shared.optional else { return };
        while let Some(reply) = engine.poll_reply() {
            if let Some(observer) = observer {
                let bytes = u32::try_from(reply.bytes.len()).unwrap_or(u32::MAX);
                observer.push(now, DeviceEvent::KernelReplied { qpn: reply.qpn, bytes });
            }
            let qp = self.queue_pairs.get_mut(reply.qpn.value());
            let Some(effects) = qp.map(|qp| (qp.push_reply(reply), qp)) else {
                self.shared.counters.rpc_replies_dropped += 1;
                continue;
            };
            match effects {
                (Some(effects), qp) => self.schedule.apply(qp, effects),
                (None, _) => self.shared.counters.rpc_replies_dropped += 1,
            }
        }
    }
}
