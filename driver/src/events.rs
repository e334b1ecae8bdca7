//! Asynchronous events of the device, as typed values.
//!
//! The device has one queue for them. Every command and every [`Device::poll_event`](crate::Device::poll_event) empties it.
//! The driver serves page requests itself. All other events wait in an inbox for the application.
//!
//! **Latency and loss.** The queue has [`event_queue_entries`](crate::DeviceConfig::event_queue_entries) entries, the
//! inbox 64. A full inbox keeps the oldest events and counts the lost ones ([`AsyncEvent::Lost`]). Events are only
//! hints: the application can query the object that an event names. A device whose queue is full loses events, stops
//! writing, and can no longer ask for pages, so an application must poll regularly. No event can report that the queue
//! overran; ask with [`Device::check_events`](crate::Device::check_events). Completion events can go to a
//! [`CompletionChannel`](crate::CompletionChannel) instead.

mod queue;

pub(crate) use queue::EventQueue;

use crate::capabilities::Capabilities;
use crate::page_supply::PageError;
use bareverbs_prm::eqe::{
    CommandEvent, CompletionEvent, CqErrorEvent, EventEntry, PageRequestEvent, PortEvent, QueueEvent,
};
use bareverbs_prm::ids::{Cqn, Qpn, Srqn};
use bareverbs_prm::numbering::{CqErrorSyndrome, EventType, PortChange};
use zerocopy::FromBytes;

/// Something that happened to the device or to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_async_event")]
pub enum AsyncEvent {
    /// An armed completion queue has completions.
    Completion {
        /// The queue.
        cqn: Cqn,
    },
    /// A completion queue is broken. The queue pairs that complete into it are in the error state.
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CompletionQueueError {
        /// The queue.
        cqn: Cqn,
        /// The cause.
        syndrome: CqErrorSyndrome,
    },
    /// A queue pair that is not in RTS yet received the first packet from its peer.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    CommunicationEstablished {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A queue pair in SQD has finished every send that it had started.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SendQueueDrained {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A queue pair has migrated to its alternate path.
    #[doc(alias = "IBV_EVENT_PATH_MIG")]
    PathMigrated {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A queue pair could not migrate to its alternate path.
    #[doc(alias = "IBV_EVENT_PATH_MIG_ERR")]
    PathMigrationFailed {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A queue pair failed and is in the error state. No completion reports this failure.
    QueuePairError {
        /// The queue pair.
        qpn: Qpn,
        /// The cause.
        cause: QueuePairFault,
        /// The part of the queue pair concerned.
        part: QueuePairPart,
    },
    /// A shared receive queue has fewer receives than its armed limit. It is now disarmed.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SharedReceiveQueueLimit {
        /// The queue.
        srqn: Srqn,
    },
    /// A shared receive queue is broken. No queue pair can receive from it any more.
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SharedReceiveQueueError {
        /// The queue.
        srqn: Srqn,
    },
    /// A queue pair in the error state will take no more receives from its shared receive queue. Once its completion
    /// queue has been polled empty, it can be reset or dropped without losing a receive.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    LastReceiveReached {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The port changed: its link went up or down, or its LID, P_Keys or GIDs changed.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    #[doc(alias = "IBV_EVENT_GID_CHANGE")]
    Port {
        /// Port number, from 1.
        port: u8,
        /// The change.
        change: PortChange,
    },
    /// Commands completed. This driver polls its commands and does not enable this event.
    CommandsCompleted {
        /// Bit `n` is slot `n`.
        slots: u32,
    },
    /// The device is overheating.
    TemperatureWarning {
        /// Bit `n` is set if sensor `n` exceeds its limit.
        sensors: u128,
    },
    /// Internal failure of the device. [`Device::health`](crate::Device::health) has details.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    InternalError,
    /// A general event with a subtype from the PRM.
    General {
        /// 1: packets dropped for lack of receives. 5: the slot's power limit changed. 7: firmware was patched. 8:
        /// firmware requests a reset.
        sub_type: u8,
    },
    /// An event unknown to this driver.
    Other {
        /// Type of the entry.
        kind: EventType,
        /// Its subtype.
        sub_type: u8,
        /// Its data.
        data: [u8; 28],
    },
    /// Events were lost because the application did not poll.
    Lost {
        /// Number of lost events.
        count: u32,
    },
    /// The driver could not serve a page request of the device.
    PagesFailed(PageError),
}

/// Why a queue pair failed without a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePairFault {
    /// The device cannot use its rings or its completion queue.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    Catastrophic,
    /// The peer sent an invalid request.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    InvalidRequest,
    /// The peer requested memory that it may not access.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    Access,
}

/// The part of a queue pair that an event concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePairPart {
    /// The whole queue pair.
    Whole,
    /// Its receive queue.
    ReceiveQueue,
    /// Its send queue.
    SendQueue,
    /// A part that this driver does not know.
    Unknown(u8),
}

impl QueuePairPart {
    const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Whole,
            1 => Self::ReceiveQueue,
            2 => Self::SendQueue,
            other => Self::Unknown(other),
        }
    }
}

