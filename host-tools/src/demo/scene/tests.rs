//! The DPU, the NIC and the READ way over two NICs, a switch and real driver objects.

use super::super::hosts::WINDOW;
use super::*;
use bareverbs::offload::budget::Limits;
use bareverbs::offload::client::fallback::{FallbackCause, FallbackClient, FallbackTarget, Places};
use bareverbs::offload::client::slots::SlotLayout;
use bareverbs::offload::client::{Call, Ended, KernelClient, KernelClientConfig, KernelPlace, StartError};
use bareverbs::offload::endpoint::{Endpoint, Work};
use bareverbs::offload::kernel::{Kernel, Opcode};
use bareverbs::offload::kernels::kv_layout::{Line, chain_of};
use bareverbs::offload::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use bareverbs::offload::status::Status;
use bareverbs::offload::table::TableMemory;
use bareverbs::offload::wire::{RegionHandle, ReplyTo, Request, TRAILER_SIZE, Trailer, slot_size};
use bareverbs::sim::MemoryConfig;
use bareverbs::sim::run::preset::Preset;
use std::collections::BTreeMap;

fn config(seed: u64, loss: f64) -> SceneConfig {
    let memory = MemoryConfig::default();
    SceneConfig { seed, loss, preset: Preset::STROM_10G, memory, records: false, changes: 0 }
}

fn rows() -> Vec<Row> {
    let lengths = [0, 1, 7, 64, 1000, 1024, 4096, 65_535, 65_536];
    let value = |length: usize| (0..length).map(|i| (i * 31 + length) as u8).collect();
    (0..30)
        .map(|n| Row { key: format!("key {n}").into_bytes(), value: value(lengths[n % lengths.len()]) })
        .collect()
}

#[track_caller]
fn check_all(scene: &mut Scene, rows: &[Row]) {
    for way in WayName::ALL {
        for row in rows {
            let found = scene.lookup(way, &row.key).expect("runs");
            assert_eq!(found.result.ended, Ended::Found, "{way} {:?}", row.key);
            assert!(found.value == row.value, "{way} {:?}", row.key);
        }
        let miss = scene.lookup(way, b"nobody").expect("runs");
        assert_eq!(miss.result.ended, Ended::Status(Status::NotFound), "{way}");
    }
}

#[test]
fn values_of_all_sizes_come_back_on_all_ways() {
    let rows = rows();
    let mut scene = Scene::build(&config(1, 0.0), &rows, None).expect("boots");
    check_all(&mut scene, &rows);
}

#[test]
fn values_of_all_sizes_come_back_over_a_bad_network() {
    let rows = rows();
    for seed in 1..4 {
        let mut scene = Scene::build(&config(seed, 0.02), &rows, None).expect("boots");
        check_all(&mut scene, &rows);
    }
}

#[test]
fn memory_that_needs_every_barrier_is_served_as_well() {
    let rows = &rows()[..6];
    let memory = MemoryConfig::unforgiving();
    let mut scene = Scene::build(&SceneConfig { memory, ..config(1, 0.01) }, rows, None).expect("boots");
    check_all(&mut scene, rows);
}

#[test]
fn a_window_of_lookups_is_answered() {
    let rows = rows();
    let mut scene = Scene::build(&config(5, 0.01), &rows, None).expect("boots");
    for way in WayName::CONNECTED {
        let mut asked: Vec<u64> =
            (0..WINDOW).map(|n| scene.start(way, &rows[n].key).expect("a slot")).collect();
        for _ in 0..WINDOW {
            let result = scene.finish(way).expect("runs");
            let index =
                asked.iter().position(|id| *id == result.request_id).expect("asked once, answered once");
            let row = rows.iter().find(|row| row.value == scene.buffer[..result.length as usize]);
            assert!(result.ended == Ended::Found && row.is_some(), "{way} {result:?}");
            asked.swap_remove(index);
        }
        assert!(asked.is_empty());
    }
}

