//! State of a card with several functions.

use super::dma::DmaClock;
use super::topology::NodeId;
use crate::nic::DmaRequest;
use bareverbs_prm::ids::VhcaId;
use bareverbs_prm::time::Time;
use core::fmt;
use std::collections::BTreeMap;

/// Functions of one card.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) functions: BTreeMap<VhcaId, NodeId>,
    pub(super) engine: DmaClock,
    /// Copies in progress, by end time and number.
    pub(super) copies: BTreeMap<(Time, u64), Copying>,
    pub(super) admitted: u64,
}

/// A copy in progress, and the node that requested it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copying {
    pub(super) asker: NodeId,
    pub(super) request: DmaRequest,
}

/// Why nodes could not be joined into a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardError {
    /// The node's device is the only function of its card.
    NoFunction(NodeId),
    /// The node already belongs to a card.
    JoinedAlready(NodeId),
    /// Two functions have the same VHCA ID.
    SameId(VhcaId),
}

impl fmt::Display for CardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFunction(node) => {
                write!(f, "the device of node {} is not a function of a card: set NicConfig::card", node.0)
            }
            Self::JoinedAlready(node) => write!(f, "node {} is already a function of a card", node.0),
            Self::SameId(id) => write!(f, "two functions of the card have VHCA id {id}: give one another"),
        }
    }
}

impl core::error::Error for CardError {}
