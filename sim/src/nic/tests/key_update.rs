//! Updates of memory keys, rule by rule: which fields an update may change, who may ask for it, and what
//! becomes of the translation entries. `umr` has the same from the wire.

use super::super::Access;
use super::*;
use crate::nic::{DmaFault, HostMemory};
use bareverbs_prm::ids::{Pdn, Qpn};

const PD: Pdn = Pdn::from_low_bits(7);
const QP: Qpn = Qpn::from_low_bits(0x40);
const OTHER_QP: Qpn = Qpn::from_low_bits(0x41);
const ANY: Qpn = Qpn::from_low_bits(ANY_QP);
const WHO: Accessor = Accessor { pd: PD, qpn: QP, privileged: false, reserved_lkey: false };
const RULES: UpdateRules =
    UpdateRules { who: WHO, fixed_page_size: false, fixed_atomic: false, fixed_indirect: false };
/// The queue pair of the driver itself, in a domain of its own.
const DRIVER: UpdateRules = UpdateRules {
    who: Accessor { pd: Pdn::from_low_bits(1), qpn: OTHER_QP, privileged: true, reserved_lkey: false },
    ..RULES
};
const START: u64 = 0x1000;
/// Octwords that a key of these tests has room for.
const ROOM: u64 = 8;

/// Notes where each access begins.
#[derive(Default)]
struct Touched(Vec<u64>);

impl HostMemory for Touched {
    fn read(&mut self, iova: u64, _: &mut [u8]) -> Result<(), DmaFault> {
        self.0.push(iova);
        Ok(())
    }
    fn write(&mut self, iova: u64, _: &[u8]) -> Result<(), DmaFault> {
        self.0.push(iova);
        Ok(())
    }
}

/// A key of two pages that any queue pair of [`PD`] may use in every way.
fn context(mode: MkeyAccessMode) -> MkeyContext {
    let mut context = MkeyContext::new();
    context.set_access_mode_1_0(mode.raw()).set_umr_en(true).set_pd(PD).set_qpn(ANY).set_mkey_7_0(0x21);
    context.set_lr(true).set_lw(true).set_rr(true).set_rw(true).set_a(true).set_log_page_size(12);
    context.set_start_addr(START).set_length(0x2000).set_translations_octword_size(ROOM as u32);
    context
}

/// A table and the key under test.
struct Keys {
    table: MkeyTable,
    name: Mkey,
}

impl Keys {
    fn new(context: MkeyContext, entries: &[u64]) -> Self {
        let mut keys = Self { table: MkeyTable::new(), name: Mkey::new(0) };
        keys.name = keys.add(context, entries);
        keys
    }

    fn add(&mut self, context: MkeyContext, entries: &[u64]) -> Mkey {
        let index = self.table.create(context, entries.to_vec(), 100).unwrap();
        Mkey::new(index << 8 | u32::from(context.mkey_7_0()))
    }

    fn context(&self) -> MkeyContext {
        self.table.get(self.name.index().value()).unwrap().context
    }

    fn update(&mut self, requested: &RequestedUpdate) -> Result<(), KeyFault> {
        let RequestedUpdate { mask, flags, context, offset, ref entries, ref rules } = *requested;
        let octowords = entries.len().div_ceil(2) as u16;
        let update = KeyUpdate { key: self.name, flags, mask, context, offset, octowords };
        self.table.update(&update, entries, rules)
    }

    /// Where in host memory a byte of the key is.
    fn host_of(&self, address: u64) -> Option<u64> {
        let range = self.table.check(&WHO, self.name, Access::LocalRead, address, 1).ok()?;
        let mut memory = Touched::default();
        self.table.read(&mut memory, &range, 0, &mut [0]).ok()?;
        Some(memory.0[0])
    }
}

/// An update of a key of [`context`].
#[derive(Clone)]
struct RequestedUpdate {
    mask: u64,
    flags: u8,
    context: MkeyContext,
    offset: u64,
    entries: Vec<u64>,
    rules: UpdateRules,
}

fn requested(mask: u64) -> RequestedUpdate {
    RequestedUpdate {
        mask,
        flags: 0,
        context: context(MkeyAccessMode::Mtt),
        offset: 0,
        entries: Vec::new(),
        rules: RULES,
    }
}

