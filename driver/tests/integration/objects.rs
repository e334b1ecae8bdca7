//! Objects against scripted firmware: what the commands say, refusals, any order of dropping, reset.

use crate::support::objects::{Rig, Shape, device, peer, rights};
use crate::support::{FakeHal, Misbehaviour};
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::RegisterError;
use bareverbs_core::queue_pair::transitions::{Attributes, TransitionError};
use bareverbs_core::queue_pair::{BuildError, ConnectError, ModifyError, QueuePairAttributes};
use bareverbs_core::{
    AccessFlags, CompletionChannel, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device,
    DeviceConfig, MemoryRegion, ProtectionDomain, QueuePairBuilder, WorkRequest,
};
use bareverbs_prm::ids::{Cqn, MacAddress, Qpn};
use bareverbs_prm::numbering::{
    CommandOpcode as Op, CqeOpcode, PathMigration, PathMtu, QpState, ServiceType,
};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Duration;

#[test]
fn the_context_of_a_queue_pair() {
    let rig = Rig::new(Shape { sends: 100, receives: 50, slices: 3, inline: 100, ..Shape::default() });
    let firmware = rig.hal.firmware();
    let pair = &firmware.pairs[&rig.pair.qpn().value()];
    let context = &pair.context;
    // 16 + 16 + 112 bytes: three blocks a send, 300 blocks; four segments a receive.
    assert_eq!((context.log_sq_size(), context.log_rq_size(), context.log_rq_stride()), (9, 6, 2));
    assert_eq!(
        (context.st(), context.pm_state(), context.rq_type()),
        (ServiceType::Rc, PathMigration::Migrated, 0)
    );
    assert_eq!((context.cqn_snd(), context.cqn_rcv()), (rig.send.number(), rig.receive.number()));
    assert_eq!(context.dbr_addr(), pair.base + 64 * 64 + 512 * 64);
    let ops: Vec<Op> = pair.modified.iter().map(|(op, ..)| *op).collect();
    assert_eq!(ops, [Op::ResetToInitQp, Op::InitToRtrQp, Op::RtrToRtsQp]);
    assert!(pair.modified.iter().all(|(_, optional, _)| *optional == 0));
    let init = &pair.modified[0].2;
    assert_eq!(
        (init.rre(), init.rwe(), init.rae(), init.primary_address_path().vhca_port_num()),
        (true, true, true, 1)
    );
    let rtr = &pair.modified[1].2;
    assert_eq!(
        (rtr.remote_qpn(), rtr.next_rcv_psn(), rtr.mtu()),
        (Qpn::from_low_bits(0x99), Psn::new(0x1234), PathMtu::Mtu1024)
    );
    let path = rtr.primary_address_path();
    assert_eq!(MacAddress::from_parts(path.rmac_47_32(), path.rmac_31_0()), peer().mac);
    assert_eq!((path.rgid_rip(), path.hop_limit()), (peer().gid.0, 64));
    assert!(path.udp_sport() >= 0xc000);
    let rts = &pair.modified[2].2;
    assert_eq!((rts.retry_count(), rts.rnr_retry(), rts.primary_address_path().ack_timeout()), (7, 7, 14));
    assert_eq!((rts.log_sra_max(), rtr.log_rra_max()), (4, 4));
}

