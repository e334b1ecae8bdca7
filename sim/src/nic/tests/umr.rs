//! Memory windows, fast registration and invalidation, with work requests as libmlx5 and Linux post them.

use super::pair::Pair;
use super::verbs::{Mr, Node, data, remote};
use crate::nic::{NicConfig, syndrome, wqe};
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, DestroyMkeyOut};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode, MkeyAccessMode, QpState, WqeOpcode};
use bareverbs_prm::wqe::{KeyListEntry, KeyUpdateSegment, fence_mode, mkey_mask as mask, umr_flags as flag};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

pub(super) const ANY: Qpn = Qpn::from_low_bits(0xff_ffff);
const RIGHTS: u64 = mask::LOCAL_WRITE | mask::REMOTE_READ | mask::REMOTE_WRITE | mask::ATOMIC;

/// A free key that waits to be bound, as Linux creates it.
pub(super) fn free_key(node: &mut Node, mode: MkeyAccessMode, edit: impl Fn(&mut MkeyContext)) -> Mkey {
    let mut input = CreateMkeyIn::new();
    let context = input.memory_key_mkey_entry_mut();
    context.set_free(true).set_umr_en(true).set_lr(true).set_access_mode_1_0(mode.raw()).set_qpn(ANY);
    context.set_pd(node.pd).set_translations_octword_size(8).set_log_page_size(12).set_mkey_7_0(0x10);
    edit(context);
    let (output, _): (CreateMkeyOut, _) = node.host.run(CommandOpcode::CreateMkey, 0, input).unwrap();
    Mkey::from_parts(output.mkey_index(), 0x10)
}

/// A window of type 2.
fn window(node: &mut Node) -> Mkey {
    free_key(node, MkeyAccessMode::Klms, |context| {
        context.set_en_rinval(true);
    })
}

/// An update of `key`: the segments after the control segment.
pub(super) struct Update {
    pub(super) key: Mkey,
    fence: u8,
    pub(super) control: KeyUpdateSegment,
    pub(super) context: MkeyContext,
    pub(super) entries: Vec<u8>,
}

impl Update {
    pub(super) fn new(key: Mkey, mask: u64, flags: u8) -> Self {
        let mut control = KeyUpdateSegment::new();
        control.set_mkey_mask(mask).set_flags(flags);
        Self { key, fence: 0, control, context: MkeyContext::new(), entries: Vec::new() }
    }

    /// Binds a type 2 window to `length` bytes of a region, like libmlx5.
    fn bind(node: &Node, old: Mkey, new: Mkey, offset: u64, length: u32) -> Self {
        let bits = mask::FREE | mask::KEY | mask::QPN | mask::LENGTH | mask::START_ADDRESS | RIGHTS;
        let flags = flag::INLINE | flag::TRANSLATION_OFFSET | flag::FAIL_IF_NOT_FREE;
        let mut update = Self::new(old, bits, flags);
        update.context.set_mkey_7_0(new.variant()).set_qpn(node.qp.qpn);
        update.context.set_rr(true).set_rw(true).set_a(true);
        update.context.set_start_addr(node.mr.va + offset).set_length(length.into());
        update.list(&[(length, node.mr.key, node.mr.va + offset)])
    }

    /// Invalidates a type 2 window, like libmlx5.
    fn invalidate(key: Mkey) -> Self {
        let flags = flag::INLINE | flag::TRANSLATION_OFFSET | flag::CHECK_QPN;
        let mut update = Self::new(key, mask::FREE | mask::KEY | mask::QPN, flags);
        update.context.set_free(true).set_qpn(ANY);
        update
    }

    /// A key list, padded to four octwords.
    pub(super) fn list(mut self, entries: &[(u32, Mkey, u64)]) -> Self {
        for &(count, key, address) in entries {
            let mut entry = KeyListEntry::new();
            entry.set_byte_count(count).set_key(key).set_address(address);
            self.entries.extend_from_slice(entry.as_bytes());
        }
        self.entries.resize(self.entries.len().next_multiple_of(64), 0);
        self.control.set_translation_octowords((self.entries.len() / 16) as u16);
        self
    }

    pub(super) fn post(&self, node: &mut Node) {
        let segments = [self.control.as_bytes(), self.context.as_bytes(), &self.entries].concat();
        let (key, fence) = (self.key.value(), self.fence);
        node.write_wqe(
            WqeOpcode::Umr,
            |c| {
                c.set_immediate(key).set_fence_mode(fence);
            },
            &segments,
        );
        node.ring();
    }

