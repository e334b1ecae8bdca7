//! Whether an event queue still works. A queue that overran says so in its context only: the event that would tell is lost too.

use crate::command::{CommandError, Request};
use crate::device::Device;
use crate::hal::Hal;
use bareverbs_prm::command::eq::{QueryEqIn, QueryEqOut};
use bareverbs_prm::ids::Eqn;
use bareverbs_prm::numbering::{CommandOpcode, EventQueueStatus};
use core::fmt;

/// Counters of an event queue have this many bits.
const COUNTER: u32 = 0xff_ffff;

/// What is wrong with an event queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventQueueError {
    /// The device could not write an event, because the queue was full or its memory refused, and writes no more: events were
    /// lost, and no further ones come.
    Broken {
        /// The queue.
        eqn: Eqn,
        /// What the device says of it.
        status: EventQueueStatus,
        /// Its entries.
        entries: u32,
        /// Entries that the device had written and nobody had taken when it was asked.
        waiting: u32,
    },
    /// The device could not be asked.
    Command(CommandError),
}

/// Asks the device for the state of a queue.
pub(crate) fn check<H: Hal>(device: &Device<H>, eqn: Eqn) -> Result<(), EventQueueError> {
    let mut input = QueryEqIn::new();
    input.set_opcode(CommandOpcode::QueryEq).set_eq_number(eqn);
    let output: QueryEqOut = device.call(&Request::new(&input))?;
    let context = output.eq_context_entry();
    match context.status() {
        EventQueueStatus::Ok => Ok(()),
        status => Err(EventQueueError::Broken {
            eqn,
            status,
            entries: 1 << context.log_eq_size(),
            waiting: context.producer_counter().wrapping_sub(context.consumer_counter()) & COUNTER,
        }),
    }
}

impl<H: Hal> Device<H> {
    /// Whether the device still delivers asynchronous events. To be asked now and then by who depends on them, and when events
    /// are missed: the device cannot tell by an event.
    #[doc(alias = "QUERY_EQ")]
    pub fn check_events(&self) -> Result<(), EventQueueError> {
        check(self, self.eqn())
    }
}

impl From<CommandError> for EventQueueError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for EventQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Broken { eqn, status, entries, waiting } => write!(
                f,
                "event queue {eqn} is broken ({status}): it has {entries} entries, {waiting} wait, and events were lost; poll more \
                 often or make it larger (DeviceConfig::event_queue_entries, CompletionChannel::create), and open the device or \
                 make the channel again"
            ),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for EventQueueError {}
