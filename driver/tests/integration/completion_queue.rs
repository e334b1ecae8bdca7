//! Completion queues as the device sees them: the contexts of their commands, rings that change their size, entries of 128
//! bytes. And as the application waits for them: armed, with a channel, until a deadline.

use crate::support::objects::{Handle, device, peer};
use crate::support::{FakeHal, Misbehaviour};
use bareverbs_core::completion_queue::{
    Arming, CompletionQueueError, Moderation, Notify, PeriodStart, PollError, WaitError,
};
use bareverbs_core::{
    CompletionChannel, CompletionQueue, CompletionQueueConfig, ConnectOptions, ProtectionDomain, QueuePair,
    QueuePairBuilder, WorkCompletion, WorkRequest,
};
use bareverbs_prm::command::caps::GeneralCapabilities;
use bareverbs_prm::command::cq::{CreateCqIn, ModifyCqIn};
use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::cqe::{CQE_SIZE, CompletionEntry, OP_OWN_INITIAL, OP_OWN_OFFSET};
use bareverbs_prm::doorbell::{UAR_PAGE_SIZE, uar};
use bareverbs_prm::eqe::EventEntry;
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode as Op, CqeOpcode, EventType};
use bareverbs_prm::time::{Duration, Time};
use std::cell::Cell;
use std::rc::Rc;
use zerocopy::FromBytes;

/// The page of registers that the firmware gives away.
const PAGE: usize = 0x10 * UAR_PAGE_SIZE;
/// Everything that a completion queue may ask for.
fn everything(page: &mut GeneralCapabilities) {
    page.set_cq_resize(true).set_cq_moderation(true).set_cq_oi(true).set_cqe_compression(true);
    page.set_log_max_cq_sz(6);
}

fn open(edit: impl Fn(&mut GeneralCapabilities)) -> (FakeHal, Handle) {
    let hal = FakeHal::new();
    edit(&mut hal.firmware().general);
    let device = device(&hal);
    (hal, device)
}

/// The input of the last command of this kind.
fn last<T: FromBytes>(hal: &FakeHal, opcode: Op) -> (u16, T) {
    let firmware = hal.firmware();
    let (_, modifier, input) = firmware.log.iter().rfind(|(found, ..)| *found == opcode).expect("it came");
    (*modifier, T::read_from_prefix(input).expect("it is long enough").0)
}

fn created(hal: &FakeHal) -> CompletionQueueContext {
    *last::<CreateCqIn>(hal, Op::CreateCq).1.cq_context()
}

/// A completion queue, and a queue pair whose sends complete there.
struct Side {
    hal: FakeHal,
    queue: CompletionQueue<Handle>,
    pair: QueuePair<Handle>,
    /// Requests posted so far; each is of one basic block.
    posted: u16,
}

impl Side {
    fn new(hal: &FakeHal, queue: CompletionQueue<Handle>) -> Self {
        let domain = ProtectionDomain::allocate(queue.device().clone()).unwrap();
        let built = QueuePairBuilder::new(&domain, &queue, &queue).send_queue(64).build().unwrap();
        let pair = built.connect(&peer(), ConnectOptions::default()).unwrap();
        Self { hal: hal.clone(), queue, pair, posted: 0 }
    }

    fn small(edit: impl Fn(&mut GeneralCapabilities), entries: u32) -> Self {
        let (hal, device) = open(edit);
        let queue = CompletionQueue::create(device, CompletionQueueConfig { entries }).unwrap();
        Self::new(&hal, queue)
    }

    /// Posts a request and returns its completion, which the device has yet to write.
    fn post(&mut self) -> CompletionEntry {
        self.pair.post_send(&WorkRequest::nop(self.posted.into())).unwrap();
        let user_index = self.hal.firmware().pairs[&self.pair.qpn().value()].context.user_index();
        let mut entry = CompletionEntry::new();
        entry.set_opcode(CqeOpcode::Requester).set_qpn(self.pair.qpn()).set_user_index(user_index);
        entry.set_wqe_counter(self.posted);
        self.posted += 1;
        entry
    }

    fn complete(&self, entry: CompletionEntry) {
        write_completion(&self.hal, self.queue.number(), entry);
    }

