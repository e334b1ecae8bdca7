//! Memory windows, lists of regions, fast registration, application-chosen addresses, masked atomics: two
//! drivers, and for each request its effect on the peer's memory.

use bareverbs_core::fast_region::{FastRegion, FastRegisterError, FastRegistration};
use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::indirect_region::IndirectError;
use bareverbs_core::key_update::KeyUpdate;
use bareverbs_core::memory_region::{
    AccessFlags, MemoryRegion, MemorySlice, RegionAddress, RegisterError, RemoteSlice,
};
use bareverbs_core::memory_window::{BindError, MemoryWindow, WindowRange, WindowType};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_core::work_request::{MaskedCompareSwap, MaskedFetchAdd, ReceiveRequest, WorkRequest};
use bareverbs_core::{IndirectRegion, RangeError};
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::CqeSyndrome;
use bareverbs_tests::node::{Handle, NodeOptions, all_access};
use bareverbs_tests::pair::{Pair, PairOptions};
use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const LENGTH: usize = 64;
const PEERS: AccessFlags = AccessFlags::REMOTE_WRITE;

fn bindable() -> AccessFlags {
    all_access() | AccessFlags::MEMORY_WINDOW_BIND
}

fn pair() -> Pair {
    let node = NodeOptions { unforgiving: true, ..NodeOptions::default() };
    Pair::new(&PairOptions { node, memory_access: bindable(), ..PairOptions::default() })
}

/// A window of side B to bytes 256 to 511 of its memory.
fn range() -> WindowRange {
    WindowRange { offset: 256, length: 256, access: PEERS | AccessFlags::REMOTE_READ, zero_based: false }
}

fn window(pair: &Pair, kind: WindowType) -> MemoryWindow<Handle> {
    MemoryWindow::allocate(&pair.b.node.domain, kind).unwrap()
}

/// The next completion of a send of side B.
#[track_caller]
fn sent_by_b(pair: &mut Pair) -> WorkCompletion {
    pair.wait(|pair| pair.b.sends.poll_one().expect("a completion that can be true"))
}

/// Side B posts a change of one of its keys, which succeeds.
#[track_caller]
fn change(pair: &mut Pair, update: &KeyUpdate) -> WorkCompletionOpcode {
    pair.b.queue_pair.post_send(&update.request(77)).unwrap();
    let completion = sent_by_b(pair);
    assert!(completion.is_success(), "{}", completion.status);
    assert_eq!(completion.wr_id, 77);
    completion.opcode
}

/// Side A writes `LENGTH` bytes of `byte`. Returns the status.
fn write(pair: &mut Pair, remote: RemoteSlice, byte: u8) -> WorkCompletionStatus {
    pair.a.memory.fill(0, LENGTH, byte).unwrap();
    let data = [pair.a.memory.slice(0, LENGTH).unwrap()];
    pair.a.queue_pair.post_send(&WorkRequest::write(1, &data, remote)).unwrap();
    pair.sent().status
}

const REFUSED: WorkCompletionStatus = WorkCompletionStatus::Failed(CqeSyndrome::RemoteAccess);

fn at(address: u64, rkey: Mkey) -> RemoteSlice {
    RemoteSlice::from_raw(address, u32::MAX, rkey)
}

/// Bytes of side B's memory, as the device left them.
fn bytes_of_b(pair: &Pair, offset: usize, length: usize) -> Vec<u8> {
    pair.b.node.device.hal().barrier(Barrier::FromDevice);
    let mut bytes = vec![0; length];
    pair.b.memory.copy_out(offset, &mut bytes).unwrap();
    bytes
}

/// Requirement: IBTA v1.4 §10.6.7.2.2: a type 2 window gives access from its binding to its invalidation.
#[test]
fn a_window_of_type_2_opens_and_closes() {
    let mut pair = pair();
    let mut window = window(&pair, WindowType::Type2);
    let qpn = pair.b.queue_pair.qpn();
    let before = window.rkey();
    let bind = window.bind(&pair.b.memory, &range(), qpn).unwrap();
    assert_eq!((bind.key().index(), bind.key() == before), (before.index(), false));
    assert_eq!(change(&mut pair, &bind), WorkCompletionOpcode::BindWindow);
    let address = pair.b.memory.address() + 256;
    assert_eq!(write(&mut pair, at(address + 192, bind.key()), 0xa1), WorkCompletionStatus::Success);
    assert_eq!(bytes_of_b(&pair, 448, LENGTH), [0xa1; LENGTH]);
    assert_eq!(window.bind(&pair.b.memory, &range(), qpn).unwrap_err(), BindError::StillBound { qpn });
    let close = window.invalidate().unwrap();
    assert_eq!(change(&mut pair, &close), WorkCompletionOpcode::LocalInvalidate);
    assert_eq!(write(&mut pair, at(address, bind.key()), 0xa2), REFUSED);
    assert_eq!(bytes_of_b(&pair, 256, LENGTH), [0; LENGTH]);
}

