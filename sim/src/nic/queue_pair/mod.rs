//! The queue pair: it owns its send queue, its receive source, its requester and its responder.
//!
//! **What this is.** [`QueuePair`] takes inputs ([`on_packet`](QueuePair::on_packet),
//! [`on_datagram`](QueuePair::on_datagram), [`on_doorbell`](QueuePair::on_doorbell),
//! [`on_timeout`](QueuePair::on_timeout)) and produces frames ([`poll_frame`](QueuePair::poll_frame),
//! [`poll_datagram`](QueuePair::poll_datagram)). Each call gets a [`Bus`], the part of the device that it may
//! touch, and returns [`Effects`], what the scheduler has to do.
//!
//! **What it may not do.** It must not know other queue pairs, the scheduler, the firmware or the router.
//!
//! **Where to read first.** `input` for what arrives, `poll` for what leaves, `settle` for what happens after
//! every input.

mod connection;
mod counting;
mod datagram;
mod dma;
mod drain;
mod effects;
mod error;
mod frames;
mod input;
mod key_update;
mod notification;
mod notification_point;
mod observed;
mod pacer;
mod path;
mod poll;
mod reaction;
mod replies;
mod responder_host;
mod settle;
mod tally;

pub(crate) use datagram::{Datagram, OutgoingDatagram};
pub(crate) use effects::{Effects, earlier};
pub(crate) use frames::FinishedFrame;
pub use frames::{Transmit, TransmitClass};
pub(crate) use notification::is_notification;
pub(crate) use path::path_mtu;
#[cfg(test)]
pub(crate) use replies::MOST_REPLIES;
pub(crate) use tally::Tally;

use super::buffer::PagedBuffer;
use super::bus::Bus;
use super::cqe::CompletionOwner;
use super::doorbell_record::DoorbellRecord;
use super::memory::HostMemory;
use super::mkey::{Accessor, HostRange};
use super::receive_queue::ScatterList;
use super::send_queue::SendQueue;
use super::shared_receive::ReceiveSource;
use super::work_queue::WorkQueue;
use super::wqe::Format;
use crate::transport::{ConnectionRequester, ConnectionResponder};
use crate::wire::{Packet, ServiceClass};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Qpn, Xrcdn};
use bareverbs_prm::numbering::{QpState, ServiceType};
use notification_point::NotificationPoint;
use pacer::Pacer;
use path::Path;
use replies::RpcReplies;
use tally::QueuePairTally;

/// One queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// What commands set. [`Self::shown_context`] fills in the fields that change at run time.
    pub(crate) context: QueuePairContext,
    pub(crate) accessor: Accessor,
    /// The layout of its WQEs.
    pub(crate) format: Format,
    /// The class of service of its packets.
    class: ServiceClass,
    send: SendQueue,
    pub(crate) receives: ReceiveSource,
    /// The scatter list of the message that is being received.
    scatter: ScatterList,
    /// Replies of the RPC engine; `None` for most queue pairs.
    replies: Option<Box<RpcReplies>>,
    /// The congestion notification that it may owe its peer.
    notification: NotificationPoint,
    /// Decides when its requests may leave.
    pacer: Pacer,
    /// What it counted for its counter set, besides what the transport counts; `None` for most queue pairs.
    tally: Option<Box<QueuePairTally>>,
    /// Present from RTS on.
    requester: Option<ConnectionRequester>,
    /// Present from RTR on.
    responder: Option<ConnectionResponder<HostRange>>,
    /// Present from RTR on.
    path: Option<Path>,
    /// Whether a packet of the peer has been accepted since the queue pair entered RTR.
    peer_seen: bool,
    /// Whether it accepts memory-to-memory operations.
    mmo: bool,
    /// How often the queue pair has looked for new receives in the error state, see
    /// [`RESCANS`](settle::RESCANS).
    rescans: u32,
    /// Owned by the scheduler: whether this queue pair is in the list of those that want a turn.
    pub(crate) queued: bool,
}

/// Where the work queues of a queue pair are in memory.
pub(crate) struct WorkQueueMemory {
    /// The receive queue, if there is one, followed by the send queue.
    pub(crate) buffer: PagedBuffer,
    pub(crate) record: DoorbellRecord,
}

impl QueuePair {
    pub(crate) fn new(
        number: Qpn,
        context: QueuePairContext,
        memory: WorkQueueMemory,
        receives: ReceiveSource,
    ) -> Self {
        let WorkQueueMemory { buffer, record } = memory;
        let send_base = if let ReceiveSource::Own(queue) = &receives { queue.bytes() } else { 0 };
        let blocks = (!context.no_sq()).then(|| context.log_sq_size());
        let privileged = context.st() == ServiceType::RegUmr;
        Self {
            accessor: Accessor { pd: context.pd(), qpn: number, privileged, reserved_lkey: context.rlky() },
            format: format_of(context.st()),
            class: class_of(context.st()),
            send: SendQueue::new(WorkQueue::new(buffer, send_base, record, blocks)),
            receives,
            context,
            scatter: ScatterList::default(),
            replies: None,
            notification: NotificationPoint::default(),
            pacer: Pacer::default(),
            tally: None,
            requester: None,
            responder: None,
            path: None,
            peer_seen: false,
            mmo: false,
            rescans: 0,
            queued: false,
        }
    }

