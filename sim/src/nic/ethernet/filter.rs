//! The address filter of the virtual port: which packets of the wire are ours.

use bareverbs_prm::context::NicVportContext;
use bareverbs_prm::ids::MacAddress;

const BROADCAST: MacAddress = MacAddress([0xff; 6]);

/// Addresses that software asked for besides that of the port, and VLANs.
#[derive(Debug, Default)]
pub(crate) struct AddressLists {
    pub(crate) unicast: Vec<MacAddress>,
    pub(crate) multicast: Vec<MacAddress>,
    pub(crate) vlans: Vec<u16>,
}

impl AddressLists {
    /// Whether a packet to `destination` is for software, whose port has the address `own`.
    pub(crate) fn accept(&self, vport: &NicVportContext, own: MacAddress, destination: MacAddress) -> bool {
        if destination == own || destination == BROADCAST || vport.promisc_all() {
            return true;
        }
        if is_multicast(destination) {
            return vport.promisc_mc() || self.multicast.contains(&destination);
        }
        vport.promisc_uc() || self.unicast.contains(&destination)
    }
}

/// Whether an address is that of a group, broadcast included.
pub(crate) const fn is_multicast(address: MacAddress) -> bool {
    address.0[0] & 1 != 0
}
