//! CREATE_MKEY, DESTROY_MKEY, QUERY_MKEY.

use super::call::Call;
use super::umem::{UmemPlace, umem_pages};
use crate::nic::Nic;
use crate::nic::mkey::{MemoryKey, RESERVED_LKEY, access_mode};
use crate::nic::syndrome::{self, Refusal};
use crate::nic::user_memory::PageRun;
use bareverbs_prm::command::hca::{QuerySpecialContextsIn, QuerySpecialContextsOut};
use bareverbs_prm::command::mkey::{
    CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, DestroyMkeyOut, QueryMkeyIn, QueryMkeyOut,
};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::MkeyIndex;
use bareverbs_prm::numbering::MkeyAccessMode;

/// The smallest pages of a key, in bytes.
const SMALL_PAGE: u64 = 4096;

pub(super) fn create(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateMkeyIn,
    output: &mut CreateMkeyOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = *input.memory_key_mkey_entry();
    nic.shared.domains.get(context.pd().value()).ok_or(syndrome::PD_UNKNOWN)?;
    if input.data_direct() || context.bsf_en() {
        return Err(syndrome::MKEY_FEATURE);
    }
    if input.mkey_umem_valid() {
        return create_in_umem(nic, input, output);
    }
    if !nic.shared.mkeys.has_room_for(&context) {
        return Err(syndrome::MKEY_TRANSLATIONS_LIMIT);
    }
    let longest = 1 << nic.firmware.capabilities.general.log_max_klm_list_size();
    if matches!(access_mode(&context), MkeyAccessMode::Klms | MkeyAccessMode::Ksm)
        && context.translations_octword_size() > longest
    {
        return Err(syndrome::MKEY_LIST);
    }
    let entries = match access_mode(&context) {
        MkeyAccessMode::Pa => physical(&context)?,
        MkeyAccessMode::Mtt => page_list(call, input, &context)?,
        MkeyAccessMode::Klms => key_list(call, input, &context)?,
        MkeyAccessMode::Ksm => {
            check_page_size(&context)?;
            key_list(call, input, &context)?
        }
        _ => return Err(syndrome::MKEY_MODE),
    };
    let limit = 1 << nic.firmware.capabilities.general.log_max_mkey();
    let index = nic.shared.mkeys.create(context, entries, limit).ok_or(syndrome::MKEY_LIMIT)?;
    output.set_mkey_index(MkeyIndex::from_low_bits(index));
    Ok(())
}

/// A key over user memory: the byte at `mkey_umem_offset` of the object is that at `start_addr`. Neither headers nor manuals say which pages
/// the key has then; here they are the object's if both addresses agree in them, and of 4 KiB otherwise.
fn create_in_umem(nic: &mut Nic, input: &CreateMkeyIn, output: &mut CreateMkeyOut) -> Result<(), Refusal> {
    let mut context = *input.memory_key_mkey_entry();
    if access_mode(&context) != MkeyAccessMode::Mtt || context.free() {
        return Err(syndrome::MKEY_MODE);
    }
    if context.length64() {
        return Err(syndrome::MKEY_LENGTH64);
    }
    check_range(&context)?;
    let place = UmemPlace { id: input.mkey_umem_id(), offset: input.mkey_umem_offset() };
    let writes = context.lw() || context.rw() || context.a();
    let (object, run) = umem_pages(nic, place, context.length(), writes)?;
    let PageRun { pages, log_page, lead } = run;
    let start = context.start_addr();
    let (log_page, entries) = if start % (1 << log_page) == lead {
        (log_page, pages)
    } else if start % SMALL_PAGE == lead % SMALL_PAGE {
        let first = lead / SMALL_PAGE;
        let count = (lead % SMALL_PAGE + context.length()).div_ceil(SMALL_PAGE);
        let small = |page: u64| {
            let (index, within) = ((page * SMALL_PAGE) >> log_page, page * SMALL_PAGE % (1 << log_page));
            pages.get(index as usize).map(|address| address + within)
        };
        (SMALL_PAGE.ilog2() as u8, (first..first + count).filter_map(small).collect())
    } else {
        return Err(syndrome::MKEY_PAGE_MISALIGNED);
    };
    let octwords = (entries.len() as u64).div_ceil(2).max(context.translations_octword_size().into());
    context.set_translations_octword_size(octwords.min(u32::MAX.into()) as u32).set_log_page_size(log_page);
    if !nic.shared.mkeys.has_room_for(&context) {
        return Err(syndrome::MKEY_TRANSLATIONS_LIMIT);
    }
    let limit = 1 << nic.firmware.capabilities.general.log_max_mkey();
    let index = nic.shared.mkeys.create(context, entries, limit).ok_or(syndrome::MKEY_LIMIT)?;
    nic.shared.mkeys.hold(index, object);
    output.set_mkey_index(MkeyIndex::from_low_bits(index));
    Ok(())
}