/// An entry of the event queue, by who handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceEvent {
    /// The device wants pages, or returns them if the count is negative.
    PageRequest { function: u16, count: i32 },
    /// The application handles it.
    Async(AsyncEvent),
}

/// Decodes an entry. This never fails: what the driver does not know is a value.
pub(crate) fn decode(entry: &EventEntry) -> DeviceEvent {
    let data = entry.data();
    match entry.kind() {
        EventType::PageRequest => {
            let pages = PageRequestEvent::read_from_bytes(&data).unwrap_or_default();
            DeviceEvent::PageRequest { function: pages.function_id(), count: pages.num_pages() as i32 }
        }
        kind => DeviceEvent::Async(event(kind, entry.sub_type(), data)),
    }
}

fn event(kind: EventType, sub_type: u8, data: [u8; 28]) -> AsyncEvent {
    match kind {
        EventType::Comp => {
            let cqn = CompletionEvent::read_from_bytes(&data).unwrap_or_default().cqn();
            AsyncEvent::Completion { cqn }
        }
        EventType::CqError => {
            let error = CqErrorEvent::read_from_prefix(&data)
                .map_or_else(|_| CqErrorEvent::new(), |(event, _)| event);
            AsyncEvent::CompletionQueueError { cqn: error.cqn(), syndrome: error.syndrome() }
        }
        EventType::PortChange => {
            let port = PortEvent::read_from_bytes(&data).unwrap_or_default().port();
            AsyncEvent::Port { port, change: PortChange::from_raw(sub_type) }
        }
        EventType::Cmd => AsyncEvent::CommandsCompleted {
            slots: CommandEvent::read_from_bytes(&data).unwrap_or_default().vector(),
        },
        EventType::TempWarnEvent => AsyncEvent::TemperatureWarning { sensors: sensors(&data) },
        EventType::InternalError => AsyncEvent::InternalError,
        EventType::GeneralEvent => AsyncEvent::General { sub_type },
        kind => queue_event(kind, QueueEvent::read_from_bytes(&data).unwrap_or_default())
            .unwrap_or(AsyncEvent::Other { kind, sub_type, data }),
    }
}

/// The sensors of a temperature warning. The upper half of the 128 bits comes first.
fn sensors(data: &[u8; 28]) -> u128 {
    data.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes))
}

/// An event of a queue pair or shared receive queue, if it is one.
fn queue_event(kind: EventType, queue: QueueEvent) -> Option<AsyncEvent> {
    let (qpn, srqn) = (queue.number(), Srqn::from_low_bits(queue.number().value()));
    let failed =
        |cause| AsyncEvent::QueuePairError { qpn, cause, part: QueuePairPart::from_raw(queue.kind()) };
    Some(match kind {
        EventType::CommEst => AsyncEvent::CommunicationEstablished { qpn },
        EventType::SqDrained => AsyncEvent::SendQueueDrained { qpn },
        EventType::PathMig => AsyncEvent::PathMigrated { qpn },
        EventType::PathMigFailed => AsyncEvent::PathMigrationFailed { qpn },
        EventType::WqCatasError => failed(QueuePairFault::Catastrophic),
        EventType::WqInvalReqError => failed(QueuePairFault::InvalidRequest),
        EventType::WqAccessError => failed(QueuePairFault::Access),
        EventType::SrqRqLimit => AsyncEvent::SharedReceiveQueueLimit { srqn },
        EventType::SrqCatasError => AsyncEvent::SharedReceiveQueueError { srqn },
        EventType::SrqLastWqe => AsyncEvent::LastReceiveReached { qpn },
        _ => return None,
    })
}

/// Event types that the queue subscribes to, as the bit mask of CREATE_EQ.
pub(crate) fn event_mask(capabilities: &Capabilities) -> u64 {
    let offered = |offered: bool, kind: EventType| if offered { 1 << kind.raw() } else { 0 };
    EVENT_MASK
        | offered(capabilities.temperature_events, EventType::TempWarnEvent)
        | offered(capabilities.general_events, EventType::GeneralEvent)
}

/// Event types that every device supports.
const EVENT_MASK: u64 = mask(&[
    EventType::PathMig,
    EventType::CommEst,
    EventType::SqDrained,
    EventType::CqError,
    EventType::WqCatasError,
    EventType::PathMigFailed,
    EventType::PortChange,
    EventType::PageRequest,
    EventType::WqInvalReqError,
    EventType::WqAccessError,
    EventType::SrqCatasError,
    EventType::SrqLastWqe,
    EventType::SrqRqLimit,
]);

const fn mask(types: &[EventType]) -> u64 {
    let (mut mask, mut i) = (0, 0);
    while i < types.len() {
        mask |= 1 << types[i].raw();
        i += 1;
    }
    mask
}

/// Events that wait for the application.
#[derive(Default)]
pub(crate) struct Inbox {
    events: heapless::Deque<AsyncEvent, 64>,
    lost: u32,
}

