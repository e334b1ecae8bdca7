//! The event queue: entries that the device writes on its own account, and what they mean.
//!
//! There is one queue, polled. Page requests are served by the driver itself; everything else is for the application.

use crate::dma::{BLOCK, Dma, Window};
use crate::hal::{Barrier, DmaMemory, Hal, HalError, Mmio};
use crate::ring::{Consumer, OwnedEntry, take_ownership};
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, eq_doorbell, uar};
use bareverbs_prm::eqe::{
    CompletionEvent, CqErrorEvent, EventEntry, OWNER_OFFSET, PageRequestEvent, PortEvent, QueueEvent,
};
use bareverbs_prm::ids::{Cqn, Eqn, Qpn, Srqn, UarIndex};
use bareverbs_prm::numbering::{CqErrorSyndrome, EventType, PortChange};
use zerocopy::FromBytes;

/// Something that happened to the device or to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ibv_async_event")]
pub enum AsyncEvent {
    /// A completion queue that was armed has completions.
    Completion {
        /// The queue.
        cqn: Cqn,
    },
    /// A completion queue is broken.
    CompletionQueueError {
        /// The queue.
        cqn: Cqn,
        /// What happened.
        syndrome: CqErrorSyndrome,
    },
    /// Something happened to a queue pair.
    Queue {
        /// What happened.
        kind: EventType,
        /// 0 a queue pair, 1 a receive queue, 2 a send queue.
        resource: u8,
        /// Number of the object.
        number: Qpn,
    },
    /// A shared receive queue has fewer receives than the limit that was armed; it is disarmed now.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SharedReceiveQueueLimit {
        /// The queue.
        srqn: Srqn,
    },
    /// A shared receive queue is broken: no queue pair can receive from it any more.
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SharedReceiveQueueError {
        /// The queue.
        srqn: Srqn,
    },
    /// A queue pair in the error state takes nothing more from its shared receive queue: once what its completion queue
    /// has is polled, it can be reset or dropped and no receive is lost.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    LastReceiveReached {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The port changed.
    Port {
        /// Number of the port, from 1.
        port: u8,
        /// How it changed.
        change: PortChange,
    },
    /// Something that this driver does not know.
    Other {
        /// Type of the entry.
        kind: EventType,
        /// Its subtype.
        sub_type: u8,
        /// Its data.
        data: [u8; 28],
    },
    /// Events were lost because nobody polled.
    Lost {
        /// How many.
        count: u32,
    },
    /// The device asked for pages or returned some, and that failed.
    PagesFailed(crate::page_supply::PageError),
}

/// An entry, sorted by who has to deal with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sorted {
    /// The device wants pages, or returns them if the count is negative.
    Pages { function: u16, count: i32 },
    /// For the application.
    Event(AsyncEvent),
}

/// Reads an entry. Never fails: what is not known is a value.
pub(crate) fn sort(entry: &EventEntry) -> Sorted {
    let data = entry.data();
    match entry.kind() {
        EventType::PageRequest => {
            let pages = PageRequestEvent::read_from_bytes(&data).unwrap_or_default();
            Sorted::Pages { function: pages.function_id(), count: pages.num_pages() as i32 }
        }
        kind => Sorted::Event(event(kind, entry.sub_type(), data)),
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
        EventType::PathMig
        | EventType::CommEst
        | EventType::SqDrained
        | EventType::WqCatasError
        | EventType::PathMigFailed
        | EventType::WqInvalReqError
        | EventType::WqAccessError => {
            let queue = QueueEvent::read_from_bytes(&data).unwrap_or_default();
            AsyncEvent::Queue { kind, resource: queue.kind(), number: queue.number() }
        }
        EventType::SrqRqLimit => AsyncEvent::SharedReceiveQueueLimit { srqn: shared_queue(data) },
        EventType::SrqCatasError => AsyncEvent::SharedReceiveQueueError { srqn: shared_queue(data) },
        EventType::SrqLastWqe => {
            let qpn = QueueEvent::read_from_bytes(&data).unwrap_or_default().number();
            AsyncEvent::LastReceiveReached { qpn }
        }
        kind => AsyncEvent::Other { kind, sub_type, data },
    }
}

fn shared_queue(data: [u8; 28]) -> Srqn {
    Srqn::from_low_bits(QueueEvent::read_from_bytes(&data).unwrap_or_default().number().value())
}

