//! Two simulated hosts that exchange RoCE traffic, for tools that show traffic and for tests that disturb it.

use anyhow::{Context as _, anyhow};
use bareverbs::prelude::{
    AccessFlags, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, Gid, GidEntry,
    Hal as _, MacAddress, MemoryRegion, PreparedQueuePair, ProtectionDomain, QueuePair, QueuePairBuilder,
    ReceiveRequest, RemoteSlice, WorkCompletionStatus, WorkRequest,
};
use bareverbs_core::CounterSet;
use bareverbs_hal_sim::{MemoryConfig, SimHal, SimWorld};
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::{LinkConfig, RandomFaults, SwitchConfig};
use bareverbs_sim::nic::{Nic, NicConfig, PortBuffer, PortSpeed};
use bareverbs_sim::run::{Latency, NodeId, TopologyError};
use std::io::Write;
use std::rc::Rc;

/// A handle to the device of a simulated host.
pub type TrafficDevice = Rc<Device<SimHal<Nic>>>;

/// Bytes of a message: four packets of 1024.
const MESSAGE: usize = 4096;
/// How long a message may take, in virtual time.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Parameters of the traffic.
#[derive(Debug, Clone, Copy)]
pub struct TrafficConfig {
    /// Seed of all random choices.
    pub seed: u64,
    /// Fraction of frames to lose.
    pub loss: f64,
    /// Whether the receiver posts its receive before the message arrives. Otherwise it posts it after an RNR NAK.
    pub ready: bool,
    /// Receive buffer of a receiver that takes data more slowly than they arrive.
    pub receive_buffer: Option<PortBuffer>,
    /// Whether both ports send and honour pause frames.
    pub pause: bool,
    /// Puts a switch between the hosts, whose link to the receiver has a tenth of the rate. The switch marks packets
    /// while this many bytes are queued there.
    pub marked_from: Option<u64>,
}

impl Default for TrafficConfig {
    fn default() -> Self {
        Self { seed: 1, loss: 0.0, ready: true, receive_buffer: None, pause: false, marked_from: None }
    }
}

impl TrafficConfig {
    /// The ports of the sender and of the receiver.
    fn ports(&self) -> [NicConfig; 2] {
        let port = |number| NicConfig {
            starts_with_pause: self.pause,
            congestion_control: self.marked_from.is_some(),
            ..NicConfig::new(mac(number))
        };
        let cable = self.marked_from.map(|_| PortSpeed::Gbps10);
        [port(1), NicConfig { receive_buffer: self.receive_buffer, cable, ..port(2) }]
    }

    /// Plugs the cables in.
    fn join(&self, world: &SimWorld, [sender, receiver]: [NodeId; 2]) -> Result<(), TopologyError> {
        if self.marked_from.is_none() {
            return world.connect(sender, receiver, LinkConfig::gigabits(100)).map(drop);
        }
        let config = SwitchConfig { mark_from: self.marked_from, ..SwitchConfig::default() };
        let switch = world.with(|world| world.add_switch("switch", config));
        world.connect(sender, switch, LinkConfig::gigabits(100))?;
        world.connect(switch, receiver, LinkConfig::gigabits(10)).map(drop)
    }
}

/// One of the hosts. Fields are dropped in this order: queues before memory before the device.
struct End {
    queue_pair: QueuePair<TrafficDevice>,
    completions: CompletionQueue<TrafficDevice>,
    memory: MemoryRegion<TrafficDevice>,
    counters: CounterSet<TrafficDevice>,
    device: TrafficDevice,
}

/// Both hosts.
pub struct Traffic {
    sender: End,
    receiver: End,
    config: TrafficConfig,
    messages: u64,
    world: SimWorld,
}

/// A host before it is connected.
struct Unconnected {
    queue_pair: PreparedQueuePair<TrafficDevice>,
    completions: CompletionQueue<TrafficDevice>,
    memory: MemoryRegion<TrafficDevice>,
    counters: CounterSet<TrafficDevice>,
    device: TrafficDevice,
}

