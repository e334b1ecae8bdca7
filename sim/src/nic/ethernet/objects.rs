//! All Ethernet objects of a device.

use super::filter::AddressLists;
use super::flow::Steering;
use super::packets::Packets;
use super::queue_state;
use super::receive::PacketReceiveQueue;
use super::send::PacketSendQueue;
use super::traffic::PortTraffic;
use crate::nic::contexts::Slab;
use bareverbs_prm::command::ethernet_receive::{RqtContext, TirContext};
use bareverbs_prm::command::ethernet_send::TisContext;
use bareverbs_prm::ids::{Cqn, Pdn, Qpn, Rqn, UarIndex};
use std::collections::VecDeque;

/// First numbers of the objects. Send queues share doorbells with queue pairs, so their numbers must differ.
const FIRST_SEND_QUEUE: u32 = 0x80_0000;
const FIRST_RECEIVE_QUEUE: u32 = 0x10;
const FIRST_TIR: u32 = 0x10;
const FIRST_TIS: u32 = 0x10;
const FIRST_QUEUE_TABLE: u32 = 0x10;
const FIRST_TRANSPORT_DOMAIN: u32 = 1;

/// A receive queue table (RQT): the queues that a hash spreads packets over.
#[derive(Debug)]
pub(crate) struct QueueTable {
    pub(crate) context: RqtContext,
    pub(crate) queues: Vec<Rqn>,
}

/// All Ethernet objects of a device.
#[derive(Debug)]
pub(crate) struct EthernetObjects {
    pub(crate) transport_domains: Slab<()>,
    pub(crate) send_interfaces: Slab<TisContext>,
    pub(crate) receive_interfaces: Slab<TirContext>,
    pub(crate) queue_tables: Slab<QueueTable>,
    pub(crate) send_queues: Slab<PacketSendQueue>,
    pub(crate) receive_queues: Slab<PacketReceiveQueue>,
    pub(crate) steering: Steering,
    pub(crate) lists: AddressLists,
    pub(crate) traffic: PortTraffic,
    /// Send queues with work, in the order of their turns.
    pub(super) ready: VecDeque<u32>,
    /// The remaining packets of the last fetched work request.
    pub(in crate::nic) outgoing: Packets,
    /// Whether Ethernet goes before RDMA next time.
    turn: bool,
}

impl EthernetObjects {
    pub(crate) fn new() -> Self {
        Self {
            transport_domains: Slab::new(FIRST_TRANSPORT_DOMAIN, 24),
            send_interfaces: Slab::new(FIRST_TIS, 24),
            receive_interfaces: Slab::new(FIRST_TIR, 24),
            queue_tables: Slab::new(FIRST_QUEUE_TABLE, 24),
            send_queues: Slab::new(FIRST_SEND_QUEUE, 24),
            receive_queues: Slab::new(FIRST_RECEIVE_QUEUE, 24),
            steering: Steering::new(),
            lists: AddressLists::default(),
            traffic: PortTraffic::default(),
            ready: VecDeque::new(),
            outgoing: Packets::None,
            turn: false,
        }
    }

    /// Drops all objects but keeps the counters.
    pub(crate) fn clear(&mut self) {
        *self = Self { traffic: self.traffic, ..Self::new() };
    }

    /// Whether a doorbell is for a send queue here.
    pub(crate) const fn is_send_queue(number: Qpn) -> bool {
        number.value() >= FIRST_SEND_QUEUE
    }

    /// Whether any received packet can be steered somewhere.
    pub(crate) const fn is_receiving(&self) -> bool {
        self.steering.root.is_some()
    }

    pub(crate) fn has_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.outgoing.is_empty()
    }

    /// Whose turn it is; the other side goes next time.
    pub(crate) fn take_turn(&mut self) -> bool {
        self.turn = !self.turn;
        self.turn
    }

    pub(crate) fn uses_pd(&self, pd: Pdn) -> bool {
        self.send_queues.iter().any(|(_, queue)| queue.context.wq().pd() == pd)
            || self.receive_queues.iter().any(|(_, queue)| queue.context.wq().pd() == pd)
    }

    pub(crate) fn uses_uar(&self, uar: UarIndex) -> bool {
        self.send_queues.iter().any(|(_, queue)| queue.context.wq().uar_page() == uar)
    }

    /// Stops all queues that use a broken completion queue.
    pub(crate) fn stop_users(&mut self, cqn: Cqn) {
        for (_, queue) in self.send_queues.iter_mut().filter(|(_, queue)| queue.context.cqn() == cqn) {
            queue.context.set_state(queue_state::ERROR);
        }
        for (_, queue) in self.receive_queues.iter_mut().filter(|(_, queue)| queue.context.cqn() == cqn) {
            queue.context.set_state(queue_state::ERROR);
        }
    }
}