#[test]
fn a_window_ends_where_its_range_does() {
    for offset in [1, -1] {
        let mut pair = pair();
        let mut window = window(&pair, WindowType::Type2);
        let qpn = pair.b.queue_pair.qpn();
        let narrow = WindowRange { length: LENGTH as u64, ..range() };
        let bind = window.bind(&pair.b.memory, &narrow, qpn).unwrap();
        change(&mut pair, &bind);
        let address = pair.b.memory.address().wrapping_add(256).wrapping_add_signed(offset);
        assert_eq!(write(&mut pair, at(address, bind.key()), 0xff), REFUSED, "offset {offset}");
    }
}

/// Requirement: IBTA v1.4 §10.6.7.2.4: a window has its own access rights, whatever those of its region are.
#[test]
fn a_window_may_open_what_its_region_keeps_closed() {
    let mut pair = pair();
    let quiet = pair.b.node.memory(4096, AccessFlags::LOCAL_WRITE | AccessFlags::MEMORY_WINDOW_BIND);
    let mut window = window(&pair, WindowType::Type2);
    let qpn = pair.b.queue_pair.qpn();
    let bind = window.bind(&quiet, &WindowRange { access: PEERS, ..range() }, qpn).unwrap();
    change(&mut pair, &bind);
    assert_eq!(write(&mut pair, at(quiet.address() + 256, bind.key()), 7), WorkCompletionStatus::Success);
    let read = [pair.a.memory.slice(0, LENGTH).unwrap()];
    let request = WorkRequest::read(2, &read, at(quiet.address() + 256, bind.key()));
    pair.a.queue_pair.post_send(&request).unwrap();
    assert_eq!(pair.sent().status, REFUSED, "the window does not allow reads");
}

#[test]
fn a_window_of_type_1_moves_and_its_old_key_is_dead() {
    let mut pair = pair();
    let mut window = window(&pair, WindowType::Type1);
    let qpn = pair.b.queue_pair.qpn();
    let mut keys = Vec::new();
    for offset in [0, 512, 1024] {
        let requested = WindowRange { offset, zero_based: true, ..range() };
        let bind = window.bind(&pair.b.memory, &requested, qpn).unwrap();
        change(&mut pair, &bind);
        assert_eq!(write(&mut pair, at(0, bind.key()), offset as u8 | 1), WorkCompletionStatus::Success);
        assert_eq!(bytes_of_b(&pair, offset as usize, LENGTH), [offset as u8 | 1; LENGTH]);
        keys.push(bind.key());
    }
    assert_eq!(window.invalidate().unwrap_err(), BindError::NotBound);
    assert_eq!(write(&mut pair, at(0, keys[1]), 9), REFUSED);
}

/// Requirement: IBTA v1.4 §9.4.1.1.3: a SEND with invalidate invalidates the key, and the completion tells the receiver
/// which key.
#[test]
fn a_peer_closes_a_window() {
    let mut pair = pair();
    let mut window = window(&pair, WindowType::Type2);
    let qpn = pair.b.queue_pair.qpn();
    let bind = window.bind(&pair.b.memory, &range(), qpn).unwrap();
    change(&mut pair, &bind);
    let buffer = [pair.b.memory.slice(4096, LENGTH).unwrap()];
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(5, &buffer)).unwrap();
    let data = [pair.a.memory.slice(0, LENGTH).unwrap()];
    pair.a.queue_pair.post_send(&WorkRequest::send(6, &data).invalidating(bind.key())).unwrap();
    let sent = pair.sent();
    assert!(sent.is_success(), "{}", sent.status);
    let received = pair.received();
    assert_eq!(
        (received.wr_id, received.invalidated(), received.byte_count),
        (5, Some(bind.key()), LENGTH as u32)
    );
    assert!(!window.closed_by_peer(Mkey::new(0x1234)));
    assert!(window.closed_by_peer(bind.key()));
    let again = window.bind(&pair.b.memory, &range(), qpn).unwrap();
    change(&mut pair, &again);
    let address = pair.b.memory.address() + 256;
    assert_eq!(write(&mut pair, at(address, again.key()), 3), WorkCompletionStatus::Success);
    assert_eq!(write(&mut pair, at(address, bind.key()), 4), REFUSED);
}

