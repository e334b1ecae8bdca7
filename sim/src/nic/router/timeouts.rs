//! The deadlines of the device.

use crate::nic::firmware;
use crate::nic::observer::ObservedMemory;
use crate::nic::optional_state::OptionalState;
use crate::nic::queue_pair::earlier;
use crate::nic::{HostMemory, Nic};
use bareverbs_prm::time::Time;

impl Nic {
    /// When to call [`Self::handle_timeout`] next; it may find nothing due.
    #[inline(always)] // After every input.
    pub fn poll_timeout(&self) -> Option<Time> {
        let engine = self.shared.optional.engine.as_ref().and_then(|engine| engine.poll_timeout());
        let queues = earlier(self.schedule.next_alarm(), self.shared.completions.poll_timeout());
        let all = earlier(queues, engine);
        // Traps are rare, and this runs for each frame.
        if self.shared.port.next_trap().is_none() { all } else { earlier(all, self.shared.port.next_trap()) }
    }

    /// Runs what is due at `now`: retransmissions, ends of RNR waits, moderated events, deadlines of the RPC engine.
    pub fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        if !self.flow.is_quiet() {
            self.flow.handle_timeout(now);
        }
        let mut parts = self.parts(now, memory);
        while let Some(number) = parts.schedule.pop_due(now) {
            // A queue pair that was destroyed leaves its alarm behind, for which nothing is to be done.
            if let Some(qp) = parts.queue_pairs.get_mut(number) {
                let effects = qp.on_timeout(&mut parts.bus);
                parts.schedule.apply(qp, effects);
            }
        }
        // Commands run after the alarms. Those that are left have an alarm for the next turn.
        if self.firmware.has_commands() {
            firmware::work_off(self, now, memory);
        }
        self.shared.completions.handle_timeout(now, memory, &mut self.shared.events);
        self.run_engine(now, memory);
        if self.shared.port.next_trap().is_some_and(|due| due <= now) {
            self.send_traps(now, memory);
        }
        self.settle(now, memory);
    }

    fn run_engine<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        let OptionalState { engine: Some(engine), observer, .. } = &mut self.shared.optional else { return };
        if engine.poll_timeout().is_some_and(|deadline| deadline <= now) {
            match observer {
                Some(observer) => engine.handle_timeout(now, &mut ObservedMemory { memory, observer, now }),
                None => engine.handle_timeout(now, memory),
            }
        }
        self.take_replies(now);
    }
}
