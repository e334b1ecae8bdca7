//! Registers that only Ethernet ports have: flow control, error correction, module lanes.

use super::super::register_data::{bytes, check_port, read, read_grown};
use crate::nic::flow_control::FlowControl;
use crate::nic::syndrome::{self, Refusal};
use crate::nic::{Nic, PortSpeed};
use bareverbs_prm::command::ethernet_port::{PfccRegister, PmlpRegister, PplmRegister};

/// Bytes of PFCC before it covered stalled devices; user-space drivers still send no more.
const OLD_FLOW_CONTROL: usize = 12;
/// Lanes of the cable, in module 0.
const LANES: u8 = 4;

/// Pause frames can be enabled for all traffic. Priority flow control cannot, since all queue pairs share one
/// queue to the wire.
pub(in crate::nic::firmware) fn flow_control(
    flow: &mut FlowControl,
    data: &[u8],
    write: bool,
) -> Result<Vec<u8>, Refusal> {
    let requested: PfccRegister = read_grown(data, OLD_FLOW_CONTROL)?;
    check_port(requested.local_port())?;
    if write {
        if requested.pfctx() != 0 || requested.pfcrx() != 0 {
            return Err(syndrome::REGISTER_VALUE);
        }
        (flow.sends, flow.obeys) = (requested.pptx(), requested.pprx());
    }
    let mut register = PfccRegister::new();
    register.set_local_port(1).set_pptx(flow.sends).set_pprx(flow.obeys);
    bytes(&register)
}

/// Forward error correction: each speed has the one mode that its standard asks of copper cables. It is active while there is a
/// link; no other can be selected.
pub(in crate::nic::firmware) fn error_correction(
    nic: &Nic,
    data: &[u8],
    write: bool,
) -> Result<Vec<u8>, Refusal> {
    let requested: PplmRegister = read(data)?;
    check_port(requested.local_port())?;
    if write {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    let mut register = PplmRegister::new();
    register.set_local_port(1);
    if nic.shared.port.is_up() {
        register.set_fec_mode_active(mode(nic.config.link_speed()).into());
    }
    // The port runs at its own speed, or at that of a slower cable.
    let supported = |speed: PortSpeed| match speed.bits_per_second() <= nic.config.speed.bits_per_second() {
        true => mode(speed),
        false => 0,
    };
    register.set_fec_override_cap_10g_40g(supported(PortSpeed::Gbps10));
    register.set_fec_override_cap_25g(supported(PortSpeed::Gbps25));
    register.set_fec_override_cap_50g(supported(PortSpeed::Gbps50));
    register.set_fec_override_cap_100g(supported(PortSpeed::Gbps100));
    bytes(&register)
}

/// The bit of a speed's mode: none for lanes of 10 Gbit/s, RS(528,514) for those of 25 Gbit/s (IEEE 802.3 clauses 91 and 108).
const fn mode(speed: PortSpeed) -> u8 {
    match speed {
        PortSpeed::Gbps10 | PortSpeed::Gbps40 => 1 << 0,
        PortSpeed::Gbps25 | PortSpeed::Gbps50 | PortSpeed::Gbps100 => 1 << 2,
    }
}

/// All lanes of module 0.
pub(in crate::nic::firmware) fn module_lanes(data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let requested: PmlpRegister = read(data)?;
    check_port(requested.local_port())?;
    if write {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    let mut register = PmlpRegister::new();
    register.set_local_port(1).set_width(LANES);
    let lane = |index: u32| index << 24 | index << 16;
    register.set_lane0_module_mapping(lane(0)).set_lane1_module_mapping(lane(1));
    register.set_lane2_module_mapping(lane(2)).set_lane3_module_mapping(lane(3));
    bytes(&register)
}
