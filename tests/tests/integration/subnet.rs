//! Two drivers at an InfiniBand switch whose manager brings the ports up in virtual time: connections and
//! datagrams by LID while packets are lost and cables are pulled, with the same result for the same seed.

use bareverbs_core::address_handle::{AddressHandle, ROUTE_HEADER};
use bareverbs_core::completion_queue::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::MemoryRegion;
use bareverbs_core::port::PortState;
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{
    AddressVector, ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder, Rc, RemoteEndpoint, Ud,
};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_hal_sim::{MemoryConfig, SimWorld};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::{LinkConfig, RandomFaults, SubnetConfig, SwitchConfig};
use bareverbs_sim::nic::{Nic, NicConfig, SubnetMembership};
use bareverbs_sim::run::{Latency, LinkId, StallReason, SwitchId};
use bareverbs_tests::node::{Handle, all_access};

const Q_KEY: u32 = 0x0bad_cafe;
/// Bytes of a message, and the place of the last of them.
const MESSAGE: usize = 3_000;
const REGION: usize = 1 << 16;
/// Messages of one conversation.
const MESSAGES: u64 = 24;

/// A host at the switch. Fields are dropped in this order: queues before memory before the device.
struct Host {
    connection: Option<QueuePair<Handle, Rc>>,
    datagrams: QueuePair<Handle, Ud>,
    sends: CompletionQueue<Handle>,
    receives: CompletionQueue<Handle>,
    datagram_receives: CompletionQueue<Handle>,
    memory: MemoryRegion<Handle>,
    domain: ProtectionDomain<Handle>,
    device: Handle,
}

/// Two hosts, their switch, and the world that they are in.
struct Fabric {
    hosts: [Host; 2],
    switch: SwitchId,
    links: [LinkId; 2],
    world: SimWorld<Nic>,
}

impl Host {
    fn new(device: Handle) -> Self {
        let domain = ProtectionDomain::allocate(device.clone()).unwrap();
        let queue =
            || CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 64 }).unwrap();
        let (sends, receives, datagram_receives) = (queue(), queue(), queue());
        let memory = MemoryRegion::allocate(&domain, REGION, all_access()).unwrap();
        let datagrams = QueuePairBuilder::new(&domain, &sends, &datagram_receives)
            .service::<Ud>()
            .q_key(Q_KEY)
            .build()
            .unwrap()
            .ready_to_send()
            .unwrap();
        Self { connection: None, datagrams, sends, receives, datagram_receives, memory, domain, device }
    }

    fn connection(&mut self) -> &mut QueuePair<Handle, Rc> {
        self.connection.as_mut().expect("connected")
    }

    fn prepare(&self) -> PreparedQueuePair<Handle, Rc> {
        QueuePairBuilder::new(&self.domain, &self.sends, &self.receives).build().unwrap()
    }
}

impl Fabric {
    /// Boots two hosts whose ports are active. Packets are lost from the start, including those of the
    /// manager.
    fn new(seed: u64, loss: f64) -> Self {
        let world = SimWorld::new(seed);
        let nodes = [1, 2].map(|number| {
            let mac = MacAddress([2, 0, 0, 0, 0, number]);
            let config =
                NicConfig { strict: true, subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac) };
            let name = format!("host{number}");
            world.add_node(&name, Nic::new(config), Latency::default(), MemoryConfig::unforgiving())
        });
        let switch =
            world.with(|world| world.add_subnet("switch", SwitchConfig::default(), SubnetConfig::default()));
        let links = nodes.map(|node| world.connect(node, switch, LinkConfig::gigabits(100)).unwrap());
        world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(loss)));
        let hosts = nodes.map(|node| {
            let device = Device::open(world.hal(node), DeviceConfig::default());
            Host::new(std::rc::Rc::new(device.unwrap_or_else(|error| panic!("{error}"))))
        });
        let mut fabric = Self { hosts, switch, links, world };
        fabric.wait_for_ports();
        fabric.connect();
        fabric
    }

    /// Waits until `done`, which may look at the hosts.
    #[track_caller]
    fn wait<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = self.world.now() + Duration::from_secs(20);
        loop {
            if let Some(value) = done(self) {
                return value;
            }
            let now = self.world.now();
            assert!(now < deadline, "{}", self.world.with(|world| world.stalled(StallReason::Deadline)));
            self.hosts[0].device.hal().relax(deadline);
            self.hosts[1].device.hal().relax(self.world.now());
        }
    }

    fn wait_for_ports(&mut self) {
        let is_active = |host: &Host| host.device.port().unwrap().state == PortState::Active;
        self.wait(|fabric| fabric.hosts.iter().all(is_active).then_some(()));
    }

    fn lids(&self) -> [u16; 2] {
        self.hosts.each_ref().map(|host| host.device.port().unwrap().lid)
    }

    fn connect(&mut self) {
        let prepared = self.hosts.each_ref().map(Host::prepare);
        let local = |pair: &PreparedQueuePair<Handle, Rc>| RemoteEndpoint {
            gid: Gid::default(),
            ..pair.endpoint(0).unwrap()
        };
        let mut peers = [local(&prepared[1]), local(&prepared[0])].into_iter();
        for (host, pair) in self.hosts.iter_mut().zip(prepared) {
            let peer = peers.next().expect("two of them");
            host.connection = Some(pair.connect(&peer, ConnectOptions::default()).unwrap());
        }
    }

    #[track_caller]
    fn sent(&mut self, host: usize) -> WorkCompletion {
        let completion = self.wait(|fabric| fabric.hosts[host].sends.poll_one().unwrap());
        assert!(completion.is_success(), "{}", completion.status);
        completion
    }

    /// Sends a message from one host to the other, which must arrive despite losses.
    fn message(&mut self, from: usize, number: u64) {
        let bytes = vec![number as u8; MESSAGE];
        let there = [self.hosts[1 - from].memory.slice(REGION / 2, MESSAGE).unwrap()];
        self.hosts[1 - from].connection().post_receive(&ReceiveRequest::new(number, &there)).unwrap();
        self.hosts[from].memory.copy_in(0, &bytes).unwrap();
        let here = [self.hosts[from].memory.slice(0, MESSAGE).unwrap()];
        self.hosts[from].connection().post_send(&WorkRequest::send(number, &here)).unwrap();
        assert_eq!(self.sent(from).wr_id, number);
        let received = self.wait(|fabric| fabric.hosts[1 - from].receives.poll_one().unwrap());
        assert_eq!((received.wr_id, received.byte_count as usize), (number, MESSAGE));
        let mut found = vec![0; MESSAGE];
        self.hosts[1 - from].memory.copy_out(REGION / 2, &mut found).unwrap();
        assert!(found == bytes, "message {number}");
    }

    /// Sends a datagram from one host to the LID of the other. Returns its completion, if it arrived.
    fn datagram(&mut self, from: usize, number: u64) -> Option<WorkCompletion> {
        let (lid, into) = {
            let to = &self.hosts[1 - from];
            (to.device.port().unwrap().lid, [to.memory.slice(REGION / 4, 256).unwrap()])
        };
        self.hosts[1 - from].datagrams.post_receive(&ReceiveRequest::new(number, &into)).unwrap();
        let handle = AddressHandle::new(&self.hosts[from].device, &vector_to(lid)).unwrap();
        let to = handle.destination(self.hosts[1 - from].datagrams.qpn(), Q_KEY);
        let here = [self.hosts[from].memory.slice(0, 64).unwrap()];
        self.hosts[from].datagrams.post_send_to(&WorkRequest::send(number, &here), &to).unwrap();
        self.sent(from);
        let rest = self.world.now() + Duration::from_micros(50);
        self.world.run_until(rest);
        self.hosts[1 - from].device.hal().relax(rest);
        self.hosts[1 - from].datagram_receives.poll_one().unwrap()
    }
}

