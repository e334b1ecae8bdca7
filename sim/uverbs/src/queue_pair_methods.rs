//! Creates and destroys queue pairs.

use crate::Errno;
use crate::call::Call;
use crate::commands::Command;
use crate::files::Object;
use crate::object_methods::{alloc_domain, alloc_xrc_domain, answer_or_undo, destroy_handle, keep};
use crate::page_list::QueuePlace;
use crate::process::Process;
use crate::queues::{QueuePair, QueuePairKind};
use crate::request::Request;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_prm::command::qp::{CreateQpIn, CreateQpOut};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Pdn, Qpn, UarIndex, Xrcdn};
use bareverbs_prm::numbering::{CommandOpcode, PathMigration, ServiceType};
use zerocopy::IntoBytes;

/// `rq_type`: its own receive queue, a shared one, none.
const OWN_RECEIVES: u8 = 0;
const SHARED_RECEIVES: u8 = 1;
const NO_RECEIVES: u8 = 3;
/// `bfreg_index` in a response: the library brought its own page.
const NO_REGISTER: u32 = u32::MAX;
/// Logarithms of a send block and of the least stride of receives.
const LOG_SEND_BLOCK: u32 = 6;
const LEAST_LOG_STRIDE: u32 = 4;
const MOST_LOG_STRIDE: u32 = LEAST_LOG_STRIDE + 7;
/// Flags of libmlx5 that need no action. Small payload in completions is only an offer, which a device
/// without `sctr_data_cqe` does not accept; `mlx5_ib` then ignores both flags (`process_vendor_flag`).
const KNOWN_FLAGS: u32 =
    MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_UAR_PAGE_INDEX;

/// The objects that a queue pair uses.
#[derive(Debug)]
struct QueuePairObjects {
    /// Their handles.
    handles: Vec<u32>,
    context: QueuePairContext,
}

/// QP_CREATE.
pub(crate) fn create<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let kind = kind(request.constant(UVERBS_ATTR_CREATE_QP_TYPE))?;
    let provider: Mlx5CreateQp = request.structure(call.process, UVERBS_ATTR_UHW_IN)?;
    let capacity: QpCap = request.structure(call.process, UVERBS_ATTR_CREATE_QP_CAP)?;
    let flags = request.constant(UVERBS_ATTR_CREATE_QP_FLAGS);
    check(call, request, &provider, flags)?;
    let QueuePairObjects { handles, context } = objects(call, request, kind, &capacity)?;
    let element = request.constant(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
    let listener = call.listener(request, UVERBS_ATTR_CREATE_QP_EVENT_FD, element)?;
    let qpn = create_queue(call, kind, &provider, context)?;
    let queue = QueuePair {
        listener,
        kind,
        capacity: with_own_receives(capacity, &provider),
        signals_all: flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0,
        access: 0,
        responder_resources: 0,
        groups: Vec::new(),
    };
    call.device.queues.pairs.insert(qpn, queue);
    if kind != QueuePairKind::XrcTarget && provider.sq_wqe_count != 0 {
        let page = UarIndex::from_low_bits(provider.bfreg_index);
        call.device.doorbells.watch_queue_pair(qpn, page, provider.db_addr);
    }
    let handle = keep(call, Object::QueuePair(qpn), &handles)?;
    request.put_new(UVERBS_ATTR_CREATE_QP_HANDLE, handle.into());
    let number = qpn.value();
    let response = Mlx5CreateQpResp { bfreg_index: NO_REGISTER, ..zerocopy::FromZeros::new_zeroed() };
    let outputs: [(u16, &[u8]); 3] = [
        (UVERBS_ATTR_CREATE_QP_RESP_CAP, capacity.as_bytes()),
        (UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, number.as_bytes()),
        (UVERBS_ATTR_UHW_OUT, response.as_bytes()),
    ];
    answer_or_undo(call, request, handle, &outputs)
}

/// Raw packet queue pairs and provider-specific kinds are not offered.
fn kind(raw: u64) -> Result<QueuePairKind, Errno> {
    match raw {
        IB_UVERBS_QPT_RC => Ok(QueuePairKind::ReliableConnection),
        IB_UVERBS_QPT_UC => Ok(QueuePairKind::UnreliableConnection),
        IB_UVERBS_QPT_UD => Ok(QueuePairKind::Datagram),
        IB_UVERBS_QPT_XRC_INI => Ok(QueuePairKind::XrcInitiator),
        IB_UVERBS_QPT_XRC_TGT => Ok(QueuePairKind::XrcTarget),
        _ => Err(Errno::NotSupported),
    }
}