/// Requests posted after a binding in the same batch find it done: the driver takes care of the fence.
#[test]
fn work_behind_a_binding_waits_for_it() {
    let mut pair = pair();
    let qpn = pair.b.queue_pair.qpn();
    for round in 0..40u64 {
        let mut window = window(&pair, WindowType::Type2);
        let bind = window.bind(&pair.b.memory, &range(), qpn).unwrap();
        let buffer = [pair.a.memory.slice(4096, 16).unwrap()];
        pair.a.queue_pair.post_receive(&ReceiveRequest::new(round, &buffer)).unwrap();
        let mut batch = pair.b.queue_pair.send_batch();
        batch.post(&bind.request(1).signalled(false)).unwrap();
        batch.post(&WorkRequest::send_inline(2, &bind.key().value().to_le_bytes())).unwrap();
        batch.ring();
        assert_eq!(sent_by_b(&mut pair).wr_id, 2);
        let received = pair.wait(|pair| pair.a.receives.poll_one().unwrap());
        assert_eq!((received.wr_id, received.byte_count), (round, 4));
        let address = pair.b.memory.address() + 256;
        assert_eq!(write(&mut pair, at(address, bind.key()), round as u8), WorkCompletionStatus::Success);
        let close = window.invalidate().unwrap();
        change(&mut pair, &close);
    }
}

/// Requirement: IBTA v1.4 §10.6.7.2.5: a failed binding is a memory window bind error, and later requests are flushed.
#[test]
fn a_binding_that_the_device_refuses_is_reported() {
    let mut pair = pair();
    let mut window = window(&pair, WindowType::Type2);
    let qpn = pair.b.queue_pair.qpn();
    let bind = window.bind(&pair.b.memory, &range(), qpn).unwrap();
    change(&mut pair, &bind);
    pair.b.queue_pair.post_send(&bind.request(8)).unwrap();
    pair.b.queue_pair.post_send(&WorkRequest::nop(9)).unwrap();
    let failed = sent_by_b(&mut pair);
    assert_eq!(
        (failed.wr_id, failed.status),
        (8, WorkCompletionStatus::Failed(CqeSyndrome::MemoryWindowBind))
    );
    let flushed = sent_by_b(&mut pair);
    assert_eq!(flushed.status, WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed));
}

#[test]
fn wrong_bindings_are_refused_with_their_values() {
    let pair = pair();
    let mut window = window(&pair, WindowType::Type2);
    let (memory, qpn) = (&pair.b.memory, pair.b.queue_pair.qpn());
    let mut refused = |region: &MemoryRegion<Handle>, requested: WindowRange| {
        window.bind(region, &requested, qpn).unwrap_err()
    };
    let size = memory.len() as u64;
    assert_eq!(refused(memory, WindowRange { length: 0, ..range() }), BindError::Empty);
    assert_eq!(
        refused(memory, WindowRange { offset: size, length: 1, ..range() }),
        BindError::Range { offset: size, length: 1, region: size }
    );
    assert_eq!(
        refused(memory, WindowRange { offset: u64::MAX, ..range() }),
        BindError::Range { offset: u64::MAX, length: 256, region: size }
    );
    assert_eq!(refused(&pair.b.node.memory(4096, all_access()), range()), BindError::NotBindable);
    let read_only = pair.b.node.memory(4096, AccessFlags::MEMORY_WINDOW_BIND);
    assert_eq!(refused(&read_only, range()), BindError::NotWritable);
    let domain = ProtectionDomain::allocate(pair.b.node.device.clone()).unwrap();
    let foreign = MemoryRegion::allocate(&domain, 4096, bindable()).unwrap();
    let (window, region) = (pair.b.node.domain.number(), domain.number());
    assert_eq!(refused(&foreign, range()), BindError::WrongDomain { window, region });
}

