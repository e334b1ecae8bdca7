//! What a device needs to be controlled: one at a time, behind a lock.

use crate::command::execute::{Patience, Shell};
use crate::command::queue::Lane;
use crate::command::{CommandError, CommandQueue, Message, Request};
use crate::dma::Dma;
use crate::events::{AsyncEvent, EventQueue, Inbox, Sorted, sort};
use crate::gid::GidEntry;
use crate::hal::Hal;
use crate::page_supply::PageSupply;
use crate::trace::{Observer, TraceEvent};
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandHeaderOut};
use bareverbs_prm::ids::UarIndex;
use bareverbs_prm::numbering::CommandOpcode;

/// Objects that wait to be destroyed.
const PARKED: usize = 64;
/// Entries of the RoCE address table that are remembered.
pub(crate) const GIDS: usize = 32;

/// How far the device has been brought up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    pub(crate) announced: bool,
    pub(crate) enabled: bool,
    pub(crate) initialised: bool,
    pub(crate) uar: Option<UarIndex>,
    pub(crate) roce: bool,
}

/// An object of the device: the command that destroys it, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doomed {
    pub(crate) opcode: CommandOpcode,
    pub(crate) number: u32,
}

impl Doomed {
    /// All destroying commands have the number of the object in the third word.
    fn request(self) -> CommandHeaderIn {
        let mut bytes = [0; CommandHeaderIn::SIZE];
        bytes[..2].copy_from_slice(&self.opcode.raw().to_be_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
        zerocopy::transmute!(bytes)
    }
}

/// What an object is made of, in one piece or two.
pub(crate) type Pieces<M> = [Option<Dma<M>>; 2];

struct Parked<M> {
    object: Doomed,
    /// Freed with this, after the object is destroyed.
    #[allow(dead_code, reason = "it is held, not read")]
    memory: Pieces<M>,
}

/// The control part of a device.
pub(crate) struct Control<H: Hal> {
    pub(crate) commands: CommandQueue<H::Dma>,
    pub(crate) pages: PageSupply<H::Dma>,
    pub(crate) events: Option<EventQueue<H::Dma>>,
    pub(crate) inbox: Inbox,
    pub(crate) progress: Progress,
    pub(crate) patience: Patience,
    pub(crate) observer: Option<&'static dyn Observer>,
    pub(crate) gids: [Option<GidEntry>; GIDS],
    parked: heapless::Vec<Parked<H::Dma>, PARKED>,
    leaked: u32,
    blue_flame: u8,
    variant: u8,
}

impl<H: Hal> Control<H> {
    pub(crate) fn new(
        commands: CommandQueue<H::Dma>,
        patience: Patience,
        observer: Option<&'static dyn Observer>,
        blue_flame: bool,
    ) -> Self {
        Self {
            commands,
            pages: PageSupply::default(),
            events: None,
            inbox: Inbox::default(),
            progress: Progress::default(),
            patience,
            observer,
            gids: [None; GIDS],
            parked: heapless::Vec::new(),
            leaked: 0,
            blue_flame: if blue_flame { 0b1110 } else { 0 },
            variant: 0,
        }
    }

    /// Executes a command whose output is fixed. While it waits, events are collected and page requests served.
    pub(crate) fn call<O: Message>(&mut self, hal: &H, request: &Request<'_>) -> Result<O, CommandError> {
        let mut output = O::new_zeroed();
        self.execute(hal, request, output.as_mut_bytes(), size_of::<O>())?;
        Ok(output)
    }

    /// Executes a command of which only the status matters.
    pub(crate) fn run(&mut self, hal: &H, request: &Request<'_>) -> Result<(), CommandError> {
        self.call::<CommandHeaderOut>(hal, request).map(|_| ())
    }

    /// Executes a command and reads the first bytes of its output of `length` bytes.
    pub(crate) fn execute(
        &mut self,
        hal: &H,
        request: &Request<'_>,
        output: &mut [u8],
        length: usize,
    ) -> Result<(), CommandError> {
        let Self { commands, pages, events, inbox, patience, observer, .. } = self;
        let mut shell = Shell { hal, queue: commands, patience: *patience, observer: *observer };
        shell.execute(request, (output, length), Lane::Regular, |shell| serve(shell, events, pages, inbox))
    }

