//! The states of a queue pair and the ways between them, with what must and what may be given on each: checked here,
//! before a command is sent, so that an error can name every attribute that is missing or too much.

mod table;

pub use table::{Column, PerService, Services, TRANSITIONS, Transition};

use bareverbs_prm::numbering::QpState;
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
    /// Only [`QueuePair::reset`](super::QueuePair::reset) leads to RESET: it also cleans the completion queues.
    OnlyByReset {
        /// State before.
        from: QpState,
    },
    /// Alternate paths and their migration: RoCE has none, and this driver makes none on InfiniBand.
    NoPathMigration,
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
            Self::OnlyByReset { from } => {
                write!(f, "from {from} to RESET: use QueuePair::reset, which also cleans the completion queues")
            }
            Self::NoPathMigration => f.write_str(
                "alternate paths are InfiniBand's automatic path migration; RoCE has none: let the network find another way, \
                 or connect again over another GID",
            ),
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

/// Finds the way of a service and checks the attributes that are given.
pub fn check(
    service: Column,
    from: QpState,
    to: QpState,
    given: Attributes,
) -> Result<&'static Transition, TransitionError> {
    let way = TRANSITIONS.iter().find(|way| way.from == from && way.to == to && way.services.has(service));
    let way = way.ok_or(TransitionError::NoSuchWay { from, to })?;
    let (required, optional) = (way.required.of(service), way.optional.of(service));
    let missing = required.without(given);
    let forbidden = given.without(required.with(optional));
    if !missing.is_empty() || !forbidden.is_empty() {
        return Err(TransitionError::WrongAttributes { from, to, missing, forbidden });
    }
    let migration = Attributes::ALTERNATE_PATH | Attributes::PATH_MIGRATION;
    if given.without(migration) != given { Err(TransitionError::NoPathMigration) } else { Ok(way) }
}

#[cfg(test)]
mod tests;
