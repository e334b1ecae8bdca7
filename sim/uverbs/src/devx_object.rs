//! Objects that a program creates by commands of its own: which commands create, change and query which object, and the command that
//! destroys it.

use crate::uapi::read_extended;
use bareverbs_prm::command::entry::CommandHeaderIn;
use bareverbs_prm::ids::UmemId;
use bareverbs_prm::numbering::CommandOpcode as Op;
use zerocopy::IntoBytes;

/// Bytes of the longest command that destroys an object, DETACH_FROM_MCG.
const LONGEST_DESTROY: usize = 32;
/// Offset of the number of an object in most inputs and outputs.
const NUMBER: usize = 8;
/// Offset of the number of a counter set in QUERY_Q_COUNTER.
const COUNTER_SET: usize = 28;
/// The bits of a number; the rest of the word belongs to other fields.
const NUMBER_BITS: u32 = 0xff_ffff;
/// The group in ATTACH_TO_MCG and DETACH_FROM_MCG.
const GROUP: core::ops::Range<usize> = 16..32;

/// Commands that create and destroy objects of one kind.
const KINDS: [(Op, Op); 11] = [
    (Op::CreateGeneralObject, Op::DestroyGeneralObject),
    (Op::CreateMkey, Op::DestroyMkey),
    (Op::CreateCq, Op::DestroyCq),
    (Op::AllocPd, Op::DeallocPd),
    (Op::AllocTransportDomain, Op::DeallocTransportDomain),
    (Op::CreateRmp, Op::DestroyRmp),
    (Op::CreateQp, Op::DestroyQp),
    (Op::CreateXrcSrq, Op::DestroyXrcSrq),
    (Op::AllocQCounter, Op::DeallocQCounter),
    (Op::AllocXrcd, Op::DeallocXrcd),
    (Op::AttachToMcg, Op::DetachFromMcg),
];

/// Commands that change an object, and those that query one.
const CHANGES: [(Op, Op); 12] = [
    (Op::ModifyGeneralObject, Op::CreateGeneralObject),
    (Op::ModifyCq, Op::CreateCq),
    (Op::ModifyRmp, Op::CreateRmp),
    (Op::ArmXrcSrq, Op::CreateXrcSrq),
    (Op::ResetToInitQp, Op::CreateQp),
    (Op::InitToInitQp, Op::CreateQp),
    (Op::InitToRtrQp, Op::CreateQp),
    (Op::RtrToRtsQp, Op::CreateQp),
    (Op::RtsToRtsQp, Op::CreateQp),
    (Op::SqErrorToRtsQp, Op::CreateQp),
    (Op::ToErrorQp, Op::CreateQp),
    (Op::ToResetQp, Op::CreateQp),
];
const QUERIES: [(Op, Op); 7] = [
    (Op::QueryGeneralObject, Op::CreateGeneralObject),
    (Op::QueryMkey, Op::CreateMkey),
    (Op::QueryCq, Op::CreateCq),
    (Op::QueryRmp, Op::CreateRmp),
    (Op::QueryQp, Op::CreateQp),
    (Op::QueryXrcSrq, Op::CreateXrcSrq),
    (Op::QueryQCounter, Op::AllocQCounter),
];

/// Memory that a program registered for such objects: `length` bytes at `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserMemory {
    pub(crate) id: UmemId,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// What a program does to an object that it has created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Change,
    Query,
}

/// An object that commands of a program created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DevxObject {
    /// The command that created it.
    pub(crate) creator: Op,
    pub(crate) number: u32,
    /// Type of a general object; otherwise zero.
    object_type: u16,
    uid: u16,
    /// The multicast group of an attached queue pair.
    group: [u8; 16],
}

impl DevxObject {
    /// Whether programs may send this command to create an object. They register user memory by a method of its own.
    pub(crate) fn can_create(opcode: Op) -> bool {
        KINDS.iter().any(|kind| kind.0 == opcode)
    }

    /// The object that a successful command has created.
    pub(crate) fn created(input: &[u8], output: &[u8]) -> Self {
        let header: CommandHeaderIn = read_extended(input);
        let creator = header.opcode();
        let is_general = creator == Op::CreateGeneralObject;
        let mut group = [0; 16];
        if creator == Op::AttachToMcg
            && let Some(bytes) = input.get(GROUP)
        {
            group.copy_from_slice(bytes);
        }
        let number = word(if creator == Op::AttachToMcg { input } else { output }, NUMBER);
        let number = if is_general { number } else { number & NUMBER_BITS };
        let object_type = if is_general { header.op_mod() } else { 0 };
        Self { creator, number, object_type, uid: header.uid(), group }
    }