/// Types that the queue asks for, as the bit mask of CREATE_EQ.
pub(crate) const EVENT_MASK: u64 = mask(&[
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

/// The event queue in memory.
pub(crate) struct EventQueue<M> {
    pub(crate) ring: Dma<M>,
    consumer: Consumer,
    pub(crate) eqn: Eqn,
    uar: UarIndex,
}

struct Entry<'a, H> {
    hal: &'a H,
    window: Window<'a, BLOCK>,
}

impl<H: Hal> OwnedEntry for Entry<'_, H> {
    fn last_byte(&self) -> u8 {
        self.window.load_u8::<OWNER_OFFSET>()
    }
    fn synchronize(&self) {
        self.hal.barrier(Barrier::FromDevice);
    }
}

impl<M: DmaMemory> EventQueue<M> {
    /// Memory for 2^`log_size` entries, all owned by the device.
    pub(crate) fn allocate<H: Hal<Dma = M>>(hal: &H, log_size: u8, uar: UarIndex) -> Result<Self, HalError> {
        let consumer = Consumer::new(log_size);
        let entries = consumer.size() as usize;
        let ring = Dma::allocate(hal, (entries * BLOCK).max(4096), 4096)?;
        for window in (0..entries).filter_map(|index| ring.block(index)) {
            window.store_be32::<60>(1);
        }
        Ok(Self { ring, consumer, eqn: Eqn::default(), uar })
    }

    /// The next entry, if there is one.
    pub(crate) fn poll<H: Hal<Dma = M>>(&mut self, hal: &H) -> Option<EventEntry> {
        let window = self.ring.block(self.consumer.slot())?;
        take_ownership(&Entry { hal, window }, self.consumer.phase())?;
        let entry = EventEntry::read_from_bytes(&window.to_bytes()).unwrap_or_default();
        self.consumer.advance();
        Some(entry)
    }

    /// Frees the entries that were polled.
    pub(crate) fn acknowledge<H: Hal<Dma = M>>(&self, hal: &H) {
        let register = self.uar.value() as usize * UAR_PAGE_SIZE + uar::EQ_CONSUME;
        hal.mmio().write32(register, eq_doorbell(self.eqn, self.consumer.counter()));
        hal.barrier(Barrier::FlushMmio);
    }
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

    /// The oldest event; how many were lost comes first, because it is the worse news.
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
        assert_eq!(sort(&entry), Sorted::Pages { function: 3, count: -5 });
    }

    #[test]
    fn ports_are_in_the_upper_half_of_a_byte() {
        let mut entry = EventEntry::new();
        let mut data = [0; 28];
        data[8] = 0x20;
        entry.set_kind(EventType::PortChange).set_sub_type(4).set_data(data);
        assert_eq!(sort(&entry), Sorted::Event(AsyncEvent::Port { port: 2, change: PortChange::Active }));
    }

    #[test]
    fn numbers_of_shared_queues_are_where_those_of_queue_pairs_are() {
        let mut data = QueueEvent::new();
        data.set_number(Qpn::from_low_bits(0x1234));
        let of = |kind| {
            let mut entry = EventEntry::new();
            entry.set_kind(kind).set_data(data.as_bytes().try_into().unwrap());
            sort(&entry)
        };
        let (srqn, qpn) = (Srqn::from_low_bits(0x1234), Qpn::from_low_bits(0x1234));
        assert_eq!(of(EventType::SrqRqLimit), Sorted::Event(AsyncEvent::SharedReceiveQueueLimit { srqn }));
        assert_eq!(of(EventType::SrqCatasError), Sorted::Event(AsyncEvent::SharedReceiveQueueError { srqn }));
        assert_eq!(of(EventType::SrqLastWqe), Sorted::Event(AsyncEvent::LastReceiveReached { qpn }));
    }

    #[test]
    fn unknown_types_are_values() {
        let mut entry = EventEntry::new();
        entry.set_kind(EventType::from_raw(0xee)).set_sub_type(7);
        let other = AsyncEvent::Other { kind: EventType::Unknown(0xee), sub_type: 7, data: [0; 28] };
        assert_eq!(sort(&entry), Sorted::Event(other));
    }

    #[test]
    fn losses_are_told() {
        let mut inbox = Inbox::default();
        (0..70).for_each(|i| inbox.push(AsyncEvent::Completion { cqn: Cqn::from_low_bits(i) }));
        assert_eq!(inbox.pop(), Some(AsyncEvent::Lost { count: 6 }));
        assert_eq!(inbox.pop(), Some(AsyncEvent::Completion { cqn: Cqn::default() }));
    }
}
