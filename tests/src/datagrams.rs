//! Hosts at one switch, each with an unreliable datagram queue pair: the setting of tests without
//! connections.

use crate::node::{Handle, Node, NodeOptions, all_access, gid, mac};
use bareverbs_core::address_handle::AddressHandle;
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::MemoryRegion;
use bareverbs_core::queue_pair::{AddressVector, QueuePair, QueuePairBuilder, Ud};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::ReceiveRequest;
use bareverbs_hal_sim::SimWorld;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::{LinkConfig, SwitchConfig};
use bareverbs_sim::nic::Nic;

/// The Q_Key of every queue pair.
pub const Q_KEY: u32 = 0x1122_3344;
/// Requests that may be outstanding.
const DEPTH: u32 = 64;
/// Bytes of each memory region.
const MEMORY: usize = 1 << 16;

/// One host. Fields are dropped in this order: queues before memory before the device.
pub struct DatagramHost {
    /// Its queue pair.
    pub queue_pair: QueuePair<Handle, Ud>,
    /// Where its sends complete.
    pub sends: CompletionQueue<Handle>,
    /// Where its receives complete.
    pub receives: CompletionQueue<Handle>,
    /// Its memory.
    pub memory: MemoryRegion<Handle>,
    /// Its device.
    pub node: Node,
}

/// All hosts and the world that they are in.
pub struct Datagrams {
    /// The hosts; host `n` has number `n + 1`.
    pub hosts: Vec<DatagramHost>,
    /// The world.
    pub world: SimWorld<Nic>,
    options: NodeOptions,
}

impl Datagrams {
    /// Boots `count` hosts at one switch.
    pub fn new(count: u8, seed: u64, options: NodeOptions) -> Self {
        let world = SimWorld::new(seed);
        let ids: Vec<_> = (1..=count).map(|number| Node::add(&world, number, options)).collect();
        world.with(|world| {
            let switch = world.add_switch("switch", SwitchConfig::default());
            for id in &ids {
                world.connect(*id, switch, LinkConfig::gigabits(100)).expect("a free port");
            }
        });
        let open = |(id, number)| DatagramHost::new(Node::open(&world, id, number, options));
        let hosts = ids.into_iter().zip(1..).map(open).collect();
        Self { hosts, world, options }
    }

    /// The address vector of a host.
    pub fn vector_to(&self, host: usize) -> AddressVector {
        let number = host as u8 + 1;
        AddressVector {
            gid_index: 0,
            gid: gid(number, self.options.ipv6),
            mac: mac(number),
            hop_limit: 64,
            traffic_class: 0x6a,
            flow_label: if self.options.ipv6 { 0x1_2345 } else { 0 },
            service_level: 0,
            udp_source_port: 0xc321,
            lid: 0,
        }
    }

    /// An address handle for the path from one host to another.
    pub fn way(&self, from: usize, to: usize) -> AddressHandle {
        let device = &self.hosts[from].node.device;
        AddressHandle::new(device, &self.vector_to(to)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A multicast group.
    pub fn group(&self, number: u8) -> Gid {
        if self.options.ipv6 {
            Gid([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, number])
        } else {
            Gid::from_ipv4([239, 1, 2, number])
        }
    }

    /// Posts a receive of `length` bytes at `offset` of a host's memory. The offset is also its work request
    /// ID.
    #[track_caller]
    pub fn post_receive(&mut self, host: usize, offset: usize, length: usize) {
        let DatagramHost { queue_pair, memory, .. } = &mut self.hosts[host];
        let slice = [memory.slice(offset, length).expect("inside")];
        queue_pair.post_receive(&ReceiveRequest::new(offset as u64, &slice)).expect("room");
    }

    /// Runs the world until it is idle.
    pub fn settle(&mut self) {
        let end = self.world.now() + Duration::from_millis(1);
        self.world.run_until(end);
        self.hosts.iter().for_each(|host| host.node.device.hal().relax(end));
    }

    /// Runs the world until it is idle and returns what a host has received since the last call.
    #[track_caller]
    pub fn received(&mut self, host: usize) -> Vec<WorkCompletion> {
        self.settle();
        drain(&mut self.hosts[host].receives)
    }

    /// Runs the world until it is idle and returns which of a host's sends have completed since the last
    /// call.
    #[track_caller]
    pub fn sent(&mut self, host: usize) -> Vec<WorkCompletion> {
        self.settle();
        drain(&mut self.hosts[host].sends)
    }

    /// Bytes of a host's memory.
    pub fn bytes(&self, host: usize, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.hosts[host].memory.copy_out(offset, &mut bytes).expect("inside");
        bytes
    }
}

#[track_caller]
fn drain(queue: &mut CompletionQueue<Handle>) -> Vec<WorkCompletion> {
    core::iter::from_fn(|| queue.poll_one().expect("a completion that can be true")).collect()
}

impl DatagramHost {
    fn new(node: Node) -> Self {
        let (sends, receives) = (node.completion_queue(2 * DEPTH), node.completion_queue(2 * DEPTH));
        let queue_pair = QueuePairBuilder::new(&node.domain, &sends, &receives)
            .service::<Ud>()
            .send_queue(DEPTH)
            .receive_queue(DEPTH)
            .max_send_sge(4)
            .max_receive_sge(4)
            .max_inline(128)
            .q_key(Q_KEY)
            .build()
            .unwrap_or_else(|error| panic!("{error}"))
            .ready_to_send()
            .unwrap_or_else(|error| panic!("{error}"));
        let memory = node.memory(MEMORY, all_access());
        Self { queue_pair, sends, receives, memory, node }
    }
}