    /// Calls `work` with the page supply and a shell for its commands.
    pub(crate) fn with_pages<T>(
        &mut self,
        hal: &H,
        work: impl FnOnce(&mut PageSupply<H::Dma>, &mut Shell<'_, H>) -> T,
    ) -> T {
        let Self { commands, pages, patience, observer, .. } = self;
        work(pages, &mut Shell { hal, queue: commands, patience: *patience, observer: *observer })
    }

    /// Collects events and serves page requests.
    pub(crate) fn serve(&mut self, hal: &H) {
        let Self { commands, pages, events, inbox, patience, observer, .. } = self;
        let mut shell = Shell { hal, queue: commands, patience: *patience, observer: *observer };
        serve(&mut shell, events, pages, inbox);
    }

    /// Destroys an object and then frees its memory. If the device refuses (something still uses the object) both wait
    /// until something else is destroyed; if there is no room to wait, or the device does not answer, the memory is
    /// never used again.
    pub(crate) fn destroy(&mut self, hal: &H, object: Doomed, memory: Pieces<H::Dma>) {
        match self.run(hal, &Request::new(&object.request())) {
            Ok(()) => {
                drop(memory);
                self.retry_parked(hal);
            }
            Err(_) => self.park(Parked { object, memory }),
        }
    }

    /// Destroys an object that has no memory of its own to free.
    pub(crate) fn destroy_now(&mut self, hal: &H, object: Doomed) -> Result<(), CommandError> {
        self.run(hal, &Request::new(&object.request()))
    }

    fn park(&mut self, parked: Parked<H::Dma>) {
        if let Err(parked) = self.parked.push(parked) {
            self.leak(parked);
        }
    }

    fn leak(&mut self, parked: Parked<H::Dma>) {
        let Doomed { opcode, number } = parked.object;
        self.leaked = self.leaked.saturating_add(1);
        self.observe(TraceEvent::ObjectLeaked { opcode, number });
        core::mem::forget(parked);
    }

    /// Tries all waiting objects again, as long as any goes.
    pub(crate) fn retry_parked(&mut self, hal: &H) {
        let mut index = 0;
        while index < self.parked.len() {
            let request = self.parked[index].object.request();
            match self.run(hal, &Request::new(&request)) {
                Ok(()) => {
                    drop(self.parked.swap_remove(index));
                    index = 0;
                }
                Err(_) => index += 1,
            }
        }
    }

    /// What the device no longer knows after TEARDOWN_HCA can be freed; what it still may know cannot.
    pub(crate) fn settle_parked(&mut self, device_forgot: bool) {
        while let Some(parked) = self.parked.pop() {
            if !device_forgot {
                self.leak(parked);
            }
        }
    }

    /// Objects whose memory is never used again.
    pub(crate) fn leaked(&self) -> u32 {
        self.leaked
    }

    pub(crate) fn observe(&self, event: TraceEvent) {
        if let Some(observer) = self.observer {
            observer.observe(&event);
        }
    }

    /// A BlueFlame register that nobody has. Register 0 is the shared doorbell.
    pub(crate) fn take_blue_flame(&mut self) -> Option<u8> {
        let register = (1..4).find(|register| self.blue_flame >> register & 1 != 0)?;
        self.blue_flame &= !(1 << register);
        Some(register)
    }

    pub(crate) fn give_back_blue_flame(&mut self, register: u8) {
        self.blue_flame |= 1 << register;
    }

    /// The variant byte of the next memory key, so that a key that is gone is not met again soon.
    pub(crate) fn next_variant(&mut self) -> u8 {
        self.variant = self.variant.wrapping_add(1);
        self.variant
    }
}

/// Empties the event queue: page requests are served, the rest goes to the inbox.
fn serve<H: Hal>(
    shell: &mut Shell<'_, H>,
    events: &mut Option<EventQueue<H::Dma>>,
    pages: &mut PageSupply<H::Dma>,
    inbox: &mut Inbox,
) {
    let Some(queue) = events else { return };
    while let Some(entry) = queue.poll(shell.hal) {
        queue.acknowledge(shell.hal);
        match sort(&entry) {
            Sorted::Event(event) => inbox.push(event),
            Sorted::Pages { function, count } => {
                if let Err(error) = pages.serve_request(shell, function, count) {
                    inbox.push(AsyncEvent::PagesFailed(error));
                }
            }
        }
    }
}
