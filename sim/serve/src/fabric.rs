//! A network in real time inside one process: devices that have threads of their own, joined by switches.
//!
//! **What this is.** [`Fabric::plug`] gives a device's runner a [`FabricPort`], which is its [`FrameIo`]. There is a switch for
//! each link layer; the InfiniBand one has the subnet's manager. [`Fabric::plug_wire`] joins a switch with somebody outside.
//!
//! **What it may not do.** It has no delay and loses nothing in silence: a port whose owner does not come for its frames makes
//! the senders wait. Only a flood does not wait for one that is slow. It has room of its own there; what finds that full, too, is
//! lost, counted ([`Fabric::lost`]) and logged.
//! Faults and captures are the runners'.

use crate::real_time::{FrameIo, Outside, OutsideIo, Tally};
use bareverbs_prm::time::Time;
use bareverbs_sim::net::topology::SubnetTopology;
use bareverbs_sim::net::{Egress, Member, SubnetConfig, SubnetSwitchConfig, Switch, SwitchConfig};
use bareverbs_sim::nic::LinkLayer;
use core::fmt;
use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Frames that may wait at a port. Who sends one more waits.
const ROOM: usize = 1024;
/// Room beyond it, for floods only, since they do not wait: a port that is full of frames for itself loses no question of ARP.
const FLOOD_ROOM: usize = 256;
/// Longest rest of the thread that works for the manager and the wires.
const TICK: Duration = Duration::from_millis(20);

/// What wakes the owner of a port.
pub type Waker = Box<dyn FnMut() + Send>;

/// Switches and their ports; see the module. Clones are the same network.
///
/// ```
/// use bareverbs_serve::fabric::Fabric;
/// use bareverbs_serve::real_time::FrameIo;
/// use bareverbs_sim::net::SubnetConfig;
/// use bareverbs_sim::nic::LinkLayer;
///
/// # fn main() -> std::io::Result<()> {
/// let fabric = Fabric::new(SubnetConfig::default())?;
/// let [mut a, mut b] = [(); 2].map(|()| fabric.plug(LinkLayer::Ethernet, Box::new(|| ())));
/// // To everybody, from 02:00:00:00:00:01.
/// let question = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[0; 48]].concat();
/// assert!(a.send(&question)?);
/// let mut frame = Vec::new();
/// assert!(b.receive(&mut frame)? && frame == question);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Fabric(Arc<Mutex<State>>);

struct Port {
    layer: LinkLayer,
    /// Number at its switch.
    number: usize,
    /// Whether somebody is plugged in.
    open: bool,
    waiting: VecDeque<Vec<u8>>,
    waker: Waker,
}

struct State {
    start: Instant,
    ethernet: Switch,
    infiniband: Switch,
    ports: Vec<Port>,
    wires: Vec<OutsideWire>,
    lost: Tally,
}

/// A wire to somebody outside.
struct OutsideWire {
    /// The port that it is.
    index: usize,
    io: Box<dyn OutsideIo>,
    /// A frame from outside for which somebody had no room: it waits, and so do those behind it, in the socket.
    stuck: Option<Vec<u8>>,
    troubles: Tally,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("ports", &self.ports.len()).field("wires", &self.wires.len()).finish()
    }
}

impl Fabric {
    /// A network without ports, and its thread, which ends with the last clone and port.
    pub fn new(subnet: SubnetConfig) -> io::Result<Self> {
        Self::of(Switch::infiniband(subnet))
    }

    /// The same, with an InfiniBand switch that has no manager: one in another network finds it when wires ([`Self::plug_wire`]) lead from there to it.
    pub fn without_manager(switch: &SubnetSwitchConfig) -> io::Result<Self> {
        Self::of(Switch::infiniband_without_manager(switch))
    }

    fn of(infiniband: Switch) -> io::Result<Self> {
        let state = State {
            start: Instant::now(),
            ethernet: Switch::ethernet(&SwitchConfig::default()),
            infiniband,
            ports: Vec::new(),
            wires: Vec::new(),
            lost: Tally::default(),
        };
        let fabric = Self(Arc::new(Mutex::new(state)));
        let weak = Arc::downgrade(&fabric.0);
        std::thread::Builder::new().name("fabric".into()).spawn(move || work(&weak))?;
        Ok(fabric)
    }

