use super::*;
use crate::run::Seed;

fn faults() -> Faults {
    Faults::new(Seed(7).stream("test"))
}

fn roce(opcode: u8) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
    frame[14] = 0x45;
    frame[36..38].copy_from_slice(&ROCE_PORT.to_be_bytes());
    frame[42] = opcode;
    frame
}

#[test]
fn opcode_is_found_behind_vlan_and_both_ips() {
    assert_eq!(bth_opcode(&roce(0x0a)), Some(0x0a));
    let mut tagged = roce(0x11);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert_eq!(bth_opcode(&tagged), Some(0x11));
    let mut v6 = vec![0; 90];
    v6[12..14].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
    v6[56..58].copy_from_slice(&ROCE_PORT.to_be_bytes());
    v6[62] = 0x04;
    assert_eq!(bth_opcode(&v6), Some(0x04));
    for length in 0..43 {
        assert_eq!(bth_opcode(&roce(1)[..length.min(42)]), None);
    }
}

#[test]
fn script_counts_frames_and_opcodes() {
    let mut faults = faults();
    faults.arm(FaultId(0), ScriptedFault { when: Trigger::Frame(3), action: Action::Drop });
    let second_ack = Trigger::Opcode { opcode: 0x11, nth: 2 };
    faults.arm(FaultId(1), ScriptedFault { when: second_ack, action: Action::Duplicate });
    let verdicts: Vec<_> =
        [0x0a, 0x11, 0x0a, 0x11, 0x11].map(|opcode| faults.judge(Time::ZERO, &mut roce(opcode))).into();
    let dropped: Vec<_> = verdicts.iter().map(|verdict| verdict.fate == Fate::Dropped).collect();
    let doubled: Vec<_> = verdicts.iter().map(|verdict| verdict.duplicate).collect();
    assert_eq!(dropped, [false, false, true, false, false]);
    assert_eq!(doubled, [false, false, false, true, false]);
    assert_eq!(faults.unfired().count(), 0);
}

#[test]
fn faults_that_never_fired_are_reported() {
    let mut faults = faults();
    let fault = ScriptedFault { when: Trigger::Frame(3), action: Action::Drop };
    faults.arm(FaultId(4), fault);
    faults.judge(Time::ZERO, &mut roce(1));
    assert_eq!(faults.unfired().collect::<Vec<_>>(), [(FaultId(4), fault, 1)]);
}

#[test]
fn a_flipped_bit_is_one_bit() {
    let mut faults = faults();
    faults.arm(FaultId(0), ScriptedFault { when: Trigger::Frame(1), action: Action::FlipBit(9) });
    let mut frame = vec![0; 4];
    assert_eq!(faults.judge(Time::ZERO, &mut frame).fate, Fate::Corrupted);
    assert_eq!(frame, [0, 0x40, 0, 0]);
    let mut empty = Faults::new(Seed(1).stream("x"));
    empty.arm(FaultId(0), ScriptedFault { when: Trigger::Frame(1), action: Action::FlipBit(9) });
    assert_eq!(empty.judge(Time::ZERO, &mut []).fate, Fate::Delivered);
}

#[test]
fn a_cut_cable_loses_everything_for_a_while() {
    let mut faults = faults();
    let when = Trigger::During { from: Time::from_picos(10), until: Time::from_picos(20) };
    faults.arm(FaultId(0), ScriptedFault { when, action: Action::Drop });
    let lost =
        [9, 10, 19, 20].map(|at| faults.judge(Time::from_picos(at), &mut roce(1)).fate == Fate::Dropped);
    assert_eq!(lost, [false, true, true, false]);
}

#[test]
fn random_faults_occur_at_their_configured_rates() {
    let mut faults = faults();
    faults.set_random(RandomFaults {
        loss: Chance::from_ratio(0.05),
        duplicate: Chance::from_ratio(0.02),
        corrupt: Chance::from_ratio(0.01),
        reorder: Chance::from_ratio(0.1),
        reorder_by: Duration::from_nanos(500),
        jitter: Duration::ZERO,
    });
    let verdicts: Vec<_> = (0..20_000).map(|_| faults.judge(Time::ZERO, &mut roce(1))).collect();
    let count = |wanted: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| wanted(verdict)).count();
    assert!((900..1_100).contains(&count(|verdict| verdict.fate == Fate::Dropped)));
    assert!((320..480).contains(&count(|verdict| verdict.duplicate)));
    assert!((1_850..2_150).contains(&count(|verdict| verdict.delay != Duration::ZERO)));
    assert!(verdicts.iter().all(|verdict| verdict.delay <= Duration::from_nanos(500)));
}

#[test]
fn impossible_ratios_are_clamped() {
    assert_eq!(Chance::from_ratio(f64::NAN), Chance::NEVER);
    assert_eq!(Chance::from_ratio(-1.0), Chance::NEVER);
    assert_eq!(Chance::from_ratio(9.0), Chance::ALWAYS);
}

#[test]
fn opcode_of_infiniband_is_found_behind_either_route_header() {
    let mut frame = vec![0; 60];
    (frame[8], frame[48]) = (0x64, 0x0a);
    for (next, opcode) in [(2, Some(0x64)), (3, Some(0x0a)), (0, None)] {
        frame[1] = next;
        assert_eq!(infiniband_opcode(&frame), opcode);
    }
    frame[1] = 2;
    let mut faults = faults().of_infiniband();
    faults.arm(
        FaultId(0),
        ScriptedFault { when: Trigger::Opcode { opcode: 0x64, nth: 1 }, action: Action::Drop },
    );
    assert_eq!(faults.judge(Time::ZERO, &mut frame).fate, Fate::Dropped);
}
