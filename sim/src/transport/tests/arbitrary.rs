//! Arbitrary packets never cause a panic or a write outside a checked range.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use proptest::prelude::*;

fn any_packet() -> impl Strategy<Value = (PacketHeader, Vec<u8>)> {
    let opcode = prop_oneof![8 => proptest::sample::select(BthOpcode::ALL), 1 => any::<u8>().prop_map(BthOpcode::from_raw)];
    let psn = prop_oneof![8 => 96..112u32, 1 => any::<u32>()];
    let length = prop_oneof![Just(256usize), Just(0), 0..300usize];
    let total = prop_oneof![4 => 0..1000u32, 1 => any::<u32>()];
    (opcode, psn, any::<(bool, bool, u8)>(), total, length).prop_map(|(opcode, psn, flags, total, length)| {
        let (solicited, ack_request, byte) = flags;
        let reth = Reth { address: BASE + u64::from(byte & 0xf8), rkey: RKEY, length: total };
        let aeth = Aeth { syndrome: Syndrome::from_raw(byte), msn: 0 };
        let atomic = AtomicEth { address: reth.address, rkey: RKEY, swap_or_add: 1, compare: 0 };
        let extension = match opcode.extension() {
            ExtensionKind::None => Extension::None,
            ExtensionKind::Reth => Extension::Reth(reth),
            ExtensionKind::RethImmediate => Extension::RethImmediate(reth, 1),
            ExtensionKind::Immediate => Extension::Immediate(1),
            ExtensionKind::Ieth => Extension::Ieth(1),
            ExtensionKind::Aeth => Extension::Aeth(aeth),
            ExtensionKind::AtomicAck => Extension::AtomicAck(aeth, 5),
            ExtensionKind::AtomicEth => Extension::AtomicEth(atomic),
            ExtensionKind::MaskedAtomicEth => Extension::MaskedAtomicEth(MaskedAtomicEth {
                atomic,
                swap_or_add_mask: 0xff,
                compare_mask: 0,
            }),
        };
        (PacketHeader { solicited, ack_request, ..header(opcode, psn, extension) }, vec![byte; length])
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    (0..8u8, 0..1500u32, any::<bool>(), 0..8u64).prop_map(|(kind, length, fence, token)| {
        let (address, rkey) = (BASE, RKEY);
        let operation = match kind {
            0 => Operation::Send { immediate: None, invalidate: None },
            1 => Operation::Send { immediate: Some(1), invalidate: Some(2) },
            2 => Operation::Write { address, rkey, immediate: Some(1) },
            3 => Operation::Read { address, rkey },
            4 => compare_swap(address, 0, 1),
            5 => fetch_add(address, 1),
            6 => Operation::RpcParams { rpc_opcode: 1, region: 2 },
            _ => Operation::RpcWrite { rpc_opcode: 1, region: 2 },
        };
        let service_header = crate::wire::ServiceHeader::None;
        Request { operation, length, token, solicited: fence, fence, service_header }
    })
}

#[derive(Debug, Clone)]
enum Step {
    Submit(Request),
    Transmit,
    Respond(PacketHeader, Vec<u8>),
    Timeout,
    Complete,
    Fail(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any_request().prop_map(Step::Submit),
        6 => Just(Step::Transmit),
        6 => any_packet().prop_map(|(header, payload)| Step::Respond(header, payload)),
        1 => Just(Step::Timeout),
        2 => Just(Step::Complete),
        1 => (0..40u64).prop_map(Step::Fail),
    ]
}

proptest! {
    #[test]
    fn responder_survives(packets in proptest::collection::vec(any_packet(), 0..60), receives in 0..6usize) {
        let mut host = Host::new(2048);
        (0..receives).for_each(|_| host.post(700));
        let mut responder = Responder::new(&parameters());
        for (header, payload) in &packets {
            responder.handle_request(&packet(*header, payload), &mut host);
            if payload.len() & 1 == 0 {
                let work = responder.has_work();
                let response = responder.poll_transmit();
                prop_assert_eq!(work, response.is_some());
                if let Some(payload) = response.and_then(|response| response.payload) {
                    host.read(&payload);
                }
            }
        }
        prop_assert!(host.errors.len() <= 1);
        let held = usize::from(responder.flush().is_some());
        prop_assert_eq!(receives, host.receives.len() + host.completions.len() + held);
    }

    #[test]
    fn requester_survives(steps in proptest::collection::vec(any_step(), 0..120)) {
        let mut requester = Requester::new(&parameters());
        let (mut now, mut submitted, mut ended) = (at(0), 0, 0);
        for step in steps {
            match step {
                Step::Submit(request) => submitted += usize::from(requester.submit(request).is_ok()),
                Step::Transmit => {
                    let work = requester.has_work();
                    let sent = requester.poll_transmit(now);
                    prop_assert_eq!(work, sent.is_some());
                    // The NIC takes a packet that follows without looking at the queue again.
                    if let Some(packet) = sent {
                        prop_assert_eq!(packet.is_followed, requester.has_work());
                    }
                }
                Step::Respond(header, payload) => {
                    requester.handle_response(now, &packet(header, &payload));
                }
                Step::Timeout => {
                    now = requester.poll_timeout().unwrap_or(now).max(now);
                    requester.handle_timeout(now);
                }
                Step::Complete => ended += usize::from(requester.poll_completion().is_some()),
                Step::Fail(token) => requester.fail(token, RequesterError::LocalProtection),
            }
            prop_assert_eq!(requester.outstanding(), submitted - ended);
        }
        requester.flush();
        while requester.poll_completion().is_some() {
            ended += 1;
        }
        prop_assert_eq!(submitted, ended);
        prop_assert_eq!(requester.poll_timeout(), None);
    }
}