    fn post_and_complete(&mut self, count: usize) {
        for _ in 0..count {
            let entry = self.post();
            self.complete(entry);
        }
    }

    /// The identities of what one poll with room for `room` finds.
    fn poll(&mut self, room: usize) -> Vec<u64> {
        let mut found = vec![WorkCompletion::EMPTY; room];
        let count = self.queue.poll(&mut found).unwrap();
        found[..count].iter().map(|done| done.wr_id).collect()
    }

    fn now(&self) -> Time {
        self.hal.world.now.get()
    }
}

fn write_completion(hal: &FakeHal, cqn: Cqn, entry: CompletionEntry) {
    hal.firmware().complete(&hal.world.memory, cqn.value(), entry);
}

/// Has the device do `work` once, at its first chance after `when` holds. Tells whether it did.
fn once(
    hal: &FakeHal,
    when: impl Fn(&FakeHal) -> bool + 'static,
    work: impl Fn(&FakeHal) + 'static,
) -> Rc<Cell<bool>> {
    let (hal_of_device, done) = (hal.clone(), Rc::new(Cell::new(false)));
    let done_of_device = done.clone();
    *hal.world.device.borrow_mut() = Some(Box::new(move || {
        if !done_of_device.get() && when(&hal_of_device) {
            done_of_device.set(true);
            work(&hal_of_device);
        }
    }));
    done
}

/// Whether software has armed a completion queue.
fn is_armed(hal: &FakeHal) -> bool {
    hal.register64(PAGE + uar::CQ_ARM) != 0
}

#[test]
fn the_context_of_a_completion_queue() {
    let (hal, device) = open(everything);
    let queue = CompletionQueue::builder(device.clone()).entries(33).create().unwrap();
    assert_eq!((queue.entries(), queue.discarded()), (64, 0));
    assert_eq!(queue.number().value(), *hal.firmware().completion_queues.last_key_value().unwrap().0);
    let (context, ring) = (created(&hal), hal.firmware().completion_queues[&queue.number().value()].clone());
    assert_eq!((context.log_cq_size(), context.cqe_sz(), context.uar_page().value()), (6, 0, 0x10));
    assert_eq!((context.c_eqn_or_apu_element(), context.dbr_addr()), (1, ring.base + 64 * 64));
    assert_eq!((context.oi(), context.cqe_comp_en(), context.mini_cqe_res_format()), (false, false, 0));
    assert_eq!((context.cq_max_count(), context.cq_period(), context.cq_period_mode()), (0, 0, 0));
    assert!(hal.world.memory.is_mapped(ring.base, 64 * 64 + 8), "the ring, and the record behind it");
    for slot in 0..64 {
        let owner = hal.world.memory.read(ring.base + slot * CQE_SIZE as u64 + OP_OWN_OFFSET as u64, 1);
        assert_eq!(owner, [OP_OWN_INITIAL], "slot {slot} is of the device and was not written");
    }
    let shown = format!("{queue:?}");
    assert!(shown.contains("cqn") && shown.contains("consumer"), "{shown}");
    let channel = CompletionChannel::create(device.clone(), 0, 4).unwrap();
    let moderation =
        Moderation { completions: 7, period: Duration::from_nanos(4001), from: PeriodStart::LastCompletion };
    let builder =
        CompletionQueue::builder(device.clone()).entries(1).channel(&channel).moderation(moderation);
    let one = builder.ignore_overrun().compressed().create().unwrap();
    let context = created(&hal);
    assert_eq!((one.entries(), context.log_cq_size()), (1, 0));
    assert_eq!((context.oi(), context.cqe_comp_en(), context.mini_cqe_res_format()), (true, true, 1));
    // A period is in whole microseconds, rounded up.
    assert_eq!((context.cq_max_count(), context.cq_period(), context.cq_period_mode()), (7, 5, 1));
    assert_eq!((context.c_eqn_or_apu_element(), channel.number().value()), (2, 2));
    let _wide = CompletionQueue::builder(device).entries(4).wide_entries().create().unwrap();
    let context = created(&hal);
    assert_eq!((context.log_cq_size(), context.cqe_sz()), (2, 1));
    let ring = hal.firmware().completion_queues.last_key_value().unwrap().1.clone();
    assert_eq!(context.dbr_addr(), ring.base + 4 * 128);
}

