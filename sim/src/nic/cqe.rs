//! Completion queue entries as the device writes them (PRM, completion queue entry). The completion queue
//! sets the owner bit.

use super::work_queue::WqeName;
use super::wqe::WorkFault;
use crate::transport::{ReceiveCompletion, ReceiveKind};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::cqe::{CompletionEntry, ErrorEntry};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::time::Time;

/// The queue pair whose work a completion ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompletionOwner {
    pub(crate) user_index: u32,
    pub(crate) qpn: Qpn,
}

impl CompletionOwner {
    /// A queue pair.
    #[inline]
    pub(crate) fn queue_pair(context: &QueuePairContext, qpn: Qpn) -> Self {
        Self { user_index: context.user_index(), qpn }
    }

    /// A send WQE that succeeded. It also completes all earlier WQEs that requested no entry.
    #[inline]
    pub(crate) fn requester(self, name: WqeName, byte_count: u32, now: Time) -> CompletionEntry {
        let mut entry = CompletionEntry::new();
        entry.set_user_index(self.user_index).set_byte_count(byte_count);
        entry.set_timestamp(now.as_nanos()).set_send_opcode(name.opcode).set_qpn(self.qpn);
        entry.set_wqe_counter(name.index).set_opcode(CqeOpcode::Requester);
        entry
    }

    /// A receive that succeeded.
    #[inline]
    pub(crate) fn responder(self, index: u16, completion: &ReceiveCompletion, now: Time) -> CompletionEntry {
        let mut entry = CompletionEntry::new();
        entry.set_user_index(self.user_index).set_byte_count(completion.length);
        entry.set_immediate(completion.immediate.unwrap_or(0)).set_timestamp(now.as_nanos());
        entry.set_qpn(self.qpn).set_wqe_counter(index).set_solicited(completion.solicited);
        entry.set_opcode(match completion.kind {
            ReceiveKind::Send => CqeOpcode::ResponderSend,
            ReceiveKind::SendImmediate => CqeOpcode::ResponderSendImmediate,
            ReceiveKind::SendInvalidate => CqeOpcode::ResponderSendInvalidate,
            ReceiveKind::WriteImmediate => CqeOpcode::ResponderWriteImmediate,
        });
        entry
    }

    /// A send WQE that failed.
    pub(crate) fn requester_error(self, name: WqeName, fault: WorkFault) -> CompletionEntry {
        self.error(CqeOpcode::RequesterError, name, fault)
    }

    /// A receive that failed.
    pub(crate) fn responder_error(self, index: u16, fault: WorkFault) -> CompletionEntry {
        self.error(CqeOpcode::ResponderError, WqeName { index, opcode: 0 }, fault)
    }

    fn error(self, opcode: CqeOpcode, name: WqeName, fault: WorkFault) -> CompletionEntry {
        let mut entry = ErrorEntry::new();
        entry.set_user_index(self.user_index);
        entry.set_vendor_syndrome(fault.vendor).set_syndrome(fault.syndrome);
        entry.set_send_opcode(name.opcode).set_qpn(self.qpn).set_wqe_counter(name.index).set_opcode(opcode);
        zerocopy::transmute!(entry)
    }
}
