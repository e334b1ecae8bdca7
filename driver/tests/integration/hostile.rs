//! A device that means harm: it writes faster than the driver reads, does not answer, goes away, is reset by somebody else, and scribbles
//! over all memory that it was lent. Every call comes back, by its deadline, with a typed error where there is one.

use crate::support::objects::{Handle, Rig, Shape, device};
use crate::support::{FakeHal, Misbehaviour};
use bareverbs_core::command::{CommandFailure, DeviceLoss};
use bareverbs_core::completion_channel::CompletionChannel;
use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::{
    CompletionQueue, CompletionQueueConfig, Device, DeviceConfig, ReceiveRequest, WorkCompletion, WorkRequest,
};
use bareverbs_prm::command::cq::CreateCqIn;
use bareverbs_prm::cqe::{CQE_SIZE, CompletionEntry, OP_OWN_OFFSET};
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, uar};
use bareverbs_prm::eqe::{EventEntry, PageRequestEvent};
use bareverbs_prm::field::BitRange;
use bareverbs_prm::numbering::{CommandOpcode as Op, CqeOpcode, EventType};
use bareverbs_prm::time::Duration;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use zerocopy::{FromBytes, IntoBytes};

/// Command timeout of the devices of [`device`].
const TIMEOUT: Duration = Duration::from_millis(10);
/// Chances that a device takes at most: a driver that gives it more hangs, and then the test has failed.
const MOST_CHANCES: u32 = 200_000;
/// The page of registers that the firmware gives away.
const PAGE: usize = 0x10 * UAR_PAGE_SIZE;

/// The owner bit of an entry, in its last byte.
const OWNER: BitRange = CompletionEntry::FIELDS.owner.in_byte();

/// Has the device do `work` whenever it gets a chance; gives the number of chances that it took.
fn interfere(hal: &FakeHal, mut work: impl FnMut(&FakeHal) + 'static) -> Rc<Cell<u32>> {
    let (chances, counted) = (Rc::new(Cell::new(0)), hal.clone());
    let taken = chances.clone();
    *hal.world.device.borrow_mut() = Some(Box::new(move || {
        if taken.get() < MOST_CHANCES {
            taken.set(taken.get() + 1);
            work(&counted);
        }
    }));
    chances
}

/// Ends what [`interfere`] began.
fn leave_alone(hal: &FakeHal) {
    hal.world.device.borrow_mut().take();
}

/// Where the entries of a queue are, and how many.
#[derive(Clone, Copy)]
struct Place {
    base: u64,
    log_size: u8,
}

impl Place {
    /// Fills the whole ring with an entry, as seen from the entry that software reads next.
    fn fill(self, hal: &FakeHal, next: u32, bytes: [u8; 64]) {
        for index in next..next + (1 << self.log_size) {
            let mut entry = bytes;
            let op_own = &mut entry[OP_OWN_OFFSET];
            *op_own = OWNER.set((*op_own).into(), u64::from(index >> self.log_size)) as u8;
            let slot = u64::from(index & ((1 << self.log_size) - 1));
            hal.world.memory.write(self.base + slot * 64, &entry);
        }
    }
}

/// Keeps a completion queue full of entries of a queue pair that nobody has.
fn flood_completions(hal: &FakeHal, cqn: u32) -> Rc<Cell<u32>> {
    let (place, record) = {
        let firmware = hal.firmware();
        let ring = &firmware.completion_queues[&cqn];
        let create = firmware.log.iter().rev().find(|(opcode, ..)| *opcode == Op::CreateCq);
        let input = CreateCqIn::read_from_prefix(&create.expect("it was created").2).expect("its input").0;
        (Place { base: ring.base, log_size: ring.log_size }, input.cq_context().dbr_addr())
    };
    let mut stranger = CompletionEntry::new();
    stranger.set_opcode(CqeOpcode::Requester).set_user_index(0x123456);
    let bytes = stranger.as_bytes().try_into().expect("64 bytes");
    interfere(hal, move |hal| {
        let next = hal.world.memory.read(record, 4).try_into().map_or(0, u32::from_be_bytes);
        place.fill(hal, next & 0xff_ffff, bytes);
    })
}