/// Nothing of it reaches the device, which would answer with a bare syndrome.
#[test]
fn options_that_a_device_lacks_are_refused_before_a_command() {
    let (hal, plain) = open(|page| {
        page.set_log_max_cq_sz(6);
    });
    let (_, full) = open(everything);
    let commands = hal.firmware().log.len();
    let missing = |feature| CompletionQueueError::NotOffered { feature };
    let compression = missing("compression of entries of this size (cqe_compression)");
    let build = || CompletionQueue::builder(plain.clone());
    let refused = |result: Result<CompletionQueue<Handle>, _>| result.expect_err("it is refused");
    assert_eq!(refused(build().compressed().create()), compression);
    assert_eq!(
        refused(CompletionQueue::builder(full.clone()).compressed().wide_entries().create()),
        compression
    );
    assert_eq!(refused(build().ignore_overrun().create()), missing("ignoring overruns (cq_oi)"));
    let moderation = Moderation { completions: 2, ..Moderation::NONE };
    assert_eq!(refused(build().moderation(moderation).create()), missing("moderation (cq_moderation)"));
    let limit = |asked| CompletionQueueError::Entries { asked, limit: 64 };
    assert_eq!(refused(build().entries(0).create()), limit(0));
    assert_eq!(refused(build().entries(65).create()), limit(65));
    let channel = CompletionChannel::create(full.clone(), 0, 4).unwrap();
    assert_eq!(refused(build().channel(&channel).create()), CompletionQueueError::OtherDevice);
    assert_eq!(hal.firmware().log.len(), commands);
    let mut queue = build().entries(64).create().unwrap();
    assert_eq!(queue.resize(32), Err(missing("resizing (cq_resize)")));
    assert_eq!(queue.set_moderation(moderation), Err(missing("moderation (cq_moderation)")));
    assert_eq!(queue.set_moderation(Moderation::NONE), Ok(()), "no moderation needs no capability");
}

/// The field has twelve bits.
#[test]
fn a_period_is_at_most_4095_microseconds() {
    let (hal, device) = open(everything);
    let of = |nanos| Moderation { period: Duration::from_nanos(nanos), ..Moderation::NONE };
    let mut queue =
        CompletionQueue::builder(device.clone()).moderation(of(4_095_000)).entries(4).create().unwrap();
    assert_eq!(created(&hal).cq_period(), 4095);
    let asked = Duration::from_nanos(4_095_001);
    let refused = CompletionQueue::builder(device).moderation(of(4_095_001)).create().err();
    assert_eq!(refused, Some(CompletionQueueError::Period { asked }));
    assert_eq!(queue.set_moderation(of(4_095_001)), Err(CompletionQueueError::Period { asked }));
    let later =
        Moderation { completions: 300, period: Duration::from_micros(20), from: PeriodStart::LastEvent };
    queue.set_moderation(later).unwrap();
    let (modifier, input): (_, ModifyCqIn) = last(&hal, Op::ModifyCq);
    let context = input.cq_context();
    assert_eq!((modifier, input.cqn()), (0, queue.number()));
    let select = input.modify_field_select_resize_field_select_modify_field_select_modify_field_select();
    assert_eq!(select, 0b1_0011, "period, count and mode, but not the overrun flag");
    assert_eq!((context.cq_max_count(), context.cq_period(), context.cq_period_mode()), (300, 20, 0));
}

/// A queue that was refused gives its memory back. One whose creation has no answer keeps it, because the device may use it.
#[test]
fn memory_that_the_device_may_have_stays() {
    let (hal, device) = open(everything);
    let regions = || hal.world.memory.regions();
    let before = regions();
    let create = || CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 4 });
    hal.firmware().misbehave(Op::CreateCq, Misbehaviour::Status(0xf, 0));
    assert!(matches!(create(), Err(CompletionQueueError::Command(_))));
    assert_eq!(regions(), before);
    let mut queue = create().unwrap();
    let before = regions();
    hal.firmware().misbehave(Op::ModifyCq, Misbehaviour::Status(0xf, 0));
    assert!(matches!(queue.resize(8), Err(CompletionQueueError::Command(_))));
    assert_eq!((regions(), queue.entries()), (before, 4));
    hal.firmware().misbehave(Op::ModifyCq, Misbehaviour::Silence);
    assert!(matches!(queue.resize(8), Err(CompletionQueueError::Command(_))));
    assert_eq!(regions(), before + 1);
}