/// An update of translation entries; with an offset it leaves the entries before it.
fn entries(offset: Option<u64>, entries: &[u64]) -> RequestedUpdate {
    let flags = if offset.is_some() { flag::TRANSLATION_OFFSET } else { 0 };
    RequestedUpdate { flags, offset: offset.unwrap_or(0), entries: entries.to_vec(), ..requested(0) }
}

/// Takes one field of a context from another one.
type Take = fn(&mut MkeyContext, &MkeyContext);

/// The bits of `mkey_mask` that an update may set, each with its field.
const FIELDS: [(u64, Take); 16] = [
    (mask::LENGTH, |to, from| {
        to.set_length(from.length()).set_length64(from.length64());
    }),
    (mask::PAGE_SIZE, |to, from| {
        to.set_log_page_size(from.log_page_size());
    }),
    (mask::START_ADDRESS, |to, from| {
        to.set_start_addr(from.start_addr());
    }),
    (mask::PD, |to, from| {
        to.set_pd(from.pd());
    }),
    (mask::REMOTE_INVALIDATE, |to, from| {
        to.set_en_rinval(from.en_rinval());
    }),
    (mask::KEY, |to, from| {
        to.set_mkey_7_0(from.mkey_7_0());
    }),
    (mask::QPN, |to, from| {
        to.set_qpn(from.qpn());
    }),
    (mask::LOCAL_READ, |to, from| {
        to.set_lr(from.lr());
    }),
    (mask::LOCAL_WRITE, |to, from| {
        to.set_lw(from.lw());
    }),
    (mask::REMOTE_READ, |to, from| {
        to.set_rr(from.rr());
    }),
    (mask::REMOTE_WRITE, |to, from| {
        to.set_rw(from.rw());
    }),
    (mask::ATOMIC, |to, from| {
        to.set_a(from.a());
    }),
    (mask::SMALL_FENCE, |to, from| {
        to.set_small_fence_on_rdma_read_response(from.small_fence_on_rdma_read_response());
    }),
    (mask::RELAXED_ORDERING_WRITE, |to, from| {
        to.set_relaxed_ordering_write(from.relaxed_ordering_write());
    }),
    (mask::FREE, |to, from| {
        to.set_free(from.free());
    }),
    (mask::RELAXED_ORDERING_READ, |to, from| {
        to.set_relaxed_ordering_read(from.relaxed_ordering_read());
    }),
];

/// A context that differs from that of [`context`] in every field.
fn another() -> MkeyContext {
    let mut context = MkeyContext::new();
    context.set_access_mode_1_0(MkeyAccessMode::Klms.raw()).set_pd(Pdn::from_low_bits(9)).set_qpn(QP);
    context.set_mkey_7_0(0x43).set_free(true).set_en_rinval(true).set_relaxed_ordering_write(true);
    context.set_relaxed_ordering_read(true).set_small_fence_on_rdma_read_response(true);
    context.set_start_addr(0x5000).set_length(0x1800).set_length64(true).set_log_page_size(13);
    context.set_translations_octword_size(99).set_bsf_en(true);
    context
}

/// One bit of the mask stands for one field. All other fields stay, and so do those without a bit.
#[test]
fn an_update_changes_the_fields_of_its_mask_and_no_others() {
    for bit in (0..64).map(|bit| 1u64 << bit) {
        let mut keys = Keys::new(context(MkeyAccessMode::Mtt), &[0x8000, 0x3000]);
        let update = RequestedUpdate { context: another(), rules: DRIVER, ..requested(bit) };
        let mut expected = keys.context();
        match FIELDS.iter().find(|(field, _)| *field == bit) {
            Some((_, take)) => {
                assert_eq!(keys.update(&update), Ok(()), "{bit:#x}");
                take(&mut expected, &another());
                assert!(expected != context(MkeyAccessMode::Mtt), "{bit:#x} changes something");
            }
            None => assert_eq!(keys.update(&update), Err(KeyFault::Change), "{bit:#x}"),
        }
        assert!(keys.context() == expected, "{bit:#x}");
    }
}

#[test]
fn a_key_that_does_not_allow_updates_stays_as_it_is() {
    let mut fixed = context(MkeyAccessMode::Mtt);
    fixed.set_umr_en(false);
    let mut keys = Keys::new(fixed, &[0x8000, 0x3000]);
    let update = RequestedUpdate { context: another(), ..requested(mask::LENGTH) };
    assert_eq!(keys.update(&update), Err(KeyFault::Change));
    assert!(keys.context() == fixed);
}

