extern crate std;
use super::*;
use bareverbs_prm::numbering::QpState::{Error, Init, Reset, Rtr, Rts, SqDrained, SqError};
use bareverbs_prm::numbering::{CommandOpcode, ServiceType};
use std::string::ToString;

const NONE: Attributes = Attributes::NONE;
const COLUMNS: [Column; 5] = [Column::Rc, Column::Uc, Column::Ud, Column::XrcInitiator, Column::XrcTarget];

/// Requirement: IBTA v1.4 §10.3.1: RESET and ERROR can be entered from every state.
#[test]
fn every_state_can_be_left_to_reset_and_error() {
    for (service, from) in
        COLUMNS.map(|c| [Init, Rtr, Rts, SqDrained, SqError, Error, Reset].map(|s| (c, s))).concat()
    {
        for to in [Reset, Error] {
            assert!(check(service, from, to, NONE).is_ok(), "{service:?} {from} to {to}");
        }
    }
}

#[test]
fn no_way_is_listed_twice_and_no_attribute_is_both() {
    for (i, transition) in TRANSITIONS.iter().enumerate() {
        assert!(
            !TRANSITIONS[..i].iter().any(|other| (other.from, other.to) == (transition.from, transition.to))
        );
        for service in COLUMNS {
            let required = transition.required.of(service);
            assert_eq!(required.without(transition.optional.of(service)), required);
        }
    }
}

/// Requirement: IBTA v1.4 §11.2.5.2: a modify with missing or forbidden attributes is refused, and the error names them.
#[test]
fn errors_name_missing_and_extra_attributes() {
    let transition = check(Column::Rc, Init, Rtr, TRANSITIONS[5].required.rc).unwrap();
    assert_eq!(transition.command, CommandOpcode::InitToRtrQp);
    let given = transition.required.rc.without(Attributes::PATH_MTU).with(Attributes::SEND_PSN);
    let error = check(Column::Rc, Init, Rtr, given).unwrap_err();
    let (missing, forbidden) = (Attributes::PATH_MTU, Attributes::SEND_PSN);
    assert_eq!(error, TransitionError::WrongAttributes { from: Init, to: Rtr, missing, forbidden });
    assert_eq!(error.to_string(), "from INIT(0x1) to RTR(0x2): give path MTU; do not give first PSN to send");
    assert_eq!(
        check(Column::Rc, Reset, Rts, NONE).unwrap_err(),
        TransitionError::NoSuchTransition { from: Reset, to: Rts }
    );
}

/// Required and optional attributes of each column as in IBTA's tables, independent of how the driver's table
/// is written.
/// Requirement: IBTA v1.4 §11.2.5.2: each transition and service has its own required and optional attributes
#[test]
fn the_columns_are_those_of_the_specification() {
    use Attributes as A;
    let of = |from, to, service: Column| {
        let transition =
            TRANSITIONS.iter().find(|transition| (transition.from, transition.to) == (from, to)).unwrap();
        (transition.required.of(service), transition.optional.of(service))
    };
    let rtr = A::PATH | A::PATH_MTU | A::REMOTE_QPN | A::RECEIVE_PSN;
    let serves = rtr | A::MAX_RESPONDER_READS | A::MIN_RNR_TIMER;
    let rts = A::SEND_PSN | A::ACK_TIMEOUT | A::RETRY_COUNT | A::RNR_RETRY | A::MAX_REQUESTER_READS;
    let runs = A::ALTERNATE_PATH | A::PATH_MIGRATION | A::ACCESS;
    let rows = [
        (Column::Rc, serves, rts, runs | A::MIN_RNR_TIMER),
        (Column::Uc, rtr, A::SEND_PSN, runs),
        (Column::Ud, NONE, A::SEND_PSN, A::Q_KEY),
        (Column::XrcInitiator, rtr, rts, runs),
        (Column::XrcTarget, serves, A::SEND_PSN | A::ACK_TIMEOUT, runs | A::MIN_RNR_TIMER),
    ];
    for (service, to_receive, to_send, running) in rows {
        assert_eq!(of(Init, Rtr, service).0, to_receive, "{service:?}");
        assert_eq!(of(Rtr, Rts, service), (to_send, running), "{service:?}");
        assert_eq!(of(Rts, Rts, service), (NONE, running), "{service:?}");
        assert_eq!(of(SqDrained, Rts, service), (NONE, running), "{service:?}");
        assert_eq!(of(Rts, SqDrained, service), (NONE, A::DRAINED_EVENT), "{service:?}");
    }
    let anything = of(SqDrained, SqDrained, Column::Rc).1;
    for changed in [A::PATH, A::PORT, A::ACK_TIMEOUT, A::RETRY_COUNT, A::RNR_RETRY, A::PKEY_INDEX] {
        assert!(anything.contains(changed), "{changed}");
    }
    assert!(!of(SqDrained, SqDrained, Column::XrcInitiator).1.contains(A::MAX_RESPONDER_READS));
    assert!(!of(SqDrained, SqDrained, Column::XrcTarget).1.contains(A::RETRY_COUNT));
    assert_eq!(of(SqDrained, SqDrained, Column::Ud).1, A::PKEY_INDEX | A::Q_KEY);
}