/// PA mode: addresses are used as I/O virtual addresses without translation.
fn physical(context: &MkeyContext) -> Result<Vec<u64>, Refusal> {
    check_range(context)?;
    Ok(Vec::new())
}

fn check_range(context: &MkeyContext) -> Result<(), Refusal> {
    if context.length64() && (context.start_addr() != 0 || context.length() != 0) {
        return Err(syndrome::MKEY_LENGTH64);
    }
    match context.length().checked_sub(1).map(|last| context.start_addr().checked_add(last)) {
        Some(None) => Err(syndrome::MKEY_RANGE),
        _ => Ok(()),
    }
}

fn check_page_size(context: &MkeyContext) -> Result<(), Refusal> {
    if (12..=31).contains(&context.log_page_size()) { Ok(()) } else { Err(syndrome::MKEY_PAGE_SIZE) }
}

/// MTT mode: a key in use has an entry for each of its pages. A free key has as many as the input says,
/// usually none whatever its length, because work requests bring them later.
fn page_list(call: &mut Call<'_>, input: &CreateMkeyIn, context: &MkeyContext) -> Result<Vec<u64>, Refusal> {
    if context.length64() {
        return Err(syndrome::MKEY_LENGTH64);
    }
    check_page_size(context)?;
    check_range(context)?;
    let log_page = context.log_page_size();
    let count = match context.free() {
        true => u64::from(input.translations_octword_actual_size()) * 2,
        false => pages(context, log_page),
    };
    // An octword holds two translation entries.
    if u64::from(context.translations_octword_size()) * 2 < count {
        return Err(syndrome::MKEY_TRANSLATIONS);
    }
    let entries = call.list(CreateMkeyIn::KLM_PAS_MTT_OFFSET, count)?;
    if entries.iter().any(|entry| entry & ((1 << log_page) - 1) & !3 != 0) {
        return Err(syndrome::MKEY_PAGE_MISALIGNED);
    }
    Ok(entries)
}

/// KLM and KSM modes: the input names some of the other keys, and work requests bring or replace them later.
/// The keys are looked up when they are used.
fn key_list(call: &mut Call<'_>, input: &CreateMkeyIn, context: &MkeyContext) -> Result<Vec<u64>, Refusal> {
    check_range(context)?;
    let given = input.translations_octword_actual_size();
    if given > context.translations_octword_size() {
        return Err(syndrome::MKEY_TRANSLATIONS);
    }
    call.list(CreateMkeyIn::KLM_PAS_MTT_OFFSET, u64::from(given) * 2)
}

/// The number of pages that a region touches.
fn pages(context: &MkeyContext, log_page: u8) -> u64 {
    let Some(last) = context.length().checked_sub(1) else { return 0 };
    let end = context.start_addr().saturating_add(last);
    (end >> log_page) - (context.start_addr() >> log_page) + 1
}

pub(super) fn destroy(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyMkeyIn,
    _: &mut DestroyMkeyOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let index = input.mkey_index().value();
    own(nic, index)?;
    if let Some(card) = &mut nic.shared.optional.card {
        card.withdraw(index);
    }
    nic.shared.mkeys.destroy(index).map(drop).ok_or(syndrome::MKEY_UNKNOWN)
}

/// A key of this function that is not an alias: aliases are general objects with their own commands.
fn own(nic: &Nic, index: u32) -> Result<&MemoryKey, Refusal> {
    nic.shared.mkeys.get(index).filter(|key| key.alias().is_none()).ok_or(syndrome::MKEY_UNKNOWN)
}

/// Returns the context, without translation entries: the output only has room for two of them.
/// QUERY_SPECIAL_CONTEXTS: the reserved local key. The other keys of the output belong to capabilities that are not offered.
pub(super) fn query_special(
    _: &mut Nic,
    call: &mut Call<'_>,
    _: &QuerySpecialContextsIn,
    output: &mut QuerySpecialContextsOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    output.set_resd_lkey(RESERVED_LKEY.value());
    Ok(())
}

pub(super) fn query(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryMkeyIn,
    output: &mut QueryMkeyOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let key = own(nic, input.mkey_index().value())?;
    output.memory_key_mkey_entry_mut().clone_from(&key.context);
    Ok(())
}