#[test]
fn pieces_are_one_region_on_both_sides() {
    let mut pair = pair();
    let other = pair.b.node.memory(4096, all_access());
    let pieces = [
        pair.b.memory.slice(100, 30).unwrap(),
        other.slice(4000, 50).unwrap(),
        pair.b.memory.slice(0, 20).unwrap(),
    ];
    let inner = IndirectRegion::create(&pair.b.node.domain, &pieces, all_access()).unwrap();
    let outer = [inner.slice(10, 90).unwrap(), inner.slice(0, 10).unwrap()];
    let outer = IndirectRegion::create(&pair.b.node.domain, &outer, all_access()).unwrap();
    assert_eq!((inner.len(), outer.len()), (100, 100));
    let pattern: Vec<u8> = (0..100).collect();
    pair.a.memory.copy_in(0, &pattern).unwrap();
    // Side A gathers from a list of its own.
    let mine = [pair.a.memory.slice(50, 50).unwrap(), pair.a.memory.slice(0, 50).unwrap()];
    let mine = IndirectRegion::create(&pair.a.node.domain, &mine, all_access()).unwrap();
    let data = [mine.slice(0, 100).unwrap()];
    pair.a.queue_pair.post_send(&WorkRequest::write(1, &data, outer.remote(0))).unwrap();
    assert!(pair.sent().is_success());
    // Through the outer list, the first 90 bytes went to bytes 10.. of the inner one, and the last 10 before
    // them.
    let sent: Vec<u8> = (50..100).chain(0..50).collect();
    let inner_bytes: Vec<u8> = sent[90..].iter().chain(&sent[..90]).copied().collect();
    assert_eq!(bytes_of_b(&pair, 100, 30), inner_bytes[..30]);
    let mut bytes = [0; 50];
    other.copy_out(4000, &mut bytes).unwrap();
    assert_eq!(bytes, inner_bytes[30..80]);
    assert_eq!(bytes_of_b(&pair, 0, 20), inner_bytes[80..]);
    drop(other);
    let back = [pair.a.memory.slice(0, 100).unwrap()];
    pair.a.queue_pair.post_send(&WorkRequest::read(2, &back, inner.remote(0))).unwrap();
    assert_eq!(pair.sent().status, REFUSED, "one of the regions is gone");
}

#[test]
fn wrong_lists_are_refused_with_their_values() {
    let pair = pair();
    let create = |pieces: &[MemorySlice], access| {
        IndirectRegion::create(&pair.a.node.domain, pieces, access).map(|_| ()).unwrap_err()
    };
    let good = pair.a.memory.slice(0, 8).unwrap();
    assert_eq!(create(&[], all_access()), IndirectError::Empty);
    let empty = MemorySlice { length: 0, ..good };
    assert_eq!(create(&[good, empty], all_access()), IndirectError::PieceLength { index: 1, length: 0 });
    let access = AccessFlags::REMOTE_ATOMIC;
    assert_eq!(create(&[good], access), IndirectError::InconsistentAccess { access });
    let limit = pair.a.node.device.capabilities().max_key_list;
    let many = vec![good; limit as usize + 1];
    assert_eq!(
        create(&many, all_access()),
        IndirectError::TooManyPieces { count: limit as usize + 1, limit }
    );
}

#[test]
fn pages_are_registered_anew_in_any_order() {
    let mut pair = pair();
    let mut region = FastRegion::allocate(&pair.b.node.domain, 8, 12).unwrap();
    let mut keys = Vec::new();
    for (pages, address) in [([3u32, 1], 0x7000_0f00u64), ([0, 7], 0xf00), ([5, 4], 0x1_0000_0f00)] {
        let requested = FastRegistration { pages: &pages, address, length: 0x1100, access: all_access() };
        let register = region.register(&requested).unwrap();
        assert_eq!(change(&mut pair, &register), WorkCompletionOpcode::FastRegister);
        let pattern: Vec<u8> = (0..512u32).map(|i| (i * 7 + pages[0]) as u8).collect();
        pair.a.memory.copy_in(0, &pattern).unwrap();
        let data = [pair.a.memory.slice(0, 512).unwrap()];
        let request = WorkRequest::write(1, &data, region.remote(address, 0x1100));
        pair.a.queue_pair.post_send(&request).unwrap();
        assert!(pair.sent().is_success());
        pair.b.node.device.hal().barrier(Barrier::FromDevice);
        let mut halves = [[0; 256]; 2];
        region.copy_out(pages[0] as usize * 4096 + 0xf00, &mut halves[0]).unwrap();
        region.copy_out(pages[1] as usize * 4096, &mut halves[1]).unwrap();
        assert_eq!(halves.concat(), pattern);
        assert_eq!(region.register(&requested).unwrap_err(), FastRegisterError::StillRegistered);
        let close = region.invalidate().unwrap();
        assert_eq!(change(&mut pair, &close), WorkCompletionOpcode::LocalInvalidate);
        keys.push(region.rkey());
    }
    keys.dedup();
    assert_eq!(keys.len(), 3, "each registration has a key of its own");
    assert_eq!(write(&mut pair, at(0x1_0000_0f00, keys[2]), 1), REFUSED);
}

