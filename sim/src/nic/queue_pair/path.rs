//! The path of a connection.

use crate::nic::port::{ends, version};
use crate::wire::{HeaderTemplate, Network};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::PathMtu;

/// The addresses that packets go to and must come from.
#[derive(Debug)]
pub(crate) struct Path {
    pub(super) headers: HeaderTemplate,
    /// The network addresses in the packets of the peer.
    pub(super) from_peer: Network,
    pub(super) partition_key: u16,
    /// Frames on this path return to this device.
    pub(super) loops_back: bool,
}

impl Path {
    /// Whether a packet comes from the other end of the path.
    #[inline]
    pub(super) fn leads_to_sender(&self, network: &Network) -> bool {
        self.from_peer == *network || self.has_ends_of(network)
    }

    /// Whether two addresses name the same ends although they are written differently.
    #[cold]
    fn has_ends_of(&self, network: &Network) -> bool {
        let ((remote, local), (source, destination)) = (ends(&self.from_peer), ends(network));
        let from_peer = remote == source || mutated("any_sender");
        from_peer && local == destination && version(&self.from_peer) == version(network)
    }
}

/// Bytes of a path MTU.
pub(crate) fn path_mtu(mtu: PathMtu) -> Option<u32> {
    match mtu.raw() {
        raw @ 1..=5 => Some(128 << raw),
        _ => None,
    }
}
