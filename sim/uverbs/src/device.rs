//! The device as the kernel has it: command queue, event queues, and what lives across files.

use crate::async_events;
use crate::attributes::DeviceAttributes;
use crate::boot;
use crate::commands::{CommandFailure, CommandQueue};
use crate::doorbells::Doorbells;
use crate::event_queues::EventQueues;
use crate::events::EventFiles;
use crate::process::Process;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{Nic, NicConfig};

/// A device that was brought up.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) commands: CommandQueue,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) doorbells: Doorbells,
    pub(crate) events: EventFiles,
    event_queues: EventQueues,
}

impl Device {
    pub(crate) fn boot<P: Process>(
        config: NicConfig,
        gids: &[Gid],
        process: &mut P,
    ) -> Result<Self, CommandFailure> {
        let mut commands = CommandQueue::new(Nic::new(config), process);
        let attributes = boot::bring_up(&mut commands, process, gids)?;
        let event_queues = EventQueues::create(&mut commands, process)?;
        let (doorbells, events) = (Doorbells::default(), EventFiles::default());
        Ok(Self { commands, attributes, doorbells, events, event_queues })
    }

    /// What follows every input of the device: its interrupts are served.
    pub(crate) fn serve_interrupts<P: Process>(&mut self, now: Time, process: &mut P) {
        for entry in self.event_queues.drain(&mut self.commands, now, process) {
            async_events::handle(&mut self.events, &entry);
        }
    }
}