    /// Plugs a device of a link layer into the switch of that layer. `waker` is called when there are frames for it.
    pub fn plug(&self, layer: LinkLayer, waker: Waker) -> FabricPort {
        let index = lock(&self.0).add(layer, waker);
        FabricPort { fabric: self.clone(), index }
    }

    /// Joins the switch of a link layer with somebody outside, if that end of the wire can be had.
    pub fn plug_wire(&self, layer: LinkLayer, outside: &Outside) -> io::Result<()> {
        let io = outside.open(layer)?;
        let mut state = lock(&self.0);
        let index = state.add(layer, Box::new(|| ()));
        state.wires.push(OutsideWire { index, io, stuck: None, troubles: Tally::default() });
        Ok(())
    }

    /// Frames that were lost because a port had no room for its copy of a flood.
    pub fn lost(&self) -> u64 {
        lock(&self.0).lost.count()
    }

    /// The InfiniBand subnet as its manager has found it, if it is in this switch: who is joined to whom.
    pub fn topology(&self) -> Option<SubnetTopology> {
        lock(&self.0).infiniband.topology()
    }

    /// Who is in the InfiniBand subnet.
    pub fn members(&self) -> Vec<Member> {
        lock(&self.0).infiniband.members().collect()
    }
}

/// A panic of another thread leaves queues of frames behind, which are whole.
fn lock(state: &Arc<Mutex<State>>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn now(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + bareverbs_prm::time::Duration::from_nanos(nanos)
    }

    const fn switch(&mut self, layer: LinkLayer) -> &mut Switch {
        match layer {
            LinkLayer::Ethernet => &mut self.ethernet,
            LinkLayer::InfiniBand => &mut self.infiniband,
        }
    }

    fn add(&mut self, layer: LinkLayer, waker: Waker) -> usize {
        let now = self.now();
        let number = self.switch(layer).add_port();
        self.ports.push(Port { layer, number, open: true, waiting: VecDeque::new(), waker });
        self.switch(layer).handle_link(now, number, true);
        self.send_out(layer, &[]);
        self.ports.len() - 1
    }

    /// A frame of the owner of a port; false if somebody has no room for it.
    fn forward(&mut self, index: usize, frame: &[u8]) -> bool {
        let Some(port) = self.ports.get(index) else { return true };
        let (layer, number, now) = (port.layer, port.number, self.now());
        self.switch(layer).handle_frame(now, number, frame);
        self.send_out(layer, frame)
    }

    /// Puts what leaves a switch, of which `frame` came in last, into the queues of the ports; false if the one port that
    /// it is for has no room.
    fn send_out(&mut self, layer: LinkLayer, frame: &[u8]) -> bool {
        let mut taken = true;
        while let Some(egress) = self.switch(layer).poll() {
            match egress {
                Egress::Forward { port } => taken = self.put(layer, port, frame, ROOM),
                // A flood does not wait for one that is slow: the others would get the frame twice.
                Egress::Copy { port } if !self.put(layer, port, frame, ROOM + FLOOD_ROOM) => {
                    self.lose(layer, port);
                }
                Egress::Copy { .. } => {}
                // The manager repeats a request that finds no room.
                Egress::Own { port, frame, .. } => {
                    self.put(layer, port, &frame, ROOM);
                }
            }
        }
        taken
    }

    /// Counts a lost frame; the log has the first and then ever fewer.
    fn lose(&mut self, layer: LinkLayer, exit: usize) {
        if let Some(lost) = self.lost.add() {
            tracing::warn!(
                "{layer:?} port {exit} has {} frames waiting: a flooded frame is lost, {lost} so far",
                ROOM + FLOOD_ROOM
            );
        }
    }

    /// Puts a frame into the queue of a port; false if `room` frames wait there.
    fn put(&mut self, layer: LinkLayer, number: usize, frame: &[u8], room: usize) -> bool {
        let port = self.ports.iter_mut().find(|port| port.layer == layer && port.number == number);
        let Some(port) = port.filter(|port| port.open) else { return true };
        if port.waiting.len() >= room {
            return false;
        }
        port.waiting.push_back(frame.to_vec());
        (port.waker)();
        true
    }

    fn unplug(&mut self, index: usize) {
        let now = self.now();
        let Some(port) = self.ports.get_mut(index) else { return };
        port.open = false;
        port.waiting.clear();
        let (layer, number) = (port.layer, port.number);
        self.switch(layer).handle_link(now, number, false);
    }

    /// What the manager has to do, and the frames of the wires in both directions.
    fn tick(&mut self) {
        let now = self.now();
        if self.infiniband.poll_timeout().is_some_and(|due| due <= now) {
            self.infiniband.handle_timeout(now);
            self.send_out(LinkLayer::InfiniBand, &[]);
        }
        for at in (0..self.wires.len()).rev() {
            if let Err(error) = self.take_from_wire(at) {
                tracing::warn!("a wire of the network is broken: {error}; it is unplugged");
                let index = self.wires.swap_remove(at).index;
                self.unplug(index);
            } else if let Err(error) = self.give_to_wire(at)
                && let Some(times) = self.wires[at].troubles.add()
            {
                tracing::warn!("wire of the network: {error} ({times} so far)");
            }
        }
    }

    /// Frames from outside, until one of them has to wait.
    fn take_from_wire(&mut self, at: usize) -> io::Result<()> {
        let (index, stuck) = (self.wires[at].index, self.wires[at].stuck.take());
        let mut frame = stuck.unwrap_or_default();
        while !frame.is_empty() || self.wires[at].io.receive(&mut frame)? {
            if !self.forward(index, &frame) {
                self.wires[at].stuck = Some(frame);
                break;
            }
            frame.clear();
        }
        Ok(())
    }

    /// Frames for outside, until the other process has no room.
    fn give_to_wire(&mut self, at: usize) -> io::Result<()> {
        let index = self.wires[at].index;
        while let Some(frame) = self.ports[index].waiting.front() {
            if !is_sent(self.wires[at].io.send(frame))? {
                break;
            }
            self.ports[index].waiting.pop_front();
        }
        Ok(())
    }
}

