use super::*;
use bareverbs_core::hal::{DmaMemory, HalError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Addresses of the device are those of the processor and a bit.
#[derive(Default)]
struct Shift {
    mapped: Mutex<Vec<Stretch>>,
    split: Option<usize>,
    fail_after: Option<usize>,
    calls: AtomicUsize,
    /// The device's addresses are aligned to a page, and to no more where those of the processor are.
    crooked: bool,
}

const SHIFT: u64 = 1 << 40;
/// Bits of an address that [`Shift::crooked`] adds.
const CROOKED: u64 = 4096;

// SAFETY: there is no device; the stretches are pieces of the piece, one after the other.
unsafe impl Mapper for Arc<Shift> {
    unsafe fn map(&self, piece: &Piece<'_>) -> Result<Vec<Stretch>, i32> {
        if self.fail_after.is_some_and(|limit| self.calls.fetch_add(1, Ordering::Relaxed) >= limit) {
            return Err(libc::ENOMEM);
        }
        let size = self.split.unwrap_or(piece.length);
        let stretches: Vec<_> = (0..piece.length)
            .step_by(size)
            .map(|offset| Stretch {
                offset,
                iova: piece.start.as_ptr().addr() as u64
                    + SHIFT
                    + offset as u64
                    + u64::from(self.crooked) * CROOKED,
                length: size.min(piece.length - offset),
            })
            .collect();
        self.mapped.lock().unwrap().extend(&stretches);
        Ok(stretches)
    }

    fn unmap(&self, stretch: &Stretch) {
        let mut mapped = self.mapped.lock().unwrap();
        let at = mapped.iter().position(|known| known.iova == stretch.iova).expect("it was mapped");
        mapped.swap_remove(at);
    }
}

fn small(segment: usize, limit: usize) -> ArenaConfig {
    ArenaConfig { segment, limit, huge_pages: false, ..ArenaConfig::default() }
}

#[test]
fn pieces_are_zeroed_aligned_and_given_back() {
    let mapper = Arc::new(Shift::default());
    let arena = Arc::new(Arena::new(mapper.clone(), small(1 << 16, 1 << 20)).unwrap());
    let first = arena.allocate(100, 4096).unwrap();
    assert!(first.as_ptr().as_ptr().addr().is_multiple_of(4096) && first.iova().is_multiple_of(4096));
    assert_eq!((first.len(), first.iova() - SHIFT), (100, first.as_ptr().as_ptr().addr() as u64));
    // SAFETY: the piece is ours and no device exists.
    unsafe { first.as_ptr().write_bytes(0xff, 100) };
    assert_eq!(arena.report().used, 128);
    drop(first);
    let again = arena.allocate(100, 4096).unwrap();
    // SAFETY: as above.
    assert!((0..100).all(|i| unsafe { again.as_ptr().add(i).read() } == 0), "old bytes are not seen");
    drop(again);
    assert_eq!((arena.report().used, arena.report().peak), (0, 128));
    drop(arena);
    assert!(mapper.mapped.lock().unwrap().is_empty());
}

#[test]
fn an_arena_grows_to_its_limit_and_no_further() {
    let arena = Arc::new(Arena::new(Arc::new(Shift::default()), small(1 << 16, 1 << 18)).unwrap());
    let pieces: Vec<_> = (0..3).map(|_| arena.allocate(1 << 16, 64).unwrap()).collect();
    assert_eq!(arena.report().segments.len(), 3);
    let refused = arena.allocate(1 << 18, 64).expect_err("beyond the limit");
    assert!(matches!(refused, HalError::OutOfDmaMemory { .. }), "{refused}");
    drop(pieces);
    assert!(arena.allocate(0, 64).is_err() && arena.allocate(1, 3).is_err());
    assert!(arena.allocate(usize::MAX, 64).is_err() && arena.allocate(usize::MAX - 4096, 4096).is_err());
    let report = arena.report();
    assert_eq!((report.used, report.taken()), (0, 3 << 16));
    assert!(report.to_string().contains("4 KiB pages; not 1 GiB pages: switched off"), "{report}");
}

#[test]
fn an_allocation_never_crosses_a_gap_in_the_addresses() {
    let mapper = Shift { split: Some(8192), ..Shift::default() };
    let arena = Arc::new(Arena::new(Arc::new(mapper), small(1 << 16, 1 << 16)).unwrap());
    let pieces: Vec<_> = (0..8).map(|_| arena.allocate(5000, 64).unwrap()).collect();
    // The first piece is where the segment begins; the segment itself begins at any page.
    let begin = pieces.iter().map(|piece| piece.iova()).min().unwrap_or_default();
    assert!(pieces.iter().all(|piece| (piece.iova() - begin) % 8192 + 5000 <= 8192));
    assert!(arena.allocate(5000, 64).is_err(), "eight stretches are full");
    assert!(arena.allocate(3000, 64).is_ok());
}

#[test]
fn a_piece_that_cannot_be_aligned_for_both_is_refused() {
    let mapper = Shift { crooked: true, ..Shift::default() };
    let arena = Arc::new(Arena::new(Arc::new(mapper), small(1 << 16, 1 << 20)).unwrap());
    let page = arena.allocate(4096, 4096).unwrap();
    assert!(page.as_ptr().as_ptr().addr().is_multiple_of(4096) && page.iova().is_multiple_of(4096));
    let refused =
        arena.allocate(8192, 8192).expect_err("a multiple of 8 KiB for the device is none for the processor");
    assert!(matches!(refused, HalError::OutOfDmaMemory { .. }), "{refused}");
}

#[test]
fn private_memory_is_never_mapped() {
    let mapper = Arc::new(Shift::default());
    let arena = Arc::new(Arena::new(mapper.clone(), small(1 << 16, 1 << 16)).unwrap());
    let mapped = mapper.mapped.lock().unwrap().len();
    let piece = arena
        .allocate_private(100_000, 4096)
        .expect("beyond the limit of the arena, which is for the device");
    let start = piece.as_ptr();
    assert!(start.as_ptr().addr().is_multiple_of(4096) && piece.len() == 100_000);
    let address = start.as_ptr().addr() as u64 + SHIFT;
    let reaches = |stretch: &Stretch| {
        address < stretch.iova + stretch.length as u64 && stretch.iova < address + 100_000
    };
    assert!(!mapper.mapped.lock().unwrap().iter().any(reaches), "the device cannot reach it");
    drop(piece);
    assert_eq!((mapper.mapped.lock().unwrap().len(), arena.report().used), (mapped, 0));
    assert!(arena.allocate_private(0, 64).is_err() && arena.allocate_private(64, 8192).is_err());
}

#[test]
fn memory_of_the_application_is_mapped_by_pages_and_unmapped() {
    let mapper = Arc::new(Shift::default());
    let arena = Arc::new(Arena::new(mapper.clone(), small(4096, 1 << 20)).unwrap());
    let mut bytes = vec![0u8; 10_000];
    let start = NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: `bytes` lives longer than the mapping and is not looked at meanwhile.
    let mapped = unsafe { arena.map_user(start, bytes.len()) }.unwrap();
    assert_eq!((mapped.as_ptr(), mapped.len()), (start, 10_000));
    assert_eq!(mapped.iova(), start.as_ptr().addr() as u64 + SHIFT);
    assert!(
        mapper
            .mapped
            .lock()
            .unwrap()
            .iter()
            .all(|stretch| stretch.iova % 4096 == 0 && stretch.length % 4096 == 0)
    );
    assert_eq!(arena.report().user, 10_000);
    drop(mapped);
    assert_eq!(arena.report().user, 0);
    assert_eq!(mapper.mapped.lock().unwrap().len(), 1, "the segment");
}

#[test]
fn a_refused_mapping_is_an_error_with_its_number() {
    let mapper = Shift { fail_after: Some(1), ..Shift::default() };
    let arena = Arc::new(Arena::new(Arc::new(mapper), small(4096, 1 << 20)).unwrap());
    let error = arena.allocate(8192, 64).expect_err("refused");
    assert!(matches!(error, HalError::MapFailed { errno: libc::ENOMEM, .. }), "{error}");
}

#[test]
fn shared_memory_has_a_file_with_the_same_bytes() {
    let config = ArenaConfig { shared: true, ..small(1 << 16, 1 << 16) };
    let segment = Segment::acquire(1 << 16, &config).unwrap();
    // SAFETY: the segment is ours.
    unsafe { segment.start().add(5000).write(0x5a) };
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(segment.file().unwrap(), &mut byte, 5000).unwrap();
    assert_eq!((byte, segment.len()), ([0x5a], 1 << 16));
}

#[test]
fn shared_memory_takes_no_page_before_somebody_touches_it() {
    let config = ArenaConfig { shared: true, huge_pages: false, ..ArenaConfig::default() };
    let segment = Segment::acquire(4 << 20, &config).unwrap();
    let taken = || std::os::unix::fs::MetadataExt::blocks(&segment.file().unwrap().metadata().unwrap());
    assert_eq!(taken(), 0);
    std::os::unix::fs::FileExt::write_all_at(segment.file().unwrap(), &[1], 0).unwrap();
    assert!((1..1024).contains(&taken()), "{} blocks of 512 bytes", taken());
}

#[test]
fn huge_pages_are_taken_or_their_absence_is_explained() {
    let config = ArenaConfig { numa_node: Some(0), ..ArenaConfig::default() };
    let segment = Segment::acquire(4 << 20, &config).unwrap();
    let kinds: Vec<_> = segment.refused().iter().map(|refusal| refusal.pages).collect();
    match segment.pages() {
        PageKind::Huge => assert_eq!(kinds, [PageKind::Gigantic]),
        PageKind::Small => assert_eq!(kinds, [PageKind::Gigantic, PageKind::Huge]),
        PageKind::Gigantic => panic!("4 MiB do not fill a page of 1 GiB"),
    }
    assert_eq!(segment.refused()[0].reason, RefusalReason::TooSmall);
}
