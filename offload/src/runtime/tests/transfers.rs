//! Kernels that ask for several ranges at once, and kernels that write.

use super::*;
use crate::kernel::{Event, Ranges};

/// Reads four eight-byte words at once and answers with the one whose first byte its parameter names, as soon
/// as it has arrived.
pub(super) struct Speculate(u8);

impl Kernel for Speculate {
    const OPCODE: Opcode = Opcode(7);
    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let wanted = *parameters.first().ok_or(Status::BadParameters)?;
        let ranges = [0, 64, 128, 192].map(|offset| grant.check(offset, 8).expect("inside"));
        Ok((Self(wanted), Step::FetchEach(Ranges::of(&ranges).expect("four"))))
    }
    fn dma_done(&mut self, bytes: &[u8], _: &Grant) -> Step {
        Step::Emit(Emission { offset: 0, length: bytes.len() as u32, version: 0 })
    }
    fn resumed(&mut self, event: Event<'_>, grant: &Grant) -> Step {
        match event {
            Event::Part { bytes, .. } if bytes[0] == self.0 => {
                Step::Emit(Emission { offset: 0, length: 8, version: 0 })
            }
            // Changes its mind and asks for something else.
            Event::Part { bytes, .. } if self.0 == 0xee => {
                grant.check(u64::from(bytes[1]), 16).map_or(Step::Done(Status::OutOfBounds), Step::Fetch)
            }
            _ => Step::AwaitPart,
        }
    }
}

fn speculating() -> World<Speculate, 2> {
    let memory = (0..4_u8).flat_map(|word| [&[word, 10 * word][..], &[word; 62]].concat()).collect();
    World::new(memory)
}

/// Begins a request and emits all its reads.
fn begin(world: &mut World<Speculate, 2>, wanted: u8) -> Vec<DmaRequest> {
    let request = Request { opcode: Opcode(7), ..world.request(1, &[]) };
    assert_eq!(world.send(&Request { parameters: &[wanted], ..request }), Admission::Accepted);
    world.now = world.runtime.poll_timeout().expect("due");
    std::iter::from_fn(|| world.runtime.poll_dma(world.now)).collect()
}

#[test]
fn ranges_that_are_asked_for_at_once_are_under_way_at_once_and_come_in_any_order() {
    for (wanted, order) in [(0, [0, 1, 2, 3]), (0, [3, 2, 1, 0]), (2, [3, 0, 2, 1]), (3, [1, 3, 0, 2])] {
        let mut world = speculating();
        let reads = begin(&mut world, wanted);
        assert_eq!(reads.len(), 4, "the reads do not wait for one another");
        for at in order {
            world.carry_out(&reads[at]);
        }
        let responses = world.run();
        let (reply, body) = &responses[0];
        assert_eq!((reply.trailer.status, reply.trailer.hops), (Status::Ok, 4));
        assert_eq!(body[..], [&[wanted, 10 * wanted][..], &[wanted; 6]].concat());
        assert_eq!((world.runtime.running(), world.runtime.counters().stale_completions), (0, 0));
    }
}

#[test]
fn a_response_does_not_wait_for_read_ahead_but_its_slot_does() {
    let mut world = speculating();
    let reads = begin(&mut world, 2);
    world.carry_out(&reads[2]);
    let responses = world.run();
    assert_eq!(responses[0].1[..2], [2, 20]);
    assert_eq!(world.runtime.running(), 1, "three reads may still write to the staging buffer");
    for read in [0, 1, 3] {
        assert_eq!(world.runtime.reading(reads[read].tag), None, "the request no longer waits for it");
        world.carry_out(&reads[read]);
    }
    assert_eq!(world.runtime.running(), 0);
    world.runtime.handle_dma_done(world.now, reads[0].tag, Ok(&[0; 8]));
    assert_eq!(world.runtime.counters().stale_completions, 1, "each read completes once");
}

