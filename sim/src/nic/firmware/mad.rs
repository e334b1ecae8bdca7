//! MAD_IFC: a management datagram of software for the port's own agent, answered in the output of the command.
//!
//! Subnet management only: what else an agent could be asked, counters, has commands of its own here.

use super::call::Call;
use crate::nic::syndrome::{self, Refusal};
use crate::nic::{HostMemory, Nic};
use crate::wire::management::SubnetPacket;
use bareverbs_prm::command::mad::{MadIfcIn, MadIfcOut};

/// `op_mod` is a set of flags: the key of management, or of the board, is not looked at; the network's view. Keys protect nothing
/// here, and there is one view.
const FLAGS: u16 = 0x7;

pub(super) fn ask<M: HostMemory>(
    nic: &mut Nic,
    call: &mut Call<'_, M>,
    input: &MadIfcIn,
    output: &mut MadIfcOut,
) -> Result<(), Refusal> {
    if call.op_mod() & !FLAGS != 0 {
        return Err(syndrome::BAD_OP_MOD);
    }
    if !nic.port.is_infiniband() {
        return Err(syndrome::LINK_LAYER);
    }
    if input.port() != 1 || input.plane_index() != 0 {
        return Err(syndrome::MAD_PORT);
    }
    let question = SubnetPacket::from_payload(&input.mad()).ok_or(syndrome::MAD_CLASS)?;
    let answer = nic.answer_management(call.memory, question).ok_or(syndrome::MAD_METHOD)?;
    output.set_response_mad_packet(*answer.bytes());
    Ok(())
}
