//! The control part of a device: command queue, page supply, event queue, and objects that wait to be
//! destroyed. One thread at a time uses it, under the lock of [`Device::control`](super::Device::control).

use crate::command::{CommandError, CommandQueue, DeviceLoss, Lane, Message, Request};
use crate::dma::{Dma, PrivateBox};
use crate::events::{AsyncEvent, DeviceEvent, EventQueue, Inbox, decode};
use crate::executor::{CommandExecutor, CommandOutput, CommandTiming};
use crate::gid::GidEntry;
use crate::hal::Hal;
use crate::page_supply::{PageError, PageSupply};
use crate::trace::{Observer, TraceEvent};
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::general_object::GeneralObjectIn;
use bareverbs_prm::ids::UarIndex;
use bareverbs_prm::numbering::{CommandOpcode, QueryPagesStage};

/// Maximum number of objects that wait to be destroyed.
const PENDING_DESTROYS: usize = 64;
/// Entries of the RoCE address table that the driver stores.
pub(super) const GIDS: usize = 32;

/// How far the device has been brought up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BootProgress {
    pub(super) enabled: bool,
    pub(super) initialised: bool,
    pub(super) uar: Option<UarIndex>,
    pub(super) roce: bool,
}

/// The command that destroys an object of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DestroyCommand {
    pub(crate) opcode: CommandOpcode,
    /// Number of the object.
    pub(crate) number: u32,
    /// Type of a general object; zero for any other.
    object_type: u16,
}

impl DestroyCommand {
    pub(crate) const fn new(opcode: CommandOpcode, number: u32) -> Self {
        Self { opcode, number, object_type: 0 }
    }

    /// The command for a general object of this type.
    pub(crate) const fn of_type(self, object_type: u16) -> Self {
        Self { object_type, ..self }
    }

    /// Every destroy command has the number of the object where that of a general object has it.
    pub(super) fn input(self) -> GeneralObjectIn {
        let mut input = GeneralObjectIn::new();
        input.set_opcode(self.opcode).set_obj_type(self.object_type).set_obj_id(self.number);
        input
    }
}

/// Memory of an object, in up to two pieces.
pub(crate) type ObjectMemory<M> = [Option<Dma<M>>; 2];

/// An object that the device has not destroyed yet.
struct PendingDestroy<M> {
    command: DestroyCommand,
    /// Freed when the object is destroyed.
    #[allow(dead_code, reason = "it is held, not read")]
    memory: ObjectMemory<M>,
}

/// The control part of a device.
pub(crate) struct Control<H: Hal> {
    pub(super) commands: CommandQueue<H::Dma>,
    pub(super) pages: PageSupply<H::Dma>,
    pub(super) events: Option<EventQueue<H::Dma>>,
    pub(super) inbox: Inbox,
    pub(super) progress: BootProgress,
    pub(super) gids: [Option<GidEntry>; GIDS],
    timing: CommandTiming,
    observer: Option<&'static dyn Observer>,
    pending: heapless::Vec<PendingDestroy<H::Dma>, PENDING_DESTROYS>,
    leaked: u32,
}

/// The control part in memory of its own, because page supply and waiting objects make it large.
pub(super) type PrivateControl<H> = PrivateBox<Control<H>, <H as Hal>::Dma>;

impl<H: Hal> Control<H> {
    pub(super) fn new(
        commands: CommandQueue<H::Dma>,
        timing: CommandTiming,
        observer: Option<&'static dyn Observer>,
    ) -> Self {
        Self {
            commands,
            pages: PageSupply::default(),
            events: None,
            inbox: Inbox::default(),
            progress: BootProgress::default(),
            gids: [None; GIDS],
            timing,
            observer,
            pending: heapless::Vec::new(),
            leaked: 0,
        }
    }

    /// Checks that the device is still there.
    pub(super) fn check_presence(&mut self, hal: &H) -> Result<(), DeviceLoss> {
        self.commands.check_presence(hal)
    }

