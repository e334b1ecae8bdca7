//! Bounds, alignment, byte orders, rings.

extern crate std;

use super::*;
use crate::test_memory::Boxed;
use std::vec;

/// Step between the tested lengths or numbers: Miri would take minutes for every length.
const STEP: usize = if cfg!(miri) { 7 } else { 1 };

/// Part of another owner's memory, from byte `start` on: neither its start nor its end is aligned.
struct Part {
    whole: Boxed,
    start: usize,
    length: usize,
}

// SAFETY: the bytes lie in `whole`, which belongs to this value.
unsafe impl DmaMemory for Part {
    fn iova(&self) -> u64 {
        self.whole.iova() + self.start as u64
    }
    fn as_ptr(&self) -> NonNull<u8> {
        // SAFETY: `start` is inside.
        unsafe { self.whole.as_ptr().add(self.start) }
    }
    fn len(&self) -> usize {
        self.length
    }
}

#[test]
fn copies_at_every_alignment() {
    let dma = Dma::new(Boxed::new(256));
    let bytes: [u8; 40] = core::array::from_fn(|i| i as u8 + 1);
    for offset in 0..16 {
        for length in (0..40).step_by(STEP) {
            dma.fill(0, 256, 0xee).unwrap();
            dma.copy_in(offset, &bytes[..length]).unwrap();
            let mut out = [0; 60];
            dma.copy_out(0, &mut out).unwrap();
            assert_eq!(&out[offset..offset + length], &bytes[..length]);
            assert!(out[..offset].iter().chain(&out[offset + length..]).all(|&b| b == 0xee));
        }
    }
}

#[test]
fn copies_stay_within_unaligned_memory() {
    let dma = Dma::new(Part { whole: Boxed::new(64), start: 3, length: 30 });
    for offset in 0..30 {
        for length in (0..=30 - offset).step_by(STEP) {
            dma.fill(0, 30, 0xee).unwrap();
            let bytes: vec::Vec<u8> = (1..=length as u8).collect();
            dma.copy_in(offset, &bytes).unwrap();
            let mut out = [0; 30];
            dma.copy_out(0, &mut out).unwrap();
            assert_eq!(out[offset..offset + length], bytes);
            assert!(out[..offset].iter().chain(&out[offset + length..]).all(|&b| b == 0xee));
        }
    }
}

/// Under Miri this test proves that no word is accessed in two sizes.
#[test]
fn threads_that_share_words_lose_no_byte() {
    const ROUNDS: usize = if cfg!(miri) { 30 } else { 20_000 };
    let dma = Dma::new(Part { whole: Boxed::new(64), start: 5, length: 38 });
    let write = |start: usize, length: usize| {
        for round in 0..ROUNDS {
            dma.copy_in(start, &vec![round as u8; length]).unwrap();
            let mut seen = vec![0; length];
            dma.copy_out(start, &mut seen).unwrap();
            assert!(seen.iter().all(|&byte| byte == round as u8), "bytes from {start} on: {seen:?}");
            dma.fill(start, length, !(round as u8)).unwrap();
            dma.copy_out(0, &mut [0; 38]).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(0, 6));
        scope.spawn(|| write(6, 13));
        write(19, 19);
    });
}

#[test]
fn ranges_beyond_the_region_are_refused() {
    let dma = Dma::new(Boxed::new(128));
    assert!(dma.copy_in(121, &[0; 8]).is_err());
    assert!(dma.copy_out(usize::MAX, &mut [0; 8]).is_err());
    assert!(dma.load_u64(120).is_ok());
    assert_eq!(dma.store_u64(121, 0), Err(RangeError { offset: 121, length: 8, region: 128 }));
    assert!(dma.block(1).is_some() && dma.block(2).is_none());
    assert!(dma.segment(7).is_some() && dma.segment(8).is_none());
    assert!(dma.word(15, Ordering::Relaxed).is_some() && dma.word(16, Ordering::Relaxed).is_none());
    assert!(!dma.set_word(16, 1, Ordering::Relaxed));
}

#[test]
fn memory_that_was_taken_out_cannot_be_accessed() {
    let mut dma = Dma::new(Boxed::new(128));
    let taken = dma.take();
    assert!(taken.copy_in(0, &[1; 128]).is_ok());
    assert!(dma.copy_in(0, &[1]).is_err() && dma.copy_in(0, &[]).is_ok());
    assert!(dma.block(0).is_none() && dma.segment(0).is_none() && dma.word(0, Ordering::Relaxed).is_none());
}

#[test]
fn every_number_leads_into_a_run() {
    let dma = Dma::new(Boxed::new(256));
    assert!(dma.run::<16>(14, 1).is_some() && dma.run::<16>(15, 1).is_none());
    assert!(dma.run::<8>(u32::MAX, u32::MAX).is_none() && dma.run::<64>(0, 3).is_some());
    let run = dma.run::<16>(2, 3).unwrap();
    (0..9).for_each(|index| run.slot(index).store_word::<0>(index as u64));
    assert_eq!([2, 3, 4, 5].map(|at| dma.pair(at).unwrap()[0]), [8, 5, 6, 7]);
    assert!((0..16).filter(|at| !(2..6).contains(at)).all(|at| dma.pair(at) == Some([0; 2])));
}

#[test]
fn a_number_beyond_the_last_slot_finds_none_unless_it_is_masked() {
    let dma = Dma::new(Boxed::new(256));
    let run = dma.run::<16>(2, 3).unwrap();
    run.within(3).unwrap().store_word::<0>(7);
    assert_eq!(dma.pair(5).unwrap()[0], 7);
    assert!(run.within(4).is_none() && run.within(u32::MAX).is_none());
    assert_eq!(run.slot(7).load_word::<0>(), 7);
}

