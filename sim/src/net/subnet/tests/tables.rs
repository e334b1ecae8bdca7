//! Records of port and switch tables, paths to groups, and paths between many ports.

use super::*;
use crate::wire::management::administration::{
    GuidInfoRecord, McMemberRecord, MultiPathRecord, MulticastForwardingTableRecord, PartitionKeyTableRecord,
    PathRecord, SlToVlRecord, SmInfoRecord, VlArbitrationRecord, record, status as sa_status,
};

const NOTHING: [u8; 0] = [];
const BROADCAST: [u8; 16] = [0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// A subnet after one more sweep.
fn swept(mut agents: Vec<Agent>) -> (Switch, Vec<Agent>) {
    let config =
        SubnetConfig { partitions: Partitions::of_all(&[0xffff, 0x8001]), ..SubnetConfig::default() };
    let mut switch = Switch::infiniband(config);
    (0..agents.len()).for_each(|port| switch.handle_link(Time::ZERO, port, true));
    converse(&mut switch, &mut agents, Time::ZERO);
    let sweep = switch.poll_timeout().expect("a sweep");
    switch.handle_timeout(sweep);
    converse(&mut switch, &mut agents, sweep);
    (switch, agents)
}

fn two() -> (Switch, Vec<Agent>) {
    swept(vec![Agent::new(0xa), Agent::new(0xb)])
}

fn all<T: FromBytes>(
    switch: &mut Switch,
    agents: &[Agent],
    number: u16,
    mask: u64,
    query: &(impl IntoBytes + Immutable),
) -> Vec<T> {
    let mut asked = request(method::GET_TABLE, number, mask, query);
    asked.sa.set_sm_key(SM_KEY);
    table(switch, agents, 0, &asked).0
}

/// Requirement: IBTA v1.4 §15.2.5: records of lane, GUID and P_Key tables match the ports' tables.
#[test]
fn tables_of_ports_have_records() {
    let (mut switch, agents) = two();
    let (switch, agents) = (&mut switch, &agents[..]);
    let lanes: Vec<SlToVlRecord> = all(switch, agents, record::SL_TO_VL, 0, &NOTHING);
    let seen: Vec<_> = lanes.iter().map(|one| (one.lid(), one.output_port(), one.table())).collect();
    assert_eq!(seen, [(1, 1, [0x12; 8]), (2, 1, [0x12; 8])]);
    let mut query = VlArbitrationRecord::new();
    query.set_lid(2).set_block(3);
    let blocks: Vec<VlArbitrationRecord> = all(switch, agents, record::VL_ARBITRATION, 1, &query);
    let seen: Vec<_> = blocks.iter().map(|one| (one.block(), one.table()[5])).collect();
    assert_eq!(seen, [(1, 1), (2, 2), (3, 3), (4, 4)]);
    assert_eq!(all::<VlArbitrationRecord>(switch, agents, record::VL_ARBITRATION, 5, &query).len(), 1);
    let guids: Vec<GuidInfoRecord> = all(switch, agents, record::GUID_INFO, 0, &NOTHING);
    let seen: Vec<_> = guids.iter().map(|one| (one.lid(), one.guids()[7], one.guids()[8])).collect();
    assert_eq!(seen, [(1, 0xa, 0x77), (2, 0xb, 0x77), (MANAGER_LID, 1, 0)]);
    let keys: Vec<PartitionKeyTableRecord> = all(switch, agents, record::PARTITION_KEYS, 0, &NOTHING);
    assert_eq!(keys.len(), 3);
    assert_eq!((keys[0].lid(), keys[0].port()), (1, 1));
    assert_eq!(keys[0].table()[..6], [0xff, 0xff, 0x80, 1, 0, 0]);
    let asked = request(method::GET_TABLE, record::PARTITION_KEYS, 0, &NOTHING);
    assert_eq!(
        ask(switch, agents, 0, &asked).mad.status(),
        sa_status::REQUEST_INVALID,
        "not without the key"
    );
}

/// A port that refuses its tables still comes up, and has no records of them.
#[test]
fn a_port_without_tables_has_no_records_of_them() {
    let mut shy = Agent::new(0xb);
    shy.refuses_tables = true;
    let (mut switch, agents) = swept(vec![Agent::new(0xa), shy]);
    assert!(switch.members().all(|member| member.is_active));
    let lanes: Vec<SlToVlRecord> = all(&mut switch, &agents, record::SL_TO_VL, 0, &NOTHING);
    assert_eq!(lanes.iter().map(SlToVlRecord::lid).collect::<Vec<_>>(), [1]);
}

/// Requirement: IBTA v1.4 §15.2.5.8: each block of a switch's multicast table that has entries has a record.
#[test]
fn groups_are_in_the_tables_of_switches() {
    let (mut switch, agents) = two();
    let blocks = |switch: &mut Switch| -> Vec<MulticastForwardingTableRecord> {
        all(switch, &agents, record::MULTICAST_FORWARDING, 0, &NOTHING)
    };
    assert!(blocks(&mut switch).is_empty());
    let mut member = McMemberRecord::new();
    member.set_mgid(BROADCAST).set_port_gid(gid(0xb)).set_join_state(1);
    let join = request(SET, record::MC_MEMBER, 1 | 2 | 1 << 16, &member);
    assert_eq!(ask(&mut switch, &agents, 1, &join).mad.status(), 0);
    let found = blocks(&mut switch);
    let [block] = &found[..] else { panic!("{found:?}") };
    assert_eq!((block.lid(), block.position(), block.block()), (MANAGER_LID, 0, 0));
    // The default partition's group has the first MLID.
    assert_eq!(block.masks()[..4], [0, 0b100, 0, 0], "port 2");
}

/// Requirement: IBTA v1.4 §15.2.5.10: each manager has an SMInfoRecord; the SM_Key is shown only to requesters that know
/// it.
#[test]
fn managers_have_records() {
    let mut rival = Agent::new(0xb);
    let mut info = SmInfo::new();
    rival.manager = Some(*info.set_guid(0xffff_ffff_ffff).set_sm_state(2).set_sm_key(5));
    let (mut switch, agents) = swept(vec![Agent::new(0xa), rival]);
    let found: Vec<SmInfoRecord> = all(&mut switch, &agents, record::SM_INFO, 0, &NOTHING);
    let seen: Vec<_> =
        found.iter().map(|one| (one.lid(), one.sm_info().sm_state(), one.sm_info().sm_key())).collect();
    assert_eq!(seen, [(2, 2, 5), (MANAGER_LID, 3, SM_KEY)]);
    let mut query = SmInfoRecord::new();
    query.sm_info_mut().set_sm_state(3);
    let master = ask(&mut switch, &agents, 0, &request(GET, record::SM_INFO, 1 << 6, &query));
    let master: SmInfoRecord = master.record().unwrap();
    assert_eq!((master.lid(), master.sm_info().sm_key()), (MANAGER_LID, 0));
}

/// Requirement: IBTA v1.4 §15.2.5.16: the path to a multicast GID is that of the group.
#[test]
fn a_path_leads_to_a_group() {
    let (mut switch, agents) = two();
    let mut query = PathRecord::new();
    query.set_dgid(BROADCAST).set_sgid(gid(0xa)).set_service_level(3);
    let response = ask(&mut switch, &agents, 0, &request(GET, record::PATH, 1 << 2 | 1 << 3, &query));
    let path: PathRecord = response.record().unwrap();
    assert_eq!((response.mad.status(), path.dlid(), path.slid(), path.sgid()), (0, 0xc000, 1, gid(0xa)));
    assert_eq!((path.mtu(), path.rate(), path.partition_key(), path.reversible()), (4, 3, 0xffff, false));
    let status = |switch: &mut Switch, mask, query: &PathRecord| {
        ask(switch, &agents, 0, &request(GET, record::PATH, mask, query)).mad.status()
    };
    let ends = 1 << 2 | 1 << 3;
    assert_eq!(status(&mut switch, ends | 1 << 15, &query), sa_status::NO_RECORDS, "another level");
    let mut nobody = BROADCAST;
    nobody[15] = 7;
    assert_eq!(status(&mut switch, ends, query.set_dgid(nobody)), sa_status::NO_RECORDS);
}

/// LIDs of the paths from some ports to others, queried at once.
fn paths(
    switch: &mut Switch,
    agents: &[Agent],
    mask: u64,
    record: &MultiPathRecord,
    gids: &[[u8; 16]],
) -> Result<Vec<(u16, u16)>, u16> {
    let mut asked = request(method::GET_MULTI, record::MULTI_PATH, mask, record);
    for (to, gid) in asked.data[MultiPathRecord::SIZE..].chunks_exact_mut(16).zip(gids) {
        to.copy_from_slice(gid);
    }
    let mut responses = send(switch, agents, 0, &asked.to_bytes());
    let response = responses.remove(0);
    if response.mad.status() != 0 {
        return Err(response.mad.status());
    }
    assert_eq!((response.mad.method(), response.rmpp.flags() & 1), (0x94, 1));
    let count = (response.rmpp.length() as usize - SaHeader::SIZE) / 64;
    let acknowledgement = acknowledge(&response, 1, 9);
    assert!(send(switch, agents, 0, &acknowledgement.to_bytes()).is_empty());
    let paths = response.data.chunks(64).take(count);
    let paths = paths.map(|path| PathRecord::read_from_prefix(path).expect("a path").0);
    Ok(paths.map(|path| (path.slid(), path.dlid())).collect())
}

/// Requirement: IBTA v1.4 §15.2.5.20: MultiPathRecord finds the paths from each of several ports to each of several
/// others.
#[test]
fn paths_between_many_ports_are_found_at_once() {
    let (mut switch, agents) = swept([0xa, 0xb, 0xc].map(Agent::new).into());
    let mut find =
        |mask, query: &MultiPathRecord, gids: &[[u8; 16]]| paths(&mut switch, &agents, mask, query, gids);
    let counts = 1 << 19 | 1 << 20;
    let gids = [gid(0xa), gid(0xb), gid(0xc)];
    let mut query = MultiPathRecord::new();
    query.set_sgid_count(1).set_dgid_count(2).set_number_of_paths(1);
    assert_eq!(find(counts, &query, &gids), Ok(vec![(1, 2), (1, 3)]));
    assert_eq!(find(counts | 1 << 6, &query, &gids), Ok(vec![(1, 2)]));
    assert_eq!(find(counts | 1 << 7, query.set_partition_key(0x8001), &gids), Ok(vec![(1, 2), (1, 3)]));
    assert_eq!(find(counts | 1 << 7, query.set_partition_key(0x8002), &gids), Ok(vec![]));
    assert_eq!(find(1 << 19, &query, &gids), Err(sa_status::INSUFFICIENT_COMPONENTS));
    assert_eq!(find(counts, &query, &[gid(0xa), gid(9)]), Err(sa_status::INVALID_GID));
    assert_eq!(find(counts, query.set_dgid_count(11), &gids), Err(sa_status::REQUEST_INVALID));
}
