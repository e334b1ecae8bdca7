//! A network inside one process in real time: devices on their own threads, connected by switches.
//!
//! **What this is.** [`Fabric::plug`] returns a [`FabricPort`], the [`FrameIo`] for a device's runner. There is one
//! switch per link layer; the InfiniBand one hosts the subnet manager. [`Fabric::plug_wire`] connects a switch to the
//! outside. [`Fabric::of_topology`] builds all InfiniBand switches and cables of a site, and [`Fabric::plug_at`] plugs a
//! device in where the site has a host.
//!
//! **What it may not do.** It adds no delay and drops nothing silently: a port whose owner does not collect its frames
//! makes the senders wait. Only floods and subnet management packets (IBTA v1.4 §7.6.4) do not wait for a slow port. They
//! have extra room there; a frame that finds that full as well is dropped, counted ([`Fabric::lost`]) and logged. A
//! management packet still waits behind data in its sender. Faults and captures belong to the runners.

mod error;
mod site;

pub use crate::real_time::Waker;
use crate::real_time::{FrameIo, Outside, OutsideIo, Tally};
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::Time;
use bareverbs_sim::net::topology::SubnetTopology;
use bareverbs_sim::net::{Egress, Member, SubnetConfig, SubnetSwitchConfig, Switch, SwitchConfig};
use bareverbs_sim::nic::LinkLayer;
use bareverbs_sim::wire::infiniband::{MANAGEMENT_LANE, virtual_lane};
use core::fmt;
pub use error::PlugError;
use site::{At, Site};
pub use site::{HostPlace, SiteError};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Frames that may wait at a port before senders have to wait.
const ROOM: usize = 1024;
/// Extra room for floods and subnet management, which do not wait: a port that is full of unicast frames still receives
/// ARP requests and is still managed.
const FLOOD_ROOM: usize = 256;
/// Most hops between switches that one frame may cause, counting each copy: more than the largest group needs.
const MOST_HOPS: usize = 16_384;
/// Longest pause of the thread that serves the subnet manager and the wires.
const TICK: Duration = Duration::from_millis(20);
/// Pause of that thread if there are wires.
const WIRE_TICK: Duration = Duration::from_micros(100);
/// Pause of that thread while a wire has more frames than one batch. A device that waits for the network has time to
/// wake and to go first: without a pause the thread would take the lock again at once, before any device.
const BUSY_TICK: Duration = Duration::from_micros(10);
/// Frames to take from a wire before devices have their turn.
const WIRE_BATCH: usize = 64;

/// Switches and their ports; see the module. Clones refer to the same network.
///
/// ```
/// use bareverbs_serve::fabric::Fabric;
/// use bareverbs_serve::real_time::FrameIo;
/// use bareverbs_sim::net::SubnetConfig;
/// use bareverbs_sim::nic::LinkLayer;
///
/// # fn main() -> std::io::Result<()> {
/// let fabric = Fabric::new(SubnetConfig::default())?;
/// let mut a = fabric.plug(LinkLayer::Ethernet, Box::new(|| ()))?;
/// let mut b = fabric.plug(LinkLayer::Ethernet, Box::new(|| ()))?;
/// // To everybody, from 02:00:00:00:00:01.
/// let request = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[0; 48]].concat();
/// assert!(a.send(&request)?);
/// let mut frame = Vec::new();
/// assert!(b.receive(&mut frame)? && frame == request);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Fabric(Arc<Mutex<State>>);

struct Port {
    layer: LinkLayer,
    /// Switch and port number.
    at: At,
    /// Whether a device is plugged in.
    open: bool,
    /// Whether the switch has the port for this device only, so that another may have it afterwards.
    is_reusable: bool,
    waiting: VecDeque<Vec<u8>>,
    waker: Waker,
}

struct State {
    start: Instant,
    ethernet: Switch,
    /// The first one has the manager, if one has.
    infiniband: Vec<Switch>,
    /// Cables between InfiniBand switches, from both their ends.
    cables: BTreeMap<At, At>,
    ports: Vec<Port>,
    /// Ports of switches whose devices are gone.
    vacant: Vec<(LinkLayer, At)>,
    wires: Vec<OutsideWire>,
    lost: Tally,
    unreachable: u64,
}

