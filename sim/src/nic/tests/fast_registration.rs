//! Fast registration as Linux's storage drivers use it (Linux `drivers/infiniband/hw/mlx5/{mr,umr,wr}.c`):
//! keys created without a list, lists padded with stale bytes, local invalidation, translations that arrive
//! in parts.

use super::infiniband::key_node;
use super::pair::Pair;
use super::umr::{
    ANY, Update, free_key, register, send_invalidate, with_variant, write_fails, write_succeeds,
};
use super::verbs::{Node, Sge, data, remote};
use crate::nic::{NicConfig, syndrome};
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{MacAddress, Mkey};
use bareverbs_prm::numbering::{CommandOpcode, CqeOpcode, MkeyAccessMode, WqeOpcode};
use bareverbs_prm::wqe::{mkey_mask as mask, umr_flags as flag};

/// The contents after a list in a reused ring or page.
const STALE: u64 = 0xdead_0000_0000_1003;

/// A page-list key with room for this many octwords, as Linux creates it for a pool or a cache.
fn pooled(node: &mut Node, octwords: u32) -> Mkey {
    free_key(node, MkeyAccessMode::Mtt, |context| {
        context.set_translations_octword_size(octwords);
    })
}

/// The local DMA key of a protection domain: all memory, for local access only.
fn local_dma_key(node: &mut Node) -> Mkey {
    free_key(node, MkeyAccessMode::Pa, |context| {
        context.set_free(false).set_umr_en(false).set_lw(true).set_length64(true);
        context.set_translations_octword_size(0).set_log_page_size(0);
    })
}

/// LOCAL_INV: sets `free` without checking the state.
fn local_invalidate(key: Mkey) -> Update {
    let mut update = Update::new(key, mask::FREE, flag::INLINE);
    update.context.set_free(true);
    update
}

/// Like [`register`], with stale bytes in the ring after the list.
fn register_before_stale(key: Mkey, pages: &[u64], length: u64) -> Update {
    let mut update = register(key, pages, 0, length);
    let used = pages.len() * 8;
    update.entries.truncate(used);
    while !update.entries.len().is_multiple_of(64) {
        update.entries.extend_from_slice(&STALE.to_be_bytes());
    }
    update
}

#[test]
fn ports_of_both_kinds_offer_it() {
    let mac = MacAddress([2, 0, 0, 0, 0, 1]);
    for config in [NicConfig::new(mac), NicConfig::infiniband(mac)] {
        let nic = crate::nic::Nic::new(config);
        assert!(!nic.firmware.capabilities.general.umr_modify_entity_size_disabled());
    }
}

/// A device that does not offer the feature refuses the requests that need it.
#[test]
fn a_device_may_keep_page_sizes() {
    let mut pair = Pair::with(NicConfig { translation_updates: false, ..NicConfig::default() }, |_| {});
    let (key, iova) = (pooled(&mut pair.b, 4), pair.b.mr.iova);
    register(key, &[iova], 0, 0x1000).fail(&mut pair);
}

/// The smallest key of Linux's cache has two octwords but receives four.
#[test]
fn a_key_has_room_for_whole_units_of_a_list() {
    let mut pair = Pair::new();
    let (key, iova) = (pooled(&mut pair.b, 2), pair.b.mr.iova);
    register(key, &[iova, iova + 0x2000, iova + 0x1000], 0, 0x3000).succeed(&mut pair);
    write_succeeds(&mut pair, key, 0x1008);
    let sent = pair.a.host.memory.slice(pair.a.mr.iova, 8).to_vec();
    assert_eq!(pair.b.host.memory.slice(iova + 0x2008, 8), sent);
    local_invalidate(key).succeed(&mut pair);
    register(key, &[iova; 9], 0, 0x3000).fail(&mut pair);
}

#[test]
fn entries_behind_the_end_of_a_page_list_are_not_read() {
    let mut pair = Pair::new();
    let (key, iova) = (pooled(&mut pair.b, 4), pair.b.mr.iova);
    register_before_stale(key, &[iova, iova + 0x1000, iova + 0x2000], 0x2800).succeed(&mut pair);
    write_succeeds(&mut pair, key, 0x27f8);
    write_fails(&mut pair, key, 0x27f9);
    assert_eq!(pair.b.host.memory.faults, []);
}

