//! Errors of queue pairs, one type per operation.

use super::address_error::AddressError;
use super::diagnosis::Suspect;
use super::transitions::TransitionError;
use crate::command::{CommandError, InterfaceBusy};
use crate::hal::HalError;
use crate::shared_receive_queue::SharedReceiveQueueKind;
use bareverbs_prm::ids::{Cqn, Gid};
use bareverbs_prm::numbering::QpState;
use core::fmt;

/// Why a queue pair could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// An object belongs to a different device than the protection domain, so its number would name a foreign object.
    OtherDevice {
        /// The kind of object.
        object: &'static str,
    },
    /// An argument exceeds the device's limit.
    Limit {
        /// The argument.
        name: &'static str,
        /// Requested value.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// The device was opened for no more queue pairs.
    TooManyQueuePairs {
        /// That number.
        limit: usize,
    },
    /// The memory for recording posted work is full.
    LedgerFull {
        /// Contiguous words needed.
        needed: usize,
        /// Words in total.
        limit: u32,
    },
    /// The shared receive queue is of the wrong kind: XRC ones only serve XRC queue pairs, and vice versa.
    SharedQueueKind {
        /// Its kind.
        kind: SharedReceiveQueueKind,
    },
    /// An XRC queue pair needs an XRC domain; other queue pairs must have none.
    XrcDomain {
        /// Whether one was given.
        given: bool,
    },
    /// The device does not support XRC.
    NoXrc,
    /// The HAL has no memory left.
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
            Self::Limit { name, asked, limit } => {
                write!(f, "a queue pair with {name} {asked}: the device allows 1 to {limit}")
            }
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
            Self::NoXrc => f.write_str(
                "queue pair of XRC: the device has no XRC; ask Capabilities::xrc first, or use RC",
            ),
            Self::Memory(error) => write!(f, "a queue pair: {error}"),
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
    /// The send queue is still draining: some sends have not finished.
    Draining {
        /// The requested state.
        to: QpState,
    },
    /// The device had already moved the queue pair to another state, and refused.
    State {
        /// The last commanded state.
        believed: QpState,
        /// The state that the device reports.
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
    /// An option exceeds its limit.
    Limit {
        /// The option.
        name: &'static str,
        /// Requested value.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// The entry of the RoCE address table is not set.
    NoAddress {
        /// Its index.
        gid_index: u8,
    },
    /// Querying the address of the InfiniBand port failed.
    Port(CommandError),
    /// The addresses do not form a connection.
    Address(AddressError),
    /// The number of READs is not a power of two, or exceeds the device's limit.
    Reads {
        /// Requested value.
        asked: u8,
        /// The device's limit, as requester and as responder.
        limit: u8,
    },
    /// The path MTU is not between 256 and 4096 bytes.
    PathMtu {
        /// Its code.
        raw: u8,
    },
    /// The device refused, most likely for this reason.
    Refused {
        /// The contradiction.
        suspect: Suspect,
        /// The refusal.
        error: CommandError,
    },
    /// Modifying the queue pair failed.
    Modify(ModifyError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Limit { name, asked, limit } => {
                write!(f, "connecting with {name} {asked}: the limit is {limit}")
            }
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

/// Why joining or leaving a multicast group failed.
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

/// Why a reset failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetError {
    /// These are not the queue pair's completion queues.
    WrongQueues {
        /// Its completion queue for sends.
        send: Cqn,
        /// Its completion queue for receives.
        receive: Cqn,
    },
    /// Modifying the queue pair failed.
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
