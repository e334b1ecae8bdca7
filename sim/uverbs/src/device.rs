//! The device as the kernel has it: command queue, event queues, and what lives across files.

use crate::async_events;
use crate::attributes::DeviceAttributes;
use crate::boot;
use crate::commands::{CommandFailure, CommandQueue};
use crate::doorbells::Doorbells;
use crate::event_queues::EventQueues;
use crate::events::EventFiles;
use crate::process::Process;
use crate::queues::Queues;
use bareverbs_prm::ids::{Eqn, Gid, Pdn, Xrcdn};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{Nic, NicConfig};

/// A device that was brought up.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) commands: CommandQueue,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) doorbells: Doorbells,
    pub(crate) events: EventFiles,
    pub(crate) queues: Queues,
    event_queues: EventQueues,
    key_variant: u8,
    /// The kernel's own domains, of which some queue pairs are; made when the first one needs them.
    pub(crate) own_domains: Option<(Pdn, Xrcdn)>,
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
        Ok(Self {
            commands,
            attributes,
            doorbells: Doorbells::default(),
            events: EventFiles::default(),
            queues: Queues::default(),
            event_queues,
            key_variant: 0,
            own_domains: None,
        })
    }

    /// Completion vectors that programs can name.
    pub(crate) const fn completion_vectors(&self) -> u32 {
        1
    }

    /// The event queue of every completion vector.
    pub(crate) const fn completion_event_queue(&self) -> Eqn {
        self.event_queues.completion_queue_number()
    }

    /// The low byte of the next memory key.
    pub(crate) const fn next_key_variant(&mut self) -> u8 {
        self.key_variant = self.key_variant.wrapping_add(1);
        self.key_variant
    }

    /// What follows every input of the device: its interrupts are served.
    pub(crate) fn serve_interrupts<P: Process>(&mut self, now: Time, process: &mut P) {
        for entry in self.event_queues.drain(&mut self.commands, now, process) {
            async_events::handle(&mut self.events, &self.queues, &entry);
        }
    }
}
