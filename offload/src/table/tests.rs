//! The table against a map from the standard library, and its limits.

use super::*;
use crate::budget::{Budget, Limits, Next};
use crate::grant::Grant;
use crate::kernel::Kernel;
use crate::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use crate::status::Status;
use bareverbs_prm::time::Time;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

pub(super) fn config(buckets: u32, overflow_lines: u32) -> TableConfig {
    let policy = TablePolicy { max_buckets: 0, lease: Duration::from_micros(10) };
    TableConfig { buckets, overflow_lines, seed: [7; 16], policy }
}

/// Looks a key up in memory that does not change, as a kernel would.
pub(crate) fn lookup(memory: &[u8], parameters: &Parameters<'_>) -> Result<Vec<u8>, Status> {
    let grant = Grant::new(0, memory.len() as u64)?;
    let mut buffer = [0; MAX_PARAMETERS];
    let parameters = parameters.encode(&mut buffer).ok_or(Status::BadParameters)?;
    let mut budget = Budget::new(Limits::default(), Time::ZERO);
    let (mut kernel, mut step) = KvLookup::start(parameters, &grant)?;
    let mut bytes: &[u8] = &[];
    loop {
        match budget.charge(step, Time::ZERO) {
            Next::Read(range) => {
                bytes = &memory[range.offset() as usize..][..range.length() as usize];
                step = kernel.dma_done(bytes, &grant);
            }
            Next::Emit(emission) => {
                return Ok(bytes[emission.offset as usize..][..emission.length as usize].to_vec());
            }
            Next::End(status) => return Err(status),
            _ => return Err(Status::BadParameters),
        }
    }
}

fn get<M: TableMemory>(writer: &mut TableWriter<M>, key: &[u8]) -> Result<Vec<u8>, Status> {
    let length = writer.descriptor().length as usize;
    let mut memory = vec![0; length];
    writer.memory().read(0, &mut memory).expect("inside");
    lookup(&memory, &writer.descriptor().lookup(key))
}

#[test]
fn descriptor_survives_and_is_checked() {
    let mut memory = vec![0; 4096];
    let writer = TableWriter::create(memory.as_mut_slice(), &config(3, 2)).expect("fits");
    let descriptor = *writer.descriptor();
    let mut bytes = [0; DESCRIPTOR_SIZE];
    bytes.copy_from_slice(&memory[..DESCRIPTOR_SIZE]);
    assert_eq!(TableDescriptor::parse(&bytes), Some(descriptor));
    bytes[9] ^= 1;
    assert_eq!(TableDescriptor::parse(&bytes), None);
}

#[test]
fn lengths_at_their_limits() {
    let mut memory = vec![0; 300_000];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config(2, 2)).expect("fits");
    let value = vec![0xab; crate::kernels::kv_layout::MAX_VALUE];
    writer.insert(Time::ZERO, &[1; 64], &value).expect("the largest of all");
    writer.insert(Time::ZERO, &[2], &[]).expect("the smallest of all");
    assert_eq!(get(&mut writer, &[1; 64]), Ok(value.clone()));
    assert_eq!(get(&mut writer, &[2]), Ok(vec![]));
    assert_eq!(writer.insert(Time::ZERO, &[], &[]), Err(TableError::KeyLength { length: 0 }));
    assert_eq!(writer.insert(Time::ZERO, &[0; 65], &[]), Err(TableError::KeyLength { length: 65 }));
    let long = vec![0; value.len() + 1];
    assert_eq!(writer.insert(Time::ZERO, &[3], &long), Err(TableError::ValueLength { length: 65_537 }));
    assert_eq!(writer.insert(Time::ZERO, &[2], &[]), Err(TableError::KeyExists));
    assert_eq!(writer.update(Time::ZERO, &[4], &[]), Err(TableError::NoSuchKey));
    assert_eq!(writer.delete(Time::ZERO, &[4]), Err(TableError::NoSuchKey));
}

