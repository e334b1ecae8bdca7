//! The address filter of the virtual port: it decides which RoCE packets from the wire the port accepts. All
//! other packets go to the flow tables, whatever their address.

use bareverbs_prm::context::NicVportContext;
use bareverbs_prm::ids::MacAddress;

const BROADCAST: MacAddress = MacAddress([0xff; 6]);

/// Addresses that software added to the port's own, and VLANs.
#[derive(Debug, Default)]
pub(crate) struct AddressLists {
    pub(crate) unicast: Vec<MacAddress>,
    pub(crate) multicast: Vec<MacAddress>,
    pub(crate) vlans: Vec<u16>,
}

impl AddressLists {
    /// Whether software, whose port has the address `own`, wants packets to `destination`.
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

/// Whether an address is a group address, including broadcast.
pub(crate) const fn is_multicast(address: MacAddress) -> bool {
    address.0[0] & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);
    const GROUP: MacAddress = MacAddress([1, 0, 0x5e, 0, 0, 7]);

    #[test]
    fn lists_and_promiscuity_open_the_port_to_what_they_say() {
        let (mut lists, mut vport) = (AddressLists::default(), NicVportContext::new());
        let accepted = |lists: &AddressLists, vport: &NicVportContext| {
            [OWN, BROADCAST, OTHER, GROUP].map(|destination| lists.accept(vport, OWN, destination))
        };
        assert_eq!(accepted(&lists, &vport), [true, true, false, false]);
        lists.multicast.push(GROUP);
        assert_eq!(accepted(&lists, &vport), [true, true, false, true]);
        vport.set_promisc_uc(true);
        assert_eq!(accepted(&lists, &vport), [true; 4]);
        lists.multicast.clear();
        assert_eq!(accepted(&lists, &vport), [true, true, true, false]);
        vport.set_promisc_uc(false).set_promisc_all(true);
        assert_eq!(accepted(&lists, &vport), [true; 4]);
    }
}
