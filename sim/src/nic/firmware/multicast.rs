//! ATTACH_TO_MCG and DETACH_FROM_MCG.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::multicast::{AttachToMcgIn, AttachToMcgOut, DetachFromMcgIn, DetachFromMcgOut};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::numbering::ServiceType;

pub(super) fn attach(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &AttachToMcgIn,
    _: &mut AttachToMcgOut,
) -> Result<(), Refusal> {
    let group = check(nic, call, input.qpn(), input.multicast_gid())?;
    if !nic.groups.has_room(group) {
        return Err(syndrome::MCG_LIMIT);
    }
    nic.groups.attach(group, input.qpn());
    Ok(())
}

pub(super) fn detach(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DetachFromMcgIn,
    _: &mut DetachFromMcgOut,
) -> Result<(), Refusal> {
    let group = check(nic, call, input.qpn(), input.multicast_gid())?;
    if nic.groups.detach(group, input.qpn()) { Ok(()) } else { Err(syndrome::MCG_NOT_ATTACHED) }
}

/// Checks that the queue pair takes datagrams and the GID is a multicast group.
fn check(nic: &Nic, call: &Call<'_>, qpn: Qpn, group: [u8; 16]) -> Result<Gid, Refusal> {
    call.expect_no_op_mod()?;
    let qp = nic.queue_pairs.get(qpn.value()).ok_or(syndrome::QP_UNKNOWN)?;
    if qp.context.st() != ServiceType::Ud {
        return Err(syndrome::MCG_SERVICE);
    }
    Some(Gid(group)).filter(|group| group.is_multicast()).ok_or(syndrome::MCG_GID)
}
