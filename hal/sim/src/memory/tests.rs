use super::*;
use crate::{POISON, STALE};
use bareverbs_sim::run::Seed;
use proptest::prelude::*;

fn memory(config: MemoryConfig) -> SimMemory {
    SimMemory::new(config, Seed(1).stream("test"))
}

/// Stores like a driver: through the raw pointer, unnoticed by the arena.
pub(crate) fn store(dma: &SimDma, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= dma.len());
    // SAFETY: inside the region by the assertion, which is valid while `dma` lives.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), dma.as_ptr().as_ptr().add(offset), bytes.len()) };
}

fn load(dma: &SimDma, offset: usize, length: usize) -> Vec<u8> {
    assert!(offset + length <= dma.len());
    let mut bytes = vec![0; length];
    // SAFETY: as in `store`.
    unsafe { core::ptr::copy_nonoverlapping(dma.as_ptr().as_ptr().add(offset), bytes.as_mut_ptr(), length) };
    bytes
}

fn device_load(memory: &SimMemory, iova: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory.clone().read(iova, &mut bytes).unwrap();
    bytes
}

#[test]
fn driver_and_device_share_bytes() {
    let memory = memory(MemoryConfig::default());
    let dma = memory.allocate(100, 64).unwrap();
    assert_eq!(load(&dma, 0, 100), [0; 100]);
    assert_ne!(dma.iova(), dma.as_ptr().as_ptr() as u64);
    store(&dma, 3, b"hello");
    assert_eq!(device_load(&memory, dma.iova() + 3, 5), b"hello");
    memory.clone().write(dma.iova() + 99, b"!").unwrap();
    assert_eq!(load(&dma, 99, 1), b"!");
}

#[test]
fn accesses_to_unmapped_memory_fault() {
    let memory = memory(MemoryConfig::default());
    let dma = memory.allocate(100, 64).unwrap();
    let end = dma.iova() + 100;
    let mut device = memory.clone();
    for (iova, length) in
        [(end, 1), (end - 4, 5), (dma.iova() - 1, 1), (0, 8), (u64::MAX, 8), (end + 4096, 1)]
    {
        let fault = DmaFault { iova, length, write: false };
        assert_eq!(device.read(iova, &mut vec![0; length]), Err(fault), "{fault}");
        assert_eq!(device.write(iova, &vec![0; length]), Err(DmaFault { write: true, ..fault }));
    }
    assert_eq!(memory.counters().faults, 12);
    assert_eq!(device.read(0, &mut []), Ok(()), "no bytes, no fault");
}

#[test]
fn freed_memory_is_unmapped_and_never_at_the_same_address() {
    let memory = memory(MemoryConfig::default());
    let first = memory.allocate(64, 64).unwrap();
    let iova = first.iova();
    device_load(&memory, iova, 8);
    drop(first);
    assert!(memory.clone().read(iova, &mut [0; 8]).is_err(), "a cached way in survived");
    let second = memory.allocate(64, 64).unwrap();
    assert!(second.iova() > iova);
    assert_eq!(load(&second, 0, 64), [0; 64]);
    assert_eq!((memory.counters().regions, memory.counters().bytes), (1, 64));
}

#[test]
fn freed_memory_is_poisoned() {
    let memory = memory(MemoryConfig::default());
    let dma = memory.allocate(64, 64).unwrap();
    let start = dma.as_ptr();
    drop(dma);
    // SAFETY: the quarantine still holds the block; `memory` is alive and nothing else was freed.
    assert_eq!(unsafe { start.as_ptr().read() }, POISON);
}

#[test]
fn bad_requests_and_a_full_arena_are_refused() {
    let memory = memory(MemoryConfig { capacity: 8192, ..MemoryConfig::default() });
    assert!(matches!(memory.allocate(0, 64), Err(HalError::BadRequest { .. })));
    assert!(matches!(memory.allocate(64, 3), Err(HalError::BadRequest { .. })));
    assert!(matches!(memory.allocate(64, 0), Err(HalError::BadRequest { .. })));
    let most = memory.allocate(8000, 4096).unwrap();
    let refused = HalError::OutOfDmaMemory { length: 193, alignment: 64 };
    assert_eq!(memory.allocate(193, 64).unwrap_err(), refused);
    assert!(memory.allocate(usize::MAX, 1 << 63).is_err());
    drop(most);
    assert!(memory.allocate(193, 64).is_ok());
}

