//! Requests and replies without connections: one UD queue pair of a server answers every client.
//!
//! `cargo run -p bareverbs --features sim --example datagrams`

use bareverbs::address_handle::ROUTE_HEADER;
use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;
use bareverbs::queue_pair::{AddressVector, Ud};
use bareverbs::sim::{MemoryConfig, Nic, NicConfig, Preset, SimHal, SimWorld, net::SwitchConfig};
use std::error::Error;
use std::rc::Rc;

type Handle = Rc<Device<SimHal>>;

/// The server and its clients share this Q_Key. A queue pair silently drops datagrams that carry another.
const Q_KEY: u32 = 0x1111_2222;
const LONGEST: usize = 256;

struct Host {
    queue_pair: QueuePair<Handle, Ud>,
    completions: CompletionQueue<Handle>,
    memory: MemoryRegion<Handle>,
    device: Handle,
    mac: MacAddress,
}

impl Host {
    fn open(hal: SimHal, number: u8) -> Result<Self, Box<dyn Error>> {
        let device = Rc::new(Device::open(hal, DeviceConfig::default())?);
        device.set_gid(0, GidEntry::roce_v2(gid(number), mac(number)))?;
        let domain = ProtectionDomain::allocate(device.clone())?;
        let memory = MemoryRegion::allocate(&domain, ROUTE_HEADER + LONGEST, AccessFlags::LOCAL_WRITE)?;
        let completions = CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 16 })?;
        let builder = QueuePairBuilder::new(&domain, &completions, &completions).service::<Ud>();
        // A UD queue pair has no peer to connect to: it can send at once.
        let queue_pair = builder.max_inline(64).q_key(Q_KEY).build()?.ready_to_send()?;
        let mut host = Self { queue_pair, completions, memory, device, mac: mac(number) };
        host.post_receive()?;
        Ok(host)
    }

    fn post_receive(&mut self) -> Result<(), Box<dyn Error>> {
        let place = [self.memory.slice(0, ROUTE_HEADER + LONGEST)?];
        Ok(self.queue_pair.post_receive(&ReceiveRequest::new(0, &place))?)
    }

    /// Waits for the next datagram. The completion names its sender; the first bytes of the datagram are its route
    /// header.
    fn receive(&mut self) -> Result<(WorkCompletion, Vec<u8>), Box<dyn Error>> {
        loop {
            let deadline = self.device.hal().now() + Duration::from_millis(1);
            let done = self.completions.wait_one(deadline)?.into_result()?;
            if done.opcode == WorkCompletionOpcode::Receive {
                let mut datagram = vec![0; done.byte_count as usize];
                self.memory.copy_out(0, &mut datagram)?;
                self.post_receive()?;
                return Ok((done, datagram));
            }
        }
    }

    // ANCHOR: answer
    /// Answers one question. A datagram's completion does not carry the sender's MAC address, so the question starts
    /// with it.
    fn answer(&mut self) -> Result<(), Box<dyn Error>> {
        let (asked, datagram) = self.receive()?;
        let (header, question) = datagram.split_first_chunk::<ROUTE_HEADER>().ok_or("no route header")?;
        let (station, name) = question.split_first_chunk::<6>().ok_or("a question without a station")?;
        let answer = format!("{} has {} letters", String::from_utf8_lossy(name), name.len());
        let way = AddressHandle::to_sender(&self.device, &asked, header, MacAddress(*station))?;
        let to = way.destination(asked.origin.qpn(), Q_KEY);
        Ok(self.queue_pair.post_send_to(&WorkRequest::send_inline(2, answer.as_bytes()), &to)?)
    }
    // ANCHOR_END: answer

    /// Sends the question `name` to the server's queue pair at `to`.
    fn ask(&mut self, name: &str, to: &bareverbs::Destination) -> Result<(), Box<dyn Error>> {
        let question = [&self.mac.0, name.as_bytes()].concat();
        Ok(self.queue_pair.post_send_to(&WorkRequest::send_inline(1, &question), to)?)
    }
}

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

fn gid(number: u8) -> Gid {
    Gid::from_ipv4([10, 0, 0, number])
}

/// Two hosts each ask a third. Returns the answers they received.
pub fn conversation() -> Result<Vec<String>, Box<dyn Error>> {
    let world = SimWorld::new(1);
    let switch = world.with(|world| world.add_switch("switch", SwitchConfig::default()));
    let mut hosts = Vec::new();
    for number in 1..=3 {
        let nic = Nic::new(NicConfig::new(mac(number)));
        let node =
            world.add_node(&format!("host {number}"), nic, Preset::STROM_100G.node, MemoryConfig::default());
        world.connect(node, switch, Preset::STROM_100G.link)?;
        hosts.push(Host::open(world.hal(node), number)?);
    }
    let (server, clients) = hosts.split_first_mut().ok_or("no hosts")?;
    let mut heard = Vec::new();
    for (client, name) in clients.iter_mut().zip(["doorbell", "completion"]) {
        let way = AddressHandle::new(&client.device, &AddressVector::roce(0, gid(1), mac(1)))?;
        client.ask(name, &way.destination(server.queue_pair.qpn(), Q_KEY))?;
        server.answer()?;
        let (_, datagram) = client.receive()?;
        heard.push(String::from_utf8_lossy(&datagram[ROUTE_HEADER..]).into_owned());
    }
    Ok(heard)
}

#[allow(dead_code, reason = "the test that includes this file calls `conversation`")]
fn main() -> Result<(), Box<dyn Error>> {
    conversation()?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