/// What a flag with no meaning here would ask for (BSF entries, for one) cannot be left out.
#[test]
fn an_update_with_unknown_flags_is_refused() {
    for flags in (0..8).map(|bit| 1u8 << bit) {
        let known = [1 << 7, 1 << 6, 1 << 5, 1 << 4, 1 << 3].contains(&flags);
        let mut key = context(MkeyAccessMode::Mtt);
        // So that no flag fails for what it checks.
        key.set_qpn(QP).set_free(flags == flag::FAIL_IF_NOT_FREE);
        let result =
            Keys::new(key, &[0x8000, 0x3000]).update(&RequestedUpdate { flags, ..requested(mask::LENGTH) });
        assert_eq!(result, if known { Ok(()) } else { Err(KeyFault::Change) }, "{flags:#x}");
    }
}

#[test]
fn an_update_fails_in_the_state_that_its_flags_name() {
    for (free, flags, expected) in [
        (false, 0, Ok(())),
        (true, 0, Ok(())),
        (false, flag::FAIL_IF_FREE, Ok(())),
        (true, flag::FAIL_IF_FREE, Err(KeyFault::Free)),
        (false, flag::FAIL_IF_NOT_FREE, Err(KeyFault::Free)),
        (true, flag::FAIL_IF_NOT_FREE, Ok(())),
    ] {
        let mut key = context(MkeyAccessMode::Mtt);
        key.set_free(free);
        let result =
            Keys::new(key, &[0x8000, 0x3000]).update(&RequestedUpdate { flags, ..requested(mask::LENGTH) });
        assert_eq!(result, expected, "free {free}, flags {flags:#x}");
    }
}

#[test]
fn an_update_checks_the_queue_pair_of_the_key_if_asked() {
    for (qpn, flags, expected) in [
        (QP, flag::CHECK_QPN, Ok(())),
        (OTHER_QP, flag::CHECK_QPN, Err(KeyFault::QueuePair)),
        (ANY, flag::CHECK_QPN, Err(KeyFault::QueuePair)),
        (OTHER_QP, 0, Ok(())),
    ] {
        let mut key = context(MkeyAccessMode::Mtt);
        key.set_qpn(qpn);
        let result =
            Keys::new(key, &[0x8000, 0x3000]).update(&RequestedUpdate { flags, ..requested(mask::LENGTH) });
        assert_eq!(result, expected, "{qpn}, flags {flags:#x}");
    }
}

/// An application may update the keys of its domain, and give them to its queue pair or to all of the domain.
/// The driver may do everything.
#[test]
fn an_application_keeps_its_domain_and_gives_keys_to_nobody_else() {
    let to = |qpn| {
        let mut context = context(MkeyAccessMode::Mtt);
        context.set_qpn(qpn).set_pd(Pdn::from_low_bits(8));
        context
    };
    let stranger = UpdateRules { who: Accessor { pd: Pdn::from_low_bits(8), ..WHO }, ..RULES };
    for (mask, qpn, rules, expected) in [
        (mask::QPN, QP, RULES, Ok(())),
        (mask::QPN, ANY, RULES, Ok(())),
        (mask::QPN, OTHER_QP, RULES, Err(KeyFault::QueuePair)),
        // The queue pair in the context counts only with its bit.
        (mask::FREE, OTHER_QP, RULES, Ok(())),
        (mask::FREE, QP, stranger, Err(KeyFault::Domain)),
        (mask::PD, QP, RULES, Err(KeyFault::Domain)),
        (mask::PD, QP, stranger, Err(KeyFault::Domain)),
        (mask::PD, QP, DRIVER, Ok(())),
        (mask::QPN, QP, DRIVER, Ok(())),
    ] {
        let mut keys = Keys::new(context(MkeyAccessMode::Mtt), &[0x8000, 0x3000]);
        let result = keys.update(&RequestedUpdate { context: to(qpn), rules, ..requested(mask) });
        assert_eq!(result, expected, "{mask:#x}, {qpn}, {:?}", rules.who);
    }
}

