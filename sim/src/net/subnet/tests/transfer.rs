//! Answers of several segments.

use super::*;
use crate::wire::management::administration::{
    MultiPathRecord, NodeRecord, PathRecord, record, status as sa_status,
};
use bareverbs_prm::time::Duration;

type Edit<'a> = &'a dyn Fn(&mut AdministrationPacket);

const ALL_NODES: [u8; 0] = [];

/// A subnet whose node table needs many segments, and the request for it.
fn crowd() -> (Switch, Vec<Agent>, AdministrationPacket) {
    let agents = (1..=40).map(Agent::new).collect();
    let (switch, agents) = subnet_of(SubnetConfig::default(), agents);
    (switch, agents, request(method::GET_TABLE, record::NODE, 0, &ALL_NODES))
}

fn numbers(segments: &[AdministrationPacket]) -> Vec<u32> {
    segments.iter().map(|segment| segment.rmpp.segment()).collect()
}

/// Requirement: IBTA v1.4 §13.6.2.1: segments are numbered from 1; the first has the total length, the last its own, and
/// both count the class header of each segment.
#[test]
fn a_table_arrives_in_segments() {
    let (mut switch, agents, all) = crowd();
    let [first] = &send(&mut switch, &agents, 0, &all.to_bytes())[..] else { panic!("one segment") };
    // 41 records of 112 bytes make 22 segments of 200 bytes and one of 192.
    assert_eq!((first.rmpp.version(), first.rmpp.flags(), first.rmpp.length()), (1, 3, 23 * 20 + 41 * 112));
    assert_eq!(first.sa.attribute_offset(), 14);
    let rest = send(&mut switch, &agents, 0, &acknowledge(first, 1, 100).to_bytes());
    assert_eq!(numbers(&rest), (2..=23).collect::<Vec<_>>());
    assert_eq!((rest[0].rmpp.flags(), rest[0].rmpp.length()), (1, 0));
    assert_eq!((rest[21].rmpp.flags(), rest[21].rmpp.length()), (5, 20 + 192));
    assert!(!switch.is_settled_since(Time::ZERO), "a transfer is in progress");
    assert!(send(&mut switch, &agents, 0, &acknowledge(first, 23, 100).to_bytes()).is_empty());
    let (nodes, segments) = table::<NodeRecord>(&mut switch, &agents, 3, &all);
    assert_eq!((nodes.len(), segments), (41, 23));
}

/// Requirement: IBTA v1.4 §13.6.5: a request by reliable transfer is acknowledged, and its response is a transfer in the
/// other direction.
#[test]
fn a_request_by_reliable_transfer_is_acknowledged_and_answered() {
    let (mut switch, agents) = subnet(0);
    let mut query = MultiPathRecord::new();
    query.set_sgid_count(1).set_dgid_count(1);
    let mut asked = request(method::GET_MULTI, record::MULTI_PATH, 1 << 19 | 1 << 20, &query);
    asked.data[24..40].copy_from_slice(&gid(0xa));
    asked.data[40..56].copy_from_slice(&gid(0xb));
    asked.rmpp.set_version(1).set_kind(1).set_flags(7).set_segment(1).set_length(20 + 56);
    let said = send(&mut switch, &agents, 0, &asked.to_bytes());
    let [acknowledged, response] = &said[..] else { panic!("{said:?}") };
    assert_eq!((acknowledged.mad.method(), acknowledged.rmpp.kind()), (method::GET_MULTI | 0x80, 2));
    assert_eq!((acknowledged.rmpp.segment(), acknowledged.rmpp.length() > 0), (1, true));
    assert_eq!((response.mad.status(), response.rmpp.kind(), response.rmpp.flags()), (0, 1, 7));
    let path: PathRecord = response.record().expect("a record");
    assert_eq!((path.slid(), path.dlid()), (1, 2));
    // It has room for the response, and then has it.
    let turn = |number| {
        let mut packet = asked.clone();
        packet.rmpp.set_kind(2).set_flags(1).set_segment(number).set_length(number + 1);
        packet.to_bytes()
    };
    assert!(send(&mut switch, &agents, 0, &turn(0)).is_empty());
    assert!(send(&mut switch, &agents, 0, &turn(1)).is_empty());
    asked.rmpp.set_flags(3);
    let refused = send(&mut switch, &agents, 0, &asked.to_bytes());
    assert_eq!((refused.len(), refused[0].rmpp.kind()), (1, 3), "a request of several segments is stopped");
    asked.rmpp.set_flags(7);
    asked.sa.set_component_mask(0);
    let said = send(&mut switch, &agents, 0, &asked.to_bytes());
    assert_eq!(
        (said.len(), said[1].mad.status(), said[1].rmpp.flags()),
        (2, sa_status::INSUFFICIENT_COMPONENTS, 0)
    );
}