/// Looks up in windows until the program was replaced `times` times; returns the number of lookups.
fn look_up_while_swapping(scene: &mut Scene, rows: &[Row], times: u64) -> u64 {
    let (mut asked, mut lookups) = (BTreeMap::new(), 0);
    scene.swap(times);
    let mut next = rows.iter().enumerate().cycle();
    while scene.swaps_left() > 0 || !asked.is_empty() {
        while asked.len() < 4 && scene.swaps_left() > 0 {
            let (index, row) = next.next().expect("there are rows");
            let id = scene.start(WayName::Program, &row.key).expect("a slot");
            assert!(asked.insert(id, index).is_none(), "no id twice");
        }
        let result = scene.finish(WayName::Program).expect("runs");
        let index = asked.remove(&result.request_id).expect("asked once, answered once");
        assert_eq!(result.ended, Ended::Found, "row {index} after {lookups} lookups");
        assert!(scene.buffer[..result.length as usize] == rows[index].value, "row {index}");
        lookups += 1;
    }
    lookups
}

#[test]
fn a_program_is_replaced_a_thousand_times_while_it_answers_and_no_lookup_notices() {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.value.len() <= 1000).collect();
    for loss in [0.0, 0.01] {
        let mut scene = Scene::build(&config(14, loss), &rows, None).expect("boots");
        let lookups = look_up_while_swapping(&mut scene, &rows, 1_000);
        assert!(lookups > 1_000, "{lookups} lookups were under way meanwhile");
        // The last replies are still being acknowledged.
        while scene.dpu.runtime().running() > 0 {
            let now = scene.world.now();
            if !scene.serve(now) {
                scene.wait(None).expect("goes on");
            }
        }
        let runtime = scene.dpu.runtime();
        assert_eq!(runtime.counters().dropped, 0);
        let deployed: Vec<_> = runtime.deployment().store().list().collect();
        let [only] = deployed[..] else { panic!("{deployed:?}") };
        assert_eq!((only.version, only.current, only.running), (1_001, true, 0));
        let counters = scene.dpu.counters();
        assert_eq!((counters.lost_replies, counters.broken), (0, 0));
        check_all(&mut scene, &rows);
    }
}

#[test]
fn readers_see_the_old_value_or_the_new_one_while_the_server_changes_it() {
    let (old, new) = (vec![1; 900], vec![2; 300]);
    let row = Row { key: b"key".to_vec(), value: old.clone() };
    let mut scene =
        Scene::build(&config(1, 0.0), &[row, Row { key: b"x".to_vec(), value: vec![0; 4000] }], None)
            .expect("boots");
    for way in WayName::CONNECTED {
        let (mut seen, mut turn) = ([0; 2], 0);
        while seen[0] < 20 || seen[1] < 20 {
            scene.start(way, b"key").expect("a slot");
            let result = loop {
                let now = scene.world.now();
                scene.serve(now);
                let client = &mut scene.clients[way as usize];
                if let Some(result) = client.client.poll(now, &mut client.endpoint, &mut scene.buffer) {
                    break result;
                }
                turn += 1;
                if turn % 7 == 0 {
                    let value = if turn % 2 == 0 { &old } else { &new };
                    // Too many changes within a grace period are refused; the value then stays unchanged.
                    let _ = scene.update(b"key", value);
                }
                scene.wait(Some(way)).expect("goes on");
            };
            assert_eq!(result.ended, Ended::Found);
            let value = &scene.buffer[..result.length as usize];
            assert!(value == old || value == new, "{way}");
            seen[usize::from(value == new)] += 1;
        }
    }
}

