//! The table of transitions: between which states, by which command, with which attributes for each service
//! (IBTA v1.4 §10.3.1 and §11.2.5.2, tables 91 to 96).
//!
//! RTS2SQD and SQD2SQD are commands from the first public headers of mlx5 (Linux 3.11 to 4.1). A device that
//! has dropped them answers with a bad opcode.

use super::attribute_set::Attributes;
use bareverbs_prm::numbering::CommandOpcode::{
    self, InitToInitQp, InitToRtrQp, ResetToInitQp, RtrToRtsQp, RtsToRtsQp, RtsToSqdQp, SqErrorToRtsQp,
    SqdToRtsQp, SqdToSqdQp, ToErrorQp, ToResetQp,
};
use bareverbs_prm::numbering::QpState::{self, Error, Init, Reset, Rtr, Rts, SqDrained, SqError};
use bareverbs_prm::numbering::ServiceType;

/// A column of the table. XRC has two, because the initiator only sends and the target only receives.
///
/// ```
/// use bareverbs_core::queue_pair::transitions::{Attributes, Column, TRANSITIONS};
/// use bareverbs_prm::numbering::{QpState, ServiceType};
///
/// let column = Column::of(ServiceType::Ud, true);
/// assert_eq!(column, Column::Ud);
/// let to_send = TRANSITIONS.iter().find(|step| (step.from, step.to) == (QpState::Rtr, QpState::Rts)).unwrap();
/// assert_eq!(to_send.required.of(column), Attributes::SEND_PSN);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram, and the queue pairs of management.
    Ud,
    /// Extended reliable connection, the side that sends.
    XrcInitiator,
    /// Extended reliable connection, the side that receives.
    XrcTarget,
}

impl Column {
    /// The column of a queue pair, from its context. For XRC it depends on whether the queue pair has a send
    /// queue.
    pub const fn of(service: ServiceType, sends: bool) -> Self {
        match service {
            ServiceType::Uc => Self::Uc,
            ServiceType::Ud | ServiceType::Qp0 | ServiceType::Qp1 => Self::Ud,
            ServiceType::Xrc if sends => Self::XrcInitiator,
            ServiceType::Xrc => Self::XrcTarget,
            _ => Self::Rc,
        }
    }
}

/// Attributes by column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerService {
    /// Of a reliable connection.
    pub rc: Attributes,
    /// Of an unreliable connection.
    pub uc: Attributes,
    /// Of unreliable datagrams.
    pub ud: Attributes,
    /// Of an XRC initiator.
    pub xrc_initiator: Attributes,
    /// Of an XRC target.
    pub xrc_target: Attributes,
}

impl PerService {
    /// The attributes of one column.
    pub const fn of(&self, service: Column) -> Attributes {
        match service {
            Column::Rc => self.rc,
            Column::Uc => self.uc,
            Column::Ud => self.ud,
            Column::XrcInitiator => self.xrc_initiator,
            Column::XrcTarget => self.xrc_target,
        }
    }
}

/// Which services have a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Services {
    /// Every service.
    All,
    /// Services without acknowledgements. On other services a failed request breaks the connection (IBTA v1.4
    /// §10.3.1.6).
    Unreliable,
}

impl Services {
    /// Whether `service` is one of them.
    pub const fn has(self, service: Column) -> bool {
        matches!(self, Self::All) || matches!(service, Column::Uc | Column::Ud)
    }
}

/// A transition from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// State before.
    pub from: QpState,
    /// State after.
    pub to: QpState,
    /// The command.
    pub command: CommandOpcode,
    /// Services that have it.
    pub services: Services,
    /// Attributes that must be given.
    pub required: PerService,
    /// Attributes that may be given.
    pub optional: PerService,
}

/// A transition of every service, without attributes.
const fn transition(from: QpState, to: QpState, command: CommandOpcode) -> Transition {
    Transition { from, to, command, services: Services::All, required: NOTHING, optional: NOTHING }
}

impl Transition {
    const fn requiring(self, required: PerService) -> Self {
        Self { required, ..self }
    }

    const fn allowing(self, optional: PerService) -> Self {
        Self { optional, ..self }
    }
}

const NONE: Attributes = Attributes::NONE;
const NOTHING: PerService = all(NONE);

const fn all(set: Attributes) -> PerService {
    PerService { rc: set, uc: set, ud: set, xrc_initiator: set, xrc_target: set }
}

const fn and(a: Attributes, b: Attributes) -> Attributes {
    a.with(b)
}

