//! Paths to a peer, resolved like `mlx5_set_path` and `ib_resolve_eth_dmac` do: on RoCE the program names a GID and
//! neighbour discovery finds the MAC address; on InfiniBand a path has a LID, and a GID if there is a GRH.

use crate::Errno;
use crate::attributes::DeviceAttributes;
use crate::call::Call;
use crate::process::Process;
use crate::uapi::{AhAttr, QpDest};
use bareverbs_prm::context::AddressPath;
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};

/// First UDP source port of RoCEv2 packets. The flow label selects one from here on.
const FIRST_SOURCE_PORT: u16 = 0xc000;
const SOURCE_PORT_BITS: u32 = 14;

/// Both queue pairs of a connection.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) local: Qpn,
    pub(crate) remote: Qpn,
}

/// Next hop of packets on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextHop {
    Ethernet(MacAddress),
    InfiniBand,
}

impl NextHop {
    /// The MAC address; zero on InfiniBand.
    pub(crate) const fn mac(self) -> MacAddress {
        match self {
            Self::Ethernet(mac) => mac,
            Self::InfiniBand => MacAddress([0; 6]),
        }
    }
}

/// The path to a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    gid: Gid,
    lid: u16,
    path_bits: u8,
    flow_label: u32,
    source_index: u8,
    hop_limit: u8,
    traffic_class: u8,
    service_level: u8,
    is_global: bool,
    port: u8,
}

impl From<&QpDest> for Route {
    fn from(dest: &QpDest) -> Self {
        Self {
            gid: Gid(dest.dgid),
            lid: dest.dlid,
            path_bits: dest.src_path_bits,
            flow_label: dest.flow_label,
            source_index: dest.sgid_index,
            hop_limit: dest.hop_limit,
            traffic_class: dest.traffic_class,
            service_level: dest.sl,
            is_global: dest.is_global != 0,
            port: dest.port_num,
        }
    }
}

impl From<&AhAttr> for Route {
    fn from(attr: &AhAttr) -> Self {
        Self {
            gid: Gid(attr.grh.dgid),
            lid: attr.dlid,
            path_bits: attr.src_path_bits,
            flow_label: attr.grh.flow_label,
            source_index: attr.grh.sgid_index,
            hop_limit: attr.grh.hop_limit,
            traffic_class: attr.grh.traffic_class,
            service_level: attr.sl,
            is_global: attr.is_global != 0,
            port: attr.port_num,
        }
    }
}

impl Route {
    /// Resolves the next hop. RoCE needs the GIDs of both sides, InfiniBand a LID.
    pub(crate) fn resolve<P: Process>(&self, call: &mut Call<'_, P>) -> Result<NextHop, Errno> {
        let DeviceAttributes { gids, infiniband, .. } = &call.device.attributes;
        let has_source = usize::from(self.source_index) < gids.len();
        if self.port != 1 || self.is_global && !has_source || !self.is_global && infiniband.is_none() {
            return Err(Errno::Invalid);
        }
        if infiniband.is_some() {
            return if self.lid == 0 { Err(Errno::Invalid) } else { Ok(NextHop::InfiniBand) };
        }
        self.resolve_mac(call).map(NextHop::Ethernet)
    }

    fn resolve_mac<P: Process>(&self, call: &mut Call<'_, P>) -> Result<MacAddress, Errno> {
        if call.device.attributes.gids.contains(&self.gid) {
            return Ok(call.device.commands.nic.config().mac);
        }
        let known = self.gid.multicast_mac().filter(|_| self.gid.is_multicast());
        let known = known.or_else(|| link_local_mac(self.gid));
        known.map_or_else(|| call.process.resolve(self.gid), Ok)
    }

    /// Fills the device's address path. The UDP source port follows from the flow label, or from both queue pair
    /// numbers, so that switches spread connections over paths.
    pub(crate) fn fill(&self, path: &mut AddressPath, next: NextHop, ends: &Ends) {
        path.set_vhca_port_num(self.port);
        match next {
            NextHop::Ethernet(mac) => self.fill_ethernet(path, mac, ends),
            NextHop::InfiniBand => self.fill_infiniband(path),
        }
    }