/// A wire to the outside.
struct OutsideWire {
    /// Index of its port.
    index: usize,
    io: Box<dyn OutsideIo>,
    /// A frame from outside that some receiver had no room for. It waits, and those behind it wait in the socket.
    stuck: Option<Vec<u8>>,
    troubles: Tally,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("ports", &self.ports.len()).field("wires", &self.wires.len()).finish()
    }
}

impl Fabric {
    /// A network without ports, and its thread, which ends with the last clone and the last port.
    pub fn new(subnet: SubnetConfig) -> io::Result<Self> {
        Self::of(Switch::infiniband(subnet))
    }

    /// A network whose InfiniBand switch has no SM. An SM in another network discovers it through wires
    /// ([`Self::plug_wire`]).
    pub fn without_manager(switch: &SubnetSwitchConfig) -> io::Result<Self> {
        Self::of(Switch::infiniband_without_manager(switch))
    }

    /// The same with the InfiniBand switches and cables of a site. No host is there yet: each has a place ([`Self::plug_at`]).
    pub fn of_topology(
        topology: &SubnetTopology,
        subnet: &SubnetConfig,
    ) -> Result<(Self, Vec<HostPlace>), SiteError> {
        let site = Site::build(topology, subnet)?;
        let fabric = Self::start(site.switches, site.cables).map_err(SiteError::Thread)?;
        Ok((fabric, site.hosts))
    }

    fn of(infiniband: Switch) -> io::Result<Self> {
        Self::start(vec![infiniband], BTreeMap::new())
    }

    fn start(infiniband: Vec<Switch>, cables: BTreeMap<At, At>) -> io::Result<Self> {
        let state = State {
            start: Instant::now(),
            ethernet: Switch::ethernet(&SwitchConfig::default()),
            infiniband,
            cables,
            ports: Vec::new(),
            vacant: Vec::new(),
            wires: Vec::new(),
            lost: Tally::default(),
            unreachable: 0,
        };
        let fabric = Self(Arc::new(Mutex::new(state)));
        let weak = Arc::downgrade(&fabric.0);
        std::thread::Builder::new().name("fabric".into()).spawn(move || work(&weak))?;
        Ok(fabric)
    }

    /// Plugs a device into the switch of its link layer; fails if all ports of the switch are in use. `waker` is called
    /// when frames have arrived for the device. [`FabricPort::announce`] tells the switch its address.
    pub fn plug(&self, layer: LinkLayer, waker: Waker) -> Result<FabricPort, PlugError> {
        let index = lock(&self.0).add(layer, waker)?;
        Ok(FabricPort { fabric: self.clone(), index })
    }

    /// Plugs an InfiniBand device in where the topology has this host. A device that is already there is unplugged.
    pub fn plug_at(&self, place: HostPlace, waker: Waker) -> FabricPort {
        let index = lock(&self.0).add_at(LinkLayer::InfiniBand, place.at, false, waker);
        FabricPort { fabric: self.clone(), index }
    }

    /// Connects the switch of a link layer to the outside; fails if this end of the wire cannot be opened, or if all
    /// ports of the switch are in use.
    pub fn plug_wire(&self, layer: LinkLayer, outside: &Outside) -> io::Result<()> {
        let io = outside.open(layer)?;
        let mut state = lock(&self.0);
        let index = state.add(layer, Box::new(|| ()))?;
        state.wires.push(OutsideWire { index, io, stuck: None, troubles: Tally::default() });
        Ok(())
    }

    /// Flooded frames and management packets that were dropped because a port had no room.
    pub fn lost(&self) -> u64 {
        lock(&self.0).lost.count()
    }

    /// Frames that reached nobody: for a port without a device, from a device whose place another one has, or for a wire
    /// without a far end. A flood passes by ports without a device, so its copies do not count.
    pub fn unreachable(&self) -> u64 {
        lock(&self.0).unreachable
    }