/// `umr_modify_entity_size_disabled`, `umr_modify_atomic_disabled` and `umr_indirect_mkey_disabled`.
#[test]
fn a_device_refuses_the_updates_that_it_does_not_offer() {
    let page_size = UpdateRules { fixed_page_size: true, ..RULES };
    let atomic = UpdateRules { fixed_atomic: true, ..RULES };
    let indirect = UpdateRules { fixed_indirect: true, ..RULES };
    let (pages, ranges) = (MkeyAccessMode::Mtt, MkeyAccessMode::Klms);
    for (mode, mask, rules, refused) in [
        (pages, mask::PAGE_SIZE, page_size, true),
        (pages, mask::ATOMIC, page_size, false),
        (pages, mask::ATOMIC, atomic, true),
        (pages, mask::PAGE_SIZE, atomic, false),
        (pages, mask::PAGE_SIZE | mask::ATOMIC, indirect, false),
        (pages, mask::PAGE_SIZE | mask::ATOMIC, RULES, false),
        (ranges, mask::FREE, indirect, true),
        (ranges, mask::FREE, RULES, false),
    ] {
        let result = Keys::new(context(mode), &[]).update(&RequestedUpdate { rules, ..requested(mask) });
        assert_eq!(
            result,
            if refused { Err(KeyFault::Change) } else { Ok(()) },
            "{mode:?}, {mask:#x}, {rules:?}"
        );
    }
}

#[test]
fn entries_stay_in_the_room_of_their_key() {
    for (offset, count, fits) in [
        (0, 16, true),
        (0, 17, false),
        (7, 2, true),
        (7, 3, false),
        (8, 1, false),
        (u64::MAX, 2, false),
        // No entries take no room.
        (9, 0, true),
    ] {
        let update = entries(Some(offset), &vec![0x8000; count]);
        let result = Keys::new(context(MkeyAccessMode::Mtt), &[]).update(&update);
        assert_eq!(result, if fits { Ok(()) } else { Err(KeyFault::Range) }, "{count} at {offset}");
    }
}

#[test]
fn pages_have_four_kibibytes_to_two_gibibytes() {
    let (pages, ranges, of_one_size) = (MkeyAccessMode::Mtt, MkeyAccessMode::Klms, MkeyAccessMode::Ksm);
    for (mode, log_page, fits) in [
        (pages, 11, false),
        (pages, 12, true),
        (pages, 31, true),
        (pages, 32, false),
        (of_one_size, 11, false),
        (of_one_size, 12, true),
        // Ranges have their own lengths.
        (ranges, 0, true),
    ] {
        let mut fields = context(mode);
        fields.set_log_page_size(log_page);
        let result = Keys::new(context(mode), &[])
            .update(&RequestedUpdate { context: fields, ..requested(mask::PAGE_SIZE) });
        assert_eq!(result, if fits { Ok(()) } else { Err(KeyFault::Range) }, "{mode:?}, {log_page}");
    }
}

#[test]
fn a_key_ends_with_the_address_space() {
    for (start, length, fits) in
        [(u64::MAX - 0xfff, 0x1000, true), (u64::MAX - 0xfff, 0x1001, false), (u64::MAX, 0, true)]
    {
        let mut fields = context(MkeyAccessMode::Mtt);
        fields.set_start_addr(start).set_length(length);
        let update = RequestedUpdate { context: fields, ..requested(mask::START_ADDRESS | mask::LENGTH) };
        let result = Keys::new(context(MkeyAccessMode::Mtt), &[]).update(&update);
        assert_eq!(result, if fits { Ok(()) } else { Err(KeyFault::Range) }, "{start:#x}, {length:#x}");
    }
}

/// A key of ranges over one region, whose local rights `edit` may take away.
fn over_region(edit: impl Fn(&mut MkeyContext)) -> (Keys, Mkey) {
    let mut keys = Keys::new(context(MkeyAccessMode::Klms), &[]);
    let mut region = context(MkeyAccessMode::Mtt);
    edit(&mut region);
    let region = keys.add(region, &[0x8000, 0x3000]);
    (keys, region)
}

fn range(length: u64, key: Mkey) -> [u64; 2] {
    [length << 32 | u64::from(key.value()), START]
}

/// A window cannot give remote writing or atomics of a region that the host may not write (IBTA v1.4 §10.6.7.2.4).
#[test]
fn a_binding_needs_the_local_rights_behind_it() {
    let read_only = |context: &mut MkeyContext| {
        context.set_lw(false);
    };
    for (writes, atomics, expected) in
        [(false, false, Ok(())), (true, false, Err(KeyFault::Right)), (false, true, Err(KeyFault::Right))]
    {
        let (mut keys, region) = over_region(read_only);
        let mut fields = context(MkeyAccessMode::Klms);
        fields.set_rw(writes).set_a(atomics);
        let bind = RequestedUpdate {
            mask: mask::REMOTE_WRITE | mask::ATOMIC,
            context: fields,
            ..entries(None, &range(0x2000, region))
        };
        assert_eq!(keys.update(&bind), expected, "write {writes}, atomic {atomics}");
    }
}