/// The list is in memory, where an earlier and longer one was.
#[test]
fn a_page_list_is_read_from_memory() {
    let mut pair = Pair::new();
    let (key, iova, lkey) = (pooled(&mut pair.b, 8), pair.b.mr.iova, local_dma_key(&mut pair.b));
    let pages: Vec<u64> = [5, 4, 3, 2, 1, 6, 7, 8, 9].map(|page| (iova + page * 0x1000) | 3).to_vec();
    let bytes: Vec<u8> = pages.iter().chain(&[STALE; 7]).flat_map(|entry| entry.to_be_bytes()).collect();
    pair.b.host.memory.put(iova + 0x8000, &bytes);
    let mut update = register(key, &pages, 0x10_0040, 0x8100);
    update.control.set_flags(flag::FAIL_IF_NOT_FREE);
    update.entries = data(Sge { address: iova + 0x8000, length: 128, key: lkey });
    update.succeed(&mut pair);
    write_succeeds(&mut pair, key, 0x10_0040 + 0x80f8);
    let sent = pair.a.host.memory.slice(pair.a.mr.iova, 8).to_vec();
    assert_eq!(pair.b.host.memory.slice(iova + 9 * 0x1000 + 0x138, 8), sent);
}

/// A list of ranges with gaps (SG_GAPS), followed by entries with nonexistent keys.
#[test]
fn entries_behind_the_end_of_a_key_list_are_not_read() {
    let mut pair = Pair::new();
    let (lkey, iova) = (local_dma_key(&mut pair.b), pair.b.mr.iova);
    let key = free_key(&mut pair.b, MkeyAccessMode::Klms, |context| {
        context.set_translations_octword_size(4).set_log_page_size(0);
    });
    let list =
        [(0x100, lkey, iova + 0x40), (0x200, lkey, iova + 0x4000), (0x1000, Mkey::new(0x7777_7700), 0)];
    let registration = |length: u64| {
        let mut update = register(key, &[], 0x5000, length);
        update.context.set_log_page_size(0).set_access_mode_1_0(MkeyAccessMode::Klms.raw());
        update.list(&list)
    };
    registration(0x300).succeed(&mut pair);
    write_succeeds(&mut pair, key, 0x5108);
    let sent = pair.a.host.memory.slice(pair.a.mr.iova, 8).to_vec();
    assert_eq!(pair.b.host.memory.slice(iova + 0x4008, 8), sent);
    local_invalidate(key).succeed(&mut pair);
    // An entry within the length is checked.
    registration(0x301).fail(&mut pair);
}

/// LOCAL_INV does not check the state of a key, so a free key stays free.
#[test]
fn a_key_is_invalidated_as_often_as_one_likes() {
    let mut pair = Pair::new();
    let (key, iova) = (pooled(&mut pair.b, 4), pair.b.mr.iova);
    local_invalidate(key).succeed(&mut pair);
    for variant in 1..4 {
        let key = with_variant(key, variant);
        register(key, &[iova], 0, 0x1000).succeed(&mut pair);
        write_succeeds(&mut pair, key, 0);
        local_invalidate(key).succeed(&mut pair);
        local_invalidate(key).succeed(&mut pair);
    }
    write_fails(&mut pair, with_variant(key, 3), 0);
}

/// The peer invalidates a registration, as an NVMe target does. The key can be registered again once the
/// receive has completed.
#[test]
fn a_peer_takes_a_registration_away() {
    let mut pair = Pair::new();
    let (key, iova) = (pooled(&mut pair.b, 4), pair.b.mr.iova);
    register(key, &[iova], 0, 0x1000).succeed(&mut pair);
    send_invalidate(&mut pair, key);
    assert_eq!(pair.a.expect().opcode(), CqeOpcode::Requester);
    assert_eq!(pair.b.expect().opcode(), CqeOpcode::ResponderSendInvalidate);
    let next = with_variant(key, key.variant() + 1);
    register(next, &[iova], 0, 0x1000).succeed(&mut pair);
    write_succeeds(&mut pair, next, 0);
    write_fails(&mut pair, key, 0);
}