    /// Posts the update on side B of a pair; it must succeed.
    #[track_caller]
    pub(super) fn succeed(&self, pair: &mut Pair) {
        self.post(&mut pair.b);
        pair.run();
        let entry = pair.b.expect();
        assert_eq!((entry.opcode(), entry.send_opcode()), (CqeOpcode::Requester, 0x25));
    }

    /// Posts the update on side B of a pair; it must fail.
    #[track_caller]
    pub(super) fn fail(&self, pair: &mut Pair) {
        self.post(&mut pair.b);
        pair.run();
        assert_eq!(fault(&mut pair.b), wqe::KEY_UPDATE);
        assert_eq!(pair.b.state(), QpState::Error);
    }
}

/// The fault of the next completion.
#[track_caller]
pub(super) fn fault(node: &mut Node) -> wqe::WorkFault {
    let entry = node.expect();
    let error = bareverbs_prm::cqe::ErrorEntry::read_from_bytes(entry.as_bytes()).unwrap();
    assert_eq!(entry.opcode(), CqeOpcode::RequesterError);
    *wqe::FAULTS
        .iter()
        .find(|fault| (fault.syndrome, fault.vendor) == (error.syndrome(), error.vendor_syndrome()))
        .expect("a fault of the model")
}

/// Side A writes eight bytes through `key`.
fn write(pair: &mut Pair, key: Mkey, address: u64) {
    let segments = [remote(address, key), data(pair.a.mr.sge(0, 8))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
    pair.run();
}

#[track_caller]
pub(super) fn write_succeeds(pair: &mut Pair, key: Mkey, address: u64) {
    write(pair, key, address);
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester);
}

#[track_caller]
pub(super) fn write_fails(pair: &mut Pair, key: Mkey, address: u64) {
    write(pair, key, address);
    assert_eq!(fault(&mut pair.a), wqe::REMOTE_ACCESS);
}

pub(super) fn with_variant(key: Mkey, variant: u8) -> Mkey {
    Mkey::from_parts(key.index(), variant)
}

/// Keys that work requests fill later reserve their maximum: no client can make the device use more memory
/// than its budget, and destroying a key frees its share.
#[test]
fn translation_entries_of_all_keys_have_a_budget() {
    let mut pair = Pair::new();
    let node = &mut pair.a;
    let large = |node: &mut Node, octwords: u32| {
        let mut input = CreateMkeyIn::new();
        let context = input.memory_key_mkey_entry_mut();
        context.set_free(true).set_umr_en(true).set_access_mode_1_0(MkeyAccessMode::Mtt.raw()).set_qpn(ANY);
        context.set_pd(node.pd).set_translations_octword_size(octwords).set_log_page_size(12);
        let created: Result<(CreateMkeyOut, _), _> = node.host.run(CommandOpcode::CreateMkey, 0, input);
        created.map(|(output, _)| output.mkey_index())
    };
    let limit = syndrome::MKEY_TRANSLATIONS_LIMIT;
    let refused = Err((limit.status, limit.syndrome));
    assert_eq!(large(node, u32::MAX), refused);
    let keys: Vec<_> = (0..7).map(|_| large(node, 1 << 20).unwrap()).collect();
    assert_eq!(large(node, 1 << 20), refused, "the pair's own key uses part of the budget");
    let mut input = DestroyMkeyIn::new();
    input.set_mkey_index(keys[0]);
    let _: (DestroyMkeyOut, _) = node.host.run(CommandOpcode::DestroyMkey, 0, input).unwrap();
    large(node, 1 << 20).unwrap();
}

/// Requirement: IBTA v1.4 §10.6.7.2: a window gives access only to its range of the region, with its own access rights.
/// Requirement: IBTA v1.4 §10.6.7.2.2: an invalidated type 2 window gives no access.
#[test]
fn a_window_opens_and_closes() {
    let mut pair = Pair::new();
    pair.a.host.memory.put(pair.a.mr.iova, b"through!");
    let old = window(&mut pair.b);
    let key = with_variant(old, 0x11);
    let at = pair.b.mr.va + 4090;
    Update::bind(&pair.b, old, key, 4090, 16).succeed(&mut pair);
    write_succeeds(&mut pair, key, at + 8);
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 4098, 8), b"through!");
    Update::invalidate(key).succeed(&mut pair);
    write_fails(&mut pair, key, at);
}

