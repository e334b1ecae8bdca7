//! Health of an event queue. Only the context of the queue shows an overrun, because an event about it would
//! be lost, too.

use super::Device;
use crate::command::{CommandError, Request};
use crate::hal::Hal;
use bareverbs_prm::command::eq::{QueryEqIn, QueryEqOut};
use bareverbs_prm::ids::Eqn;
use bareverbs_prm::numbering::{CommandOpcode, EventQueueStatus};
use core::fmt;

/// Counters of an event queue have this many bits.
const COUNTER: u32 = 0xff_ffff;

/// A problem of an event queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventQueueError {
    /// The device could not write an event, because the queue was full or its memory failed. Events were
    /// lost, and the device has stopped writing.
    Broken {
        /// The queue.
        eqn: Eqn,
        /// Status reported by the device.
        status: EventQueueStatus,
        /// Number of its entries.
        entries: u32,
        /// Entries that the device had written and the driver had not read.
        waiting: u32,
    },
    /// The device could not be queried.
    Command(CommandError),
}

/// Queries the state of a queue from the device.
pub(crate) fn check_event_queue<H: Hal>(device: &Device<H>, eqn: Eqn) -> Result<(), EventQueueError> {
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
    /// Checks that the device still delivers asynchronous events. An application that depends on events should call
    /// this regularly, and whenever an event seems to be missing, because no event can report this.
    ///
    /// # Errors
    /// The queue overran or its memory failed, or the device could not be queried.
    #[doc(alias = "QUERY_EQ")]
    pub fn check_events(&self) -> Result<(), EventQueueError> {
        check_event_queue(self, self.eqn())
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
