//! Converts an entry to a work completion.

use super::{CompletionFields, CqeView};
use crate::work_completion::{Origin, WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::CqeOpcode;

/// The completion of a successful send.
#[inline(always)]
pub(crate) fn sent(
    fields: impl CompletionFields,
    wr_id: u64,
    opcode: WorkCompletionOpcode,
    qpn: Qpn,
) -> WorkCompletion {
    WorkCompletion {
        wr_id,
        byte_count: fields.byte_count(),
        immediate: None,
        qpn,
        status: WorkCompletionStatus::Success,
        vendor_syndrome: 0,
        opcode,
        origin: Origin::NONE,
    }
}

/// Writes the completion of a receive to `place`. `opcode` is that of the entry.
#[inline(always)]
pub(crate) fn received(
    place: &mut WorkCompletion,
    fields: impl CompletionFields,
    opcode: u8,
    wr_id: u64,
    qpn: Qpn,
) {
    *place = WorkCompletion {
        wr_id,
        byte_count: fields.byte_count(),
        immediate: None,
        qpn,
        status: WorkCompletionStatus::Success,
        vendor_syndrome: 0,
        opcode: WorkCompletionOpcode::Receive,
        origin: fields.origin(),
    };
    if opcode != CqeOpcode::ResponderSend.raw() {
        add_immediate(place, fields, CqeOpcode::from_raw(opcode));
    }
}

/// Adds what only some messages carry: immediate data, or the invalidated key.
#[inline(never)]
fn add_immediate(place: &mut WorkCompletion, fields: impl CompletionFields, opcode: CqeOpcode) {
    place.opcode = match opcode {
        CqeOpcode::ResponderWriteImmediate => WorkCompletionOpcode::ReceiveRdmaWithImmediate,
        CqeOpcode::ResponderSendInvalidate => WorkCompletionOpcode::ReceiveWithInvalidate,
        _ => WorkCompletionOpcode::Receive,
    };
    if opcode != CqeOpcode::ResponderError || mutated("error_with_immediate") {
        place.immediate = Some(fields.immediate());
    }
}

/// Turns the completion into that of a failed request, as the error entry describes it.
pub(crate) fn fail(completion: &mut WorkCompletion, cqe: CqeView<'_>) {
    completion.status = WorkCompletionStatus::Failed(cqe.syndrome());
    completion.vendor_syndrome = cqe.vendor_syndrome();
}