impl Traffic {
    /// Boots both hosts and connects them.
    ///
    /// # Errors
    /// The simulator refused a step.
    pub fn start(config: TrafficConfig) -> anyhow::Result<Self> {
        let world = SimWorld::new(config.seed);
        let nodes = config.ports().map(|port| {
            let name = format!("host{}", port.mac.0[5]);
            world.add_node(&name, Nic::new(port), Latency::default(), MemoryConfig::default())
        });
        config.join(&world, nodes).context("joining the hosts")?;
        world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(config.loss)));
        let [sender, receiver] = [0, 1].map(|at| unconnected(world.hal(nodes[at]), at as u8 + 1));
        let (sender, receiver) = (sender?, receiver?);
        let options = ConnectOptions { ack_timeout: 8, ..ConnectOptions::default() };
        let [of_sender, of_receiver] = [&sender, &receiver].map(|end| end.queue_pair.endpoint(0));
        let (of_sender, of_receiver) = (of_sender.context("an address")?, of_receiver.context("an address")?);
        let sender = sender.connect(&of_receiver, options)?;
        let receiver = receiver.connect(&of_sender, options)?;
        Ok(Self { sender, receiver, config, messages: 0, world })
    }

    /// The sender's device.
    pub fn device(&self) -> &TrafficDevice {
        &self.sender.device
    }

    /// The receiver's device.
    pub fn receiver(&self) -> &TrafficDevice {
        &self.receiver.device
    }

    /// Queue pair counters of the sender and of the receiver.
    pub fn counter_sets(&self) -> [&CounterSet<TrafficDevice>; 2] {
        [&self.sender.counters, &self.receiver.counters]
    }

    /// Number of messages delivered.
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Captures every frame from now on to `out`, as pcapng.
    pub fn start_capture(&self, out: Box<dyn Write>) {
        self.world.with(|world| world.start_capture(out));
    }

    /// Like [`Self::start_capture`], and also records the devices' actions.
    pub fn start_recording(&self, out: Box<dyn Write>) {
        self.world.with(|world| world.start_recording(out));
    }

    /// Digest of everything on the wire.
    pub fn digest(&self) -> u64 {
        self.world.digest()
    }

    /// Ends the capture and returns the number of frames.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish_capture(&self) -> anyhow::Result<u64> {
        self.world.with(|world| world.finish_capture()).context("writing the capture")
    }

    /// Sends one message and waits until it has arrived.
    ///
    /// # Errors
    /// The connection broke.
    pub fn step(&mut self) -> anyhow::Result<()> {
        let receive = [self.receiver.memory.slice(0, MESSAGE).context("a receive")?];
        let receive = ReceiveRequest::new(self.messages, &receive);
        if self.config.ready {
            self.receiver.queue_pair.post_receive(&receive).context("posting a receive")?;
        }
        let data = [self.sender.memory.slice(0, MESSAGE).context("a message")?];
        let send = WorkRequest::send(self.messages, &data);
        self.sender.queue_pair.post_send(&send).context("posting a SEND")?;
        if !self.config.ready {
            let hal = self.sender.device.hal();
            let until = hal.now() + Duration::from_micros(100);
            while hal.now() < until {
                hal.relax(until);
            }
            self.receiver.queue_pair.post_receive(&receive).context("posting a receive")?;
        }
        self.sender.complete()?;
        self.receiver.complete()?;
        self.messages += 1;
        Ok(())
    }

    /// Accesses memory with an invalid key, which breaks the connection.
    ///
    /// # Errors
    /// The request was not refused.
    pub fn trespass(&mut self) -> anyhow::Result<()> {
        let region = &self.receiver.memory;
        let beyond = RemoteSlice { address: region.address() + region.len() as u64, ..region.remote(0) };
        let write = WorkRequest::write_inline(self.messages, &[1; 8], beyond);
        self.sender.queue_pair.post_send(&write).context("posting a WRITE")?;
        match self.sender.complete() {
            Err(_) => Ok(()),
            Ok(()) => Err(anyhow!("the peer let a WRITE beyond its memory pass")),
        }
    }
}

