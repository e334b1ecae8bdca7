//! Futures in virtual time, polled by a loop without a runtime: every operation, dropped futures, a lost
//! device.

use bareverbs_core::command::DeviceLoss;
use bareverbs_core::queue_pair::PostError;
use bareverbs_core::{ConnectOptions, Device, WorkCompletionOpcode};
use bareverbs_futures::{
    Broken, BufferPool, Completed, Dispatcher, DispatcherConfig, OperationError, PreparedQueuePair, QueuePair,
};
use bareverbs_hal_sim::{SimHal, SimWorld};
use bareverbs_prm::time::Duration;
use bareverbs_sim::nic::Nic;
use bareverbs_sim::run::{NodeId, Step};
use bareverbs_tests::node::{Handle, Node, NodeOptions};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const BYTES: usize = 4096;
const BUFFERS: u32 = 16;

struct End {
    id: NodeId,
    device: Handle,
    dispatcher: Dispatcher<Rc<Device<SimHal>>>,
    pool: BufferPool<Handle>,
    queue_pair: QueuePair<Handle>,
}

struct Ends {
    world: SimWorld<Nic>,
    a: End,
    b: End,
}

type Half = (Node, Dispatcher<Handle>, BufferPool<Handle>, PreparedQueuePair<Handle>);

fn half(world: &SimWorld<Nic>, id: NodeId, number: u8) -> Half {
    let node = Node::open(world, id, number, NodeOptions::default());
    let config = DispatcherConfig { entries: 16, vector: None };
    let dispatcher = Dispatcher::new(node.device.clone(), config).unwrap();
    let pool = BufferPool::allocate(&node.domain, BUFFERS, BYTES).unwrap();
    let prepared = dispatcher
        .prepare(&node.domain, |builder| builder.send_queue(4).receive_queue(4).max_inline(0))
        .unwrap();
    (node, dispatcher, pool, prepared)
}

impl Ends {
    fn new(seed: u64) -> Self {
        let world = SimWorld::new(seed);
        let ids = [1, 2].map(|number| Node::add(&world, number, NodeOptions::default()));
        world.connect(ids[0], ids[1], bareverbs_sim::run::Preset::STROM_100G.link).unwrap();
        let halves = [half(&world, ids[0], 1), half(&world, ids[1], 2)];
        let endpoints = [&halves[0], &halves[1]].map(|(.., prepared)| prepared.endpoint(0).unwrap());
        let [a, b] = halves;
        let connect = |(node, dispatcher, pool, prepared): Half, peer| {
            let queue_pair = prepared.connect(peer, ConnectOptions::default()).unwrap();
            End { id: node.id, device: node.device, dispatcher, pool, queue_pair }
        };
        Self { world, a: connect(a, &endpoints[1]), b: connect(b, &endpoints[0]) }
    }

    /// Polls a future and the queues of both ends, and lets time pass, until the future is ready.
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut rounds = 0;
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return output;
            }
            self.turn();
            rounds += 1;
            assert!(rounds < 100_000, "a future never ends");
        }
    }

    fn turn(&self) -> Step {
        let step = self.world.step();
        self.a.dispatcher.poll().ok();
        self.b.dispatcher.poll().ok();
        step
    }

    fn rest(&self) {
        while self.turn() == Step::Progress {}
    }
}

impl End {
    fn buffer(&self, bytes: &[u8]) -> bareverbs_futures::Buffer<Handle> {
        let mut buffer = self.pool.try_take().unwrap();
        buffer.fill_from(bytes).unwrap();
        buffer
    }

    fn post_receives(&self, count: usize) {
        for _ in 0..count {
            self.queue_pair.post_receive(self.pool.try_take().unwrap()).unwrap();
        }
    }
}

/// Polls every future of a list until all are ready.
async fn all<F: Future + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    std::future::poll_fn(move |cx| {
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = Pin::new(future).poll(cx) {
                *output = Some(ready);
            }
        }
        match futures.iter().all(|(_, output)| output.is_some()) {
            true => Poll::Ready(futures.iter_mut().filter_map(|(_, output)| output.take()).collect()),
            false => Poll::Pending,
        }
    })
    .await
}