    pub(crate) const fn number(&self) -> Qpn {
        self.accessor.qpn
    }

    /// The identity that its completions carry.
    fn owner(&self) -> CompletionOwner {
        CompletionOwner::queue_pair(&self.context, self.accessor.qpn)
    }

    pub(crate) fn state(&self) -> QpState {
        self.context.state()
    }

    /// Whether every message carries an address of its own (IBTA v1.4 §10.2.4.3).
    pub(crate) fn is_datagram(&self) -> bool {
        self.format == Format::Datagram
    }

    /// Whether this queue pair takes a packet of a connection: it receives in its state, and the sender is
    /// its peer.
    #[inline]
    pub(crate) fn accepts(&self, packet: &Packet<'_>) -> bool {
        let from_peer = self.path.as_ref().is_some_and(|path| path.leads_to_sender(&packet.route.network));
        from_peer && self.class == packet.bth.service && self.receives_now(packet.bth.opcode.is_response())
    }

    /// It takes requests from RTR on and responses from RTS on. An error that stops only the send queue stops
    /// neither (IBTA v1.4 §10.3.1).
    fn receives_now(&self, response: bool) -> bool {
        match self.state() {
            QpState::Rts | QpState::SqDraining | QpState::SqDrained | QpState::SqError => true,
            QpState::Rtr => !response,
            _ => false,
        }
    }

    /// The P_Key of its packets; 0 without a path.
    pub(crate) fn partition_key(&self) -> u16 {
        self.path.as_ref().map_or(0, |path| path.headers.partition_key())
    }

    /// Replaces the context with the one that a command made from it.
    pub(crate) fn set_context(&mut self, context: QueuePairContext) {
        self.context = context;
        if let Some(responder) = &mut self.responder {
            responder.set_min_rnr_timer(context.min_rnr_nak());
        }
    }

    /// Switches memory-to-memory operations on or off (`qpc_ext.mmo`).
    pub(crate) const fn set_mmo(&mut self, on: bool) {
        self.mmo = on;
    }

    /// The context as QUERY_QP shows it.
    pub(crate) fn shown_context(&self) -> QueuePairContext {
        let mut context = self.context;
        context
            .set_sw_sq_wqebb_counter(self.send.queue().posted())
            .set_hw_sq_wqebb_counter(self.send.queue().fetched());
        if let Some(requester) = &self.requester {
            context.set_next_send_psn(requester.next_psn());
        }
        if let Some(responder) = &self.responder {
            context.set_next_rcv_psn(responder.expected_psn());
        }
        if let ReceiveSource::Own(queue) = &self.receives {
            context.set_hw_rq_counter(queue.taken().into()).set_sw_rq_counter(queue.posted().into());
        }
        context
    }

    /// Returns to the state in which CREATE_QP left it.
    pub(crate) fn reset(&mut self) {
        self.context.set_state(QpState::Reset);
        self.send.reset();
        if let ReceiveSource::Own(queue) = &mut self.receives {
            queue.reset();
        }
        if let Some(replies) = &mut self.replies {
            replies.clear();
        }
        self.keep_transport_tally();
        self.notification = NotificationPoint::default();
        self.pacer = Pacer::default();
        self.requester = None;
        self.responder = None;
        self.path = None;
        self.peer_seen = false;
        self.mmo = false;
        self.rescans = 0;
    }
}

/// The XRC domain of a target queue pair. A queue pair with a send queue is an initiator and takes no
/// requests.
pub(crate) fn xrc_target_domain(context: &QueuePairContext) -> Option<Xrcdn> {
    let target = context.st() == ServiceType::Xrc && context.no_sq();
    target.then(|| context.xrcd())
}

/// The layout of the WQEs of a service.
const fn format_of(service: ServiceType) -> Format {
    match service {
        ServiceType::RegUmr => Format::KeyUpdate,
        ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => Format::Datagram,
        _ => Format::Connected,
    }
}

const fn class_of(service: ServiceType) -> ServiceClass {
    match service {
        ServiceType::Uc => ServiceClass::UnreliableConnection,
        ServiceType::Xrc => ServiceClass::ExtendedReliableConnection,
        ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => ServiceClass::UnreliableDatagram,
        _ => ServiceClass::ReliableConnection,
    }
}
