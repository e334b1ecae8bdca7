//! Memory regions and memory windows.

use crate::Errno;
use crate::call::Call;
use crate::commands::{Command, CommandFailure};
use crate::files::{Object, Region};
use crate::key_changes::KeyChange;
use crate::object_methods::{answer_or_undo, destroy, destroy_handle, keep};
use crate::page_list::RegionPages;
use crate::process::Process;
use crate::request::Request;
use crate::uapi::*;
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Pdn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, MkeyAccessMode};
use bareverbs_prm::wqe::mkey_mask;
use zerocopy::IntoBytes;

/// A key that queue pairs of any number may use.
const ANY_QUEUE_PAIR: Qpn = Qpn::from_low_bits(0xff_ffff);
/// `flags` of REREG_MR: translation, protection domain, access.
const CHANGE_TRANSLATION: u32 = 1;
const CHANGE_DOMAIN: u32 = 2;
const CHANGE_ACCESS: u32 = 4;
/// Rights that a work request can change in any key.
const RIGHTS: u64 =
    mkey_mask::LOCAL_READ | mkey_mask::LOCAL_WRITE | mkey_mask::REMOTE_READ | mkey_mask::REMOTE_WRITE;
/// `mw_type`: windows of type 2 can be invalidated from outside.
const WINDOW_TYPES: [u8; 2] = [1, 2];
/// Entries of a window's list come in fours.
const WINDOW_ENTRIES: u32 = 4;
const KNOWN_ACCESS: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE
    | IB_UVERBS_ACCESS_REMOTE_WRITE
    | IB_UVERBS_ACCESS_REMOTE_READ
    | IB_UVERBS_ACCESS_REMOTE_ATOMIC
    | IB_UVERBS_ACCESS_MW_BIND
    | IB_UVERBS_ACCESS_ZERO_BASED
    | IB_UVERBS_ACCESS_HUGETLB
    | IB_UVERBS_ACCESS_OPTIONAL_RANGE;

/// The requested properties of a region.
#[derive(Debug, Clone, Copy)]
struct RegionRequest {
    start: u64,
    length: u64,
    first: u64,
    access: u32,
}

/// QUERY_MR: keys, length and first address of a region, for a process that imports it.
pub(crate) fn query<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let region = call.file.memory_region(request.handle(UVERBS_ATTR_QUERY_MR_HANDLE)?)?;
    let key = region.key.value();
    for name in [UVERBS_ATTR_QUERY_MR_RESP_LKEY, UVERBS_ATTR_QUERY_MR_RESP_RKEY] {
        request.output(call.process, name, key.as_bytes())?;
    }
    request.output(call.process, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, region.length.as_bytes())?;
    request.output(call.process, UVERBS_ATTR_QUERY_MR_RESP_IOVA, region.first.as_bytes())
}

/// REG_MR.
pub(crate) fn register<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: RegMr = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let pd = call.file.protection_domain(requested.pd_handle)?;
    let region = RegionRequest {
        start: requested.start,
        length: requested.length,
        first: requested.hca_va,
        access: requested.access_flags,
    };
    let region = create(call, pd, region)?;
    let mr_handle = keep(call, Object::MemoryRegion(region), &[requested.pd_handle])?;
    let key = region.key.value();
    let response = RegMrResp { mr_handle, lkey: key, rkey: key };
    answer_or_undo(call, request, mr_handle, &[(UVERBS_ATTR_CORE_OUT, response.as_bytes())])
}