    /// The InfiniBand subnet as the SM on this switch has discovered it.
    pub fn topology(&self) -> Option<SubnetTopology> {
        lock(&self.0).infiniband.iter().find_map(Switch::topology)
    }

    /// Ports of the InfiniBand subnet that have a LID.
    pub fn members(&self) -> Vec<Member> {
        lock(&self.0).infiniband.iter().flat_map(Switch::members).collect()
    }
}

/// Queues of frames are consistent even if another thread panicked.
fn lock(state: &Arc<Mutex<State>>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn now(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + bareverbs_prm::time::Duration::from_nanos(nanos)
    }

    fn switch(&mut self, layer: LinkLayer, index: usize) -> &mut Switch {
        match layer {
            LinkLayer::Ethernet => &mut self.ethernet,
            LinkLayer::InfiniBand => &mut self.infiniband[index],
        }
    }

    /// At a port of the switch, or of the first one, that no other device has.
    fn add(&mut self, layer: LinkLayer, waker: Waker) -> Result<usize, PlugError> {
        let at = self.free_port(layer)?;
        Ok(self.add_at(layer, at, true, waker))
    }

    fn free_port(&mut self, layer: LinkLayer) -> Result<At, PlugError> {
        if let Some(vacant) = self.vacant.iter().position(|(own, _)| *own == layer) {
            return Ok(self.vacant.swap_remove(vacant).1);
        }
        let switch = self.switch(layer, 0);
        // No packet of subnet management could name a further port, so its device would stay without a LID for ever.
        if !switch.has_room() {
            return Err(PlugError { layer, ports: switch.ports() });
        }
        Ok((0, switch.add_port()))
    }

    fn add_at(&mut self, layer: LinkLayer, at: At, is_reusable: bool, waker: Waker) -> usize {
        let now = self.now();
        let before = self.ports.iter().position(|port| port.layer == layer && port.at == at && port.open);
        if let Some(before) = before {
            self.unplug(before);
        }
        self.ports.push(Port { layer, at, open: true, is_reusable, waiting: VecDeque::new(), waker });
        self.switch(layer, at.0).handle_link(now, at.1, true);
        self.send_out(layer, at.0, &[]);
        self.ports.len() - 1
    }

    /// Tells the switch that this address is behind a port, as a frame that the switch forwards nowhere.
    fn announce(&mut self, index: usize, address: MacAddress) {
        let Some(port) = self.ports.get(index).filter(|port| port.open && port.layer == LinkLayer::Ethernet)
        else {
            return;
        };
        let (at, now) = (port.at, self.now());
        self.ethernet.handle_frame(now, at.1, &[address.0, address.0].concat());
    }

    /// Handles a frame from a port's owner; false if some receiver has no room for it.
    fn forward(&mut self, index: usize, frame: &[u8]) -> bool {
        let Some(port) = self.ports.get(index).filter(|port| port.open) else {
            // Another device has its place now.
            self.unreachable += 1;
            return true;
        };
        let (layer, at, now) = (port.layer, port.at, self.now());
        self.switch(layer, at.0).handle_frame(now, at.1, frame);
        self.send_out(layer, at.0, frame)
    }

    /// Delivers a switch's output, through further switches too, where `frame` is the last frame that came in; false if
    /// the single destination port has no room.
    fn send_out(&mut self, layer: LinkLayer, switch: usize, frame: &[u8]) -> bool {
        let mut passing = VecDeque::new();
        let mut taken = self.leave(layer, switch, frame, &mut passing);
        for _ in 0..MOST_HOPS {
            let Some((at, frame)) = passing.pop_front() else { return taken };
            let now = self.now();
            self.switch(layer, at.0).handle_frame(now, at.1, &frame);
            taken &= self.leave(layer, at.0, &frame, &mut passing);
        }
        // While the SM rewrites the tables, they may form a loop for a moment.
        passing.iter().for_each(|(at, _)| self.lose(layer, at.1));
        taken
    }

    /// Queues a switch's output at its ports, and adds what goes on to another switch to `passing`.
    fn leave(
        &mut self,
        layer: LinkLayer,
        switch: usize,
        frame: &[u8],
        passing: &mut VecDeque<(At, Vec<u8>)>,
    ) -> bool {
        let mut taken = true;
        while let Some(egress) = self.switch(layer, switch).poll() {
            let (Egress::Forward { port } | Egress::Copy { port } | Egress::Own { port, .. }) = egress;
            let far = self.cables.get(&(switch, port)).filter(|_| layer == LinkLayer::InfiniBand);
            if let Some(far) = far {
                let frame = if let Egress::Own { frame, .. } = egress { frame } else { frame.to_vec() };
                passing.push_back((*far, frame));
                continue;
            }
            let at = (switch, port);
            match egress {
                Egress::Forward { .. } if is_management(layer, frame) => self.put_or_lose(layer, at, frame),
                Egress::Forward { .. } => taken = self.put(layer, at, frame, ROOM),
                // A flood does not know where devices are.
                Egress::Copy { .. } if self.device_at(layer, at).is_none() => {}
                // It must not wait for a slow port: a retry would deliver the frame twice to the others.
                Egress::Copy { .. } => self.put_or_lose(layer, at, frame),
                // The SM repeats a request that found no room.
                Egress::Own { frame, .. } => self.put_or_lose(layer, at, &frame),
            }
        }
        taken
    }

    /// Queues a frame that does not wait at a port, or drops it.
    fn put_or_lose(&mut self, layer: LinkLayer, at: At, frame: &[u8]) {
        if !self.put(layer, at, frame, ROOM + FLOOD_ROOM) {
            self.lose(layer, at.1);
        }
    }

    /// Counts a lost frame. Logs the first, then exponentially fewer.
    fn lose(&mut self, layer: LinkLayer, exit: usize) {
        if let Some(lost) = self.lost.add() {
            tracing::warn!(
                "{layer:?} port {exit} has {} frames waiting: a frame that does not wait, flooded or of management, is lost, {lost} so far",
                ROOM + FLOOD_ROOM
            );
        }
    }

    fn device_at(&mut self, layer: LinkLayer, at: At) -> Option<&mut Port> {
        self.ports.iter_mut().find(|port| port.layer == layer && port.at == at && port.open)
    }

    /// Queues a frame at a port; false if `room` frames are waiting there.
    fn put(&mut self, layer: LinkLayer, at: At, frame: &[u8], room: usize) -> bool {
        let Some(port) = self.device_at(layer, at) else {
            self.unreachable += 1;
            return true;
        };
        if port.waiting.len() >= room {
            return false;
        }
        port.waiting.push_back(frame.to_vec());
        (port.waker)();
        true
    }

    /// The device's end of a cable came up or went down. An SM begins with the port at once, not at its next sweep. An
    /// Ethernet switch would only forget addresses, which the next frame teaches it again.
    fn set_link_up(&mut self, index: usize, up: bool) {
        let now = self.now();
        let port = self.ports.get(index).filter(|port| port.open && port.layer == LinkLayer::InfiniBand);
        let Some(Port { layer, at, .. }) = port else { return };
        let (layer, at) = (*layer, *at);
        self.switch(layer, at.0).handle_link(now, at.1, up);
        self.send_out(layer, at.0, &[]);
    }

    fn unplug(&mut self, index: usize) {
        let now = self.now();
        let Some(port) = self.ports.get_mut(index) else { return };
        if !core::mem::take(&mut port.open) {
            return;
        }
        port.waiting.clear();
        let (layer, at) = (port.layer, port.at);
        if port.is_reusable {
            self.vacant.push((layer, at));
        }
        self.switch(layer, at.0).handle_link(now, at.1, false);
    }

    /// Runs what the SM has to do, and moves the wires' frames in both directions. Returns how long to pause.
    fn tick(&mut self) -> Duration {
        let now = self.now();
        for switch in 0..self.infiniband.len() {
            if self.infiniband[switch].poll_timeout().is_some_and(|due| due <= now) {
                self.infiniband[switch].handle_timeout(now);
                self.send_out(LinkLayer::InfiniBand, switch, &[]);
            }
        }
        let mut is_busy = false;
        for at in (0..self.wires.len()).rev() {
            is_busy |= self.serve_wire(at);
        }
        match (is_busy, self.wires.is_empty()) {
            (true, _) => BUSY_TICK,
            (false, false) => WIRE_TICK,
            (false, true) => TICK,
        }
    }

    /// Moves frames of a wire in both directions, and unplugs it if it is broken. Returns whether more frames may have
    /// arrived at it.
    fn serve_wire(&mut self, at: usize) -> bool {
        let has_more = match self.take_from_wire(at) {
            Ok(has_more) => has_more,
            Err(error) => {
                tracing::warn!("a wire of the network is broken: {error}; it is unplugged");
                let index = self.wires.swap_remove(at).index;
                self.unplug(index);
                return false;
            }
        };
        if let Err(error) = self.give_to_wire(at)
            && let Some(times) = self.wires[at].troubles.add()
        {
            tracing::warn!("wire of the network: {error} ({times} so far)");
        }
        has_more
    }

    /// Takes a batch of frames from outside, or fewer if one of them has to wait. Returns whether more may be there.
    fn take_from_wire(&mut self, at: usize) -> io::Result<bool> {
        let (index, stuck) = (self.wires[at].index, self.wires[at].stuck.take());
        let mut frame = stuck.unwrap_or_default();
        for _ in 0..WIRE_BATCH {
            if frame.is_empty() && !self.wires[at].io.receive(&mut frame)? {
                return Ok(false);
            }
            if !self.forward(index, &frame) {
                self.wires[at].stuck = Some(frame);
                return Ok(false);
            }
            frame.clear();
        }
        Ok(true)
    }

    /// Sends frames to the outside until the peer has no room.
    fn give_to_wire(&mut self, at: usize) -> io::Result<()> {
        let index = self.wires[at].index;
        while let Some(frame) = self.ports[index].waiting.front() {
            let sent = self.wires[at].io.send(frame);
            if !is_sent(sent, &mut self.unreachable)? {
                break;
            }
            self.ports[index].waiting.pop_front();
        }
        Ok(())
    }
}