/// Keeps an event queue full of one event.
fn flood_events(hal: &FakeHal, eqn: u32, kind: EventType, data: [u8; 28]) -> Rc<Cell<u32>> {
    let place = {
        let firmware = hal.firmware();
        let ring = &firmware.event_queues[&eqn];
        Place { base: ring.base, log_size: ring.log_size }
    };
    let mut event = EventEntry::new();
    event.set_kind(kind).set_data(data);
    let bytes = event.as_bytes().try_into().expect("64 bytes");
    interfere(hal, move |hal| {
        let next = (hal.register64(PAGE + uar::EQ_CONSUME) >> 32) as u32 & 0xff_ffff;
        place.fill(hal, next, bytes);
    })
}

fn page_request(count: i32) -> [u8; 28] {
    let mut request = PageRequestEvent::new();
    request.set_num_pages(count.cast_unsigned());
    zerocopy::transmute!(request)
}

/// How long `work` takes by the clock of the place.
fn timed<T>(hal: &FakeHal, work: impl FnOnce() -> T) -> (T, Duration) {
    let start = hal.world.now.get();
    let result = work();
    (result, hal.world.now.get().since(start))
}

#[test]
fn a_poll_throws_away_no_more_than_a_ring_of_strangers() {
    let mut rig = Rig::new(Shape { entries: 16, ..Shape::default() });
    let chances = flood_completions(&rig.hal, rig.receive.number().value());
    rig.hal.barrier(Barrier::ToDevice);
    let mut done = [WorkCompletion::EMPTY; 4];
    assert_eq!(rig.receive.poll(&mut done), Ok(0));
    assert!(chances.get() > 16 && chances.get() < 16 * 8, "{} chances", chances.get());
    leave_alone(&rig.hal);
    // It goes on where it was, and finds what is its own behind the strangers.
    for _ in 0..4 {
        rig.receive.poll(&mut done).unwrap();
    }
}

#[test]
fn polling_for_events_ends_although_more_arrive() {
    let hal = FakeHal::new();
    let device = device(&hal);
    let chances = flood_events(&hal, 1, EventType::PortChange, [0; 28]);
    hal.barrier(Barrier::ToDevice);
    for _ in 0..10 {
        assert!(device.poll_event().unwrap().is_some());
    }
    assert!(chances.get() < 10 * 256 * 4, "{} chances", chances.get());
    leave_alone(&hal);
}

#[test]
fn events_keep_no_command_beyond_its_deadline() {
    let hal = FakeHal::new();
    let config =
        DeviceConfig { command_timeout: TIMEOUT, event_queue_entries: 16, ..DeviceConfig::default() };
    let device = Device::open(hal.clone(), config).expect("the device opens");
    hal.firmware().misbehave(Op::Nop, Misbehaviour::Silence);
    let chances = flood_events(&hal, 1, EventType::PortChange, [0; 28]);
    let (result, took) = timed(&hal, || device.ping());
    assert!(matches!(result.unwrap_err().failure, CommandFailure::TimedOut { .. }));
    assert!(took >= TIMEOUT && took < TIMEOUT + Duration::from_millis(1), "{took}");
    assert!(chances.get() < MOST_CHANCES);
    leave_alone(&hal);
}

#[test]
fn events_of_others_keep_no_channel_beyond_its_deadline() {
    let hal = FakeHal::new();
    let device = device(&hal);
    let mut channel = CompletionChannel::create(device.clone(), 1, 16).unwrap();
    let queue = CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 16 }).unwrap();
    for kind in [EventType::PortChange, EventType::Comp] {
        let chances = flood_events(&hal, channel.number().value(), kind, [0; 28]);
        let deadline = hal.now() + TIMEOUT;
        assert!(!channel.wait_for(queue.number(), deadline));
        assert!(hal.now() >= deadline || kind == EventType::Comp);
        assert!(chances.get() < MOST_CHANCES, "{kind}");
        leave_alone(&hal);
    }
}

/// Page requests need commands of their own, which a hostile device answers late or not at all.
#[test]
fn page_requests_keep_nobody_beyond_the_deadline_of_a_command() {
    for how in [Misbehaviour::Silence, Misbehaviour::Delay(Duration::from_millis(9))] {
        let hal = FakeHal::new();
        let device = device(&hal);
        for _ in 0..20 {
            hal.firmware().misbehave(Op::ManagePages, how.clone());
            let mut event = EventEntry::new();
            event.set_kind(EventType::PageRequest).set_data(page_request(1));
            hal.firmware().event(&hal.world.memory, event);
        }
        let (_, took) = timed(&hal, || device.poll_event());
        assert!(took <= TIMEOUT + Duration::from_millis(1), "{took} with {how:?}");
        hal.firmware().misbehave(Op::Nop, Misbehaviour::Silence);
        let (_, took) = timed(&hal, || device.ping());
        assert!(took <= TIMEOUT + Duration::from_millis(1), "{took} with {how:?}");
    }
}

