//! Windows, fast registration, lists and masked atomics as bytes: the keys that are asked for, the entries that are
//! posted, and the fence that the driver puts behind a change of a key.

use crate::support::objects::{Rig, Shape, rights};
use bareverbs_core::fast_region::FastRegistration;
use bareverbs_core::memory_window::WindowRange;
use bareverbs_core::work_request::{MaskedCompareSwap, MaskedFetchAdd};
use bareverbs_core::{
    AccessFlags, FastRegion, IndirectRegion, KeyUpdate, MemoryRegion, MemoryWindow, RegionAddress,
    RemoteSlice, WindowType, WorkRequest,
};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::wqe::{
    AtomicSegment, ControlSegment, DataSegment, KeyListEntry, KeyUpdateSegment, MaskedAtomicSegment,
    RemoteAddressSegment, fence_mode, masked_opmod, mkey_mask as mask, umr_flags as flag,
};
use zerocopy::FromBytes;

const REMOTE: RemoteSlice = RemoteSlice::from_raw(0x1122_3344_5566_7788, 1 << 20, Mkey::new(0xaabb_ccdd));

fn read<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).unwrap_or_else(|_| panic!("too short")).0
}

fn rig() -> Rig {
    Rig::new(Shape { sends: 16, inline: 64, ..Shape::default() })
}

fn bindable(rig: &Rig) -> MemoryRegion<crate::support::objects::Handle> {
    let access = rights() | AccessFlags::MEMORY_WINDOW_BIND;
    MemoryRegion::allocate(&rig.domain, 8192, access).unwrap()
}

/// The context with which a key was made.
fn context(rig: &Rig, key: Mkey) -> MkeyContext {
    rig.hal.firmware().keys[&key.index().value()]
}

fn bind(rig: &Rig) -> (MemoryWindow<crate::support::objects::Handle>, KeyUpdate) {
    let mut window = MemoryWindow::allocate(&rig.domain, WindowType::Type2).unwrap();
    let range = WindowRange { offset: 100, length: 50, access: AccessFlags::REMOTE_READ, zero_based: false };
    let update = window.bind(&bindable(rig), &range, rig.pair.qpn()).unwrap();
    (window, update)
}

#[test]
fn a_window_is_bound_as_the_device_wants_it() {
    let mut rig = rig();
    let region = bindable(&rig);
    let mut window = MemoryWindow::allocate(&rig.domain, WindowType::Type2).unwrap();
    let made = context(&rig, window.rkey());
    assert!(made.free() && made.umr_en() && made.lr() && made.en_rinval());
    assert_eq!((made.access_mode_1_0(), made.qpn().value()), (2, 0xff_ffff));
    let old = window.rkey();
    let range = WindowRange { offset: 100, length: 50, access: AccessFlags::REMOTE_READ, zero_based: false };
    let update = window.bind(&region, &range, rig.pair.qpn()).unwrap();
    rig.pair.post_send(&update.request(1)).unwrap();
    let bytes = rig.send_bytes(0, 192);
    let control: ControlSegment = read(&bytes);
    assert_eq!((control.opcode(), control.immediate(), control.ds()), (WqeOpcode::Umr, old.value(), 12));
    let change: KeyUpdateSegment = read(&bytes[16..]);
    assert_eq!((change.flags(), change.translation_octowords()), (flag::INLINE | flag::FAIL_IF_NOT_FREE, 4));
    let rights = mask::LOCAL_WRITE | mask::REMOTE_READ | mask::REMOTE_WRITE | mask::ATOMIC;
    let fields = mask::FREE | mask::KEY | mask::QPN | mask::LENGTH | mask::START_ADDRESS;
    assert_eq!(change.mkey_mask(), rights | fields);
    let key: MkeyContext = read(&bytes[64..]);
    assert_eq!((key.rr(), key.rw(), key.lw(), key.free()), (true, false, false, false));
    assert_eq!((key.mkey_7_0(), key.qpn()), (update.key().variant(), rig.pair.qpn()));
    assert_eq!((key.start_addr(), key.length()), (region.address() + 100, 50));
    let entry: KeyListEntry = read(&bytes[128..]);
    assert_eq!(
        (entry.byte_count(), entry.key(), entry.address()),
        (50, region.lkey(), region.address() + 100)
    );
    assert!(bytes[144..].iter().all(|&byte| byte == 0), "the rest of the block is clear");
    assert_eq!(rig.record(), (0, 3), "three blocks");
}

