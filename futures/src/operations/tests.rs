//! The table against a device and futures that act in any order.

use super::*;
use bareverbs_core::command::DeviceLoss;
use core::sync::atomic::{AtomicUsize, Ordering};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;

/// A buffer that records when it is dropped.
#[derive(Debug)]
struct Tracked {
    number: usize,
    pool: Rc<RefCell<Pool>>,
}

/// State of all buffers.
#[derive(Debug, Default)]
struct Pool {
    dropped: Vec<bool>,
    /// Buffers that the device holds.
    in_flight: Vec<bool>,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let mut pool = self.pool.borrow_mut();
        assert!(!pool.in_flight[self.number], "buffer {} was freed while the device had it", self.number);
        assert!(!core::mem::replace(&mut pool.dropped[self.number], true), "freed twice");
    }
}

#[derive(Debug, Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The device and the futures from their own point of view.
struct Model {
    table: Operations<Tracked>,
    pool: Rc<RefCell<Pool>>,
    /// Identifiers that the device has yet to complete, with their buffers.
    device: Vec<(u64, usize)>,
    /// Live futures: identifier, buffer, and whether the device has completed it.
    futures: Vec<(u64, usize, bool)>,
    messages: VecDeque<usize>,
    wakes: Arc<CountingWaker>,
    waker: Waker,
}

const LIMIT: usize = 8;

fn qpn() -> Qpn {
    Qpn::from_low_bits(0x40)
}

impl Model {
    fn new() -> Self {
        let (mut table, wakes) = (Operations::new(LIMIT), Arc::<CountingWaker>::default());
        table.add_queue_pair(qpn());
        let (device, futures, messages) = (Vec::new(), Vec::new(), VecDeque::new());
        let waker = wakes.clone().into();
        Self { table, pool: Rc::default(), device, futures, messages, wakes, waker }
    }

    fn buffer(&self) -> Tracked {
        let mut pool = self.pool.borrow_mut();
        let number = pool.dropped.len();
        pool.dropped.push(false);
        pool.in_flight.push(false);
        Tracked { number, pool: self.pool.clone() }
    }

    fn begin(&mut self, direction: Direction) {
        if self.table.is_full() {
            assert_eq!(self.device.len(), LIMIT);
            return;
        }
        let buffer = self.buffer();
        let number = buffer.number;
        let id = self.table.begin(qpn(), buffer, direction);
        self.pool.borrow_mut().in_flight[number] = true;
        self.device.push((id, number));
        match direction {
            Direction::Send => self.futures.push((id, number, false)),
            Direction::Receive => {}
        }
    }

    fn refused(&mut self) {
        if !self.table.is_full() {
            let buffer = self.buffer();
            let number = buffer.number;
            let id = self.table.begin(qpn(), buffer, Direction::Send);
            assert_eq!(self.table.take_back(id, Direction::Send).map(|buffer| buffer.number), Some(number));
        }
    }

    fn complete(&mut self, which: usize) {
        if self.device.is_empty() {
            return;
        }
        let (id, number) = self.device.remove(which % self.device.len());
        self.pool.borrow_mut().in_flight[number] = false;
        let before = self.wakes.0.load(Ordering::Relaxed);
        self.table.complete(&[WorkCompletion { wr_id: id, ..WorkCompletion::EMPTY }]).carry_out();
        // A duplicate completion changes nothing.
        self.table.complete(&[WorkCompletion { wr_id: id, ..WorkCompletion::EMPTY }]).carry_out();
        let future = self.futures.iter_mut().find(|(of, ..)| *of == id);
        let is_dropped = self.pool.borrow().dropped[number];
        match future {
            Some((.., done)) => {
                *done = true;
                assert!(!is_dropped);
            }
            None if is_dropped => {}
            None => self.messages.push_back(number),
        }
        let _ = before;
    }

    fn poll(&mut self, which: usize) {
        if self.futures.is_empty() {
            return;
        }
        let at = which % self.futures.len();
        let (id, number, done) = self.futures[at];
        match self.table.poll(id, &self.waker) {
            Poll::Ready(Ok((completion, buffer))) => {
                assert!(done && completion.wr_id == id && buffer.number == number);
                self.futures.remove(at);
            }
            Poll::Ready(Err(_)) => panic!("nothing broke"),
            Poll::Pending => assert!(!done),
        }
    }

    fn drop_future(&mut self, which: usize) {
        if self.futures.is_empty() {
            return;
        }
        let (id, number, done) = self.futures.remove(which % self.futures.len());
        let buffer = self.table.abandon(id);
        assert_eq!(buffer.map(|buffer| buffer.number), done.then_some(number));
    }

