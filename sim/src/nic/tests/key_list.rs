//! Compares indirect keys with a flat model that has the host address of every byte of a region.

use super::super::update::{KeyUpdate, UpdateRules};
use super::super::{ANY_QP, Access, Accessor, KeyFault, MkeyTable};
use super::KeyList;
use crate::nic::{DmaFault, HostMemory};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Pdn, Qpn};
use bareverbs_prm::numbering::MkeyAccessMode;
use bareverbs_prm::wqe::{mkey_mask, umr_flags};
use proptest::prelude::*;

const PD: Pdn = Pdn::from_low_bits(7);
const WHO: Accessor =
    Accessor { pd: PD, qpn: Qpn::from_low_bits(0x40), privileged: false, reserved_lkey: false };
const VARIANT: u8 = 0x21;

/// Host memory whose bytes are computed from their addresses. Records writes.
#[derive(Default)]
struct Addresses {
    written: Vec<(u64, u8)>,
}

fn byte_at(address: u64) -> u8 {
    (address ^ address >> 8 ^ address >> 16).wrapping_mul(0x9d) as u8
}

impl HostMemory for Addresses {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        (iova..).zip(buffer).for_each(|(address, byte)| *byte = byte_at(address));
        Ok(())
    }
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.written.extend((iova..).zip(bytes.iter().copied()));
        Ok(())
    }
}

fn context(mode: MkeyAccessMode, start: u64, length: u64) -> MkeyContext {
    let mut context = MkeyContext::new();
    context.set_pd(PD).set_qpn(Qpn::from_low_bits(ANY_QP)).set_start_addr(start).set_length(length);
    context.set_mkey_7_0(VARIANT).set_lr(true).set_lw(true).set_rr(true).set_rw(true).set_log_page_size(12);
    context.set_access_mode_1_0(mode.raw());
    context
}

/// A key table, and for every key its start and the host addresses of its bytes.
struct Model {
    table: MkeyTable,
    keys: Vec<(Mkey, u64, Vec<u64>)>,
}

/// A range of an earlier key: which key, and where in it.
#[derive(Debug, Clone)]
struct Piece {
    key: usize,
    offset: u64,
    length: u64,
    stride: u64,
}

impl Model {
    fn new() -> Self {
        Self { table: MkeyTable::new(), keys: Vec::new() }
    }

    fn add(&mut self, context: MkeyContext, entries: Vec<u64>, flat: Vec<u64>) {
        let index = self.table.create(context, entries, 1000).unwrap();
        self.keys.push((Mkey::new(index << 8 | u32::from(VARIANT)), context.start_addr(), flat));
    }

    /// Adds a key of three pages in the given order.
    fn add_pages(&mut self, start: u64, pages: [u64; 3]) {
        let lead = start & 0xfff;
        let length = 3 * 4096 - lead - 5;
        let flat = (lead..lead + length).map(|at| pages[(at >> 12) as usize] + (at & 0xfff)).collect();
        self.add(context(MkeyAccessMode::Mtt, start, length), pages.map(|page| page | 3).to_vec(), flat);
    }

    /// The range, cut down so that `rounds` repetitions fit into its key.
    fn fit(&self, piece: &Piece, rounds: u64) -> Option<(Mkey, u64, u64, u64)> {
        let (key, start, flat) = &self.keys[piece.key % self.keys.len()];
        let size = flat.len() as u64;
        let offset = piece.offset % size;
        let stride = if rounds > 1 { piece.stride.min((size - 1 - offset) / (rounds - 1)) } else { 0 };
        let length = piece.length.min(size - offset - stride * rounds.saturating_sub(1));
        (length > 0).then_some((*key, start + offset, length, stride))
    }

    fn flat_of(&self, key: Mkey, address: u64, length: u64) -> Vec<u64> {
        let (_, start, flat) = self.keys.iter().find(|(name, ..)| *name == key).unwrap();
        flat[(address - start) as usize..][..length as usize].to_vec()
    }