/// Nobody at the other end: the frame is lost, as in a cable that ends nowhere.
pub(super) fn is_sent(sent: io::Result<bool>) -> io::Result<bool> {
    match sent {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(true)
        }
        sent => sent,
    }
}

/// The thread of a network. With wires it looks at them often.
fn work(state: &Weak<Mutex<State>>) {
    while let Some(state) = state.upgrade() {
        let has_wires = {
            let mut state = lock(&state);
            state.tick();
            !state.wires.is_empty()
        };
        drop(state);
        std::thread::sleep(if has_wires { Duration::from_micros(100) } else { TICK });
    }
}

/// A device's place at a switch. Dropping it pulls the cable.
#[derive(Debug)]
pub struct FabricPort {
    fabric: Fabric,
    index: usize,
}

impl FrameIo for FabricPort {
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        Ok(lock(&self.fabric.0).forward(self.index, frame))
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        let mut state = lock(&self.fabric.0);
        let waiting = state.ports.get_mut(self.index).and_then(|port| port.waiting.pop_front());
        Ok(waiting.is_some_and(|next| {
            *frame = next;
            true
        }))
    }

    /// The owner waits to be woken instead.
    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        std::thread::sleep(limit.min(TICK));
        Ok(())
    }
}

impl Drop for FabricPort {
    fn drop(&mut self) {
        lock(&self.fabric.0).unplug(self.index);
    }
}

/// A waker that writes to a socket.
pub fn socket_waker(socket: UnixStream) -> Waker {
    let mut socket = socket;
    Box::new(move || {
        // A socket that is full wakes its reader already; one that is closed has none.
        let _ = io::Write::write(&mut socket, &[1]);
    })
}

#[cfg(test)]
mod tests;
