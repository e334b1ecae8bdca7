//! Translates event queue entries for programs (`mlx5_ib_event`, `mlx5_ib_qp_event`, `enum ibv_event_type`).

use crate::events::EventFiles;
use crate::queues::{Listener, Queues};
use crate::uapi::read_extended;
use bareverbs_prm::eqe::{CompletionEvent, CqErrorEvent, EventEntry, PortEvent, QueueEvent};
use bareverbs_prm::ids::{Qpn, Srqn};
use bareverbs_prm::numbering::{EventType, PortChange};

/// `enum ibv_event_type`.
mod event {
    pub(super) const CQ_ERR: u32 = 0;
    pub(super) const QP_FATAL: u32 = 1;
    pub(super) const QP_REQ_ERR: u32 = 2;
    pub(super) const QP_ACCESS_ERR: u32 = 3;
    pub(super) const COMM_EST: u32 = 4;
    pub(super) const SQ_DRAINED: u32 = 5;
    pub(super) const PATH_MIG: u32 = 6;
    pub(super) const PATH_MIG_ERR: u32 = 7;
    pub(super) const PORT_ACTIVE: u32 = 9;
    pub(super) const PORT_ERR: u32 = 10;
    pub(super) const LID_CHANGE: u32 = 11;
    pub(super) const PKEY_CHANGE: u32 = 12;
    pub(super) const SRQ_ERR: u32 = 14;
    pub(super) const SRQ_LIMIT_REACHED: u32 = 15;
    pub(super) const QP_LAST_WQE_REACHED: u32 = 16;
    pub(super) const CLIENT_REREGISTER: u32 = 17;
    pub(super) const GID_CHANGE: u32 = 18;
}

/// Reports an entry to the programs concerned. Its object may be gone by now; then no program gets it.
pub(crate) fn handle(files: &mut EventFiles, queues: &Queues, entry: &EventEntry) {
    let told = match entry.kind() {
        EventType::Comp => return completion(files, queues, entry),
        EventType::PortChange => return port(files, entry),
        EventType::CqError => {
            let data: CqErrorEvent = read_extended(&entry.data());
            queues.completion.get(&data.cqn()).map(|queue| (queue.listener, event::CQ_ERR))
        }
        kind => {
            let data: QueueEvent = read_extended(&entry.data());
            queue_listener(queues, kind, data.number()).zip(queue_event(kind))
        }
    };
    if let Some((Listener { element, file: Some(file) }, event_type)) = told {
        files.tell(file, element, event_type);
    }
}

/// Reports a completion on an armed completion queue to its channel.
fn completion(files: &mut EventFiles, queues: &Queues, entry: &EventEntry) {
    let data: CompletionEvent = read_extended(&entry.data());
    let queue = queues.completion.get(&data.cqn());
    if let Some((channel, queue)) = queue.and_then(|queue| queue.channel.zip(Some(queue))) {
        files.tell(channel, queue.listener.element, 0);
    }
}

fn port(files: &mut EventFiles, entry: &EventEntry) {
    let port: PortEvent = read_extended(&entry.data());
    if let Some(event_type) = port_event(PortChange::from_raw(entry.sub_type())) {
        files.tell_all(port.port().into(), event_type);
    }
}

/// Shared receive queues have their own numbering.
fn queue_listener(queues: &Queues, kind: EventType, number: Qpn) -> Option<Listener> {
    if let EventType::SrqRqLimit | EventType::SrqCatasError = kind {
        let number = Srqn::from_low_bits(number.value());
        return queues.shared.get(&number).map(|queue| queue.listener);
    }
    queues.pairs.get(&number).map(|queue| queue.listener)
}

const fn queue_event(kind: EventType) -> Option<u32> {
    match kind {
        EventType::PathMig => Some(event::PATH_MIG),
        EventType::CommEst => Some(event::COMM_EST),
        EventType::SqDrained => Some(event::SQ_DRAINED),
        EventType::WqCatasError => Some(event::QP_FATAL),
        EventType::PathMigFailed => Some(event::PATH_MIG_ERR),
        EventType::WqInvalReqError => Some(event::QP_REQ_ERR),
        EventType::WqAccessError => Some(event::QP_ACCESS_ERR),
        EventType::SrqCatasError => Some(event::SRQ_ERR),
        EventType::SrqLastWqe => Some(event::QP_LAST_WQE_REACHED),
        EventType::SrqRqLimit => Some(event::SRQ_LIMIT_REACHED),
        _ => None,
    }
}

/// `Initialized` is a step on the way to active and not an event of its own.
const fn port_event(change: PortChange) -> Option<u32> {
    match change {
        PortChange::Active => Some(event::PORT_ACTIVE),
        PortChange::Down => Some(event::PORT_ERR),
        PortChange::Lid => Some(event::LID_CHANGE),
        PortChange::Pkey => Some(event::PKEY_CHANGE),
        PortChange::Guid => Some(event::GID_CHANGE),
        PortChange::ClientRereg => Some(event::CLIENT_REREGISTER),
        _ => None,
    }
}
