//! The path of a connection.

use crate::nic::port::{ends, version};
use crate::wire::{HeaderTemplate, Network, RouteTemplate};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::PathMtu;
use std::sync::Arc;

/// The addresses that packets go to and must come from.
#[derive(Debug)]
pub(crate) struct Path {
    pub(super) headers: HeaderTemplate<Arc<RouteTemplate>>,
    /// Frames on this path return to this device.
    pub(super) loops_back: bool,
}

impl Path {
    /// The network addresses in the packets of the peer.
    #[inline]
    fn peer_addresses(&self) -> &Network {
        self.headers.route().reversed()
    }

    /// Whether a packet comes from the other end of the path.
    #[inline]
    pub(super) fn leads_to_sender(&self, network: &Network) -> bool {
        self.peer_addresses() == network || self.has_ends_of(network)
    }

    /// Whether two addresses name the same ends although they are written differently.
    #[cold]
    fn has_ends_of(&self, network: &Network) -> bool {
        let ((remote, local), (source, destination)) = (ends(self.peer_addresses()), ends(network));
        let from_peer = remote == source || mutated("any_sender");
        from_peer && local == destination && version(self.peer_addresses()) == version(network)
    }
}

/// Bytes of a path MTU.
pub(crate) fn path_mtu(mtu: PathMtu) -> Option<u32> {
    match mtu.raw() {
        raw @ 1..=5 => Some(128 << raw),
        _ => None,
    }
}