#[test]
fn a_table_that_changes_and_grows_is_read_on_all_ways_and_no_value_is_wrong() {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.value.len() <= 4096).collect();
    for (seed, loss) in [(1, 0.0), (2, 0.01)] {
        let mut scene =
            Scene::build(&SceneConfig { changes: 600, ..config(seed, loss) }, &rows, None).expect("boots");
        let mut changed = 0;
        while scene.changes_left() > 0 {
            for way in WayName::ALL {
                for row in &rows {
                    let found = scene.lookup(way, &row.key).expect("runs");
                    assert_eq!(found.result.ended, Ended::Found, "{way} {:?}", row.key);
                    assert!(scene.had(row, &found.value), "{way} {:?}", row.key);
                    changed += usize::from(found.value != row.value);
                }
                let miss = scene.lookup(way, b"nobody").expect("runs");
                assert_eq!(miss.result.ended, Ended::Status(Status::NotFound), "{way}");
            }
        }
        let report = scene.writer_report().expect("there were changes");
        assert!(report.changes == 600 && report.buckets[1] > report.buckets[0], "{report:?}");
        assert!(changed > 100, "{changed} lookups found a value that is not in the file");
        assert_eq!(scene.table.usage().chains_to_move, 0);
    }
}

#[test]
fn kernels_reads_and_a_core_read_one_key_at_once_while_it_changes() {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.value.len() <= 4096).collect();
    for (seed, loss) in [(3, 0.0), (4, 0.01)] {
        let settings = SceneConfig { changes: 400, ..config(seed, loss) };
        let mut scene = Scene::build(&settings, &rows, None).expect("boots");
        for row in rows.iter().cycle() {
            for way in WayName::CONNECTED {
                scene.start(way, &row.key).expect("a slot");
            }
            for way in WayName::CONNECTED {
                let result = scene.finish(way).expect("runs");
                assert_eq!(result.ended, Ended::Found, "{way} {:?}", row.key);
                let value = scene.buffer[..result.length as usize].to_vec();
                assert!(scene.had(row, &value), "{way} {:?}", row.key);
            }
            if scene.changes_left() == 0 {
                break;
            }
        }
    }
}

/// A separate client over the connection of this way.
fn caller(scene: &Scene, way: WayName) -> KernelClient<WINDOW> {
    let endpoint = &scene.clients[way as usize].endpoint;
    let (address, rkey) = (endpoint.region().address(), endpoint.region().rkey().value());
    let stride = (endpoint.region().len() / WINDOW) as u64;
    KernelClient::new(KernelClientConfig {
        place: KernelPlace::Cores,
        layout: SlotLayout { address, rkey, stride, max_response: 4096 },
        credits: WINDOW as u32,
        timeout: Duration::from_secs(60),
        limits: Limits::default(),
    })
}

#[test]
fn a_core_of_the_server_serves_lookups_without_a_dpu_kernel() {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.value.len() <= 4096).collect();
    for (seed, loss) in [(1, 0.0), (2, 0.02)] {
        let mut scene = Scene::build(&config(seed, loss), &rows, None).expect("boots");
        let (dpu, core) = (caller(&scene, WayName::KernelDpu), caller(&scene, WayName::Cpu));
        let mut client = FallbackClient::new(dpu, core, Duration::from_secs(60), Duration::ZERO);
        let table = *scene.table.descriptor();
        let region = RegionHandle(0);
        let instead = FallbackTarget { opcode: KvLookup::OPCODE, region };
        let (mut asked, mut next) = (BTreeMap::new(), 0);
        while next < rows.len() || !asked.is_empty() {
            let now = scene.world.now();
            let active = scene.serve(now);
            let [dpu, _, _, _, core] = &mut scene.clients;
            while asked.len() < WINDOW && next < rows.len() {
                let mut buffer = [0; MAX_PARAMETERS];
                let parameters = table.lookup(&rows[next].key).encode(&mut buffer).expect("fits");
                let opcode = if next.is_multiple_of(2) { Opcode(7) } else { KvLookup::OPCODE };
                let call = Call { opcode, region, parameters, payload: &[] };
                let places = Places { kernels: &mut dpu.endpoint, instead: &mut core.endpoint };
                match client.start(now, places, &call, instead) {
                    Ok(id) => drop(asked.insert(id, next)),
                    Err(StartError::NoSlot(_)) => break,
                    Err(error) => panic!("{error}"),
                }
                next += 1;
            }
            let places = Places { kernels: &mut dpu.endpoint, instead: &mut core.endpoint };
            let Some(ended) = client.poll(now, places, &mut scene.buffer) else {
                if !active {
                    scene.wait(None).expect("goes on");
                }
                continue;
            };
            let index = asked.remove(&ended.result.request_id).expect("asked once, answered once");
            assert_eq!(ended.result.ended, Ended::Found, "{ended:?}");
            assert!(scene.buffer[..ended.result.length as usize] == rows[index].value, "row {index}");
            assert_eq!(ended.fell_back, index.is_multiple_of(2).then_some(FallbackCause::Missing));
        }
        assert_eq!(client.counters().missing, rows.len().div_ceil(2) as u64);
        assert_eq!(scene.core.progress().begun, rows.len().div_ceil(2) as u64);
    }
}