/// What RESET to INIT sets and INIT to INIT may change.
const INITIAL: PerService = {
    let common = and(Attributes::PKEY_INDEX, Attributes::PORT);
    PerService { ud: and(common, Attributes::Q_KEY), ..all(and(common, Attributes::ACCESS)) }
};

const RECEIVING: PerService = {
    let path = and(Attributes::PATH, Attributes::PATH_MTU);
    let connected = and(path, and(Attributes::REMOTE_QPN, Attributes::RECEIVE_PSN));
    let serving = and(connected, and(Attributes::MAX_RESPONDER_READS, Attributes::MIN_RNR_TIMER));
    PerService { rc: serving, xrc_target: serving, ud: NONE, ..all(connected) }
};

const RECEIVING_OPTIONAL: PerService = {
    let connected = and(Attributes::PKEY_INDEX, and(Attributes::ACCESS, Attributes::ALTERNATE_PATH));
    PerService { ud: and(Attributes::PKEY_INDEX, Attributes::Q_KEY), ..all(connected) }
};

const SENDING: PerService = {
    let retries = and(Attributes::RETRY_COUNT, and(Attributes::RNR_RETRY, Attributes::MAX_REQUESTER_READS));
    let answering = and(Attributes::SEND_PSN, Attributes::ACK_TIMEOUT);
    let asking = and(answering, retries);
    PerService { rc: asking, xrc_initiator: asking, xrc_target: answering, ..all(Attributes::SEND_PSN) }
};

/// What may change while the connection is running.
const RUNNING: PerService = {
    let migration = and(Attributes::ALTERNATE_PATH, Attributes::PATH_MIGRATION);
    let sender = and(migration, Attributes::ACCESS);
    let receiver = and(sender, Attributes::MIN_RNR_TIMER);
    PerService { rc: receiver, xrc_target: receiver, ud: Attributes::Q_KEY, ..all(sender) }
};

/// What may change while nothing is sent.
const DRAINED: PerService = {
    let place = and(Attributes::PATH, Attributes::PKEY_INDEX);
    let timed = and(place, and(Attributes::PORT, Attributes::ACK_TIMEOUT));
    let retries = and(Attributes::RETRY_COUNT, and(Attributes::RNR_RETRY, Attributes::MAX_REQUESTER_READS));
    let served = and(timed, Attributes::MAX_RESPONDER_READS);
    PerService {
        rc: and(RUNNING.rc, and(served, retries)),
        uc: and(RUNNING.uc, place),
        ud: and(RUNNING.ud, Attributes::PKEY_INDEX),
        xrc_initiator: and(RUNNING.xrc_initiator, and(timed, retries)),
        xrc_target: and(RUNNING.xrc_target, served),
    }
};

const AFTER_ERROR: PerService = PerService { uc: Attributes::ACCESS, ud: Attributes::Q_KEY, ..NOTHING };

/// All transitions.
pub const TRANSITIONS: &[Transition] = &[
    transition(Reset, Reset, ToResetQp),
    transition(Reset, Init, ResetToInitQp).requiring(INITIAL),
    transition(Reset, Error, ToErrorQp),
    transition(Init, Reset, ToResetQp),
    transition(Init, Init, InitToInitQp).allowing(INITIAL),
    transition(Init, Rtr, InitToRtrQp).requiring(RECEIVING).allowing(RECEIVING_OPTIONAL),
    transition(Init, Error, ToErrorQp),
    transition(Rtr, Reset, ToResetQp),
    transition(Rtr, Rts, RtrToRtsQp).requiring(SENDING).allowing(RUNNING),
    transition(Rtr, Error, ToErrorQp),
    transition(Rts, Reset, ToResetQp),
    transition(Rts, Rts, RtsToRtsQp).allowing(RUNNING),
    transition(Rts, SqDrained, RtsToSqdQp).allowing(all(Attributes::DRAINED_EVENT)),
    transition(Rts, Error, ToErrorQp),
    transition(SqDrained, Reset, ToResetQp),
    transition(SqDrained, Rts, SqdToRtsQp).allowing(RUNNING),
    transition(SqDrained, SqDrained, SqdToSqdQp).allowing(DRAINED),
    transition(SqDrained, Error, ToErrorQp),
    transition(SqError, Reset, ToResetQp),
    Transition {
        services: Services::Unreliable,
        ..transition(SqError, Rts, SqErrorToRtsQp).allowing(AFTER_ERROR)
    },
    transition(SqError, Error, ToErrorQp),
    transition(Error, Reset, ToResetQp),
    transition(Error, Error, ToErrorQp),
];
