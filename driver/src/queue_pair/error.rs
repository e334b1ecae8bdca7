//! What can go wrong with a queue pair, one type an operation.

use super::address_error::AddressError;
use super::diagnosis::Suspect;
use super::transitions::TransitionError;
use crate::command::{CommandError, InterfaceBusy};
use crate::hal::HalError;
use crate::shared_receive_queue::SharedReceiveQueueKind;
use bareverbs_prm::ids::{Cqn, Gid};
use bareverbs_prm::numbering::QpState;
use core::fmt;

/// Why a queue pair could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// An object belongs to another device than the protection domain. Its number would name a stranger's object.
    OtherDevice {
        /// What the object is.
        object: &'static str,
    },
    /// An argument is beyond what the device can do.
    Limit {
        /// The argument.
        name: &'static str,
        /// Asked for.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// As many queue pairs exist as the device was opened for.
    TooManyQueuePairs {
        /// How many that is.
        limit: usize,
    },
    /// The memory that remembers posted work is full.
    LedgerFull {
        /// Words needed, in one piece.
        needed: usize,
        /// Words in all.
        limit: u32,
    },
    /// The shared receive queue is of the other kind: those of XRC serve queue pairs of XRC only, and the other way round.
    SharedQueueKind {
        /// Its kind.
        kind: SharedReceiveQueueKind,
    },
    /// A queue pair of XRC belongs to an XRC domain and is made with it; others do not.
    XrcDomain {
        /// Whether one was given.
        given: bool,
    },
    /// The device has no XRC.
    NoXrc,
    /// The place has no memory left.
    Memory(HalError),
    /// Another thread held the command interface until the command timeout.
    InterfaceBusy(InterfaceBusy),
    /// The command failed.
    Command(CommandError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OtherDevice { object } => write!(
                f,
                "a queue pair: {object} belongs to another device than the protection domain; make everything from the same handle"
            ),
            Self::Limit { name, asked, limit } => write!(f, "{name} {asked}: the device allows 1 to {limit}"),
            Self::TooManyQueuePairs { limit } => {
                write!(f, "{limit} queue pairs exist already: raise DeviceConfig::queue_pairs")
            }
            Self::LedgerFull { needed, limit } => write!(
                f,
                "no room for {needed} words of posted work in {limit}: raise DeviceConfig::ledger_words or use shorter queues"
            ),
            Self::SharedQueueKind { kind: SharedReceiveQueueKind::Xrc } => {
                f.write_str("a shared receive queue of XRC serves queue pairs of XRC only")
            }
            Self::SharedQueueKind { kind: SharedReceiveQueueKind::Basic } => {
                f.write_str("queue pairs of XRC need a shared receive queue of XRC: use create_xrc")
            }
            Self::XrcDomain { given: false } => {
                f.write_str("a queue pair of XRC needs an XRC domain: use xrc_initiator or xrc_target")
            }
            Self::XrcDomain { given: true } => f.write_str(
                "only queue pairs of XRC have an XRC domain: do not change the service after it was given",
            ),
            Self::NoXrc => f.write_str("queue pair of XRC: the device has no XRC"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::InterfaceBusy(busy) => write!(f, "{busy}"),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for BuildError {}

/// Why a queue pair could not be modified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModifyError {
    /// The state table does not allow it. Nothing was sent.
    Transition(TransitionError),
    /// The send queue still drains: what has begun has not ended.
    Draining {
        /// Where it was to go.
        to: QpState,
    },
    /// The device had moved the queue pair to another state by itself, and refused.
    State {
        /// The state that was commanded last.
        believed: QpState,
        /// The state that the device says.
        actual: QpState,
        /// The refusal.
        error: CommandError,
    },
    /// The device refused.
    Command(CommandError),
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transition(error) => write!(f, "{error}"),
            Self::Draining { to } => write!(
                f,
                "to {to}: the send queue is still draining; wait for the event SQ_DRAINED, or query until the state is SQD"
            ),
            Self::State { believed, actual, error } => write!(
                f,
                "the queue pair is in {actual}, not in {believed}: the device moved it by itself, look at the completions and \
                 events; {error}"
            ),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for ModifyError {}

/// Why a queue pair could not be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// An option is beyond its limit.
    Limit {
        /// The option.
        name: &'static str,
        /// Asked for.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// The entry of the RoCE address table is not set.
    NoAddress {
        /// Its index.
        gid_index: u8,
    },
    /// The device would not tell the address of its InfiniBand port.
    Port(CommandError),
    /// The addresses cannot be those of a connection.
    Address(AddressError),
    /// The number of READs at a time is not a power of two, or more than the device can do.
    Reads {
        /// Asked for.
        asked: u8,
        /// The device's limit, as requester and as responder.
        limit: u8,
    },
    /// The path MTU is not one of 256 to 4096 bytes.
    PathMtu {
        /// Its number.
        raw: u8,
    },
    /// The device refused, and this is why, most likely.
    Refused {
        /// What contradicts.
        suspect: Suspect,
        /// The refusal.
        error: CommandError,
    },
    /// The queue pair could not be modified.
    Modify(ModifyError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Limit { name, asked, limit } => write!(f, "{name} {asked}: the limit is {limit}"),
            Self::NoAddress { gid_index } => {
                write!(f, "entry {gid_index} of the RoCE address table is empty: call Device::set_gid first")
            }
            Self::Port(error) => write!(f, "asking for LID and GID of the port: {error}"),
            Self::Address(error) => write!(f, "{error}"),
            Self::Reads { asked, limit } => {
                write!(
                    f,
                    "max_reads {asked}: use a power of two from 1 to {limit}, the device's limit, at both ends"
                )
            }
            Self::PathMtu { raw } => write!(f, "path MTU number {raw}: use 256 to 4096 bytes"),
            Self::Refused { suspect, error } => write!(f, "{suspect}; {error}"),
            Self::Modify(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for ConnectError {}

impl From<ModifyError> for ConnectError {
    fn from(error: ModifyError) -> Self {
        Self::Modify(error)
    }
}

/// Why a queue pair could not join or leave a multicast group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MulticastError {
    /// The GID is not that of a multicast group. Nothing was sent.
    NotMulticast {
        /// The GID.
        gid: Gid,
    },
    /// The device refused.
    Command(CommandError),
}

impl fmt::Display for MulticastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMulticast { gid } => write!(
                f,
                "{gid} is not a multicast group: use ff00::/8, or 224.0.0.0/4 as an IPv4-mapped identifier"
            ),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for MulticastError {}

/// Why a queue pair could not be reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetError {
    /// These are not the completion queues of the queue pair.
    WrongQueues {
        /// The one of its sends.
        send: Cqn,
        /// The one of its receives.
        receive: Cqn,
    },
    /// The queue pair could not be modified.
    Modify(ModifyError),
}

impl fmt::Display for ResetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::WrongQueues { send, receive } => {
                write!(
                    f,
                    "give the completion queues of the queue pair: {send} for sends, {receive} for receives"
                )
            }
            Self::Modify(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for ResetError {}
