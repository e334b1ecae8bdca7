//! Where a connection leads.

use crate::nic::port::{ends, version};
use crate::wire::{HeaderTemplate, Network};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::{PathMtu, RoceVersion};

/// Where packets go to and must come from.
#[derive(Debug)]
pub(crate) struct Path {
    pub(super) headers: HeaderTemplate,
    pub(super) local: Gid,
    pub(super) remote: Gid,
    pub(super) version: RoceVersion,
    pub(super) partition_key: u16,
    /// Frames come back to this device.
    pub(super) loops_back: bool,
}

impl Path {
    /// Whether a packet comes from the other end of the path.
    #[inline]
    pub(super) fn leads_to_sender(&self, network: &Network) -> bool {
        let (source, destination) = ends(network);
        let from_peer = self.remote == source || mutated("any_sender");
        from_peer && self.local == destination && self.version == version(network)
    }
}

/// Bytes of a path MTU.
pub(crate) fn path_mtu(mtu: PathMtu) -> Option<u32> {
    match mtu.raw() {
        raw @ 1..=5 => Some(128 << raw),
        _ => None,
    }
}