/// Whatever was not polled moves behind the place of the entry that ends the old ring, and the device goes on behind that.
#[test]
fn unpolled_completions_move_into_the_new_ring() {
    for wide in [false, true] {
        let (hal, device) = open(everything);
        let builder = CompletionQueue::builder(device).entries(8);
        let queue = if wide { builder.wide_entries() } else { builder }.create().unwrap();
        let mut side = Side::new(&hal, queue);
        let mut expected = 0..;
        // Each time the ring begins at another slot, and what moves wraps around the end of the old or the new one.
        let steps = [(0, 0, 16), (5, 7, 8), (6, 5, 32), (1, 3, 4), (2, 2, 64), (3, 7, 8)];
        for (step, (polled, moved, size)) in steps.into_iter().enumerate() {
            side.post_and_complete(polled);
            assert_eq!(side.poll(polled), Vec::from_iter(expected.by_ref().take(polled)));
            side.post_and_complete(moved);
            let old = hal.firmware().completion_queues[&side.queue.number().value()].base;
            side.queue.resize(size).unwrap();
            let (modifier, input): (_, ModifyCqIn) = last(&hal, Op::ModifyCq);
            assert_eq!((modifier, input.cqn(), side.queue.entries()), (1, side.queue.number(), size));
            let select =
                input.modify_field_select_resize_field_select_modify_field_select_modify_field_select();
            assert_eq!((select, input.cq_context().cqe_sz()), (0b111, wide.into()));
            assert_eq!(1 << input.cq_context().log_cq_size(), size);
            let bytes = if wide { 128 } else { 64 };
            // The first ring has the doorbell record behind it, which stays where it is.
            assert_eq!(hal.world.memory.is_mapped(old, bytes), step == 0, "step {step}");
            side.post_and_complete((size as usize - moved).min(3));
            let count = moved + (size as usize - moved).min(3);
            let ids = Vec::from_iter(expected.by_ref().take(count));
            assert_eq!(side.poll(64), ids, "{moved} into {size}, wide {wide}");
            let record = created(&hal).dbr_addr();
            let counter = hal.world.memory.read(record, 4);
            assert_eq!(
                counter,
                (hal.firmware().completion_queues[&side.queue.number().value()].producer).to_be_bytes()
            );
        }
    }
}

/// The record tells the device at once how far software is in the new ring.
#[test]
fn a_new_ring_begins_with_what_was_consumed() {
    let mut side = Side::small(everything, 8);
    side.post_and_complete(3);
    assert_eq!(side.poll(1), [0]);
    side.queue.resize(16).unwrap();
    let record = side.hal.world.memory.read(created(&side.hal).dbr_addr(), 4);
    assert_eq!(record, 2u32.to_be_bytes(), "one completion, and the entry that ended the old ring");
    assert_eq!(side.poll(8), [1, 2]);
}

#[test]
fn a_ring_without_an_end_is_reported() {
    let mut side = Side::small(everything, 8);
    side.hal.firmware().omits_resize_entry = true;
    side.post_and_complete(3);
    assert_eq!(side.queue.resize(16), Err(CompletionQueueError::EntriesLost { moved: 3 }));
    assert_eq!(side.poll(8), [0, 1, 2]);
    // A full ring has no room for it either.
    side.hal.firmware().completion_queues.get_mut(&side.queue.number().value()).unwrap().producer = 4;
    side.post_and_complete(16);
    assert_eq!(side.queue.resize(32), Err(CompletionQueueError::EntriesLost { moved: 16 }));
    assert_eq!(side.poll(64), Vec::from_iter(3..19));
}

