//! Shared receive queues: receive memory pools, and those of XRC.

use crate::Errno;
use crate::call::Call;
use crate::commands::Command;
use crate::files::Object;
use crate::object_methods::{answer_or_undo, destroy_handle, keep};
use crate::page_list::QueuePlace;
use crate::process::Process;
use crate::queues::SharedReceiveQueue;
use crate::request::Request;
use crate::uapi::*;
use bareverbs_prm::command::srq::{
    ArmXrcSrqIn, ArmXrcSrqOut, CreateRmpIn, CreateRmpOut, CreateXrcSrqIn, CreateXrcSrqOut, ModifyRmpIn,
    ModifyRmpOut, QueryRmpIn, QueryRmpOut, QueryXrcSrqIn, QueryXrcSrqOut,
};
use bareverbs_prm::ids::{Pdn, Srqn};
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::IntoBytes;

/// Bytes of a data segment, and of what precedes the first one.
const SEGMENT: u32 = 16;
/// Least bytes of an entry.
const LEAST_ENTRY: u32 = 32;
/// `rmpc.state`: ready.
const READY: u8 = 1;
/// `op_mod` of ARM_XRC_SRQ: sets the limit.
const SET_LIMIT: u16 = 1;
/// `attr_mask` of MODIFY_SRQ: the size, which mlx5 cannot change, and the limit.
const CHANGE_LIMIT: u32 = 2;

/// The requested properties of a queue.
#[derive(Debug)]
struct SharedReceiveRequest {
    pd: Pdn,
    log_entries: u8,
    log_stride: u8,
    provider: Mlx5CreateSrq,
    place: QueuePlace,
}

/// SRQ_CREATE.
pub(crate) fn create<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let domain = request.handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)?;
    let is_xrc = match request.constant(UVERBS_ATTR_CREATE_SRQ_TYPE) {
        IB_UVERBS_SRQT_BASIC => false,
        IB_UVERBS_SRQT_XRC => true,
        _ => return Err(Errno::NotSupported),
    };
    let requested = requested(call, request, domain)?;
    let element = request.constant(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE);
    let listener = call.listener(request, UVERBS_ATTR_CREATE_SRQ_EVENT_FD, element)?;
    let mut uses = alloc::vec![domain];
    let number = if is_xrc {
        let xrc_domain = request.handle(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE)?;
        let completions = request.handle(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE)?;
        uses.extend([xrc_domain, completions]);
        create_xrc(call, &requested, xrc_domain, completions)?
    } else {
        create_pool(call, &requested)?
    };
    let (max_wr, max_sge) = ((1_u32 << requested.log_entries) - 1, (1 << requested.log_stride) / SEGMENT - 1);
    let queue = SharedReceiveQueue { listener, is_xrc, max_wr, max_sge };
    call.device.queues.shared.insert(number, queue);
    let handle = keep(call, Object::SharedReceiveQueue(number), &uses)?;
    request.put_new(UVERBS_ATTR_CREATE_SRQ_HANDLE, handle.into());
    let value = number.value();
    let response = Mlx5CreateSrqResp { srqn: value, reserved: 0 };
    let outputs: [(u16, &[u8]); 4] = [
        (UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, max_wr.as_bytes()),
        (UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, max_sge.as_bytes()),
        (UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, value.as_bytes()),
        (UVERBS_ATTR_UHW_OUT, response.as_bytes()),
    ];
    answer_or_undo(call, request, handle, &outputs)
}

/// The queue's sizes, computed as libmlx5 does, and its place in memory.
fn requested<P: Process>(
    call: &mut Call<'_, P>,
    request: &Request<'_>,
    domain: u32,
) -> Result<SharedReceiveRequest, Errno> {
    let provider: Mlx5CreateSrq = request.structure(call.process, UVERBS_ATTR_UHW_IN)?;
    let pd = call.file.protection_domain(domain)?;
    let general = &call.device.attributes.general;
    let (entries, segments) =
        (request.constant(UVERBS_ATTR_CREATE_SRQ_MAX_WR), request.constant(UVERBS_ATTR_CREATE_SRQ_MAX_SGE));
    let most = 1_u64 << general.log_max_srq_sz();
    let longest = u64::from(general.max_wqe_sz_rq() / SEGMENT as u16).saturating_sub(1);
    let clean = provider.flags == 0 && provider.reserved0 == 0 && provider.reserved1 == 0;
    if !clean || entries >= most || segments > longest {
        return Err(Errno::Invalid);
    }
    let stride = (SEGMENT + SEGMENT * segments as u32).max(LEAST_ENTRY).next_power_of_two();
    let count = (entries as u32 + 1).next_power_of_two();
    let length = u64::from(stride) * u64::from(count);
    let place = QueuePlace::find(call.process, provider.buf_addr, length, true)?;
    let (log_entries, log_stride) = (count.trailing_zeros() as u8, stride.trailing_zeros() as u8);
    Ok(SharedReceiveRequest { pd, log_entries, log_stride, provider, place })
}