/// Overwrites both buckets of a table of two rows with `line`.
fn sabotage(scene: &mut Scene, line: &Line) {
    let table = *scene.table.descriptor();
    for bucket in 0..u64::from(table.buckets) {
        let offset = table.lines + bucket * 64;
        let chain = chain_of(bucket as u32, table.buckets);
        scene.table.memory().write(offset, &line.encode(chain)).expect("inside");
    }
}

#[test]
fn broken_structures_get_the_same_status_on_all_ways() {
    let rows = &rows()[..2];
    let mut scene = Scene::build(&config(1, 0.0), rows, None).expect("boots");
    let lines = scene.table.descriptor().lines;
    let cases = [
        (Line { next: lines, ..Line::default() }, Status::HopLimit),
        (Line { next: 1 << 47, ..Line::default() }, Status::OutOfBounds),
        (Line { next: lines + 16, ..Line::default() }, Status::OutOfBounds),
        (Line { sequence: 1, ..Line::default() }, Status::Busy),
    ];
    for (line, status) in cases {
        for way in WayName::CONNECTED {
            // A line with a valid checksum whose next line is itself, or leaves the region.
            sabotage(&mut scene, &line);
            let found = scene.lookup(way, &rows[0].key).expect("runs");
            assert_eq!(found.result.ended, Ended::Status(status), "{way}");
        }
    }
}

