//! GUIDs of an InfiniBand port, its node and its card.

use bareverbs_prm::ids::MacAddress;

/// GUIDs of a node with one port.
///
/// ```
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_sim::nic::{Guids, NicConfig};
///
/// // As a site's ibnetdiscover has shown them.
/// let guids = Guids { node: 0x0002_c903_0012_ab34, port: 0x0002_c903_0012_ab35 };
/// let nic = NicConfig { guids: Some(guids), ..NicConfig::infiniband(MacAddress([2, 0, 0, 0, 0, 1])) };
/// assert_eq!(nic.guids.unwrap().port - nic.guids.unwrap().node, 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guids {
    /// Node GUID and system image GUID.
    pub node: u64,
    /// Port GUID.
    pub port: u64,
}

impl Guids {
    /// The GUIDs derived from a MAC address.
    pub(super) fn of(mac: MacAddress) -> Self {
        Self { node: eui_64(mac), port: eui_64(mac) }
    }
}

/// System image GUID of the card: the GUID of its first function. MAC addresses of functions are consecutive.
pub(super) fn card_guid(mac: MacAddress, card_port: u8) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    let number = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    let [_, _, first @ ..] = number.saturating_sub(u64::from(card_port.max(1) - 1)).to_be_bytes();
    eui_64(MacAddress(first))
}

/// EUI-64 of a MAC address, with the universal bit inverted.
fn eui_64(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