#[test]
fn memory_keys_translate_every_page() {
    let hal = FakeHal::new();
    let config = DeviceConfig { log_max_page: 12, ..DeviceConfig::default() };
    let device = std::rc::Rc::new(Device::open(hal.clone(), config).unwrap());
    let domain = ProtectionDomain::allocate(device.clone()).unwrap();
    let region = MemoryRegion::allocate(&domain, 4 << 20, rights()).expect("1024 pages fit the mailboxes");
    let index = region.lkey().index().value();
    let firmware = hal.firmware();
    let (key, list) = (&firmware.keys[&index], &firmware.key_lists[&index]);
    assert_eq!((key.start_addr(), key.length(), key.log_page_size()), (region.address(), 4 << 20, 12));
    assert_eq!((key.lr(), key.lw(), key.rr(), key.rw(), key.a()), (true, true, true, true, false));
    assert_eq!(
        (key.access_mode_1_0(), key.qpn().value(), key.mkey_7_0()),
        (1, 0xff_ffff, region.lkey().variant())
    );
    assert_eq!((list.len(), key.translations_octword_size()), (1024, 512));
    assert!(list.iter().enumerate().all(|(i, &entry)| entry == (region.address() + i as u64 * 4096) | 3));
    drop(firmware);
    let error = MemoryRegion::allocate(&domain, 64 << 20, rights()).expect_err("16384 pages do not fit");
    assert!(error.to_string().contains("mailbox_blocks"), "{error}");
}

#[test]
fn memory_is_copied_and_loaded() {
    let rig = Rig::new(Shape::default());
    rig.region.copy_in(5, b"hello").unwrap();
    let mut out = [0; 7];
    rig.region.copy_out(4, &mut out).unwrap();
    assert_eq!(&out, b"\0hello\0");
    rig.region.store_u64(16, 0x0102_0304_0506_0708).unwrap();
    assert_eq!(rig.region.load_u64(16), Ok(0x0102_0304_0506_0708));
    assert_eq!(rig.hal.world.memory.read(rig.region.address() + 5, 5), b"hello");
    rig.region.copy_in(65536 - 3, &[0; 4]).unwrap_err();
}

#[test]
fn memory_of_the_application_is_registered_where_it_is() {
    let rig = Rig::new(Shape::default());
    let mut bytes = vec![7u8; 10_000];
    let start = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: `bytes` is not touched until the region is dropped.
    let memory = unsafe { bareverbs_core::UserMemory::map(rig.device.hal(), start, bytes.len()) }.unwrap();
    let region = MemoryRegion::register(&rig.domain, memory, rights()).unwrap();
    let mut out = [0; 3];
    region.copy_out(9_997, &mut out).unwrap();
    region.copy_in(1, b"xyz").unwrap();
    drop(region);
    assert_eq!((out, &bytes[..5]), ([7; 3], &[7, b'x', b'y', b'z', 7][..]));
}

#[test]
fn arguments_are_checked_before_anything_is_sent() {
    let rig = Rig::new(Shape::default());
    let commands = rig.hal.firmware().log.len();
    let empty = MemoryRegion::allocate(&rig.domain, 0, rights()).unwrap_err();
    assert_eq!(empty, RegisterError::Empty);
    let access = AccessFlags::REMOTE_WRITE;
    let error = MemoryRegion::allocate(&rig.domain, 8, access).unwrap_err();
    assert_eq!(error, RegisterError::InconsistentAccess { access });
    let build = || QueuePairBuilder::new(&rig.domain, &rig.send, &rig.receive);
    let limit = |name, asked, limit| Some(BuildError::Limit { name, asked, limit });
    assert_eq!(build().send_queue(40_000).build().err(), limit("send_queue", 40_000, 32768));
    assert_eq!(build().max_inline(1000).build().err(), limit("max_inline", 1000, 972));
    assert_eq!(build().max_send_sge(62).build().err(), limit("max_send_sge", 62, 61));
    assert_eq!(build().max_receive_sge(33).build().err(), limit("max_receive_sge", 33, 32));
    assert_eq!(build().send_queue(0).build().err(), limit("send_queue", 0, 32768));
    assert!(matches!(
        build().send_queue(32768).build().err(),
        Some(BuildError::LedgerFull { needed: 65_600, limit: 32768 })
    ));
    let queue = CompletionQueue::create(rig.device.clone(), CompletionQueueConfig { entries: 0 });
    assert!(queue.is_err());
    assert_eq!(rig.hal.firmware().log.len(), commands);
    assert_eq!(rig.hal.world.memory.faults.get(), 0);
}

