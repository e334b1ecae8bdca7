//! Registers that only Ethernet ports have: flow control, error correction, module lanes.

use super::super::register_data::{bytes, check_port, read, read_grown};
use crate::nic::flow_control::FlowControl;
use crate::nic::syndrome::{self, Refusal};
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
    let wish: PfccRegister = read_grown(data, OLD_FLOW_CONTROL)?;
    check_port(wish.local_port())?;
    if write {
        if wish.pfctx() != 0 || wish.pfcrx() != 0 {
            return Err(syndrome::REGISTER_VALUE);
        }
        (flow.sends, flow.obeys) = (wish.pptx(), wish.pprx());
    }
    let mut register = PfccRegister::new();
    register.set_local_port(1).set_pptx(flow.sends).set_pprx(flow.obeys);
    bytes(&register)
}

/// Forward error correction: none can be selected, and none is active.
pub(in crate::nic::firmware) fn error_correction(data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let wish: PplmRegister = read(data)?;
    check_port(wish.local_port())?;
    if write {
        return Err(syndrome::REGISTER_READ_ONLY);
    }
    let mut register = PplmRegister::new();
    register.set_local_port(1);
    bytes(&register)
}

/// All lanes of module 0.
pub(in crate::nic::firmware) fn module_lanes(data: &[u8], write: bool) -> Result<Vec<u8>, Refusal> {
    let wish: PmlpRegister = read(data)?;
    check_port(wish.local_port())?;
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
