//! What a world remembers of a card with several functions.

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
    /// By time of their end and number.
    pub(super) copies: BTreeMap<(Time, u64), Copying>,
    pub(super) admitted: u64,
}

/// A copy that has not ended, and the node whose device asked for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copying {
    pub(super) asker: NodeId,
    pub(super) request: DmaRequest,
}

/// Why nodes could not be joined to a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardError {
    /// The device of the node is the only function of its card.
    NoFunction(NodeId),
    /// The node is a function of a card already.
    JoinedAlready(NodeId),
    /// Two functions have one VHCA id.
    SameId(VhcaId),
}

impl fmt::Display for CardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFunction(node) => {
                write!(f, "the device of node {} is no function among others: set NicConfig::card", node.0)
            }
            Self::JoinedAlready(node) => write!(f, "node {} is a function of a card already", node.0),
            Self::SameId(id) => write!(f, "two functions of the card have VHCA id {id}: give one another"),
        }
    }
}

impl core::error::Error for CardError {}
