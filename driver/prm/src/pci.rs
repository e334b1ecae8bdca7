//! Which PCI functions speak the language of this manual.

use core::fmt;

/// Mellanox, now NVIDIA.
pub const VENDOR_ID: u16 = 0x15b3;

/// Whether a function is the whole device or a share of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// A physical function.
    Physical,
    /// A virtual function (SR-IOV).
    Virtual,
}

/// A known function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownFunction {
    /// PCI device id.
    pub device_id: u16,
    /// What it is sold as.
    pub name: &'static str,
    /// The whole device or a share.
    pub kind: FunctionKind,
}

const fn physical(device_id: u16, name: &'static str) -> KnownFunction {
    KnownFunction { device_id, name, kind: FunctionKind::Physical }
}

const fn virtual_function(device_id: u16, name: &'static str) -> KnownFunction {
    KnownFunction { device_id, name, kind: FunctionKind::Virtual }
}

/// Functions with the command interface and rings that this driver speaks, by device id. Connect-IB and what came before
/// it (ConnectX-3 and older) do not.
pub const KNOWN_FUNCTIONS: &[KnownFunction] = &[
    physical(0x1013, "ConnectX-4"),
    virtual_function(0x1014, "ConnectX-4 VF"),
    physical(0x1015, "ConnectX-4 Lx"),
    virtual_function(0x1016, "ConnectX-4 Lx VF"),
    physical(0x1017, "ConnectX-5"),
    virtual_function(0x1018, "ConnectX-5 VF"),
    physical(0x1019, "ConnectX-5 Ex"),
    virtual_function(0x101a, "ConnectX-5 Ex VF"),
    physical(0x101b, "ConnectX-6"),
    virtual_function(0x101c, "ConnectX-6 VF"),
    physical(0x101d, "ConnectX-6 Dx"),
    virtual_function(0x101e, "ConnectX family VF"),
    physical(0x101f, "ConnectX-6 Lx"),
    physical(0x1021, "ConnectX-7"),
    physical(0x1023, "ConnectX-8"),
    physical(0xa2d2, "BlueField"),
    virtual_function(0xa2d3, "BlueField VF"),
    physical(0xa2d6, "BlueField-2"),
    physical(0xa2dc, "BlueField-3"),
];

/// Why a function cannot be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsupportedFunction {
    /// Another vendor's.
    Vendor(u16),
    /// Not in [`KNOWN_FUNCTIONS`].
    Device(u16),
}

impl fmt::Display for UnsupportedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vendor(id) => {
                write!(f, "PCI vendor {id:#06x} is not {VENDOR_ID:#06x} (NVIDIA/Mellanox): no mlx5 device")
            }
            Self::Device(id) => write!(
                f,
                "PCI device {VENDOR_ID:04x}:{id:04x} is not known as an mlx5 function; ConnectX-4 to ConnectX-8 and \
                 BlueField are"
            ),
        }
    }
}

impl core::error::Error for UnsupportedFunction {}

/// What function this is, or why it cannot be driven.
pub fn identify(vendor_id: u16, device_id: u16) -> Result<KnownFunction, UnsupportedFunction> {
    if vendor_id != VENDOR_ID {
        return Err(UnsupportedFunction::Vendor(vendor_id));
    }
    let known = KNOWN_FUNCTIONS.iter().find(|known| known.device_id == device_id);
    known.copied().ok_or(UnsupportedFunction::Device(device_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_says_what_is_missing() {
        assert!(KNOWN_FUNCTIONS.is_sorted_by(|a, b| a.device_id < b.device_id));
        assert_eq!(identify(VENDOR_ID, 0x1021).map(|known| known.name), Ok("ConnectX-7"));
        assert_eq!(identify(VENDOR_ID, 0x1003), Err(UnsupportedFunction::Device(0x1003)));
        assert_eq!(identify(0x8086, 0x1021), Err(UnsupportedFunction::Vendor(0x8086)));
    }
}
