//! Comments state the origin of each frame, and records the actions of devices.

use super::*;
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_sim::nic::{DeviceEvent, FrameWork};
use bareverbs_sim::run::RecordText;
use std::collections::BTreeMap;

fn lossy() -> TrafficConfig {
    TrafficConfig { loss: 0.1, ..TrafficConfig::default() }
}

/// A retransmitted frame belongs to the same work request as before.
#[test]
fn every_frame_names_its_queue_pair_and_a_request_its_work_request() {
    let captured = Captured::new(lossy(), steps(40));
    let mut sent = BTreeMap::new();
    let (mut again, mut answers) = (0, 0);
    captured.each(|item| {
        let frame = frame_of(item);
        let packet = frame.packet.as_ref().expect("RoCE");
        let origin = frame.origin.expect("every frame is of a queue pair");
        assert_eq!(origin.psn, Some(packet.bth.psn));
        assert!(origin.built.is_some_and(|built| built.as_nanos() < frame.nanos));
        let FrameWork::Wqe(work) = origin.work else {
            assert!(packet.bth.opcode.is_response() && origin.work == FrameWork::Answer);
            answers += 1;
            return;
        };
        assert!(!packet.bth.opcode.is_response() && work.opcode == WqeOpcode::Send);
        let before = sent.insert((frame.interface, origin.qpn, packet.bth.psn.value()), work);
        assert_eq!(before.is_some(), origin.again.is_some(), "{origin}");
        assert!(before.is_none_or(|before| before == work), "{origin}");
        again += u32::from(before.is_some());
    });
    let requests: BTreeSet<u16> = sent.values().map(|work| work.index).collect();
    assert!(again > 0 && answers > 0 && requests.len() == 40, "{again} {answers} {requests:?}");
}

/// Observing changes nothing: the same happens without it.
#[test]
fn a_recording_changes_nothing_on_the_wire() {
    let digest = |start: fn(&Traffic, Box<dyn Write>)| {
        let mut digest = 0;
        let captured = Captured::begin(lossy(), start, |traffic| {
            steps(20)(traffic);
            digest = traffic.digest();
        });
        (captured.frames, digest)
    };
    let recorded = digest(Traffic::start_recording);
    assert_eq!(recorded, digest(Traffic::start_capture));
    let mut plain = Traffic::start(lossy()).expect("two hosts");
    steps(20)(&mut plain);
    assert_eq!(recorded.1, plain.digest());
}

/// Each work request is posted, fetched and completed, in this order, and both sides learn of their
/// completions by an interrupt or by polling.
#[test]
fn records_follow_a_work_request_from_doorbell_to_completion() {
    let captured = Captured::recorded(TrafficConfig::default(), steps(20));
    let mut stages: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    let mut received = 0;
    let mut doorbell = None;
    captured.each(|item| {
        let Item::Record(record) = item else { return };
        let RecordText::Device(event) = record.what.expect("a record of ours") else { return };
        match event {
            DeviceEvent::SendDoorbell { posted, .. } => doorbell = Some(posted),
            DeviceEvent::WqeFetched { work, bytes, .. } => {
                assert!(doorbell.is_some_and(|posted| posted > work.index) && bytes == 4096);
                stages.entry(work.index).or_default().push("fetched");
            }
            DeviceEvent::CompletionWritten { wqe, syndrome, .. } if record.interface == 0 => {
                assert_eq!(syndrome, 0);
                stages.entry(wqe).or_default().push("completed");
            }
            DeviceEvent::PacketReceived { .. } if record.interface == 1 => received += 1,
            _ => {}
        }
    });
    assert!(
        stages.len() == 20 && stages.values().all(|seen| seen == &["fetched", "completed"]),
        "{stages:?}"
    );
    assert_eq!(received, 20 * 4, "packets of 1,024 bytes");
}
