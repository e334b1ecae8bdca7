use super::*;
use bareverbs_prm::numbering::MkeyAccessMode;
use std::collections::BTreeMap;

const PD: Pdn = Pdn::from_low_bits(7);
const WHO: Accessor =
    Accessor { pd: PD, qpn: Qpn::from_low_bits(0x40), privileged: false, reserved_lkey: false };

/// Pages of 4 KiB that record the bytes written to them.
#[derive(Default)]
struct Pages(BTreeMap<u64, u8>);

impl HostMemory for Pages {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        for (i, byte) in buffer.iter_mut().enumerate() {
            *byte = self.0.get(&(iova + i as u64)).copied().unwrap_or(0);
        }
        Ok(())
    }
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        for (i, byte) in bytes.iter().enumerate() {
            self.0.insert(iova + i as u64, *byte);
        }
        Ok(())
    }
}

fn context(start: u64, length: u64) -> MkeyContext {
    let mut context = MkeyContext::new();
    context.set_pd(PD).set_qpn(Qpn::from_low_bits(ANY_QP)).set_start_addr(start).set_length(length);
    context
        .set_mkey_7_0(0x55)
        .set_access_mode_1_0(MkeyAccessMode::Mtt.raw())
        .set_lr(true)
        .set_lw(true)
        .set_rw(true)
        .set_log_page_size(12);
    context
}

fn table(context: MkeyContext, pages: &[u64]) -> (MkeyTable, Mkey) {
    let mut table = MkeyTable::new();
    let index = table.create(context, pages.to_vec(), 100).unwrap();
    (table, Mkey::new(index << 8 | 0x55))
}

#[test]
fn scattered_pages_are_translated() {
    let (table, key) = table(context(0x10_0ff0, 0x1020), &[0x8000, 0x3000, 0x5000]);
    let range = table.check(&WHO, key, Access::RemoteWrite, 0x10_0ff0, 0x1020).unwrap();
    let mut memory = Pages::default();
    let bytes: Vec<u8> = (0..0x1020u32).map(|i| i as u8).collect();
    table.write(&mut memory, &range, 0, &bytes).unwrap();
    assert_eq!(memory.0.get(&0x8ff0), Some(&0));
    assert_eq!(memory.0.get(&0x3000), Some(&0x10));
    assert_eq!(memory.0.get(&0x500f), Some(&0x1f));
    assert_eq!(memory.0.len(), 0x1020);
    let mut back = [0; 0x30];
    table.read(&mut memory, &range, 0xff0, &mut back).unwrap();
    assert_eq!(back[..], bytes[0xff0..]);
}

#[test]
fn every_rule_refuses() {
    let (mut table, key) = table(context(0x1000, 0x100), &[0x8000]);
    let check = |table: &MkeyTable, who, key, access, address, length| {
        table.check(&who, key, access, address, length)
    };
    let stale = Mkey::new(key.value() ^ 1);
    let other_pd = Accessor { pd: Pdn::from_low_bits(8), ..WHO };
    assert_eq!(check(&table, WHO, stale, Access::LocalRead, 0x1000, 1), Err(KeyFault::Unknown));
    assert_eq!(check(&table, other_pd, key, Access::LocalRead, 0x1000, 1), Err(KeyFault::Domain));
    assert_eq!(check(&table, WHO, key, Access::RemoteRead, 0x1000, 1), Err(KeyFault::Right));
    assert_eq!(check(&table, WHO, key, Access::RemoteAtomic, 0x1000, 8), Err(KeyFault::Right));
    assert_eq!(check(&table, WHO, key, Access::LocalRead, 0xfff, 1), Err(KeyFault::Range));
    assert_eq!(check(&table, WHO, key, Access::LocalRead, 0x1000, 0x101), Err(KeyFault::Range));
    assert_eq!(check(&table, WHO, key, Access::LocalRead, 0x1001, u64::MAX), Err(KeyFault::Range));
    assert!(check(&table, WHO, key, Access::LocalRead, 0xdead_beef, 0).is_ok(), "length 0 checks no range");
    assert_eq!(table.invalidate(WHO, key), Err(KeyFault::Right));
    table.destroy(key.index().value());
    assert_eq!(check(&table, WHO, key, Access::LocalRead, 0x1000, 1), Err(KeyFault::Unknown));
}