    fn receive(&mut self) {
        match self.table.poll_receive(qpn(), &self.waker) {
            Poll::Ready(Arrival::Message(_, buffer)) => {
                assert_eq!(self.messages.pop_front(), Some(buffer.number));
            }
            Poll::Ready(Arrival::NothingPosted) | Poll::Pending => assert!(self.messages.is_empty()),
            Poll::Ready(Arrival::Broken(_)) => panic!("nothing broke"),
        }
    }

    /// Checks that everything comes back exactly once.
    fn finish(mut self) {
        while !self.device.is_empty() {
            self.complete(0);
        }
        for (id, ..) in core::mem::take(&mut self.futures) {
            drop(self.table.abandon(id));
        }
        self.table.forget(qpn()).carry_out();
        assert_eq!((self.table.slots.len(), self.table.in_flight), (0, 0));
        assert!(self.pool.borrow().dropped.iter().all(|dropped| *dropped), "a buffer was lost");
    }
}

proptest! {
    /// For any order of posting, completing, polling and dropping: every buffer is freed once and never while the
    /// device holds it; every future gets its own completion; every message is read once, in order.
    #[test]
    fn dropping_futures_loses_no_buffer_and_frees_none_too_early(
        acts in prop::collection::vec((0u8..7, any::<usize>()), 0..200)
    ) {
        let mut model = Model::new();
        for (act, which) in acts {
            match act {
                0 => model.begin(Direction::Send),
                1 => model.begin(Direction::Receive),
                2 => model.complete(which),
                3 => model.poll(which),
                4 => model.drop_future(which),
                5 => model.receive(),
                _ => model.refused(),
            }
        }
        model.finish();
    }
}

#[test]
fn a_completion_wakes_its_future_and_the_line_moves_on() {
    let mut model = Model::new();
    model.begin(Direction::Send);
    model.poll(0);
    let mut turn = None;
    model.table.await_turn(qpn(), &mut turn, &model.waker);
    let mut later = None;
    model.table.await_turn(qpn(), &mut later, &model.waker);
    assert!(model.table.is_turn(qpn(), turn) && !model.table.is_turn(qpn(), later));
    assert!(!model.table.is_turn(qpn(), None), "a newcomer does not overtake");
    model.complete(0);
    assert_eq!(model.wakes.0.load(Ordering::Relaxed), 2, "the future, and the first in line");
    model.table.end_turn(qpn(), turn).carry_out();
    assert_eq!(model.wakes.0.load(Ordering::Relaxed), 3, "the next in line");
    assert!(model.table.is_turn(qpn(), later));
    model.finish();
}

/// A lost device holds no buffer. A device that wrote an invalid completion may, so its buffers stay in the table.
#[test]
fn every_future_ends_when_completions_stop() {
    let nonsense = Broken::Completion(bareverbs_core::PollError::BadRun { entries: 9 });
    for (broken, is_back) in [(Broken::DeviceLost(DeviceLoss::Reset), true), (nonsense, false)] {
        let mut model = Model::new();
        model.begin(Direction::Send);
        model.begin(Direction::Receive);
        model.poll(0);
        assert!(model.table.poll_receive(qpn(), &model.waker).is_pending());
        model.table.stop(broken).carry_out();
        assert_eq!(model.wakes.0.load(Ordering::Relaxed), 2);
        if is_back {
            model.pool.borrow_mut().in_flight.fill(false);
        }
        let (id, ..) = model.futures.pop().unwrap();
        let Poll::Ready(Err((told, buffer))) = model.table.poll(id, &model.waker) else { panic!("{broken}") };
        assert_eq!((told, buffer.is_some()), (broken, is_back));
        drop(buffer);
        let Poll::Ready(Arrival::Broken(_)) = model.table.poll_receive(qpn(), &model.waker) else {
            panic!("{broken}")
        };
        model.pool.borrow_mut().in_flight.fill(false);
        model.table.forget(qpn()).carry_out();
        assert!(model.pool.borrow().dropped.iter().all(|dropped| *dropped));
    }
}

/// After long use, a table's identifiers still differ from its earlier ones.
#[test]
fn an_old_identifier_matches_no_operation() {
    let mut model = Model::new();
    model.begin(Direction::Send);
    let (old, _) = model.device[0];
    model.complete(0);
    model.poll(0);
    model.begin(Direction::Send);
    assert_ne!(model.device[0].0, old);
    model.table.complete(&[WorkCompletion { wr_id: old, ..WorkCompletion::EMPTY }]).carry_out();
    model.poll(0);
    assert_eq!(model.futures.len(), 1, "it is still in flight");
    model.finish();
}