#[test]
fn every_operation_moves_its_bytes() {
    let ends = Ends::new(1);
    let (a, b) = (&ends.a.queue_pair, &ends.b);
    b.post_receives(3);
    let target = b.pool.try_take().unwrap();
    let remote = target.remote();
    ends.block_on(async {
        let sent = a.send(ends.a.buffer(b"first")).await.unwrap();
        assert_eq!(
            (sent.completion.opcode, sent.buffer.to_vec()),
            (WorkCompletionOpcode::Send, b"first".to_vec())
        );
        a.send_with_immediate(ends.a.buffer(b""), 7).await.unwrap();
        a.write_with_immediate(ends.a.buffer(b"written"), remote, 9).await.unwrap();
        let mut read = ends.a.buffer(b"");
        read.set_len(7).unwrap();
        assert_eq!(a.read(read, remote).await.unwrap().buffer.to_vec(), b"written");

        target.store_u64(64, 40).unwrap();
        let word = remote.part(64, 8).unwrap();
        let old = |done: Completed<Handle>| done.buffer.load_u64(0).unwrap();
        assert_eq!(old(a.fetch_add(ends.a.buffer(b""), word, 2).await.unwrap()), 40);
        assert_eq!(old(a.compare_swap(ends.a.buffer(b""), word, 42, 50).await.unwrap()), 42);
        assert_eq!(target.load_u64(64).unwrap(), 50);

        for (bytes, immediate) in [(&b"first"[..], None), (b"", Some(7)), (b"", Some(9))] {
            let message = b.queue_pair.receive().await.unwrap();
            assert_eq!(message.completion.immediate, immediate);
            if immediate != Some(9) {
                assert_eq!(message.buffer.to_vec(), bytes);
            }
        }
    });
    drop(target);
    assert_eq!([ends.a.pool.available(), b.pool.available()], [BUFFERS as usize; 2]);
}

/// Four requests fit into the send queue. The others wait in line, and arrive in the order in which they were
/// first polled.
#[test]
fn requests_beyond_the_queue_wait_in_order() {
    let ends = Ends::new(2);
    let slots = ends.b.pool.try_take().unwrap();
    let futures = (0..12u64).map(|number| {
        let buffer = ends.a.buffer(&number.to_le_bytes());
        ends.a.queue_pair.write(buffer, slots.remote().part(number * 8, 8).unwrap())
    });
    let outcomes = ends.block_on(all(futures.collect()));
    let ids: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap().completion.wr_id >> 32).collect();
    assert!(ids.is_sorted(), "the generation counts what was posted: {ids:?}");
    for number in 0..12 {
        assert_eq!(slots.load_u64(number as usize * 8).unwrap().to_le(), number);
    }
}

/// The WRITE of a dropped future still happens. Its buffer is unavailable until then, and available again
/// afterwards.
#[test]
fn a_dropped_future_keeps_its_buffer_from_others_until_the_device_is_done() {
    let ends = Ends::new(3);
    let target = ends.b.pool.try_take().unwrap();
    let mut write = ends.a.queue_pair.write(ends.a.buffer(b"on its way"), target.remote());
    assert!(Pin::new(&mut write).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(write);
    assert_eq!(ends.a.pool.available(), BUFFERS as usize - 1, "the device still uses the buffer");
    ends.rest();
    assert_eq!(ends.a.pool.available(), BUFFERS as usize);
    let mut bytes = [0; 10];
    target.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"on its way");

    // A future that was never polled was never posted.
    drop(ends.a.queue_pair.write(ends.a.buffer(b"never"), target.remote()));
    assert_eq!(ends.a.pool.available(), BUFFERS as usize);
}

