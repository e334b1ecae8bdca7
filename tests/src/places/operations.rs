//! One conversation of each kind.

use super::Place;
use super::ends::{Ends, MEMORY};
use anyhow::{Context, Result, ensure};
use bareverbs_core::UserMemory;
use bareverbs_core::completion_channel::CompletionChannel;
use bareverbs_core::completion_queue::{Arming, CompletionQueue, Notify};
use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::memory_region::{MemoryRegion, RemoteSlice};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::numbering::CqeSyndrome;
use bareverbs_prm::time::Duration;
use core::ptr::NonNull;

/// A conversation: what was seen, or what went wrong.
pub(super) type Check<H> = fn(&mut Ends<H>) -> Result<String>;

/// All conversations that need nothing but two ends, in order.
pub(super) fn all<H: Hal>() -> [(&'static str, Check<H>); 6] {
    [
        ("send", send),
        ("write", write),
        ("read", read),
        ("atomics", atomics),
        ("lists of pieces", pieces),
        ("refused access", refused),
    ]
}

/// Lengths around the boundaries of a packet and of a CQE.
const LENGTHS: [usize; 6] = [1, 64, 1024, 1025, 5000, 30_000];
/// Where the other end's half of a conversation begins.
const THERE: usize = 64 << 10;

pub(super) fn pattern(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ salt.wrapping_mul(0x9d)) as u8).collect()
}

fn same(found: &[u8], wanted: &[u8], what: &str) -> Result<()> {
    let at = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    ensure!(at.is_none(), "{what}: byte {at:?} of {} differs", wanted.len());
    Ok(())
}

fn send<H: Hal>(ends: &mut Ends<H>) -> Result<String> {
    for (id, length) in LENGTHS.into_iter().enumerate() {
        let bytes = pattern(length, id);
        ends.a.memory.copy_in(0, &bytes)?;
        let into = [ends.b.memory.slice(THERE, length)?];
        ends.b.queue_pair.post_receive(&ReceiveRequest::new(id as u64, &into))?;
        let from = [ends.a.memory.slice(0, length)?];
        ends.a.queue_pair.post_send(&WorkRequest::send(id as u64, &from).immediate(id as u32))?;
        let received = ends.received()?;
        let seen = (received.wr_id, received.byte_count as usize, received.immediate);
        ensure!(seen == (id as u64, length, Some(id as u32)), "received {received:?}");
        ends.sent()?;
        same(&ends.b.bytes(THERE, length)?, &bytes, "SEND")?;
    }
    Ok(format!("{} messages of up to {} bytes", LENGTHS.len(), LENGTHS[5]))
}

fn write<H: Hal>(ends: &mut Ends<H>) -> Result<String> {
    for (id, length) in LENGTHS.into_iter().enumerate() {
        let bytes = pattern(length, id + 100);
        ends.a.memory.copy_in(0, &bytes)?;
        let from = [ends.a.memory.slice(0, length)?];
        let target = ends.b.memory.remote(THERE as u64);
        ends.b.queue_pair.post_receive(&ReceiveRequest::new(id as u64, &[]))?;
        ends.a.queue_pair.post_send(&WorkRequest::write(id as u64, &from, target).immediate(7))?;
        let received = ends.received()?;
        ensure!(received.opcode == WorkCompletionOpcode::ReceiveRdmaWithImmediate, "received {received:?}");
        ends.sent()?;
        same(&ends.b.bytes(THERE, length)?, &bytes, "WRITE with immediate")?;
    }
    let inline = pattern(60, 3);
    let target = ends.b.memory.remote(THERE as u64);
    ends.a.queue_pair.post_send(&WorkRequest::write_inline(9, &inline, target))?;
    ends.sent()?;
    ends.b.device.hal().barrier(Barrier::FromDevice);
    same(&ends.b.bytes(THERE, 60)?, &inline, "inline WRITE")?;
    Ok(format!("{} writes with immediate, one inline", LENGTHS.len()))
}

fn read<H: Hal>(ends: &mut Ends<H>) -> Result<String> {
    for (id, length) in LENGTHS.into_iter().enumerate() {
        let bytes = pattern(length, id + 200);
        ends.b.memory.copy_in(THERE, &bytes)?;
        ends.b.device.hal().barrier(Barrier::ToDevice);
        let into = [ends.a.memory.slice(0, length)?];
        let source = ends.b.memory.remote(THERE as u64);
        ends.a.queue_pair.post_send(&WorkRequest::read(id as u64, &into, source))?;
        let done = ends.sent()?;
        ensure!(done.byte_count as usize == length, "read {done:?}");
        same(&ends.a.bytes(0, length)?, &bytes, "READ")?;
    }
    Ok(format!("{} reads", LENGTHS.len()))
}

fn atomics<H: Hal>(ends: &mut Ends<H>) -> Result<String> {
    ends.b.memory.store_u64(THERE, 40)?;
    ends.b.device.hal().barrier(Barrier::ToDevice);
    let (old, remote) = ([ends.a.memory.slice(0, 8)?], ends.b.memory.remote(THERE as u64));
    let requests = [
        (WorkRequest::fetch_add(1, &old, remote, 2), 40, 42),
        (WorkRequest::compare_swap(2, &old, remote, 42, 7), 42, 7),
        (WorkRequest::compare_swap(3, &old, remote, 42, 8), 7, 7),
    ];
    for (request, before, after) in requests {
        ends.a.queue_pair.post_send(&request)?;
        ends.sent()?;
        ends.b.device.hal().barrier(Barrier::FromDevice);
        let seen = (ends.a.memory.load_u64(0)?, ends.b.memory.load_u64(THERE)?);
        ensure!(seen == (before, after), "{seen:?} instead of {:?}", (before, after));
    }
    Ok("fetch and add, compare and swap that swaps and that does not".to_owned())
}