fn create_pool<P: Process>(call: &mut Call<'_, P>, requested: &SharedReceiveRequest) -> Result<Srqn, Errno> {
    let mut input = CreateRmpIn::new();
    let queue = input.ctx_mut().set_state(READY).wq_mut();
    queue
        .set_pd(requested.pd)
        .set_dbr_addr(requested.provider.db_addr)
        .set_page_offset(requested.place.page_offset);
    queue.set_log_wq_sz(requested.log_entries).set_log_wq_stride(requested.log_stride);
    let command = Command::new(CommandOpcode::CreateRmp, 0, &input).list(&requested.place.list);
    Ok(call.device.commands.run::<_, CreateRmpOut>(call.process, &command)?.rmpn())
}

fn create_xrc<P: Process>(
    call: &mut Call<'_, P>,
    requested: &SharedReceiveRequest,
    xrc_domain: u32,
    completions: u32,
) -> Result<Srqn, Errno> {
    let mut input = CreateXrcSrqIn::new();
    let context = input.xrc_srq_context_entry_mut();
    context.set_xrcd(call.file.xrc_domain(xrc_domain)?).set_cqn(call.file.completion_queue(completions)?);
    context.set_pd(requested.pd).set_user_index(requested.provider.uidx & 0xff_ffff);
    context.set_log_xrc_srq_size(requested.log_entries).set_log_rq_stride(requested.log_stride - 4);
    context.set_page_offset(requested.place.page_offset);
    let record = requested.provider.db_addr;
    context.set_db_record_addr_h((record >> 32) as u32).set_db_record_addr_l(record as u32 >> 2);
    let command = Command::new(CommandOpcode::CreateXrcSrq, 0, &input).list(&requested.place.list);
    Ok(call.device.commands.run::<_, CreateXrcSrqOut>(call.process, &command)?.xrc_srqn())
}

/// SRQ_DESTROY.
pub(crate) fn destroy<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_SRQ_HANDLE)?;
    let number = call.file.shared_receive_queue(handle)?;
    let listener = call.device.queues.shared.get(&number).ok_or(Errno::Invalid)?.listener;
    destroy_handle(call, handle)?;
    let response = DestroySrqResp { events_reported: listener.retire(&mut call.device.events, call.process) };
    request.output(call.process, UVERBS_ATTR_DESTROY_SRQ_RESP, response.as_bytes())
}

/// MODIFY_SRQ: the limit. When fewer receives are left, an event reports it.
pub(crate) fn modify<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: ModifySrq = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let number = call.file.shared_receive_queue(requested.srq_handle)?;
    let queue = call.device.queues.shared.get(&number).ok_or(Errno::Invalid)?;
    if requested.attr_mask & !CHANGE_LIMIT != 0 {
        return Err(Errno::Invalid);
    }
    if requested.attr_mask == 0 {
        return Ok(());
    }
    if requested.srq_limit > queue.max_wr {
        return Err(Errno::Invalid);
    }
    let limit = requested.srq_limit as u16;
    if queue.is_xrc {
        let mut input = ArmXrcSrqIn::new();
        input.set_xrc_srqn(number).set_lwm(limit);
        let command = Command::new(CommandOpcode::ArmXrcSrq, SET_LIMIT, &input);
        return Ok(call.device.commands.run::<_, ArmXrcSrqOut>(call.process, &command).map(drop)?);
    }
    let mut input = ModifyRmpIn::new();
    input.set_rmpn(number).set_rmp_state(READY).set_bitmask_lwm(true);
    input.ctx_mut().set_state(READY).wq_mut().set_lwm(limit);
    let command = Command::new(CommandOpcode::ModifyRmp, 0, &input);
    Ok(call.device.commands.run::<_, ModifyRmpOut>(call.process, &command).map(drop)?)
}

/// QUERY_SRQ.
pub(crate) fn query<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let requested: QuerySrq = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    let number = call.file.shared_receive_queue(requested.srq_handle)?;
    let queue = call.device.queues.shared.get(&number).ok_or(Errno::Invalid)?;
    let (max_wr, max_sge) = (queue.max_wr, queue.max_sge);
    let limit = if queue.is_xrc {
        let mut input = QueryXrcSrqIn::new();
        input.set_xrc_srqn(number);
        let command = Command::new(CommandOpcode::QueryXrcSrq, 0, &input);
        let response: QueryXrcSrqOut = call.device.commands.run(call.process, &command)?;
        response.xrc_srq_context_entry().lwm()
    } else {
        let mut input = QueryRmpIn::new();
        input.set_rmpn(number);
        let command = Command::new(CommandOpcode::QueryRmp, 0, &input);
        let response: QueryRmpOut = call.device.commands.run(call.process, &command)?;
        response.rmp_context().wq().lwm()
    };
    let response = QuerySrqResp { max_wr, max_sge, srq_limit: limit.into(), reserved: 0 };
    request.output(call.process, UVERBS_ATTR_CORE_OUT, response.as_bytes())
}
