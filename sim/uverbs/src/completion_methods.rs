//! Completion channels and completion queues.

use crate::Errno;
use crate::attributes::LONGEST_PERIOD;
use crate::call::Call;
use crate::commands::Command;
use crate::doorbells::NEVER_ARMED;
use crate::event_record::EventFileKind;
use crate::files::Object;
use crate::object_methods::{answer_or_undo, destroy_handle, keep};
use crate::page_list::QueuePlace;
use crate::process::Process;
use crate::queues::CompletionQueue;
use crate::request::Request;
use crate::uapi::*;
use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut, ModifyCqIn, ModifyCqOut};
use bareverbs_prm::context::CompletionQueueContext;
use bareverbs_prm::ids::{Cqn, UarIndex};
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::IntoBytes;

/// `op_mod` of MODIFY_CQ: resize to another buffer.
const RESIZE: u16 = 1;
/// `resize_field_select`: size, offset in the page, page size.
const RESIZE_FIELDS: u32 = 0b111;
/// `modify_field_select`: period and count of moderation.
const MODERATION_FIELDS: u32 = 0b11;
/// `attr_mask` of MODIFY_CQ: moderation.
const MODERATE: u32 = 1;
/// Bytes of an entry.
const SMALL: u32 = 64;
const LARGE: u32 = 128;
/// Codes of entry sizes: 64 bytes, 128, and 128 with an empty first half.
const SMALL_CODE: u8 = 0;
const LARGE_CODE: u8 = 1;
const PADDED_CODE: u8 = 2;
/// Offset of a record's word for arming.
const ARM_WORD: u64 = 4;

/// CREATE_COMP_CHANNEL.
pub(crate) fn create_channel<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let descriptor = call.device.events.open(call.process, call.file_id, EventFileKind::Completion)?;
    let response = CreateCompChannelResp { fd: descriptor.cast_unsigned() };
    request.output(call.process, UVERBS_ATTR_CORE_OUT, response.as_bytes())
}

/// CQ_CREATE.
pub(crate) fn create<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let provider: Mlx5CreateCq = request.structure(call.process, UVERBS_ATTR_UHW_IN)?;
    let flags = request.constant(UVERBS_ATTR_CREATE_CQ_FLAGS);
    check(call, request, &provider, flags)?;
    let page = UarIndex::from_low_bits(provider.uar_page_index.into());
    if !call.file.owns_page(page) {
        return Err(Errno::Invalid);
    }
    let channel = match request.descriptor(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL) {
        Some(descriptor) => {
            let kind = EventFileKind::Completion;
            Some(call.device.events.find(call.process, descriptor, call.file_id, kind)?)
        }
        None => None,
    };
    let element = request.constant(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
    let listener = call.listener(request, UVERBS_ATTR_CREATE_CQ_EVENT_FD, element)?;
    let log_entries = log_entries(call, request.constant(UVERBS_ATTR_CREATE_CQ_CQE))?;
    let cqn = create_queue(call, &provider, log_entries, flags)?;
    let entries = (1_u32 << log_entries) - 1;
    call.device.queues.completion.insert(cqn, CompletionQueue { listener, channel, entries });
    call.device.doorbells.watch_completion_queue(cqn, page, provider.db_addr);
    let handle = keep(call, Object::CompletionQueue(cqn), &[])?;
    request.put_new(UVERBS_ATTR_CREATE_CQ_HANDLE, handle.into());
    let response = Mlx5CreateCqResp { cqn: cqn.value(), reserved: 0 };
    let outputs =
        [(UVERBS_ATTR_CREATE_CQ_RESP_CQE, entries.as_bytes()), (UVERBS_ATTR_UHW_OUT, response.as_bytes())];
    answer_or_undo(call, request, handle, &outputs)
}

fn check<P: Process>(
    call: &Call<'_, P>,
    request: &Request<'_>,
    provider: &Mlx5CreateCq,
    flags: u64,
) -> Result<(), Errno> {
    let known = IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
    let padded = MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD;
    let named_page = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
    let provider_ok = provider.flags & !(padded | named_page) == 0
        && provider.flags & named_page != 0
        && (provider.flags & padded == 0 || provider.cqe_size == LARGE)
        && provider.reserved0 == 0
        && provider.reserved1 == 0;
    let vector = request.constant(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR);
    if flags & !known != 0 || !provider_ok || vector >= call.device.completion_vectors().into() {
        return Err(Errno::Invalid);
    }
    // CQE compression is not offered.
    if provider.cqe_comp_en != 0 { Err(Errno::NotSupported) } else { Ok(()) }
}

/// Logarithm of the size of a queue for `wanted` entries; one entry stays empty.
fn log_entries<P: Process>(call: &Call<'_, P>, wanted: u64) -> Result<u8, Errno> {
    let most = 1 << call.device.attributes.general.log_max_cq_sz();
    if wanted == 0 || wanted >= most {
        return Err(Errno::Invalid);
    }
    Ok((wanted + 1).next_power_of_two().trailing_zeros() as u8)
}