#[test]
fn a_window_is_as_wide_as_it_was_bound() {
    for (offset, variant) in [(9, 0x11), (0u64.wrapping_sub(1), 0x11), (0, 0x10)] {
        let mut pair = Pair::new();
        let old = window(&mut pair.b);
        Update::bind(&pair.b, old, with_variant(old, 0x11), 4090, 16).succeed(&mut pair);
        let at = (pair.b.mr.va + 4090).wrapping_add(offset);
        write_fails(&mut pair, with_variant(old, variant), at);
    }
}

#[test]
fn a_zero_based_window_counts_from_its_start() {
    let mut pair = Pair::new();
    pair.a.host.memory.put(pair.a.mr.iova, b"from_zero"[..8].as_ref());
    let old = window(&mut pair.b);
    let mut bind = Update::bind(&pair.b, old, old, 5000, 16);
    bind.context.set_start_addr(0);
    bind.succeed(&mut pair);
    write_succeeds(&mut pair, old, 8);
    assert_eq!(pair.b.host.memory.slice(pair.b.mr.iova + 5008, 8), &b"from_zero"[..8]);
    write_fails(&mut pair, old, 9);
}

/// Requirement: IBTA v1.4 §10.6.7.2.5: a bound type 2 window cannot be bound again before it is invalidated.
#[test]
fn a_bound_window_is_not_bound_twice() {
    let mut pair = Pair::new();
    let old = window(&mut pair.b);
    let bind = Update::bind(&pair.b, old, old, 0, 16);
    bind.succeed(&mut pair);
    bind.fail(&mut pair);
}

/// A type 1 window can be bound again any number of times; the previous key is then invalid.
#[test]
fn a_window_of_type_1_moves() {
    let mut pair = Pair::new();
    let mut key = free_key(&mut pair.b, MkeyAccessMode::Klms, |_| {});
    let at = pair.b.mr.va;
    for round in 1..4 {
        let next = with_variant(key, key.variant() + 1);
        let mut bind = Update::bind(&pair.b, key, next, round * 64, 16);
        bind.control.set_mkey_mask(bind.control.mkey_mask() & !mask::QPN);
        bind.control.set_flags(flag::INLINE | flag::TRANSLATION_OFFSET);
        bind.succeed(&mut pair);
        write_succeeds(&mut pair, next, at + round * 64);
        key = next;
    }
    write_fails(&mut pair, with_variant(key, key.variant() - 1), at + 64);
}

#[test]
fn only_the_queue_pair_of_a_window_invalidates_it() {
    let mut pair = Pair::new();
    let (key, qpn) = (window(&mut pair.b), pair.b.qp.qpn);
    Update::bind(&pair.b, key, key, 0, 16).succeed(&mut pair);
    let table = &pair.b.host.nic.shared.mkeys;
    let stranger = crate::nic::mkey::Accessor {
        pd: pair.b.pd,
        qpn: Qpn::from_low_bits(qpn.value() + 1),
        privileged: false,
        reserved_lkey: false,
    };
    let checked = table.check(&stranger, key, crate::nic::mkey::Access::RemoteRead, pair.b.mr.va, 8);
    assert_eq!(checked, Err(crate::nic::mkey::KeyFault::QueuePair));
    // An unbound window belongs to no queue pair.
    let other = window(&mut pair.b);
    Update::invalidate(other).fail(&mut pair);
}

/// Requirement: IBTA v1.4 §10.6.7.2.4: a window cannot grant remote write access to a region without local write access.
#[test]
fn a_window_gives_no_more_than_its_region() {
    let mut pair = Pair::new();
    let read_only = super::verbs::create_mr(&mut pair.b.host, pair.b.pd, [true, false, false, false, false]);
    let old = window(&mut pair.b);
    let bind = |read_write: bool| {
        let mut bind = Update::bind(&pair.b, old, old, 0, 16);
        bind.context.set_rw(read_write).set_a(read_write);
        bind.entries.clear();
        bind.list(&[(16, read_only.key, read_only.va)])
    };
    let (reading, writing) = (bind(false), bind(true));
    reading.succeed(&mut pair);
    Update::invalidate(old).succeed(&mut pair);
    writing.fail(&mut pair);
}

