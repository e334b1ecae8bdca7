//! Where the bytes of a region are, for every kind of translation.

use super::super::step::TranslationStep::{Host, Key};
use super::*;
use bareverbs_prm::ids::{Mkey, VhcaId};

/// A key of this kind with pages of 4 KiB.
fn context(mode: MkeyAccessMode, start: u64, length: u64) -> MkeyContext {
    let mut context = MkeyContext::new();
    context.set_access_mode_1_0(mode.raw() & 3).set_access_mode_4_2(mode.raw() >> 2);
    context.set_start_addr(start).set_length(length).set_log_page_size(12);
    context
}

/// The host address of each offset of a region.
fn hosts<const N: usize>(context: &MkeyContext, entries: &[u64], offsets: [u64; N]) -> [Option<u64>; N] {
    let translation = Translation::build(context, entries);
    offsets.map(|offset| match translation.step(entries, translation.position(offset))? {
        (Host(host), _) => Some(host),
        (Key { .. }, _) => None,
    })
}

#[test]
fn the_access_mode_has_two_low_and_three_high_bits() {
    for raw in 0..32 {
        let mode = MkeyAccessMode::from_raw(raw);
        assert_eq!(access_mode(&context(mode, 0, 0)), mode, "{raw}");
    }
}

#[test]
fn a_length_is_of_64_bits_or_everything() {
    let mut context = context(MkeyAccessMode::Pa, 0, 0x1234);
    assert_eq!(length_of(&context), 0x1234);
    context.set_length64(true);
    assert_eq!(length_of(&context), u64::MAX);
}

/// Memory of the device and physical addresses have no list.
#[test]
fn keys_without_a_list_are_their_own_addresses() {
    for mode in [MkeyAccessMode::Pa, MkeyAccessMode::Memic, MkeyAccessMode::SwIcm] {
        let context = context(mode, 0x1_2345, 0x1000);
        assert_eq!(hosts(&context, &[0x8000], [0, 0x10]), [Some(0x1_2345), Some(0x1_2355)], "{mode:?}");
    }
}

/// A region begins as far into its first page as its address does, and the flags and low bits of an entry are
/// no part of the page.
#[test]
fn a_region_begins_in_its_first_page() {
    let region = context(MkeyAccessMode::Mtt, 0x7_0ff0, 0x1020);
    let offsets = [0, 0xf, 0x10, 0x100f, 0x1010, 0x101f];
    let scattered = [0x8ff0, 0x8fff, 0x3000, 0x3fff, 0x5000, 0x500f].map(Some);
    assert_eq!(hosts(&region, &[0x8003, 0x3ffc, 0x5001], offsets), scattered);
    let in_a_row = [0x8ff0, 0x8fff, 0x9000, 0x9fff, 0xa000, 0xa00f].map(Some);
    assert_eq!(hosts(&region, &[0x8003, 0x9ffc, 0xa001], offsets), in_a_row);
    let mut large = context(MkeyAccessMode::Mtt, 0x7_3000, 0x2000);
    large.set_log_page_size(14);
    assert_eq!(hosts(&large, &[0x9003, 0x2_3000], [0, 0x1000]), [Some(0xb000), Some(0x2_0000)]);
}

/// Pages in a row need no list, so an access to them is one access to the host. A list may end with padding.
#[test]
fn pages_in_a_row_are_one_range() {
    let region = context(MkeyAccessMode::Mtt, 0x10, 0x2000);
    for (entries, direct) in [
        (&[0x8000, 0x9000, 0xa000][..], true),
        (&[0x8000, 0x9000, 0xa000, 0x1234_5000], true),
        (&[0x8000, 0x9000, 0xb000], false),
        (&[0x9000, 0x8000, 0x7000], false),
        // Too short: what is behind the list is not of the region.
        (&[0x8000, 0x9000], false),
        (&[], false),
        (&[u64::MAX << 12, 0, 0x1000], false),
    ] {
        let translation = Translation::build(&region, entries);
        let is_direct = matches!(translation, Translation::Direct { .. });
        assert_eq!(is_direct, direct, "{entries:x?}");
    }
    // Exactly three pages.
    let full = context(MkeyAccessMode::Mtt, 0, 0x3000);
    let translation = Translation::build(&full, &[0x8000, 0x9000, 0xa000]);
    assert_eq!(translation.step(&[], translation.position(0x2fff)), Some((Host(0xafff), u64::MAX)));
}

#[test]
fn accesses_behind_the_end_of_a_list_are_refused() {
    let region = context(MkeyAccessMode::Mtt, 0, 0x2000);
    assert_eq!(hosts(&region, &[0x8000], [0xfff, 0x1000]), [Some(0x8fff), None]);
}

