//! Event subscriptions and reports.

use super::*;
use crate::wire::management::administration::{
    InformInfoRecord, McMemberRecord, record, status as sa_status,
};
use crate::wire::management::attributes::{GidDetails, InformInfo, IssuedNotice, Notice};
use bareverbs_prm::time::Duration;
use proptest::prelude::*;

const ANY: u16 = 0xffff;
const GROUP: [u8; 16] = [0xff, 0x12, 0x60, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// A subscription to one trap or to all.
fn subscription(trap: u16) -> InformInfo {
    let mut info = InformInfo::new();
    info.set_lid_range_begin(ANY).set_is_generic(1).set_subscribe(1).set_kind(ANY).set_trap(trap);
    *info.set_producer(0xff_ffff)
}

fn subscribe(
    switch: &mut Switch,
    agents: &[Agent],
    from: usize,
    subscription: &InformInfo,
) -> (u16, InformInfo) {
    let response = ask(switch, agents, from, &request(SET, record::INFORM_INFO, 0, subscription));
    (response.mad.status(), response.record().expect("an attribute"))
}

/// Trap, issuer and details of the Reports that a port receives.
fn reports(switch: &mut Switch, to: usize) -> Vec<(u64, IssuedNotice)> {
    let heard = responses(switch, to);
    let reports = heard.iter().filter(|packet| packet.mad.method() == method::REPORT);
    reports.map(|packet| (packet.mad.transaction(), packet.record().expect("a notice"))).collect()
}

fn respond(switch: &mut Switch, agents: &[Agent], from: usize, transaction: u64) {
    let mut heard = request(method::REPORT_RESPONSE, attribute::NOTICE, 0, &[0_u8; 0]);
    heard.mad.set_transaction(transaction);
    assert!(send(switch, agents, from, &heard.to_bytes()).is_empty());
}

fn gid_of(report: &IssuedNotice) -> [u8; 16] {
    GidDetails::read_from_bytes(&report.notice().details()).expect("details").gid()
}

/// Requirement: IBTA v1.4 §13.4.11: a Report tells subscribers of ports that come and go, and is repeated until its
/// ReportResp arrives.
#[test]
fn ports_that_come_and_go_are_reported() {
    let (mut switch, mut agents) = subnet(0);
    let (status, info) = subscribe(&mut switch, &agents, 0, &subscription(64));
    assert_eq!((status, info.qpn()), (0, ASKER));
    assert_eq!(subscribe(&mut switch, &agents, 0, &subscription(65)).0, 0);
    switch.handle_link(Time::ZERO, 1, false);
    let [(transaction, gone)] = reports(&mut switch, 0)[..] else { panic!("one Report") };
    assert_eq!((gone.notice().trap(), gone.notice().kind(), gid_of(&gone)), (65, 3, gid(0xb)));
    assert_eq!(
        (gone.notice().issuer_lid(), gone.issuer_gid()),
        (MANAGER_LID, gid(SubnetConfig::default().guid))
    );
    respond(&mut switch, &agents, 0, transaction);
    agents[1] = Agent::new(0xb);
    switch.handle_link(Time::ZERO, 1, true);
    let mut heard = Vec::new();
    while let Some(Egress::Own { port, frame, .. }) = switch.poll() {
        if SubnetPacket::of(&parse(&frame).unwrap()).is_some() {
            let response = agents[port].answer(&frame);
            switch.handle_frame(Time::ZERO, port, &response);
        } else {
            heard.push(AdministrationPacket::of(parse(&frame).unwrap().payload.try_into().unwrap()));
        }
    }
    let [report] = &heard[..] else { panic!("{heard:?}") };
    let come: IssuedNotice = report.record().unwrap();
    assert_eq!((come.notice().trap(), gid_of(&come)), (64, gid(0xb)));
    assert!(!switch.is_settled_since(Time::ZERO), "a Report waits for its response");
}

/// Requirement: IBTA v1.4 §13.4.11: a Report without a response is repeated a few times, then given up.
#[test]
fn reports_are_sent_again_and_given_up() {
    let (mut switch, agents) = subnet(0);
    subscribe(&mut switch, &agents, 0, &subscription(ANY));
    switch.handle_link(Time::ZERO, 1, false);
    let first = reports(&mut switch, 0);
    assert_eq!(first.iter().map(|(_, report)| report.notice().trap()).collect::<Vec<_>>(), [128, 65]);
    respond(&mut switch, &agents, 0, first[0].0);
    let mut sent = Vec::new();
    for round in 1..=6 {
        switch.handle_timeout(Time::ZERO + Duration::from_millis(200 * round));
        while let Some(Egress::Own { frame, .. }) = switch.poll() {
            let packet = parse(&frame).unwrap();
            let is_report = packet.bth.destination.value() == ASKER;
            sent.extend(is_report.then(|| AdministrationPacket::of(packet.payload.try_into().unwrap())));
        }
    }
    let again: Vec<u64> = sent.iter().map(|packet| packet.mad.transaction()).collect();
    assert_eq!(again, [first[1].0; 3]);
}

/// At most 1,024 Reports wait for their responses. Further ones are dropped, and counted.
#[test]
fn reports_that_nobody_answers_have_a_limit() {
    let (mut switch, agents) = subnet(0);
    let subscriptions = 64;
    for last in MANAGER_LID..MANAGER_LID + subscriptions {
        let mut info = subscription(128);
        info.set_lid_range_begin(MANAGER_LID).set_lid_range_end(last);
        assert_eq!(subscribe(&mut switch, &agents, 0, &info).0, 0);
    }
    for event in 0..17 {
        switch.handle_link(Time::ZERO, 1, event % 2 == 1);
    }
    switch.handle_timeout(Time::ZERO);
    assert_eq!(switch.counters().management_dropped, 17 * u64::from(subscriptions) - 1024);
}

/// Requirement: IBTA v1.4 §13.4.8.3: a subscription covers one trap or all, of one issuer or a range of LIDs, until it is
/// cancelled.
#[test]
fn only_subscribed_events_are_reported() {
    let (mut switch, agents) = subnet(0);
    let mut other_issuer = subscription(ANY);
    other_issuer.set_lid_range_begin(1).set_lid_range_end(5);
    let mut other_gid = subscription(ANY);
    other_gid.set_gid(gid(0xb));
    let mut other_kind = subscription(ANY);
    other_kind.set_kind(2);
    let mut other_producer = subscription(ANY);
    other_producer.set_producer(1);
    let mut vendor = subscription(ANY);
    vendor.set_is_generic(0);
    for info in [subscription(66), other_issuer, other_gid, other_kind, other_producer, vendor] {
        assert_eq!(subscribe(&mut switch, &agents, 0, &info).0, 0);
    }
    switch.handle_link(Time::ZERO, 1, false);
    assert_eq!(reports(&mut switch, 0), []);
    let mut end = subscription(128);
    assert_eq!(subscribe(&mut switch, &agents, 0, &end).0, 0);
    assert_eq!(subscribe(&mut switch, &agents, 0, end.set_subscribe(0)).0, 0);
    switch.handle_link(Time::ZERO, 1, true);
    assert!(reports_of_trap(&mut switch, 128).is_empty());
    assert_eq!(subscribe(&mut switch, &agents, 0, &end).0, sa_status::REQUEST_INVALID, "there is none");
}

fn reports_of_trap(switch: &mut Switch, trap: u16) -> Vec<AdministrationPacket> {
    let frames = core::iter::from_fn(|| match switch.poll() {
        Some(Egress::Own { frame, .. }) => Some(frame),
        _ => None,
    });
    let general = frames.filter(|frame| parse(frame).unwrap().bth.destination.value() == ASKER);
    let packets =
        general.map(|frame| AdministrationPacket::of(parse(&frame).unwrap().payload.try_into().unwrap()));
    packets.filter(|packet| packet.record::<Notice>().unwrap().trap() == trap).collect()
}

/// Requirement: IBTA v1.4 §14.2.5.1: traps 66 and 67 announce created and deleted groups in the subscriber's partitions.
#[test]
fn groups_that_are_made_and_end_are_reported() {
    let config =
        SubnetConfig { partitions: Partitions::of_all(&[0xffff, 0x0001]), ..SubnetConfig::default() };
    let (mut switch, agents) = subnet_of(config, vec![Agent::new(0xa), Agent::new(0xb)]);
    subscribe(&mut switch, &agents, 0, &subscription(66));
    subscribe(&mut switch, &agents, 0, &subscription(67));
    let mut member = McMemberRecord::new();
    member.set_mgid(GROUP).set_port_gid(gid(0xb)).set_join_state(1).set_partition_key(0xffff).set_q_key(1);
    let mask = 1 | 2 | 4 | 1 << 6 | 1 << 7 | 1 << 12 | 1 << 13 | 1 << 16;
    let heard = |switch: &mut Switch, trap| reports_of_trap(switch, trap).len();
    for (method, trap) in [(SET, 66), (method::DELETE, 67)] {
        let asked = request(method, record::MC_MEMBER, mask, &member);
        let frame = general_frame(agents[1].lid, &asked.to_bytes(), GENERAL_SERVICES_QKEY, 0xffff);
        switch.handle_frame(Time::ZERO, 1, &frame);
        assert_eq!(heard(&mut switch, trap), 1);
    }
}

/// Requirement: IBTA v1.4 §13.4.9: the manager represses a trap of a port of the subnet, and reports it with its issuer.
#[test]
fn traps_are_repressed_and_reported() {
    let (mut switch, agents) = subnet(0);
    subscribe(&mut switch, &agents, 0, &subscription(257));
    let mut trap = SubnetPacket::lid_routed(Method::Trap, attribute::NOTICE, 9);
    let mut notice = Notice::new();
    notice.set_generic(true).set_kind(2).set_producer(1).set_trap(257).set_issuer_lid(agents[1].lid);
    trap.write(&notice);
    switch.handle_frame(Time::ZERO, 1, &trap.to_frame(agents[1].lid, MANAGER_LID).0);
    let Some(Egress::Own { port: 1, frame, .. }) = switch.poll() else { panic!("TrapRepress") };
    let heard = SubnetPacket::of(&parse(&frame).unwrap()).unwrap();
    assert_eq!((heard.method(), heard.transaction(), heard.data()), (Method::TrapRepress, 9, trap.data()));
    let [(_, report)] = reports(&mut switch, 0)[..] else { panic!("one Report") };
    assert_eq!((report.notice(), report.issuer_gid()), (&notice, gid(0xb)));
    trap.write(notice.set_issuer_lid(agents[0].lid));
    switch.handle_frame(Time::ZERO, 1, &trap.to_frame(agents[1].lid, MANAGER_LID).0);
    assert_eq!(switch.poll(), None, "a port may not speak for another port");
    let stranger = notice.set_issuer_lid(0x777);
    trap.write(stranger);
    switch.handle_frame(Time::ZERO, 1, &trap.to_frame(0x777, MANAGER_LID).0);
    assert_eq!(switch.poll(), None, "not a port of the subnet");
}

/// Requirement: IBTA v1.4 §15.2.5.12: each subscription has an InformInfoRecord.
#[test]
fn subscriptions_are_shown() {
    let (mut switch, agents) = subnet(0);
    for (port, trap) in [(0, 64), (0, 65), (1, 66), (0, 64)] {
        assert_eq!(subscribe(&mut switch, &agents, port, &subscription(trap)).0, 0);
    }
    let mut asked = InformInfoRecord::new();
    asked.set_subscriber_gid(gid(0xa)).set_subscriber_enum(1);
    let mut found = |mask| {
        let all = request(method::GET_TABLE, record::INFORM_INFO_RECORD, mask, &asked);
        let (records, _) = table::<InformInfoRecord>(&mut switch, &agents, 1, &all);
        records.iter().map(|one| (one.subscriber_gid()[15], one.inform_info().trap())).collect::<Vec<_>>()
    };
    assert_eq!(found(0), [(0xa, 64), (0xa, 65), (0xb, 66)]);
    assert_eq!(found(1), [(0xa, 64), (0xa, 65)]);
    assert_eq!(found(3), [(0xa, 65)]);
    switch.handle_link(Time::ZERO, 0, false);
    while switch.poll().is_some() {}
    let all = request(method::GET_TABLE, record::INFORM_INFO_RECORD, 0, &[0_u8; 0]);
    let (records, _) = table::<InformInfoRecord>(&mut switch, &agents, 1, &all);
    assert_eq!(records.len(), 1, "the subscriptions of a departed port are gone");
}

#[test]
fn subscriptions_are_limited() {
    let (mut switch, agents) = subnet(0);
    let mut status = |trap| subscribe(&mut switch, &agents, 0, &subscription(trap)).0;
    assert!((0..64).all(|trap| status(trap) == 0));
    assert_eq!(status(64), sa_status::NO_RESOURCES);
    assert_eq!(status(63), 0, "it exists already");
}

proptest! {
    /// A subscription selects exactly by its type, trap, producer and issuer.
    #[test]
    fn a_subscription_matches_as_it_says(
        (kind, trap, producer) in (prop_oneof![Just(ANY), 0..5_u16], prop_oneof![Just(ANY), 126..130_u16], prop_oneof![Just(0xff_ffff_u32), 0..4_u32]),
        (begin, end) in (prop_oneof![Just(ANY), Just(1_u16), Just(MANAGER_LID)], prop_oneof![Just(5_u16), Just(MANAGER_LID)]),
    ) {
        let (mut switch, agents) = subnet(0);
        let mut info = subscription(trap);
        info.set_kind(kind).set_producer(producer).set_lid_range_begin(begin).set_lid_range_end(end);
        let is_range = begin == ANY || begin <= end;
        prop_assert_eq!(subscribe(&mut switch, &agents, 0, &info).0 == 0, is_range);
        switch.handle_link(Time::ZERO, 1, false);
        let suits = is_range && (kind == ANY || kind == 1) && (trap == ANY || trap == 128)
            && (producer == 0xff_ffff || producer == 2) && (begin == ANY || (begin..=end).contains(&MANAGER_LID));
        prop_assert_eq!(reports_of_trap(&mut switch, 128).len(), usize::from(suits));
    }
}