fn check<P: Process>(
    call: &Call<'_, P>,
    request: &Request<'_>,
    provider: &Mlx5CreateQp,
    flags: u64,
) -> Result<(), Errno> {
    let known = IB_UVERBS_QP_CREATE_SQ_SIG_ALL | IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;
    let absent = [UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, UVERBS_ATTR_CREATE_QP_SOURCE_QPN];
    if flags & !known != 0 || absent.iter().any(|&id| request.length(id).is_some()) {
        return Err(Errno::NotSupported);
    }
    if provider.flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::Invalid);
    }
    let most = 1 << call.device.attributes.general.log_max_qp_sz();
    let fits = |count: u32| count <= most && (count == 0 || count.is_power_of_two());
    if fits(provider.sq_wqe_count) && fits(provider.rq_wqe_count) { Ok(()) } else { Err(Errno::Invalid) }
}

/// Looks up everything that a queue pair uses, and begins its context.
fn objects<P: Process>(
    call: &mut Call<'_, P>,
    request: &Request<'_>,
    kind: QueuePairKind,
    capacity: &QpCap,
) -> Result<QueuePairObjects, Errno> {
    let handle = |id| request.optional_handle(id);
    let (domain, xrc_domain) =
        (handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE)?, handle(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE)?);
    let (send, receive) =
        (handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)?, handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)?);
    let shared = handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)?;
    let mut context = QueuePairContext::new();
    context.set_st(service(kind)).set_pm_state(PathMigration::Migrated).set_rq_type(NO_RECEIVES);
    let mut handles = Vec::new();
    if kind == QueuePairKind::XrcTarget {
        let xrc_domain = xrc_domain.ok_or(Errno::Invalid)?;
        let (pd, _) = own_domains(call)?;
        context.set_no_sq(true).set_pd(pd).set_xrcd(call.file.xrc_domain(xrc_domain)?);
        handles.push(xrc_domain);
        return Ok(QueuePairObjects { handles, context });
    }
    let (domain, send) = (domain.ok_or(Errno::Invalid)?, send.ok_or(Errno::Invalid)?);
    context.set_pd(call.file.protection_domain(domain)?).set_cqn_snd(call.file.completion_queue(send)?);
    handles.extend([domain, send]);
    if kind == QueuePairKind::XrcInitiator {
        let (_, xrcd) = own_domains(call)?;
        context.set_xrcd(xrcd);
        return Ok(QueuePairObjects { handles, context });
    }
    let receive = receive.ok_or(Errno::Invalid)?;
    context.set_cqn_rcv(call.file.completion_queue(receive)?);
    handles.push(receive);
    if let Some(shared) = shared {
        let number = call.file.shared_receive_queue(shared)?;
        if call.device.queues.shared.get(&number).is_none_or(|queue| queue.is_xrc) {
            return Err(Errno::Invalid);
        }
        context.set_rq_type(SHARED_RECEIVES).set_srqn_rmpn_xrqn(number.value());
        handles.push(shared);
    } else if capacity.max_recv_wr != 0 {
        context.set_rq_type(OWN_RECEIVES);
    }
    if request.constant(UVERBS_ATTR_CREATE_QP_FLAGS) & IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK != 0 {
        context.set_block_lb_mc(true);
    }
    Ok(QueuePairObjects { handles, context })
}

const fn service(kind: QueuePairKind) -> ServiceType {
    match kind {
        QueuePairKind::ReliableConnection => ServiceType::Rc,
        QueuePairKind::UnreliableConnection => ServiceType::Uc,
        QueuePairKind::Datagram => ServiceType::Ud,
        QueuePairKind::XrcInitiator | QueuePairKind::XrcTarget => ServiceType::Xrc,
    }
}

/// The kernel's own domains, which programs do not name: XRC initiators need an XRC domain, and targets a
/// protection domain (`create_dev_resources`).
fn own_domains<P: Process>(call: &mut Call<'_, P>) -> Result<(Pdn, Xrcdn), Errno> {
    if let Some(known) = call.device.own_domains {
        return Ok(known);
    }
    let made = (alloc_domain(call)?, alloc_xrc_domain(call)?);
    call.device.own_domains = Some(made);
    Ok(made)
}

