//! Forward error correction of an Ethernet port (register PPLM; PCAM says whether a port has it).

use crate::command::CommandError;
use crate::device::Device;
use crate::hal::Hal;
use crate::port_link::{LinkSpeed, PortLink};
use bareverbs_prm::command::ethernet_port::{PcamRegister, PplmRegister};
use bareverbs_prm::numbering::{PortType, RegisterId};
use core::fmt;

/// Forward error correction of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCorrection {
    /// The mode in use; `None` without a link.
    pub active: Option<FecMode>,
    /// Modes that the port has at the speed of its link, or at its highest speed without a link.
    pub supported: FecModes,
    /// Modes among which software has left the choice to the port, at that speed. None means any of them.
    pub requested: FecModes,
}

/// A set of modes. Bit n is the mode with the number n in PPLM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FecModes(pub u32);

/// A mode of forward error correction, by its number in PPLM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FecMode {
    /// Errors are only detected.
    Off,
    /// BASE-R, also called fire code (IEEE 802.3 clause 74).
    FireCode,
    /// RS(528,514) (IEEE 802.3 clauses 91 and 108).
    Rs528,
    /// RS(271,257) with low latency.
    Rs271,
    /// RS(544,514) of four interleaved codewords.
    Rs544Quad,
    /// RS(544,514) of two interleaved codewords.
    Rs544Interleaved,
    /// RS(544,514) (IEEE 802.3 clauses 91 and 134).
    Rs544,
    /// RS(272,257+1) with low latency.
    Rs272,
    /// RS(272,257+1) of two interleaved codewords.
    Rs272Interleaved,
    /// A number unknown to this driver.
    Unknown(u8),
}

/// Why the error correction of a port could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCorrectionError {
    /// The port is an InfiniBand port. PPLM describes Ethernet. No command was sent.
    LinkLayer(PortType),
    /// The device does not tell which port registers it has (`pcam_reg` of its capabilities), so PPLM was not asked for.
    NoRegisterList,
    /// PCAM says that the port has no register PPLM.
    NoRegister,
    /// A command failed.
    Command(CommandError),
}

impl From<CommandError> for ErrorCorrectionError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for ErrorCorrectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkLayer(_) => f.write_str("the register PPLM describes Ethernet ports only"),
            Self::NoRegisterList => {
                f.write_str("the device does not say which port registers it has (capability pcam_reg)")
            }
            Self::NoRegister => f.write_str("the port has no register PPLM, according to the register PCAM"),
            Self::Command(error) => write!(f, "reading forward error correction: {error}"),
        }
    }
}

impl core::error::Error for ErrorCorrectionError {}

impl FecModes {
    /// The modes of the set, by number.
    pub fn iter(self) -> impl Iterator<Item = FecMode> {
        (0..32).filter(move |number| self.0 >> number & 1 != 0).map(FecMode::from_number)
    }
}

impl FecMode {
    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Off,
            1 => Self::FireCode,
            2 => Self::Rs528,
            3 => Self::Rs271,
            4 => Self::Rs544Quad,
            6 => Self::Rs544Interleaved,
            7 => Self::Rs544,
            9 => Self::Rs272,
            10 => Self::Rs272Interleaved,
            other => Self::Unknown(other),
        }
    }
}

/// As `mlxlink` prints it.
impl fmt::Display for FecMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "No FEC",
            Self::FireCode => "Firecode FEC",
            Self::Rs528 => "Standard RS-FEC - RS(528,514)",
            Self::Rs271 => "Standard LL RS-FEC - RS(271,257)",
            Self::Rs544Quad => "Interleaved Quad RS-FEC - (544,514)",
            Self::Rs544Interleaved => "Interleaved_Standard_RS-FEC - (544,514)",
            Self::Rs544 => "Standard_RS-FEC - (544,514)",
            Self::Rs272 => "Ethernet_Consortium_LL_50G_RS_FEC - (272,257+1)",
            Self::Rs272Interleaved => "Interleaved_Ethernet_Consortium_LL_50G_RS_FEC - (272,257+1)",
            Self::Unknown(number) => return write!(f, "unknown mode {number}"),
        })
    }
}

impl<H: Hal> Device<H> {
    /// Queries the forward error correction of an Ethernet port.
    ///
    /// # Errors
    /// The port has no register for it, or does not say whether it has one; or a command failed.
    #[doc(alias = "FEC")]
    #[doc(alias = "PPLM")]
    #[doc(alias = "ethtool --show-fec")]
    pub fn error_correction(&self) -> Result<ErrorCorrection, ErrorCorrectionError> {
        let capabilities = self.capabilities();
        if capabilities.port_type != PortType::Ethernet {
            return Err(ErrorCorrectionError::LinkLayer(capabilities.port_type));
        }
        if !capabilities.port_register_list {
            return Err(ErrorCorrectionError::NoRegisterList);
        }
        let list: PcamRegister = self.register(RegisterId::Pcam, &PcamRegister::new())?;
        if !list.registers().pplm() {
            return Err(ErrorCorrectionError::NoRegister);
        }
        let mut selector = PplmRegister::new();
        selector.set_local_port(1);
        let register: PplmRegister = self.register(RegisterId::Pplm, &selector)?;
        Ok(of_register(&register, &self.port_link()?))
    }
}