    fn fill_infiniband(&self, path: &mut AddressPath) {
        path.set_rlid(self.lid).set_mlid(self.path_bits & 0x7f).set_sl(self.service_level & 0xf);
        if self.is_global {
            path.set_grh(true).set_rgid_rip(self.gid.0).set_src_addr_index(self.source_index);
            path.set_hop_limit(self.hop_limit).set_tclass(self.traffic_class);
            path.set_flow_label(self.flow_label & 0xf_ffff);
        }
    }

    fn fill_ethernet(&self, path: &mut AddressPath, mac: MacAddress, ends: &Ends) {
        let label = if self.flow_label == 0 { flow_label(ends) } else { self.flow_label };
        path.set_rmac_47_32(mac.high()).set_rmac_31_0(mac.low()).set_rgid_rip(self.gid.0);
        path.set_src_addr_index(self.source_index).set_hop_limit(self.hop_limit);
        path.set_tclass(self.traffic_class).set_dscp(self.traffic_class >> 2);
        path.set_flow_label(self.flow_label & 0xf_ffff).set_udp_sport(source_port(label));
        path.set_eth_prio(self.service_level & 7);
    }

    /// The path as shown to a program.
    pub(crate) fn show(path: &AddressPath, is_infiniband: bool) -> QpDest {
        let route = Self::show_global(path);
        if !is_infiniband {
            return route;
        }
        QpDest {
            dlid: path.rlid(),
            sl: path.sl(),
            src_path_bits: path.mlid(),
            is_global: u8::from(path.grh()),
            ..route
        }
    }

    fn show_global(path: &AddressPath) -> QpDest {
        QpDest {
            dgid: path.rgid_rip(),
            flow_label: path.flow_label(),
            dlid: 0,
            reserved: 0,
            sgid_index: path.src_addr_index(),
            hop_limit: path.hop_limit(),
            traffic_class: path.tclass(),
            sl: path.eth_prio(),
            src_path_bits: 0,
            static_rate: path.stat_rate(),
            is_global: u8::from(path.rgid_rip() != [0; 16]),
            port_num: path.vhca_port_num(),
        }
    }
}

/// The MAC address inside an IPv6 link-local address that was derived from one (RFC 4291 appendix A).
pub(crate) fn link_local_mac(gid: Gid) -> Option<MacAddress> {
    match gid.0 {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
            Some(MacAddress([a ^ 2, b, c, d, e, f]))
        }
        _ => None,
    }
}

/// The flow label of a connection whose program named none (`rdma_calc_flow_label`).
fn flow_label(ends: &Ends) -> u32 {
    let product = u64::from(ends.local.value()) * u64::from(ends.remote.value());
    let folded = product ^ product >> 20;
    (folded ^ folded >> 40) as u32 & 0xf_ffff
}

/// The UDP source port of a flow label (`rdma_flow_label_to_udp_sport`).
const fn source_port(label: u32) -> u16 {
    let low = label & ((1 << SOURCE_PORT_BITS) - 1);
    (low ^ label >> SOURCE_PORT_BITS & 0x3f) as u16 | FIRST_SOURCE_PORT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_gid_holds_its_mac_address() {
        let mac = MacAddress([2, 0xc9, 1, 2, 3, 4]);
        let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xc9, 1, 0xff, 0xfe, 2, 3, 4]);
        assert_eq!(link_local_mac(gid), Some(mac));
        assert_eq!(link_local_mac(Gid::from_ipv4([198, 18, 0, 1])), None);
    }

    #[test]
    fn source_ports_are_those_of_roce() {
        assert_eq!(source_port(0), 0xc000);
        assert_eq!(source_port(0xf_ffff), 0xc000 | 0x3fff ^ 0x3f);
        let number = Qpn::from_low_bits;
        let label = flow_label(&Ends { local: number(0x41), remote: number(0x42) });
        assert_eq!(label, 0x41 * 0x42);
    }
}