fn vector_to(lid: u16) -> AddressVector {
    AddressVector {
        gid_index: 0,
        gid: Gid::default(),
        mac: MacAddress::default(),
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
        service_level: 2,
        udp_source_port: 0,
        lid,
    }
}

/// The manager assigns the LIDs, and packets cross the switch by them.
#[test]
fn drivers_talk_by_the_lids_that_the_manager_gave() {
    let mut fabric = Fabric::new(1, 0.0);
    assert_eq!(fabric.lids(), [1, 2]);
    for number in 0..4 {
        let from = number as usize % 2;
        fabric.message(from, number);
        let received = fabric.datagram(from, number).expect("nothing is lost");
        assert_eq!(received.byte_count as usize, ROUTE_HEADER + 64);
        assert_eq!((received.origin.lid(), received.origin.service_level()), (from as u16 + 1, 2));
        assert_eq!(received.origin.qpn(), fabric.hosts[from].datagrams.qpn());
    }
    let counters = fabric.world.with(|world| world.switch_counters(fabric.switch).unwrap());
    // Three packets and an acknowledgement for each message, and a datagram.
    assert_eq!((counters.forwarded, counters.flooded, counters.filtered), (4 * 5, 0, 0));
    assert!(counters.managed >= 8, "{counters:?}");
}

/// Messages and datagrams while a twentieth of all packets is lost and each cable is out for a while. Returns
/// the digest.
fn conversation(seed: u64) -> (u64, u64) {
    let mut fabric = Fabric::new(seed, 0.05);
    let lids = fabric.lids();
    let mut arrived = 0;
    for number in 0..MESSAGES {
        let from = (number % 2) as usize;
        if number % 8 == 3 {
            fabric.flap((number / 8) as usize % 2, Duration::from_millis(1 + seed));
        }
        fabric.message(from, number);
        arrived += u64::from(fabric.datagram(from, number).is_some());
    }
    fabric.wait_for_ports();
    assert_eq!(fabric.lids(), lids, "a port keeps its LID whatever happens to the cable");
    (fabric.world.digest(), arrived)
}

impl Fabric {
    /// Pulls a cable while a message is in flight and plugs it in again after a while.
    fn flap(&mut self, link: usize, out_for: Duration) {
        let link = self.links[link];
        let there = [self.hosts[1].memory.slice(REGION / 2, MESSAGE).unwrap()];
        let here = [self.hosts[0].memory.slice(0, MESSAGE).unwrap()];
        self.hosts[1].connection().post_receive(&ReceiveRequest::new(77, &there)).unwrap();
        self.hosts[0].connection().post_send(&WorkRequest::send(77, &here)).unwrap();
        self.world.with(|world| world.set_link_up(link, false)).unwrap();
        self.world.run_until(self.world.now() + out_for);
        self.world.with(|world| world.set_link_up(link, true)).unwrap();
        assert_eq!(self.sent(0).wr_id, 77);
        assert_eq!(self.wait(|fabric| fabric.hosts[1].receives.poll_one().unwrap()).wr_id, 77);
    }
}

#[test]
fn losses_and_pulled_cables_are_survived_and_a_seed_repeats_itself() {
    let mut digests = Vec::new();
    for seed in 1..=20 {
        let (digest, arrived) = conversation(seed);
        assert_eq!(conversation(seed), (digest, arrived), "seed {seed}");
        assert!(
            (MESSAGES / 2..MESSAGES + 1).contains(&arrived),
            "{arrived} datagrams of {MESSAGES}, seed {seed}"
        );
        digests.push(digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 20, "two seeds gave the same run");
}
