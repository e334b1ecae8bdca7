//! Snippets of the chapter about memory.

use bareverbs::prelude::*;
use bareverbs::{DeviceRef, RangeError};
use bareverbs_prm::numbering::CqeSyndrome;
use bareverbs_tests::pair::{Pair, PairOptions};
use zerocopy::{FromBytes, Immutable, IntoBytes};

// ANCHOR: cell
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    key: u64,
    value: [u8; 24],
}

fn publish<D: DeviceRef>(table: &MemoryRegion<D>, slot: usize, entry: Entry) -> Result<(), RangeError> {
    table.cells::<Entry>(0, 64)?.at(slot)?.store(entry);
    Ok(())
}
// ANCHOR_END: cell

#[test]
fn a_peer_without_a_right_is_refused() {
    let mut pair =
        Pair::new(&PairOptions { memory_access: AccessFlags::LOCAL_WRITE, ..PairOptions::default() });
    let memory = pair.b.memory.remote(0);
    // ANCHOR: rights
    pair.a.queue_pair.post_send(&WorkRequest::write_inline(1, b"mine", memory)).unwrap();
    let refused = pair.sent();
    assert_eq!(refused.status, WorkCompletionStatus::Failed(CqeSyndrome::RemoteAccess));
    // ANCHOR_END: rights
}

#[test]
fn a_part_does_not_reach_beyond_its_slice() {
    let pair = Pair::new(&PairOptions { memory: 4096, ..PairOptions::default() });
    // ANCHOR: part
    let memory = pair.b.memory.remote(0);
    let record = memory.part(64, 8).unwrap();
    assert_eq!((record.address, record.length), (memory.address + 64, 8));
    let error = memory.part(4092, 8).unwrap_err();
    assert_eq!(error.to_string(), "access of 8 bytes at offset 4092 leaves the region of 4096 bytes");
    // ANCHOR_END: part
}

#[test]
fn an_entry_is_stored_whole() {
    let pair = Pair::new(&PairOptions { memory: 4096, ..PairOptions::default() });
    let entry = Entry { key: 7, value: *b"twenty-four bytes of it." };
    publish(&pair.a.memory, 3, entry).unwrap();
    assert_eq!(pair.a.memory.cells::<Entry>(0, 64).unwrap().at(3).unwrap().load(), entry);
    assert!(publish(&pair.a.memory, 64, entry).is_err());
}
