//! MAD_IFC: software sends a management datagram to the port's own agents and gets the response in the output
//! of the command.
//!
//! The agents are those of subnet management and performance management. If an agent cannot execute a
//! datagram, its response carries a status in the header, like a response over the link: Linux does not
//! report a failed command to anyone. The command itself fails only if it is malformed or if its datagram has
//! no response.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::syndrome::{self, Refusal};
use crate::wire::management::{MadHeader, Method, SIZE, SubnetPacket, class, status};
use bareverbs_prm::command::mad::{MadIfcIn, MadIfcOut};

/// `op_mod` is a set of flags: ignore the M_Key, ignore the B_Key, network view. They change nothing here,
/// because keys protect nothing and there is one view.
const FLAGS: u16 = 0x7;

pub(super) fn ask(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &MadIfcIn,
    output: &mut MadIfcOut,
) -> Result<(), Refusal> {
    if call.op_mod() & !FLAGS != 0 {
        return Err(syndrome::BAD_OP_MOD);
    }
    if !nic.shared.port.is_infiniband() {
        return Err(syndrome::LINK_LAYER);
    }
    if input.port() != 1 || input.plane_index() != 0 {
        return Err(syndrome::MAD_PORT);
    }
    let mut mad = input.mad();
    let header = MadHeader::of(&mad);
    if header.base_version() != 1 {
        return Err(syndrome::MAD_VERSION);
    }
    match Method::from_raw(header.method()) {
        // A repress ends here; no response follows.
        Method::TrapRepress => return Ok(()),
        method if !method.has_response() => return Err(syndrome::MAD_METHOD),
        _ => {}
    }
    match SubnetPacket::from_payload(&mad) {
        Some(request) => {
            let response = nic.answer_host(call.memory, request).ok_or(syndrome::MAD_METHOD)?;
            mad = *response.bytes();
        }
        None if header.class() == class::PERFORMANCE => {
            nic.answer_performance(&mut mad);
        }
        None => refuse(header, &mut mad),
    }
    output.set_response_mad_packet(mad);
    Ok(())
}

/// There is no agent of the class.
fn refuse(mut header: MadHeader, mad: &mut [u8; SIZE]) {
    let answered = Method::from_raw(header.method()).answered();
    header.set_method(answered).set_status(status::BAD_VERSION);
    header.write_to(mad);
}