/// Everything that a program may have of a device, and forty queue pairs.
fn crowd(rig: &Rig) -> Vec<Box<dyn std::any::Any>> {
    let queue = || CompletionQueue::create(rig.device.clone(), CompletionQueueConfig { entries: 4 }).unwrap();
    (0..40).map(|_| Box::new(queue()) as Box<dyn std::any::Any>).collect()
}

#[test]
fn a_device_that_is_gone_ends_commands_and_drops_at_once() {
    type Loss = fn(&FakeHal);
    let losses: [(DeviceLoss, Loss); 2] = [
        (DeviceLoss::Removed, |hal| hal.firmware().removed = true),
        (DeviceLoss::Reset, |hal| hal.firmware().reset()),
    ];
    for (loss, lose) in losses {
        let rig = Rig::new(Shape::default());
        let (hal, crowd) = (rig.hal.clone(), crowd(&rig));
        lose(&hal);
        let sent = hal.firmware().doorbells.len();
        let (result, took) = timed(&hal, || {
            let result = rig.device.ping();
            drop(crowd);
            drop(rig);
            result
        });
        let error = result.unwrap_err();
        assert_eq!(error.failure, CommandFailure::DeviceLost(loss));
        assert!(error.to_string().contains("drop everything"), "{error}");
        assert!(took < Duration::from_millis(1), "{took} with {loss:?}");
        assert_eq!(hal.firmware().doorbells.len(), sent, "no command is sent any more");
    }
}

#[test]
fn a_device_that_goes_away_ends_the_command_that_waits() {
    for (how, loss) in
        [(Misbehaviour::Removal, DeviceLoss::Removed), (Misbehaviour::Reset, DeviceLoss::Reset)]
    {
        let hal = FakeHal::new();
        let device = device(&hal);
        hal.firmware().misbehave(Op::Nop, how);
        let (result, took) = timed(&hal, || device.ping());
        assert_eq!(result.unwrap_err().failure, CommandFailure::DeviceLost(loss));
        assert!(took < Duration::from_millis(1), "{took} with {loss:?}");
    }
}

#[test]
fn a_device_that_was_lost_stays_lost() {
    let hal = FakeHal::new();
    let device = device(&hal);
    hal.firmware().removed = true;
    assert!(device.ping().is_err());
    hal.firmware().removed = false;
    let failure = device.ping().unwrap_err().failure;
    assert_eq!(
        failure,
        CommandFailure::DeviceLost(DeviceLoss::Removed),
        "another card may sit in the slot now"
    );
}

/// It is there and answers nothing: the first drop waits, the others do not.
#[test]
fn drops_wait_once_for_a_device_that_does_not_answer() {
    let rig = Rig::new(Shape::default());
    let (hal, crowd) = (rig.hal.clone(), crowd(&rig));
    hal.firmware().asleep = true;
    let (_, took) = timed(&hal, || drop(crowd));
    assert!(took >= TIMEOUT && took < TIMEOUT.saturating_mul(2), "{took}");
    let (_, took) = timed(&hal, || drop(rig));
    assert!(took < TIMEOUT.saturating_mul(12), "{took} to take the device down");
}

#[test]
fn objects_behind_a_slow_command_are_destroyed_when_it_completes() {
    let rig = Rig::new(Shape::default());
    let (hal, mut crowd) = (rig.hal.clone(), crowd(&rig));
    let before = hal.firmware().completion_queues.len();
    hal.firmware().misbehave(Op::DestroyCq, Misbehaviour::Silence);
    crowd.truncate(30);
    assert_eq!(hal.firmware().completion_queues.len(), before, "one is not answered, nine wait");
    hal.firmware().unstick(&hal.world.memory);
    crowd.pop();
    assert_eq!(hal.firmware().completion_queues.len(), before - 11, "the ten and this one");
}