/// Entries of 128 bytes are read in their second half, one by one and many at once.
#[test]
fn wide_entries_are_polled_pass_after_pass() {
    for room in [1, 3, 8] {
        let (hal, device) = open(everything);
        let queue = CompletionQueue::builder(device).entries(4).wide_entries().create().unwrap();
        let mut side = Side::new(&hal, queue);
        let mut expected = 0..;
        for count in [1, 4, 3, 4, 4, 2, 4] {
            side.post_and_complete(count);
            let mut found = Vec::new();
            while found.len() < count {
                let some = side.poll(room);
                assert!(!some.is_empty() && some.len() <= room);
                found.extend(some);
            }
            assert_eq!(found, Vec::from_iter(expected.by_ref().take(count)));
            assert_eq!(side.poll(room), []);
        }
    }
}

#[test]
fn armings_are_numbered_modulo_four() {
    let mut side = Side::small(everything, 4);
    let record = created(&side.hal).dbr_addr();
    for round in 0..6u32 {
        assert_eq!(side.queue.arm(Notify::Next), Arming::Armed);
        let word = (round % 4) << 28 | round;
        let number = u64::from(side.queue.number().value());
        assert_eq!(side.hal.register64(PAGE + uar::CQ_ARM), u64::from(word) << 32 | number);
        assert_eq!(side.hal.world.memory.read(record + 4, 4), word.to_be_bytes());
        side.queue.acknowledge_event();
        side.post_and_complete(1);
        assert_eq!(side.poll(1), [u64::from(round)]);
    }
    side.post_and_complete(1);
    assert_eq!(side.queue.arm(Notify::Next), Arming::Ready, "there is something to poll");
}

/// Without an interrupt, a wait looks every five microseconds, and never beyond its deadline.
#[test]
fn wait_one_polls_every_five_microseconds_until_its_deadline() {
    let mut side = Side::small(everything, 4);
    side.hal.world.now.set(Time::ZERO + Duration::from_millis(3));
    let start = side.now();
    let entry = side.post();
    let (cqn, at) = (side.queue.number(), start + Duration::from_micros(12));
    once(&side.hal, move |hal| hal.world.now.get() >= at, move |hal| write_completion(hal, cqn, entry));
    let done = side.queue.wait_one(start + Duration::from_millis(1));
    assert_eq!(done.map(|done| done.wr_id), Ok(0));
    assert_eq!(side.now(), start + Duration::from_micros(15));
    let start = side.now();
    let waited = Duration::from_micros(7);
    assert_eq!(side.queue.wait_one(start + waited), Err(WaitError::Deadline { cqn, waited }));
    assert_eq!(side.now(), start + waited);
    let waited = Duration::ZERO;
    assert_eq!(side.queue.wait_one(side.now()), Err(WaitError::Deadline { cqn, waited }));
    side.post_and_complete(1);
    let late = side.queue.wait_one(Time::ZERO);
    assert_eq!(late.map(|done| done.wr_id), Ok(1), "what is there is found although the deadline has passed");
}

#[test]
fn a_wait_ends_with_a_device_that_is_gone() {
    let (hal, device) = open(everything);
    let mut channel = CompletionChannel::create(device.clone(), 0, 4).unwrap();
    let queue = CompletionQueue::builder(device).entries(4).channel(&channel).create().unwrap();
    let mut side = Side::new(&hal, queue);
    let start = side.now();
    let deadline = start + Duration::from_millis(40);
    let at = start + Duration::from_millis(15);
    once(&hal, move |hal| hal.world.now.get() >= at, |hal| hal.firmware().removed = true);
    let mut found = [WorkCompletion::EMPTY; 2];
    let lost = side.queue.wait(&mut channel, &mut found, deadline);
    assert!(matches!(lost, Err(PollError::DeviceLost(_))), "{lost:?}");
    assert_eq!(side.now(), start + Duration::from_millis(20), "it looks at the device every 10 ms");
    let lost = side.queue.wait_one(deadline);
    assert!(matches!(lost, Err(WaitError::Poll(PollError::DeviceLost(_)))), "{lost:?}");
    assert_eq!(side.now(), start + Duration::from_millis(20));
}

/// A queue with a channel of its own.
fn with_channel() -> (Side, CompletionChannel<Handle>) {
    let (hal, device) = open(everything);
    let channel = CompletionChannel::create(device.clone(), 0, 4).unwrap();
    let queue = CompletionQueue::builder(device).entries(4).channel(&channel).create().unwrap();
    (Side::new(&hal, queue), channel)
}

