//! The SM's requests to ports and switches.

use super::Manager;
use super::pending::{RequestTarget, TargetState};
use crate::net::subnet::exchange::Exchange;
use crate::wire::management::SubnetPacket;
use bareverbs_prm::time::Time;

impl Manager {
    /// Sends a switch's next request at once, if it has one.
    pub(super) fn wake(&mut self, now: Time, guid: u64) {
        let Some(switch) = self.switches.get_mut(&guid) else { return };
        if !switch.exchange.is_open() && !switch.is_configured() {
            switch.exchange.end(now);
            self.send_request(now, RequestTarget::Switch(guid));
        }
    }

    /// Sends or resends the next request to a target. A target that is up, or does not respond, is left alone until the
    /// next sweep.
    pub(super) fn send_request(&mut self, now: Time, target: RequestTarget) {
        let route = self.route(target);
        let sent = route.and_then(|route| Some((self.begin_request(now, target)?, route)));
        self.follow(target);
        if let Some((mut packet, route)) = sent {
            let leaves = packet.leave_along(&route);
            self.packets.extend(route.first().filter(|_| leaves).map(|port| (*port, packet)));
        }
    }

    /// The next request to a target, unless the target rests.
    fn begin_request(&mut self, now: Time, target: RequestTarget) -> Option<SubnetPacket> {
        let transaction = self.transactions + 1;
        let (exchange, packet) = match target {
            RequestTarget::Port(at) => {
                let neighbour = self.neighbours.get_mut(&at)?;
                if neighbour.rests(now) {
                    return None;
                }
                let packet = neighbour.request(&self.config, self.is_successor, transaction);
                (&mut neighbour.exchange, packet)
            }
            RequestTarget::Switch(guid) => {
                let switch = self.switches.get_mut(&guid)?;
                if switch.rests(now) {
                    return None;
                }
                let packet = switch.request(transaction);
                (&mut switch.exchange, packet)
            }
        };
        exchange.begin(now, &packet);
        self.transactions = transaction;
        Some(packet)
    }

    /// State of the requests to a target; `None` if the target is gone.
    pub(super) fn exchange(&self, target: RequestTarget) -> Option<&Exchange> {
        match target {
            RequestTarget::Port(at) => self.neighbours.get(&at).map(|neighbour| &neighbour.exchange),
            RequestTarget::Switch(guid) => self.switches.get(&guid).map(|switch| &switch.exchange),
        }
    }

    /// Notes what a target waits for, after a step that may have changed that.
    pub(super) fn follow(&mut self, target: RequestTarget) {
        let state = self.state(target);
        self.pending.set(target, state);
    }

    /// What a target waits for; `None` if the target is gone.
    fn state(&self, target: RequestTarget) -> Option<TargetState> {
        let exchange = self.exchange(target)?;
        let is_exploring = match target {
            RequestTarget::Port(at) => {
                exchange.is_open() && self.neighbours.get(&at).is_some_and(|port| !port.is_inspected())
            }
            RequestTarget::Switch(guid) => {
                self.switches.get(&guid).is_some_and(|switch| !switch.is_explored())
            }
        };
        Some(TargetState { transaction: exchange.transaction(), due: exchange.due(), is_exploring })
    }

    /// Checks that what it notes about its targets is what they wait for.
    #[cfg(test)]
    pub(in crate::net::subnet) fn check_pending(&self) {
        let ports = self.neighbours.keys().map(|at| RequestTarget::Port(*at));
        let targets = ports.chain(self.switches.keys().map(|guid| RequestTarget::Switch(*guid)));
        let mut pending = super::PendingRequests::default();
        for target in targets.clone() {
            pending.set(target, self.state(target));
        }
        assert_eq!(self.pending, pending);
        let states = || targets.clone().filter_map(|target| self.state(target));
        let due = states().map(|state| state.due).filter(|due| *due < Time::MAX);
        assert_eq!(self.poll_timeout(), due.min());
        assert_eq!(self.pending.is_exploring(), states().any(|state| state.is_exploring));
    }
}
