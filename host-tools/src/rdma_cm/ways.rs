//! Who is asked and how messages get there: by GID and MAC address on Ethernet, by LID within an InfiniBand subnet.

use super::{CmPeer, ConnectionManager, QueueEnd, ip_of};
use crate::general_services::Arrived;
use anyhow::{Context as _, Result};
use bareverbs_cm::{Kind, Message, Path};
use bareverbs_core::hal::Hal;
use bareverbs_core::queue_pair::{AddressVector, RemoteEndpoint};
use bareverbs_core::{AddressHandle, GidEntry};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::RoceVersion;

impl<H: Hal> ConnectionManager<'_, H> {
    /// The peer that somebody names.
    pub(crate) fn peer(&self, name: &str) -> Result<CmPeer> {
        if self.own.lid.is_some() {
            let (port, ip) = self.seat.subnet_port_of(name)?;
            return Ok(CmPeer { path: self.own.path_to(port.gid, port.lid), ip });
        }
        let gid = self.seat.gid_of_peer(name, self.own.gid)?;
        Ok(CmPeer { path: self.own.path_to(gid, 0), ip: ip_of(gid) })
    }

    /// The path to whoever sent a message; `None` if it came for no address of ours.
    pub(super) fn path_of(&self, arrived: &Arrived, message: &Message) -> Option<Path> {
        let local = match message.kind() {
            Kind::Request => message.remote_gid()?,
            _ => self.own.gid,
        };
        if self.own.lid.is_some() {
            let lid = arrived.completion.origin.lid();
            // Who has left the subnet since is answered as well as can be: by LID.
            let remote = self.seat.gid_of_lid(lid).unwrap_or_default();
            return (local == self.own.gid).then(|| self.own.path_to(remote, lid));
        }
        let is_ours = self.seat.gids.iter().any(|entry| entry.gid == local);
        is_ours.then_some(Path { local, remote: arrived.source()?, lids: None })
    }

    pub(super) fn way(&self, path: Path) -> Result<AddressHandle> {
        let QueueRoute { gid, mac, lid } = self.route(path)?;
        let vector = AddressVector {
            gid_index: self.index_of(path)?,
            gid,
            mac,
            hop_limit: path.hop_limit(),
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            udp_source_port: 0,
            lid,
        };
        Ok(AddressHandle::new(&self.services.device, &vector)?)
    }

    /// A queue pair at the other end of a path.
    pub(super) fn endpoint(&self, path: Path, QueueEnd { qpn, psn }: QueueEnd) -> Result<RemoteEndpoint> {
        let QueueRoute { gid, mac, lid } = self.route(path)?;
        let version = path.is_global().then_some(RoceVersion::Version2);
        Ok(RemoteEndpoint { qpn, psn, gid, mac, version, lid })
    }

    /// What packets have of their receiver: within a subnet its LID, and no global route header.
    fn route(&self, path: Path) -> Result<QueueRoute> {
        Ok(match path.lids {
            Some(lids) => QueueRoute { gid: Gid::default(), mac: MacAddress::default(), lid: lids.remote },
            None => QueueRoute { gid: path.remote, mac: self.seat.mac_of(path.remote)?, lid: 0 },
        })
    }

    /// The index of the own GID of a path: on Ethernet one of RoCE version 2.
    pub(super) fn index_of(&self, path: Path) -> Result<u8> {
        if path.lids.is_some() {
            return Ok(0);
        }
        let gid = path.local;
        let is_it = |entry: &GidEntry| entry.gid == gid && entry.version == RoceVersion::Version2;
        let found = self.seat.gids.iter().position(is_it);
        Ok(found.with_context(|| format!("{gid} is no address of this port in RoCE version 2"))? as u8)
    }
}

struct QueueRoute {
    gid: Gid,
    mac: MacAddress,
    lid: u16,
}