/// A device that could change them would deliver what nobody posted.
#[test]
fn identifiers_lie_where_the_device_cannot_reach_them() {
    let mut rig = Rig::new(Shape::default());
    let id: u64 = 0x5eed_cafe_f00d_1234;
    rig.pair.post_send(&WorkRequest::nop(id)).unwrap();
    let entry = [rig.region.slice(0, 8).unwrap()];
    rig.pair.post_receive(&ReceiveRequest::new(id, &entry)).unwrap();
    let memory = &rig.hal.world.memory;
    for (start, length) in memory.spans() {
        let bytes = memory.read(start, length);
        let shows = |word: &[u8]| word == id.to_le_bytes() || word == id.to_be_bytes();
        assert!(!bytes.windows(8).any(shows), "in the {length} bytes at {start:#x}");
    }
}

/// Bytes that are drawn from a number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }

    /// Writes over some memory of the device; often where entries of queues end, so that they are taken for new ones.
    fn scribble(&mut self, hal: &FakeHal) {
        let spans = hal.world.memory.spans();
        let (start, length) = spans[self.roll(spans.len())];
        let (offset, count) = match self.roll(4) {
            0 => (0, length.min(4096)),
            1 => (self.roll(length / 64) * 64, 64.min(length)),
            2 => (self.roll(length / CQE_SIZE) * CQE_SIZE + OP_OWN_OFFSET, 1),
            _ => (self.roll(length), 1 + self.roll(16)),
        };
        let count = count.min(length - offset.min(length));
        let filler = self.roll(512);
        let bytes: Vec<u8> =
            (0..count).map(|_| if filler < 256 { filler as u8 } else { self.roll(256) as u8 }).collect();
        hal.world.memory.write(start + offset as u64, &bytes);
    }
}

/// An application that ignores errors, but keeps count of what it posted.
struct Careless {
    rig: Rig,
    spare: Vec<CompletionQueue<Handle>>,
    next: u64,
    posted: BTreeSet<u64>,
}

impl Careless {
    fn new() -> Self {
        Self { rig: Rig::new(Shape::default()), spare: Vec::new(), next: 1 << 40, posted: BTreeSet::new() }
    }

    /// One call. Gives identifiers that completed although nobody had posted them, or that had completed before.
    fn call(&mut self, number: u8) -> Vec<u64> {
        let mut done = [WorkCompletion::EMPTY; 8];
        let count = match number % 9 {
            0 => self.post(),
            1 => self.rig.send.poll(&mut done).unwrap_or(0),
            2 => self.rig.receive.poll(&mut done).unwrap_or(0),
            3 => self.rig.device.poll_event().map_or(0, |_| 0),
            4 => self.rig.device.ping().map_or(0, |()| 0),
            5 => self.create(),
            6 => self.spare.pop().map_or(0, |_| 0),
            7 => self.rig.pair.query().map_or(0, |_| 0),
            _ => self.rig.send.poll(&mut done[..1]).unwrap_or(0),
        };
        done[..count].iter().map(|done| done.wr_id).filter(|id| !self.posted.remove(id)).collect()
    }

    fn post(&mut self) -> usize {
        self.next += 1;
        if self.rig.pair.post_send(&WorkRequest::nop(self.next)).is_ok() {
            self.posted.insert(self.next);
        }
        0
    }

    fn create(&mut self) -> usize {
        let config = CompletionQueueConfig { entries: 8 };
        self.spare.extend(CompletionQueue::create(self.rig.device.clone(), config).ok());
        0
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nothing panics, no call takes longer than the few commands that it consists of, no call gives the device chances without end, and
    /// nothing completes that was not posted: what the driver remembers lies where the device cannot write.
    #[test]
    fn a_device_that_overwrites_its_memory_neither_hangs_nor_fools_the_driver(
        seed in 1u64.., calls in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut careless = Careless::new();
        let hal = careless.rig.hal.clone();
        hal.firmware().asleep = true;
        let mut dice = Dice(seed);
        let chances = interfere(&hal, move |hal| dice.scribble(hal));
        for &number in &calls {
            let before = chances.get();
            let (strangers, took) = timed(&hal, || careless.call(number));
            prop_assert_eq!(strangers, Vec::<u64>::new(), "call {}", number % 9);
            prop_assert!(took < TIMEOUT.saturating_mul(4), "call {} took {took}", number % 9);
            prop_assert!(chances.get() - before < MOST_CHANCES / 4, "call {}: {} chances", number % 9, chances.get() - before);
        }
        let before = chances.get();
        let (_, took) = timed(&hal, || drop(careless));
        prop_assert!(took < TIMEOUT.saturating_mul(40), "{took} to drop everything");
        prop_assert!(chances.get() - before < MOST_CHANCES / 2);
        leave_alone(&hal);
    }
}