    /// Adds a key list: plain ranges, then a repeat block as its last part.
    fn add_list(&mut self, start: u64, plain: &[Piece], block: &[Piece], rounds: u64) {
        let (mut entries, mut flat) = (Vec::new(), Vec::new());
        for (key, address, length, _) in plain.iter().filter_map(|piece| self.fit(piece, 1)) {
            entries.extend([length << 32 | u64::from(key.value()), address]);
            flat.extend(self.flat_of(key, address, length));
        }
        let parts: Vec<_> = block.iter().filter_map(|piece| self.fit(piece, rounds)).collect();
        if !parts.is_empty() {
            let round: u64 = parts.iter().map(|part| part.2).sum();
            entries.extend([round << 32 | 0x400, rounds << 32 | parts.len() as u64]);
            for (key, address, length, stride) in &parts {
                entries.extend([stride << 48 | length << 32 | u64::from(key.value()), *address]);
            }
            for n in 0..rounds {
                for (key, address, length, stride) in &parts {
                    flat.extend(self.flat_of(*key, address + n * stride, *length));
                }
            }
        }
        if !flat.is_empty() {
            // Work requests pad lists to four octwords.
            entries.extend([0; 4]);
            self.add(context(MkeyAccessMode::Klms, start, flat.len() as u64), entries, flat);
        }
    }
}

fn piece() -> impl Strategy<Value = Piece> {
    (any::<usize>(), any::<u64>(), 1u64..3000, 0u64..2000).prop_map(|(key, offset, length, stride)| Piece {
        key,
        offset,
        length,
        stride,
    })
}

fn list() -> impl Strategy<Value = (u64, Vec<Piece>, Vec<Piece>, u64)> {
    let pieces = || proptest::collection::vec(piece(), 0..4);
    (0u64..1 << 40, pieces(), pieces(), 1u64..5)
}

proptest! {
    #[test]
    fn key_lists_agree_with_a_flat_model(
        lists in proptest::collection::vec(list(), 1..5),
        accesses in proptest::collection::vec((any::<usize>(), any::<u64>(), 1u64..4000), 1..8),
    ) {
        let mut model = Model::new();
        model.add_pages(0x10_0123, [0x8000_0000, 0x3000_0000, 0x3000_1000]);
        model.add_pages(0, [0x5000_0000, 0x5000_1000, 0x5000_2000]);
        for (start, plain, block, rounds) in &lists {
            // Later lists may name earlier ones, so there are two or more levels.
            model.add_list(*start, plain, block, *rounds);
        }
        for (key, offset, length) in accesses {
            let (key, start, flat) = &model.keys[key % model.keys.len()];
            let offset = offset % flat.len() as u64;
            let length = length.min(flat.len() as u64 - offset);
            let checked = model.table.check(&WHO, *key, Access::RemoteRead, start + offset, length);
            let Ok(range) = checked else {
                prop_assert_eq!(checked, Err(KeyFault::Depth));
                prop_assert!(lists.len() > usize::from(super::super::MAX_INDIRECTION));
                continue;
            };
            let expected = &flat[offset as usize..][..length as usize];
            let mut bytes = vec![0; length as usize];
            let mut memory = Addresses::default();
            model.table.read(&mut memory, &range, 0, &mut bytes).unwrap();
            let wanted: Vec<u8> = expected.iter().map(|&address| byte_at(address)).collect();
            prop_assert_eq!(&bytes, &wanted);
            model.table.write(&mut memory, &range, 0, &bytes).unwrap();
            let wanted: Vec<(u64, u8)> = expected.iter().copied().zip(bytes).collect();
            prop_assert_eq!(memory.written, wanted);
        }
        let (key, start, flat) = model.keys.last().unwrap();
        let beyond = model.table.check(&WHO, *key, Access::RemoteRead, *start, flat.len() as u64 + 1);
        prop_assert_eq!(beyond, Err(KeyFault::Range));
    }

    /// Arbitrary lists never cause a panic or an access outside checked memory.
    #[test]
    fn arbitrary_lists_are_harmless(
        entries in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..0x800, Just(0x10_0000_1021), Just(0x400)], 0..40),
        mode in 2u8..4,
        start: u64,
        length: u64,
        at in proptest::collection::vec((any::<u64>(), any::<u16>()), 1..8),
    ) {
        let mut model = Model::new();
        model.add_pages(0, [0x5000_0000, 0x5000_1000, 0x5000_2000]);
        let mut context = context(MkeyAccessMode::from_raw(mode), start, length);
        context.set_umr_en(true);
        model.add(context, entries, Vec::new());
        let key = model.keys[1].0;
        for (offset, length) in at {
            let (address, length) = (start.wrapping_add(offset), u64::from(length));
            let Ok(range) = model.table.check(&WHO, key, Access::RemoteWrite, address, length) else { continue };
            let mut memory = Addresses::default();
            model.table.write(&mut memory, &range, 0, &vec![1; length as usize]).unwrap();
            let inside = |(address, _): &(u64, u8)| (0x5000_0000..0x5000_3000).contains(address);
            prop_assert!(memory.written.iter().all(inside));
        }
    }
}

