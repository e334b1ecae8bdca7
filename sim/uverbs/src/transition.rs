//! State transitions of queue pairs: permitted attributes, and the device's command.
//!
//! Required and optional attributes are those of IBTA v1.4 §11.2.5.2 as in Linux (`qp_state_table`). The subset that
//! the device gets as optional parameters is what `mlx5_ib` passes on (`opt_mask`).

use crate::Errno;
use crate::queues::QueuePairKind;
use bareverbs_prm::numbering::{CommandOpcode, QpState};

/// Bits of `attr_mask`.
pub(crate) mod attribute {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const CURRENT_STATE: u32 = 1 << 1;
    pub(crate) const DRAIN_EVENT: u32 = 1 << 2;
    pub(crate) const ACCESS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const Q_KEY: u32 = 1 << 6;
    pub(crate) const PATH: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_COUNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RECEIVE_PSN: u32 = 1 << 12;
    pub(crate) const INITIATOR_DEPTH: u32 = 1 << 13;
    pub(crate) const ALTERNATE_PATH: u32 = 1 << 14;
    pub(crate) const RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SEND_PSN: u32 = 1 << 16;
    pub(crate) const RESPONDER_RESOURCES: u32 = 1 << 17;
    pub(crate) const PATH_MIGRATION: u32 = 1 << 18;
    pub(crate) const CAPACITY: u32 = 1 << 19;
    pub(crate) const REMOTE_QPN: u32 = 1 << 20;
    /// All bits that the unextended command accepts.
    pub(crate) const ALL: u32 = (1 << 21) - 1;
}
use attribute as a;

/// States as programs number them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    SendQueueDrained,
    SendQueueError,
    Error,
}

impl State {
    /// The state with a program's number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        use State::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained, SendQueueError};
        let states = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Error];
        states.get(usize::from(number)).copied()
    }

    /// The state with the device's number.
    pub(crate) const fn from_device(state: QpState) -> Self {
        match state {
            QpState::Reset => Self::Reset,
            QpState::Init => Self::Init,
            QpState::Rtr => Self::ReadyToReceive,
            QpState::Rts => Self::ReadyToSend,
            QpState::SqDrained | QpState::SqDraining => Self::SendQueueDrained,
            QpState::SqError => Self::SendQueueError,
            _ => Self::Error,
        }
    }
}

/// Attribute masks for the five kinds of queue pairs.
#[derive(Debug, Clone, Copy)]
struct ByKind {
    reliable: u32,
    unreliable: u32,
    datagram: u32,
    initiator: u32,
    target: u32,
}

impl ByKind {
    const NONE: Self = Self::all(0);

    const fn all(mask: u32) -> Self {
        Self { reliable: mask, unreliable: mask, datagram: mask, initiator: mask, target: mask }
    }

    const fn of(self, kind: QueuePairKind) -> u32 {
        match kind {
            QueuePairKind::ReliableConnection => self.reliable,
            QueuePairKind::UnreliableConnection => self.unreliable,
            QueuePairKind::Datagram => self.datagram,
            QueuePairKind::XrcInitiator => self.initiator,
            QueuePairKind::XrcTarget => self.target,
        }
    }
}

/// A valid transition.
#[derive(Debug)]
struct Row {
    from: State,
    to: State,
    opcode: CommandOpcode,
    required: ByKind,
    optional: ByKind,
    /// Optional parameters of the command, for acknowledged connections, unacknowledged ones, and datagrams.
    parameters: [u32; 3],
}

/// Bits of `opt_param_mask`.
mod parameter {
    pub(super) const RIGHTS: u32 = 0b1110;
    pub(super) const WRITE: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const Q_KEY: u32 = 1 << 5;
    pub(super) const RNR_TIMER: u32 = 1 << 6;
    pub(super) const PRIMARY_PATH: u32 = 1 << 7;
    pub(super) const INITIATOR_DEPTH: u32 = 1 << 8;
    pub(super) const RESPONDER_RESOURCES: u32 = 1 << 9;
    pub(super) const PATH_MIGRATION: u32 = 1 << 10;
    pub(super) const RETRY_COUNT: u32 = 1 << 12;
    pub(super) const RNR_RETRY: u32 = 1 << 13;
    pub(super) const TIMEOUT: u32 = 1 << 14;
    pub(super) const PORT: u32 = 1 << 16;
    pub(super) const ALTERNATE_PATH: u32 = 1;
    pub(super) const MIGRATION: u32 = PATH_MIGRATION | ALTERNATE_PATH;
}
use parameter as p;