#[test]
fn memory_of_a_user_is_reached_until_the_handle_is_dropped() {
    let memory = memory(MemoryConfig::default());
    let mut bytes = vec![7u8; 5000];
    let start = NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: `bytes` outlives the handle and is not touched while it lives.
    let dma = unsafe { memory.map(start, 5000) }.unwrap();
    assert_eq!(dma.iova() % 4096, start.as_ptr() as u64 % 4096, "the offset in the page stays");
    memory.clone().write(dma.iova() + 4990, b"0123456789").unwrap();
    let iova = dma.iova();
    drop(dma);
    assert_eq!(&bytes[4988..], b"\x07\x070123456789", "poisoned or not written");
    assert!(memory.clone().write(iova, b"x").is_err());
}

mod unforgiving {
    use super::*;

    #[test]
    fn without_to_device_the_device_sees_stale_bytes() {
        let memory = memory(MemoryConfig::unforgiving());
        let dma = memory.allocate(9000, 64).unwrap();
        store(&dma, 4090, b"descriptor");
        assert_eq!(device_load(&memory, dma.iova() + 4090, 10), [0; 10]);
        memory.barrier(Barrier::FromDevice);
        assert_eq!(device_load(&memory, dma.iova() + 4090, 10), [0; 10], "the wrong barrier helped");
        memory.barrier(Barrier::ToDevice);
        assert_eq!(device_load(&memory, dma.iova() + 4090, 10), b"descriptor");
        assert_eq!(memory.counters().bytes_to_device, 10);
    }

    #[test]
    fn without_from_device_the_processor_sees_the_owner_byte_only() {
        let memory = memory(MemoryConfig::unforgiving());
        let dma = memory.allocate(64, 64).unwrap();
        memory.clone().write(dma.iova(), b"completion!").unwrap();
        assert_eq!(
            load(&dma, 0, 12),
            [STALE, STALE, STALE, STALE, STALE, STALE, STALE, STALE, STALE, STALE, b'!', 0]
        );
        memory.barrier(Barrier::ToDevice);
        assert_eq!(load(&dma, 0, 1), [STALE], "the wrong barrier helped");
        memory.barrier(Barrier::FromDevice);
        assert_eq!(load(&dma, 0, 11), b"completion!");
        assert_eq!(memory.counters().bytes_from_device, 10);
    }

    #[test]
    fn a_later_store_of_the_processor_wins() {
        let memory = memory(MemoryConfig::unforgiving());
        let dma = memory.allocate(64, 64).unwrap();
        memory.clone().write(dma.iova(), b"old device").unwrap();
        store(&dma, 0, &[0; 3]);
        memory.barrier(Barrier::ToDevice);
        memory.barrier(Barrier::FromDevice);
        assert_eq!(load(&dma, 0, 10), b"\0\0\0 device");
        assert_eq!(device_load(&memory, dma.iova(), 10), b"\0\0\0 device");
    }

    #[test]
    fn stale_bytes_never_reach_the_device() {
        let memory = memory(MemoryConfig::unforgiving());
        let dma = memory.allocate(64, 64).unwrap();
        memory.clone().write(dma.iova(), b"answer").unwrap();
        memory.barrier(Barrier::ToDevice);
        assert_eq!(device_load(&memory, dma.iova(), 6), b"answer");
    }