/// A binding may give the window to a queue pair and bind it to a region of that queue pair at once.
#[test]
fn a_binding_compares_the_region_with_the_queue_pair_that_the_window_is_for_afterwards() {
    for (region_of, window_for, expected) in [
        (QP, QP, Ok(())),
        (OTHER_QP, QP, Err(KeyFault::QueuePair)),
        (QP, ANY, Err(KeyFault::QueuePair)),
        (ANY, QP, Ok(())),
    ] {
        let (mut keys, region) = over_region(|context| {
            context.set_qpn(region_of);
        });
        let mut fields = context(MkeyAccessMode::Klms);
        fields.set_qpn(window_for);
        let bind =
            RequestedUpdate { mask: mask::QPN, context: fields, ..entries(None, &range(0x2000, region)) };
        assert_eq!(keys.update(&bind), expected, "a region of {region_of:?}, a window for {window_for:?}");
    }
}

/// The driver may name keys before they exist, and page lists name no keys at all.
#[test]
fn an_application_binds_only_keys_that_exist() {
    let nothing = Mkey::new(0x77 << 8);
    let update = entries(None, &range(0x2000, nothing));
    let (mut keys, region) = over_region(|_| ());
    assert_eq!(keys.update(&update), Err(KeyFault::Unknown));
    assert_eq!(keys.update(&RequestedUpdate { rules: DRIVER, ..update.clone() }), Ok(()));
    assert_eq!(keys.update(&entries(None, &range(0x2000, region))), Ok(()));
    assert_eq!(Keys::new(context(MkeyAccessMode::Mtt), &[]).update(&update), Ok(()));
}

/// Lists in a work queue end with arbitrary bytes. Only entries within the length of the key are names.
#[test]
fn entries_behind_the_length_of_a_list_name_no_key() {
    let nothing = Mkey::new(0x77 << 8);
    let (mut keys, region) = over_region(|_| ());
    let list = [range(0x1800, region), range(0x800, region), range(0x1000, nothing)].concat();
    assert_eq!(keys.update(&entries(None, &list)), Ok(()), "two entries are the whole length");
    assert_eq!(keys.update(&entries(None, &list[2..])), Err(KeyFault::Unknown), "one is not");
    // Entries before an offset belong to the length, and those behind it do not.
    assert_eq!(keys.update(&entries(Some(2), &range(0x1000, nothing))), Ok(()));
    assert_eq!(keys.update(&entries(Some(1), &range(0x1000, nothing))), Err(KeyFault::Unknown));
    assert_eq!(keys.update(&entries(Some(0), &range(0x1000, nothing))), Err(KeyFault::Unknown));
}

#[test]
fn entries_without_an_offset_replace_the_list() {
    let mut keys = Keys::new(context(MkeyAccessMode::Mtt), &[0x8000, 0x3000]);
    assert_eq!(keys.update(&entries(None, &[0x5000])), Ok(()));
    assert_eq!([START, START + 0x1000].map(|at| keys.host_of(at)), [Some(0x5000), None]);
}

#[test]
fn entries_with_an_offset_replace_as_many_as_they_are() {
    let mut long = context(MkeyAccessMode::Mtt);
    long.set_length(0x8000);
    let mut keys = Keys::new(long, &[0x2_0000, 0x1_0000, 0x5_0000, 0x4_0000, 0x7_0000, 0x6_0000]);
    assert_eq!(keys.update(&entries(Some(1), &[0x9_0000, 0x8_0000])), Ok(()));
    let hosts = |keys: &Keys| [0u64, 1, 2, 3, 4, 5, 6].map(|page| keys.host_of(START + (page << 12)));
    let expected = [0x2_0000, 0x1_0000, 0x9_0000, 0x8_0000, 0x7_0000, 0x6_0000].map(Some);
    assert_eq!(hosts(&keys)[..6], expected);
    assert_eq!(hosts(&keys)[6], None, "the list did not grow");
    // From the first octword on, an offset keeps what is behind.
    assert_eq!(keys.update(&entries(Some(0), &[0xb_0000, 0xa_0000])), Ok(()));
    assert_eq!(hosts(&keys)[..4], [0xb_0000, 0xa_0000, 0x9_0000, 0x8_0000].map(Some));
    // The last octword of the list is replaced, not appended.
    assert_eq!(keys.update(&entries(Some(2), &[0xd_0000, 0xc_0000])), Ok(()));
    assert_eq!(hosts(&keys)[4..], [Some(0xd_0000), Some(0xc_0000), None]);
}