#[test]
fn a_run_that_another_one_limits_has_no_more_slots_than_either() {
    let dma = Dma::new(Boxed::new(256));
    let (blocks, segments) = (dma.run::<BLOCK>(0, 1).unwrap(), dma.run::<16>(0, 7).unwrap());
    assert_eq!((segments.up_to(blocks).last(), blocks.up_to(segments).last()), (1, 1));
    segments.up_to(blocks).slot(3).store_word::<0>(7);
    assert_eq!(dma.pair(1).unwrap()[0], 7);
}

#[test]
fn a_number_finds_the_slots_of_twins_as_far_as_both_reach() {
    let dma = Dma::new(Boxed::new(256));
    let (short, long) = (dma.run::<16>(0, 1).unwrap(), dma.run::<16>(2, 7).unwrap());
    let wide = Run::<32> { base: dma.base, mask: 7, memory: PhantomData };
    assert_eq!((Twins::new(short, wide).last(), Twins::new(long, wide).last()), (1, 7));
    let twin = Twins::new(short, wide).slot(7);
    twin.first().store_word::<8>(1);
    twin.second().store_word::<24>(2);
    assert_eq!([1, 3].map(|at| dma.pair(at).unwrap()[1]), [1, 2], "slot 1 of either");
    let twin = Twins::new(long, wide).slot(5);
    twin.first().store_word::<0>(3);
    twin.second().store_word::<8>(4);
    assert_eq!((dma.pair(7).unwrap()[0], dma.pair(10).unwrap()[1]), (3, 4));
}

#[test]
fn rings_follow_each_other_until_their_memory_is_taken() {
    assert!(Rings::new(Dma::new(Boxed::new(256)), 4, 3).is_none());
    assert!(Rings::new(Dma::new(Boxed::new(256)), u32::MAX, u32::MAX).is_none());
    let mut rings = Rings::new(Dma::new(Boxed::new(256)), 4, 2).unwrap();
    rings.segments().slot(1).store_word::<0>(1);
    rings.blocks().slot(1).store_word::<0>(2);
    rings.record().store_word::<0>(3);
    let memory = rings.take();
    rings.segments().slot(1).store_word::<0>(9);
    rings.blocks().slot(1).store_word::<0>(9);
    rings.record().store_word::<0>(9);
    let words = [2, 16, 24].map(|at| memory.word(at, Ordering::Relaxed).unwrap());
    assert_eq!((words, memory.word(0, Ordering::Relaxed)), ([1, 2, 3], Some(0)));
    assert_eq!(rings.memory().len(), 0);
}

#[test]
fn a_replacement_ring_has_to_fit_its_memory() {
    assert!(BlockRing::new(Dma::new(Boxed::new(256)), 8).is_none());
    assert!(BlockRing::new(Dma::new(Boxed::new(256)), 0).is_none());
    let mut rings = Rings::new(Dma::new(Boxed::new(256)), 0, 2).unwrap();
    rings.record().store_word::<0>(3);
    let ring = |blocks| BlockRing::new(Dma::new(Boxed::new(256)), blocks).unwrap();
    assert!(rings.replace_blocks(ring(4)).is_none(), "the record is still in the first memory");
    rings.blocks().slot(3).store_word::<0>(4);
    assert_eq!(rings.memory().word(24, Ordering::Relaxed), Some(4));
    assert_eq!(rings.replace_blocks(ring(2)).map(|before| before.word(24, Ordering::Relaxed)), Some(Some(4)));
    assert_eq!(rings.record().load_word::<0>(), 3);
}

#[test]
fn byte_orders() {
    let dma = Dma::new(Boxed::new(64));
    let block = dma.block(0).unwrap();
    block.store_be32::<4>(0x0102_0304);
    block.store_be64::<8>(0x1112_1314_1516_1718);
    let bytes = block.to_bytes();
    assert_eq!(bytes[4..16], [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    assert_eq!(
        (block.load_be32::<4>(), u64::from_be(block.load_word::<8>())),
        (0x0102_0304, 0x1112_1314_1516_1718)
    );
}

/// A walk ends at the last slot, at the item that is refused, or when there are no more items.
#[test]
fn a_run_is_walked_up_to_its_last_slot() {
    let dma = Dma::new(Boxed::new(16 * BLOCK));
    let run = dma.run::<BLOCK>(0, 15).unwrap();
    (0..16).for_each(|index| run.slot(index).store_word::<8>(index.into()));
    // Miri is slow. Lengths that are five apart still end in each place of a group.
    let apart = if cfg!(miri) { 5 } else { 1 };
    for index in (0..33).step_by(STEP) {
        for length in (0..18).step_by(apart) {
            for refused in (0..18).step_by(apart) {
                let mut items = std::vec![u64::MAX; length];
                let mut visited = 0;
                let taken = run.zip(index, &mut items, |slot, item| {
                    visited += 1;
                    *item = slot.load_word::<8>();
                    visited <= refused
                });
                let left = 16 - index as usize % 16;
                assert_eq!(taken, refused.min(length).min(left), "{index} {length} {refused}");
                let seen: std::vec::Vec<u64> = (u64::from(index) % 16..).take(visited).collect();
                assert_eq!(items[..visited], seen, "{index} {length} {refused}");
            }
        }
    }
}