#[test]
fn the_request_after_a_key_change_waits_for_it_and_later_ones_do_not() {
    let mut rig = rig();
    let (_window, update) = bind(&rig);
    let fence = |rig: &Rig, block| read::<ControlSegment>(&rig.send_bytes(block, 16)).fence_mode();
    rig.pair.post_send(&update.request(1)).unwrap();
    rig.pair.post_send(&WorkRequest::write_inline(2, b"short", REMOTE)).unwrap();
    rig.pair.post_send(&WorkRequest::write_inline(3, b"short", REMOTE)).unwrap();
    let mut batch = rig.pair.send_batch();
    batch.post(&update.request(4)).unwrap();
    batch.post(&update.request(5)).unwrap();
    batch.post(&WorkRequest::send_inline(6, b"x").fence()).unwrap();
    batch.post(&WorkRequest::send_inline(7, b"x")).unwrap();
    batch.ring();
    let fences: Vec<u8> = [0, 3, 4, 5, 8, 11, 12].map(|block| fence(&rig, block)).to_vec();
    let (none, small) = (fence_mode::NONE, fence_mode::INITIATOR_SMALL);
    assert_eq!(fences, [none, small, none, none, small, fence_mode::SMALL_AND_FENCE, none]);
    assert_eq!(rig.record(), (0, 13));
}

#[test]
fn a_registration_lists_its_pages_in_the_requested_order() {
    let mut rig = rig();
    let mut region = FastRegion::allocate(&rig.domain, 4, 12).unwrap();
    let made = context(&rig, region.rkey());
    assert!(made.free() && made.umr_en());
    assert_eq!((made.access_mode_1_0(), made.log_page_size()), (1, 12));
    let registration =
        FastRegistration { pages: &[2, 0, 3], address: 0x5010, length: 0x2ff0, access: rights() };
    let update = region.register(&registration).unwrap();
    rig.pair.post_send(&update.request(1)).unwrap();
    let bytes = rig.send_bytes(0, 192);
    let key: MkeyContext = read(&bytes[64..]);
    assert_eq!((key.start_addr(), key.length(), key.lr(), key.rw()), (0x5010, 0x2ff0, true, true));
    let page = |index: usize| u64::from_be_bytes(bytes[128 + index * 8..][..8].try_into().unwrap());
    let first = page(1) & !3;
    assert_eq!([page(0), page(1), page(2), page(3)], [first + 0x2003, first + 3, first + 0x3003, 0]);
}

#[test]
fn a_list_of_pieces_is_made_by_one_command() {
    let rig = rig();
    let pieces = [rig.region.slice(0, 10).unwrap(), rig.region.slice(4096, 20).unwrap()];
    let list = IndirectRegion::create(&rig.domain, &pieces, rights()).unwrap();
    let made = context(&rig, list.rkey());
    assert_eq!((made.access_mode_1_0(), made.length(), made.start_addr(), made.free()), (2, 30, 0, false));
    assert_eq!(made.translations_octword_size(), 2);
    let words = &rig.hal.firmware().key_lists[&list.rkey().index().value()];
    let key = u64::from(rig.region.lkey().value());
    let expected = [10 << 32 | key, rig.region.address(), 20 << 32 | key, rig.region.address() + 4096];
    assert_eq!(words[..4], expected);
}

#[test]
fn pages_are_as_large_as_both_addresses_allow() {
    let rig = rig();
    let size = |address| {
        let region = MemoryRegion::allocate_at(&rig.domain, 1 << 20, rights(), address).unwrap();
        let made = context(&rig, region.rkey());
        assert_eq!(made.start_addr(), region.address());
        made.log_page_size()
    };
    let at_page = size(RegionAddress::At(0x1000 + (1 << 40)));
    assert!(size(RegionAddress::Device) >= at_page && at_page >= 12);
}

#[test]
fn masked_atomics_carry_their_operands() {
    let mut rig = rig();
    let old = [rig.region.slice(64, 8).unwrap()];
    let swap = MaskedCompareSwap::new(1, 2, 3, 4);
    let add = MaskedFetchAdd::new(5, 6);
    rig.pair.post_send(&WorkRequest::masked_compare_swap(1, &old, REMOTE, &swap)).unwrap();
    rig.pair.post_send(&WorkRequest::masked_fetch_add(2, &old, REMOTE, &add)).unwrap();
    let bytes = rig.send_bytes(0, 128);
    let control: ControlSegment = read(&bytes);
    assert_eq!(
        (control.opcode(), control.opmod()),
        (WqeOpcode::AtomicMaskedCompareSwap, masked_opmod::EIGHT_BYTES)
    );
    assert_eq!((control.ds(), read::<RemoteAddressSegment>(&bytes[16..]).rkey()), (5, REMOTE.rkey));
    let segment: MaskedAtomicSegment = read(&bytes[32..]);
    assert_eq!((segment.compare(), segment.compare_mask()), (1, 2));
    assert_eq!((segment.swap_add(), segment.swap_add_mask()), (3, 4));
    assert_eq!(read::<DataSegment>(&bytes[64..]).address(), old[0].address);
    let bytes = rig.send_bytes(2, 64);
    let control: ControlSegment = read(&bytes);
    assert_eq!((control.opcode(), control.ds()), (WqeOpcode::AtomicMaskedFetchAdd, 4));
    let segment: AtomicSegment = read(&bytes[32..]);
    assert_eq!((segment.swap_add(), segment.compare()), (5, 6));
}
