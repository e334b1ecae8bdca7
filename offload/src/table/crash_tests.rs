//! The writer dies after any of its stores. The next one opens the table and continues, and may die as well.

use super::growth_tests::growing;
use super::journal::{Journal, Store, apply};
use super::tests::lookup;
use super::*;
use crate::status::Status;
use bareverbs_prm::time::Time;
use std::collections::BTreeMap;
use std::vec::Vec;

const SIZE: usize = 8192;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table before a change, its content before and after, and the stores of the change.
struct Journalled {
    name: &'static str,
    before: Vec<u8>,
    stores: Vec<Store>,
    old: Model,
    new: Model,
}

/// Changes a table, and a map with the same content.
struct Modelled {
    writer: TableWriter<Journal>,
    model: Model,
}

impl Modelled {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.writer.upsert(Time::ZERO, key, value).expect("room");
        self.model.insert(key.to_vec(), value.to_vec());
    }
    fn delete(&mut self, key: &[u8]) {
        self.writer.delete(Time::ZERO, key).expect("there");
        self.model.remove(key);
    }
}

fn name(n: u32) -> Vec<u8> {
    std::format!("key {n}").into_bytes()
}

/// A table of two buckets with `keys` keys, some of whose lines were used before.
fn pair(keys: u32) -> Modelled {
    let writer = TableWriter::create(Journal::new(vec![0; SIZE]), &growing(2, 6, 0)).expect("fits");
    let mut pair = Modelled { writer, model: Model::new() };
    (0..keys).for_each(|n| pair.put(&name(n), &vec![n as u8; 20 + n as usize]));
    pair
}

fn change(name: &'static str, mut pair: Modelled, change: impl FnOnce(&mut Modelled)) -> Journalled {
    let (before, old) = (pair.writer.memory().bytes.clone(), pair.model.clone());
    pair.writer.memory().take_stores();
    change(&mut pair);
    let stores = pair.writer.memory().take_stores();
    Journalled { name, before, stores, old, new: pair.model }
}

fn changes() -> Vec<Journalled> {
    let growing_pair = || {
        let mut pair = pair(9);
        assert!(pair.writer.grow().expect("room"));
        pair
    };
    let moved = || {
        let mut pair = growing_pair();
        assert!(pair.writer.move_chain(Time::ZERO).expect("nobody is waited for"));
        pair
    };
    vec![
        change("insert", pair(1), |p| p.put(b"another", b"value")),
        change("insert into a new line", pair(12), |p| p.put(b"another", b"value")),
        change(
            "insert where one was deleted",
            {
                let mut p = pair(9);
                p.delete(&name(2));
                p
            },
            |p| p.put(b"another", b"value"),
        ),
        change("update", pair(5), |p| p.put(&name(3), b"new")),
        change(
            "update in the room of the one before",
            {
                let mut p = pair(5);
                p.put(&name(3), &[9; 23]);
                p
            },
            |p| p.put(&name(4), &[8; 23]),
        ),
        change("delete", pair(5), |p| p.delete(&name(3))),
        change("delete the last of a line", pair(9), |p| p.delete(&name(8))),
        change("begin to grow", pair(9), |p| assert!(p.writer.grow().expect("room"))),
        change("move the first chain", growing_pair(), |p| {
            assert!(p.writer.move_chain(Time::ZERO).expect("room"))
        }),
        change("move the last chain", moved(), |p| assert!(!p.writer.move_chain(Time::ZERO).expect("room"))),
        change("insert while it grows", moved(), |p| p.put(b"another", b"value")),
    ]
}

fn content(memory: &[u8], table: &TableDescriptor, keys: &[Vec<u8>]) -> Model {
    let mut content = Model::new();
    for key in keys {
        match lookup(memory, &table.lookup(key)) {
            Ok(value) => drop(content.insert(key.clone(), value)),
            Err(Status::NotFound) => {}
            Err(status) => panic!("{key:?}: {status}"),
        }
    }
    content
}

fn open(bytes: Vec<u8>) -> Result<TableWriter<Journal>, TableError> {
    let mut marks = vec![!0; marks_for(SIZE as u64)];
    TableWriter::open(
        Journal::new(bytes),
        TablePolicy { max_buckets: 64, ..TablePolicy::default() },
        &mut marks,
    )
}

