//! An owner whose memory is within reach of its processor reads at once, and nothing else differs for the requests.

use super::transfers::Speculate;
use super::*;

/// Carries out what is due now, reads at once wherever that is possible; returns whether anything was.
fn turn<S: KernelSet, const SLOTS: usize>(
    world: &mut World<S, SLOTS>,
    responses: &mut Vec<Response>,
) -> bool {
    let Some(read) = world.runtime.poll_read(world.now) else { return world.turn(responses) };
    let range = read.range();
    let bytes = &world.memory[(range.address() - BASE) as usize..][..range.length() as usize];
    let staging = &mut world.staging[read.buffer()];
    staging.resize(staging.len().max(bytes.len()), 0);
    staging[..bytes.len()].copy_from_slice(bytes);
    read.finish(world.now, Ok(bytes));
    true
}

/// Runs until nothing is left to do at this time.
fn turns<S: KernelSet, const SLOTS: usize>(world: &mut World<S, SLOTS>) -> Vec<Response> {
    let mut responses = vec![];
    while turn(world, &mut responses) {}
    responses
}

fn run(world: &mut KvWorld) -> Vec<Response> {
    let mut responses = turns(world);
    while let Some(next) = world.runtime.poll_timeout() {
        assert!(next > world.now);
        world.now = next;
        responses.extend(turns(world));
    }
    responses
}

/// The slot whose read is due, if there is one. It is not carried out.
fn next_slot(world: &mut KvWorld) -> Option<usize> {
    world.runtime.poll_read(world.now).map(|read| read.buffer())
}

/// A hit that takes five reads, its first read due.
fn running(ids: &[u64]) -> (KvWorld, Vec<u8>) {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    for id in ids {
        assert_eq!(world.send(&world.request(*id, &hit)), Admission::Accepted);
    }
    world.now = world.runtime.poll_timeout().expect("due");
    (world, hit)
}

#[test]
fn reads_at_once_lead_to_the_replies_of_polled_ones() {
    let both = [KvWorld::run, run].map(|run| {
        let (mut world, descriptor) = kv_world();
        for (id, key) in [(0, &[6; 8][..]), (1, b"nobody"), (2, &[1; 8]), (3, &[12; 8])] {
            let parameters = lookup(&descriptor, key);
            assert_eq!(world.send(&world.request(id, &parameters)), Admission::Accepted);
        }
        (run(&mut world), world.runtime.counters(), world.now, world.runtime.running())
    });
    assert_eq!(both[0].0.len(), 4);
    assert_eq!(both[0], both[1]);
}

#[test]
fn reads_at_once_take_turns() {
    let (mut world, _) = running(&[1, 2]);
    let mut order = vec![];
    for _ in 0..4 {
        order.extend(next_slot(&mut world));
        assert!(turn(&mut world, &mut vec![]));
        world.now += COST.per_dma;
    }
    assert_eq!(order, [0, 1, 0, 1]);
}

#[test]
fn a_read_that_is_dropped_is_due_again_and_costs_nothing() {
    let (mut world, _) = running(&[1]);
    assert_eq!((next_slot(&mut world), next_slot(&mut world)), (Some(0), Some(0)));
    assert_eq!(world.runtime.counters().dma_requests, 0);
    assert_eq!(run(&mut world)[0].0.trailer.hops, 5);
    assert_eq!(world.runtime.counters().dma_requests, 5);
}

#[test]
fn a_read_of_a_revoked_region_is_not_due() {
    let (mut world, _) = running(&[1]);
    assert!(turn(&mut world, &mut vec![]));
    world.now += COST.per_dma;
    world.runtime.revoke(world.connection, world.region);
    assert_eq!(next_slot(&mut world), None);
    assert_eq!(run(&mut world)[0].0.trailer.status, Status::Revoked);
    assert_eq!(world.runtime.counters().dma_requests, 1);
}

#[test]
fn a_read_waits_for_the_allowance_of_its_connection() {
    let (mut world, _) = running(&[1]);
    let per_dma = Duration::from_micros(3);
    world.runtime.limit(world.connection, Allowance { per_dma, ..Allowance::UNLIMITED }).expect("it is open");
    let first = world.now;
    assert!(turn(&mut world, &mut vec![]));
    world.now = first + Duration::from_nanos(2_999);
    assert_eq!(next_slot(&mut world), None);
    world.now = first + per_dma;
    assert_eq!(next_slot(&mut world), Some(0));
}

#[test]
fn the_time_of_a_request_ends_between_two_reads() {
    let (mut world, descriptor) = kv_world();
    let hit = lookup(&descriptor, &[6; 8]);
    let deadline = Duration::from_micros(1);
    assert_eq!(world.send(&Request { deadline, ..world.request(1, &hit) }), Admission::Accepted);
    world.now = world.runtime.poll_timeout().expect("due");
    assert!(turn(&mut world, &mut vec![]));
    world.now = Time::ZERO + Duration::from_nanos(999);
    assert_eq!(next_slot(&mut world), Some(0));
    world.now = Time::ZERO + deadline;
    assert_eq!(next_slot(&mut world), None);
    assert_eq!(turns(&mut world)[0].0.trailer.status, Status::Deadline);
}

#[test]
fn a_read_that_fails_ends_its_request() {
    let failures: [(Result<&[u8], DmaFault>, Status); 3] = [
        (Err(DmaFault::Memory), Status::DmaFault),
        (Err(DmaFault::TakenBack), Status::TakenBack),
        (Ok(&[0; 63]), Status::DmaFault),
    ];
    for (result, expected) in failures {
        let (mut world, _) = running(&[1]);
        world.runtime.poll_read(world.now).expect("due").finish(world.now, result);
        assert_eq!(run(&mut world)[0].0.trailer.status, expected, "{result:?}");
    }
}

/// A read that was discarded in flight may still write to the staging buffer, so that the next one has another place.
#[test]
fn beside_a_read_in_flight_the_next_one_is_polled() {
    let memory = (0..4_u8).flat_map(|word| [&[word, 10 * word][..], &[word; 62]].concat()).collect();
    let mut world: World<Speculate, 2> = World::new(memory);
    let request = Request { opcode: Speculate::OPCODE, ..world.request(1, &[]) };
    assert_eq!(world.send(&Request { parameters: &[0xee], ..request }), Admission::Accepted);
    world.now = world.runtime.poll_timeout().expect("due");
    assert!(world.runtime.poll_read(world.now).is_none(), "it reads four ranges");
    let reads: Vec<_> = std::iter::from_fn(|| world.runtime.poll_dma(world.now)).collect();
    world.carry_out(&reads[0]);
    world.now += COST.per_dma;
    assert!(world.runtime.poll_read(world.now).is_none(), "three are in flight");
    let next = world.runtime.poll_dma(world.now).expect("due");
    assert!(reads[1..].iter().all(|read| next.offset >= read.offset + read.length));
}
