//! The parts of a device that all its queues share: the tables of the objects that they name, the port, and the counters.

use super::card::CardState;
use super::completion::CompletionQueues;
use super::config::NicConfig;
use super::contexts::Slab;
use super::counters::{CongestionTally, Counters};
use super::event::EventQueues;
use super::mkey::MkeyTable;
use super::optional_state::OptionalState;
use super::port::Port;
use super::route_templates::RouteTemplates;
use super::shared_receive::{self, SharedReceiveQueue};

/// First protection domain number.
const FIRST_PD: u32 = 1;

/// Shared parts of a device. They stand together so that a [`Bus`](super::bus::Bus) lends all of them with one pointer: the
/// router builds a bus for every frame.
pub(crate) struct SharedParts {
    pub(crate) domains: Slab<()>,
    pub(crate) mkeys: MkeyTable,
    pub(crate) completions: CompletionQueues,
    pub(crate) events: EventQueues,
    pub(crate) shared_receives: Slab<SharedReceiveQueue>,
    pub(crate) port: Port,
    pub(crate) routes: RouteTemplates,
    pub(crate) congestion: CongestionTally,
    pub(crate) counters: Counters,
    pub(crate) optional: OptionalState,
}

impl SharedParts {
    /// The parts of a device that has just been powered on.
    pub(super) fn new(config: &NicConfig) -> Self {
        Self {
            domains: Slab::new(FIRST_PD, 24),
            mkeys: MkeyTable::new(),
            completions: CompletionQueues::new(),
            events: EventQueues::new(),
            shared_receives: Slab::new(shared_receive::FIRST_SRQ, 24),
            port: Port::new(config),
            routes: RouteTemplates::default(),
            congestion: CongestionTally::default(),
            counters: Counters::default(),
            optional: OptionalState {
                card: config.card.map(|function| Box::new(CardState::new(function))),
                observer: None,
                engine: None,
            },
        }
    }
}
