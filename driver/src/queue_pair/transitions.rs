//! The states of a queue pair and the ways between them: one table (IBTA v1.4 §11.2.5.2, tables 91 to 96; the ways
//! that mlx5 has commands for: PRM, queue pair state machine). It names the attributes of all services; each service has
//! some of them.

use bareverbs_prm::numbering::{CommandOpcode, QpState, ServiceType};
use core::fmt;
use core::ops::BitOr;

/// A set of attributes of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ibv_qp_attr_mask")]
pub struct Attributes(u32);

macro_rules! attributes {
    ($($bit:literal $name:ident $label:literal;)*) => {
        impl Attributes {
            $(
                #[doc = concat!("The ", $label, ".")]
                pub const $name: Self = Self(1 << $bit);
            )*
            const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, $label)),*];
        }
    };
}

attributes! {
    0 PKEY_INDEX "P_Key index";
    1 PORT "port number";
    2 ACCESS "remote access rights";
    3 PATH "path to the peer";
    4 PATH_MTU "path MTU";
    5 REMOTE_QPN "number of the peer's queue pair";
    6 RECEIVE_PSN "first PSN to receive";
    7 MAX_RESPONDER_READS "RDMA READs served at a time";
    8 MIN_RNR_TIMER "RNR timer";
    9 SEND_PSN "first PSN to send";
    10 ACK_TIMEOUT "ACK timeout";
    11 RETRY_COUNT "retry count";
    12 RNR_RETRY "RNR retry count";
    13 MAX_REQUESTER_READS "RDMA READs under way at a time";
    14 ALTERNATE_PATH "alternate path";
    15 PATH_MIGRATION "path migration state";
    16 DRAINED_EVENT "event when drained";
    17 Q_KEY "Q_Key";
}

impl Attributes {
    /// None.
    pub const NONE: Self = Self(0);

    /// All of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    /// Those that are in `other` too.
    #[must_use]
    pub const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// Those that queue pairs of a service have (IBTA v1.4 §11.2.5.2, tables 92 to 96).
    pub const fn of(service: ServiceType) -> Self {
        let any = Self::PKEY_INDEX.with(Self::PORT).with(Self::SEND_PSN).with(Self::DRAINED_EVENT);
        let path = Self::PATH.with(Self::ALTERNATE_PATH).with(Self::PATH_MIGRATION).with(Self::PATH_MTU);
        let connected = path.with(Self::ACCESS).with(Self::REMOTE_QPN).with(Self::RECEIVE_PSN);
        match service {
            ServiceType::Ud => any.with(Self::Q_KEY),
            ServiceType::Uc => any.with(connected),
            _ => Self(!Self::Q_KEY.0),
        }
    }
    /// Whether all of `other` are in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Attributes {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (_, label) in Self::NAMES.iter().filter(|(bit, _)| self.contains(*bit)) {
            write!(f, "{comma}{label}")?;
            comma = ", ";
        }
        Ok(())
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A way from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// State before.
    pub from: QpState,
    /// State after.
    pub to: QpState,
    /// Attributes that must be given.
    pub required: Attributes,
    /// Attributes that may be given.
    pub optional: Attributes,
    /// The command; none if mlx5 has none.
    pub command: Option<CommandOpcode>,
}

const fn way(
    from: QpState,
    to: QpState,
    required: Attributes,
    optional: Attributes,
    command: CommandOpcode,
) -> Transition {
    Transition { from, to, required, optional, command: Some(command) }
}

const fn bare(from: QpState, to: QpState, command: CommandOpcode) -> Transition {
    way(from, to, Attributes::NONE, Attributes::NONE, command)
}

const NONE: Attributes = Attributes::NONE;
const INIT: Attributes =
    Attributes::PKEY_INDEX.with(Attributes::PORT).with(Attributes::ACCESS).with(Attributes::Q_KEY);
const RTR: Attributes = Attributes::PATH
    .with(Attributes::PATH_MTU)
    .with(Attributes::REMOTE_QPN)
    .with(Attributes::RECEIVE_PSN)
    .with(Attributes::MAX_RESPONDER_READS)
    .with(Attributes::MIN_RNR_TIMER);