#[test]
fn a_key_of_one_queue_pair_serves_no_other() {
    let mut only = context(0, 0x100);
    only.set_qpn(Qpn::from_low_bits(0x41));
    let (table, key) = table(only, &[0x8000]);
    assert_eq!(table.check(&WHO, key, Access::LocalRead, 0, 1), Err(KeyFault::QueuePair));
    let owner = Accessor { qpn: Qpn::from_low_bits(0x41), ..WHO };
    assert!(table.check(&owner, key, Access::LocalRead, 0, 1).is_ok());
}

#[test]
fn the_reserved_key_is_of_queues_that_are_made_for_it() {
    assert_eq!(
        RESERVED_LKEY.value(),
        0x300,
        "no created key has its index, and it is not the list terminator (0x100)"
    );
    let (table, _) = table(context(0x1000, 0x100), &[0x8000]);
    let reserved = Accessor { reserved_lkey: true, ..WHO };
    let check = |who, access, address| table.check(&who, RESERVED_LKEY, access, address, 0x10);
    assert_eq!(check(WHO, Access::LocalRead, 0x7000), Err(KeyFault::Unknown));
    assert_eq!(check(reserved, Access::RemoteRead, 0x7000), Err(KeyFault::Unknown));
    assert_eq!(check(reserved, Access::LocalRead, u64::MAX), Err(KeyFault::Unknown));
    let range = check(reserved, Access::LocalWrite, 0x7000).unwrap();
    let mut memory = Pages::default();
    table.write(&mut memory, &range, 0, &[3; 16]).unwrap();
    assert!(table.write(&mut memory, &range, 1, &[3; 16]).is_err(), "beyond the range");
    assert_eq!((memory.0.get(&0x7000), memory.0.get(&0x700f), memory.0.len()), (Some(&3), Some(&3), 16));
}

#[test]
fn a_range_dies_with_its_key() {
    let mut invalidable = context(0, 0x100);
    invalidable.set_en_rinval(true);
    let (mut table, key) = table(invalidable, &[0x8000]);
    let range = table.check(&WHO, key, Access::LocalWrite, 0, 0x10).unwrap();
    let mut memory = Pages::default();
    assert!(table.write(&mut memory, &range, 0, &[1; 16]).is_ok());
    assert!(table.write(&mut memory, &range, 1, &[1; 16]).is_err(), "beyond the range");
    assert!(table.write(&mut memory, &range, u64::MAX, &[1; 16]).is_err());
    table.invalidate(WHO, key).unwrap();
    assert_eq!(table.check(&WHO, key, Access::LocalWrite, 0, 1), Err(KeyFault::Free));
    assert!(table.write(&mut memory, &range, 0, &[2; 16]).is_err());
    assert_eq!(memory.0.get(&0x8000), Some(&1));
}

/// A range was checked against one key. A new key with the same number must not give access through that
/// range.
#[test]
fn a_range_is_of_one_key_and_not_of_its_number() {
    // A table with so few numbers that they are reused soon.
    let mut table = MkeyTable {
        keys: Slab::new(FIRST_MKEY, 5),
        generation: 0,
        reserved: 0,
        budget: WorkBudget::default(),
    };
    let index = table.create(context(0, 0x100), vec![0x8000], 100).unwrap();
    let range = table.check(&WHO, Mkey::new(index << 8 | 0x55), Access::LocalWrite, 0, 0x10).unwrap();
    table.destroy(index);
    let mut successor = context(0, 0x100);
    successor.set_pd(Pdn::from_low_bits(8));
    while table.create(successor, vec![0x9000], 100).unwrap() != index {}
    let mut memory = Pages::default();
    assert!(table.write(&mut memory, &range, 0, &[1; 16]).is_err());
    assert!(table.read(&mut memory, &range, 0, &mut [0; 16]).is_err());
    assert!(memory.0.is_empty());
}