#[test]
fn a_dropped_receive_loses_no_message() {
    let ends = Ends::new(4);
    ends.b.post_receives(2);
    let mut dropped = ends.b.queue_pair.receive();
    assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    ends.block_on(ends.a.queue_pair.send(ends.a.buffer(b"one"))).unwrap();
    ends.block_on(ends.a.queue_pair.send(ends.a.buffer(b"two"))).unwrap();
    ends.rest();
    for expected in [b"one", b"two"] {
        assert_eq!(ends.block_on(ends.b.queue_pair.receive()).unwrap().buffer.to_vec(), expected);
    }
    let nothing = ends.block_on(ends.b.queue_pair.receive()).unwrap_err();
    assert_eq!(nothing.error, OperationError::NoReceivePosted);
}

/// Dropping a queue pair takes its buffers from the device and returns them, whatever was in flight.
#[test]
fn a_queue_pair_that_goes_gives_every_buffer_back() {
    let ends = Ends::new(5);
    ends.a.post_receives(4);
    let target = ends.b.pool.try_take().unwrap();
    for _ in 0..3 {
        let mut write = ends.a.queue_pair.write(ends.a.buffer(&[1; BYTES]), target.remote());
        assert!(Pin::new(&mut write).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(ends.a.pool.available(), BUFFERS as usize - 7);
    let End { pool, queue_pair, dispatcher, .. } = ends.a;
    drop(queue_pair);
    assert_eq!(pool.available(), BUFFERS as usize);
    dispatcher.poll().unwrap();
}

#[test]
fn an_impossible_request_returns_its_buffer() {
    let ends = Ends::new(6);
    let target = ends.b.pool.try_take().unwrap();
    let short = target.remote().first(4).unwrap();
    let failed = ends.block_on(ends.a.queue_pair.write(ends.a.buffer(b"too long"), short)).unwrap_err();
    assert!(
        failed.to_string().contains("access of 8 bytes at offset 0 leaves the region of 4 bytes"),
        "{failed}"
    );
    assert_eq!(failed.buffer.unwrap().to_vec(), b"too long");

    ends.b.post_receives(4);
    let full = ends.b.queue_pair.post_receive(ends.b.pool.try_take().unwrap()).unwrap_err();
    assert_eq!(full.error, OperationError::Post(PostError::QueueFull { needed: 1, size: 4 }));
    assert!(full.buffer.is_some());

    // The peer refuses: nothing on this connection works any more, and each future says why.
    let beyond = bareverbs_core::RemoteSlice { address: 0x10, ..target.remote() };
    let failed = ends.block_on(ends.a.queue_pair.write(ends.a.buffer(b"lost"), beyond)).unwrap_err();
    assert!(failed.to_string().contains("refused access"), "{failed}");
    let flushed = ends.block_on(ends.a.queue_pair.send(ends.a.buffer(b"later"))).unwrap_err();
    assert!(flushed.to_string().contains("flushed"), "{flushed}");
}

/// After a reset by somebody else, every future ends at once and returns its buffer, and so does every later
/// one.
#[test]
fn a_lost_device_ends_every_future() {
    let ends = Ends::new(7);
    ends.a.post_receives(2);
    let target = ends.b.pool.try_take().unwrap();
    let mut write = ends.a.queue_pair.write(ends.a.buffer(b"never"), target.remote());
    assert!(Pin::new(&mut write).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    ends.world.with(|world| world.with_device(ends.a.id, |nic, _, now| nic.reset(now)));
    let before = ends.world.now();
    assert_eq!(ends.a.dispatcher.check(), Err(Broken::DeviceLost(DeviceLoss::Reset)));
    let lost = OperationError::Broken(Broken::DeviceLost(DeviceLoss::Reset));
    let failed = ends.block_on(write).unwrap_err();
    assert_eq!((failed.error, failed.buffer.is_some()), (lost, true));
    assert_eq!(ends.block_on(ends.a.queue_pair.receive()).unwrap_err().error, lost);
    assert_eq!(ends.block_on(ends.a.queue_pair.send(ends.a.buffer(b"later"))).unwrap_err().error, lost);
    drop((failed.buffer, ends.a.queue_pair, ends.a.device));
    assert!(ends.world.now().since(before) < Duration::from_millis(1), "an operation waited");
}
