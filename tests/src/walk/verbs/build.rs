//! Creates queue pairs of every service, and connects the two of a lane.

use super::end::{End, LAYOUT, SLOTS};
use super::host::Host;
use super::inbox::{Inbox, Promise};
use super::lane::{Lane, LaneService};
use super::queue::{Initial, PreparedQueue, Queue};
use super::remote_key::RemoteKey;
use crate::node::{Handle, all_access, gid, mac};
use crate::walk::plan::{Conditions, MAX_INLINE, MAX_PIECES};
use bareverbs_core::address_handle::{AddressHandle, Destination};
use bareverbs_core::memory_region::AccessFlags;
use bareverbs_core::queue_pair::{
    AddressVector, ConnectOptions, Connected, PreparedQueuePair, QueuePair, QueuePairBuilder, Uc, Ud,
};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;

/// 4.096 µs · 2^10.
const ACK_TIMEOUT: u8 = 10;

/// What all queue pairs of a lane are built from.
pub struct LaneBuilder<'a> {
    /// Both hosts.
    pub hosts: &'a [Host; 2],
    /// The conditions of the walk.
    pub conditions: Conditions,
    /// The lane.
    pub lane: Lane,
    /// Its number.
    pub number: usize,
}

impl LaneBuilder<'_> {
    /// A side of the lane in INIT.
    pub fn prepare(&self, side: usize) -> PreparedQueue {
        let host = &self.hosts[side];
        let [send, receive] = self.lane.completions[side].map(|at| &host.completions[at]);
        let (domain, xrc, psn) = (&host.node.domain, &host.domain, Psn::new(self.lane.psn));
        let basic = || {
            let builder = QueuePairBuilder::new(domain, send, receive).initial_psn(psn);
            let builder = builder.send_queue(8 * SLOTS as u32).max_send_sge(MAX_PIECES as u32);
            let builder = builder.max_inline(MAX_INLINE as u32).max_receive_sge(2);
            match self.lane.has_receive_queue(side) {
                true => builder.receive_queue(SLOTS as u32),
                false => builder.shared_receive_queue(host.shared[0].queue()),
            }
        };
        let built = match self.lane.service {
            LaneService::Reliable => basic().build().map(PreparedQueue::Rc),
            LaneService::Unreliable => basic().service::<Uc>().build().map(PreparedQueue::Uc),
            LaneService::Datagram => {
                basic().service::<Ud>().q_key(self.initial().q_key).build().map(PreparedQueue::Ud)
            }
            LaneService::Extended(initiator) if initiator == side => {
                let builder = QueuePairBuilder::xrc_initiator(domain, xrc, host.shared[1].queue(), send)
                    .initial_psn(psn);
                let builder = builder.send_queue(8 * SLOTS as u32).max_send_sge(MAX_PIECES as u32);
                builder.max_inline(MAX_INLINE as u32).build().map(PreparedQueue::Initiator)
            }
            LaneService::Extended(_) => {
                let queue = host.shared[1].queue();
                let builder = QueuePairBuilder::xrc_target(domain, xrc, queue, send).initial_psn(psn);
                builder.build().map(PreparedQueue::Target)
            }
        };
        built.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The attributes of the lane's queue pairs in INIT.
    pub fn initial(&self) -> Initial {
        let access = match self.lane.service {
            LaneService::Unreliable => AccessFlags::REMOTE_WRITE,
            _ => all_access(),
        };
        Initial { access, q_key: 0x1000 + self.number as u32 }
    }

    /// Connects both sides.
    pub fn join(&self, [a, b]: [PreparedQueue; 2]) -> [Queue; 2] {
        match (a, b) {
            (PreparedQueue::Rc(a), PreparedQueue::Rc(b)) => {
                let (a, b) = self.connect(a, b);
                [Queue::Rc(a), Queue::Rc(b)]
            }
            (PreparedQueue::Uc(a), PreparedQueue::Uc(b)) => {
                let (a, b) = self.connect(a, b);
                [Queue::Uc(a), Queue::Uc(b)]
            }
            (PreparedQueue::Initiator(a), PreparedQueue::Target(b)) => {
                let (a, b) = self.connect(a, b);
                [Queue::Initiator(a), Queue::Target(b)]
            }
            (PreparedQueue::Target(a), PreparedQueue::Initiator(b)) => {
                let (a, b) = self.connect(a, b);
                [Queue::Target(a), Queue::Initiator(b)]
            }
            (PreparedQueue::Ud(a), PreparedQueue::Ud(b)) => {
                let (of_a, of_b) = (a.qpn(), b.qpn());
                [self.ready(a, 0, of_b), self.ready(b, 1, of_a)]
            }
            _ => unreachable!("both sides of a lane have the lane's transport service"),
        }
    }

    /// A datagram queue pair that sends to `peer`.
    pub fn ready(&self, prepared: PreparedQueuePair<Handle, Ud>, side: usize, peer: Qpn) -> Queue {
        let queue = prepared.ready_to_send().unwrap_or_else(|error| panic!("{error}"));
        Queue::Ud(queue, self.destination(side, peer))
    }

    fn connect<S: Connected, T: Connected>(
        &self,
        a: PreparedQueuePair<Handle, S>,
        b: PreparedQueuePair<Handle, T>,
    ) -> (QueuePair<Handle, S>, QueuePair<Handle, T>) {
        let path_mtu = self.conditions.mtu;
        let options = ConnectOptions { path_mtu, ack_timeout: ACK_TIMEOUT, ..ConnectOptions::default() };
        let (of_a, of_b) = (a.endpoint(0).expect("an address"), b.endpoint(0).expect("an address"));
        let a = a.connect(&of_b, options).unwrap_or_else(|error| panic!("{error}"));
        (a, b.connect(&of_a, options).unwrap_or_else(|error| panic!("{error}")))
    }

    /// The destination of a side: the queue pair of the other side.
    fn destination(&self, side: usize, peer: Qpn) -> Destination {
        let (number, ipv6) = (2 - side as u8, self.conditions.ipv6);
        let vector = AddressVector {
            gid_index: 0,
            lid: 0,
            gid: gid(number, ipv6),
            mac: mac(number),
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            udp_source_port: 0xc123,
        };
        let way = AddressHandle::new(&self.hosts[side].node.device, &vector);
        way.unwrap_or_else(|error| panic!("{error}")).destination(peer, self.initial().q_key)
    }

    /// A side with its memory and its remote keys. `copies` is how often the network may deliver a packet.
    pub fn end(&self, side: usize, queue: Queue, copies: u32) -> End {
        let access = all_access() | AccessFlags::MEMORY_WINDOW_BIND;
        let memory = self.hosts[side].node.memory(LAYOUT.bytes(3), access);
        let promise =
            if self.lane.service.is_reliable() { Promise::Reliable } else { Promise::Whole { copies } };
        let name = (self.number as u64) << 16;
        let mut end = End::new(queue, memory, self.lane.service, name, Inbox::new(promise));
        end.remote_keys = self.remote_keys(side);
        end
    }

    /// The remote keys of a side. Only reliable connections have them.
    pub fn remote_keys(&self, side: usize) -> Vec<RemoteKey> {
        match self.lane.service {
            LaneService::Reliable => RemoteKey::all(&self.hosts[side].node, LAYOUT),
            _ => Vec::new(),
        }
    }
}
