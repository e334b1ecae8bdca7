use super::*;
use crate::transport::RetransmissionCause;
use crate::wire::BthOpcode;
use bareverbs_prm::ids::Cqn;
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus, CqeOpcode, WqeOpcode};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::Duration;
use proptest::prelude::*;

fn qpn() -> impl Strategy<Value = Qpn> {
    any::<u32>().prop_map(Qpn::from_low_bits)
}

fn cqn() -> impl Strategy<Value = Cqn> {
    any::<u32>().prop_map(Cqn::from_low_bits)
}

fn psn() -> impl Strategy<Value = Psn> {
    any::<u32>().prop_map(Psn::new)
}

/// Opcodes with and without a name.
fn work() -> impl Strategy<Value = WorkName> {
    (any::<u16>(), any::<u8>())
        .prop_map(|(index, opcode)| WorkName { index, opcode: WqeOpcode::from_raw(opcode) })
}

fn origin() -> impl Strategy<Value = FrameOrigin> {
    let why =
        prop_oneof![work().prop_map(FrameWork::Wqe), Just(FrameWork::KernelReply), Just(FrameWork::Answer)];
    let cause = prop::sample::select(RetransmissionCause::ALL.to_vec());
    let built = (0..1_u64 << 50).prop_map(|nanos| Time::ZERO + Duration::from_nanos(nanos));
    let (psn, cause, built) = (prop::option::of(psn()), prop::option::of(cause), prop::option::of(built));
    (qpn(), why, psn, cause, built).prop_map(|(qpn, work, psn, again, built)| FrameOrigin {
        qpn,
        work,
        psn,
        again,
        built,
    })
}

fn event() -> impl Strategy<Value = DeviceEvent> {
    use DeviceEvent as E;
    let queues = prop_oneof![
        (qpn(), any::<u16>()).prop_map(|(qpn, posted)| E::SendDoorbell { qpn, posted }),
        (qpn(), work(), any::<u32>()).prop_map(|(qpn, work, bytes)| E::WqeFetched { qpn, work, bytes }),
        (qpn(), any::<u16>()).prop_map(|(qpn, wqe)| E::WqeEnded { qpn, wqe }),
        origin().prop_map(E::LoopedBack),
        (qpn(), any::<u8>(), psn()).prop_map(|(qpn, opcode, psn)| {
            E::PacketReceived { qpn, opcode: BthOpcode::from_raw(opcode), psn }
        }),
    ];
    let others = prop_oneof![
        (cqn(), qpn(), any::<u16>(), 0..16_u8, any::<u8>()).prop_map(|(cqn, qpn, wqe, opcode, syndrome)| {
            E::CompletionWritten { cqn, qpn, wqe, opcode: CqeOpcode::from_raw(opcode), syndrome }
        }),
        (cqn(), any::<u32>()).prop_map(|(cqn, consumer)| E::CompletionArmed { cqn, consumer }),
        any::<u16>().prop_map(|vector| E::Interrupt { vector }),
        (any::<u16>(), any::<u8>()).prop_map(|(opcode, status)| E::CommandExecuted {
            opcode: CommandOpcode::from_raw(opcode),
            status: CommandStatus::from_raw(status),
        }),
        (qpn(), any::<u64>()).prop_map(|(qpn, kernel)| E::KernelCalled { qpn, kernel }),
        (any::<u64>(), any::<u32>()).prop_map(|(address, bytes)| E::KernelRead { address, bytes }),
        (qpn(), any::<u32>()).prop_map(|(qpn, bytes)| E::KernelReplied { qpn, bytes }),
    ];
    prop_oneof![queues, others]
}

proptest! {
    #[test]
    fn written_values_are_read_back(event in event()) {
        let text = event.to_string();
        prop_assert_eq!(DeviceEvent::parse(&text), Ok(event), "{}", text);
    }

    #[test]
    fn frame_origins_are_parsed_back(origin in origin()) {
        let text = origin.to_string();
        prop_assert_eq!(FrameOrigin::parse(&text), Ok(origin), "{}", text);
    }

    /// Captures may come from anyone.
    #[test]
    fn no_text_panics(text: String, prefix in prop::sample::select(vec!["", "cqe cq ", "qp 0x1 wqe ", "fetch qp "])) {
        let text = format!("{prefix}{text}");
        let _ = (DeviceEvent::parse(&text), FrameOrigin::parse(&text));
    }
}

#[test]
fn texts_are_those_of_the_documentation() {
    let origin = FrameOrigin {
        qpn: Qpn::from_low_bits(0x1a2),
        work: FrameWork::Wqe(WorkName { index: 17, opcode: WqeOpcode::RdmaWrite }),
        psn: Some(Psn::new(4711)),
        again: Some(RetransmissionCause::Timer),
        built: None,
    };
    assert_eq!(origin.to_string(), "qp 0x1a2 wqe 17 RDMA_WRITE psn 4711 (retransmission: timer)");
    assert_eq!(FrameOrigin::parse("fault: dropped"), Err(TextError));
    assert_eq!(DeviceEvent::parse("doorbell qp 0x1a2 posted 18 and more"), Err(TextError));
    assert_eq!(DeviceEvent::parse("doorbell qp 0x1000000 posted 18"), Err(TextError), "25 bits");
}

#[test]
fn records_that_nobody_fetches_are_counted() {
    let mut observer = Observer::default();
    for vector in 0..Observer::KEPT + 3 {
        observer.push(Time::ZERO, DeviceEvent::Interrupt { vector: vector as u16 });
    }
    assert_eq!((observer.take_lost(), observer.take_lost()), (3, 0));
    let first = observer.pop().map(|record| record.event);
    assert_eq!(
        first,
        Some(DeviceEvent::Interrupt { vector: 0 }),
        "the oldest stays: a timeline has a beginning"
    );
    assert_eq!(core::iter::from_fn(|| observer.pop()).count(), Observer::KEPT - 1);
}
