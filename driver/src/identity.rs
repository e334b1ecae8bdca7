//! Identity of a device: firmware, board and GUIDs, as shown by `ibv_devinfo` and `ibstat`.

use crate::command::{CommandError, Request};
use crate::device::Device;
use crate::hal::{Hal, Mmio};
use crate::port::{query_context, query_infiniband};
use bareverbs_prm::command::hca::{QueryAdapterIn, QueryAdapterOut};
use bareverbs_prm::command::ib_port::QueryHcaVportContextOut;
use bareverbs_prm::command::port::QueryNicVportContextOut;
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::numbering::{CommandOpcode, PortType};
use core::fmt;

/// Firmware, board and GUIDs of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Version of the running firmware.
    pub firmware: FirmwareVersion,
    /// Revision of the command interface (`cmd_interface_rev`).
    pub command_interface: u16,
    /// Vendor ID of the adapter, a 24-bit OUI.
    pub vendor: u32,
    /// PSID of the board.
    pub board: BoardId,
    /// GUIDs of the device and its port.
    pub guids: Guids,
}

/// Firmware version: major, minor, subminor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirmwareVersion {
    /// Device family: 16 is ConnectX-5, 20 ConnectX-6, 32 BlueField-3.
    pub major: u16,
    /// Release number.
    pub minor: u16,
    /// Build number.
    pub subminor: u16,
}

impl FirmwareVersion {
    fn read(mmio: &impl Mmio) -> Self {
        let revision = mmio.read32(init_segment::FW_REV);
        Self {
            major: revision as u16,
            minor: (revision >> 16) as u16,
            subminor: mmio.read32(init_segment::CMDIF_REV) as u16,
        }
    }
}

/// As the vendor and `ibv_devinfo` write it: `16.35.4030`.
impl fmt::Display for FirmwareVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:04}", self.major, self.minor, self.subminor)
    }
}

/// Parameter-set ID (PSID) of a board, up to 16 ASCII characters. It determines which firmware images fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoardId(pub [u8; 16]);

impl BoardId {
    /// The characters before the first zero; `None` if there are none or they are not text.
    pub fn text(&self) -> Option<&str> {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        let text = core::str::from_utf8(&self.0[..end]).ok()?;
        (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
    }
}

/// Globally unique identifiers, EUI-64. Written with the most significant byte first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guids {
    /// GUID of the function.
    pub node: u64,
    /// GUID of the port.
    pub port: u64,
    /// GUID of the card, shared by all its functions.
    pub system_image: u64,
}

impl<H: Hal> Device<H> {
    /// Queries the identity of the device.
    ///
    /// # Errors
    /// A command failed.
    #[doc(alias = "ibv_query_device")]
    pub fn identity(&self) -> Result<DeviceIdentity, CommandError> {
        let mut input = QueryAdapterIn::new();
        input.set_opcode(CommandOpcode::QueryAdapter);
        let adapter: QueryAdapterOut = self.call(&Request::new(&input))?;
        let mmio = self.hal().mmio();
        Ok(DeviceIdentity {
            firmware: FirmwareVersion::read(mmio),
            command_interface: (mmio.read32(init_segment::CMDIF_REV) >> 16) as u16,
            vendor: adapter.query_adapter_struct_ieee_vendor_id(),
            board: BoardId(adapter.query_adapter_struct_vsd_contd_psid()),
            guids: self.guids()?,
        })
    }

    fn guids(&self) -> Result<Guids, CommandError> {
        if self.capabilities().port_type == PortType::Ethernet {
            let output: QueryNicVportContextOut = self.call(&Request::new(&query_context()))?;
            let context = output.nic_vport_context();
            let system_image = context.system_image_guid();
            return Ok(Guids { node: context.node_guid(), port: context.port_guid(), system_image });
        }
        let output: QueryHcaVportContextOut = self.call(&Request::new(&query_infiniband()))?;
        let context = output.hca_vport_context();
        let system_image = context.system_image_guid();
        Ok(Guids { node: context.node_guid(), port: context.port_guid(), system_image })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn versions_are_written_and_compared_as_the_vendor_does() {
        let old = FirmwareVersion { major: 16, minor: 35, subminor: 4030 };
        assert_eq!(old.to_string(), "16.35.4030");
        assert_eq!(FirmwareVersion { subminor: 7, ..old }.to_string(), "16.35.0007");
        assert!(old < FirmwareVersion { major: 20, minor: 1, subminor: 0 });
    }

    #[test]
    fn a_board_that_tells_no_text_has_none() {
        let mut board = [0; 16];
        assert_eq!(BoardId(board).text(), None);
        board[..13].copy_from_slice(b"MT_0000000008");
        assert_eq!(BoardId(board).text(), Some("MT_0000000008"));
        assert_eq!(BoardId([b'A'; 16]).text(), Some("AAAAAAAAAAAAAAAA"));
        assert_eq!(BoardId([0xff; 16]).text(), None);
        assert_eq!(BoardId([7; 16]).text(), None);
    }
}
