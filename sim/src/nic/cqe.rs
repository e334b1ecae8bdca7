//! Completion queue entries as the device writes them (contract §5.9). The owner bit is the queue's business.

use super::send_queue::Slot;
use super::wqe::WorkFault;
use crate::transport::{ReceiveCompletion, ReceiveKind};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::time::Time;

/// A send WQE that succeeded, and all before it that asked for no entry.
#[inline]
pub(crate) fn requester(context: &QueuePairContext, qpn: Qpn, slot: &Slot, now: Time) -> CompletionEntry {
    let mut entry = CompletionEntry::new();
    entry.set_user_index(context.user_index()).set_byte_count(slot.pieces.length() as u32);
    entry.set_timestamp(now.as_nanos()).set_send_opcode(slot.opcode).set_qpn(qpn);
    entry.set_wqe_counter(slot.index).set_opcode(CqeOpcode::Requester);
    entry
}

/// A receive that succeeded.
#[inline]
pub(crate) fn responder(
    context: &QueuePairContext,
    qpn: Qpn,
    index: u16,
    completion: &ReceiveCompletion,
    now: Time,
) -> CompletionEntry {
    let mut entry = CompletionEntry::new();
    entry.set_user_index(context.user_index()).set_byte_count(completion.length);
    entry.set_immediate(completion.immediate.unwrap_or(0)).set_timestamp(now.as_nanos());
    entry.set_qpn(qpn).set_wqe_counter(index).set_solicited(completion.solicited);
    entry.set_opcode(match completion.kind {
        ReceiveKind::Send => CqeOpcode::ResponderSend,
        ReceiveKind::SendImmediate => CqeOpcode::ResponderSendImmediate,
        ReceiveKind::SendInvalidate => CqeOpcode::ResponderSendInvalidate,
        ReceiveKind::WriteImmediate => CqeOpcode::ResponderWriteImmediate,
    });
    entry
}

/// A send WQE that failed.
pub(crate) fn requester_error(
    context: &QueuePairContext,
    qpn: Qpn,
    (index, opcode): (u16, u8),
    fault: WorkFault,
) -> CompletionEntry {
    error(context, qpn, CqeOpcode::RequesterError, (index, opcode), fault)
}

/// A receive that failed.
pub(crate) fn responder_error(
    context: &QueuePairContext,
    qpn: Qpn,
    index: u16,
    fault: WorkFault,
) -> CompletionEntry {
    error(context, qpn, CqeOpcode::ResponderError, (index, 0), fault)
}

fn error(
    context: &QueuePairContext,
    qpn: Qpn,
    opcode: CqeOpcode,
    (index, send_opcode): (u16, u8),
    fault: WorkFault,
) -> CompletionEntry {
    let mut entry = ErrorEntry::new();
    entry.set_user_index(context.user_index()).set_vendor_syndrome(fault.vendor).set_syndrome(fault.syndrome);
    entry.set_send_opcode(send_opcode).set_qpn(qpn).set_wqe_counter(index).set_opcode(opcode);
    zerocopy::transmute!(entry)
}