impl End {
    /// Waits for one completion.
    fn complete(&mut self) -> anyhow::Result<()> {
        let hal = self.device.hal();
        let deadline = hal.now() + TIMEOUT;
        loop {
            match self.completions.poll_one().context("polling for a completion")? {
                Some(completion) if completion.status == WorkCompletionStatus::Success => return Ok(()),
                Some(completion) => return Err(anyhow!("the connection broke: {}", completion.status)),
                None if hal.now() >= deadline => {
                    return Err(anyhow!("no completion within {TIMEOUT} of virtual time"));
                }
                None => hal.relax(deadline),
            }
        }
    }
}

impl Unconnected {
    fn connect(
        self,
        peer: &bareverbs::prelude::RemoteEndpoint,
        options: ConnectOptions,
    ) -> anyhow::Result<End> {
        let Self { queue_pair, completions, memory, counters, device } = self;
        let queue_pair = queue_pair.connect(peer, options).context("connecting")?;
        Ok(End { queue_pair, completions, memory, counters, device })
    }
}

const fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

fn unconnected(hal: SimHal<Nic>, number: u8) -> anyhow::Result<Unconnected> {
    let device = Rc::new(Device::open(hal, DeviceConfig::default())?);
    let gid = Gid::from_ipv4([10, 0, 0, number]);
    device.set_gid(0, GidEntry::roce_v2(gid, mac(number))).context("setting an address")?;
    let domain = ProtectionDomain::allocate(device.clone()).context("a protection domain")?;
    let entries = CompletionQueueConfig { entries: 128 };
    let completions = CompletionQueue::create(device.clone(), entries).context("a completion queue")?;
    let counters = CounterSet::create(device.clone()).context("a set of counters")?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let memory = MemoryRegion::allocate(&domain, MESSAGE, access).context("memory")?;
    let queue_pair = QueuePairBuilder::new(&domain, &completions, &completions)
        .access(access)
        .counter_set(&counters)
        .build()
        .context("a queue pair")?;
    Ok(Unconnected { queue_pair, completions, memory, counters, device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_and_are_counted() {
        let mut traffic = Traffic::start(TrafficConfig::default()).expect("two hosts");
        (0..5).for_each(|_| traffic.step().expect("a message"));
        assert_eq!(traffic.messages(), 5);
        let [sender, receiver] = traffic.counter_sets().map(|set| set.read().expect("counters"));
        assert_eq!((sender.local_ack_timeout_err, receiver.out_of_sequence), (0, 0));
    }

    #[test]
    fn broken_traffic_shows_in_the_counters() {
        let config = TrafficConfig { loss: 0.1, ..TrafficConfig::default() };
        let mut lossy = Traffic::start(config).expect("two hosts");
        (0..50).for_each(|_| lossy.step().expect("a message"));
        let [sender, receiver] = lossy.counter_sets().map(|set| set.read().expect("counters"));
        assert!(sender.packet_seq_err + sender.local_ack_timeout_err > 0 && receiver.out_of_sequence > 0);
        let mut late = Traffic::start(TrafficConfig { ready: false, ..config }).expect("two hosts");
        (0..5).for_each(|_| late.step().expect("a message"));
        assert!(late.counter_sets()[0].read().expect("counters").rnr_nak_retry_err >= 5);
        late.trespass().expect("refused");
        assert_eq!(late.counter_sets()[0].read().expect("counters").req_remote_access_errors, 1);
    }

    /// The switch marks packets, the receiver counts the marks, and the sender is notified (RoCEv2 A17.9.3).
    #[test]
    fn a_congested_switch_marks_packets_and_the_sender_is_notified() {
        let config = TrafficConfig { marked_from: Some(2048), ..TrafficConfig::default() };
        let mut traffic = Traffic::start(config).expect("two hosts");
        (0..20).for_each(|_| traffic.step().expect("a message"));
        let counters = |device: &TrafficDevice| device.congestion_counters(false).expect("counters");
        let (sender, receiver) = (counters(traffic.device()), counters(traffic.receiver()));
        assert!(receiver.np_ecn_marked_roce_packets > 0);
        assert!(receiver.np_cnp_sent > 0 && sender.rp_cnp_handled > 0);
        assert_eq!(traffic.counter_sets()[0].read().expect("counters").packet_seq_err, 0);
    }
}