const RTS: Attributes = Attributes::SEND_PSN
    .with(Attributes::ACK_TIMEOUT)
    .with(Attributes::RETRY_COUNT)
    .with(Attributes::RNR_RETRY)
    .with(Attributes::MAX_REQUESTER_READS);
/// What may change while the connection runs.
const RUNNING: Attributes = Attributes::ALTERNATE_PATH
    .with(Attributes::ACCESS)
    .with(Attributes::MIN_RNR_TIMER)
    .with(Attributes::PATH_MIGRATION)
    .with(Attributes::Q_KEY);
/// What may change while nothing is sent.
const DRAINED: Attributes = RUNNING
    .with(Attributes::PKEY_INDEX)
    .with(Attributes::PORT)
    .with(Attributes::PATH)
    .with(Attributes::ACK_TIMEOUT)
    .with(Attributes::RETRY_COUNT)
    .with(Attributes::RNR_RETRY)
    .with(Attributes::MAX_REQUESTER_READS)
    .with(Attributes::MAX_RESPONDER_READS);

use CommandOpcode::{
    InitToInitQp, InitToRtrQp, ResetToInitQp, RtrToRtsQp, RtsToRtsQp, SqErrorToRtsQp, SqdToRtsQp, ToErrorQp,
    ToResetQp,
};
use QpState::{Error, Init, Reset, Rtr, Rts, SqDrained, SqError};

/// All ways, with the attributes of all services.
pub const TRANSITIONS: &[Transition] = &[
    bare(Reset, Reset, ToResetQp),
    way(Reset, Init, INIT, NONE, ResetToInitQp),
    bare(Reset, Error, ToErrorQp),
    bare(Init, Reset, ToResetQp),
    way(Init, Init, NONE, INIT, InitToInitQp),
    way(
        Init,
        Rtr,
        RTR,
        Attributes::ALTERNATE_PATH
            .with(Attributes::ACCESS)
            .with(Attributes::PKEY_INDEX)
            .with(Attributes::Q_KEY),
        InitToRtrQp,
    ),
    bare(Init, Error, ToErrorQp),
    bare(Rtr, Reset, ToResetQp),
    way(Rtr, Rts, RTS, RUNNING, RtrToRtsQp),
    bare(Rtr, Error, ToErrorQp),
    bare(Rts, Reset, ToResetQp),
    way(Rts, Rts, NONE, RUNNING, RtsToRtsQp),
    Transition {
        from: Rts,
        to: SqDrained,
        required: NONE,
        optional: Attributes::DRAINED_EVENT,
        command: None,
    },
    bare(Rts, Error, ToErrorQp),
    bare(SqDrained, Reset, ToResetQp),
    way(SqDrained, Rts, NONE, RUNNING, SqdToRtsQp),
    Transition { from: SqDrained, to: SqDrained, required: NONE, optional: DRAINED, command: None },
    bare(SqDrained, Error, ToErrorQp),
    bare(SqError, Reset, ToResetQp),
    way(SqError, Rts, NONE, Attributes::ACCESS.with(Attributes::MIN_RNR_TIMER), SqErrorToRtsQp),
    bare(SqError, Error, ToErrorQp),
    bare(Error, Reset, ToResetQp),
    bare(Error, Error, ToErrorQp),
];

