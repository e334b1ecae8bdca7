//! A shared receive queue: a server that cannot know which peer sends next posts receives for all of them to one queue,
//! and refills it when the device reports that few are left.
//!
//! `cargo run -p bareverbs --features sim --example shared_receives`

use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;
use bareverbs::sim::{MemoryConfig, Nic, NicConfig, NodeId, Preset, SimHal, SimWorld};
use bareverbs::{AsyncEvent, Connected};
use std::error::Error;
use std::rc::Rc;

type Handle = Rc<Device<SimHal>>;

const CLIENTS: usize = 3;
const MESSAGES: usize = 10;
const RECEIVES: usize = 7;
/// The device raises its limit event when fewer receives than this are left.
const LIMIT: u16 = 4;
const LENGTH: usize = 64;

/// A host's device, protection domain and memory.
struct Host {
    device: Handle,
    domain: ProtectionDomain<Handle>,
    memory: MemoryRegion<Handle>,
    completions: CompletionQueue<Handle>,
}

impl Host {
    fn open(hal: SimHal, number: u8) -> Result<Self, Box<dyn Error>> {
        let device = Rc::new(Device::open(hal, DeviceConfig::default())?);
        device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, number]), mac(number)))?;
        let domain = ProtectionDomain::allocate(device.clone())?;
        let memory = MemoryRegion::allocate(&domain, RECEIVES * LENGTH, AccessFlags::LOCAL_WRITE)?;
        let completions = CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 64 })?;
        Ok(Self { device, domain, memory, completions })
    }

    fn next_completion(&mut self) -> Result<WorkCompletion, Box<dyn Error>> {
        let deadline = self.device.hal().now() + Duration::from_millis(1);
        Ok(self.completions.wait_one(deadline)?.into_result()?)
    }
}

/// The server: who sent each message, and which slot of its memory holds it.
struct Server {
    host: Host,
    queue: SharedReceiveQueue<Handle>,
    /// Memory slots without a posted receive.
    free: Vec<usize>,
    refills: usize,
}

impl Server {
    fn new(host: Host) -> Result<Self, Box<dyn Error>> {
        let config = bareverbs::SharedReceiveQueueConfig { receives: RECEIVES as u32, slices: 1 };
        let queue = SharedReceiveQueue::create(&host.domain, config)?;
        let mut server = Self { host, queue, free: (0..RECEIVES).collect(), refills: 0 };
        server.refill()?;
        Ok(server)
    }

    // ANCHOR: receives
    /// Posts every free slot with one doorbell and arms the limit event.
    fn refill(&mut self) -> Result<(), Box<dyn Error>> {
        let mut batch = self.queue.receive_batch();
        for piece in self.free.drain(..) {
            let place = [self.host.memory.slice(piece * LENGTH, LENGTH)?];
            batch.post(&ReceiveRequest::new(piece as u64, &place))?;
        }
        batch.ring();
        Ok(self.queue.arm(LIMIT)?)
    }

    fn take(&mut self) -> Result<String, Box<dyn Error>> {
        let received = self.host.next_completion()?;
        let (piece, mut message) = (received.wr_id as usize, vec![0; received.byte_count as usize]);
        self.host.memory.copy_out(piece * LENGTH, &mut message)?;
        self.free.push(piece);
        // The limit is reported as an asynchronous event, not as a completion.
        while let Some(event) = self.host.device.poll_event()? {
            if matches!(event, AsyncEvent::SharedReceiveQueueLimit { .. }) {
                self.refill()?;
                self.refills += 1;
            }
        }
        Ok(String::from_utf8(message)?)
    }
    // ANCHOR_END: receives
}

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

fn node(world: &SimWorld, number: u8) -> NodeId {
    let nic = Nic::new(NicConfig::new(mac(number)));
    world.add_node(&format!("host {number}"), nic, Preset::STROM_100G.node, MemoryConfig::default())
}

/// Three connections send ten messages each into seven receives. Returns the messages and the number of refills.
pub fn serve() -> Result<(Vec<String>, usize), Box<dyn Error>> {
    let world = SimWorld::new(1);
    let nodes = [1, 2].map(|number| node(&world, number));
    world.connect(nodes[0], nodes[1], Preset::STROM_100G.link)?;
    let mut server = Server::new(Host::open(world.hal(nodes[0]), 1)?)?;
    let mut client = Host::open(world.hal(nodes[1]), 2)?;

    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        let (host, completions) = (&server.host, &server.host.completions);
        let theirs = QueuePairBuilder::new(&host.domain, completions, completions);
        let theirs = theirs.shared_receive_queue(&server.queue).build()?;
        let ours = QueuePairBuilder::new(&client.domain, &client.completions, &client.completions).build()?;
        let (to_server, to_client) = (theirs.endpoint(0)?, ours.endpoint(0)?);
        let ours = ours.connect(&to_server, ConnectOptions::default())?;
        connections.push((ours, theirs.connect(&to_client, ConnectOptions::default())?));
    }

    let mut messages = Vec::new();
    for number in 0..MESSAGES {
        for (index, (connection, _)) in connections.iter_mut().enumerate() {
            send(connection, &client.memory, index, &format!("message {number} of connection {index}"))?;
        }
        for _ in 0..CLIENTS {
            messages.push(server.take()?);
            client.next_completion()?;
        }
    }
    Ok((messages, server.refills))
}

fn send<S: Connected>(
    connection: &mut QueuePair<Handle, S>,
    memory: &MemoryRegion<Handle>,
    index: usize,
    message: &str,
) -> Result<(), Box<dyn Error>> {
    memory.copy_in(index * LENGTH, message.as_bytes())?;
    let data = [memory.slice(index * LENGTH, message.len())?];
    Ok(connection.post_send(&WorkRequest::send(index as u64, &data).signalled(true))?)
}

#[allow(dead_code, reason = "the test that includes this file calls `serve`")]
fn main() -> Result<(), Box<dyn Error>> {
    let (messages, refills) = serve()?;
    println!("{} messages into {RECEIVES} receives, which were filled up {refills} times", messages.len());
    Ok(())
}
