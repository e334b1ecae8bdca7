//! The cable of a process, as frame interface for a device in real time.

use crate::{Pace, Wire, WireCounters};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::real_time::FrameIo;
use bareverbs_uverbs::{PortAddresses, SubnetLink, VirtualHost};
use std::io;
use std::time::Instant;

/// Frames from and to the other processes of a network. While the host's cable is unplugged, frames are lost in both
/// directions, but the device's port stays active.
///
/// An InfiniBand port gets its host's LID from an SM in here. Management packets never reach the network; the same
/// holds for programs of the host.
#[derive(Debug)]
pub struct NetworkIo {
    wire: Wire,
    /// `Some` on InfiniBand.
    subnet: Option<SubnetLink>,
    pace: Pace,
    start: Instant,
    /// Whether a frame has passed since the last pause.
    busy: bool,
}

impl NetworkIo {
    /// The cable `wire` of a port of `host`.
    pub fn new(wire: Wire, host: &VirtualHost) -> Self {
        let subnet = host.subnet_port().map(|port| {
            let PortAddresses { guid, .. } = host.port_addresses();
            let mut subnet = SubnetLink::new(guid, port.lid);
            subnet.handle_link(Time::ZERO, true);
            subnet
        });
        Self { wire, subnet, pace: Pace::new(), start: Instant::now(), busy: false }
    }

    /// The next packet of the SM.
    fn hear_manager(&mut self, now: Time) -> Option<Vec<u8>> {
        let subnet = self.subnet.as_mut()?;
        subnet.handle_timeout(now);
        subnet.poll()
    }

    fn now(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Duration::from_nanos(nanos)
    }
}

impl FrameIo for NetworkIo {
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        let now = self.now();
        self.busy = true;
        if self.subnet.as_mut().is_some_and(|subnet| subnet.takes(now, frame)) {
            return Ok(true);
        }
        Ok(!self.wire.has_cable() || self.wire.send(now, frame))
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        let now = self.now();
        self.wire.look(now, status);
        // A tool's device has no connection manager to inform.
        while self.wire.poll_ended(now).is_some() {}
        // Nor does it report its objects.
        while self.wire.poll_object_request().is_some() {}
        if let Some(said) = self.hear_manager(now) {
            *frame = said;
            self.busy = true;
            return Ok(true);
        }
        while self.wire.receive(frame) {
            self.busy = true;
            if self.wire.has_cable() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn wait(&mut self, limit: std::time::Duration) -> io::Result<()> {
        let now = self.now();
        let limit = Duration::from_nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let busy = core::mem::take(&mut self.busy);
        let due = self.subnet.as_ref().and_then(SubnetLink::poll_timeout);
        let wakeup = due.map_or(now + limit, |due| due.clamp(now, now + limit));
        self.pace.rest(now, busy, Some(wakeup));
        Ok(())
    }
}

/// Status of this process for `bareverbs run --list`: lines of a name and a value. A tool does not report its objects.
fn status(WireCounters { sent, received, unreachable, overrun, refused }: WireCounters) -> String {
    format!(
        "pid {}\nprogram bareverbs\nqueue-pairs -\ncompletion-queues -\nmemory-regions -\nsent {sent}\nreceived {received}\nlost {}\ndriven -\n",
        std::process::id(),
        unreachable + overrun + refused
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_serve::network::NetworkDirectory;

    fn plug(network: &NetworkDirectory, name: &str) -> (VirtualHost, NetworkIo) {
        let host = VirtualHost::new(name).unwrap();
        let wire = Wire::plug(network.clone(), &host).unwrap();
        let io = NetworkIo::new(wire, &host);
        (host, io)
    }

    /// Receives with a deadline, because connections are only polled periodically.
    fn receive(io: &mut NetworkIo, frame: &mut Vec<u8>) -> bool {
        let start = Instant::now();
        while start.elapsed() < std::time::Duration::from_millis(200) {
            if io.receive(frame).unwrap() {
                return true;
            }
            io.wait(std::time::Duration::from_millis(1)).unwrap();
        }
        false
    }

    #[test]
    fn a_frame_goes_to_the_host_that_has_its_address_unless_the_cable_is_out() {
        let directory = tempfile::tempdir().unwrap();
        let network = NetworkDirectory::create(directory.path()).unwrap();
        let ((_, mut a), (b_host, mut b)) = (plug(&network, "a"), plug(&network, "b"));
        let mut frame = [&b_host.mac().0[..], &[2; 6], &[0x88, 0xb5], &[7; 46]].concat();
        assert!(a.send(&frame).unwrap());
        let mut got = Vec::new();
        assert!(receive(&mut b, &mut got));
        assert_eq!(got, frame);
        network.set_cable("b", false).unwrap();
        assert!(!receive(&mut b, &mut got), "nothing was sent, and b looks at its cable");
        frame[20] = 8;
        assert!(a.send(&frame).unwrap());
        assert!(!receive(&mut b, &mut got), "the cable is out");
    }

    #[test]
    fn a_process_that_starts_while_the_cable_is_out_knows_it_from_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let network = NetworkDirectory::create(directory.path()).unwrap();
        network.set_cable("a", false).unwrap();
        let [cut, plugged] = ["a", "b"].map(|name| {
            let host = VirtualHost::new(name).unwrap();
            Wire::plug(network.clone(), &host).unwrap()
        });
        assert!(!cut.has_cable() && plugged.has_cable());
    }

    #[test]
    fn hosts_that_are_kept_apart_do_not_reach_each_other_and_reach_others() {
        let directory = tempfile::tempdir().unwrap();
        let network = NetworkDirectory::create(directory.path()).unwrap();
        let [(_, mut a), (b_host, mut b), (c_host, mut c)] = ["a", "b", "c"].map(|name| plug(&network, name));
        let to = |host: &VirtualHost| [&host.mac().0[..], &[2; 6], &[0x88, 0xb5], &[7; 46]].concat();
        let mut got = Vec::new();
        network.set_apart("a", "b", true).unwrap();
        assert!(!receive(&mut a, &mut got), "nothing was sent, and a looks whom it reaches");
        assert!(a.send(&to(&b_host)).unwrap(), "it does not wait for the end of the partition");
        assert!(a.send(&to(&c_host)).unwrap());
        assert!(receive(&mut c, &mut got) && !receive(&mut b, &mut got));
        network.set_apart("a", "b", false).unwrap();
        assert!(!receive(&mut a, &mut got));
        assert!(a.send(&to(&b_host)).unwrap());
        assert!(receive(&mut b, &mut got));
    }
}