/// mlx5_ib populates keys of user memory in parts, the first of which may begin anywhere.
#[test]
fn a_list_grows_from_an_offset_on() {
    let mut long = context(MkeyAccessMode::Mtt);
    long.set_length(0x8000);
    let mut keys = Keys::new(long, &[]);
    assert_eq!(keys.update(&entries(Some(1), &[0x9_0000, 0x7_0000])), Ok(()));
    assert_eq!(keys.update(&entries(Some(0), &[0x5_0000, 0x3_0000])), Ok(()));
    let hosts = [0u64, 1, 2, 3].map(|page| keys.host_of(START + (page << 12)));
    assert_eq!(hosts, [0x5_0000, 0x3_0000, 0x9_0000, 0x7_0000].map(Some));
}

/// Length, start and page size decide where the bytes of a list are.
#[test]
fn the_translation_follows_the_range_of_the_key() {
    let change = |mask, list: &[u64], edit: fn(&mut MkeyContext)| {
        let mut old = context(MkeyAccessMode::Mtt);
        old.set_length(0x1000);
        let mut keys = Keys::new(old, list);
        edit(&mut old);
        assert_eq!(keys.update(&RequestedUpdate { context: old, ..requested(mask) }), Ok(()), "{mask:#x}");
        keys
    };
    let keys = change(mask::LENGTH, &[0x8000, 0x3000], |context| {
        context.set_length(0x2000);
    });
    assert_eq!(keys.host_of(START + 0x1000), Some(0x3000), "the second page is now part of the key");
    let keys = change(mask::START_ADDRESS, &[0x8000, 0x3000], |context| {
        context.set_start_addr(START + 0x800);
    });
    assert_eq!([0x800, 0x1000].map(|at| keys.host_of(START + at)), [0x8800, 0x3000].map(Some));
    let keys = change(mask::PAGE_SIZE, &[0x8000, 0x3000], |context| {
        context.set_log_page_size(13);
    });
    assert_eq!(keys.host_of(START), Some(0x9000), "the region begins in the middle of a page of 8 KiB");
}

/// The cost of an update is the number of entries that it brings and of those that it reads; an update of
/// neither entries nor range reads none.
#[test]
fn an_update_costs_what_it_brings_and_reads() {
    let mut keys = Keys::new(context(MkeyAccessMode::Mtt), &[0x8000, 0x3000, 0x5000, 0x1000]);
    let mut cost = |update: &RequestedUpdate| {
        let before = keys.table.budget().total();
        assert_eq!(keys.update(update), Ok(()));
        keys.table.budget().total() - before
    };
    assert_eq!(cost(&requested(mask::FREE)), 0);
    assert_eq!(cost(&requested(mask::LENGTH)), 4);
    assert_eq!(cost(&entries(None, &[0x8000, 0x3000, 0x5000])), 3 + 3);
    assert_eq!(cost(&entries(Some(0), &[0x9000, 0x4000])), 2 + 3);
}

/// What was checked before an update was checked against another key.
#[test]
fn a_range_dies_with_an_update_of_its_key() {
    let mut keys = Keys::new(context(MkeyAccessMode::Mtt), &[0x8000, 0x3000]);
    let range = keys.table.check(&WHO, keys.name, Access::LocalRead, START, 1).unwrap();
    assert_eq!(keys.update(&requested(mask::PD)), Err(KeyFault::Domain));
    let mut memory = Touched::default();
    assert_eq!(keys.table.read(&mut memory, &range, 0, &mut [0]), Ok(()), "a refused update changes nothing");
    assert_eq!(keys.update(&requested(mask::SMALL_FENCE)), Ok(()));
    assert!(keys.table.read(&mut memory, &range, 0, &mut [0]).is_err());
    assert_eq!(memory.0, [0x8000]);
}