    /// Executes a command whose output has a fixed size.
    pub(crate) fn call<O: Message>(&mut self, hal: &H, request: &Request<'_>) -> Result<O, CommandError> {
        let mut message = O::new_zeroed();
        let output = CommandOutput { buffer: message.as_mut_bytes(), length: size_of::<O>() };
        self.execute(hal, request, output)?;
        Ok(message)
    }

    /// Executes a command whose output is only a status.
    pub(crate) fn run(&mut self, hal: &H, request: &Request<'_>) -> Result<(), CommandError> {
        self.call::<CommandHeaderOut>(hal, request).map(|_| ())
    }

    /// Executes a command. While it waits for the answer, it collects events and serves page requests.
    pub(crate) fn execute(
        &mut self,
        hal: &H,
        request: &Request<'_>,
        output: CommandOutput<'_>,
    ) -> Result<(), CommandError> {
        let mut split = self.split(hal);
        let EventHandling { events, pages, inbox } = &mut split.events;
        split.executor.execute(request, output, Lane::Regular, |executor| {
            serve(executor, EventHandling { events, pages, inbox });
        })
    }

    /// Gives the device the pages that it needs at `stage`.
    pub(super) fn serve_stage(&mut self, hal: &H, stage: QueryPagesStage) -> Result<(), PageError> {
        let mut split = self.split(hal);
        split.events.pages.serve_stage(&mut split.executor, stage)
    }

    /// Takes all pages back.
    pub(super) fn reclaim_pages(&mut self, hal: &H) -> Result<(), PageError> {
        let mut split = self.split(hal);
        split.events.pages.reclaim(&mut split.executor)
    }

    /// Collects events and serves page requests.
    pub(crate) fn serve(&mut self, hal: &H) {
        let mut split = self.split(hal);
        serve(&mut split.executor, split.events);
    }

    /// The next asynchronous event.
    pub(super) fn poll_event(&mut self, hal: &H) -> Option<AsyncEvent> {
        self.serve(hal);
        self.inbox.pop()
    }

    fn split<'a>(&'a mut self, hal: &'a H) -> SplitControl<'a, H> {
        let Self { commands: queue, pages, events, inbox, timing, observer, .. } = self;
        SplitControl {
            executor: CommandExecutor { hal, queue, timing: *timing, observer: *observer, limit: None },
            events: EventHandling { events, pages, inbox },
        }
    }

    /// Destroys an object, then frees its memory. If the device refuses because the object is still in use,
    /// the object waits until another one is destroyed. If too many objects are waiting already, the memory
    /// is never reused.
    pub(super) fn destroy(&mut self, hal: &H, command: DestroyCommand, memory: ObjectMemory<H::Dma>) {
        // If the device owes a response, do not try: every dropped object would wait for as long. The object
        // is retried once the device has responded.
        self.commands.reclaim(hal);
        if self.commands.is_stalled() {
            return self.postpone(PendingDestroy { command, memory });
        }
        match self.destroy_now(hal, command) {
            Ok(()) => {
                drop(memory);
                self.retry_pending(hal);
            }
            Err(_) => self.postpone(PendingDestroy { command, memory }),
        }
    }

    /// Destroys an object that has no memory to free.
    pub(crate) fn destroy_now(&mut self, hal: &H, command: DestroyCommand) -> Result<(), CommandError> {
        self.run(hal, &Request::new(&command.input()))
    }

    fn postpone(&mut self, object: PendingDestroy<H::Dma>) {
        if let Err(object) = self.pending.push(object) {
            self.leak(object);
        }
    }

    fn leak(&mut self, object: PendingDestroy<H::Dma>) {
        let DestroyCommand { opcode, number, .. } = object.command;
        self.leaked = self.leaked.saturating_add(1);
        self.observe(TraceEvent::ObjectLeaked { opcode, number });
        core::mem::forget(object);
    }