/// Opens the table, checks that it holds what it held before the change or after it, and continues until it
/// has grown.
fn check_opened(change: &Journalled, bytes: Vec<u8>, keys: &[Vec<u8>]) -> bool {
    let name_of = change.name;
    let mut writer = open(bytes).expect(name_of);
    let table = *writer.descriptor();
    let found = content(&writer.memory().bytes, &table, keys);
    assert!(found == change.old || found == change.new, "{name_of}: {found:?}");
    assert_eq!(writer.usage().entries, found.len() as u64, "{name_of}");
    let is_new = found == change.new;
    let mut pair = Modelled { writer, model: found };
    for n in 0..24 {
        pair.put(&name(n), &vec![!n as u8; 1 + (n as usize * 7) % 90]);
    }
    pair.delete(&name(5));
    pair.delete(&name(6));
    let keys: Vec<_> = keys.iter().cloned().chain((0..24).map(name)).collect();
    for table in [table, *pair.writer.descriptor()] {
        assert_eq!(content(&pair.writer.memory().bytes, &table, &keys), pair.model, "{name_of}");
    }
    is_new
}

#[test]
fn after_each_store_of_each_change_the_table_is_as_before_or_as_after() {
    for change in changes() {
        let keys: Vec<_> = change.old.keys().chain(change.new.keys()).cloned().collect();
        let mut seen = [false; 2];
        for done in 0..=change.stores.len() {
            let mut bytes = change.before.clone();
            apply(&mut bytes, &change.stores[..done]);
            seen[usize::from(check_opened(&change, bytes, &keys))] = true;
        }
        assert!(seen[1], "{}: it never took effect", change.name);
        assert!(seen[0] || change.old == change.new, "{}: it took effect too early", change.name);
    }
}

#[test]
fn the_next_writer_may_die_while_it_opens() {
    for change in changes() {
        let keys: Vec<_> = change.old.keys().chain(change.new.keys()).cloned().collect();
        for done in 0..=change.stores.len() {
            let mut before = change.before.clone();
            apply(&mut before, &change.stores[..done]);
            let stores = open(before.clone()).expect(change.name).memory().take_stores();
            // After each store, in the writer's order. Every second crash after every first would be
            // thousands.
            for opened in [0, 1, 2, 3, stores.len() / 2, stores.len()] {
                let mut bytes = before.clone();
                apply(&mut bytes, stores.iter().take(opened));
                check_opened(&change, bytes, &keys);
            }
        }
    }
}

#[test]
fn a_half_created_table_cannot_be_opened() {
    let old = pair(9).writer.into_memory().bytes;
    let journal = Journal::new(old.clone());
    let mut writer = TableWriter::create(journal, &growing(3, 2, 0)).expect("fits");
    let stores = writer.memory().take_stores();
    let mut opened = 0;
    for done in 1..=stores.len() {
        let mut bytes = old.clone();
        apply(&mut bytes, &stores[..done]);
        match open(bytes) {
            Ok(writer) => {
                assert_eq!((writer.usage().entries, writer.usage().buckets), (0, 3));
                opened += 1;
            }
            Err(error) => assert_eq!((error, opened), (TableError::NotATable, 0), "after {done} stores"),
        }
    }
    assert!(opened > 0);
}

#[test]
fn memory_that_no_writer_wrote_is_refused() {
    let bytes = pair(12).writer.into_memory().bytes;
    let table = TableDescriptor::parse(bytes[..64].try_into().expect("64 bytes")).expect("a table");
    let line = table.lines as usize;
    let mut flipped = bytes.clone();
    flipped[line + 9] ^= 1;
    assert!(matches!(open(flipped).map(drop), Err(TableError::Corrupt { .. })));
    // A chain that loops, and a reference that two slots hold, both with a valid seal.
    let mut parsed = crate::kernels::kv_layout::Line::parse(&bytes[line..][..64], 2).expect("whole");
    parsed.slots[1] = parsed.slots[0];
    let mut twice = bytes.clone();
    twice[line..][..64].copy_from_slice(&parsed.encode(2));
    assert!(matches!(open(twice).map(drop), Err(TableError::Corrupt { .. })));
    let mut bites = bytes.clone();
    parsed.slots[1].object = crate::kernels::kv_layout::ObjectRef::NONE;
    parsed.next = table.lines;
    bites[line..][..64].copy_from_slice(&parsed.encode(2));
    assert!(matches!(open(bites).map(drop), Err(TableError::Corrupt { .. })));
    let few = TableWriter::open(Journal::new(bytes), TablePolicy::default(), &mut [0; 3]).map(drop);
    assert_eq!(few, Err(TableError::TooFewMarks { given: 3, needed: marks_for(SIZE as u64) }));
}