/// Whether a frame is a subnet management packet.
fn is_management(layer: LinkLayer, frame: &[u8]) -> bool {
    layer == LinkLayer::InfiniBand && virtual_lane(frame) == Some(MANAGEMENT_LANE)
}

/// Treats a missing peer as an unconnected cable: the frame is lost, and counted.
pub(super) fn is_sent(sent: io::Result<bool>, lost: &mut u64) -> io::Result<bool> {
    match sent {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            *lost += 1;
            Ok(true)
        }
        sent => sent,
    }
}

/// The thread of a network. Polls often if there are wires.
fn work(state: &Weak<Mutex<State>>) {
    while let Some(state) = state.upgrade() {
        let pause = lock(&state).tick();
        drop(state);
        std::thread::sleep(pause);
    }
}

/// A device's port at a switch. Dropping it pulls the cable.
#[derive(Debug)]
pub struct FabricPort {
    fabric: Fabric,
    index: usize,
}

impl FabricPort {
    /// Tells the switch the device's MAC address before the device has sent anything, so that frames to it need no
    /// flood. The switch treats the address like one that it has learned: it forgets the address when the device is
    /// unplugged or silent for long, because the address may then be behind another port. Does nothing on InfiniBand,
    /// where the SM assigns LIDs.
    pub fn announce(&self, address: MacAddress) {
        lock(&self.fabric.0).announce(self.index, address);
    }
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

    /// The owner is woken instead of waiting here.
    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        std::thread::sleep(limit.min(TICK));
        Ok(())
    }

    fn set_link_up(&mut self, up: bool) {
        lock(&self.fabric.0).set_link_up(self.index, up);
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
        // A full socket will wake its reader anyway; a closed one has no reader.
        let _ = io::Write::write(&mut socket, &[1]);
    })
}

#[cfg(test)]
mod tests;