const CONNECTED_INIT: u32 = a::PKEY_INDEX | a::PORT | a::ACCESS;
const DATAGRAM_INIT: u32 = a::PKEY_INDEX | a::PORT | a::Q_KEY;
const INIT: ByKind = ByKind { datagram: DATAGRAM_INIT, ..ByKind::all(CONNECTED_INIT) };
const RECEIVER: u32 = a::PATH | a::PATH_MTU | a::REMOTE_QPN | a::RECEIVE_PSN;
const RESPONDER: u32 = RECEIVER | a::RESPONDER_RESOURCES | a::RNR_TIMER;
const REQUESTER: u32 = a::TIMEOUT | a::RETRY_COUNT | a::RNR_RETRY | a::SEND_PSN | a::INITIATOR_DEPTH;
/// Attributes of a connection that may change while it sends, and more that may change if it responds.
const RUNNING: u32 = a::CURRENT_STATE | a::ALTERNATE_PATH | a::ACCESS | a::PATH_MIGRATION;
const RUNNING_RESPONDER: u32 = RUNNING | a::RNR_TIMER;
const CHANGE: ByKind = ByKind {
    reliable: RUNNING_RESPONDER,
    unreliable: RUNNING,
    datagram: a::CURRENT_STATE | a::Q_KEY,
    initiator: RUNNING,
    target: RUNNING_RESPONDER,
};
const PATHS: u32 = a::PATH | a::ALTERNATE_PATH | a::ACCESS | a::PKEY_INDEX | a::PATH_MIGRATION;
const REQUESTS: u32 = a::RETRY_COUNT | a::RNR_RETRY | a::INITIATOR_DEPTH;
const RESPONDER_LIMITS: u32 = a::RESPONDER_RESOURCES | a::RNR_TIMER;
const RUNNING_PARAMETERS: [u32; 3] =
    [p::MIGRATION | p::RIGHTS | p::RNR_TIMER, p::MIGRATION | p::WRITE, p::Q_KEY];

use State as S;

#[rustfmt::skip]
const ROWS: [Row; 9] = [
    Row { from: S::Reset, to: S::Init, opcode: CommandOpcode::ResetToInitQp,
        required: INIT, optional: ByKind::NONE, parameters: [0; 3] },
    Row { from: S::Init, to: S::Init, opcode: CommandOpcode::InitToInitQp,
        required: ByKind::NONE, optional: INIT,
        parameters: [p::RIGHTS | p::PKEY_INDEX | p::PORT, p::WRITE | p::PKEY_INDEX | p::PORT, p::PKEY_INDEX | p::Q_KEY | p::PORT] },
    Row { from: S::Init, to: S::ReadyToReceive, opcode: CommandOpcode::InitToRtrQp,
        required: ByKind { reliable: RESPONDER, unreliable: RECEIVER, datagram: 0, initiator: RECEIVER, target: RESPONDER },
        optional: ByKind { datagram: a::PKEY_INDEX | a::Q_KEY, ..ByKind::all(a::ALTERNATE_PATH | a::ACCESS | a::PKEY_INDEX) },
        parameters: [p::ALTERNATE_PATH | p::RIGHTS | p::PKEY_INDEX, p::ALTERNATE_PATH | p::WRITE | p::PKEY_INDEX, p::PKEY_INDEX | p::Q_KEY] },
    Row { from: S::ReadyToReceive, to: S::ReadyToSend, opcode: CommandOpcode::RtrToRtsQp,
        required: ByKind { reliable: REQUESTER, unreliable: a::SEND_PSN, datagram: a::SEND_PSN, initiator: REQUESTER, target: a::TIMEOUT | a::SEND_PSN },
        optional: CHANGE, parameters: RUNNING_PARAMETERS },
    Row { from: S::ReadyToSend, to: S::ReadyToSend, opcode: CommandOpcode::RtsToRtsQp,
        required: ByKind::NONE, optional: CHANGE, parameters: RUNNING_PARAMETERS },
    Row { from: S::ReadyToSend, to: S::SendQueueDrained, opcode: CommandOpcode::RtsToSqdQp,
        required: ByKind::NONE, optional: ByKind::all(a::DRAIN_EVENT), parameters: [0; 3] },
    Row { from: S::SendQueueDrained, to: S::SendQueueDrained, opcode: CommandOpcode::SqdToSqdQp,
        required: ByKind::NONE,
        optional: ByKind {
            reliable: PATHS | a::PORT | a::TIMEOUT | REQUESTS | RESPONDER_LIMITS,
            unreliable: PATHS,
            datagram: a::PKEY_INDEX | a::Q_KEY,
            initiator: PATHS | a::PORT | a::TIMEOUT | REQUESTS,
            target: PATHS | a::PORT | a::TIMEOUT | RESPONDER_LIMITS,
        },
        parameters: [
            p::MIGRATION | p::RIGHTS | p::RNR_TIMER | p::PKEY_INDEX | p::PORT | p::PRIMARY_PATH | p::INITIATOR_DEPTH
                | p::RESPONDER_RESOURCES | p::RETRY_COUNT | p::RNR_RETRY | p::TIMEOUT,
            p::MIGRATION | p::WRITE | p::PKEY_INDEX | p::PRIMARY_PATH,
            p::PKEY_INDEX | p::Q_KEY,
        ] },
    Row { from: S::SendQueueDrained, to: S::ReadyToSend, opcode: CommandOpcode::SqdToRtsQp,
        required: ByKind::NONE, optional: CHANGE, parameters: [p::RIGHTS | p::RNR_TIMER, p::WRITE, p::Q_KEY] },
    Row { from: S::SendQueueError, to: S::ReadyToSend, opcode: CommandOpcode::SqErrorToRtsQp,
        required: ByKind::NONE,
        optional: ByKind { unreliable: a::CURRENT_STATE | a::ACCESS, datagram: a::CURRENT_STATE | a::Q_KEY, ..ByKind::NONE },
        parameters: [p::RIGHTS | p::RNR_TIMER, p::WRITE, p::Q_KEY] },
];