/// The run behind a position ends with its page.
#[test]
fn a_page_is_contiguous_to_its_end() {
    let translation = Translation::Pages { log_page: 12, lead: 0 };
    let entries = [0x8000, 0x3000];
    assert_eq!(translation.step(&entries, 0), Some((Host(0x8000), 0x1000)));
    assert_eq!(translation.step(&entries, 0x1ffe), Some((Host(0x3ffe), 2)));
    assert_eq!(translation.step(&entries, 0x2000), None);
}

#[test]
fn a_range_of_pages_has_a_piece_for_each() {
    let entries = [0x8000, 0x3000, 0x5000];
    let pages = Translation::Pages { log_page: 12, lead: 0 };
    for (at, length, pieces) in [
        (0, 0, Some(0)),
        (0, 1, Some(1)),
        (0xfff, 1, Some(1)),
        (0xfff, 2, Some(2)),
        (0x1000, 0x2000, Some(2)),
        (0, 0x3000, Some(3)),
        (0, 0x3001, None),
        (0x3000, 1, None),
        (u64::MAX, 2, None),
    ] {
        assert_eq!(pages.pieces(&entries, at, length), pieces, "{length:#x} at {at:#x}");
    }
    let direct = Translation::Direct { base: 0 };
    assert_eq!([0, 1, u64::MAX].map(|length| direct.pieces(&[], 0x8000, length)), [0, 1, 1].map(Some));
}

#[test]
fn lists_of_keys_are_indirect() {
    let entries = [0x1000 << 32 | 0x500, 0x2000, 0x1000 << 32 | 0x600, 0x3000];
    let step = |context: &MkeyContext, offset| {
        let translation = Translation::build(context, &entries);
        assert!(translation.is_indirect());
        assert_eq!(translation.pieces(&entries, 0, 1), None, "the keys know their pieces");
        translation.step(&entries, translation.position(offset))
    };
    let found = |key, address, left| Some((Key { key: Mkey::new(key), address }, left));
    let ranges = context(MkeyAccessMode::Klms, 0x10, 0x2000);
    assert_eq!(step(&ranges, 0x1004), found(0x600, 0x3004, 0xffc));
    // Ranges of one size are found like pages: the region begins in the middle of the first.
    let sizes = context(MkeyAccessMode::Ksm, 0x10, 0x1000);
    assert_eq!(step(&sizes, 0xff4), found(0x600, 0x3004, 0xffc));
    assert!(!Translation::build(&context(MkeyAccessMode::Mtt, 0, 0x1000), &[0x8000]).is_indirect());
}

/// The owner of an alias translates, at its own offsets.
#[test]
fn an_alias_leads_to_nothing_here() {
    let target = SharedKey { owner: VhcaId::from_low_bits(3), index: 5, generation: 7 };
    let alias = Translation::Alias(target);
    assert_eq!(alias.position(0x1234), 0x1234);
    assert_eq!((alias.step(&[], 0), alias.pieces(&[], 0, 1)), (None, None));
}

/// A changed list of up to 4,096 entries is read again; a longer one only changes its range.
#[test]
fn a_change_of_a_long_list_reads_nothing() {
    let list: Vec<u64> = (0..4097).map(|page| page << 13).collect();
    for (entries, read) in [(&list[..4096], 4096), (&list, 0)] {
        let mut translation = Translation::build(&context(MkeyAccessMode::Mtt, 0, 4097 << 12), entries);
        let moved = context(MkeyAccessMode::Mtt, 0x7234, 0x2000);
        assert_eq!(translation.follow(&moved, entries), read);
        let at = translation.position(0xdcd);
        assert_eq!(at, 0x1001, "the region begins 0x234 bytes into its first page");
        assert_eq!(translation.step(entries, at), Some((Host(0x2001), 0xfff)));
    }
    // A list of keys is a list of keys however long it is.
    let mut translation = Translation::build(&context(MkeyAccessMode::Ksm, 0, 0x2000), &list);
    assert_eq!(translation.follow(&context(MkeyAccessMode::Ksm, 0, 0x1000), &list), 4097);
    assert!(translation.is_indirect());
}

/// A list of up to 2^20 pages is looked through when its key is created.
#[test]
fn a_translation_of_more_than_2_20_pages_stays_a_list() {
    let list: Vec<u64> = (0..=1 << 20).map(|page| page << 12).collect();
    for (pages, direct) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let region = context(MkeyAccessMode::Mtt, 0, pages << 12);
        let translation = Translation::build(&region, &list[..pages as usize]);
        assert_eq!(matches!(translation, Translation::Direct { .. }), direct, "{pages}");
    }
}

#[test]
fn words_are_big_endian_and_whole() {
    let bytes = [0, 0, 0, 0, 0, 0, 0x80, 0x03, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    assert!(words(&bytes).eq([0x8003, 0x0102_0304_0506_0708]));
}