#[test]
fn keys_with_equal_hashes_are_distinguished() {
    let mut memory = vec![0; 64 * 1024];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config(4, 8)).expect("fits");
    for n in 0..10_u8 {
        writer.insert_hashed(Time::ZERO, 0xdead_beef, &[n + 1], &[n, n]).expect("chains");
    }
    let descriptor = *writer.descriptor();
    let memory = writer.into_memory();
    for n in 0..10_u8 {
        let parameters = Parameters { hash: 0xdead_beef, ..descriptor.lookup(&[0]) };
        assert_eq!(lookup(memory, &Parameters { key: &[n + 1], ..parameters }), Ok(vec![n, n]));
        assert_eq!(lookup(memory, &Parameters { key: &[n + 100], ..parameters }), Err(Status::NotFound));
    }
}

#[test]
fn a_full_table_says_what_is_full() {
    let mut memory = vec![0; 128 + 2 * 64 + 200];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config(1, 1)).expect("fits");
    for key in [b"a", b"b", b"c", b"d"] {
        writer.insert(Time::ZERO, key, b"").expect("48 bytes each");
    }
    assert!(matches!(writer.insert(Time::ZERO, b"e", b""), Err(TableError::HeapFull { free: 8, .. })));
    let mut memory = vec![0; 4096];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config(1, 0)).expect("fits");
    for key in [b"a", b"b", b"c"] {
        writer.insert(Time::ZERO, key, b"").expect("a line");
    }
    assert_eq!(writer.insert(Time::ZERO, b"d", b""), Err(TableError::LinesFull { limit: 0 }));
    assert!(matches!(
        TableWriter::create([0_u8; 64].as_mut_slice(), &config(1, 0)),
        Err(TableError::BadSize { .. })
    ));
}

#[test]
fn a_replaced_object_is_left_alone_while_the_lease_lasts() {
    let mut memory = vec![0; 4096];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config(1, 0)).expect("fits");
    let whole = writer.usage().heap_free;
    writer.insert(Time::ZERO, b"k", b"one").expect("room");
    writer.update(Time::ZERO, b"k", b"two").expect("room");
    assert_eq!((writer.usage().retired, writer.usage().heap_free), (48, whole - 96));
    writer.reclaim(Time::ZERO + Duration::from_micros(9)).expect("nothing to do");
    assert_eq!(writer.usage().retired, 48);
    writer.reclaim(Time::ZERO + Duration::from_micros(10)).expect("freed");
    assert_eq!((writer.usage().retired, writer.usage().heap_free), (0, whole - 48));
}

#[test]
fn too_many_changes_within_a_lease_are_refused_before_anything_is_written() {
    let mut memory = vec![0; 1 << 16];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config(1, 0)).expect("fits");
    writer.insert(Time::ZERO, b"k", b"").expect("room");
    for n in 0..256_u32 {
        writer.update(Time::ZERO, b"k", &n.to_be_bytes()).expect("room");
    }
    let before = writer.usage();
    assert_eq!(
        writer.update(Time::ZERO, b"k", b""),
        Err(TableError::ReadersPending { limit: 256, behind: None })
    );
    assert_eq!(writer.usage(), before);
    writer.update(Time::ZERO + Duration::from_micros(10), b"k", b"last").expect("the lease is over");
    assert_eq!(get(&mut writer, b"k"), Ok(b"last".to_vec()));
}

#[test]
fn kernels_are_waited_for_and_none_that_began_later() {
    let mut memory = vec![0; 1 << 16];
    let without_lease = TableConfig { policy: TablePolicy::default(), ..config(1, 0) };
    let mut writer = TableWriter::create(memory.as_mut_slice(), &without_lease).expect("fits");
    let reader = writer.attach().expect("room");
    let progress = |begun, oldest| crate::runtime::ReaderProgress { begun, oldest };
    writer.insert(Time::ZERO, b"k", b"one").expect("room");
    writer.update(Time::ZERO, b"k", b"two").expect("room");
    for (announced, retired) in [(progress(3, 1), 48), (progress(9, 2), 48), (progress(9, 3), 0)] {
        writer.announce(reader, announced);
        writer.reclaim(Time::ZERO).expect("the memory is there");
        assert_eq!(writer.usage().retired, retired, "{announced:?}");
    }
    for n in 0..256_u32 {
        writer.update(Time::ZERO, b"k", &n.to_be_bytes()).expect("room");
    }
    let pending = Err(TableError::ReadersPending { limit: 256, behind: Some(reader) });
    assert_eq!(writer.update(Time::ZERO, b"k", b""), pending);
    writer.detach(reader);
    writer.update(Time::ZERO, b"k", b"last").expect("nobody is waited for");
    assert_eq!(get(&mut writer, b"k"), Ok(b"last".to_vec()));
}