/// Adds the queues to the context and creates the queue pair.
fn create_queue<P: Process>(
    call: &mut Call<'_, P>,
    kind: QueuePairKind,
    provider: &Mlx5CreateQp,
    mut context: QueuePairContext,
) -> Result<Qpn, Errno> {
    context.set_user_index(provider.uidx & 0xff_ffff);
    let mut list = Vec::new();
    if kind != QueuePairKind::XrcTarget {
        let page = UarIndex::from_low_bits(provider.bfreg_index);
        if provider.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX == 0 || !call.file.owns_page(page) {
            return Err(Errno::Invalid);
        }
        let receive = receive_bytes(&mut context, provider)?;
        let send = u64::from(provider.sq_wqe_count) << LOG_SEND_BLOCK;
        context.set_no_sq(send == 0).set_log_sq_size(provider.sq_wqe_count.max(1).trailing_zeros() as u8);
        context.set_uar_page(page).set_dbr_addr(provider.db_addr);
        let place = QueuePlace::find(call.process, provider.buf_addr, receive + send, false)?;
        context.set_page_offset(place.page_offset);
        list = place.list;
    }
    let mut input = CreateQpIn::new();
    input.qpc_mut().clone_from(&context);
    let command = Command::new(CommandOpcode::CreateQp, 0, &input).list(&list);
    Ok(call.device.commands.run::<_, CreateQpOut>(call.process, &command)?.qpn())
}

/// The capabilities that a query reports. For its own receives it is what the queue holds, which may be more
/// than was requested (`set_rq_size`).
fn with_own_receives(asked: QpCap, provider: &Mlx5CreateQp) -> QpCap {
    if asked.max_recv_wr == 0 || provider.rq_wqe_count == 0 {
        return asked;
    }
    let segments = (1_u32 << provider.rq_wqe_shift.min(MOST_LOG_STRIDE)) >> LEAST_LOG_STRIDE;
    QpCap { max_recv_wr: provider.rq_wqe_count, max_recv_sge: segments, ..asked }
}

/// Bytes of the queue pair's own receive queue, which comes first in the buffer.
fn receive_bytes(context: &mut QueuePairContext, provider: &Mlx5CreateQp) -> Result<u64, Errno> {
    if context.rq_type() != OWN_RECEIVES {
        return Ok(0);
    }
    let log_stride = provider
        .rq_wqe_shift
        .checked_sub(LEAST_LOG_STRIDE)
        .filter(|&log| log <= MOST_LOG_STRIDE - LEAST_LOG_STRIDE);
    let log_stride = log_stride.filter(|_| provider.rq_wqe_count != 0).ok_or(Errno::Invalid)?;
    context.set_log_rq_size(provider.rq_wqe_count.trailing_zeros() as u8).set_log_rq_stride(log_stride as u8);
    Ok(u64::from(provider.rq_wqe_count) << provider.rq_wqe_shift)
}

/// QP_DESTROY.
pub(crate) fn destroy<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let handle = request.handle(UVERBS_ATTR_DESTROY_QP_HANDLE)?;
    let qpn = call.file.queue_pair(handle)?;
    let queue = call.device.queues.pairs.get(&qpn).ok_or(Errno::Invalid)?;
    if !queue.groups.is_empty() {
        return Err(Errno::Busy);
    }
    let listener = queue.listener;
    call.device.catch_up(call.process);
    destroy_handle(call, handle)?;
    let response = DestroyQpResp { events_reported: listener.retire(&mut call.device.events, call.process) };
    request.output(call.process, UVERBS_ATTR_DESTROY_QP_RESP, response.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn own_receives_are_as_many_as_the_queue_holds() {
        let asked =
            QpCap { max_send_wr: 5, max_recv_wr: 10, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let provider = Mlx5CreateQp { rq_wqe_count: 16, rq_wqe_shift: 6, ..Mlx5CreateQp::new_zeroed() };
        let seen = with_own_receives(asked, &provider);
        assert_eq!((seen.max_send_wr, seen.max_recv_wr, seen.max_recv_sge), (5, 16, 4));
        let shared = QpCap { max_recv_wr: 0, max_recv_sge: 0, ..asked };
        assert_eq!(with_own_receives(shared, &provider).max_recv_sge, 0);
    }
}
