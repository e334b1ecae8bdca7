//! Arbitrary packets to the SM: it never panics, and only answers requests that may have a response.

use super::further_switch::{configure, further_switch};
use super::*;
use proptest::prelude::*;

/// A random datagram whose fields often have valid values.
fn datagram() -> impl Strategy<Value = [u8; SIZE]> {
    let known = |values: &'static [u8]| prop_oneof![3 => prop::sample::select(values), 1 => any::<u8>()];
    let header = (
        known(&[1]),
        known(&[0x01, 0x03, 0x04, 0x05, 0x07, 0x81]),
        known(&[1, 2]),
        known(&[1, 2, 5, 7, 0x12, 0x15, 0x81, 0x92]),
        known(&[0x01, 0x02, 0x10, 0x11, 0x12, 0x14, 0x15, 0x16, 0x19, 0x1b, 0x20, 0x31, 0x35, 0x38]),
        known(&[0, 1, 3, 7]),
        known(&[0, 1, 2, 3, 4]),
    );
    let mask = prop_oneof![Just(0_u64), Just(0x1_0083), any::<u64>()];
    (header, mask, prop::collection::vec(any::<u8>(), SIZE), any::<bool>()).prop_map(
        |((base, class, version, method, number, flags, kind), mask, rest, is_plain)| {
            let mut bytes: [u8; SIZE] = rest.try_into().expect("its length");
            bytes[..4].copy_from_slice(&[base, class, version, method]);
            bytes[16..18].copy_from_slice(&[0, number]);
            bytes[24..27].copy_from_slice(&[1, kind, flags]);
            bytes[48..56].copy_from_slice(&mask.to_be_bytes());
            if is_plain {
                bytes[36..44].fill(0);
                bytes[57..72].copy_from_slice(&gid(0xa)[1..]);
                bytes[72..88].copy_from_slice(&gid(0xb));
            }
            bytes
        },
    )
}

/// Whether a datagram to queue pair 1 may have a response (IBTA v1.4 §13.4.5, §13.6.2).
fn may_be_answered(bytes: &[u8; SIZE]) -> bool {
    let packet = AdministrationPacket::of(bytes);
    let is_ours = packet.mad.class() == class::ADMINISTRATION && packet.mad.class_version() == CLASS_VERSION;
    let is_transfer = is_ours && packet.rmpp.flags() & 1 != 0;
    let ends = matches!(packet.rmpp.kind(), 3 | 4);
    let has_key = !is_ours || is_transfer || matches!(packet.sa.sm_key(), 0 | SM_KEY);
    let is_asked = matches!(packet.mad.method(), 1 | 2 | 6 | 0x12..=0x15);
    packet.mad.base_version() == 1 && has_key && if is_transfer { !ends } else { is_asked }
}

proptest! {
    /// Requirement: IBTA v1.4 §13.4.5: queue pair 1 of the manager responds only to requests, to their sender and with
    /// their transaction ID.
    #[test]
    fn only_requests_get_responses(datagrams in prop::collection::vec(datagram(), 1..12)) {
        let (mut switch, agents) = subnet(0);
        for bytes in &datagrams {
            let responses = send(&mut switch, &agents, 0, bytes);
            prop_assert!(responses.is_empty() || may_be_answered(bytes), "{responses:?}");
            for response in responses {
                prop_assert_eq!(response.mad.method() & 0x80, 0x80);
                prop_assert_eq!(response.mad.transaction(), MadHeader::of(bytes).transaction());
            }
        }
    }

    /// Requirement: IBTA v1.4 §14.2.2: on the management lane, the switch responds only to requests whose route ends
    /// there.
    #[test]
    fn only_requests_on_the_management_lane_are_answered(bytes in datagram(), lid in any::<u16>()) {
        let (mut switch, agents) = subnet(0);
        let Some(packet) = SubnetPacket::from_payload(&bytes) else { return Ok(()) };
        for destination in [MANAGER_LID, lid] {
            let (frame, _) = packet.to_frame(agents[0].lid, destination);
            switch.handle_frame(Time::ZERO, 0, &frame);
            let responses = core::iter::from_fn(|| switch.poll()).filter(|egress| matches!(egress, Egress::Own { .. }));
            let passes = packet.clone().pass(1).is_some() || packet.clone().return_by_lid().is_some();
            let may = passes || packet.method().has_response() && !packet.is_returning();
            prop_assert!(responses.count() <= usize::from(may));
        }
    }

    /// Requirement: IBTA v1.4 §14.2.2: on the management lane, a switch without a manager responds only to requests whose
    /// route ends there, and forwards only directed routes that continue, by a port with a link.
    #[test]
    fn a_further_switch_survives_arbitrary_packets(datagrams in prop::collection::vec((datagram(), any::<(u8, u8)>()), 1..20)) {
        let mut switch = further_switch();
        for (mut bytes, (pointer, count)) in datagrams {
            (bytes[6], bytes[7]) = (pointer % 5, count % 5);
            bytes[128..192].iter_mut().for_each(|port| *port %= 6);
            let Some(packet) = SubnetPacket::from_payload(&bytes) else { continue };
            switch.handle_frame(Time::ZERO, 1, &packet.to_frame(9, PERMISSIVE_LID).0);
            let sent: Vec<Egress> = core::iter::from_fn(|| switch.poll()).collect();
            prop_assert!(sent.len() <= 1, "{sent:?}");
            let passes = packet.clone().pass(2).is_some();
            prop_assert!(sent.is_empty() || passes || packet.method().has_response() && !packet.is_returning());
            for egress in sent {
                let Egress::Own { port, .. } = egress else { return Err(TestCaseError::fail("no LID is known")) };
                prop_assert!(port < 3);
            }
        }
    }

    /// Requirement: IBTA v1.4 §13.4.5: a switch without a manager sends one response to each request for queue pair 1,
    /// and none to other packets.
    #[test]
    fn queue_pair_1_of_a_further_switch_answers_requests(datagrams in prop::collection::vec(datagram(), 1..12)) {
        let mut switch = further_switch();
        configure(&mut switch);
        for bytes in &datagrams {
            let frame = general_frame_between([9, 7], bytes, GENERAL_SERVICES_QKEY, 0xffff);
            switch.handle_frame(Time::ZERO, 0, &frame);
            let sent: Vec<Egress> = core::iter::from_fn(|| switch.poll()).collect();
            let header = MadHeader::of(bytes);
            let is_asked = header.base_version() == 1 && Method::from_raw(header.method()).has_response();
            prop_assert_eq!(sent.len(), usize::from(is_asked), "{:?}", sent);
            for egress in sent {
                let Egress::Own { port: 2, frame, .. } = egress else { return Err(TestCaseError::fail("another port")) };
                let packet = parse(&frame).expect("a packet");
                let response = MadHeader::of(packet.payload.try_into().expect("a datagram"));
                prop_assert_eq!((response.method() & 0x80, response.transaction()), (0x80, header.transaction()));
                prop_assert!(header.class() == class::PERFORMANCE || response.status() == status::BAD_VERSION);
            }
        }
    }

    #[test]
    fn malformed_packets_are_not_answered(frame in prop::collection::vec(any::<u8>(), 0..400), to_manager in any::<bool>()) {
        let (mut switch, _) = subnet(0);
        let mut frame = frame;
        if to_manager && frame.len() > 4 {
            frame[2..4].copy_from_slice(&MANAGER_LID.to_be_bytes());
        }
        switch.handle_frame(Time::ZERO, 0, &frame);
        let said = switch.poll().is_some_and(|egress| matches!(egress, Egress::Own { .. }));
        prop_assert!(!said);
    }
}