#[test]
fn connecting_checks_its_options() {
    let rig = Rig::new(Shape::default());
    let connect = |options| {
        let pair = QueuePairBuilder::new(&rig.domain, &rig.send, &rig.receive).build().unwrap();
        pair.connect(&peer(), options).map(|_| ()).unwrap_err()
    };
    let default = ConnectOptions::default();
    let limit = |name, asked, limit| ConnectError::Limit { name, asked, limit };
    assert_eq!(connect(ConnectOptions { retry_count: 8, ..default }), limit("retry_count", 8, 7));
    assert_eq!(connect(ConnectOptions { ack_timeout: 32, ..default }), limit("ack_timeout", 32, 31));
    assert_eq!(connect(ConnectOptions { gid_index: 1, ..default }), ConnectError::NoAddress { gid_index: 1 });
    let raw = ConnectOptions { path_mtu: PathMtu::RawEthernetQp, ..default };
    assert_eq!(connect(raw), ConnectError::PathMtu { raw: 7 });
}

#[test]
fn invalid_transitions_are_refused_without_a_command() {
    let mut rig = Rig::new(Shape::default());
    let commands = rig.hal.firmware().log.len();
    let attributes = QueuePairAttributes { path_mtu: Some(PathMtu::Mtu256), ..Default::default() };
    let error = rig.pair.modify(QpState::Rts, &attributes).unwrap_err();
    let (from, to) = (QpState::Rts, QpState::Rts);
    let (missing, forbidden) = (Attributes::NONE, Attributes::PATH_MTU);
    assert_eq!(
        error,
        ModifyError::Transition(TransitionError::WrongAttributes { from, to, missing, forbidden })
    );
    rig.pair.modify(QpState::Init, &QueuePairAttributes::default()).unwrap_err();
    assert_eq!(rig.hal.firmware().log.len(), commands);
    let attributes = QueuePairAttributes { min_rnr_timer: Some(20), ..Default::default() };
    rig.pair.modify(QpState::Rts, &attributes).unwrap();
    let firmware = rig.hal.firmware();
    let (op, optional, context) = firmware.pairs[&rig.pair.qpn().value()].modified.last().unwrap();
    assert_eq!((*op, *optional, context.min_rnr_nak()), (Op::RtsToRtsQp, 1 << 6, 20));
}

#[test]
fn query_tells_the_state_that_the_device_went_to() {
    let mut rig = Rig::new(Shape::default());
    assert_eq!(rig.pair.query().unwrap().state, QpState::Rts);
    rig.pair.modify_to_error().unwrap();
    let status = rig.pair.query().unwrap();
    assert_eq!((status.state, status.remote_qpn), (QpState::Error, Qpn::from_low_bits(0x99)));
}

#[test]
fn reset_takes_old_completions_away_and_starts_over() {
    let Rig { hal, device, domain, region, mut send, mut receive, mut pair } = Rig::new(Shape::default());
    for id in 0..3 {
        pair.post_send(&WorkRequest::nop(id)).unwrap();
    }
    let rig = Rig { hal, device, domain, region, send, receive, pair };
    rig.complete_send(rig.entry(CqeOpcode::Requester, 1));
    rig.complete_send(rig.entry(CqeOpcode::Requester, 2));
    let Rig { hal, device, domain, region, .. } = rig;
    (send, receive, pair) = (rig.send, rig.receive, rig.pair);
    let prepared = pair.reset(&mut send, Some(&mut receive), rights()).unwrap();
    pair = prepared.connect(&peer(), ConnectOptions::default()).unwrap();
    assert_eq!((send.poll_one(), send.discarded(), pair.sends_outstanding()), (Ok(None), 2, 0));
    pair.post_send(&WorkRequest::nop(77)).unwrap();
    let mut rig = Rig { hal, device, domain, region, send, receive, pair };
    assert_eq!(rig.record(), (0, 1));
    rig.complete_send(rig.entry(CqeOpcode::Requester, 0));
    assert_eq!(rig.send.poll_one().unwrap().unwrap().wr_id, 77);
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    for order in permutations(5) {
        let Rig { hal, device, domain, region, send, receive, pair } = Rig::new(Shape::default());
        let mut objects: [Option<Box<dyn std::any::Any>>; 5] = [
            Some(Box::new(domain)),
            Some(Box::new(region)),
            Some(Box::new(send)),
            Some(Box::new(receive)),
            Some(Box::new(pair)),
        ];
        for &i in &order {
            drop(objects[i].take());
        }
        let leftover = {
            let firmware = hal.firmware();
            (
                firmware.pairs.len(),
                firmware.keys.len(),
                firmware.completion_queues.len(),
                firmware.domains.len(),
            )
        };
        assert_eq!(leftover, (0, 0, 0, 0), "order {order:?}");
        assert_eq!(device.leaked_objects(), 0);
        drop(device);
        assert_eq!((hal.world.memory.regions(), hal.world.memory.faults.get()), (0, 0), "order {order:?}");
    }
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let insert = |p: &Vec<usize>, at: usize| {
        let mut p = p.clone();
        p.insert(at, n - 1);
        p
    };
    permutations(n - 1).iter().flat_map(|p| (0..n).map(|at| insert(p, at)).collect::<Vec<_>>()).collect()
}

