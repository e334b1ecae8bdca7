//! Faults and controls for hosts and networks, immediate or through [`SimCluster::schedule`].

use crate::cluster::SimCluster;
use crate::state::Port;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::{LinkConfig, RandomFaults, ScriptedFault};
use bareverbs_sim::run::TopologyError;
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

impl SimCluster {
    /// Cuts the power of a host: its tasks stop, its NICs lose their state, its links go down. Its disk survives. Has
    /// no effect on a host that is down.
    pub fn crash(&self, host: usize) {
        let ports = self.state.host(host, |state| {
            let was_up = core::mem::replace(&mut state.is_up, false);
            (state.is_paused, state.set_aside) = (false, Vec::new());
            state.boots += u32::from(was_up);
            was_up.then(|| state.ports.clone())
        });
        let Some(ports) = ports else { return };
        for port in &ports {
            self.reset(*port);
            self.set_cable(*port, false);
        }
        // The destructors of the driver find the device lost, so none of them waits.
        drop(self.state.executor.take_tasks_of(host));
    }

    /// Powers a host up again and restarts its tasks.
    pub fn restart(&self, host: usize) {
        let (ports, tasks, boots) = self.state.host(host, |state| {
            let was_up = core::mem::replace(&mut state.is_up, true);
            let tasks = if was_up { Vec::new() } else { state.tasks.clone() };
            (state.ports.clone(), tasks, state.boots)
        });
        ports.iter().for_each(|port| self.set_cable(*port, true));
        for (boot, required) in tasks {
            self.start(host, boots, &boot, required);
        }
    }

    /// Pauses the processes of a host. Its NICs keep running: peers access its memory, and messages arrive.
    pub fn pause(&self, host: usize) {
        self.state.host(host, |state| state.is_paused = true);
    }

    /// Resumes the processes of a host.
    pub fn resume(&self, host: usize) {
        let set_aside = self.state.host(host, |state| {
            state.is_paused = false;
            core::mem::take(&mut state.set_aside)
        });
        set_aside.into_iter().for_each(|task| self.state.executor.wake(task));
    }

    /// Makes the clock of a host fast by `ppm` parts per million, or slow if `ppm` is negative.
    pub fn set_clock_rate(&self, host: usize, ppm: i64) {
        let now = self.now();
        self.state.host(host, |state| state.clock.set_rate(now, ppm));
        self.state.executor.wake_host(host);
    }

    /// Moves the clock of a host forward.
    pub fn jump_clock(&self, host: usize, by: Duration) {
        self.state.host(host, |state| state.clock.jump(by));
        self.state.executor.wake_host(host);
    }

    /// Resets a NIC without its driver's knowledge, as another program on the host could.
    pub fn reset_nic(&self, host: usize, port: usize) {
        self.reset(self.state.port(host, port));
        self.state.host(host, |state| state.alarms += 1);
        self.state.executor.wake_host(host);
    }

    /// Sets the link of a port up or down, as if its cable were plugged in or pulled.
    pub fn set_link_up(&self, host: usize, port: usize, up: bool) {
        self.set_cable(self.state.port(host, port), up);
    }

    /// Drops all frames between two hosts, in both directions, until [`Self::heal`]. Other hosts still reach both.
    pub fn partition(&self, a: usize, b: usize) {
        self.set_partition(a, b, true);
    }

    /// Ends a partition.
    pub fn heal(&self, a: usize, b: usize) {
        self.set_partition(a, b, false);
    }

    /// Changes rate and latency of a port's cable, for frames sent from now on.
    pub fn set_link(&self, host: usize, port: usize, config: LinkConfig) {
        let link = self.state.port(host, port).link;
        self.state.world.with(|world| expect(world.set_link_config(link, config)));
    }

    /// Sets the random faults on a port's cable, in both directions.
    pub fn set_faults(&self, host: usize, port: usize, faults: RandomFaults) {
        let Port { node, switch, .. } = self.state.port(host, port);
        self.state.world.with(|world| {
            expect(world.set_random_faults(node, switch, faults));
            expect(world.set_random_faults(switch, node, faults));
        });
    }

    /// Sets the random faults on every cable, in both directions.
    pub fn set_faults_everywhere(&self, faults: RandomFaults) {
        self.state.world.with(|world| world.set_random_faults_everywhere(faults));
    }

    /// Arms a scripted fault on a port's cable, once per direction.
    pub fn script_fault(&self, host: usize, port: usize, fault: ScriptedFault) {
        let Port { node, switch, .. } = self.state.port(host, port);
        self.state.world.with(|world| {
            expect(world.script_fault(node, switch, fault).map(drop));
            expect(world.script_fault(switch, node, fault).map(drop));
        });
    }

    /// Starts recording every frame into memory as pcapng; read it with [`Capture::bytes`].
    pub fn capture(&self) -> Capture {
        let bytes = Capture::default();
        self.state.world.with(|world| world.start_capture(Box::new(bytes.clone())));
        bytes
    }

    /// Starts recording every frame into `out`, such as a file, as pcapng.
    pub fn capture_into(&self, out: Box<dyn Write>) {
        self.state.world.with(|world| world.start_capture(out));
    }

    fn set_partition(&self, a: usize, b: usize, cut: bool) {
        let ports = |host| self.state.host(host, |state| state.ports.clone());
        let (from, to) = (ports(a), ports(b));
        self.state.world.with(|world| {
            for (a, b) in from.iter().flat_map(|a| to.iter().map(|b| (a.node, *b))) {
                world.set_partition(a, b.node, cut);
            }
        });
    }

    fn reset(&self, port: Port) {
        self.state.world.with(|world| {
            world.with_device(port.node, |nic, _, now| nic.reset(now));
            for vector in 0..world.device(port.node).config().vectors {
                world.take_interrupts(port.node, vector);
            }
        });
    }

    fn set_cable(&self, port: Port, up: bool) {
        self.state.world.with(|world| expect(world.set_link_up(port.link, up)));
    }
}

/// Unwraps the result of an operation on a link or node that the cluster itself created.
fn expect(done: Result<(), TopologyError>) {
    done.expect("the cluster made this link");
}

/// A capture in memory. Clones refer to the same capture.
#[derive(Debug, Clone, Default)]
pub struct Capture(Rc<RefCell<Vec<u8>>>);

impl Capture {
    /// A copy of everything recorded so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.borrow().clone()
    }
}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
