//! The physical link: state, speed and lanes of the port (registers PTYS and PAOS, QUERY_HCA_VPORT_CONTEXT).

use crate::command::{CommandError, Request};
use crate::device::Device;
use crate::hal::Hal;
use crate::port::query_infiniband;
use bareverbs_prm::command::ib_port::QueryHcaVportContextOut;
use bareverbs_prm::command::port::{PaosRegister, PtysRegister};
use bareverbs_prm::numbering::{PortType, RegisterId};
use core::fmt;

/// Physical state and speed of the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortLink {
    /// Physical state.
    pub physical: PhysicalState,
    /// Current speed; `None` without a link, or if the device reports a code unknown to this driver.
    pub speed: Option<LinkSpeed>,
    /// Highest speed that the port supports.
    pub fastest: Option<LinkSpeed>,
}

/// A speed of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Total rate of all lanes in Mbit/s, as in `ethtool` and `ibstat`: 100,000 for 100GBASE-CR4 and for four lanes of
    /// EDR. For SDR, DDR and QDR it counts bits on the wire, of which 8 in 10 carry data.
    pub megabits: u32,
    /// Number of lanes.
    pub lanes: u8,
    /// InfiniBand's name for the rate of a lane; `None` on Ethernet.
    pub rate: Option<LaneRate>,
}

/// Rates of an InfiniBand lane (IBTA v1.4 §14.2.5.6, `LinkSpeedActive` and `LinkSpeedExtActive`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say all")]
pub enum LaneRate {
    Sdr,
    Ddr,
    Qdr,
    Fdr10,
    Fdr,
    Edr,
    Hdr,
    Ndr,
    Xdr,
}

impl LaneRate {
    /// Mbit/s of a lane, as `ibstat` counts them.
    pub const fn megabits(self) -> u32 {
        match self {
            Self::Sdr => 2_500,
            Self::Ddr => 5_000,
            Self::Qdr | Self::Fdr10 => 10_000,
            Self::Fdr => 14_000,
            Self::Edr => 25_000,
            Self::Hdr => 50_000,
            Self::Ndr => 100_000,
            Self::Xdr => 200_000,
        }
    }
}

/// Physical state of a port (IBTA v1.4 §14.2.5.6, `PortPhysicalState`). Ethernet ports are only polling or up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "phys_state")]
pub enum PhysicalState {
    /// Sleeping to save power.
    Sleep,
    /// Polling for a peer: there is no cable, or nothing that understands this link layer.
    Polling,
    /// Disabled by software.
    Disabled,
    /// Negotiating speed and lanes.
    Training,
    /// The link is up.
    LinkUp,
    /// The link was lost and is recovering.
    Recovery,
    /// A link test is running.
    Test,
    /// A code unknown to this driver.
    Unknown(u8),
}

/// The meaning of one bit in an Ethernet protocol mask.
#[derive(Clone, Copy)]
struct Protocol {
    megabits: u32,
    lanes: u8,
}

/// No speed.
const NONE: Protocol = Protocol { megabits: 0, lanes: 0 };

/// Ethernet speeds by bit of `eth_proto_oper`; [`NONE`] for unused bits.
const ETHERNET: [Protocol; 32] = {
    let mut speeds = [NONE; 32];
    fill(&mut speeds, &[0, 1, 25], lanes(1, 1_000));
    fill(&mut speeds, &[2, 3], lanes(4, 10_000));
    fill(&mut speeds, &[4, 12, 13, 14, 26], lanes(1, 10_000));
    fill(&mut speeds, &[5], lanes(2, 20_000));
    fill(&mut speeds, &[6, 7, 15, 16], lanes(4, 40_000));
    fill(&mut speeds, &[8], lanes(4, 56_000));
    fill(&mut speeds, &[18, 30, 31], lanes(2, 50_000));
    fill(&mut speeds, &[20, 21, 22, 23], lanes(4, 100_000));
    fill(&mut speeds, &[24], lanes(1, 100));
    fill(&mut speeds, &[27, 28, 29], lanes(1, 25_000));
    speeds
};

/// Extended Ethernet speeds by bit of `ext_eth_proto_oper`.
const EXTENDED_ETHERNET: [Protocol; 32] = {
    let mut speeds = [NONE; 32];
    fill(&mut speeds, &[0], lanes(1, 100));
    fill(&mut speeds, &[1], lanes(1, 1_000));
    fill(&mut speeds, &[3], lanes(1, 5_000));
    fill(&mut speeds, &[4], lanes(1, 10_000));
    fill(&mut speeds, &[5], lanes(4, 40_000));
    fill(&mut speeds, &[6], lanes(1, 25_000));
    fill(&mut speeds, &[7], lanes(2, 50_000));
    fill(&mut speeds, &[8], lanes(1, 50_000));
    fill(&mut speeds, &[9], lanes(4, 100_000));
    fill(&mut speeds, &[10], lanes(2, 100_000));
    fill(&mut speeds, &[11], lanes(1, 100_000));
    fill(&mut speeds, &[12], lanes(4, 200_000));
    fill(&mut speeds, &[13], lanes(2, 200_000));
    fill(&mut speeds, &[15], lanes(8, 400_000));
    fill(&mut speeds, &[16], lanes(4, 400_000));
    fill(&mut speeds, &[19], lanes(8, 800_000));
    speeds
};