    /// Tries to destroy every waiting object. Starts again whenever one is destroyed, because others may have
    /// waited for it. Stops at the first command without a response.
    pub(super) fn retry_pending(&mut self, hal: &H) {
        let mut index = 0;
        while index < self.pending.len() {
            match self.destroy_now(hal, self.pending[index].command) {
                Ok(()) => {
                    drop(self.pending.swap_remove(index));
                    index = 0;
                }
                Err(error) if error.status().is_none() => return,
                Err(_) => index += 1,
            }
        }
    }

    /// Frees the memory of waiting objects if the device forgot them in TEARDOWN_HCA, and leaks it otherwise.
    pub(super) fn settle_pending(&mut self, device_forgot: bool) {
        while let Some(object) = self.pending.pop() {
            if !device_forgot {
                self.leak(object);
            }
        }
    }

    /// Number of objects whose memory is never reused.
    pub(super) fn leaked(&self) -> u32 {
        self.leaked
    }

    pub(super) fn observe(&self, event: TraceEvent) {
        if let Some(observer) = self.observer {
            observer.observe(&event);
        }
    }
}

/// [`Control`], borrowed in two parts: one executes commands, the other works while a command waits.
struct SplitControl<'a, H: Hal> {
    executor: CommandExecutor<'a, H>,
    events: EventHandling<'a, H::Dma>,
}

struct EventHandling<'a, M> {
    events: &'a mut Option<EventQueue<M>>,
    pages: &'a mut PageSupply<M>,
    inbox: &'a mut Inbox,
}

/// Empties the event queue. Page requests are served, everything else goes to the inbox. If the device writes
/// events faster than the driver reads them, one call handles at most one ring of events, and page requests
/// take no longer than one command may.
fn serve<H: Hal>(executor: &mut CommandExecutor<'_, H>, handling: EventHandling<'_, H::Dma>) {
    let Some(queue) = handling.events else { return };
    let (outer, deadline) = (executor.limit, executor.deadline());
    executor.limit = Some(deadline);
    for _ in 0..queue.entries() {
        let Some(entry) = queue.poll(executor.hal) else { break };
        queue.acknowledge(executor.hal);
        match decode(&entry) {
            DeviceEvent::Async(event) => handling.inbox.push(event),
            DeviceEvent::PageRequest { function, count } => {
                if let Err(error) = handling.pages.serve_request(executor, function, count) {
                    handling.inbox.push(AsyncEvent::PagesFailed(error));
                }
                if executor.hal.now() >= deadline {
                    break;
                }
            }
        }
    }
    executor.limit = outer;
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::command::cq::DestroyCqIn;
    use bareverbs_prm::command::eq::DestroyEqIn;
    use bareverbs_prm::command::mkey::DestroyMkeyIn;
    use bareverbs_prm::command::pd::DeallocPdIn;
    use bareverbs_prm::command::qp::DestroyQpIn;
    use bareverbs_prm::command::queue_counter::DeallocQueueCounterIn;
    use bareverbs_prm::command::srq::{DeallocXrcdIn, DestroyRmpIn, DestroyXrcSrqIn};
    use bareverbs_prm::command::uar::DeallocUarIn;

    #[test]
    fn destroy_commands_have_the_number_where_general_objects_have_it() {
        const NUMBER: usize = GeneralObjectIn::FIELDS.obj_id.offset() / 4;
        for field in [
            DestroyCqIn::FIELDS.cqn,
            DestroyEqIn::FIELDS.eq_number,
            DestroyMkeyIn::FIELDS.mkey_index,
            DeallocPdIn::FIELDS.pd,
            DestroyQpIn::FIELDS.qpn,
            DeallocQueueCounterIn::FIELDS.counter_set_id,
            DeallocXrcdIn::FIELDS.xrcd,
            DestroyRmpIn::FIELDS.rmpn,
            DestroyXrcSrqIn::FIELDS.xrc_srqn,
            DeallocUarIn::FIELDS.uar,
        ] {
            assert_eq!(field.in_dword(NUMBER).put(1), 1, "{field:?}");
        }
        assert_eq!(GeneralObjectIn::FIELDS.opcode, DestroyCqIn::FIELDS.opcode);
    }
}