    /// Whether a command does this to this object, and to no other.
    pub(crate) fn is_object_of(&self, input: &[u8], action: Action) -> bool {
        let header: CommandHeaderIn = read_extended(input);
        let commands: &[(Op, Op)] = match action {
            Action::Change => &CHANGES,
            Action::Query => &QUERIES,
        };
        if !commands.contains(&(header.opcode(), self.creator)) {
            return false;
        }
        let at = if header.opcode() == Op::QueryQCounter { COUNTER_SET } else { NUMBER };
        match self.creator {
            Op::CreateGeneralObject => {
                header.op_mod() == self.object_type && word(input, NUMBER) == self.number
            }
            _ => word(input, at) & NUMBER_BITS == self.number,
        }
    }

    /// The command that destroys the object.
    pub(crate) fn destroy_command(&self) -> [u8; LONGEST_DESTROY] {
        let mut bytes = [0; LONGEST_DESTROY];
        let mut header = CommandHeaderIn::new();
        let destroyer = KINDS.iter().find(|kind| kind.0 == self.creator).map_or(Op::Nop, |kind| kind.1);
        header.set_opcode(destroyer).set_uid(self.uid).set_op_mod(self.object_type);
        bytes[..CommandHeaderIn::SIZE].copy_from_slice(header.as_bytes());
        bytes[NUMBER..NUMBER + 4].copy_from_slice(&self.number.to_be_bytes());
        bytes[GROUP].copy_from_slice(&self.group);
        bytes
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_be_bytes)
}

/// Whether programs may send a command that belongs to no object: queries of the device, and the commands that firmware checks itself
/// (0xb00 to 0xcff).
pub(crate) fn is_general(opcode: Op) -> bool {
    const CHECKED_BY_FIRMWARE: core::ops::Range<u16> = 0xb00..0xd00;
    let query = matches!(
        opcode,
        Op::QueryHcaCap
            | Op::QueryHcaVportContext
            | Op::QueryEswVportContext
            | Op::QueryVportState
            | Op::QueryAdapter
            | Op::QueryIssi
            | Op::QueryNicVportContext
            | Op::QueryRoceAddress
            | Op::QueryVnicEnv
            | Op::QueryVportCounter
            | Op::Nop
            | Op::QueryCongStatus
            | Op::QueryCongParams
            | Op::QueryCongStatistics
            | Op::QueryLag
    );
    query || CHECKED_BY_FIRMWARE.contains(&opcode.raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut, ModifyCqIn, QueryCqIn};
    use bareverbs_prm::ids::Cqn;

    #[test]
    fn a_command_concerns_one_object() {
        let (mut input, mut output) = (CreateCqIn::new(), CreateCqOut::new());
        input.set_opcode(Op::CreateCq).set_uid(3);
        output.set_cqn(Cqn::from_low_bits(7));
        let object = DevxObject::created(input.as_bytes(), output.as_bytes());
        let mut query = QueryCqIn::new();
        query.set_opcode(Op::QueryCq).set_cqn(Cqn::from_low_bits(7));
        assert!(object.is_object_of(query.as_bytes(), Action::Query));
        assert!(!object.is_object_of(query.as_bytes(), Action::Change), "a query changes nothing");
        query.set_cqn(Cqn::from_low_bits(8));
        assert!(!object.is_object_of(query.as_bytes(), Action::Query), "another queue");
        let mut change = ModifyCqIn::new();
        change.set_opcode(Op::ModifyCq).set_cqn(Cqn::from_low_bits(7));
        assert!(object.is_object_of(change.as_bytes(), Action::Change));
        let destroy: CommandHeaderIn = read_extended(&object.destroy_command());
        assert_eq!((destroy.opcode(), destroy.uid(), destroy.op_mod()), (Op::DestroyCq, 3, 0));
        assert_eq!(word(&object.destroy_command(), NUMBER), 7);
    }

    #[test]
    fn programs_may_not_configure_the_device() {
        for opcode in [Op::QueryHcaCap, Op::QueryRoceAddress, Op::AllowOtherVhcaAccess, Op::Nop] {
            assert!(is_general(opcode), "{opcode}");
        }
        for opcode in [Op::SetHcaCap, Op::TeardownHca, Op::SetRoceAddress, Op::AccessReg, Op::CreateQp] {
            assert!(!is_general(opcode), "{opcode}");
        }
        assert!(DevxObject::can_create(Op::CreateQp));
        for opcode in [Op::CreateEq, Op::AllocUar, Op::CreateUmem, Op::CreateUctx] {
            assert!(!DevxObject::can_create(opcode), "{opcode}");
        }
    }
}