#[test]
fn keys_of_another_domain_cannot_be_changed() {
    let mut pair = Pair::new();
    let (pd, _): (bareverbs_prm::command::pd::AllocPdOut, _) =
        pair.b.host.run(CommandOpcode::AllocPd, 0, bareverbs_prm::command::pd::AllocPdIn::new()).unwrap();
    let strange = free_key(&mut pair.b, MkeyAccessMode::Klms, |c| {
        c.set_pd(pd.pd());
    });
    Update::bind(&pair.b, strange, strange, 0, 16).fail(&mut pair);
}

/// Side A sends eight bytes with a request to invalidate `key` on side B.
pub(super) fn send_invalidate(pair: &mut Pair, key: Mkey) {
    let receive = [pair.b.mr.sge(0x8000, 64)];
    pair.b.post_receive(&receive);
    let segments = data(pair.a.mr.sge(0, 8));
    pair.a.write_wqe(
        WqeOpcode::SendInval,
        |c| {
            c.set_immediate(key.value());
        },
        &segments,
    );
    pair.a.ring();
    pair.run();
}

/// Requirement: IBTA v1.4 §9.4.1.1.3: a SEND with invalidate invalidates the key before the receive completes.
#[test]
fn a_peer_closes_a_window() {
    let mut pair = Pair::new();
    let key = window(&mut pair.b);
    Update::bind(&pair.b, key, key, 0, 16).succeed(&mut pair);
    send_invalidate(&mut pair, key);
    let entry = pair.a.expect();
    assert_eq!((entry.opcode(), entry.send_opcode()), (CqeOpcode::Requester, 0x01));
    let entry = pair.b.expect();
    assert_eq!(
        (entry.opcode(), entry.immediate(), entry.byte_count()),
        (CqeOpcode::ResponderSendInvalidate, key.value(), 8)
    );
    let at = pair.b.mr.va;
    // It can be bound again.
    Update::bind(&pair.b, key, with_variant(key, 0x11), 0, 16).succeed(&mut pair);
    write_succeeds(&mut pair, with_variant(key, 0x11), at);
    write_fails(&mut pair, key, at);
}

/// Requirement: IBTA v1.4 §9.9.6.3: a key that cannot be invalidated breaks the connection.
#[test]
fn a_peer_cannot_invalidate_regions_unbound_windows_or_unknown_keys() {
    let region: fn(&mut Pair) -> Mkey = |pair| pair.b.mr.key;
    let unbound: fn(&mut Pair) -> Mkey = |pair| window(&mut pair.b);
    let nothing: fn(&mut Pair) -> Mkey = |_| Mkey::new(0x00ff_ff00);
    for choose in [region, unbound, nothing] {
        let mut pair = Pair::new();
        let key = choose(&mut pair);
        send_invalidate(&mut pair, key);
        assert_eq!(fault(&mut pair.a), wqe::REMOTE_ACCESS);
        assert_eq!(pair.b.expect().opcode(), CqeOpcode::ResponderError);
    }
}

/// A fast registration as Linux posts it.
pub(super) fn register(key: Mkey, pages: &[u64], start: u64, length: u64) -> Update {
    let bits = mask::LENGTH
        | mask::PAGE_SIZE
        | mask::START_ADDRESS
        | mask::REMOTE_INVALIDATE
        | mask::KEY
        | mask::LOCAL_READ
        | RIGHTS
        | mask::SMALL_FENCE
        | mask::FREE;
    let mut update = Update::new(key, bits, flag::INLINE | flag::FAIL_IF_NOT_FREE);
    update.context.set_mkey_7_0(key.variant()).set_qpn(ANY).set_en_rinval(true).set_umr_en(true);
    update.context.set_lr(true).set_lw(true).set_rr(true).set_rw(true).set_log_page_size(12);
    update.context.set_start_addr(start).set_length(length).set_access_mode_1_0(1);
    update.entries = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
    update.entries.resize(update.entries.len().next_multiple_of(64), 0);
    update.control.set_translation_octowords((update.entries.len() / 16) as u16);
    update
}