const fn lanes(lanes: u8, megabits: u32) -> Protocol {
    Protocol { megabits, lanes }
}

const fn fill(speeds: &mut [Protocol; 32], bits: &[usize], speed: Protocol) {
    let mut at = 0;
    while at < bits.len() {
        speeds[bits[at]] = speed;
        at += 1;
    }
}

/// Lane rates by bit of `ib_proto_oper`.
const INFINIBAND: [LaneRate; 9] = [
    LaneRate::Sdr,
    LaneRate::Ddr,
    LaneRate::Qdr,
    LaneRate::Fdr10,
    LaneRate::Fdr,
    LaneRate::Edr,
    LaneRate::Hdr,
    LaneRate::Ndr,
    LaneRate::Xdr,
];

/// Number of lanes by bit of `ib_link_width_oper`.
const LANES: [u8; 5] = [1, 2, 4, 8, 12];

/// `proto_mask` of PTYS.
const MASK_INFINIBAND: u8 = 1 << 0;
const MASK_ETHERNET: u8 = 1 << 2;

impl<H: Hal> Device<H> {
    /// Queries the physical link.
    ///
    /// # Errors
    /// A command failed.
    #[doc(alias = "active_speed")]
    #[doc(alias = "active_width")]
    pub fn port_link(&self) -> Result<PortLink, CommandError> {
        let ethernet = self.capabilities().port_type == PortType::Ethernet;
        let mut selector = PtysRegister::new();
        selector.set_local_port(1).set_proto_mask(if ethernet { MASK_ETHERNET } else { MASK_INFINIBAND });
        let speeds: PtysRegister = self.register(RegisterId::Ptys, &selector)?;
        if !ethernet {
            let (speed, fastest) = infiniband_speeds(&speeds);
            return Ok(PortLink { physical: self.infiniband_physical()?, speed, fastest });
        }
        let mut selector = PaosRegister::new();
        selector.set_local_port(1);
        let state: PaosRegister = self.register(RegisterId::Paos, &selector)?;
        let (speed, fastest) = ethernet_speeds(&speeds);
        Ok(PortLink { physical: PhysicalState::of_ethernet(&state), speed, fastest })
    }

    fn infiniband_physical(&self) -> Result<PhysicalState, CommandError> {
        let output: QueryHcaVportContextOut = self.call(&Request::new(&query_infiniband()))?;
        Ok(PhysicalState::from_raw(output.hca_vport_context().port_physical_state()))
    }
}

/// The current and the fastest speed. A device with extended speeds reports some as supported.
fn ethernet_speeds(register: &PtysRegister) -> (Option<LinkSpeed>, Option<LinkSpeed>) {
    let (table, oper, capability) = match register.ext_eth_proto_capability() {
        0 => (&ETHERNET, register.eth_proto_oper(), register.eth_proto_capability()),
        extended => (&EXTENDED_ETHERNET, register.ext_eth_proto_oper(), extended),
    };
    let speeds = |bits: u32| {
        let set = (0..32).filter(move |bit| bits >> bit & 1 != 0);
        let known = set.map(|bit| table[bit as usize]).filter(|protocol| protocol.megabits != 0);
        known.map(|Protocol { megabits, lanes }| LinkSpeed { megabits, lanes, rate: None })
    };
    (speeds(oper).next(), speeds(capability).max_by_key(|speed| speed.megabits))
}

fn infiniband_speeds(register: &PtysRegister) -> (Option<LinkSpeed>, Option<LinkSpeed>) {
    (
        infiniband_speed(register.ib_link_width_oper(), register.ib_proto_oper()),
        infiniband_speed(register.ib_link_width_capability(), register.ib_proto_capability()),
    )
}

/// The fastest rate and the largest number of lanes among the set bits.
fn infiniband_speed(width: u16, protocol: u16) -> Option<LinkSpeed> {
    let lanes = LANES.iter().enumerate().rev().find(|(bit, _)| width >> bit & 1 != 0)?.1;
    let rate = INFINIBAND.iter().enumerate().rev().find(|(bit, _)| protocol >> bit & 1 != 0)?.1;
    Some(LinkSpeed { megabits: rate.megabits() * u32::from(*lanes), lanes: *lanes, rate: Some(*rate) })
}

