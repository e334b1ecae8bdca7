//! ALLOW_OTHER_VHCA_ACCESS, and CREATE_, QUERY_ and DESTROY_GENERAL_OBJECT for aliases: functions of one card
//! share memory keys with these commands.
//!
//! Only a function of a multi-function card has these commands. Aliases of memory keys are the only general
//! objects.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::card::{AccessKey, CardState};
use crate::nic::mkey::{SharedKey, access_mode};
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::general_object::{
    AliasContext, AliasOut, AllowOtherVhcaAccessIn, AllowOtherVhcaAccessOut, CreateAliasIn, GeneralObjectIn,
    GeneralObjectOut, OBJECT_TYPE_MKEY,
};
use bareverbs_prm::ids::Pdn;
use bareverbs_prm::numbering::{CommandOpcode, MkeyAccessMode};

/// `alias_context.status` of an alias that is no longer valid. Only the value zero is documented.
const ALIAS_INVALID: u8 = 1;

/// Whether a command belongs to this family.
pub(super) const fn has(opcode: CommandOpcode) -> bool {
    use CommandOpcode::{
        AllowOtherVhcaAccess, CreateGeneralObject, DestroyGeneralObject, QueryGeneralObject,
    };
    matches!(opcode, AllowOtherVhcaAccess | CreateGeneralObject | QueryGeneralObject | DestroyGeneralObject)
}

fn card(nic: &mut Nic) -> Result<&mut CardState, Refusal> {
    nic.shared.optional.card.as_deref_mut().ok_or(syndrome::CARD_FUNCTION)
}

/// Permits other functions that know the access key to create aliases of a memory key.
pub(super) fn allow(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &AllowOtherVhcaAccessIn,
    _: &mut AllowOtherVhcaAccessOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if input.object_type_to_be_accessed() != OBJECT_TYPE_MKEY {
        return Err(syndrome::SHARE_TYPE);
    }
    let index = input.object_id_to_be_accessed();
    check_shareable(nic, index)?;
    let owner = card(nic)?.function.vhca_id;
    let object = nic.shared.mkeys.shared_name(owner, index).ok_or(syndrome::MKEY_UNKNOWN)?;
    card(nic)?.share(object, AccessKey(input.access_key()));
    Ok(())
}

/// Refuses indirect keys on cards that cannot follow them for other functions. Also refuses keys without
/// bounds, which would expose all host memory, and aliases, which only their owner may share.
fn check_shareable(nic: &Nic, index: u32) -> Result<(), Refusal> {
    let key = nic.shared.mkeys.get(index).ok_or(syndrome::MKEY_UNKNOWN)?;
    let follows = nic.config.card.is_some_and(|function| function.shares_indirect_keys);
    let unbounded = key.context.length64() && access_mode(&key.context) == MkeyAccessMode::Pa;
    if key.alias().is_some() || unbounded || key.is_indirect() && !follows {
        return Err(syndrome::MKEY_NOT_SHAREABLE);
    }
    Ok(())
}

/// Creates an alias of another function's memory key. Its number is the index of a memory key with variant 0.
pub(super) fn create(
    nic: &mut Nic,
    _: &mut Call<'_>,
    input: &CreateAliasIn,
    output: &mut AliasOut,
) -> Result<(), Refusal> {
    check_type(input.header())?;
    let requested = input.alias();
    let pd = Pdn::new(requested.metadata_1()).filter(|pd| nic.shared.domains.get(pd.value()).is_some());
    let pd = pd.ok_or(syndrome::PD_UNKNOWN)?;
    let (owner, index) = (requested.vhca_id_to_be_accessed(), requested.object_id_to_be_accessed());
    let &(target, access) = card(nic)?.offer(owner, index).ok_or(syndrome::ALIAS_TARGET)?;
    if access != AccessKey(requested.access_key()) {
        return Err(syndrome::ALIAS_ACCESS_KEY);
    }
    let limit = 1 << nic.firmware.capabilities.general.log_max_mkey();
    let number = nic.shared.mkeys.create_alias(pd, target, limit).ok_or(syndrome::MKEY_LIMIT)?;
    output.header_mut().set_obj_id(number);
    describe(nic, target, output.alias_mut())
}

pub(super) fn query(
    nic: &mut Nic,
    _: &mut Call<'_>,
    input: &GeneralObjectIn,
    output: &mut AliasOut,
) -> Result<(), Refusal> {
    check_type(input)?;
    let target = nic.shared.mkeys.alias(input.obj_id()).ok_or(syndrome::ALIAS_UNKNOWN)?;
    output.header_mut().set_obj_id(input.obj_id());
    describe(nic, target, output.alias_mut())
}

pub(super) fn destroy(
    nic: &mut Nic,
    _: &mut Call<'_>,
    input: &GeneralObjectIn,
    _: &mut GeneralObjectOut,
) -> Result<(), Refusal> {
    check_type(input)?;
    nic.shared.mkeys.alias(input.obj_id()).ok_or(syndrome::ALIAS_UNKNOWN)?;
    nic.shared.mkeys.destroy(input.obj_id()).map(drop).ok_or(syndrome::ALIAS_UNKNOWN)
}

/// The creator sets `alias_object`; drivers leave it out when they destroy the object.
fn check_type(header: &GeneralObjectIn) -> Result<(), Refusal> {
    let creates = header.opcode() == CommandOpcode::CreateGeneralObject;
    if header.obj_type() != OBJECT_TYPE_MKEY || header.log_obj_range() != 0 {
        return Err(syndrome::GENERAL_OBJECT_TYPE);
    }
    if creates && !header.alias_object() { Err(syndrome::GENERAL_OBJECT_TYPE) } else { Ok(()) }
}

/// The target of an alias. The access key stays hidden.
fn describe(nic: &mut Nic, target: SharedKey, context: &mut AliasContext) -> Result<(), Refusal> {
    let valid = card(nic)?.is_offered(target);
    context.set_vhca_id_to_be_accessed(target.owner).set_object_id_to_be_accessed(target.index);
    context.set_status(if valid { 0 } else { ALIAS_INVALID });
    Ok(())
}