/// Requirement: IBTA v1.4 §10.6.7.2.4: a key that consists of other keys reaches only what those keys allow its own queue
/// pairs.
#[test]
fn a_key_of_one_queue_pair_serves_no_key_of_others() {
    let (only, other) = (Qpn::from_low_bits(0x40), Qpn::from_low_bits(0x41));
    for (inner_qp, outer_qp, expected) in [
        (only, only, Ok(())),
        (Qpn::from_low_bits(ANY_QP), only, Ok(())),
        (other, only, Err(KeyFault::QueuePair)),
        (only, Qpn::from_low_bits(ANY_QP), Err(KeyFault::QueuePair)),
    ] {
        let mut inner = context(0x1000, 0x100);
        inner.set_qpn(inner_qp);
        let (mut table, inner) = table(inner, &[0x8000]);
        let mut outer = context(0, 0x100);
        outer.set_qpn(outer_qp).set_access_mode_1_0(MkeyAccessMode::Klms.raw());
        let entry = [0x100 << 32 | u64::from(inner.value()), 0x1000];
        let index = table.create(outer, entry.to_vec(), 100).unwrap();
        let result = table.check(&WHO, Mkey::new(index << 8 | 0x55), Access::LocalRead, 0, 0x10).map(|_| ());
        assert_eq!(result, expected, "inner {inner_qp}, outer {outer_qp}");
    }
}

/// All keys share 2^23 octwords of entries, and a key takes whole units of four octwords.
#[test]
fn keys_have_room_until_their_entries_fill_the_budget() {
    let of = |octwords: u32| {
        let mut context = context(0, 0x100);
        context.set_translations_octword_size(octwords);
        context
    };
    let (mut table, key) = table(of(2), &[0x8000]);
    assert!(table.has_room_for(&of((1 << 23) - 4)));
    assert!(!table.has_room_for(&of((1 << 23) - 3)));
    table.destroy(key.index().value());
    assert!(table.has_room_for(&of(1 << 23)));
}

/// SEND with Invalidate frees a key of the queue pair's domain, and a bound window only of that queue pair (IBTA v1.4
/// §9.4.1.1.3).
#[test]
fn a_key_is_invalidated_once_and_only_with_the_right() {
    let attempt = |edit: fn(&mut MkeyContext), who| {
        let mut invalidable = context(0, 0x100);
        invalidable.set_en_rinval(true);
        edit(&mut invalidable);
        let (mut table, key) = table(invalidable, &[0x8000]);
        let first = table.invalidate(who, key);
        let is_free = table.get(key.index().value()).unwrap().context.free();
        assert_eq!(is_free, first.is_ok() || first == Err(KeyFault::Free));
        (first, table.invalidate(who, key))
    };
    let twice = |result| (Err(result), Err(result));
    assert_eq!(attempt(|_| (), WHO), (Ok(()), Err(KeyFault::Free)));
    let of_who = |context: &mut MkeyContext| {
        context.set_qpn(WHO.qpn);
    };
    assert_eq!(attempt(of_who, WHO), (Ok(()), Err(KeyFault::Free)));
    let of_another = |context: &mut MkeyContext| {
        context.set_qpn(Qpn::from_low_bits(0x41));
    };
    assert_eq!(attempt(of_another, WHO), twice(KeyFault::QueuePair));
    let stranger = Accessor { pd: Pdn::from_low_bits(8), ..WHO };
    assert_eq!(attempt(|_| (), stranger), twice(KeyFault::Domain));
    let free = |context: &mut MkeyContext| {
        context.set_free(true);
    };
    assert_eq!(attempt(free, WHO), twice(KeyFault::Free));
    let fixed = |context: &mut MkeyContext| {
        context.set_en_rinval(false);
    };
    assert_eq!(attempt(fixed, WHO), twice(KeyFault::Right));
    let (mut table, key) = table(context(0, 0x100), &[0x8000]);
    assert_eq!(table.invalidate(WHO, Mkey::new(key.value() ^ 1)), Err(KeyFault::Unknown));
}

#[test]
fn a_table_lists_its_keys_until_it_is_cleared() {
    let (mut table, first) = table(context(0x1000, 0x100), &[0x8000]);
    let second = table.create(context(0x2000, 0x100), vec![0x9000], 2).unwrap();
    assert_eq!(table.create(context(0x3000, 0x100), vec![0xa000], 2), None, "over the limit");
    let starts: Vec<_> = table.iter().map(|(index, key)| (index, key.context.start_addr())).collect();
    assert_eq!(starts, [(first.index().value(), 0x1000), (second, 0x2000)]);
    assert_eq!(table.get(second).map(|key| key.pd), Some(PD));
    assert_eq!((table.len(), table.get(second + 1).is_some()), (2, false));
    table.clear();
    assert_eq!((table.len(), table.iter().count(), table.get(second).is_some()), (0, 0, false));
    let mut all = context(0, 0x100);
    all.set_translations_octword_size(1 << 23);
    assert!(table.has_room_for(&all), "a cleared table has its whole budget");
}
