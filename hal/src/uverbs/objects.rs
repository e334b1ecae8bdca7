//! Which commands belong to which object, and what the kernel does itself: how a command is passed on.

use bareverbs_prm::command::entry::CommandHeaderIn;
use bareverbs_prm::numbering::CommandOpcode as Op;
use zerocopy::FromBytes;

/// Offset of the number of an object in most inputs and outputs.
const NUMBER: usize = 8;
/// Offset of the number of a counter set in QUERY_Q_COUNTER.
const COUNTER_SET: usize = 28;
/// The bits of a number; the rest of the word belongs to other fields.
const NUMBER_BITS: u32 = 0xff_ffff;
/// The multicast group in ATTACH_TO_MCG and DETACH_FROM_MCG.
const GROUP: core::ops::Range<usize> = 16..32;
/// Commands that firmware checks itself. The kernel passes them on whatever they do.
const CHECKED_BY_FIRMWARE: core::ops::Range<u16> = 0xb00..0xd00;

/// An object as commands name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectName {
    /// Number of the command that creates such objects.
    creator: u16,
    number: u32,
    /// Type of a general object; otherwise zero.
    object_type: u16,
    /// The group of an attached queue pair; otherwise zero.
    group: [u8; 16],
}

/// How a command is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// It belongs to no object, and the kernel passes it on.
    General,
    /// It creates an object.
    Create,
    /// It changes this object.
    Modify(ObjectName),
    /// It queries this object.
    Query(ObjectName),
    /// It destroys this object.
    Destroy(ObjectName),
    /// It is not for programs; at most the kernel sends it.
    Kernel,
}

pub(super) fn header_of(bytes: &[u8]) -> CommandHeaderIn {
    CommandHeaderIn::read_from_prefix(bytes).map_or(CommandHeaderIn::new(), |(header, _)| header)
}

impl ObjectName {
    fn named(creator: Op, input: &[u8], at: usize) -> Self {
        let is_general = creator == Op::CreateGeneralObject;
        let number = word(input, at);
        let mut group = [0; 16];
        if creator == Op::AttachToMcg
            && let Some(bytes) = input.get(GROUP)
        {
            group.copy_from_slice(bytes);
        }
        Self {
            creator: creator.raw(),
            number: if is_general { number } else { number & NUMBER_BITS },
            object_type: if is_general { header_of(input).op_mod() } else { 0 },
            group,
        }
    }

