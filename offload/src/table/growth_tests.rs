//! A growing table against a map, and readers that still have an old descriptor of the table.

use super::tests::{config, lookup};
use super::*;
use crate::status::Status;
use bareverbs_prm::time::Time;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

pub(super) fn growing(buckets: u32, overflow_lines: u32, max_buckets: u32) -> TableConfig {
    let config = config(buckets, overflow_lines);
    TableConfig { policy: TablePolicy { max_buckets, ..TablePolicy::default() }, ..config }
}

fn key(n: u32) -> Vec<u8> {
    std::format!("key {n}").into_bytes()
}

/// Looks a key up with this descriptor.
fn found(memory: &[u8], table: &TableDescriptor, key: &[u8]) -> Result<Vec<u8>, Status> {
    lookup(memory, &table.lookup(key))
}

#[test]
fn a_table_grows_by_itself_and_each_descriptor_that_it_ever_had_stays_true() {
    let mut memory = vec![0; 1 << 20];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &growing(2, 2, 256)).expect("fits");
    let mut descriptors = vec![*writer.descriptor()];
    for n in 0..500 {
        writer.insert(Time::ZERO, &key(n), &n.to_be_bytes()).expect("room");
        if descriptors.last() != Some(writer.descriptor()) {
            descriptors.push(*writer.descriptor());
        }
    }
    let buckets: Vec<u32> = descriptors.iter().map(|table| table.buckets).collect();
    assert_eq!(buckets, [2, 4, 8, 16, 32, 64, 128, 256]);
    let newest = NEWEST_DESCRIPTOR as usize;
    assert_eq!(memory[newest..][..DESCRIPTOR_SIZE], descriptors[7].encode());
    for table in &descriptors {
        for n in 0..500 {
            assert_eq!(found(&memory, table, &key(n)), Ok(n.to_be_bytes().to_vec()), "{n} {table:?}");
        }
        assert_eq!(found(&memory, table, b"nobody"), Err(Status::NotFound));
    }
}

#[test]
fn a_table_without_room_for_lines_stays_as_it_is_and_says_so_when_it_is_full() {
    let mut memory = vec![0; 128 + 64 + 3 * 48 + 64];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &growing(1, 0, 8)).expect("fits");
    for n in 0..3 {
        writer.insert(Time::ZERO, &key(n), b"").expect("room");
    }
    assert!(matches!(writer.insert(Time::ZERO, &key(3), b""), Err(TableError::HeapFull { size: 128, .. })));
    assert_eq!((writer.usage().buckets, writer.usage().chains_to_move), (1, 0));
}

#[test]
fn the_policy_bounds_the_growth() {
    let mut memory = vec![0; 1 << 16];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &growing(1, 1, 2)).expect("fits");
    let full = (0..100).find_map(|n| writer.insert(Time::ZERO, &key(n), b"").err());
    assert_eq!(full, Some(TableError::LinesFull { limit: 3 }));
    assert_eq!(writer.usage().buckets, 2);
    assert!(writer.grow().expect("there is room"), "the owner may grow it explicitly");
}

#[test]
fn lines_of_an_old_chain_are_used_again_when_its_readers_are_through() {
    let mut memory = vec![0; 1 << 16];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &growing(1, 4, 0)).expect("fits");
    assert!((0..12).all(|n| writer.insert(Time::ZERO, &key(n), b"").is_ok()));
    let reader = writer.attach().expect("room");
    assert_eq!(writer.usage().overflow_lines, 3);
    assert!(writer.grow().expect("room") && !writer.move_chain(Time::ZERO).expect("room"));
    let moved = writer.usage().overflow_lines;
    assert!(moved > 3, "the old lines are still read: {moved}");
    writer.announce(reader, crate::runtime::ReaderProgress::default());
    writer.reclaim(Time::ZERO).expect("memory");
    assert_eq!(writer.usage().overflow_lines, moved - 3);
    for n in (0..12).rev() {
        writer.announce(reader, crate::runtime::ReaderProgress::default());
        writer.delete(Time::ZERO, &key(n)).expect("there");
    }
    writer.announce(reader, crate::runtime::ReaderProgress::default());
    writer.reclaim(Time::ZERO).expect("memory");
    assert_eq!((writer.usage().overflow_lines, writer.usage().entries), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn behaves_like_a_map_while_it_grows(
        changes in proptest::collection::vec((0..60_u32, proptest::option::weighted(0.8, 0..120_usize)), 1..300),
        buckets in 1..4_u32, overflow in 0..4_u32,
    ) {
        let mut memory = vec![0xff; 1 << 17];
        let mut writer =
            TableWriter::create(memory.as_mut_slice(), &growing(buckets, overflow, 256)).expect("fits");
        let first = *writer.descriptor();
        let mut model = BTreeMap::new();
        for (n, (k, length)) in changes.into_iter().enumerate() {
            match length {
                Some(length) => {
                    let value = vec![n as u8; length];
                    prop_assert_eq!(writer.upsert(Time::ZERO, &key(k), &value).map(drop), Ok(()));
                    model.insert(k, value);
                }
                None => {
                    let expected = model.remove(&k).map(drop).ok_or(TableError::NoSuchKey);
                    prop_assert_eq!(writer.delete(Time::ZERO, &key(k)), expected);
                }
            }
        }
        prop_assert_eq!(writer.usage().entries, model.len() as u64);
        let newest = *writer.descriptor();
        for k in 0..60 {
            let expected = model.get(&k).cloned().ok_or(Status::NotFound);
            prop_assert_eq!(found(&memory, &newest, &key(k)), expected.clone());
            prop_assert_eq!(found(&memory, &first, &key(k)), expected);
        }
    }
}