fn of_register(register: &PplmRegister, link: &PortLink) -> ErrorCorrection {
    let none = (FecModes::default(), FecModes::default());
    let (supported, requested) = link.speed.or(link.fastest).map_or(none, |speed| modes_at(register, speed));
    let active = FecModes(register.fec_mode_active());
    ErrorCorrection { active: link.speed.and(active.iter().next()), supported, requested }
}

/// The modes that a port has at a speed, and those that software requested for it.
fn modes_at(register: &PplmRegister, speed: LinkSpeed) -> (FecModes, FecModes) {
    let short = |supported: u8, requested: u8| (FecModes(supported.into()), FecModes(requested.into()));
    let long = |supported: u16, requested: u16| (FecModes(supported.into()), FecModes(requested.into()));
    let of = register;
    match (speed.megabits, speed.lanes) {
        (10_000 | 40_000, _) => short(of.fec_override_cap_10g_40g(), of.fec_override_admin_10g_40g()),
        (25_000, 1) => short(of.fec_override_cap_25g(), of.fec_override_admin_25g()),
        (50_000, 2) => short(of.fec_override_cap_50g(), of.fec_override_admin_50g()),
        (56_000, 4) => short(of.fec_override_cap_56g(), of.fec_override_admin_56g()),
        (100_000, 4) => short(of.fec_override_cap_100g(), of.fec_override_admin_100g()),
        (50_000, 1) => long(of.fec_override_cap_50g_1x(), of.fec_override_admin_50g_1x()),
        (100_000, 2) => long(of.fec_override_cap_100g_2x(), of.fec_override_admin_100g_2x()),
        (200_000, 4) => long(of.fec_override_cap_200g_4x(), of.fec_override_admin_200g_4x()),
        (400_000, 8) => long(of.fec_override_cap_400g_8x(), of.fec_override_admin_400g_8x()),
        (100_000, 1) => long(of.fec_override_cap_100g_1x(), of.fec_override_admin_100g_1x()),
        (200_000, 2) => long(of.fec_override_cap_200g_2x(), of.fec_override_admin_200g_2x()),
        (400_000, 4) => long(of.fec_override_cap_400g_4x(), of.fec_override_admin_400g_4x()),
        (800_000, 8) => long(of.fec_override_cap_800g_8x(), of.fec_override_admin_800g_8x()),
        _ => (FecModes::default(), FecModes::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_link::PhysicalState;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    fn link(speed: Option<(u32, u8)>, fastest: (u32, u8)) -> PortLink {
        let of = |(megabits, lanes)| LinkSpeed { megabits, lanes, rate: None };
        PortLink { physical: PhysicalState::LinkUp, speed: speed.map(of), fastest: Some(of(fastest)) }
    }

    #[test]
    fn modes_are_those_of_the_links_speed() {
        let mut register = PplmRegister::new();
        register
            .set_fec_mode_active(1 << 2)
            .set_fec_override_cap_100g(0b101)
            .set_fec_override_admin_100g(0b100);
        register.set_fec_override_cap_25g(0b111).set_fec_override_cap_100g_2x(1 << 7 | 1 << 9);
        let read = of_register(&register, &link(Some((100_000, 4)), (100_000, 4)));
        assert_eq!((read.active, read.supported.0, read.requested.0), (Some(FecMode::Rs528), 0b101, 0b100));
        assert_eq!(of_register(&register, &link(Some((25_000, 1)), (100_000, 4))).supported.0, 0b111);
        let two_lanes = of_register(&register, &link(Some((100_000, 2)), (100_000, 2))).supported;
        let names: Vec<_> = two_lanes.iter().map(|mode| mode.to_string()).collect();
        assert_eq!(names, ["Standard_RS-FEC - (544,514)", "Ethernet_Consortium_LL_50G_RS_FEC - (272,257+1)"]);
    }

    #[test]
    fn without_a_link_no_mode_is_active() {
        let mut register = PplmRegister::new();
        register.set_fec_mode_active(1 << 2).set_fec_override_cap_100g(0b101);
        let read = of_register(&register, &link(None, (100_000, 4)));
        assert_eq!((read.active, read.supported.0), (None, 0b101), "the modes of the highest speed");
        let odd = of_register(&register, &link(Some((1_000, 1)), (1_000, 1)));
        assert_eq!((odd.active, odd.supported.0), (Some(FecMode::Rs528), 0));
    }
}