/// REREG_MR. A region that gets other access rights or another domain keeps its key. For other memory, a new region
/// replaces the old one and has a new key.
pub(crate) fn reregister<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: ReregMr = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let changes = |bit| requested.flags & bit != 0;
    if requested.flags == 0 || requested.flags & !(CHANGE_TRANSLATION | CHANGE_DOMAIN | CHANGE_ACCESS) != 0 {
        return Err(Errno::Invalid);
    }
    let old = call.file.memory_region(requested.mr_handle)?;
    let old_domain = call.file.uses(requested.mr_handle).first().copied().ok_or(Errno::Invalid)?;
    let domain = if changes(CHANGE_DOMAIN) { requested.pd_handle } else { old_domain };
    let pd = call.file.protection_domain(domain)?;
    let access = if changes(CHANGE_ACCESS) { requested.access_flags } else { old.access };
    let region = if !changes(CHANGE_TRANSLATION) && can_change(call, old.access ^ access) {
        change(call, pd, old, access)?
    } else {
        recreate(call, pd, old, &ReregMr { access_flags: access, ..requested })?
    };
    call.file.replace(requested.mr_handle, Object::MemoryRegion(region), &[domain]);
    let key = region.key.value();
    let response = ReregMrResp { lkey: key, rkey: key };
    request.output(call.process, UVERBS_ATTR_CORE_OUT, response.as_bytes())
}

/// Whether the differing rights can be changed by a work request (`can_use_umr_rereg_access`).
fn can_change<P: Process>(call: &Call<'_, P>, differences: u32) -> bool {
    let fixed = call.device.attributes.general.umr_modify_atomic_disabled();
    let atomic = if fixed { 0 } else { IB_UVERBS_ACCESS_REMOTE_ATOMIC };
    let plain = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_READ;
    differences & !(plain | atomic) == 0
}

/// Gives a key other rights and another domain.
fn change<P: Process>(call: &mut Call<'_, P>, pd: Pdn, old: Region, access: u32) -> Result<Region, Errno> {
    let granted = check_access(access)?;
    check_memory(call, old.start, old.length, granted)?;
    let mut context = MkeyContext::new();
    context.set_pd(pd);
    grant(&mut context, granted);
    let atomic =
        if call.device.attributes.general.umr_modify_atomic_disabled() { 0 } else { mkey_mask::ATOMIC };
    let mask = mkey_mask::PD | RIGHTS | atomic;
    call.device.change_key(call.process, &KeyChange { key: old.key, mask, context })?;
    Ok(Region { access, ..old })
}

/// Replaces a region with a new one that keeps the properties that are not to change.
fn recreate<P: Process>(
    call: &mut Call<'_, P>,
    pd: Pdn,
    old: Region,
    requested: &ReregMr,
) -> Result<Region, Errno> {
    let (start, length, first) = if requested.flags & CHANGE_TRANSLATION != 0 {
        (requested.start, requested.length, requested.hca_va)
    } else {
        (old.start, old.length, old.first)
    };
    let region = create(call, pd, RegionRequest { start, length, first, access: requested.access_flags })?;
    destroy(call.device, call.process, Object::MemoryRegion(old))?;
    Ok(region)
}

/// Checks that the memory is mapped, and writable if anybody may write to it.
fn check_memory<P: Process>(
    call: &mut Call<'_, P>,
    start: u64,
    length: u64,
    access: u32,
) -> Result<(), Errno> {
    let writes = access & !IB_UVERBS_ACCESS_REMOTE_READ != 0;
    if call.process.has_memory(start, length, writes) { Ok(()) } else { Err(Errno::Fault) }
}

/// Creates the key of a region of the program's memory.
fn create<P: Process>(call: &mut Call<'_, P>, pd: Pdn, requested: RegionRequest) -> Result<Region, Errno> {
    let access = check_access(requested.access)?;
    let pages =
        RegionPages::find(requested.start, requested.length, requested.first).ok_or(Errno::Invalid)?;
    check_memory(call, requested.start, requested.length, access)?;
    let mut input = CreateMkeyIn::new();
    let octwords = u32::try_from(pages.count.div_ceil(2)).map_err(|_| Errno::Invalid)?;
    input.set_translations_octword_actual_size(octwords);
    let context = input.memory_key_mkey_entry_mut();
    context.set_access_mode_1_0(MkeyAccessMode::Mtt.raw()).set_umr_en(true).set_pd(pd);
    context.set_start_addr(requested.first).set_length(requested.length);
    context.set_translations_octword_size(octwords).set_log_page_size(pages.log_page);
    grant(context, access);
    let mut list = pages.list;
    list.resize(list.len().next_multiple_of(16), 0);
    let key = create_key(call, &input, &list)?;
    Ok(Region { key, start: requested.start, length: requested.length, first: requested.first, access })
}