/// Requirement: IBTA v1.4 §11.2.5.2: an XRC initiator has no responder attributes, an XRC target no requester attributes;
/// the error names each missing or extra one.
#[test]
fn each_end_of_xrc_has_its_half_of_a_connection() {
    use Attributes as A;
    let wrong = |column, (from, to), given| match check(column, from, to, given).unwrap_err() {
        TransitionError::WrongAttributes { missing, forbidden, .. } => (missing, forbidden),
        other => panic!("{other}"),
    };
    let transition = |from, to| {
        TRANSITIONS.iter().find(|transition| (transition.from, transition.to) == (from, to)).unwrap().required
    };
    let (responder, requester) =
        (A::MAX_RESPONDER_READS | A::MIN_RNR_TIMER, A::RETRY_COUNT | A::RNR_RETRY | A::MAX_REQUESTER_READS);
    let (to_receive, to_send) = (transition(Init, Rtr), transition(Rtr, Rts));
    assert_eq!(wrong(Column::XrcInitiator, (Init, Rtr), to_receive.rc), (NONE, responder));
    assert_eq!(wrong(Column::XrcTarget, (Init, Rtr), to_receive.xrc_initiator), (responder, NONE));
    assert_eq!(wrong(Column::XrcTarget, (Rtr, Rts), to_send.rc), (NONE, requester));
    assert_eq!(wrong(Column::XrcInitiator, (Rtr, Rts), to_send.xrc_target), (requester, NONE));
    assert_eq!(wrong(Column::XrcInitiator, (Rts, Rts), A::MIN_RNR_TIMER), (NONE, A::MIN_RNR_TIMER));
    assert_eq!(wrong(Column::XrcTarget, (SqDrained, SqDrained), requester), (NONE, requester));
}

/// Requirement: IBTA v1.4 §10.3.1.6: only unacknowledged services have the state SQE.
#[test]
fn a_reliable_service_has_no_way_out_of_sqe_but_reset_and_error() {
    assert!(check(Column::Ud, SqError, Rts, Attributes::Q_KEY).is_ok());
    assert!(check(Column::Uc, SqError, Rts, Attributes::ACCESS).is_ok());
    for service in [Column::Rc, Column::XrcInitiator, Column::XrcTarget] {
        assert_eq!(
            check(service, SqError, Rts, NONE).unwrap_err(),
            TransitionError::NoSuchTransition { from: SqError, to: Rts }
        );
    }
}

#[test]
fn path_migration_is_refused_with_its_reason() {
    for attribute in [Attributes::ALTERNATE_PATH, Attributes::PATH_MIGRATION] {
        let error = check(Column::Rc, Rts, Rts, attribute).unwrap_err();
        assert_eq!(error, TransitionError::NoPathMigration);
    }
    assert!(TransitionError::NoPathMigration.to_string().contains("RoCE has none"));
}

#[test]
fn xrc_is_told_apart_by_its_send_queue() {
    assert_eq!(Column::of(ServiceType::Xrc, true), Column::XrcInitiator);
    assert_eq!(Column::of(ServiceType::Xrc, false), Column::XrcTarget);
    assert_eq!(Column::of(ServiceType::Qp1, true), Column::Ud);
}