#[test]
fn a_swap_needs_the_current_version() {
    let mut memory = vec![0; 4096];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config(1, 0)).expect("fits");
    let swap = |writer: &mut TableWriter<_>, expected, value: &[u8]| {
        writer.compare_and_swap(Time::ZERO, b"k", expected, value)
    };
    assert_eq!(swap(&mut writer, Some(1), b"a"), Err(TableError::VersionMismatch { found: None }));
    let first = swap(&mut writer, None, b"one").expect("it is not there");
    assert_eq!(swap(&mut writer, None, b"a"), Err(TableError::VersionMismatch { found: Some(first) }));
    let second = swap(&mut writer, Some(first), b"two").expect("that is the version");
    assert_eq!(
        swap(&mut writer, Some(first), b"a"),
        Err(TableError::VersionMismatch { found: Some(second) })
    );
    let mut value = [0; 3];
    assert_eq!(writer.get(b"k", &mut value), Ok(Some(Stored { length: 3, version: second })));
    assert_eq!(&value, b"two");
    assert_eq!(writer.get(b"l", &mut value), Ok(None));
    assert_eq!(writer.get(b"k", &mut [0; 2]), Err(TableError::BufferTooSmall { needed: 3 }));
    assert_eq!(writer.upsert(Time::ZERO, b"l", b"").map(drop), Ok(()));
    assert_eq!(writer.upsert(Time::ZERO, b"l", b"x").map(drop), Ok(()));
    assert_eq!((get(&mut writer, b"l"), writer.usage().entries), (Ok(b"x".to_vec()), 2));
}

#[test]
fn loading_stops_at_the_first_row_without_room() {
    let mut memory = vec![0; 128 + 64 + 160];
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config(1, 0)).expect("fits");
    let rows: [(&[u8], &[u8]); 4] = [(b"a", b"1"), (b"b", b"2"), (b"c", &[0; 99]), (b"d", b"4")];
    let error = writer.load(Time::ZERO, rows).expect_err("the third is too large");
    assert!(error.loaded == 2 && matches!(error.cause, TableError::HeapFull { .. }), "{error}");
    assert_eq!((get(&mut writer, b"b"), get(&mut writer, b"d")), (Ok(b"2".to_vec()), Err(Status::NotFound)));
}

#[derive(Debug, Clone)]
enum Change {
    Put(u8, Vec<u8>),
    Delete(u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let put = (0..40_u8, proptest::collection::vec(any::<u8>(), 0..200)).prop_map(|(k, v)| Change::Put(k, v));
    let delete = (0..40_u8).prop_map(Change::Delete);
    proptest::collection::vec(prop_oneof![3 => put, 1 => delete], 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn behaves_like_a_map(changes in changes(), buckets in 1..12_u32) {
        let mut memory = vec![0xff; 1 << 17];
        let mut writer = TableWriter::create(memory.as_mut_slice(), &config(buckets, 16)).expect("fits");
        let mut model = BTreeMap::new();
        let mut now = Time::ZERO;
        for change in changes {
            now += Duration::from_micros(1);
            match change {
                Change::Put(k, v) => {
                    let key = [k, k, k];
                    if model.insert(k, v.clone()).is_some() {
                        prop_assert_eq!(writer.update(now, &key, &v).map(drop), Ok(()));
                    } else {
                        prop_assert_eq!(writer.insert(now, &key, &v).map(drop), Ok(()));
                    }
                }
                Change::Delete(k) => {
                    let expected = model.remove(&k).map(|_| ()).ok_or(TableError::NoSuchKey);
                    prop_assert_eq!(writer.delete(now, &[k, k, k]), expected);
                }
            }
        }
        prop_assert_eq!(writer.usage().entries, model.len() as u64);
        for k in 0..40_u8 {
            prop_assert_eq!(get(&mut writer, &[k, k, k]), model.get(&k).cloned().ok_or(Status::NotFound));
        }
    }
}