#[test]
fn memory_stays_until_the_device_has_destroyed_the_object() {
    let Rig { hal, device, domain, region, send, receive, pair } = Rig::new(Shape::default());
    let address = region.address();
    hal.firmware().misbehave(Op::DestroyMkey, Misbehaviour::Status(0x9, 0));
    drop(region);
    assert!(hal.world.memory.is_mapped(address, 65536), "the device still has the key");
    drop((pair, send, receive));
    assert!(!hal.world.memory.is_mapped(address, 65536), "destroyed when something else was");
    drop(domain);
    let device = std::rc::Rc::try_unwrap(device).expect("nobody else has it");
    device.close().expect("the device closes");
    assert!(hal.firmware().is_down());
}

#[test]
fn an_object_that_was_not_made_leaves_no_memory() {
    let hal = FakeHal::new();
    let device = device(&hal);
    let domain = ProtectionDomain::allocate(device.clone()).unwrap();
    let queue = CompletionQueue::create(device.clone(), CompletionQueueConfig::default()).unwrap();
    let regions = hal.world.memory.regions();
    hal.firmware().misbehave(Op::CreateMkey, Misbehaviour::Status(0xf, 0));
    MemoryRegion::allocate(&domain, 4096, rights()).expect_err("refused");
    hal.firmware().misbehave(Op::CreateCq, Misbehaviour::Status(0xf, 0));
    CompletionQueue::create(device.clone(), CompletionQueueConfig::default()).expect_err("refused");
    hal.firmware().misbehave(Op::CreateQp, Misbehaviour::Status(0xf, 0));
    assert!(QueuePairBuilder::new(&domain, &queue, &queue).build().is_err());
    hal.firmware().misbehave(Op::ResetToInitQp, Misbehaviour::Status(0xf, 0));
    assert!(QueuePairBuilder::new(&domain, &queue, &queue).build().is_err());
    assert_eq!((hal.world.memory.regions(), hal.firmware().pairs.len()), (regions, 0));
    (0..64).for_each(|_| {
        drop(QueuePairBuilder::new(&domain, &queue, &queue).build().expect("no record was lost"))
    });
}

/// The interrupt of every arming is taken by another thread, before this one can wait for it.
#[test]
fn a_channel_does_not_sleep_over_an_interrupt_that_another_thread_took() {
    let hal = FakeHal::new();
    let mut channel = CompletionChannel::create(device(&hal), 1, 4).unwrap();
    let deadline = hal.now() + Duration::from_micros(10);
    assert_eq!(channel.wait(deadline), None);
    assert!(!channel.wait_for(Cqn::from_low_bits(5), deadline + Duration::from_micros(10)));
    assert!(hal.world.relaxed.get() > 1);
    assert_eq!(hal.world.slept.get(), 0);
}
