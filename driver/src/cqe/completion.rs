//! Converts an entry to a work completion.

use super::{CompletionFields, CqeView};
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::CqeOpcode;

/// What a plain receive has in common with every other one.
const RECEIVED: WorkCompletion =
    WorkCompletion { opcode: WorkCompletionOpcode::Receive, ..WorkCompletion::EMPTY };

/// Writes the completion of a successful send to `place`.
#[inline(always)]
pub(crate) fn sent(
    place: &mut WorkCompletion,
    fields: impl CompletionFields,
    wr_id: u64,
    opcode: WorkCompletionOpcode,
    qpn: Qpn,
) {
    let byte_count = fields.byte_count();
    *place = WorkCompletion::EMPTY;
    place.opcode = opcode;
    identify(place, byte_count, wr_id, qpn);
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
    let (byte_count, origin) = (fields.byte_count(), fields.origin());
    *place = RECEIVED;
    place.origin = origin;
    identify(place, byte_count, wr_id, qpn);
    if opcode != CqeOpcode::ResponderSend.raw() {
        add_immediate(place, fields, CqeOpcode::from_raw(opcode));
    }
}

/// Writes what differs between any two completions.
#[inline(always)]
fn identify(place: &mut WorkCompletion, byte_count: u32, wr_id: u64, qpn: Qpn) {
    place.wr_id = wr_id;
    place.byte_count = byte_count;
    place.qpn = qpn;
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