/// Why a way cannot be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionError {
    /// There is no such way.
    NoSuchWay {
        /// State before.
        from: QpState,
        /// State after.
        to: QpState,
    },
    /// mlx5 has no command for it.
    NotSupported {
        /// State before.
        from: QpState,
        /// State after.
        to: QpState,
    },
    /// The attributes are not those that the way needs.
    WrongAttributes {
        /// State before.
        from: QpState,
        /// State after.
        to: QpState,
        /// Attributes that must be given and are not.
        missing: Attributes,
        /// Attributes that are given and must not be.
        forbidden: Attributes,
    },
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSuchWay { from, to } => {
                write!(f, "there is no way from {from} to {to}")
            }
            Self::NotSupported { from, to } => write!(f, "the device has no command from {from} to {to}"),
            Self::WrongAttributes { from, to, missing, forbidden } => {
                write!(f, "from {from} to {to}:")?;
                if !missing.is_empty() {
                    write!(f, " give {missing}")?;
                }
                let joint = if missing.is_empty() || forbidden.is_empty() { "" } else { ";" };
                f.write_str(joint)?;
                if forbidden.is_empty() { Ok(()) } else { write!(f, " do not give {forbidden}") }
            }
        }
    }
}

impl core::error::Error for TransitionError {}

/// Finds the way and checks the attributes given for queue pairs of a service. Returns the command.
pub fn check(
    service: ServiceType,
    from: QpState,
    to: QpState,
    given: Attributes,
) -> Result<(&'static Transition, CommandOpcode), TransitionError> {
    let way = TRANSITIONS.iter().find(|way| way.from == from && way.to == to);
    let way = way.ok_or(TransitionError::NoSuchWay { from, to })?;
    let all = Attributes::of(service);
    let missing = way.required.within(all).without(given);
    let forbidden = given.without(way.required.with(way.optional).within(all));
    if !missing.is_empty() || !forbidden.is_empty() {
        return Err(TransitionError::WrongAttributes { from, to, missing, forbidden });
    }
    way.command.map(|command| (way, command)).ok_or(TransitionError::NotSupported { from, to })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_state_can_be_left_to_reset_and_error() {
        for from in [Init, Rtr, Rts, SqDrained, SqError, Error, Reset] {
            for to in [Reset, Error] {
                assert!(check(ServiceType::Rc, from, to, NONE).is_ok(), "{from} to {to}");
            }
        }
    }

    #[test]
    fn no_way_is_listed_twice_and_no_attribute_is_both() {
        for (i, way) in TRANSITIONS.iter().enumerate() {
            assert!(!TRANSITIONS[..i].iter().any(|other| (other.from, other.to) == (way.from, way.to)));
            assert_eq!(way.required.without(way.optional), way.required);
        }
    }

    #[test]
    fn what_is_missing_and_what_is_too_much_is_named() {
        let given = RTR
            .within(Attributes::of(ServiceType::Rc))
            .without(Attributes::PATH_MTU)
            .with(Attributes::SEND_PSN);
        let error = check(ServiceType::Rc, Init, Rtr, given).unwrap_err();
        let (missing, forbidden) = (Attributes::PATH_MTU, Attributes::SEND_PSN);
        assert_eq!(error, TransitionError::WrongAttributes { from: Init, to: Rtr, missing, forbidden });
        assert_eq!(
            error.to_string(),
            "from INIT(0x1) to RTR(0x2): give path MTU; do not give first PSN to send"
        );
        assert_eq!(
            check(ServiceType::Rc, Reset, Rts, NONE).unwrap_err(),
            TransitionError::NoSuchWay { from: Reset, to: Rts }
        );
        assert_eq!(
            check(ServiceType::Rc, Rts, SqDrained, NONE).unwrap_err(),
            TransitionError::NotSupported { from: Rts, to: SqDrained }
        );
    }

    #[test]
    fn a_service_has_its_own_attributes() {
        let initial = Attributes::PKEY_INDEX | Attributes::PORT;
        assert!(check(ServiceType::Ud, Reset, Init, initial | Attributes::Q_KEY).is_ok());
        assert!(check(ServiceType::Ud, Init, Rtr, NONE).is_ok());
        let error = check(ServiceType::Uc, Reset, Init, initial | Attributes::Q_KEY).unwrap_err();
        let (missing, forbidden) = (Attributes::ACCESS, Attributes::Q_KEY);
        assert_eq!(error, TransitionError::WrongAttributes { from: Reset, to: Init, missing, forbidden });
        assert!(check(ServiceType::Uc, Rtr, Rts, Attributes::SEND_PSN).is_ok());
    }
}