#[test]
fn a_read_after_discarded_ones_has_its_own_staging_space() {
    let mut world = speculating();
    let reads = begin(&mut world, 0xee);
    world.carry_out(&reads[1]);
    world.now = world.runtime.poll_timeout().expect("due");
    let later = world.runtime.poll_dma(world.now).expect("another range");
    assert_eq!((later.address, later.length), (BASE + 10, 16));
    for other in [0, 2, 3].map(|read| &reads[read]) {
        let apart =
            other.offset + other.length <= later.offset || later.offset + later.length <= other.offset;
        assert!(apart, "{other:?} {later:?}");
    }
    world.carry_out(&later);
    // A discarded read completes before the answer is sent, and another one after.
    world.carry_out(&reads[0]);
    let responses = world.run();
    assert_eq!(responses[0].1, world.memory[10..26]);
    world.carry_out(&reads[2]);
    world.carry_out(&reads[3]);
    assert_eq!(world.runtime.running(), 0);
}

#[test]
fn flushed_parts_are_read_again_and_a_fault_of_one_ends_all() {
    let mut world = speculating();
    let reads = begin(&mut world, 3);
    world.carry_out(&reads[0]);
    reads[1..].iter().for_each(|read| world.runtime.handle_dma_flushed(read.tag));
    let again: Vec<DmaRequest> = std::iter::from_fn(|| world.runtime.poll_dma(world.now)).collect();
    assert_eq!(again, reads[1..]);
    world.runtime.handle_dma_done(world.now, again[0].tag, Err(DmaFault::Memory));
    let responses = world.run();
    assert_eq!(responses[0].0.trailer.status, Status::DmaFault);
    world.carry_out(&again[1]);
    world.runtime.handle_dma_flushed(again[2].tag);
    assert_eq!((world.runtime.running(), world.run().len()), (0, 0), "the flushed one is not read again");
}

#[test]
fn a_flushed_read_is_due_before_the_deadline() {
    let mut world = speculating();
    let reads = begin(&mut world, 3);
    let deadline = world.runtime.poll_timeout().expect("it has one");
    assert!(deadline > world.now, "all reads are in flight");
    world.runtime.handle_dma_flushed(reads[1].tag);
    assert!(world.runtime.poll_timeout().is_some_and(|due| due <= world.now));
    assert_eq!(world.runtime.poll_dma(world.now), Some(reads[1]));
    assert_eq!(world.runtime.poll_timeout(), Some(deadline));
}

#[test]
fn a_part_that_completes_twice_is_handed_over_once() {
    let mut world = speculating();
    let reads = begin(&mut world, 3);
    world.carry_out(&reads[1]);
    world.carry_out(&reads[1]);
    assert_eq!(world.runtime.counters().stale_completions, 1);
    for other in [0, 2, 3] {
        world.carry_out(&reads[other]);
    }
    assert_eq!((world.run()[0].1[..2].to_vec(), world.runtime.running()), (vec![3, 30], 0));
}

#[test]
fn a_kernel_that_awaits_a_part_when_all_have_come_ends_at_once() {
    let mut world = speculating();
    for read in begin(&mut world, 9) {
        world.carry_out(&read);
    }
    let now = world.now;
    assert_eq!(world.run()[0].0.trailer.status, Status::BadParameters);
    assert!(world.now < now + Duration::from_micros(1), "not at the deadline");
}

/// Writes its parameter at offset 8, swaps the word at 0 from 5 to 6, and answers with the previous word.
struct Store {
    value: [u8; 8],
}

impl Kernel for Store {
    const OPCODE: Opcode = Opcode(8);
    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let value = *parameters.first_chunk().ok_or(Status::BadParameters)?;
        // With one byte too many in its parameters, it asks to write more than it has.
        let length = parameters.len() as u32;
        Ok((Self { value }, Step::Write { to: grant.check_write(8, length)?, from: 0 }))
    }
    fn dma_done(&mut self, _: &[u8], _: &Grant) -> Step {
        Step::Done(Status::BadParameters)
    }
    fn resumed(&mut self, event: Event<'_>, grant: &Grant) -> Step {
        match (event, grant.check_word(0)) {
            (Event::Written, Ok(word)) => Step::CompareAndSwap { word, expected: 5, desired: 6 },
            (Event::Compared { found }, _) => {
                self.value = found.to_be_bytes();
                Step::Reply(Emission { offset: 0, length: 8, version: 0 })
            }
            _ => Step::Done(Status::BadParameters),
        }
    }
    fn computed(&self) -> &[u8] {
        &self.value
    }
}