/// The device raises the event of a queue in the channel, which is its second event queue.
fn raise(hal: &FakeHal, cqn: Cqn) {
    let mut data = [0; 28];
    data[24..].copy_from_slice(&cqn.value().to_be_bytes());
    let mut event = EventEntry::new();
    event.set_kind(EventType::Comp).set_data(data);
    hal.firmware().event_in(&hal.world.memory, 2, event);
}

#[test]
fn a_wait_sleeps_until_its_event() {
    let (mut side, mut channel) = with_channel();
    let (start, cqn) = (side.now(), side.queue.number());
    let mut found = [WorkCompletion::EMPTY; 2];
    assert_eq!(side.queue.wait(&mut channel, &mut [], start + Duration::from_millis(50)), Ok(0), "no room");
    assert_eq!((side.now(), is_armed(&side.hal)), (start, false));
    let (entry, at) = (side.post(), start + Duration::from_millis(25));
    let woken = move |hal: &FakeHal| {
        write_completion(hal, cqn, entry);
        raise(hal, cqn);
    };
    once(&side.hal, move |hal| hal.world.now.get() >= at, woken);
    assert_eq!(side.queue.wait(&mut channel, &mut found, start + Duration::from_millis(50)), Ok(1));
    assert_eq!(side.now(), start + Duration::from_millis(30));
    // The event belonged to that arming, so the next one has the next number.
    let start = side.now();
    let deadline = start + Duration::from_millis(7);
    assert_eq!(side.queue.wait(&mut channel, &mut found, deadline), Ok(0));
    assert_eq!(side.now(), deadline);
    assert_eq!(side.hal.register64(PAGE + uar::CQ_ARM) >> 60, 1);
    // Without an event the same arming goes on.
    assert_eq!(side.queue.wait(&mut channel, &mut found, deadline + Duration::from_millis(1)), Ok(0));
    assert_eq!(side.hal.register64(PAGE + uar::CQ_ARM) >> 60, 1);
}

/// A completion that arrives between the last poll and the arming raises no event.
#[test]
fn a_completion_before_the_arming_ends_the_wait_at_once() {
    let (mut side, mut channel) = with_channel();
    let (entry, cqn, start) = (side.post(), side.queue.number(), side.now());
    let came = once(&side.hal, is_armed, move |hal| write_completion(hal, cqn, entry));
    let mut found = [WorkCompletion::EMPTY; 2];
    assert_eq!(side.queue.wait(&mut channel, &mut found, start + Duration::from_millis(1)), Ok(1));
    assert_eq!((side.now(), came.get()), (start, true));
}

#[test]
fn a_turn_handles_everything_and_arms() {
    let (mut side, mut channel) = with_channel();
    side.post_and_complete(3);
    raise(&side.hal, side.queue.number());
    let armings = side.hal.world.noticed.get();
    let (late, cqn) = (side.post(), side.queue.number());
    // One more completes while the queue is armed.
    once(&side.hal, is_armed, move |hal| write_completion(hal, cqn, late));
    let mut handled = Vec::new();
    let turn = side.queue.handle_and_arm(&mut channel, |done| {
        handled.push(done.wr_id);
        Ok::<(), PollError>(())
    });
    assert_eq!((turn, handled), (Ok(()), vec![0, 1, 2, 3]));
    let arm = side.hal.register64(PAGE + uar::CQ_ARM);
    assert_eq!((arm >> 60, arm >> 32 & 0xff_ffff), (1, 4), "a new arming, behind everything");
    assert!(side.hal.world.noticed.get() > armings, "the channel is armed");
    assert_eq!(channel.poll(), None, "its event was taken");
}

#[test]
fn a_turn_ends_with_the_first_error_of_its_handler() {
    let (mut side, mut channel) = with_channel();
    side.post_and_complete(3);
    let mut handled = 0;
    let turn = side.queue.handle_and_arm(&mut channel, |done| {
        handled += 1;
        if done.wr_id == 1 {
            Err(WaitError::Deadline { cqn: Cqn::from_low_bits(0), waited: Duration::ZERO })
        } else {
            Ok(())
        }
    });
    assert!(matches!(turn, Err(WaitError::Deadline { .. })));
    assert_eq!((handled, is_armed(&side.hal)), (2, false));
    assert_eq!(side.poll(4), [2], "what it did not see is still there");
}

