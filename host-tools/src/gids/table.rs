//! The GID table of a port, and which entry reaches a peer.

use crate::place::{DeviceTask, KernelView};
use crate::port_address::{self, PortAddress, gid_of};
use crate::seat::fill_as_host;
use bareverbs_core::command::CommandError;
use bareverbs_core::device::GidError;
use bareverbs_core::gid_choice::{GidCriteria, choose, suits};
use bareverbs_core::hal::Hal;
use bareverbs_core::{Device, GidEntry};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::numbering::{PortType, RoceVersion};
use bareverbs_uverbs::{VirtualHost, ipv4_prefix};
use std::net::IpAddr;

/// Prefix length of a host's IPv6 address (RFC 4291 §2.5.4).
const IPV6_NETWORK_BITS: u8 = 64;

/// The peer that the table should reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetPeer {
    pub(crate) peer: IpAddr,
    pub(crate) version: RoceVersion,
    pub(crate) vlan: Option<u16>,
    /// Whether a router forwards to networks that the port is not in.
    pub(crate) routed: bool,
}

/// An entry of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GidRow {
    pub(crate) index: u16,
    pub(crate) gid: Gid,
    /// Its RoCE attributes, on Ethernet; an InfiniBand port has only GIDs.
    pub(crate) roce: Option<RoceRow>,
}

/// The attributes of a RoCE address table entry other than its GID.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RoceRow {
    pub(crate) entry: GidEntry,
    /// `None` if it is the kernel's, whose routes alone say what it reaches.
    pub(crate) address: Option<PortAddress>,
}

/// Whether an entry is used for the peer, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Used,
    /// It would reach the peer too.
    Worse {
        used: u16,
    },
    Not(String),
}

/// Gives the port its addresses and reads the table.
pub(crate) struct Fill<'a> {
    pub(crate) addresses: &'a [PortAddress],
    /// The host whose addresses it has instead, with the indices that programs of the host see.
    pub(crate) host: Option<VirtualHost>,
    /// What the kernel says if it owns the device, and so the addresses.
    pub(crate) kernel: Option<&'a KernelView>,
}

impl DeviceTask for Fill<'_> {
    type Output = Result<Vec<GidRow>, GidError>;

    fn run<H: Hal>(self, device: &Device<H>) -> Result<Self::Output, CommandError> {
        if device.capabilities().port_type == PortType::Ethernet {
            Ok(self.ethernet(device)?)
        } else {
            // The first entry of an InfiniBand port: the subnet prefix and the port's GUID.
            let gid = self.kernel.map_or_else(|| device.infiniband_gid(0), |view| Ok(view.gid))?;
            Ok(Ok(vec![GidRow { index: 0, gid, roce: None }]))
        }
    }
}

impl Fill<'_> {
    fn ethernet<H: Hal>(self, device: &Device<H>) -> Result<<Self as DeviceTask>::Output, CommandError> {
        if self.kernel.is_some() {
            let row = |(index, entry): (u16, GidEntry)| {
                let roce = Some(RoceRow { entry, address: None });
                GidRow { index, gid: entry.gid, roce }
            };
            return Ok(Ok(device.adopt_gids()?.map(row).collect()));
        }
        let filled = match &self.host {
            Some(host) => {
                fill_as_host(device, host).map(|entries| entries.into_iter().map(of_host).collect())
            }
            None => port_address::fill_table(device, self.addresses)?,
        };
        let row = |(index, (entry, address)): (usize, (GidEntry, PortAddress))| GidRow {
            index: index as u16,
            gid: entry.gid,
            roce: Some(RoceRow { entry, address: Some(address) }),
        };
        Ok(filled.map(|rows: Vec<_>| rows.into_iter().enumerate().map(row).collect()))
    }
}

/// An entry of a host, with its network.
fn of_host(entry: GidEntry) -> (GidEntry, PortAddress) {
    let (ip, prefix) = match entry.gid.to_ipv4() {
        Some(ip) => (IpAddr::from(ip), ipv4_prefix(ip) as u8),
        None => (IpAddr::from(entry.gid.0), IPV6_NETWORK_BITS),
    };
    (entry, PortAddress { ip, prefix, vlan: entry.vlan })
}

/// A verdict for each row. `ask` knows why the kernel's routes do not lead from a row to a GID.
pub(crate) fn judge(
    rows: &[GidRow],
    target: &TargetPeer,
    ask: &dyn Fn(&GidRow, Gid) -> Option<String>,
) -> Vec<Verdict> {
    let asked = GidCriteria { peer: gid_of(target.peer), version: target.version, vlan: target.vlan };
    let faults: Vec<Option<String>> = rows.iter().map(|row| fault(row, target, &asked, ask)).collect();
    let able = rows.iter().zip(&faults).filter(|(_, fault)| fault.is_none());
    let roce = able.clone().filter_map(|(row, _)| Some((row.index, row.roce?.entry)));
    let used = choose(roce, &asked).or_else(|| able.clone().map(|(row, _)| row.index).next());
    let verdict = |(row, fault): (&GidRow, Option<String>)| match (fault, used) {
        (Some(fault), _) => Verdict::Not(fault),
        (None, Some(used)) if used != row.index => Verdict::Worse { used },
        (None, _) => Verdict::Used,
    };
    rows.iter().zip(faults).map(verdict).collect()
}

/// Why the row does not reach the peer.
fn fault(
    row: &GidRow,
    target: &TargetPeer,
    asked: &GidCriteria,
    ask: &dyn Fn(&GidRow, Gid) -> Option<String>,
) -> Option<String> {
    let roce = row.roce?;
    if let Err(mismatch) = suits(&roce.entry, asked) {
        return Some(mismatch.to_string());
    }
    let Some(address) = roce.address else { return ask(row, asked.peer) };
    let outside = !target.routed && !address.reaches(target.peer);
    outside.then(|| format!("no route: the peer is outside {address}; --routed if a router forwards"))
}
