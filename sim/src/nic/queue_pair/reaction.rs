//! The reaction point of congestion control: the controller that decides when requests leave, and how a CNP
//! reaches it.

use super::pacer::Pacer;
use super::{Bus, Effects, HostMemory, QueuePair};
use crate::transport::congestion::Controller;

impl QueuePair {
    /// Sets the controller that decides when requests leave. Without one they leave as soon as the port takes
    /// them.
    pub(crate) fn set_controller<M: HostMemory>(
        &mut self,
        bus: &mut Bus<'_, M>,
        controller: Option<Box<dyn Controller>>,
    ) -> Effects {
        self.pacer = Pacer(controller);
        self.settle(bus)
    }

    /// Handles a CNP about what this queue pair sent.
    pub(crate) fn on_notification<M: HostMemory>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        bus.shared.congestion.handled += 1;
        match &mut self.pacer.0 {
            None => Effects::NONE,
            Some(controller) => {
                controller.on_cnp(bus.now);
                self.settle(bus)
            }
        }
    }
}
