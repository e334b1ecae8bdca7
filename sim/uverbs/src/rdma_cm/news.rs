//! Reports what happens to connections to programs.

use super::call::CmCall;
use super::events::{EventType, Parameters, WaitingEvent, route};
use super::identifier::Identifier;
use crate::Errno;
use crate::process::Process;
use bareverbs_cm::{Event, Extension, Message, News, reject, service_reply};

impl<P: Process> CmCall<'_, P> {
    /// Reports news of connections to their programs.
    pub(super) fn tell_news(&mut self) {
        while let Some(event) = self.cm.manager.poll_event() {
            self.tell_one(event);
        }
    }

    fn tell_one(&mut self, Event { id, news }: Event) {
        match news {
            News::Requested(message) | News::ServiceRequested(message) => {
                return self.on_request(id, &message);
            }
            News::Replied(_) => self.cm.manager.acknowledge(id),
            _ => {}
        }
        let Some(&owner) = self.cm.owners.get(&id) else { return };
        if matches!(
            news,
            News::Rejected(_) | News::Unreachable | News::TimeWaitOver | News::ServiceResolved(_)
        ) {
            // The connection has ended.
            self.cm.owners.remove(&id);
        }
        let Some(known) = self.cm.identifiers.get(&owner) else { return };
        // A program that has not accepted does not know this identifier.
        if known.uid == 0 {
            return;
        }
        let event = self.event(owner, known, &news);
        self.tell(event);
    }

    fn event(&self, id: u32, known: &Identifier, news: &News) -> WaitingEvent {
        let late = -Errno::TimedOut.raw();
        let event = |kind, status, parameters| WaitingEvent::new(id, known, kind, status, &parameters);
        match news {
            News::Replied(message) => event(EventType::ConnectResponse, 0, Parameters::of_reply(message))
                .extended(Extension::of(message)),
            News::Established => event(EventType::Established, 0, Parameters::None),
            News::Rejected(message) => {
                let reason = message.get32(reject::REASON).cast_signed();
                event(EventType::Rejected, reason, Parameters::of_reject(message))
            }
            News::Disconnected { timed_out } => {
                event(EventType::Disconnected, if *timed_out { late } else { 0 }, Parameters::None)
            }
            News::TimeWaitOver => event(EventType::TimeWaitExit, 0, Parameters::None),
            News::ServiceResolved(message) => self.resolved(id, known, message),
            // Requests are reported elsewhere. What is left is that nobody answers.
            News::Unreachable | News::Requested(_) | News::ServiceRequested(_) => {
                event(EventType::Unreachable, late, Parameters::None)
            }
        }
    }

    fn resolved(&self, id: u32, known: &Identifier, message: &Message) -> WaitingEvent {
        let status = i32::from(message.get8(service_reply::STATUS));
        if status != 0 {
            return WaitingEvent::new(id, known, EventType::Unreachable, status, &Parameters::None);
        }
        let gids = &self.port_of(id).gids;
        let way = known.path.map(|path| route(path, gids, known.traffic_class));
        let parameters = way.map_or(Parameters::None, |way| Parameters::of_service_reply(message, way));
        WaitingEvent::new(id, known, EventType::Established, 0, &parameters)
    }
}
