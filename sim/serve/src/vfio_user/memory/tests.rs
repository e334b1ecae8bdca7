//! Mappings of a memory file, compared with the client's view of it.

use super::*;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;

/// A file that nobody can truncate: it is mapped.
fn file(pages: u64) -> File {
    let file = unsealed(pages);
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

/// A file that is accessed by system calls.
fn unsealed(pages: u64) -> File {
    let file = File::from(memfd_create("client", MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(pages * PAGE).unwrap();
    file
}

fn request(file: &File, address: u64, size: u64, offset: u64) -> MapRequest {
    let file = Some(file.try_clone().unwrap());
    MapRequest { address, size, offset, readable: true, writable: true, file }
}

#[test]
fn an_access_may_cross_mappings_but_not_a_gap() {
    let (mut memory, file) = (ClientMemory::default(), file(4));
    memory.map(request(&file, 0x1_0000, PAGE, 2 * PAGE)).unwrap();
    memory.map(request(&file, 0x1_1000, PAGE, 0)).unwrap();
    memory.write(0x1_0ffc, b"abcdefgh").unwrap();
    let mut seen = [0; 4];
    file.read_exact_at(&mut seen, 3 * PAGE - 4).unwrap();
    assert_eq!(&seen, b"abcd");
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"efgh");
    let mut back = [0; 8];
    memory.read(0x1_0ffc, &mut back).unwrap();
    assert_eq!(&back, b"abcdefgh");
    assert_eq!(memory.files.len(), 1, "one file, one view");
    assert!(memory.read(0x1_1ffc, &mut back).is_err());
    assert!(memory.read(u64::MAX - 3, &mut back).is_err());
    memory.unmap(0x1_0000, PAGE).unwrap();
    assert_eq!(memory.read(0x1_0ffc, &mut back), Err(DmaFault { iova: 0x1_0ffc, length: 8, write: false }));
}

#[test]
fn rights_are_kept_and_nonsense_is_refused() {
    let (mut memory, file) = (ClientMemory::default(), file(2));
    memory.map(MapRequest { writable: false, ..request(&file, 0, PAGE, 0) }).unwrap();
    memory.map(MapRequest { file: None, ..request(&file, PAGE, PAGE, 0) }).unwrap();
    assert!(memory.write(0, &[1]).is_err());
    assert!(memory.read(0, &mut [0]).is_ok());
    assert!(memory.read(PAGE, &mut [0]).is_err(), "nothing behind it");
    for (address, size, offset) in [
        (0x800, PAGE, 0),
        (0x10_0000, 0, 0),
        (u64::MAX, 2, 0),
        (0x10_0000, 2 * PAGE, PAGE),
        (0x10_0000, PAGE, u64::MAX),
    ] {
        assert!(
            memory.map(request(&file, address, size, offset)).is_err(),
            "{address:#x} {size:#x} {offset:#x}"
        );
    }
    assert!(memory.unmap(0x800, PAGE).is_err(), "would cut two mappings");
    assert_eq!(memory.len(), 2);
    memory.unmap(0, u64::MAX).unwrap();
    assert!(memory.is_empty());
}

#[test]
fn a_file_that_is_cut_short_is_an_error_of_its_client() {
    let (mut memory, file) = (ClientMemory::default(), unsealed(4));
    memory.map(request(&file, 0, 4 * PAGE, 0)).unwrap();
    memory.write(3 * PAGE, b"abcdefgh").unwrap();
    let mut seen = [0; 8];
    memory.read(3 * PAGE, &mut seen).unwrap();
    assert_eq!(&seen, b"abcdefgh");
    file.set_len(PAGE).unwrap();
    assert!(memory.read(3 * PAGE, &mut seen).is_err());
    assert!(memory.write(3 * PAGE, &seen).is_err());
    assert_eq!(file.metadata().unwrap().len(), PAGE, "the file was not made longer again");
    memory.write(0, &seen).unwrap();
}

#[test]
fn a_client_has_so_many_files_and_no_more() {
    let mut memory = ClientMemory::default();
    for number in 0..FILES as u64 {
        memory.map(request(&file(1), number * PAGE, PAGE, 0)).unwrap();
    }
    let one_more = FILES as u64 * PAGE;
    let refused = memory.map(request(&file(1), one_more, PAGE, 0)).unwrap_err();
    assert!(refused.to_string().contains("fewer files"), "{refused}");
    memory.unmap(0, PAGE).unwrap();
    memory.map(request(&file(1), one_more, PAGE, 0)).unwrap();
}

#[test]
fn a_file_that_grew_is_mapped_again() {
    let (mut memory, file) = (ClientMemory::default(), file(1));
    memory.map(request(&file, 0, PAGE, 0)).unwrap();
    file.set_len(3 * PAGE).unwrap();
    memory.map(request(&file, 2 * PAGE, PAGE, 2 * PAGE)).unwrap();
    memory.write(2 * PAGE, b"x").unwrap();
    memory.write(0, b"y").unwrap();
    let mut seen = [0];
    file.read_exact_at(&mut seen, 2 * PAGE).unwrap();
    assert_eq!(&seen, b"x");
}

proptest! {
    /// Random maps, unmaps and accesses, compared with a page table.
    #[test]
    fn agrees_with_a_table_of_pages(
        sealed: bool,
        steps in prop::collection::vec((0u8..4, 0u64..16, 1u64..5, 0u64..12), 1..80),
    ) {
        let (mut memory, file) = (ClientMemory::default(), if sealed { file(16) } else { unsealed(16) });
        let mut model: [Option<(u64, usize)>; 24] = [None; 24];
        for (n, (what, page, count, offset)) in steps.into_iter().enumerate() {
            let range = page as usize..(page + count) as usize;
            match what {
                0 | 1 => {
                    let free = model[range.clone()].iter().all(Option::is_none);
                    let done = memory.map(request(&file, page * PAGE, count * PAGE, offset * PAGE)).is_ok();
                    prop_assert_eq!(done, free);
                    if done {
                        range.for_each(|at| model[at] = Some((offset + at as u64 - page, n)));
                    }
                }
                2 => {
                    let cut = |at: usize| at > 0 && model[at].is_some() && model[at - 1].map(|m| m.1) == model[at].map(|m| m.1);
                    let whole = !cut(range.start) && !cut(range.end);
                    prop_assert_eq!(memory.unmap(page * PAGE, count * PAGE).is_ok(), whole);
                    if whole {
                        range.for_each(|at| model[at] = None);
                    }
                }
                _ => {
                    let mapped = model[range].iter().all(Option::is_some);
                    let bytes = vec![n as u8; (count * PAGE) as usize];
                    if mapped {
                        memory.write(page * PAGE, &bytes).unwrap();
                        let mut seen = [0; 1];
                        let last = model[(page + count - 1) as usize].unwrap().0;
                        file.read_exact_at(&mut seen, last * PAGE + PAGE - 1).unwrap();
                        prop_assert_eq!(seen[0], n as u8);
                    } else {
                        prop_assert!(memory.read(page * PAGE, &mut bytes.clone()).is_err());
                    }
                }
            }
        }
    }
}
