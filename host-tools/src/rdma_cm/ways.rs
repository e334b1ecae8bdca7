//! Peers, and the paths of messages to them: by GID and MAC address on Ethernet, by LID within an InfiniBand
//! subnet.

use super::{CmPeer, ConnectionManager, IpoibWay, QueueEnd, ip_of};
use crate::general_services::Arrived;
use anyhow::{Context as _, Result, bail};
use bareverbs_cm::{Kind, Message, Path, request};
use bareverbs_core::hal::Hal;
use bareverbs_core::queue_pair::{AddressVector, RemoteEndpoint};
use bareverbs_core::{AddressHandle, GidEntry};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::RoceVersion;
use bareverbs_prm::time::Duration;
use std::net::{IpAddr, ToSocketAddrs as _};

impl<H: Hal> ConnectionManager<'_, H> {
    /// The peer with this name.
    pub(crate) fn peer(&mut self, name: &str) -> Result<CmPeer> {
        if self.presence.is_some() {
            return self.find_over_ipoib(name);
        }
        if self.own.subnet.is_some() {
            let (port, ip) = self.seat.subnet_port_of(name)?;
            return Ok(CmPeer { path: self.own.path_to(port.gid, port.lid, 0), ip, path_mtu: None });
        }
        let gid = self.seat.gid_of_peer(name, self.own.gid)?;
        Ok(CmPeer { path: self.own.path_to(gid, 0, 0), ip: ip_of(gid), path_mtu: None })
    }

    /// Resolves an address by ARP or neighbour discovery, and queries the path to its port.
    fn find_over_ipoib(&mut self, name: &str) -> Result<CmPeer> {
        let resolved = (name, 0).to_socket_addrs();
        let resolved =
            resolved.with_context(|| format!("{name:?} is neither an IP address nor a name that has one"))?;
        let mut ips = resolved.map(|address| address.ip());
        let Some(ip) = ips.find(|ip| self.own.ip_beside(*ip).is_some()) else {
            bail!(
                "{name} has no address of this port's address family: give the port another address with --address"
            )
        };
        let deadline = self.hal().now() + self.timeout;
        loop {
            self.step()?;
            let now = self.hal().now();
            let presence = self.presence.as_mut().context("the port is not an IPoIB interface")?;
            if let Some(IpoibWay { gid, lid, service_level, mtu }) = presence.way(now, ip) {
                let path = self.own.path_to(gid, lid, service_level);
                return Ok(CmPeer { path, ip, path_mtu: Some(mtu) });
            }
            if now > deadline {
                let is_joined = presence.is_joined();
                bail!("{}", not_found(ip, is_joined, self.timeout));
            }
            self.rest();
        }
    }

    /// The path to the sender of a message; `None` if it was for no address of ours.
    pub(super) fn path_of(&self, arrived: &Arrived, message: &Message) -> Option<Path> {
        let local = match message.kind() {
            Kind::Request => message.remote_gid()?,
            _ => self.own.gid,
        };
        if self.own.subnet.is_some() {
            let lid = arrived.completion.origin.lid();
            // A sender that has left the subnet meanwhile, or never stated its GID, is answered by LID as
            // well as possible.
            let remote = message.local_gid().or_else(|| self.seat.gid_of_lid(lid)).unwrap_or_default();
            let service_level = match message.kind() {
                Kind::Request => message.get8(request::SERVICE_LEVEL),
                _ => 0,
            };
            return (local == self.own.gid).then(|| self.own.path_to(remote, lid, service_level));
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
            service_level: path.lids.map_or(0, |lids| lids.service_level),
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

    /// The route in packets to a receiver: within a subnet its LID, and no global route header.
    fn route(&self, path: Path) -> Result<QueueRoute> {
        Ok(match path.lids {
            Some(lids) => QueueRoute { gid: Gid::default(), mac: MacAddress::default(), lid: lids.remote },
            None => QueueRoute {
                gid: path.remote,
                mac: self.seat.mac_of(self.index_of(path)?, path.remote)?,
                lid: 0,
            },
        })
    }

    /// The index of a path's own GID: on Ethernet one of RoCE version 2.
    pub(super) fn index_of(&self, path: Path) -> Result<u8> {
        if path.lids.is_some() {
            return Ok(0);
        }
        let gid = path.local;
        let is_it = |entry: &GidEntry| entry.gid == gid && entry.version == RoceVersion::Version2;
        let found = self.seat.gids.iter().position(is_it);
        Ok(found.with_context(|| format!("{gid} is not a RoCE version 2 address of this port"))? as u8)
    }
}

/// Why an address was not found in the subnet.
fn not_found(ip: IpAddr, is_joined: bool, timeout: Duration) -> String {
    let timeout = std::time::Duration::from_nanos(timeout.as_nanos());
    if !is_joined {
        return format!(
            "the port did not join IPoIB's broadcast group within {timeout:?}, so {ip} cannot be resolved: \
             is the port active (`bareverbs doctor`), and does the subnet administration have the group? \
             OpenSM creates it for partitions with the word ipoib"
        );
    }
    format!(
        "no IPoIB interface answered for {ip} within {timeout:?}, or the subnet administration has no path \
         to it: is ib_ipoib loaded there, is its interface up with this address (`ip addr`), and is its \
         port in the same partition?"
    )
}

struct QueueRoute {
    gid: Gid,
    mac: MacAddress,
    lid: u16,
}