#[test]
fn pages_are_registered_by_work_requests() {
    let mut pair = Pair::new();
    pair.a.host.memory.put(pair.a.mr.iova, b"across two pages");
    let key = with_variant(free_key(&mut pair.b, MkeyAccessMode::Mtt, |_| {}), 0x33);
    let iova = pair.b.mr.iova;
    register(key, &[iova + 0x5000, iova + 0x2000], 0x7000_0100, 0x1800).succeed(&mut pair);
    let segments = [remote(0x7000_0ff8, key), data(pair.a.mr.sge(0, 16))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
    pair.run();
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester);
    assert_eq!(pair.b.host.memory.slice(iova + 0x5ff8, 8), b"across t");
    assert_eq!(pair.b.host.memory.slice(iova + 0x2000, 8), b"wo pages");
    // The key is in use and can only be registered again after an invalidation.
    register(key, &[iova], 0, 0x1000).fail(&mut pair);
}

#[test]
fn a_list_in_memory_replaces_entries_from_an_offset_on() {
    let mut pair = Pair::new();
    let key = free_key(&mut pair.b, MkeyAccessMode::Mtt, |_| {});
    let iova = pair.b.mr.iova;
    register(key, &[0x1000, 0x2000, iova + 0x3000, 0x5000], 0, 0x4000).succeed(&mut pair);
    let mut change = Update::new(key, 0, flag::TRANSLATION_OFFSET);
    let list = [iova, iova + 0x4000].map(u64::to_be_bytes).concat();
    pair.b.host.memory.put(iova + 0x8000, &list);
    change.control.set_translation_offset(0).set_translation_octowords(1);
    change.entries = data(pair.b.mr.sge(0x8000, 64));
    change.succeed(&mut pair);
    for (at, host) in [(0x0008, 0x0008), (0x1010, 0x4010), (0x2020, 0x3020)] {
        write_succeeds(&mut pair, key, at);
        let sent = pair.a.host.memory.slice(pair.a.mr.iova, 8).to_vec();
        assert_eq!(pair.b.host.memory.slice(iova + host, 8), sent);
    }
    assert_eq!(pair.b.host.memory.faults, []);
}

#[test]
fn a_list_stays_in_the_room_of_its_key() {
    let mut pair = Pair::new();
    let key = free_key(&mut pair.b, MkeyAccessMode::Mtt, |_| {});
    register(key, &[0; 17], 0, 0x1000).fail(&mut pair);
}

/// Requirement: IBTA v1.4 §10.8.3.3: requests posted before a failing one succeed, those posted after it are flushed.
#[test]
fn a_change_that_fails_takes_its_place_in_the_order() {
    let mut pair = Pair::new();
    let key = window(&mut pair.b);
    let segments = [remote(pair.a.mr.va, pair.a.mr.key), data(pair.b.mr.sge(0, 4096))].concat();
    pair.b.post(WqeOpcode::RdmaWrite, &segments);
    Update::invalidate(key).post(&mut pair.b);
    pair.b.post(WqeOpcode::RdmaWrite, &segments);
    pair.run();
    assert_eq!(pair.b.expect().opcode(), CqeOpcode::Requester);
    assert_eq!(fault(&mut pair.b), wqe::KEY_UPDATE);
    assert_eq!(fault(&mut pair.b), wqe::FLUSHED);
    pair.b.expect_none();
}

/// An update follows the bytes of earlier requests; with strong ordering it also follows their responses.
#[test]
fn changes_wait_for_what_is_before_them() {
    for (fence, waits) in [(fence_mode::INITIATOR_SMALL, false), (fence_mode::STRONG_ORDERING, true)] {
        let mut pair = Pair::new();
        let key = with_variant(free_key(&mut pair.b, MkeyAccessMode::Mtt, |_| {}), 0x33);
        let segments = [remote(pair.a.mr.va, pair.a.mr.key), data(pair.b.mr.sge(0, 8000))].concat();
        pair.b.post(WqeOpcode::RdmaWrite, &segments);
        let mut change = register(key, &[pair.b.mr.iova], 0, 0x1000);
        change.fence = fence;
        change.post(&mut pair.b);
        // No frame arrives: the WRITE is on the wire and unanswered.
        pair.run_with(|_, _| false);
        let free = pair.b.host.nic.shared.mkeys.get(key.index().value()).unwrap().context.free();
        assert_eq!(free, waits, "fence mode {fence}");
        pair.pass_time(bareverbs_prm::time::Duration::from_millis(200), 3);
        assert_eq!(pair.b.expect().send_opcode(), 0x08);
        assert_eq!(pair.b.expect().send_opcode(), 0x25);
    }
}