/// Validates access rights like `ib_check_mr_access`: remote write requires local write. Optional rights are dropped.
fn check_access(access: u32) -> Result<u32, Errno> {
    let writes = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC;
    if access & IB_UVERBS_ACCESS_ON_DEMAND != 0 {
        return Err(Errno::NotSupported);
    }
    let writable = access & IB_UVERBS_ACCESS_LOCAL_WRITE != 0 || access & writes == 0;
    if access & !KNOWN_ACCESS != 0 || !writable {
        return Err(Errno::Invalid);
    }
    Ok(access & !IB_UVERBS_ACCESS_OPTIONAL_RANGE)
}

fn grant(context: &mut MkeyContext, access: u32) {
    let has = |bit| access & bit != 0;
    context.set_lr(true).set_lw(has(IB_UVERBS_ACCESS_LOCAL_WRITE)).set_rr(has(IB_UVERBS_ACCESS_REMOTE_READ));
    context.set_rw(has(IB_UVERBS_ACCESS_REMOTE_WRITE)).set_a(has(IB_UVERBS_ACCESS_REMOTE_ATOMIC));
}

/// Creates a key. Its low byte differs from the previous key's, so that stale keys are detected.
fn create_key<P: Process>(
    call: &mut Call<'_, P>,
    input: &CreateMkeyIn,
    list: &[u8],
) -> Result<Mkey, CommandFailure> {
    let mut input = *input;
    let variant = call.device.next_key_variant();
    input.memory_key_mkey_entry_mut().set_mkey_7_0(variant).set_qpn(ANY_QUEUE_PAIR);
    let command = Command::new(CommandOpcode::CreateMkey, 0, &input).list(list);
    let response: CreateMkeyOut = call.device.commands.run(call.process, &command)?;
    Ok(Mkey::from_parts(response.mkey_index(), variant))
}

/// MR_DESTROY.
pub(crate) fn deregister<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_MR_HANDLE)?;
    call.file.memory_region(handle)?;
    destroy_handle(call, handle)
}

/// ALLOC_MW: a key without entries, which a work request fills.
pub(crate) fn alloc_window<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let requested: AllocMw = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let provider: Mlx5AllocMw = request.structure(call.process, UVERBS_ATTR_UHW_IN)?;
    let pd = call.file.protection_domain(requested.pd_handle)?;
    if !WINDOW_TYPES.contains(&requested.mw_type) {
        return Err(Errno::Invalid);
    }
    if provider.comp_mask != 0 || provider.reserved1 != 0 || provider.reserved2 != 0 {
        return Err(Errno::NotSupported);
    }
    let mut input = CreateMkeyIn::new();
    let context = input.memory_key_mkey_entry_mut();
    context.set_access_mode_1_0(MkeyAccessMode::Klms.raw()).set_free(true).set_umr_en(true);
    context.set_lr(true).set_en_rinval(requested.mw_type == WINDOW_TYPES[1]).set_pd(pd);
    let entries = u32::from(provider.num_klms).max(1).next_multiple_of(WINDOW_ENTRIES);
    context.set_translations_octword_size(entries);
    let key = create_key(call, &input, &[])?;
    let mw_handle = keep(call, Object::MemoryWindow(key), &[requested.pd_handle])?;
    let response = AllocMwResp { mw_handle, rkey: key.value() };
    answer_or_undo(call, request, mw_handle, &[(UVERBS_ATTR_CORE_OUT, response.as_bytes())])
}

/// MW_DESTROY.
pub(crate) fn dealloc_window<P: Process>(call: &mut Call<'_, P>, request: &Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_MW_HANDLE)?;
    call.file.memory_window(handle)?;
    destroy_handle(call, handle)
}