/// Posts a hand-made request and returns the trailer that arrives in slot 0.
fn ask(scene: &mut Scene, way: WayName, change: impl Fn(&mut Request<'_>)) -> Option<Trailer> {
    let table = *scene.table.descriptor();
    let client = &mut scene.clients[way as usize];
    let (address, rkey) = (client.endpoint.region().address(), client.endpoint.region().rkey().value());
    let mut buffer = [0; MAX_PARAMETERS];
    let mut request = Request {
        opcode: KvLookup::OPCODE,
        request_id: 0xabcd,
        reply: ReplyTo { address, rkey, max_response: 1024, slot: 0 },
        deadline: Duration::ZERO,
        hop_limit: 0,
        region: RegionHandle(0),
        parameters: table.lookup(b"key 3").encode(&mut buffer).expect("fits"),
        payload: &[],
    };
    change(&mut request);
    let mut bytes = [0; 512];
    let posted = match way {
        WayName::KernelDpu => {
            let bytes = request.encode_message(&mut bytes).expect("fits");
            let none = bareverbs::offload::endpoint::Part { offset: 0, length: 0 };
            client.endpoint.post_receive(0, 1, none).expect("room");
            client.endpoint.post(0, 1, Work::Send(bytes))
        }
        _ => {
            let bytes = request.encode_strom(&mut bytes).expect("fits");
            let region = request.region.0;
            client.endpoint.post(0, 1, Work::RpcParameters { opcode: request.opcode.0, region, bytes })
        }
    };
    posted.expect("posted");
    trailer_in(scene, way, slot_size(request.reply.max_response) as usize)
}

/// The trailer in a slot a millisecond later.
fn trailer_in(scene: &mut Scene, way: WayName, slot: usize) -> Option<Trailer> {
    let end = scene.world.now() + Duration::from_millis(1);
    while scene.world.now() < end {
        let now = scene.world.now();
        if !scene.serve(now) {
            scene.world.with(|world| world.wake_at(end));
            scene.wait(Some(way)).expect("goes on");
        }
    }
    let endpoint = &mut scene.clients[way as usize].endpoint;
    while endpoint.poll().is_some() {}
    let mut bytes = [0; TRAILER_SIZE];
    endpoint.copy_out(slot - TRAILER_SIZE, &mut bytes).expect("inside");
    endpoint.copy_in(slot - TRAILER_SIZE, &[0; TRAILER_SIZE]).expect("inside");
    Trailer::parse(&bytes)
}

const KERNEL_WAYS: [WayName; 2] = [WayName::KernelDpu, WayName::KernelNic];

#[test]
fn requests_that_cannot_be_carried_out_get_typed_replies_through_both_kernels() {
    let rows = rows();
    let mut scene = Scene::build(&config(1, 0.0), &rows, None).expect("boots");
    for way in KERNEL_WAYS {
        let mut status = |change: &dyn Fn(&mut Request<'_>)| {
            let trailer = ask(&mut scene, way, change).expect("a reply");
            assert_eq!(trailer.request_id, 0xabcd);
            trailer.status
        };
        assert_eq!(status(&|_| {}), Status::Ok, "{way}");
        assert_eq!(status(&|r| r.opcode = Opcode(7)), Status::NoKernel, "{way}");
        assert_eq!(status(&|r| r.parameters = &r.parameters[..5]), Status::BadParameters, "{way}");
        assert_eq!(status(&|r| r.parameters = &[0xff; MAX_PARAMETERS]), Status::BadParameters, "{way}");
        assert_eq!(status(&|r| r.region = RegionHandle(3)), Status::OutOfBounds, "{way}");
        assert_eq!(status(&|r| r.hop_limit = 1), Status::HopLimit, "{way}");
        assert_eq!(status(&|r| r.reply.max_response = 8), Status::Truncated, "{way}");
    }
    check_all(&mut scene, &rows);
}

#[test]
fn replies_that_would_go_astray_are_not_sent() {
    let rows = rows();
    let mut scene = Scene::build(&config(1, 0.0), &rows, None).expect("boots");
    for way in KERNEL_WAYS {
        assert_eq!(ask(&mut scene, way, |r| r.reply.address -= 64), None, "{way}");
        assert_eq!(ask(&mut scene, way, |r| r.reply.rkey ^= 0x100), None, "{way}");
        assert_eq!(ask(&mut scene, way, |r| r.reply.address = u64::MAX - 7), None, "{way}");
    }
    assert_eq!(scene.kernels().counters().dropped, 3);
    assert_eq!(scene.dpu.runtime().counters().dropped, 3);
    check_all(&mut scene, &rows);
}

#[test]
fn malformed_messages_are_counted_and_disturb_no_lookup() {
    let rows = &rows()[..3];
    let mut scene = Scene::build(&config(1, 0.0), rows, None).expect("boots");
    for length in 0..100_usize {
        let noise: Vec<u8> = (0..length).map(|i| (i * length) as u8).collect();
        let client = &mut scene.clients[WayName::KernelDpu as usize];
        client.endpoint.post(0, 1, Work::Send(&noise)).expect("room");
        let client = &mut scene.clients[WayName::KernelNic as usize];
        let work = Work::RpcParameters { opcode: KvLookup::OPCODE.0, region: 0, bytes: &noise };
        client.endpoint.post(0, 1, work).expect("room");
        trailer_in(&mut scene, WayName::KernelDpu, 64);
        trailer_in(&mut scene, WayName::KernelNic, 64);
    }
    check_all(&mut scene, rows);
    let (nic, dpu) = (scene.kernels().counters(), scene.dpu.runtime().counters());
    assert_eq!((nic.dropped, dpu.dropped), (100, 100));
}

#[test]
fn the_same_seed_gives_the_same_digest() {
    let rows = &rows()[..4];
    let digest = |seed, loss| {
        let mut scene = Scene::build(&config(seed, loss), rows, None).expect("boots");
        check_all(&mut scene, rows);
        scene.digest()
    };
    assert_eq!(digest(3, 0.05), digest(3, 0.05));
    assert_ne!(digest(3, 0.05), digest(4, 0.05));
    assert_ne!(digest(3, 0.05), digest(3, 0.0));
}
