//! A reader at any moment of a change, at a granularity of 8 bytes. It may see the old value or the new one,
//! or be told to try again, and never anything else.

use super::journal::{Journal, Store, apply};
use super::tests::config;
use super::*;
use crate::budget::{Budget, Limits, Next};
use crate::grant::Grant;
use crate::kernel::Kernel;
use crate::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use crate::status::Status;
use bareverbs_prm::time::Time;
use proptest::prelude::*;
use std::vec::Vec;

/// A table before a change, and the stores of the change.
struct Scene {
    before: Vec<u8>,
    stores: Vec<Store>,
    descriptor: TableDescriptor,
}

const HASH: u64 = 0x5555_5555_5555_5555;
/// Another hash of the same chain.
const OTHER: u64 = HASH ^ 1;
const SIZE: usize = 4096;

fn record(prepare: impl Fn(&mut TableWriter<Journal>), change: impl Fn(&mut TableWriter<Journal>)) -> Scene {
    let mut writer = TableWriter::create(Journal::new(vec![0; SIZE]), &config(2, 2)).expect("fits");
    prepare(&mut writer);
    let before = writer.memory().bytes.clone();
    writer.memory().take_stores();
    let descriptor = *writer.descriptor();
    change(&mut writer);
    let stores = writer.memory().take_stores();
    Scene { before, stores, descriptor }
}

/// Runs a lookup during the change: before each word that it reads, `schedule` says how many stores happen.
fn race(scene: &Scene, key: &[u8], mut schedule: impl FnMut() -> usize) -> Result<Vec<u8>, Status> {
    let mut memory = scene.before.clone();
    let mut stores = scene.stores.iter();
    let mut fetch = |offset: usize, length: usize| {
        let mut bytes = Vec::new();
        for at in (offset..offset + length).step_by(8) {
            apply(&mut memory, stores.by_ref().take(schedule()));
            bytes.extend_from_slice(&memory[at..at + 8]);
        }
        bytes
    };
    let grant = Grant::new(0, SIZE as u64)?;
    let mut buffer = [0; MAX_PARAMETERS];
    let parameters = Parameters { hash: HASH, ..scene.descriptor.lookup(key) };
    let parameters = parameters.encode(&mut buffer).ok_or(Status::BadParameters)?;
    let mut budget = Budget::new(Limits::default(), Time::ZERO);
    let (mut kernel, mut step) = KvLookup::start(parameters, &grant)?;
    let mut bytes = Vec::new();
    loop {
        match budget.charge(step, Time::ZERO) {
            Next::Read(range) => {
                bytes = fetch(range.offset() as usize, range.length() as usize);
                step = kernel.dma_done(&bytes, &grant);
            }
            Next::Emit(emission) => {
                return Ok(bytes[emission.offset as usize..][..emission.length as usize].to_vec());
            }
            Next::End(status) => return Err(status),
            _ => return Err(Status::BadParameters),
        }
    }
}

const OLD: &[u8] = b"the old value, of a certain length";
const NEW: &[u8] = b"the new one";

fn insert(writer: &mut TableWriter<Journal>, key: &[u8], value: &[u8]) {
    writer.insert_hashed(Time::ZERO, HASH, key, value).expect("room");
}

fn scenes() -> Vec<(&'static str, Scene)> {
    let later = Time::ZERO + Duration::from_secs(1);
    let with_old = |w: &mut TableWriter<Journal>| insert(w, b"key", OLD);
    let update = record(with_old, |w| {
        w.update_hashed(Time::ZERO, HASH, b"key", NEW).expect("room");
    });
    // The memory of the object before the old one is reused at once, because its lease is over.
    let reuse = record(
        |w| {
            insert(w, b"key", OLD);
            w.update_hashed(Time::ZERO, HASH, b"key", OLD).expect("room");
        },
        |w| {
            w.update_hashed(later, HASH, b"key", NEW).expect("room");
            w.update_hashed(later + Duration::from_secs(1), HASH, b"key", OLD).expect("room");
            w.update_hashed(later + Duration::from_secs(2), HASH, b"key", NEW).expect("room");
        },
    );
    let neighbours = record(with_old, |w| {
        for other in [b"a", b"b", b"c"] {
            insert(w, other, b"not the value of the key");
        }
        w.update_hashed(Time::ZERO, HASH, b"key", NEW).expect("room");
        w.remove_hashed(Time::ZERO, HASH, b"a").expect("there");
    });
    vec![
        ("update", update),
        ("reuse", reuse),
        ("neighbours", neighbours),
        ("growth", growth()),
        ("lines", lines(false)),
        ("lines that come back", lines(true)),
    ]
}

