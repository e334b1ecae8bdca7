//! The states of a queue pair and the transitions between them, with the attributes that each transition requires and
//! allows. The driver checks them before it sends a command, so an error names every missing and every forbidden attribute.

mod attribute_set;
mod table;

pub use attribute_set::Attributes;
pub use table::{Column, PerService, Services, TRANSITIONS, Transition};

use bareverbs_prm::numbering::QpState;
use core::fmt;

/// Why a transition is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionError {
    /// There is no such transition.
    NoSuchTransition {
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
    /// Alternate paths and path migration: RoCE has neither, and this driver does not use them on InfiniBand.
    NoPathMigration,
    /// The attributes do not match the transition.
    WrongAttributes {
        /// State before.
        from: QpState,
        /// State after.
        to: QpState,
        /// Missing required attributes.
        missing: Attributes,
        /// Attributes that the transition does not allow.
        forbidden: Attributes,
    },
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSuchTransition { from, to } => {
                write!(f, "there is no transition from {from} to {to}")
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

/// Finds the transition of a service and checks the given attributes.
///
/// # Errors
/// There is no such transition, or the attributes do not match it.
pub fn check(
    service: Column,
    from: QpState,
    to: QpState,
    given: Attributes,
) -> Result<&'static Transition, TransitionError> {
    let transition = TRANSITIONS
        .iter()
        .find(|candidate| candidate.from == from && candidate.to == to && candidate.services.has(service))
        .ok_or(TransitionError::NoSuchTransition { from, to })?;
    let (required, optional) = (transition.required.of(service), transition.optional.of(service));
    let missing = required.without(given);
    let forbidden = given.without(required.with(optional));
    if !missing.is_empty() || !forbidden.is_empty() {
        return Err(TransitionError::WrongAttributes { from, to, missing, forbidden });
    }
    let migration = Attributes::ALTERNATE_PATH | Attributes::PATH_MIGRATION;
    if given.without(migration) != given { Err(TransitionError::NoPathMigration) } else { Ok(transition) }
}

#[cfg(test)]
mod tests;