    /// The object that a command has created.
    pub(super) fn created(input: &[u8], output: &[u8]) -> Self {
        let creator = header_of(input).opcode();
        let named = Self::named(creator, input, NUMBER);
        match creator {
            // The queue pair is in the input.
            Op::AttachToMcg => named,
            Op::CreateGeneralObject => Self { number: word(output, NUMBER), ..named },
            _ => Self { number: word(output, NUMBER) & NUMBER_BITS, ..named },
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_be_bytes)
}

/// How a command is executed (Linux `drivers/infiniband/hw/mlx5/devx.c`).
pub(super) fn route(input: &[u8]) -> Route {
    let opcode = header_of(input).opcode();
    let of = |creator| ObjectName::named(creator, input, NUMBER);
    match opcode {
        Op::CreateGeneralObject
        | Op::CreateMkey
        | Op::CreateCq
        | Op::AllocPd
        | Op::AllocTransportDomain
        | Op::CreateRmp
        | Op::CreateQp
        | Op::AllocQCounter
        | Op::AllocXrcd
        | Op::AttachToMcg => Route::Create,
        Op::ModifyGeneralObject => Route::Modify(of(Op::CreateGeneralObject)),
        Op::ModifyCq => Route::Modify(of(Op::CreateCq)),
        Op::ModifyRmp => Route::Modify(of(Op::CreateRmp)),
        Op::ResetToInitQp
        | Op::InitToInitQp
        | Op::InitToRtrQp
        | Op::RtrToRtsQp
        | Op::RtsToRtsQp
        | Op::SqErrorToRtsQp
        | Op::ToErrorQp
        | Op::ToResetQp => Route::Modify(of(Op::CreateQp)),
        Op::QueryGeneralObject => Route::Query(of(Op::CreateGeneralObject)),
        Op::QueryMkey => Route::Query(of(Op::CreateMkey)),
        Op::QueryCq => Route::Query(of(Op::CreateCq)),
        Op::QueryRmp => Route::Query(of(Op::CreateRmp)),
        Op::QueryQp => Route::Query(of(Op::CreateQp)),
        Op::QueryQCounter => Route::Query(ObjectName::named(Op::AllocQCounter, input, COUNTER_SET)),
        Op::DestroyGeneralObject => Route::Destroy(of(Op::CreateGeneralObject)),
        Op::DestroyMkey => Route::Destroy(of(Op::CreateMkey)),
        Op::DestroyCq => Route::Destroy(of(Op::CreateCq)),
        Op::DeallocPd => Route::Destroy(of(Op::AllocPd)),
        Op::DeallocTransportDomain => Route::Destroy(of(Op::AllocTransportDomain)),
        Op::DestroyRmp => Route::Destroy(of(Op::CreateRmp)),
        Op::DestroyQp => Route::Destroy(of(Op::CreateQp)),
        Op::DeallocQCounter => Route::Destroy(of(Op::AllocQCounter)),
        Op::DeallocXrcd => Route::Destroy(of(Op::AllocXrcd)),
        Op::DetachFromMcg => Route::Destroy(of(Op::AttachToMcg)),
        Op::QueryHcaCap
        | Op::QueryHcaVportContext
        | Op::QueryVportState
        | Op::QueryAdapter
        | Op::QueryIssi
        | Op::QueryNicVportContext
        | Op::QueryRoceAddress
        | Op::QueryVportCounter
        | Op::Nop
        | Op::QueryCongStatus
        | Op::QueryCongParams
        | Op::QueryCongStatistics => Route::General,
        _ if CHECKED_BY_FIRMWARE.contains(&opcode.raw()) => Route::General,
        _ => Route::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::command::general_object::{
        AliasOut, CreateAliasIn, GeneralObjectIn, OBJECT_TYPE_MKEY,
    };
    use bareverbs_prm::command::multicast::{AttachToMcgIn, DetachFromMcgIn};
    use bareverbs_prm::command::qp::{CreateQpIn, CreateQpOut, DestroyQpIn, QueryQpIn};
    use bareverbs_prm::ids::Qpn;
    use zerocopy::IntoBytes;

    #[test]
    fn an_object_keeps_its_name() {
        let (mut create, mut created) = (CreateQpIn::new(), CreateQpOut::new());
        create.set_opcode(Op::CreateQp);
        created.set_qpn(Qpn::from_low_bits(0x77));
        assert_eq!(route(create.as_bytes()), Route::Create);
        let name = ObjectName::created(create.as_bytes(), created.as_bytes());
        let (mut query, mut destroy) = (QueryQpIn::new(), DestroyQpIn::new());
        query.set_opcode(Op::QueryQp).set_qpn(Qpn::from_low_bits(0x77));
        destroy.set_opcode(Op::DestroyQp).set_qpn(Qpn::from_low_bits(0x77));
        assert_eq!(route(query.as_bytes()), Route::Query(name));
        assert_eq!(route(destroy.as_bytes()), Route::Destroy(name));
        destroy.set_qpn(Qpn::from_low_bits(0x78));
        assert_ne!(route(destroy.as_bytes()), Route::Destroy(name));
    }

    #[test]
    fn an_alias_is_known_by_its_type_and_a_membership_by_its_group() {
        let (mut create, mut created) = (CreateAliasIn::new(), AliasOut::new());
        create.header_mut().set_opcode(Op::CreateGeneralObject).set_obj_type(OBJECT_TYPE_MKEY);
        created.header_mut().set_obj_id(0x0123_4567);
        let mut destroy = GeneralObjectIn::new();
        destroy.set_opcode(Op::DestroyGeneralObject).set_obj_type(OBJECT_TYPE_MKEY).set_obj_id(0x0123_4567);
        let name = ObjectName::created(create.as_bytes(), created.as_bytes());
        assert_eq!(route(destroy.as_bytes()), Route::Destroy(name));
        let (mut attach, mut detach) = (AttachToMcgIn::new(), DetachFromMcgIn::new());
        attach.set_opcode(Op::AttachToMcg).set_qpn(Qpn::from_low_bits(5)).set_multicast_gid([0xff; 16]);
        detach.set_opcode(Op::DetachFromMcg).set_qpn(Qpn::from_low_bits(5)).set_multicast_gid([0xff; 16]);
        let name = ObjectName::created(attach.as_bytes(), &[0; 16]);
        assert_eq!(route(detach.as_bytes()), Route::Destroy(name));
        detach.set_multicast_gid([0xfe; 16]);
        assert_ne!(route(detach.as_bytes()), Route::Destroy(name));
    }

    #[test]
    fn commands_that_the_kernel_executes_are_not_passed_on() {
        let route_of = |opcode: Op| route(CommandHeaderIn::new().set_opcode(opcode).as_bytes());
        for opcode in
            [Op::InitHca, Op::CreateEq, Op::AllocUar, Op::SetRoceAddress, Op::AccessReg, Op::ManagePages]
        {
            assert_eq!(route_of(opcode), Route::Kernel, "{opcode}");
        }
        for opcode in [Op::QueryHcaCap, Op::AllowOtherVhcaAccess, Op::QueryRoceAddress] {
            assert_eq!(route_of(opcode), Route::General, "{opcode}");
        }
    }
}