/// The status, the answer, and the memory after a request to store `value`.
fn stored(word: u64, value: &[u8], writable: bool) -> (Status, Vec<u8>, Vec<u8>) {
    let mut world = World::<Store, 2>::new([word.to_be_bytes(), [0; 8], [0; 8]].concat());
    if writable {
        let grant = Grant::new(BASE, 24).expect("no wrap").writable();
        world.region = world.runtime.grant(world.connection, grant).expect("room");
    }
    let request = Request { opcode: Opcode(8), parameters: value, ..world.request(1, &[]) };
    match world.send(&request) {
        Admission::Refused(reply) => (reply.trailer.status, vec![], world.memory),
        _ => {
            let (reply, body) = world.run().remove(0);
            (reply.trailer.status, body, world.memory)
        }
    }
}

#[test]
fn a_kernel_writes_and_swaps_where_its_grant_allows_it() {
    let (status, found, memory) = stored(5, b"new data", true);
    assert_eq!((status, &found[..]), (Status::Ok, &5_u64.to_be_bytes()[..]));
    assert_eq!(memory, [&6_u64.to_be_bytes()[..], b"new data", &[0; 8]].concat());
    let (status, found, memory) = stored(4, b"new data", true);
    assert_eq!((status, &found[..]), (Status::Ok, &4_u64.to_be_bytes()[..]));
    assert_eq!(memory[..8], 4_u64.to_be_bytes(), "an unexpected word is left unchanged");
}

#[test]
fn writes_without_the_right_or_beyond_the_computed_bytes_are_refused() {
    let untouched = [5_u64.to_be_bytes(), [0; 8], [0; 8]].concat();
    assert_eq!(stored(5, b"new data", false), (Status::ReadOnly, vec![], untouched.clone()));
    assert_eq!(stored(5, b"new data!", true), (Status::OutOfBounds, vec![], untouched.clone()));
    assert_eq!(stored(5, &[7; 17], true), (Status::OutOfBounds, vec![], untouched));
}

#[test]
fn a_channel_that_cannot_compare_is_a_typed_refusal_and_a_revoked_grant_ends_a_write() {
    let mut world = World::<Store, 2>::new(vec![0; 24]);
    let grant = Grant::new(BASE, 24).expect("no wrap").writable();
    for revoked in [false, true] {
        world.region = world.runtime.grant(world.connection, grant).expect("room");
        let request = Request { opcode: Opcode(8), parameters: b"new data", ..world.request(1, &[]) };
        assert_eq!(world.send(&request), Admission::Accepted);
        world.now = world.runtime.poll_timeout().expect("due");
        let write = world.runtime.poll_dma(world.now).expect("a write");
        assert_eq!(
            (write.action, world.runtime.reading(write.tag)),
            (DmaAction::Write { from: 0 }, Some((0, 0)))
        );
        if revoked {
            world.runtime.revoke(world.connection, world.region);
            world.carry_out(&write);
            assert_eq!(world.run()[0].0.trailer.status, Status::Revoked);
            continue;
        }
        world.carry_out(&write);
        world.now = world.runtime.poll_timeout().expect("due");
        let swap = world.runtime.poll_dma(world.now).expect("a compare and swap");
        assert_eq!(world.runtime.to_be_written(&swap), None);
        world.runtime.handle_dma_done(world.now, swap.tag, Err(DmaFault::NoCompareAndSwap));
        assert_eq!(world.run()[0].0.trailer.status, Status::NoAtomics);
    }
}