/// Requirement: IBTA v1.4 §13.6.6: the sender begins with one segment, and sends no more than the receiver's window
/// allows.
#[test]
fn the_window_of_the_receiver_is_kept() {
    let (mut switch, agents, all) = crowd();
    let mut arrived = send(&mut switch, &agents, 0, &all.to_bytes());
    assert_eq!(numbers(&arrived), [1]);
    let first = arrived.remove(0);
    let mut acknowledge_with = |number, window| {
        numbers(&send(&mut switch, &agents, 0, &acknowledge(&first, number, window).to_bytes()))
    };
    assert_eq!(acknowledge_with(1, 4), [2, 3, 4]);
    assert_eq!(acknowledge_with(1, 4), []);
    assert_eq!(acknowledge_with(3, 6), [5, 6]);
    assert_eq!(acknowledge_with(2, 9), [], "an old ACK");
}

/// Requirement: IBTA v1.4 §13.6.6: unacknowledged segments are retransmitted a few times, then the sender ends the
/// transfer.
#[test]
fn segments_are_sent_again_and_given_up() {
    let (mut switch, agents, all) = crowd();
    let mut arrived = send(&mut switch, &agents, 0, &all.to_bytes());
    let first = arrived.remove(0);
    send(&mut switch, &agents, 0, &acknowledge(&first, 1, 3).to_bytes());
    let mut heard = Vec::new();
    // In between, sweeps query the ports; ignore those packets.
    for round in 1..=6 {
        switch.handle_timeout(Time::ZERO + Duration::from_millis(200 * round));
        while let Some(Egress::Own { frame, .. }) = switch.poll() {
            let packet = parse(&frame).unwrap();
            if packet.bth.destination.value() == ASKER {
                heard.push(AdministrationPacket::of(packet.payload.try_into().unwrap()));
            }
        }
    }
    let abort = heard.pop().expect("an ABORT ends the transfer");
    assert_eq!(numbers(&heard), [2, 3].repeat(5));
    assert_eq!((abort.rmpp.kind(), abort.rmpp.status(), abort.rmpp.flags()), (4, 126, 1));
    assert!(
        send(&mut switch, &agents, 0, &acknowledge(&first, 1, 9).to_bytes()).is_empty(),
        "the transfer has ended"
    );
}

/// Requirement: IBTA v1.4 §13.6.2.2: a protocol violation ends the transfer with its reason; STOP and ABORT have no
/// response.
#[test]
fn protocol_violations_end_the_transfer() {
    let (mut switch, agents, all) = crowd();
    let edits: [(Edit<'_>, Option<(u8, u8)>); 7] = [
        (
            &|packet| {
                packet.rmpp.set_segment(3).set_length(2);
            },
            Some((4, 122)),
        ),
        (
            &|packet| {
                packet.rmpp.set_segment(9).set_length(9);
            },
            Some((4, 123)),
        ),
        (
            &|packet| {
                packet.rmpp.set_kind(7);
            },
            Some((4, 121)),
        ),
        (
            &|packet| {
                packet.rmpp.set_version(2);
            },
            Some((4, 125)),
        ),
        (
            &|packet| {
                packet.rmpp.set_kind(1);
            },
            Some((3, 1)),
        ),
        (
            &|packet| {
                packet.rmpp.set_kind(3);
            },
            None,
        ),
        (
            &|packet| {
                packet.rmpp.set_kind(4).set_status(118);
            },
            None,
        ),
    ];
    for (edit, expected) in edits {
        let first = send(&mut switch, &agents, 0, &all.to_bytes()).remove(0);
        let mut packet = acknowledge(&first, 1, 1);
        edit(&mut packet);
        let said = send(&mut switch, &agents, 0, &packet.to_bytes());
        let said: Vec<_> = said.iter().map(|packet| (packet.rmpp.kind(), packet.rmpp.status())).collect();
        assert_eq!(said, expected.into_iter().collect::<Vec<_>>());
    }
}

/// Requirement: IBTA v1.4 §15.4.1: the response for an empty table has no records.
#[test]
fn the_response_for_an_empty_table_has_no_records() {
    let (mut switch, agents, _) = crowd();
    let mut query = NodeRecord::new();
    query.set_lid(0x777);
    let none = request(method::GET_TABLE, record::NODE, 1, &query);
    let response = ask(&mut switch, &agents, 0, &none);
    assert_eq!((response.mad.status(), response.rmpp.flags(), response.rmpp.length()), (0, 7, 20));
    assert!(send(&mut switch, &agents, 0, &acknowledge(&response, 1, 1).to_bytes()).is_empty());
    assert_eq!(switch.poll_timeout().map(|due| due > Time::ZERO + Duration::from_millis(200)), Some(true));
}

/// Room for responses in flight is limited. A requester that finds none is told to retry later.
#[test]
fn responses_in_flight_are_limited() {
    let (mut switch, agents, mut all) = crowd();
    let mut refused = None;
    for transaction in 0..2_000 {
        all.mad.set_transaction(transaction);
        let response = ask(&mut switch, &agents, 0, &all);
        if response.mad.status() != 0 {
            refused = Some((transaction, response.mad.status()));
            break;
        }
    }
    assert_eq!(refused, Some((1_024, status::BUSY)));
}