/// The key and others of its chain move to twice as many lines, and the value changes before and after.
fn growth() -> Scene {
    let prepare = |w: &mut TableWriter<Journal>| {
        [&b"key"[..], b"a", b"b", b"c"].iter().for_each(|key| insert(w, key, OLD));
    };
    record(prepare, |w| {
        assert_eq!(w.grow(), Ok(true));
        w.update_hashed(Time::ZERO, HASH, b"key", NEW).expect("room");
        while w.move_chain(Time::ZERO).expect("nobody is waited for") {}
        w.update_hashed(Time::ZERO, HASH, b"key", OLD).expect("room");
        assert_eq!(w.usage().buckets, 4);
    })
}

/// The line that leads to the key's line is removed and joins another chain before its readers have finished;
/// then it may come back.
fn lines(come_back: bool) -> Scene {
    let far = Time::ZERO + Duration::from_secs(1);
    let prepare = |w: &mut TableWriter<Journal>| {
        for (key, hash) in [(&b"a"[..], OTHER), (b"b", OTHER), (b"c", OTHER), (b"key", HASH)] {
            w.insert_hashed(Time::ZERO, hash, key, OLD).expect("room");
        }
        for key in [b"d", b"e", b"f"] {
            w.insert_hashed(Time::ZERO, OTHER, key, OLD).expect("room");
        }
    };
    record(prepare, move |w| {
        w.remove_hashed(Time::ZERO, OTHER, b"f").expect("there");
        for key in [b"u", b"v", b"w", b"x"] {
            w.insert_hashed(far, !HASH, key, b"of another chain").expect("room");
        }
        w.update_hashed(far, HASH, b"key", NEW).expect("room");
        if !come_back {
            return;
        }
        w.remove_hashed(far, !HASH, b"x").expect("there");
        w.insert_hashed(far + Duration::from_secs(2), OTHER, b"f", NEW).expect("room");
    })
}

fn assert_sound(name: &str, result: &Result<Vec<u8>, Status>) {
    match result {
        Ok(value) => assert!(value == OLD || value == NEW, "{name}: {value:?}"),
        Err(Status::Busy | Status::Inconsistent) => {}
        Err(status) => panic!("{name}: the key was there all the time, but {status}"),
    }
}

#[test]
fn the_writer_stops_at_any_point_and_goes_on_at_any_other() {
    for (name, scene) in scenes() {
        let mut seen = [false; 3];
        for first in 0..=scene.stores.len() {
            // Some stores, then a few words read, then the remaining stores.
            for words in 0..40 {
                let mut turn = 0;
                let result = race(&scene, b"key", || {
                    turn += 1;
                    if turn == 1 {
                        first
                    } else if turn == words + 2 {
                        usize::MAX
                    } else {
                        0
                    }
                });
                assert_sound(name, &result);
                let kind = result.map_or(2, |value| usize::from(value == NEW));
                seen[kind] = true;
            }
        }
        assert!(seen[0] && seen[1], "{name}: both values were seen: {seen:?}");
    }
}

#[test]
fn a_writer_that_dies_during_a_change_leaves_a_typed_response() {
    let (_, scene) = scenes().remove(0);
    let results: Vec<_> = (0..=scene.stores.len())
        .map(|done| {
            let mut stores = Some(done);
            race(&scene, b"key", || stores.take().unwrap_or(0))
        })
        .collect();
    results.iter().for_each(|result| assert_sound("died", result));
    assert!(results.contains(&Err(Status::Busy)), "between the odd and the even sequence");
}

#[test]
fn a_key_that_comes_or_goes_is_there_or_not() {
    let comes = record(|w| insert(w, b"x", OLD), |w| insert(w, b"key", NEW));
    let chained =
        record(|w| [b"x", b"y", b"z"].iter().for_each(|k| insert(w, *k, OLD)), |w| insert(w, b"key", NEW));
    let goes =
        record(|w| insert(w, b"key", NEW), |w| w.remove_hashed(Time::ZERO, HASH, b"key").expect("there"));
    for scene in [comes, chained, goes] {
        for first in 0..=scene.stores.len() {
            for words in 0..32 {
                let mut turn = 0;
                let result = race(&scene, b"key", || {
                    turn += 1;
                    if turn == 1 {
                        first
                    } else if turn == words + 2 {
                        usize::MAX
                    } else {
                        0
                    }
                });
                assert!(
                    matches!(&result, Ok(value) if value == NEW)
                        || matches!(result, Err(Status::NotFound | Status::Busy | Status::Inconsistent)),
                    "{result:?}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn any_schedule(schedule in proptest::collection::vec(0..4_usize, 1..200)) {
        for (name, scene) in scenes() {
            let mut turns = schedule.iter().copied().cycle();
            assert_sound(name, &race(&scene, b"key", || turns.next().unwrap_or(0)));
        }
    }
}