/// Entries that match no queue pair are nothing to handle, and more of them do not keep the caller.
#[test]
fn a_turn_ends_although_strangers_keep_coming() {
    let (mut side, mut channel) = with_channel();
    let (cqn, hal) = (side.queue.number(), side.hal.clone());
    let mut stranger = CompletionEntry::new();
    stranger.set_opcode(CqeOpcode::Requester).set_user_index(0x12_3456);
    let chances = Rc::new(Cell::new(0));
    let counted = chances.clone();
    let record = created(&hal).dbr_addr();
    *side.hal.world.device.borrow_mut() = Some(Box::new(move || {
        counted.set(counted.get() + 1);
        let consumed = u32::from_be_bytes(hal.world.memory.read(record, 4).try_into().unwrap());
        let written = hal.firmware().completion_queues.get(&cqn.value()).map(|ring| ring.producer);
        if counted.get() < 10_000 && written.is_some_and(|written| written - consumed < 4) {
            write_completion(&hal, cqn, stranger);
        }
    }));
    let turn = side.queue.handle_and_arm(&mut channel, |_| Ok::<(), PollError>(()));
    assert_eq!(turn, Ok(()));
    assert!(chances.get() < 200, "{} chances", chances.get());
    side.hal.world.device.borrow_mut().take();
    assert_eq!((is_armed(&side.hal), side.queue.discarded()), (true, 4), "a ring of them, and no more");
}

/// A run of one entry is none, and a run cannot be longer than its ring.
#[test]
fn a_run_has_two_entries_to_a_whole_ring() {
    for (length, fits) in [(0, false), (1, false), (2, true), (8, true), (9, false)] {
        let mut side = Side::small(everything, 8);
        let entries: Vec<_> = (0..length.max(1)).map(|_| side.post()).collect();
        let minis: Vec<_> = entries
            .iter()
            .take(length)
            .map(|entry| {
                let mut mini = bareverbs_prm::cqe::MiniEntry::new();
                mini.set_wqe_counter(entry.wqe_counter());
                mini
            })
            .collect();
        side.hal.firmware().complete_run(
            &side.hal.world.memory,
            side.queue.number().value(),
            entries[0],
            &minis,
        );
        let mut found = [WorkCompletion::EMPTY; 16];
        let expected = if fits { Ok(length) } else { Err(PollError::BadRun { entries: length as u32 }) };
        assert_eq!(side.queue.poll(&mut found), expected, "{length} entries");
    }
}

#[test]
fn errors_say_what_was_asked_and_what_to_do() {
    let errors: [(&dyn std::fmt::Display, &[&str]); 9] = [
        (&CompletionQueueError::Entries { asked: 65, limit: 64 }, &["65", "1 to 64"]),
        (&CompletionQueueError::NotOffered { feature: "moderation" }, &["does not offer", "moderation"]),
        (&CompletionQueueError::Period { asked: Duration::from_millis(5) }, &["5", "at most 4095"]),
        (&CompletionQueueError::OtherDevice, &["another device", "same handle"]),
        (&CompletionQueueError::EntriesLost { moved: 3 }, &["3 completions", "reset the queue pairs"]),
        (
            &PollError::NotOutstanding { qpn: Qpn::from_low_bits(0x41), counter: 7 },
            &["0x7", "reset the queue pair"],
        ),
        (&PollError::BadRun { entries: 9 }, &["9 completions", "make a new queue"]),
        (
            &PollError::UnexpectedOpcode { opcode: CqeOpcode::ResizeCq, qpn: Qpn::from_low_bits(0x41) },
            &["impossible", "reset the queue pair"],
        ),
        (
            &WaitError::Deadline { cqn: Cqn::from_low_bits(5), waited: Duration::from_micros(3) },
            &["no completion", "QueuePair::diagnose"],
        ),
    ];
    for (error, parts) in errors {
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let poll = PollError::BadRun { entries: 9 };
    assert_eq!(WaitError::from(poll).to_string(), poll.to_string());
}