fn entry_code(size: u32, flags: u16) -> Result<u8, Errno> {
    match size {
        SMALL => Ok(SMALL_CODE),
        LARGE if flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD != 0 => Ok(PADDED_CODE),
        LARGE => Ok(LARGE_CODE),
        _ => Err(Errno::Invalid),
    }
}

fn create_queue<P: Process>(
    call: &mut Call<'_, P>,
    provider: &Mlx5CreateCq,
    log_entries: u8,
    flags: u64,
) -> Result<Cqn, Errno> {
    let code = entry_code(provider.cqe_size, provider.flags)?;
    let length = u64::from(provider.cqe_size) << log_entries;
    let place = QueuePlace::find(call.process, provider.buf_addr, length, true)?;
    // The first arming of libmlx5 may write what it has preset; see `doorbells`.
    call.process.write(provider.db_addr.wrapping_add(ARM_WORD), &NEVER_ARMED.to_be_bytes())?;
    let mut input = CreateCqIn::new();
    let context = input.cq_context_mut();
    context.set_oi(flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN != 0).set_dbr_addr(provider.db_addr);
    context.set_uar_page(UarIndex::from_low_bits(provider.uar_page_index.into()));
    context.set_c_eqn_or_apu_element(call.device.completion_event_queue().value());
    set_geometry(context, log_entries, code, &place);
    let command = Command::new(CommandOpcode::CreateCq, 0, &input).list(&place.list);
    Ok(call.device.commands.run::<_, CreateCqOut>(call.process, &command)?.cqn())
}

fn set_geometry(context: &mut CompletionQueueContext, log_entries: u8, code: u8, place: &QueuePlace) {
    context.set_log_cq_size(log_entries).set_cqe_sz(code).set_page_offset(place.page_offset);
}

/// CQ_DESTROY.
pub(crate) fn destroy<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_CQ_HANDLE)?;
    let cqn = call.file.completion_queue(handle)?;
    let queue = call.device.queues.completion.get(&cqn).ok_or(Errno::Invalid)?;
    let (listener, channel) = (queue.listener, queue.channel);
    destroy_handle(call, handle)?;
    let events = &mut call.device.events;
    let completions = channel.map_or(0, |channel| events.retire(call.process, channel, listener.element));
    let response = DestroyCqResp {
        comp_events_reported: completions,
        async_events_reported: listener.retire(events, call.process),
    };
    request.output(call.process, UVERBS_ATTR_DESTROY_CQ_RESP, response.as_bytes())
}

/// RESIZE_CQ: the queue continues in another buffer.
pub(crate) fn resize<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: ResizeCq = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let provider: Mlx5ResizeCq = request.structure(call.process, UVERBS_ATTR_UHW_IN)?;
    let cqn = call.file.completion_queue(requested.cq_handle)?;
    let log_entries = log_entries(call, requested.cqe.into())?;
    let size = u32::from(provider.cqe_size);
    if provider.reserved0 != 0 || provider.reserved1 != 0 {
        return Err(Errno::Invalid);
    }
    let code = entry_code(size, 0)?;
    call.device.catch_up(call.process);
    let place = QueuePlace::find(call.process, provider.buf_addr, u64::from(size) << log_entries, true)?;
    let mut input = ModifyCqIn::new();
    input.set_cqn(cqn);
    input.set_modify_field_select_resize_field_select_modify_field_select_modify_field_select(RESIZE_FIELDS);
    set_geometry(input.cq_context_mut(), log_entries, code, &place);
    let command = Command::new(CommandOpcode::ModifyCq, RESIZE, &input).list(&place.list);
    call.device.commands.run::<_, ModifyCqOut>(call.process, &command)?;
    let entries = (1 << log_entries) - 1;
    if let Some(queue) = call.device.queues.completion.get_mut(&cqn) {
        queue.entries = entries;
    }
    let response = ResizeCqResp { cqe: entries, reserved: 0 };
    request.output(call.process, UVERBS_ATTR_CORE_OUT, response.as_bytes())
}

/// MODIFY_CQ: moderation.
pub(crate) fn moderate<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: ExModifyCq = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let cqn = call.file.completion_queue(requested.cq_handle)?;
    if requested.attr_mask != MODERATE {
        return Err(Errno::NotSupported);
    }
    let [count, period] = requested.attr;
    if period > LONGEST_PERIOD {
        return Err(Errno::Invalid);
    }
    let mut input = ModifyCqIn::new();
    input.set_cqn(cqn);
    input.set_modify_field_select_resize_field_select_modify_field_select_modify_field_select(
        MODERATION_FIELDS,
    );
    input.cq_context_mut().set_cq_period(period).set_cq_max_count(count);
    let command = Command::new(CommandOpcode::ModifyCq, 0, &input);
    Ok(call.device.commands.run::<_, ModifyCqOut>(call.process, &command).map(drop)?)
}