#[test]
fn wrong_registrations_are_refused_with_their_values() {
    let pair = pair();
    let mut region = FastRegion::allocate(&pair.b.node.domain, 4, 13).unwrap();
    let good = FastRegistration { pages: &[0, 1], address: 0x100, length: 0x3f00, access: all_access() };
    let mut refused = |requested: FastRegistration<'_>| region.register(&requested).unwrap_err();
    assert_eq!(
        refused(FastRegistration { pages: &[], ..good }),
        FastRegisterError::TooManyPages { count: 0, limit: bareverbs_core::fast_region::MAX_PAGES }
    );
    assert_eq!(
        refused(FastRegistration { pages: &[0, 4], ..good }),
        FastRegisterError::Page { page: 4, pages: 4 }
    );
    assert_eq!(
        refused(FastRegistration { length: 0x3f01, ..good }),
        FastRegisterError::Range { address: 0x100, length: 0x3f01 }
    );
    assert_eq!(
        refused(FastRegistration { address: u64::MAX - 8, length: 10, ..good }),
        FastRegisterError::Range { address: u64::MAX - 8, length: 10 }
    );
    assert_eq!(region.invalidate().unwrap_err(), FastRegisterError::NotRegistered);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    key: u64,
    value: [u8; 24],
}

/// A peer writes a value to the address of a cell and changes no byte next to it; the cell loads what was
/// stored at the other end.
#[test]
fn cells_are_values_that_a_peer_writes_as_a_whole() {
    let mut pair = pair();
    let entry =
        Entry { key: 0x0102_0304_0506_0708, value: *b"twenty-four bytes of data".first_chunk().unwrap() };
    let source = pair.a.memory.cell::<Entry>(8).unwrap();
    source.store(entry);
    let (data, table) = ([source.slice().unwrap()], pair.b.memory.cells::<Entry>(64, 4).unwrap());
    let remote = table.at(2).unwrap().remote().unwrap();
    assert_eq!((remote.address, remote.length), (pair.b.memory.address() + 128, 32));
    pair.a.queue_pair.post_send(&WorkRequest::write(1, &data, remote)).unwrap();
    assert_eq!(pair.sent().status, WorkCompletionStatus::Success);
    pair.b.node.device.hal().barrier(Barrier::FromDevice);
    let nothing = Entry { key: 0, value: [0; 24] };
    let found: Vec<_> = pair.b.memory.cells::<Entry>(64, 4).unwrap().iter().map(|cell| cell.load()).collect();
    assert_eq!(found, [nothing, nothing, entry, nothing]);
}

#[test]
fn cells_that_leave_their_region_are_refused() {
    let pair = pair();
    let (memory, end) = (&pair.a.memory, pair.a.memory.len());
    assert!(memory.cell::<Entry>(end - 32).is_ok());
    let outside = RangeError { offset: end as u64 - 31, length: 32, region: end as u64 };
    assert_eq!(memory.cell::<Entry>(end - 31).unwrap_err(), outside);
    assert!(memory.cells::<Entry>(0, end / 32).is_ok());
    assert!(memory.cells::<Entry>(1, end / 32).is_err());
    assert!(memory.cells::<Entry>(0, usize::MAX).is_err());
    let beyond = memory.cells::<Entry>(64, 4).unwrap().at(4).unwrap_err();
    assert_eq!(beyond.to_string(), "access of 32 bytes at offset 128 leaves the region of 128 bytes");
}