#[test]
fn keys_of_one_size_are_found_as_pages_are() {
    let mut model = Model::new();
    model.add_pages(0, [0x5000_0000, 0x6000_0000, 0x7000_0000]);
    let key = u64::from(model.keys[0].0.value());
    let pages = vec![key, 0x1000, key, 0];
    let flat: Vec<u64> = (0x6000_0ff0..0x6000_1000).chain(0x5000_0000..0x5000_0100).collect();
    model.add(context(MkeyAccessMode::Ksm, 0xff0, 0x110), pages, flat.clone());
    let (key, start, _) = model.keys[1];
    let range = model.table.check(&WHO, key, Access::RemoteWrite, start, 0x110).unwrap();
    let mut memory = Addresses::default();
    model.table.write(&mut memory, &range, 0, &[1; 0x110]).unwrap();
    assert_eq!(memory.written.iter().map(|(address, _)| *address).collect::<Vec<_>>(), flat);
}

#[test]
fn a_key_list_that_names_its_own_key_ends_at_the_depth_limit() {
    let mut model = Model::new();
    let first = super::super::FIRST_MKEY << 8 | u32::from(VARIANT);
    model.add(context(MkeyAccessMode::Klms, 0, 0x1000), vec![0x1000 << 32 | u64::from(first), 0], Vec::new());
    let key = model.keys[0].0;
    assert_eq!(model.table.check(&WHO, key, Access::RemoteRead, 0, 1), Err(KeyFault::Depth));
}

#[test]
fn keys_behind_a_list_need_domain_and_local_rights() {
    let reach = |access: Access, edit: fn(&mut MkeyContext)| {
        let mut model = Model::new();
        let mut inner = context(MkeyAccessMode::Mtt, 0, 0x1000);
        inner.set_rr(false).set_rw(false);
        edit(&mut inner);
        model.add(inner, vec![0x5000_0003], Vec::new());
        let entries = vec![0x1000 << 32 | u64::from(model.keys[0].0.value()), 0];
        model.add(context(MkeyAccessMode::Klms, 0, 0x1000), entries, Vec::new());
        model.table.check(&WHO, model.keys[1].0, access, 0, 8).map(|range| range.length())
    };
    let outcome = |edit| reach(Access::RemoteWrite, edit);
    assert_eq!(outcome(|_| ()), Ok(8), "the window's remote rights apply");
    let no_write = |c: &mut MkeyContext| {
        c.set_lw(false);
    };
    assert_eq!(outcome(no_write), Err(KeyFault::Right));
    assert_eq!(reach(Access::RemoteRead, no_write), Ok(8), "a reader needs no write access");
    let free = |c: &mut MkeyContext| {
        c.set_free(true);
    };
    assert_eq!(outcome(free), Err(KeyFault::Free));
    let elsewhere = |c: &mut MkeyContext| {
        c.set_pd(Pdn::from_low_bits(8));
    };
    assert_eq!(outcome(elsewhere), Err(KeyFault::Domain));
}