/// What storage targets do for long reads (Linux `drivers/infiniband/core/rw.c`): the response passes a key
/// that grants write access to the host and none to the peer.
#[test]
fn a_read_response_goes_through_a_registration() {
    let mut pair = Pair::new();
    let (key, iova) = (pooled(&mut pair.b, 4), pair.b.mr.iova);
    let bytes: Vec<u8> = (0..0x1800u32).map(|at| (at % 251) as u8).collect();
    pair.a.host.memory.put(pair.a.mr.iova, &bytes);
    let mut update = register(key, &[iova + 0x6000, iova + 0x2000], 0x9000, 0x2000);
    update.context.set_rr(false).set_rw(false);
    local_invalidate(key).succeed(&mut pair);
    update.succeed(&mut pair);
    let scatter = Sge { address: 0x9000, length: 0x1800, key };
    let segments = [remote(pair.a.mr.va, pair.a.mr.key), data(scatter)].concat();
    pair.b.write_wqe(
        WqeOpcode::RdmaRead,
        |control| {
            control.set_fence_mode(bareverbs_prm::wqe::fence_mode::INITIATOR_SMALL);
        },
        &segments,
    );
    pair.b.ring();
    pair.run();
    assert_eq!(pair.b.expect().opcode(), CqeOpcode::Requester);
    assert_eq!(pair.b.host.memory.slice(iova + 0x6000, 0x1000), &bytes[..0x1000]);
    assert_eq!(pair.b.host.memory.slice(iova + 0x2000, 0x800), &bytes[0x1000..]);
    write_fails(&mut pair, key, 0x9000);
}

/// Creates a key with a length but without a list, and returns the result.
fn unpopulated(node: &mut Node, given: u32, free: bool) -> Result<Mkey, u32> {
    let mut input = CreateMkeyIn::new();
    input.set_translations_octword_actual_size(given);
    let context: &mut MkeyContext = input.memory_key_mkey_entry_mut();
    context.set_free(free).set_umr_en(true).set_lr(true).set_access_mode_1_0(MkeyAccessMode::Mtt.raw());
    context.set_qpn(ANY).set_log_page_size(12).set_start_addr(0x4000).set_length(0xa000);
    let pd = node.pd;
    input.memory_key_mkey_entry_mut().set_pd(pd).set_translations_octword_size(5);
    let created: Result<(CreateMkeyOut, _), _> = node.host.run(CommandOpcode::CreateMkey, 0, input);
    created.map(|(output, _)| Mkey::from_parts(output.mkey_index(), 0)).map_err(|(_, syndrome)| syndrome)
}

/// Linux creates the keys of user memory free, with their length but without a list; work requests bring the
/// list in parts.
#[test]
fn a_free_key_needs_no_list() {
    let mut pair = Pair::new();
    let iova = pair.b.mr.iova;
    let key = unpopulated(&mut pair.b, 0, true).unwrap();
    let pages: Vec<u64> = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0].map(|page| iova + page * 0x1000).to_vec();
    let mut first = register(key, &pages[..8], 0, 0);
    first.control.set_mkey_mask(0);
    first.succeed(&mut pair);
    let mut last = register(key, &pages[8..], 0x4000, 0xa000);
    last.control.set_flags(flag::INLINE | flag::FAIL_IF_NOT_FREE | flag::TRANSLATION_OFFSET);
    last.control.set_translation_offset(4);
    last.succeed(&mut pair);
    for (at, page) in [(0x4000, 9), (0xb000, 2), (0xd000, 0)] {
        write_succeeds(&mut pair, key, at);
        let sent = pair.a.host.memory.slice(pair.a.mr.iova, 8).to_vec();
        assert_eq!(pair.b.host.memory.slice(iova + page * 0x1000, 8), sent);
    }
}

/// The driver's own queue pair registers user memory. It belongs to no domain, and its lists are read through
/// a key of one.
#[test]
fn the_drivers_queue_pair_reads_lists_of_any_domain() {
    let mut node = key_node();
    let (key, lkey) = (unpopulated(&mut node, 0, true).unwrap(), local_dma_key(&mut node));
    let list = node.host.memory.allocate(4096);
    let mut update = register(key, &[0; 10], 0x4000, 0xa000);
    update.control.set_flags(flag::FAIL_IF_NOT_FREE);
    update.entries = data(Sge { address: list, length: 128, key: lkey });
    update.post(&mut node);
    node.host.nic.poll_transmit(node.host.now, &mut node.host.memory, &mut crate::wire::FrameBuffer::new());
    let entry = node.expect();
    assert_eq!(entry.opcode(), CqeOpcode::Requester, "{entry:?}");
    assert!(!node.host.nic.shared.mkeys.get(key.index().value()).unwrap().context.free());
}

#[test]
fn a_key_in_use_needs_its_list() {
    let mut pair = Pair::new();
    assert_eq!(unpopulated(&mut pair.b, 0, false), Err(syndrome::LIST_TOO_SHORT.syndrome));
    assert_eq!(unpopulated(&mut pair.b, 6, true), Err(syndrome::MKEY_TRANSLATIONS.syndrome));
}