impl Inbox {
    pub(crate) fn push(&mut self, event: AsyncEvent) {
        if self.events.push_back(event).is_err() {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// The oldest event. The number of lost events comes first, because it matters most.
    pub(crate) fn pop(&mut self) -> Option<AsyncEvent> {
        match core::mem::take(&mut self.lost) {
            0 => self.events.pop_front(),
            count => Some(AsyncEvent::Lost { count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn page_requests_are_signed() {
        let mut entry = EventEntry::new();
        let mut pages = PageRequestEvent::new();
        pages.set_function_id(3).set_num_pages(-5i32 as u32);
        entry.set_kind(EventType::PageRequest).set_data(pages.as_bytes().try_into().unwrap());
        assert_eq!(decode(&entry), DeviceEvent::PageRequest { function: 3, count: -5 });
    }

    #[test]
    fn ports_are_in_the_upper_half_of_a_byte() {
        let mut entry = EventEntry::new();
        let mut data = [0; 28];
        data[8] = 0x20;
        entry.set_kind(EventType::PortChange).set_sub_type(4).set_data(data);
        assert_eq!(
            decode(&entry),
            DeviceEvent::Async(AsyncEvent::Port { port: 2, change: PortChange::Active })
        );
    }

    #[test]
    fn events_of_queues_have_their_own_values() {
        let mut data = QueueEvent::new();
        data.set_number(Qpn::from_low_bits(0x1234)).set_kind(2);
        let of = |kind| {
            let mut entry = EventEntry::new();
            entry.set_kind(kind).set_data(data.as_bytes().try_into().unwrap());
            match decode(&entry) {
                DeviceEvent::Async(event) => event,
                pages @ DeviceEvent::PageRequest { .. } => panic!("{pages:?}"),
            }
        };
        let (srqn, qpn) = (Srqn::from_low_bits(0x1234), Qpn::from_low_bits(0x1234));
        let failed = |cause| AsyncEvent::QueuePairError { qpn, cause, part: QueuePairPart::SendQueue };
        assert_eq!(of(EventType::SrqRqLimit), AsyncEvent::SharedReceiveQueueLimit { srqn });
        assert_eq!(of(EventType::SrqCatasError), AsyncEvent::SharedReceiveQueueError { srqn });
        assert_eq!(of(EventType::SrqLastWqe), AsyncEvent::LastReceiveReached { qpn });
        assert_eq!(of(EventType::CommEst), AsyncEvent::CommunicationEstablished { qpn });
        assert_eq!(of(EventType::SqDrained), AsyncEvent::SendQueueDrained { qpn });
        assert_eq!(of(EventType::PathMig), AsyncEvent::PathMigrated { qpn });
        assert_eq!(of(EventType::PathMigFailed), AsyncEvent::PathMigrationFailed { qpn });
        assert_eq!(of(EventType::WqCatasError), failed(QueuePairFault::Catastrophic));
        assert_eq!(of(EventType::WqInvalReqError), failed(QueuePairFault::InvalidRequest));
        assert_eq!(of(EventType::WqAccessError), failed(QueuePairFault::Access));
        assert_eq!(QueuePairPart::from_raw(6), QueuePairPart::Unknown(6));
    }

    #[test]
    fn events_of_the_device_have_their_own_values() {
        let mut entry = EventEntry::new();
        let mut data = [0; 28];
        data[15] = 0b101;
        entry.set_kind(EventType::TempWarnEvent).set_data(data);
        assert_eq!(decode(&entry), DeviceEvent::Async(AsyncEvent::TemperatureWarning { sensors: 0b101 }));
        entry.set_kind(EventType::GeneralEvent).set_sub_type(5);
        assert_eq!(decode(&entry), DeviceEvent::Async(AsyncEvent::General { sub_type: 5 }));
        entry.set_kind(EventType::InternalError);
        assert_eq!(decode(&entry), DeviceEvent::Async(AsyncEvent::InternalError));
        entry.set_kind(EventType::Cmd).set_data([0x80; 28]);
        assert_eq!(decode(&entry), DeviceEvent::Async(AsyncEvent::CommandsCompleted { slots: 0x8080_8080 }));
        entry.set_kind(EventType::CqError).set_data([0; 28]);
        assert!(matches!(decode(&entry), DeviceEvent::Async(AsyncEvent::CompletionQueueError { .. })));
    }

    #[test]
    fn unknown_types_are_values() {
        let mut entry = EventEntry::new();
        entry.set_kind(EventType::from_raw(0xee)).set_sub_type(7);
        let other = AsyncEvent::Other { kind: EventType::Unknown(0xee), sub_type: 7, data: [0; 28] };
        assert_eq!(decode(&entry), DeviceEvent::Async(other));
    }

    #[test]
    fn lost_events_are_counted_in_an_event() {
        let mut inbox = Inbox::default();
        (0..70).for_each(|i| inbox.push(AsyncEvent::Completion { cqn: Cqn::from_low_bits(i) }));
        assert_eq!(inbox.pop(), Some(AsyncEvent::Lost { count: 6 }));
        assert_eq!(inbox.pop(), Some(AsyncEvent::Completion { cqn: Cqn::default() }));
    }
}