    #[test]
    fn single_words_leak_early_and_only_words_that_were_stored() {
        let memory = memory(MemoryConfig::unforgiving());
        let dma = memory.allocate(4096, 64).unwrap();
        store(&dma, 64, &[1; 8]);
        store(&dma, 2048, &[2; 8]);
        while memory.counters().leaked_words == 0 {
            memory.leak();
        }
        let seen = [64, 2048].map(|offset| device_load(&memory, dma.iova() + offset, 8));
        assert!(seen == [vec![1; 8], vec![0; 8]] || seen == [vec![0; 8], vec![2; 8]], "{seen:?}");
        (0..1_000).for_each(|_| memory.leak());
        assert_eq!(memory.counters().leaked_words, 2);
    }

    #[test]
    fn memory_of_a_user_is_up_to_date_when_it_comes_back() {
        let memory = memory(MemoryConfig::unforgiving());
        let mut bytes = vec![7u8; 64];
        // SAFETY: `bytes` outlives the handle and is not touched while it lives.
        let dma = unsafe { memory.map(NonNull::new(bytes.as_mut_ptr()).unwrap(), 64) }.unwrap();
        assert_eq!(device_load(&memory, dma.iova(), 64), [7; 64]);
        memory.clone().write(dma.iova(), b"abc").unwrap();
        drop(dma);
        assert_eq!(&bytes[..4], b"abc\x07");
    }
}

#[derive(Debug, Clone)]
enum Act {
    Allocate { length: usize, shift: u32 },
    Free { which: usize },
    Write { which: usize, offset: usize, bytes: Vec<u8> },
    Barriers,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (1usize..3000, 0u32..14).prop_map(|(length, shift)| Act::Allocate { length, shift }),
        any::<usize>().prop_map(|which| Act::Free { which }),
        (any::<usize>(), 0usize..3000, prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(which, offset, bytes)| Act::Write { which, offset, bytes }),
        Just(Act::Barriers),
    ]
}

/// Every live region holds exactly what was written to it, regions never touch, and accesses past an end fault.
fn agrees_with_a_simple_model(config: MemoryConfig, acts: Vec<Act>) -> Result<(), TestCaseError> {
    let memory = memory(config);
    let mut device = memory.clone();
    let mut live: Vec<(SimDma, Vec<u8>)> = Vec::new();
    for act in acts {
        match act {
            Act::Allocate { length, shift } => {
                let dma = memory.allocate(length, 1 << shift).unwrap();
                prop_assert_eq!(dma.iova() % (1 << shift), 0);
                let alignment = if length < 1 << shift { 64.min(1 << shift) } else { 1 << shift };
                prop_assert_eq!(dma.as_ptr().as_ptr() as usize % alignment, 0);
                for (other, _) in &live {
                    let gap = other.iova() + other.len() as u64 + 4096 <= dma.iova();
                    prop_assert!(gap || dma.iova() + length as u64 + 4096 <= other.iova());
                }
                live.push((dma, vec![0; length]));
            }
            Act::Free { which } if !live.is_empty() => drop(live.swap_remove(which % live.len())),
            Act::Write { which, offset, bytes } if !live.is_empty() => {
                let at = which % live.len();
                let (dma, model) = &mut live[at];
                let inside = offset + bytes.len() <= model.len();
                prop_assert_eq!(device.write(dma.iova() + offset as u64, &bytes).is_ok(), inside);
                if inside {
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
            }
            Act::Barriers => memory.barrier(Barrier::ToDevice),
            _ => {}
        }
        memory.leak();
    }
    memory.barrier(Barrier::FromDevice);
    for (dma, model) in &live {
        prop_assert_eq!(&load(dma, 0, dma.len()), model);
        prop_assert_eq!(&device_load(&memory, dma.iova(), dma.len()), model);
    }
    Ok(())
}

proptest! {
    #[test]
    fn arena_agrees_with_a_simple_model(acts in prop::collection::vec(act(), 1..60)) {
        agrees_with_a_simple_model(MemoryConfig::default(), acts)?;
    }

    #[test]
    fn unforgiving_arena_agrees_with_a_simple_model(acts in prop::collection::vec(act(), 1..60)) {
        agrees_with_a_simple_model(MemoryConfig::unforgiving(), acts)?;
    }
}