fn pieces<H: Hal>(ends: &mut Ends<H>) -> Result<String> {
    let bytes = pattern(3000, 5);
    ends.a.memory.copy_in(0, &bytes[..1000])?;
    ends.a.memory.copy_in(5000, &bytes[1000..2500])?;
    ends.a.memory.copy_in(9001, &bytes[2500..])?;
    let memory = &ends.a.memory;
    let from = [memory.slice(0, 1000)?, memory.slice(5000, 1500)?, memory.slice(9001, 500)?];
    let into = [ends.b.memory.slice(THERE, 700)?, ends.b.memory.slice(THERE + 4096, 2300)?];
    ends.b.queue_pair.post_receive(&ReceiveRequest::new(1, &into))?;
    ends.a.queue_pair.post_send(&WorkRequest::send(1, &from))?;
    let received = ends.received()?;
    ensure!(received.byte_count == 3000, "received {received:?}");
    ends.sent()?;
    same(&ends.b.bytes(THERE, 700)?, &bytes[..700], "first piece")?;
    same(&ends.b.bytes(THERE + 4096, 2300)?, &bytes[700..], "second piece")?;
    Ok("three pieces gathered, two scattered".to_owned())
}

/// A peer that accesses memory out of bounds gets an error, and a new connection works.
fn refused<H: Hal>(ends: &mut Ends<H>) -> Result<String> {
    let from = [ends.a.memory.slice(0, 64)?];
    let outside =
        RemoteSlice { address: ends.b.memory.address() + MEMORY as u64 - 63, ..ends.b.memory.remote(0) };
    ends.a.queue_pair.post_send(&WorkRequest::write(1, &from, outside))?;
    let failed = ends.next(|ends| Ok(ends.a.sends.poll_one()?))?;
    ensure!(failed.status == WorkCompletionStatus::Failed(CqeSyndrome::RemoteAccess), "{}", failed.status);
    ends.reconnect()?;
    write(ends).context("after a new connection")?;
    Ok(format!("{}; a new connection works", failed.status))
}

/// The device reads and writes memory that the application registered.
pub(super) fn user_memory<H: Hal>(ends: &mut Ends<H>) -> Result<String> {
    let mut own = vec![0u8; 20_000];
    let (bytes, start) =
        (pattern(9000, 77), NonNull::new(own.as_mut_ptr()).context("a vector has an address")?);
    // SAFETY: the vector outlives the region, which is dropped before it is looked at again; until then its bytes are
    // reached through the region alone.
    let mapped = unsafe { UserMemory::map(ends.a.device.hal(), start, own.len()) }?;
    let region = MemoryRegion::register(&ends.a.domain, mapped, crate::node::all_access())?;
    region.copy_in(123, &bytes)?;
    let (there, back) = ([region.slice(123, 9000)?], [region.slice(10_500, 9000)?]);
    let remote = ends.b.memory.remote(THERE as u64);
    ends.a.queue_pair.post_send(&WorkRequest::write(1, &there, remote))?;
    ends.a.queue_pair.post_send(&WorkRequest::read(2, &back, remote))?;
    ends.sent()?;
    ends.sent()?;
    ends.b.device.hal().barrier(Barrier::FromDevice);
    same(&ends.b.bytes(THERE, 9000)?, &bytes, "WRITE from memory of the application")?;
    drop(region);
    same(&own[10_500..19_500], &bytes, "READ into memory of the application")?;
    Ok("9000 bytes there and back".to_owned())
}

/// WRITEs whose completions are awaited asleep: each arrives through an event queue with an interrupt vector
/// of its own.
pub(super) fn interrupts<P: Place>(ends: &mut Ends<P::Hal>) -> Result<String> {
    const WRITES: u64 = 16;
    const VECTOR: u16 = 1;
    let device = ends.a.device.clone();
    let mut channel = CompletionChannel::create(device.clone(), VECTOR, 16)?;
    let mut sends = CompletionQueue::builder(device.clone()).entries(64).channel(&channel).create()?;
    ends.reconnect_to(&sends)?;
    let before = P::interrupts(device.hal());
    // Both queues are armed before anything can complete, so an interrupt must come however late this thread
    // looks.
    ensure!(sends.arm(Notify::Next) == Arming::Armed, "a completion before the first write");
    channel.arm();
    for id in 0..WRITES {
        let from = [ends.a.memory.slice(0, 64)?];
        let target = ends.b.memory.remote(THERE as u64);
        ends.a.queue_pair.post_send(&WorkRequest::write(id, &from, target))?;
        let mut done = [WorkCompletion::default(); 4];
        let deadline = device.hal().now() + Duration::from_secs(10);
        let count = sends.wait(&mut channel, &mut done, deadline)?;
        ensure!(
            count == 1 && done[0].wr_id == id && done[0].is_success(),
            "write {id}: {:?}",
            &done[..count]
        );
    }
    let deadline = device.hal().now() + Duration::from_secs(10);
    while P::interrupts(device.hal()) == before && device.hal().now() < deadline {
        device.hal().relax(deadline);
    }
    let raised = P::interrupts(device.hal()) - before;
    ensure!(raised > 0, "no interrupt came of {WRITES} writes");
    ends.reconnect()?;
    Ok(format!("{raised} interrupts of vector {VECTOR} for {WRITES} writes"))
}
