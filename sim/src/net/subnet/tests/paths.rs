//! Paths between end ports.

use super::*;
use crate::wire::management::administration::{PathRecord, record, status as sa_status};

const DGID: u64 = 1 << 2;
const SGID: u64 = 1 << 3;
const DLID: u64 = 1 << 4;
const SLID: u64 = 1 << 5;
const TCLASS: u64 = 1 << 10;
const NUMB_PATH: u64 = 1 << 12;
const P_KEY: u64 = 1 << 13;
const MTU: u64 = 3 << 16;
const RATE: u64 = 3 << 18;

fn between(source: u64, destination: u64) -> PathRecord {
    let mut query = PathRecord::new();
    query.set_sgid(gid(source)).set_dgid(gid(destination)).set_number_of_paths(1).set_partition_key(0xffff);
    query
}

fn get(switch: &mut Switch, agents: &[Agent], mask: u64, query: &PathRecord) -> Result<PathRecord, u16> {
    let response = ask(switch, agents, 0, &request(GET, record::PATH, mask, query));
    if response.mad.status() == 0 { Ok(response.record().unwrap()) } else { Err(response.mad.status()) }
}

/// Requirement: IBTA v1.4 §15.2.5.16: the path between two GIDs has their LIDs, a common P_Key, the smaller MTU and the
/// slower rate, and is reversible.
#[test]
fn the_path_between_two_ports() {
    let slow = Agent { mtu: 4, width: 1, ..Agent::new(0xb) };
    let (mut switch, agents) = subnet_of(SubnetConfig::default(), vec![Agent::new(0xa), slow]);
    let mut query = between(0xa, 0xb);
    query.set_traffic_class(9);
    let path = get(&mut switch, &agents, DGID | SGID | NUMB_PATH | P_KEY | TCLASS, &query).unwrap();
    assert_eq!((path.slid(), path.dlid(), path.sgid(), path.dgid()), (1, 2, gid(0xa), gid(0xb)));
    assert_eq!((path.reversible(), path.number_of_paths(), path.partition_key()), (true, 1, 0xffff));
    assert_eq!((path.mtu_selector(), path.mtu()), (2, 4), "exactly 2048");
    assert_eq!((path.rate_selector(), path.rate()), (2, 15), "exactly 25 Gb/s");
    assert_eq!((path.life_time_selector(), path.life_time()), (2, 18));
    assert_eq!((path.traffic_class(), path.service_level(), path.hop_limit()), (9, 0, 0));
    let itself = get(&mut switch, &agents, DGID | SGID, &between(0xa, 0xa)).unwrap();
    assert_eq!((itself.slid(), itself.dlid(), itself.rate()), (1, 1, 16));
}

#[test]
fn ports_are_named_by_lid_too() {
    let (mut switch, agents) = subnet(1);
    let mut query = PathRecord::new();
    query.set_slid(3).set_dlid(MANAGER_LID);
    let path = get(&mut switch, &agents, SLID | DLID, &query).unwrap();
    assert_eq!((path.slid(), path.dlid(), path.sgid()), (3, MANAGER_LID, gid(0xa)));
    assert_eq!(get(&mut switch, &agents, SLID | DLID, query.set_dlid(99)), Err(sa_status::NO_RECORDS));
    assert_eq!(get(&mut switch, &agents, SLID, &query), Err(sa_status::TOO_MANY_RECORDS));
    assert_eq!(get(&mut switch, &agents, SGID | DGID, &between(0xa, 0xc)), Err(sa_status::INVALID_GID));
}

/// Requirement: IBTA v1.4 §15.2.5.16: MTU and rate of a path satisfy the selectors, or there is no path.
#[test]
fn a_path_satisfies_its_selectors() {
    let (mut switch, agents) = subnet(0);
    let mut mtu = |selector, value| {
        let mut query = between(0xa, 0xb);
        query.set_mtu_selector(selector).set_mtu(value);
        get(&mut switch, &agents, SGID | DGID | MTU, &query).map(|path| path.mtu())
    };
    assert_eq!([mtu(0, 3), mtu(1, 3), mtu(2, 3), mtu(3, 3)], [Ok(5), Ok(2), Ok(3), Ok(5)]);
    assert_eq!([mtu(0, 5), mtu(1, 1), mtu(1, 0)], [Err(sa_status::NO_RECORDS); 3]);
    let mut rate = |selector, value| {
        let mut query = between(0xa, 0xb);
        query.set_rate_selector(selector).set_rate(value);
        get(&mut switch, &agents, SGID | DGID | RATE, &query).map(|path| path.rate())
    };
    assert_eq!([rate(0, 12), rate(1, 3), rate(2, 7), rate(3, 2)], [Ok(16), Ok(5), Ok(7), Ok(16)]);
    assert_eq!([rate(2, 17), rate(2, 60)], [Err(sa_status::NO_RECORDS); 2]);
}

#[test]
fn a_path_is_in_a_partition_of_both_ends() {
    let (mut switch, agents) = subnet(0);
    let mut key = |key| {
        let mut query = between(0xa, 0xb);
        get(&mut switch, &agents, SGID | DGID | P_KEY, query.set_partition_key(key))
            .map(|path| path.partition_key())
    };
    assert_eq!([key(0x8001), key(0x0001), key(0xffff)], [Ok(0x8001), Ok(0x8001), Ok(0xffff)]);
    assert_eq!([key(0x8002), key(0), key(0x8000)], [Err(sa_status::NO_RECORDS); 3]);
}

/// Requirement: IBTA v1.4 §15.2.5.16: SubnAdmGetTable returns the paths of all matching pairs, each pair of LIDs once,
/// and per pair at most NumbPath.
#[test]
fn a_table_query_returns_the_paths_of_all_pairs() {
    let (mut switch, agents) = subnet(1);
    let mut paths = |mask, query: &PathRecord| {
        let wanted = request(method::GET_TABLE, record::PATH, mask, query);
        let (paths, _) = table::<PathRecord>(&mut switch, &agents, 0, &wanted);
        paths.iter().map(|path| (path.slid(), path.dlid())).collect::<Vec<_>>()
    };
    assert_eq!(paths(SGID | DGID, &between(0xa, 0xb)), [(2, 4), (3, 5)]);
    assert_eq!(paths(SGID | DGID | NUMB_PATH, &between(0xa, 0xb)), [(2, 4)]);
    assert_eq!(paths(SGID | NUMB_PATH, &between(0xa, 0)), [(2, 2), (2, 4), (2, MANAGER_LID)]);
    let every = paths(0, &PathRecord::new());
    assert_eq!(
        every.len(),
        4 * 2 + 4 * 2 + 1,
        "two between ports or from a port to the SM, and the SM's own"
    );
}