#[test]
fn regions_may_have_chosen_addresses() {
    for (choice, first) in [(RegionAddress::Zero, 0), (RegionAddress::At(0x7000_0000_0000), 0x7000_0000_0000)]
    {
        let mut pair = pair();
        let region = MemoryRegion::allocate_at(&pair.b.node.domain, 3 << 20, all_access(), choice).unwrap();
        assert_eq!(region.address(), first);
        let target = region.remote((2 << 20) + 5);
        assert_eq!(write(&mut pair, target, 0x3c), WorkCompletionStatus::Success);
        pair.b.node.device.hal().barrier(Barrier::FromDevice);
        let mut bytes = [0; LENGTH + 1];
        region.copy_out((2 << 20) + 5, &mut bytes).unwrap();
        assert_eq!((&bytes[..LENGTH], bytes[LENGTH]), (&[0x3c; LENGTH][..], 0));
        assert_eq!(write(&mut pair, region.remote((3 << 20) - 1), 1), REFUSED);
    }
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    let pair = pair();
    let allocate = |address| {
        let made = MemoryRegion::allocate_at(&pair.b.node.domain, 8192, all_access(), address);
        made.map(|_| ()).unwrap_err()
    };
    assert!(matches!(allocate(RegionAddress::At(0x1234)), RegisterError::Unaligned { address: 0x1234, .. }));
    let address = !0xfff_u64;
    assert_eq!(allocate(RegionAddress::At(address)), RegisterError::Range { address, length: 8192 });
}

#[test]
fn a_region_gets_other_rights_and_another_key() {
    let mut pair = pair();
    let old = pair.b.memory.remote(0);
    assert_eq!(write(&mut pair, old, 1), WorkCompletionStatus::Success);
    let read_only = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    pair.b.memory.reregister(&pair.b.node.domain, read_only).unwrap();
    assert_eq!(pair.b.memory.access(), read_only);
    assert_eq!(bytes_of_b(&pair, 0, LENGTH), [1; LENGTH], "the contents stay");
    let back = [pair.a.memory.slice(1024, LENGTH).unwrap()];
    let request = WorkRequest::read(2, &back, pair.b.memory.remote(0));
    pair.a.queue_pair.post_send(&request).unwrap();
    assert!(pair.sent().is_success());
    let access = AccessFlags::REMOTE_WRITE;
    assert_eq!(
        pair.b.memory.reregister(&pair.b.node.domain, access),
        Err(RegisterError::InconsistentAccess { access })
    );
    assert_eq!(write(&mut pair, old, 2), REFUSED);
    assert_eq!(bytes_of_b(&pair, 0, LENGTH), [1; LENGTH]);
}

#[test]
fn a_region_moves_to_another_domain() {
    let mut pair = pair();
    let elsewhere = ProtectionDomain::allocate(pair.b.node.device.clone()).unwrap();
    pair.b.memory.reregister(&elsewhere, all_access()).unwrap();
    assert_eq!(pair.b.memory.domain(), elsewhere.number());
    let target = pair.b.memory.remote(0);
    assert_eq!(write(&mut pair, target, 2), REFUSED);
}

/// One masked atomic of side A on the first word of side B. Returns the old value.
fn atomic(pair: &mut Pair, request: impl FnOnce(&[MemorySlice; 1], RemoteSlice, &mut Pair)) -> u64 {
    let old = [pair.a.memory.slice(0, 8).unwrap()];
    let remote = pair.b.memory.remote(0);
    request(&old, remote, pair);
    let completion = pair.sent();
    assert!(completion.is_success(), "{}", completion.status);
    pair.a.node.device.hal().barrier(Barrier::FromDevice);
    pair.a.memory.load_u64(0).unwrap()
}

#[test]
fn masked_atomics_touch_only_their_bits() {
    let mut pair = pair();
    pair.b.memory.store_u64(0, 0x1122_3344_5566_7788).unwrap();
    pair.b.node.device.hal().barrier(Barrier::ToDevice);
    let operands = MaskedCompareSwap::new(0x88, 0xff, 0xaabb << 48, 0xffff << 48);
    let old = atomic(&mut pair, |old, remote, pair| {
        let request = WorkRequest::masked_compare_swap(1, old, remote, &operands);
        pair.a.queue_pair.post_send(&request).unwrap();
    });
    assert_eq!(old, 0x1122_3344_5566_7788);
    let fields = MaskedFetchAdd::new(0x0001_0000_ff00_0001, 0x8000_8000_8000_8000);
    let old = atomic(&mut pair, |old, remote, pair| {
        let request = WorkRequest::masked_fetch_add(2, old, remote, &fields);
        pair.a.queue_pair.post_send(&request).unwrap();
    });
    assert_eq!(old, 0xaabb_3344_5566_7788);
    let plain = atomic(&mut pair, |old, remote, pair| {
        pair.a.queue_pair.post_send(&WorkRequest::fetch_add(3, old, remote, 0)).unwrap();
    });
    assert_eq!(plain, 0xaabc_3344_5466_7789, "fields are added without carry between them");
}

