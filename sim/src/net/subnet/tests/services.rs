//! Services that ports advertise.

use super::*;
use crate::wire::management::administration::{ServiceRecord, record, status as sa_status};
use bareverbs_prm::time::Duration;

const NAMED: u64 = 0b111;
const LEASE: u64 = 1 << 4;
const KEY: u64 = 1 << 5;
const NAME: u64 = 1 << 6;

fn service(id: u64, guid: u64) -> ServiceRecord {
    let (mut requested, mut name) = (ServiceRecord::new(), [0; 64]);
    name[..4].copy_from_slice(b"name");
    requested.set_service_id(id).set_gid(gid(guid)).set_partition_key(0xffff).set_name(name);
    requested.set_key([7; 16]);
    requested
}

fn change(switch: &mut Switch, agents: &[Agent], method: u8, mask: u64, requested: &ServiceRecord) -> u16 {
    ask(switch, agents, 0, &request(method, record::SERVICE, mask, requested)).mad.status()
}

/// Service IDs, keys and leases found with a component mask at a given time.
fn find(
    switch: &mut Switch,
    agents: &[Agent],
    mask: u64,
    requested: &ServiceRecord,
    sm_key: u64,
) -> Vec<(u64, u8, u32)> {
    let mut wanted = request(method::GET_TABLE, record::SERVICE, mask, requested);
    wanted.sa.set_sm_key(sm_key);
    let (found, _) = table::<ServiceRecord>(switch, agents, 1, &wanted);
    found.iter().map(|found| (found.service_id(), found.key()[0], found.lease())).collect()
}

/// Requirement: IBTA v1.4 §15.2.5.14: a SubnAdmSet registers a service, its components find it, and whoever has its key
/// removes it.
#[test]
fn services_are_offered_found_and_removed() {
    let (mut switch, agents) = subnet(0);
    let (switch, agents) = (&mut switch, &agents[..]);
    assert_eq!(change(switch, agents, SET, NAMED, &service(1, 0xa)), 0);
    assert_eq!(change(switch, agents, SET, NAMED, &service(2, 0xb)), 0);
    assert_eq!(find(switch, agents, NAME, &service(0, 0), 0), [(1, 0, u32::MAX), (2, 0, u32::MAX)]);
    assert_eq!(find(switch, agents, 1, &service(2, 0), SM_KEY), [(2, 7, u32::MAX)]);
    assert_eq!(find(switch, agents, KEY, &service(2, 0), 0), [], "a query does not reveal keys");
    let mut stranger = service(1, 0xa);
    stranger.set_key([8; 16]);
    for method in [SET, method::DELETE] {
        assert_eq!(change(switch, agents, method, NAMED, &stranger), sa_status::REQUEST_INVALID);
    }
    assert_eq!(change(switch, agents, method::DELETE, NAMED, &service(1, 0xa)), 0);
    assert_eq!(change(switch, agents, method::DELETE, NAMED, &service(1, 0xa)), sa_status::NO_RECORDS);
    assert_eq!(find(switch, agents, 0, &service(0, 0), 0).len(), 1);
}

/// Requirement: IBTA v1.4 §15.2.5.14: identifier, GID and P_Key identify a service; port and partition must be of the
/// subnet.
#[test]
fn a_service_has_a_port_and_a_partition() {
    let (mut switch, agents) = subnet(0);
    let mut register = |mask, requested: &ServiceRecord| change(&mut switch, &agents, SET, mask, requested);
    assert_eq!(register(NAMED & !2, &service(1, 0xa)), sa_status::INSUFFICIENT_COMPONENTS);
    assert_eq!(register(NAMED, &service(1, 0x99)), sa_status::INVALID_GID);
    assert_eq!(register(NAMED, service(1, 0xa).set_partition_key(0x8077)), sa_status::REQUEST_INVALID);
}

/// Requirement: IBTA v1.4 §15.2.5.14: a service exists for the seconds of its lease, unless it is renewed.
#[test]
fn a_service_ends_with_its_lease() {
    let (mut switch, agents) = subnet(0);
    let mut requested = service(1, 0xa);
    assert_eq!(change(&mut switch, &agents, SET, NAMED | LEASE, requested.set_lease(3)), 0);
    let mut found_at = |milliseconds| {
        let all = request(method::GET_TABLE, record::SERVICE, 0, &ServiceRecord::new()).to_bytes();
        let frame = general_frame(agents[0].lid, &all, GENERAL_SERVICES_QKEY, 0xffff);
        switch.handle_frame(Time::ZERO + Duration::from_millis(milliseconds), 0, &frame);
        let response = responses(&mut switch, 0).remove(0);
        let record: ServiceRecord = response.record().unwrap();
        (response.rmpp.flags(), response.rmpp.length(), record.lease())
    };
    assert_eq!(found_at(1_500), (7, 20 + 176, 2));
    assert_eq!(found_at(3_000), (7, 20, 0));
}

#[test]
fn services_are_limited() {
    let (mut switch, agents) = subnet(0);
    let mut register = |id| change(&mut switch, &agents, SET, NAMED, &service(id, 0xa));
    assert!((0..1_024).all(|id| register(id) == 0));
    assert_eq!((register(1_024), register(5)), (sa_status::NO_RESOURCES, 0));
}
