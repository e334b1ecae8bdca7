//! Which PCI functions have the interface of this manual, and which of them are supported.

use core::fmt;

/// Vendor: Mellanox, now NVIDIA.
pub const VENDOR: u16 = 0x15b3;

/// Identity of a PCI function, from its configuration space.
///
/// ```
/// use bareverbs_prm::pci::PciIdentity;
///
/// // The beginning of a ConnectX-5's configuration space.
/// let bytes = [0xb3, 0x15, 0x17, 0x10, 0x06, 0, 0x10, 0, 0];
/// let identity = PciIdentity { vendor: 0x15b3, device: 0x1017, revision: 0 };
/// assert_eq!(PciIdentity::from_configuration(&bytes), identity);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciIdentity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Revision ID: the hardware version of the chip.
    pub revision: u8,
}

impl PciIdentity {
    /// Length in bytes of the part of configuration space, from its start, that holds the identity.
    pub const BYTES: usize = 9;

    /// Parses the first bytes of configuration space.
    pub const fn from_configuration(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            vendor: u16::from_le_bytes([bytes[0], bytes[1]]),
            device: u16::from_le_bytes([bytes[2], bytes[3]]),
            revision: bytes[8],
        }
    }
}

/// How far a kind of function is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The driver supports its interface. None was tried on hardware; see docs/hardware.md.
    Supported,
    /// It is refused, and why.
    Refused(&'static str),
}

/// Physical or virtual function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Physical.
    Physical,
    /// Virtual (SR-IOV).
    Virtual,
}

/// A known device id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// PCI device id.
    pub id: u16,
    /// Product.
    pub name: &'static str,
    /// Physical or virtual function.
    pub kind: Kind,
    /// How far it is supported.
    pub support: Support,
}

const TOO_OLD: &str =
    "it is an mlx4 device, with another command interface: ConnectX-4 and later are supported";
const CONNECT_IB: &str = "Connect-IB supports only InfiniBand and lacks version 1 of completion entries: ConnectX-4 and later are supported";
const TOO_NEW: &str = "it is too new, and the needs of its firmware are unknown: ConnectX-4 to ConnectX-8, BlueField-2 and BlueField-3 are supported";
const BLUEFIELD_1: &str = "BlueField-1 was not examined: BlueField-2 and BlueField-3 are supported";
const UNKNOWN: &str = "its device id is not in the table of mlx5 devices: ConnectX-4 to ConnectX-8, BlueField-2 and BlueField-3 are supported";
const OTHER_VENDOR: &str = "it is not a Mellanox/NVIDIA device (vendor 15b3)";

const fn known(id: u16, name: &'static str, kind: Kind, support: Support) -> Known {
    Known { id, name, kind, support }
}

use Kind::{Physical, Virtual};
use Support::{Refused, Supported};

/// All ids that this table knows, in order.
pub const KNOWN: &[Known] = &[
    known(0x1003, "ConnectX-3", Physical, Refused(TOO_OLD)),
    known(0x1004, "ConnectX-3 virtual function", Virtual, Refused(TOO_OLD)),
    known(0x1007, "ConnectX-3 Pro", Physical, Refused(TOO_OLD)),
    known(0x1011, "Connect-IB", Physical, Refused(CONNECT_IB)),
    known(0x1012, "Connect-IB virtual function", Virtual, Refused(CONNECT_IB)),
    known(0x1013, "ConnectX-4", Physical, Supported),
    known(0x1014, "ConnectX-4 virtual function", Virtual, Supported),
    known(0x1015, "ConnectX-4 Lx", Physical, Supported),
    known(0x1016, "ConnectX-4 Lx virtual function", Virtual, Supported),
    known(0x1017, "ConnectX-5", Physical, Supported),
    known(0x1018, "ConnectX-5 virtual function", Virtual, Supported),
    known(0x1019, "ConnectX-5 Ex", Physical, Supported),
    known(0x101a, "ConnectX-5 Ex virtual function", Virtual, Supported),
    known(0x101b, "ConnectX-6", Physical, Supported),
    known(0x101c, "ConnectX-6 virtual function", Virtual, Supported),
    known(0x101d, "ConnectX-6 Dx", Physical, Supported),
    known(0x101e, "ConnectX-6 Dx and later virtual function", Virtual, Supported),
    known(0x101f, "ConnectX-6 Lx", Physical, Supported),
    known(0x1021, "ConnectX-7", Physical, Supported),
    known(0x1023, "ConnectX-8", Physical, Supported),
    known(0x1025, "ConnectX-9", Physical, Refused(TOO_NEW)),
    known(0xa2d2, "BlueField ConnectX-5", Physical, Refused(BLUEFIELD_1)),
    known(0xa2d3, "BlueField ConnectX-5 virtual function", Virtual, Refused(BLUEFIELD_1)),
    known(0xa2d6, "BlueField-2 ConnectX-6 Dx", Physical, Supported),
    known(0xa2dc, "BlueField-3 ConnectX-7", Physical, Supported),
    known(0xa2df, "BlueField-4 ConnectX-8", Physical, Refused(TOO_NEW)),
];

/// The entry of a device id of vendor 15b3, if there is one.
pub fn find(device: u16) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.id == device)
}

/// How far a function is supported.
pub fn support(vendor: u16, device: u16) -> Support {
    match (vendor, find(device)) {
        (VENDOR, Some(known)) => known.support,
        (VENDOR, None) => Refused(UNKNOWN),
        _ => Refused(OTHER_VENDOR),
    }
}

/// The name of a function.
pub fn name(vendor: u16, device: u16) -> &'static str {
    match find(device).filter(|_| vendor == VENDOR) {
        Some(known) => known.name,
        None => "unknown",
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Supported => f.write_str("supported"),
            Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_names_virtual_functions() {
        assert!(KNOWN.windows(2).all(|pair| pair[0].id < pair[1].id));
        for known in KNOWN {
            assert_eq!(known.kind == Virtual, known.name.ends_with("virtual function"), "{known:?}");
        }
    }

    #[test]
    fn refusals_have_a_reason() {
        assert_eq!(support(VENDOR, 0x1021), Supported);
        for (vendor, device, word) in
            [(VENDOR, 0x1003, "mlx4"), (VENDOR, 0xffff, "table"), (0x8086, 0x1017, "vendor")]
        {
            let Refused(why) = support(vendor, device) else { panic!("{device:#x} is supported") };
            assert!(why.contains(word), "{why}");
        }
        assert_eq!(name(0x8086, 0x1017), "unknown");
    }
}