/// A region is deregistered while its peer writes into it. Every request completes, late ones with an access
/// error, and the device touches nothing that is gone.
#[test]
fn a_region_goes_away_while_its_peer_writes() {
    for delay in [0, 3, 20, 60, 200] {
        let mut pair = pair();
        let region = MemoryRegion::allocate(&pair.b.node.domain, 1 << 20, all_access()).unwrap();
        let target = region.remote(0);
        let data = [pair.a.memory.slice(0, 1 << 16).unwrap()];
        for id in 0..16 {
            let target = RemoteSlice { address: target.address + (id << 16), ..target };
            pair.a.queue_pair.post_send(&WorkRequest::write(id, &data, target)).unwrap();
        }
        for _ in 0..delay {
            pair.a.node.device.hal().relax(pair.world.now() + bareverbs_prm::time::Duration::from_micros(1));
        }
        drop(region);
        let completions: Vec<_> = (0..16).map(|_| pair.sent()).collect();
        let good = completions.iter().take_while(|completion| completion.is_success()).count();
        assert!(completions.iter().map(|completion| completion.wr_id).eq(0..16), "{completions:?}");
        if let Some((first, rest)) = completions[good..].split_first() {
            assert_eq!(first.status, REFUSED, "after {delay} µs");
            let flushed = WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed);
            assert!(rest.iter().all(|completion| completion.status == flushed));
        }
        let faults = pair.b.node.device.hal().memory().counters();
        assert_eq!(faults.faults, 0, "the device reached for memory that was gone: {faults:?}");
    }
}

/// The region that a local READ writes to is deregistered.
#[test]
fn a_region_goes_away_while_it_is_read_into() {
    let mut pair = pair();
    let region = pair.a.node.memory(1 << 18, all_access());
    let data = [region.slice(0, 1 << 16).unwrap()];
    let remote = pair.b.memory.remote(0);
    for id in 0..4 {
        pair.a.queue_pair.post_send(&WorkRequest::read(id, &data, remote)).unwrap();
    }
    pair.a.node.device.hal().relax(pair.world.now() + bareverbs_prm::time::Duration::from_micros(2));
    drop(region);
    let completions: Vec<_> = (0..4).map(|_| pair.sent()).collect();
    assert!(completions.iter().map(|completion| completion.wr_id).eq(0..4));
    assert_eq!(
        completions.iter().find(|completion| !completion.is_success()).map(|completion| completion.status),
        Some(WorkCompletionStatus::Failed(CqeSyndrome::LocalProtection))
    );
    assert_eq!(pair.a.node.device.hal().memory().counters().faults, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Data written through a list of pieces lies where a flat copy would put it.
    #[test]
    fn lists_are_as_flat_copies(
        pieces in proptest::collection::vec((0usize..60_000, 1usize..3000), 1..12),
        begin in 0usize..500,
    ) {
        let mut pair = pair();
        let slices: Vec<MemorySlice> = pieces.iter().map(|&(at, n)| pair.b.memory.slice(at, n).unwrap()).collect();
        let list = IndirectRegion::create(&pair.b.node.domain, &slices, all_access()).unwrap();
        let total = list.len() as usize;
        let begin = begin.min(total - 1);
        let bytes: Vec<u8> = (0..total - begin).map(|i| (i * 31 + i / 251) as u8).collect();
        pair.a.memory.copy_in(0, &bytes).unwrap();
        let data = [pair.a.memory.slice(0, bytes.len()).unwrap()];
        pair.a.queue_pair.post_send(&WorkRequest::write(1, &data, list.remote(begin as u64))).unwrap();
        prop_assert!(pair.sent().is_success());
        let mut flat = vec![0; 1 << 16];
        let places = pieces.iter().flat_map(|&(at, n)| at..at + n).skip(begin);
        places.zip(&bytes).for_each(|(place, &byte)| flat[place] = byte);
        prop_assert!(bytes_of_b(&pair, 0, 1 << 16) == flat);
    }
}
