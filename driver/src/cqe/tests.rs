//! The decoder agrees with the getters of the layouts for arbitrary bytes.

extern crate std;

use super::completion::{fail, received, sent};
use super::ownership::{EntryEnd, OwnedCqe, Pass};
use super::*;
use crate::dma::Dma;
use crate::test_memory::Boxed;
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus};
use proptest::prelude::*;
use zerocopy::FromBytes;

fn bytes() -> impl Strategy<Value = [u8; BLOCK]> {
    prop::collection::vec(any::<u8>(), BLOCK).prop_map(|bytes| bytes.try_into().unwrap())
}

proptest! {
    #[test]
    fn fields_are_those_of_the_layout(bytes in bytes()) {
        let memory = Dma::new(Boxed::new(BLOCK));
        memory.copy_in(0, &bytes).unwrap();
        let cqe = CqeView(memory.block(0).unwrap());
        let entry = CompletionEntry::read_from_bytes(&bytes).unwrap();
        let error = ErrorEntry::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(cqe.user_index(), entry.user_index());
        prop_assert_eq!((cqe.qpn(), u32::from_be(cqe.qpn_dword())), (entry.qpn(), entry.qpn().value()));
        prop_assert_eq!((cqe.counter(), cqe.opcode()), (entry.wqe_counter(), entry.opcode()));
        prop_assert_eq!(ownership::opcode(cqe.op_own()), entry.opcode());
        prop_assert_eq!(&cqe.last_dword().to_le_bytes()[..], &bytes[BLOCK - 4..]);
        let end = EntryEnd::read(&OwnedCqe { hal: &(), cqe }, Pass::new(0));
        prop_assert_eq!((end.success(cqe, 0).counter(), cqe.success(0).counter()), (cqe.counter(), cqe.counter()));
        prop_assert_eq!(ownership::is_compressed(cqe.op_own()), entry.format() == 3);
        prop_assert_eq!((cqe.byte_count(), cqe.immediate()), (entry.byte_count(), entry.immediate()));
        prop_assert_eq!((cqe.syndrome(), cqe.vendor_syndrome()), (error.syndrome(), error.vendor_syndrome()));
    }

    #[test]
    fn decoded_completions_agree_with_the_layout(bytes in bytes(), wr_id: u64) {
        let memory = Dma::new(Boxed::new(BLOCK));
        memory.copy_in(0, &bytes).unwrap();
        let cqe = CqeView(memory.block(0).unwrap());
        let entry = CompletionEntry::read_from_bytes(&bytes).unwrap();
        let error = ErrorEntry::read_from_bytes(&bytes).unwrap();
        let mut completion = WorkCompletion::EMPTY;
        received(&mut completion, cqe, entry.opcode().raw(), wr_id, entry.qpn());
        let WorkCompletion { origin, .. } = completion;
        prop_assert_eq!((completion.wr_id, completion.qpn), (wr_id, entry.qpn()));
        prop_assert_eq!(completion.byte_count, entry.byte_count());
        prop_assert_eq!((origin.qpn(), origin.lid()), (entry.remote_qpn(), entry.slid()));
        prop_assert_eq!(origin.has_route_header(), entry.grh() != 0);
        prop_assert_eq!(origin.service_level(), entry.service_level());
        let plain = matches!(entry.opcode(), CqeOpcode::ResponderSend | CqeOpcode::ResponderError);
        prop_assert_eq!(completion.immediate, (!plain).then_some(entry.immediate()));
        sent(&mut completion, cqe, wr_id, WorkCompletionOpcode::RdmaRead, entry.qpn());
        prop_assert!(completion.is_success() && completion.immediate.is_none());
        fail(&mut completion, cqe);
        prop_assert_eq!(completion.status, WorkCompletionStatus::Failed(error.syndrome()));
        prop_assert_eq!(completion.vendor_syndrome, error.vendor_syndrome());
    }

    #[test]
    fn storing_an_entry_sets_its_owner_bit(bytes in bytes(), phase in 0u8..2) {
        let memory = Dma::new(Boxed::new(2 * BLOCK));
        memory.copy_in(0, &bytes).unwrap();
        let [from, to] = [0, 1].map(|block| CqeView(memory.block(block).unwrap()));
        to.store(from.load(), phase);
        let mut expected = CompletionEntry::read_from_bytes(&bytes).unwrap();
        expected.set_owner(phase == 1);
        prop_assert_eq!(CompletionEntry::read_from_bytes(&to.0.to_bytes()).unwrap(), expected);
        to.disown();
        to.invalidate();
        let entry = CompletionEntry::read_from_bytes(&to.0.to_bytes()).unwrap();
        prop_assert_eq!((entry.user_index(), entry.opcode(), entry.owner()), (NOBODY, CqeOpcode::Invalid, true));
    }
}
