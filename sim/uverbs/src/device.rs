//! The kernel's view of the device: command queue, event queues, and state shared by all files.

use crate::Errno;
use crate::async_events;
use crate::attributes::DeviceAttributes;
use crate::boot;
use crate::commands::{CommandFailure, CommandQueue};
use crate::doorbells::Doorbells;
use crate::event_queues::EventQueues;
use crate::events::EventFiles;
use crate::general_services::{GeneralServices, Incoming};
use crate::host::PortAddresses;
use crate::key_changes::{KeyChange, KeyChanges};
use crate::process::Process;
use crate::queues::Queues;
use crate::subnet::SubnetLink;
use crate::uapi::read_extended;
use alloc::vec::Vec;
use bareverbs_prm::eqe::{CompletionEvent, EventEntry};
use bareverbs_prm::ids::{Eqn, Pdn, Xrcdn};
use bareverbs_prm::numbering::EventType;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{LinkLayer, Nic, NicConfig};

/// Most packets to send before running a command that follows them.
const CATCH_UP: usize = 256;

/// A device that has booted.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) commands: CommandQueue,
    /// The manager of an InfiniBand port's subnet.
    pub(crate) subnet: Option<SubnetLink>,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) doorbells: Doorbells,
    pub(crate) events: EventFiles,
    pub(crate) queues: Queues,
    event_queues: EventQueues,
    pub(crate) general_services: GeneralServices,
    /// Management datagrams that have arrived.
    pub(crate) inbox: Vec<Incoming>,
    key_variant: u8,
    key_changes: KeyChanges,
    /// The kernel's own domains, which some queue pairs use. They are created on first use.
    pub(crate) own_domains: Option<(Pdn, Xrcdn)>,
}

impl Device {
    pub(crate) fn boot<P: Process>(
        config: NicConfig,
        PortAddresses { gids, guid, lid, .. }: &PortAddresses,
        process: &mut P,
    ) -> Result<Self, CommandFailure> {
        let mut commands = CommandQueue::new(Nic::new(config), process);
        let is_infiniband = config.link_layer == LinkLayer::InfiniBand;
        let mut subnet = is_infiniband.then(|| SubnetLink::new(*guid, *lid));
        let attributes = boot::bring_up(&mut commands, process, gids, subnet.as_mut())?;
        let event_queues = EventQueues::create(&mut commands, process)?;
        let events = event_queues.completion_queue_number();
        let general_services = GeneralServices::create(&mut commands, process, events)?;
        let kernel_objects = general_services.kernel_objects(events);
        let key_changes = KeyChanges::create(&mut commands, process, kernel_objects)?;
        Ok(Self {
            commands,
            subnet,
            attributes,
            doorbells: Doorbells::default(),
            events: EventFiles::default(),
            queues: Queues::default(),
            event_queues,
            general_services,
            inbox: Vec::new(),
            key_variant: 0,
            key_changes,
            own_domains: None,
        })
    }

    /// Completion vectors available to programs: one per processor of a large machine, as with `mlx5_core`, because UCX
    /// selects one by the processor it runs on.
    pub(crate) const fn completion_vectors(&self) -> u32 {
        64
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

    /// Changes a memory key through a work request.
    pub(crate) fn change_key<P: Process>(
        &mut self,
        process: &mut P,
        change: &KeyChange,
    ) -> Result<(), Errno> {
        self.key_changes.run(&mut self.commands, process, change)
    }

    /// Processes doorbells that were rung before a command: a real NIC would have handled them long before the command
    /// arrives.
    pub(crate) fn catch_up<P: Process>(&mut self, process: &mut P) {
        let now = process.now();
        if self.doorbells.sweep(&mut self.commands, now, process) {
            let mut turns = 0..CATCH_UP;
            while turns.next().is_some() && self.commands.send_early(process) {}
        }
    }

    /// Serves the device's interrupts. Called after every input of the device.
    pub(crate) fn serve_interrupts<P: Process>(&mut self, now: Time, process: &mut P) {
        for entry in self.event_queues.drain(&mut self.commands, now, process) {
            if self.is_of_general_services(&entry) {
                self.inbox.extend(self.general_services.drain(&mut self.commands, now, process));
            } else {
                async_events::handle(&mut self.events, &self.queues, &entry);
            }
        }
    }

    fn is_of_general_services(&self, entry: &EventEntry) -> bool {
        let data: CompletionEvent = read_extended(&entry.data());
        entry.kind() == EventType::Comp && data.cqn() == self.general_services.completion_queue()
    }
}