/// A list of four octwords repeats one byte many times. The device follows as many ranges as the longest
/// message has pages, and no more.
#[test]
fn an_access_has_as_many_pieces_as_a_message_has_pages() {
    let mut model = Model::new();
    model.add_pages(0, [0x1000, 0x2000, 0x3000]);
    let (page, ..) = model.keys[0];
    let rounds = 1 << 30;
    let entries = vec![1 << 32 | 0x400, rounds << 32 | 1, 1 << 32 | u64::from(page.value()), 0];
    model.add(context(MkeyAccessMode::Klms, 0, rounds), entries, Vec::new());
    let (key, ..) = model.keys[1];
    let check = |length| model.table.check(&WHO, key, Access::RemoteRead, 0, length).map(|_| ());
    assert_eq!(check((1 << 18) + 1), Ok(()));
    assert_eq!(check((1 << 18) + 2), Err(KeyFault::Pieces));
    assert_eq!(check(rounds), Err(KeyFault::Pieces));
    let segment = |length| model.table.check_segment(&WHO, key, Access::RemoteRead, 0, length).map(|_| ());
    model.table.budget().begin_access();
    assert_eq!([segment(1 << 18), segment(1), segment(1)], [Ok(()), Ok(()), Err(KeyFault::Pieces)]);
}

/// A work request updates eight of the 2^20 pages of a key, or its length. That costs as much as it brings,
/// however long the list is.
#[test]
fn a_change_of_a_long_list_of_pages_costs_what_it_brings() {
    const PAGES: u64 = 1 << 20;
    let host = |page: u64| (page ^ 1) << 12;
    let mut key = context(MkeyAccessMode::Mtt, 0, PAGES << 12);
    key.set_umr_en(true).set_translations_octword_size(PAGES as u32 / 2);
    let mut model = Model::new();
    model.add(key, (0..PAGES).map(|page| host(page) | 3).collect(), Vec::new());
    let (name, ..) = model.keys[0];
    let rules = UpdateRules { who: WHO, fixed_page_size: false, fixed_atomic: false, fixed_indirect: false };
    let mut change = |mask, length, offset, entries: &[u64]| {
        let mut context = context(MkeyAccessMode::Mtt, 0, length);
        context.set_umr_en(true);
        let octowords = entries.len() as u16 / 2;
        let flags = umr_flags::TRANSLATION_OFFSET;
        let update = KeyUpdate { key: name, flags, mask, context, offset, octowords };
        let before = model.table.budget().total();
        model.table.update(&update, entries, &rules).unwrap();
        assert!(model.table.budget().total() - before <= 64, "{mask:#x}");
        let byte = |page: u64| {
            let range = model.table.check(&WHO, name, Access::LocalWrite, page << 12, 1).ok()?;
            let mut memory = Addresses::default();
            model.table.write(&mut memory, &range, 0, &[1]).unwrap();
            Some(memory.written[0].0)
        };
        [0, 1000, 1007, 1008, PAGES - 1].map(byte)
    };
    let new: Vec<u64> = (0..8).map(|page| (0x9000_0000 + (page << 13)) | 3).collect();
    let [first, near, last] = [0, 1008, PAGES - 1].map(|page| Some(host(page)));
    let changed = [Some(0x9000_0000), Some(0x9000_e000)];
    let after = [first, changed[0], changed[1], near, last];
    assert_eq!(change(0, PAGES << 12, 500, &new), after);
    assert_eq!(change(mkey_mask::LENGTH, 1 << 12, 0, &[]), [first, None, None, None, None]);
    assert_eq!(change(mkey_mask::LENGTH, PAGES << 12, 0, &[]), after, "the rest of the list is unchanged");
}

/// A block of two parts that repeats three times, between 8 plain bytes and an entry of no bytes.
#[test]
fn a_list_knows_its_bytes_and_its_keys() {
    let part = |stride: u64, bytes: u64, key: u64| stride << 48 | bytes << 32 | key;
    let entries = [
        8 << 32 | 0x500,
        0x1000,
        6 << 32 | 0x400,
        3 << 32 | 2,
        part(2, 4, 0x600),
        0x2000,
        part(9, 2, 0x700),
        0x3000,
    ]
    .into_iter()
    .chain([0x800, 0x4000])
    .collect::<Vec<u64>>();
    let list = KeyList::of_lengths(&entries, u64::MAX);
    assert_eq!(list.length(), 8 + 3 * 6);
    assert!(list.keys().eq([0x500, 0x600, 0x700].map(Mkey::new)));
    let pages = KeyList::of_size(&[0x900, 0, 0xa00, 0], 12, 0x1234);
    assert_eq!((pages.length(), pages.lead()), (0, 0x234));
    assert!(pages.keys().eq([0x900, 0xa00].map(Mkey::new)));
}