/// The command for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) opcode: CommandOpcode,
    /// `opt_param_mask`.
    pub(crate) parameters: u32,
}

/// The step for a transition with these attributes.
pub(crate) fn find(kind: QueuePairKind, from: State, to: State, mask: u32) -> Result<Step, Errno> {
    let given = mask & !a::STATE;
    if to == State::Reset || to == State::Error {
        let opcode = if to == State::Reset { CommandOpcode::ToResetQp } else { CommandOpcode::ToErrorQp };
        return if given & !a::CURRENT_STATE == 0 {
            Ok(Step { opcode, parameters: 0 })
        } else {
            Err(Errno::Invalid)
        };
    }
    let row = ROWS.iter().find(|row| (row.from, row.to) == (from, to)).ok_or(Errno::Invalid)?;
    let (required, optional) = (row.required.of(kind), row.optional.of(kind));
    if required & !given != 0 || given & !(required | optional | a::CURRENT_STATE) != 0 {
        return Err(Errno::Invalid);
    }
    let [reliable, unreliable, datagram] = row.parameters;
    let allowed = match kind {
        QueuePairKind::UnreliableConnection => unreliable,
        QueuePairKind::Datagram => datagram,
        _ => reliable,
    };
    Ok(Step { opcode: row.opcode, parameters: parameters(given) & allowed })
}

/// The optional parameters that the attributes imply.
fn parameters(given: u32) -> u32 {
    const MEANINGS: [(u32, u32); 13] = [
        (a::PORT, p::PORT),
        (a::ACCESS, p::RIGHTS),
        (a::PKEY_INDEX, p::PKEY_INDEX),
        (a::Q_KEY, p::Q_KEY),
        (a::PATH, p::PRIMARY_PATH | p::PORT),
        (a::TIMEOUT, p::TIMEOUT),
        (a::RETRY_COUNT, p::RETRY_COUNT),
        (a::RNR_RETRY, p::RNR_RETRY),
        (a::INITIATOR_DEPTH, p::INITIATOR_DEPTH),
        (a::ALTERNATE_PATH, p::ALTERNATE_PATH),
        (a::RNR_TIMER, p::RNR_TIMER),
        (a::RESPONDER_RESOURCES, p::RESPONDER_RESOURCES | p::RIGHTS),
        (a::PATH_MIGRATION, p::PATH_MIGRATION),
    ];
    let asked = MEANINGS.iter().filter(|(attribute, _)| given & attribute != 0);
    asked.fold(0, |mask, (_, parameter)| mask | parameter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use QueuePairKind::{Datagram, ReliableConnection, UnreliableConnection};

    #[test]
    fn a_transition_has_every_attribute_that_it_needs_and_no_other() {
        let find = |mask| find(ReliableConnection, State::Init, State::ReadyToReceive, mask);
        let whole = a::STATE | RESPONDER;
        assert_eq!(find(whole), Ok(Step { opcode: CommandOpcode::InitToRtrQp, parameters: p::RIGHTS }));
        assert_eq!(find(whole & !a::RNR_TIMER), Err(Errno::Invalid));
        assert_eq!(find(whole | a::SEND_PSN), Err(Errno::Invalid));
    }

    #[test]
    fn unknown_transitions_are_refused_and_reset_and_error_are_always_allowed() {
        for from in (0..7).map(|number| State::from_number(number).unwrap()) {
            assert!(find(Datagram, from, State::Reset, a::STATE).is_ok());
            assert!(find(Datagram, from, State::Error, a::STATE).is_ok());
        }
        let skip = find(UnreliableConnection, State::Reset, State::ReadyToSend, a::STATE);
        assert_eq!(skip, Err(Errno::Invalid));
        assert_eq!(State::from_number(7), None);
    }
}