impl PhysicalState {
    /// `oper_status` 1 is up; `admin_status` 2 is disabled by software (PRM, register PAOS).
    fn of_ethernet(register: &PaosRegister) -> Self {
        match (register.oper_status(), register.admin_status()) {
            (1, _) => Self::LinkUp,
            (_, 2) => Self::Disabled,
            _ => Self::Polling,
        }
    }

    const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Sleep,
            2 => Self::Polling,
            3 => Self::Disabled,
            4 => Self::Training,
            5 => Self::LinkUp,
            6 => Self::Recovery,
            7 => Self::Test,
            other => Self::Unknown(other),
        }
    }
}

/// As `ibstat` prints it.
impl fmt::Display for PhysicalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sleep => f.write_str("Sleep"),
            Self::Polling => f.write_str("Polling"),
            Self::Disabled => f.write_str("Disabled"),
            Self::Training => f.write_str("PortConfigurationTraining"),
            Self::LinkUp => f.write_str("LinkUp"),
            Self::Recovery => f.write_str("LinkErrorRecovery"),
            Self::Test => f.write_str("PhyTest"),
            Self::Unknown(raw) => write!(f, "unknown ({raw})"),
        }
    }
}

/// Rate and lanes: `100 Gbit/s (4 lanes)`, `100 Gbit/s (4X EDR)`.
impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.megabits / 1000, self.megabits % 1000);
        match (whole, rest) {
            (0, _) => write!(f, "{rest} Mbit/s")?,
            (_, 0) => write!(f, "{whole} Gbit/s")?,
            _ => write!(f, "{whole}.{} Gbit/s", rest / 100)?,
        }
        match (self.rate, self.lanes) {
            (Some(rate), lanes) => write!(f, " ({lanes}X {rate})"),
            (None, 1) => f.write_str(" (1 lane)"),
            (None, lanes) => write!(f, " ({lanes} lanes)"),
        }
    }
}

impl fmt::Display for LaneRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sdr => "SDR",
            Self::Ddr => "DDR",
            Self::Qdr => "QDR",
            Self::Fdr10 => "FDR10",
            Self::Fdr => "FDR",
            Self::Edr => "EDR",
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
            Self::Xdr => "XDR",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    fn words(speeds: (Option<LinkSpeed>, Option<LinkSpeed>)) -> [std::string::String; 2] {
        let word = |speed: Option<LinkSpeed>| speed.map_or("none".into(), |speed| speed.to_string());
        [word(speeds.0), word(speeds.1)]
    }

    #[test]
    fn an_old_device_has_the_old_speeds() {
        let mut register = PtysRegister::new();
        register.set_eth_proto_capability(1 << 20 | 1 << 27 | 1 << 12 | 1 << 9);
        assert_eq!(words(ethernet_speeds(&register)), ["none", "100 Gbit/s (4 lanes)"]);
        register.set_eth_proto_oper(1 << 27);
        assert_eq!(words(ethernet_speeds(&register)), ["25 Gbit/s (1 lane)", "100 Gbit/s (4 lanes)"]);
        // A bit without a speed.
        register.set_eth_proto_oper(1 << 9);
        assert_eq!(words(ethernet_speeds(&register))[0], "none");
        register.set_eth_proto_oper(1 << 24);
        assert_eq!(words(ethernet_speeds(&register))[0], "100 Mbit/s (1 lane)");
    }

    #[test]
    fn a_new_device_has_the_extended_speeds() {
        let mut register = PtysRegister::new();
        // The old fields of such a device may be set, too.
        register.set_eth_proto_capability(1 << 20).set_eth_proto_oper(1 << 20);
        register.set_ext_eth_proto_capability(1 << 16 | 1 << 12).set_ext_eth_proto_oper(1 << 12);
        assert_eq!(words(ethernet_speeds(&register)), ["200 Gbit/s (4 lanes)", "400 Gbit/s (4 lanes)"]);
    }

    #[test]
    fn infiniband_has_lanes_and_a_rate() {
        let mut register = PtysRegister::new();
        register.set_ib_link_width_capability(0b111).set_ib_proto_capability(0b11_1111);
        assert_eq!(words(infiniband_speeds(&register)), ["none", "100 Gbit/s (4X EDR)"]);
        register.set_ib_link_width_oper(1 << 2).set_ib_proto_oper(1 << 4);
        assert_eq!(words(infiniband_speeds(&register))[0], "56 Gbit/s (4X FDR)");
    }

    #[test]
    fn an_ethernet_port_that_software_switched_off_is_not_polling() {
        let state = |oper, admin| {
            let mut register = PaosRegister::new();
            register.set_oper_status(oper).set_admin_status(admin);
            PhysicalState::of_ethernet(&register)
        };
        assert_eq!(
            [state(1, 1), state(2, 1), state(2, 2)].map(|state| state.to_string()),
            ["LinkUp", "Polling", "Disabled"]
        );
    }
}