/// A request without a fence after an update is a driver error, which strict mode reports.
#[test]
fn a_request_after_a_key_change_needs_a_fence() {
    for (fence, fenced) in
        [(fence_mode::NONE, false), (fence_mode::FENCE, false), (fence_mode::INITIATOR_SMALL, true)]
    {
        let mut pair = Pair::with(NicConfig { strict: true, ..NicConfig::default() }, |_| {});
        let key = window(&mut pair.b);
        let mut bind = Update::bind(&pair.b, key, key, 0, 16);
        bind.succeed(&mut pair);
        bind = Update::invalidate(key);
        bind.fence = fence;
        bind.post(&mut pair.b);
        pair.run();
        match fenced {
            true => assert_eq!(pair.b.expect().opcode(), CqeOpcode::Requester),
            false => assert_eq!(fault(&mut pair.b), wqe::UNFENCED),
        }
    }
}

/// A list of ranges from two regions is one region for the peer.
#[test]
fn pieces_of_regions_are_one_region() {
    let mut pair = Pair::new();
    let bytes: Vec<u8> = (0..96).collect();
    pair.a.host.memory.put(pair.a.mr.iova, &bytes);
    let other: Mr = super::verbs::create_mr(&mut pair.b.host, pair.b.pd, super::verbs::ALL_RIGHTS);
    let key = free_key(&mut pair.b, MkeyAccessMode::Klms, |_| {});
    let mut update = Update::new(key, mask::LENGTH | mask::FREE | RIGHTS, flag::INLINE);
    update.context.set_rr(true).set_rw(true).set_lw(true).set_length(96);
    let mine = pair.b.mr;
    let list = [(32, mine.key, mine.va + 100), (32, other.key, other.va), (32, mine.key, mine.va)];
    update.list(&list).succeed(&mut pair);
    let segments = [remote(0, key), data(pair.a.mr.sge(0, 96))].concat();
    pair.a.post(WqeOpcode::RdmaWrite, &segments);
    pair.run();
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester);
    let memory = &pair.b.host.memory;
    assert_eq!(memory.slice(mine.iova + 100, 32), &bytes[..32]);
    assert_eq!(memory.slice(other.iova, 32), &bytes[32..64]);
    assert_eq!(memory.slice(mine.iova, 32), &bytes[64..]);
}

fn noise(length: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], length)
}

proptest! {
    /// An arbitrary update never causes a panic, and the queue pair either continues or fails with the
    /// matching fault. Only an update of the translation may lead to an unmapped address, since it may name
    /// any address.
    #[test]
    fn arbitrary_changes(
        updates in proptest::collection::vec((noise(48), noise(64), noise(128), any::<[bool; 4]>(), 0usize..3), 1..8),
        strict: bool,
    ) {
        let mut pair = Pair::with(NicConfig { strict, ..NicConfig::default() }, |_| {});
        let keys = [
            window(&mut pair.b),
            free_key(&mut pair.b, MkeyAccessMode::Mtt, |_| {}),
            pair.b.mr.key,
        ];
        let mut led_astray = false;
        for (control, context, entries, [inline, offset, small, owned], which) in updates {
            let mut update = Update::new(keys[which], 0, 0);
            update.control = KeyUpdateSegment::read_from_bytes(&control).unwrap();
            update.context = MkeyContext::read_from_bytes(&context).unwrap();
            if small {
                let known = (1 << 30) - 1;
                update.control.set_mkey_mask(update.control.mkey_mask() & known & !(3 << 9));
                update.control.set_translation_octowords(update.control.translation_octowords() & 7);
            }
            let flags = if inline { flag::INLINE } else { 0 } | if offset { flag::TRANSLATION_OFFSET } else { 0 };
            update.control.set_flags(update.control.flags() & flag::FAIL_IF_FREE | flags);
            if owned {
                update.context.set_pd(pair.b.pd);
            }
            led_astray |= update.control.translation_octowords() != 0;
            update.entries = entries;
            update.post(&mut pair.b);
            let target = pair.b.mr.va;
            write(&mut pair, keys[which], target);
        }
        while let Some(entry) = pair.b.poll() {
            prop_assert!(matches!(entry.opcode(), CqeOpcode::Requester | CqeOpcode::RequesterError));
        }
        prop_assert!(led_astray || pair.b.host.memory.faults.iter().all(|fault| !fault.write));
    }
}
