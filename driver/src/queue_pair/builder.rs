//! Creates a queue pair: checks limits, lays out its rings, allocates their memory and sends CREATE_QP.

use super::core::{Core, QueuePairParts};
use super::receive::ReceiveQueue;
use super::send::SendQueue;
use super::service::{Connected, Rc, Service, Ud, XrcInitiator, XrcTarget};
use super::transitions::Column;
use super::{BuildError, PreparedQueuePair, QueuePairAttributes};
use crate::address_handle::GENERAL_SERVICES_Q_KEY;
use crate::capabilities::Capabilities;
use crate::command::{CommandError, Request};
use crate::completion_queue::CompletionQueue;
use crate::counter_set::CounterSet;
use crate::device::ledgers::{Full, Share};
use crate::device::{DeviceRef, DmaOf, is_same};
use crate::dma::{BLOCK, Dma, Rings};
use crate::doorbell::SendDoorbell;
use crate::hal::{Hal, HalError, Mmio};
use crate::ledger::shared::{SharedName, attach};
use crate::ledger::{Identity, Poster, Side};
use crate::memory_region::AccessFlags;
use crate::protection_domain::ProtectionDomain;
use crate::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueKind};
use crate::translation::PageRun;
use crate::work_completion::WorkCompletionOpcode;
use crate::wqe::head::QueuePairBits;
use crate::wqe::receive::ReceivePath;
use crate::wqe::send::SendEncoder;
use crate::wqe::{MAX_SEGMENTS, MAX_SLICE, inline_segments};
use crate::xrc_domain::XrcDomain;
use bareverbs_prm::command::qp::{CreateQpIn, CreateQpOut};
use bareverbs_prm::ids::{Qpn, Srqn, Xrcdn};
use bareverbs_prm::numbering::{CommandOpcode, PathMigration, QpState, ServiceType};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::wqe::SEGMENT;
use core::marker::PhantomData;

/// `rq_type` of a queue pair with its own receive queue, with a shared one, and with none.
const OWN_RECEIVE_QUEUE: u8 = 0;
const SHARED_RECEIVE_QUEUE: u8 = 1;
const NO_RECEIVE_QUEUE: u8 = 3;

/// Creates a queue pair: a reliable connection, unless [`service`](Self::service) chooses another service.
///
/// ```
/// use bareverbs_core::{
///     CompletionQueue, ConnectOptions, DeviceRef, ProtectionDomain, QueuePair, QueuePairBuilder, RemoteEndpoint,
/// };
/// use std::error::Error;
///
/// /// `exchange` tells the peer our end, and us the peer's: over TCP, for example.
/// fn connect<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     completions: &CompletionQueue<D>,
///     exchange: impl FnOnce(RemoteEndpoint) -> RemoteEndpoint,
/// ) -> Result<QueuePair<D>, Box<dyn Error>> {
///     let prepared = QueuePairBuilder::new(domain, completions, completions).send_queue(256).max_inline(64).build()?;
///     let peer = exchange(prepared.endpoint(0)?);
///     Ok(prepared.connect(&peer, ConnectOptions::default())?)
/// }
/// ```
#[must_use]
#[doc(alias = "ibv_qp_init_attr")]
#[doc(alias = "ibv_create_qp")]
pub struct QueuePairBuilder<'a, D: DeviceRef, S: Service = Rc> {
    domain: &'a ProtectionDomain<D>,
    send: &'a CompletionQueue<D>,
    receive: &'a CompletionQueue<D>,
    wanted: Wanted,
    access: Option<AccessFlags>,
    psn: Option<Psn>,
    blue_flame: bool,
    counter_set: u8,
    pkey_index: u16,
    q_key: u32,
    shared: Option<Shared>,
    xrc_domain: Option<Xrcdn>,
    /// The service type for the device: that of `S`, except for special datagram queue pairs.
    kind: ServiceType,
    /// The first object that belongs to another device.
    stranger: Option<&'static str>,
    service: PhantomData<S>,
}

/// The shared receive queue that a queue pair receives from.
#[derive(Debug, Clone, Copy)]
struct Shared {
    number: Srqn,
    name: SharedName,
    kind: SharedReceiveQueueKind,
}

/// What the caller requested.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    sends: u32,
    receives: u32,
    send_slices: u32,
    receive_slices: u32,
    inline: u32,
}

/// How the memory of a queue pair is laid out: receive ring, send ring, doorbell record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QueuePairGeometry {
    /// Entries of the receive ring; zero or a power of two.
    receives: u32,
    /// Segments of a receive entry; a power of two.
    log_receive_segments: u32,
    /// Basic blocks of the send ring; a power of two.
    blocks: u32,
}

impl<'a, D: DeviceRef> QueuePairBuilder<'a, D> {
    /// A queue pair in `domain`. Its sends complete in `send` and its receives in `receive`; both may be the same
    /// queue. Defaults: 64 sends and 64 receives of one slice each, and 28 inline bytes.
    pub fn new(
        domain: &'a ProtectionDomain<D>,
        send: &'a CompletionQueue<D>,
        receive: &'a CompletionQueue<D>,
    ) -> Self {
        let wanted = Wanted { sends: 64, receives: 64, send_slices: 1, receive_slices: 1, inline: 28 };
        Self::of_service(domain, [send, receive], wanted)
    }
}

impl<'a, D: DeviceRef> QueuePairBuilder<'a, D, XrcInitiator> {
    /// A queue pair that sends to the peer's shared receive queues. As in Linux, its context must name a shared receive
    /// queue: `queue` may be any one in `xrc`. The queue pair receives nothing through it.
    #[doc(alias = "IBV_QP_INIT_ATTR_XRCD")]
    pub fn xrc_initiator(
        domain: &'a ProtectionDomain<D>,
        xrc: &XrcDomain<D>,
        queue: &SharedReceiveQueue<D>,
        send: &'a CompletionQueue<D>,
    ) -> Self {
        let wanted = Wanted { sends: 64, receives: 0, send_slices: 1, receive_slices: 1, inline: 28 };
        Self::of_service(domain, [send, send], wanted).of_xrc(xrc, queue)
    }
}

impl<'a, D: DeviceRef> QueuePairBuilder<'a, D, XrcTarget> {
    /// A queue pair through which a peer sends to the shared receive queues in `xrc`, which complete into their own
    /// completion queues. The context must name a completion queue and a shared receive queue: `completions` may be any
    /// and gets no entry from this queue pair, and `queue` may be any one in `xrc`.
    pub fn xrc_target(
        domain: &'a ProtectionDomain<D>,
        xrc: &XrcDomain<D>,
        queue: &SharedReceiveQueue<D>,
        completions: &'a CompletionQueue<D>,
    ) -> Self {
        let wanted = Wanted { sends: 0, receives: 0, send_slices: 0, receive_slices: 1, inline: 0 };
        Self::of_service(domain, [completions, completions], wanted).of_xrc(xrc, queue)
    }
}

impl<'a, D: DeviceRef> QueuePairBuilder<'a, D, Ud> {
    /// Q_Key that a datagram must carry to be received. It is also sent with requests whose Q_Key has the privileged
    /// bit. Default: zero.
    pub const fn q_key(mut self, key: u32) -> Self {
        self.q_key = key;
        self
    }

    /// Makes it the port's general services queue pair: it receives what peers send to queue pair 1, and they see that
    /// number (IBTA v1.4 §3.9.2). Its messages are 256-byte management datagrams with the Q_Key
    /// [`GENERAL_SERVICES_Q_KEY`]. A port has one such queue pair. Completions report its actual number, which is
    /// another one.
    #[doc(alias = "IBV_QPT_GSI")]
    pub const fn general_services(mut self) -> Self {
        self.kind = ServiceType::Qp1;
        self.q_key = GENERAL_SERVICES_Q_KEY;
        self
    }
}

impl<'a, D: DeviceRef, S: Connected> QueuePairBuilder<'a, D, S> {
    /// What the peer may do. Default: everything that the device supports. The access flags of each memory region still
    /// apply.
    pub const fn access(mut self, access: AccessFlags) -> Self {
        self.access = Some(access);
        self
    }
}

impl<'a, D: DeviceRef, S: Service> QueuePairBuilder<'a, D, S> {
    fn of_service(
        domain: &'a ProtectionDomain<D>,
        [send, receive]: [&'a CompletionQueue<D>; 2],
        wanted: Wanted,
    ) -> Self {
        Self {
            domain,
            send,
            receive,
            wanted,
            access: None,
            psn: None,
            blue_flame: true,
            counter_set: 0,
            pkey_index: 0,
            q_key: 0,
            shared: None,
            xrc_domain: None,
            kind: S::TYPE,
            stranger: None,
            service: PhantomData,
        }
        .of_device(send.device(), "the completion queue of sends")
        .of_device(receive.device(), "the completion queue of receives")
    }

    /// Records `object` if it belongs to another device.
    fn of_device(mut self, device: &D, object: &'static str) -> Self {
        if !is_same(self.domain.device(), device) {
            self.stranger = self.stranger.or(Some(object));
        }
        self
    }

    fn of_xrc(mut self, xrc: &XrcDomain<D>, queue: &SharedReceiveQueue<D>) -> Self {
        self.shared = Some(Shared { number: queue.number(), name: queue.name(), kind: queue.kind() });
        self.xrc_domain = Some(xrc.number());
        self.of_device(xrc.device(), "the XRC domain").of_device(queue.device(), "the shared receive queue")
    }

    /// Chooses another service. Attributes that only the previous service has are dropped.
    pub fn service<T: Service>(self) -> QueuePairBuilder<'a, D, T> {
        let Self {
            domain,
            send,
            receive,
            wanted,
            psn,
            blue_flame,
            counter_set,
            pkey_index,
            shared,
            xrc_domain,
            stranger,
            ..
        } = self;
        let (access, q_key) = (None, 0);
        QueuePairBuilder {
            domain,
            send,
            receive,
            wanted,
            access,
            psn,
            blue_flame,
            counter_set,
            pkey_index,
            q_key,
            shared,
            xrc_domain,
            kind: T::TYPE,
            stranger,
            service: PhantomData,
        }
    }

    /// Minimum number of outstanding sends.
    pub const fn send_queue(mut self, requests: u32) -> Self {
        self.wanted.sends = requests;
        self
    }

    /// Minimum number of outstanding receives; zero for a queue pair that only serves RDMA.
    pub const fn receive_queue(mut self, requests: u32) -> Self {
        self.wanted.receives = requests;
        self
    }

    /// Takes receives from `queue` instead of a receive queue of its own. They complete into the completion queue for
    /// receives. While messages may still arrive, move the queue pair to ERROR and wait for
    /// [`LastReceiveReached`](crate::events::AsyncEvent::LastReceiveReached) before you reset or drop it. Otherwise a
    /// receive that a message is filling is lost with the queue pair (IBTA v1.4 §10.3.1).
    #[doc(alias = "IBV_QP_INIT_ATTR_SRQ")]
    pub fn shared_receive_queue(mut self, queue: &SharedReceiveQueue<D>) -> Self {
        self.shared = Some(Shared { number: queue.number(), name: queue.name(), kind: queue.kind() });
        self.wanted.receives = 0;
        self.of_device(queue.device(), "the shared receive queue")
    }

    /// Maximum number of slices per send.
    pub const fn max_send_sge(mut self, slices: u32) -> Self {
        self.wanted.send_slices = slices;
        self
    }

    /// Maximum number of slices per receive.
    pub const fn max_receive_sge(mut self, slices: u32) -> Self {
        self.wanted.receive_slices = slices;
        self
    }

    /// Maximum number of inline bytes per send.
    pub const fn max_inline(mut self, bytes: u32) -> Self {
        self.wanted.inline = bytes;
        self
    }

    /// P_Key index of the queue pair: its packets carry that P_Key and must match it (IBTA v1.4 §10.9.3). Default: 0.
    /// [`Device::partition_key`] reads the table. A RoCE port only has entry 0. Packets with an empty entry reach
    /// nobody.
    ///
    /// [`Device::partition_key`]: crate::Device::partition_key
    pub const fn partition_key_index(mut self, index: u16) -> Self {
        self.pkey_index = index;
        self
    }

    /// PSN of the first packet sent. By default derived from the queue pair number; choose a random one where packets of an
    /// earlier connection may still be in flight (IBTA v1.4 chapter 12, communication management).
    pub const fn initial_psn(mut self, psn: Psn) -> Self {
        self.psn = Some(psn);
        self
    }

    /// Whether a single small send is written to a doorbell register (BlueFlame), if the device supports it and has a register left.
    pub const fn blue_flame(mut self, on: bool) -> Self {
        self.blue_flame = on;
        self
    }

    /// Counter set of the queue pair. Without one, nothing is counted.
    #[doc(alias = "rdma_counter")]
    pub fn counter_set(mut self, set: &CounterSet<D>) -> Self {
        self.counter_set = set.number();
        self.of_device(set.device(), "the counter set")
    }

    /// Creates the queue pair and moves it to INIT: receives can be posted to it, and it can be connected.
    pub fn build(self) -> Result<PreparedQueuePair<D, S>, BuildError> {
        let device = self.domain.device().clone();
        let capabilities = *device.device().capabilities();
        self.stranger.map_or(Ok(()), |object| Err(BuildError::OtherDevice { object }))?;
        self.check_xrc(&capabilities)?;
        let geometry = self.wanted.geometry::<S>(&capabilities)?;
        let hal = device.device().hal();
        let length = geometry.bytes() + BLOCK;
        let memory = Dma::allocate(hal, length, 4096).map_err(BuildError::Memory)?;
        let rings = Rings::new(memory, geometry.receive_blocks() * (BLOCK / SEGMENT) as u32, geometry.blocks)
            .ok_or(BuildError::Memory(HalError::OutOfDmaMemory { length, alignment: 4096 }))?;
        let share = self.take_share(&geometry)?;
        let qpn = match self.create(rings.memory(), &geometry, &share) {
            Ok(qpn) => qpn,
            Err(error) => {
                device.device().ledgers().give_back(share);
                if error.status().is_none() {
                    core::mem::forget(rings);
                }
                return Err(BuildError::Command(error));
            }
        };
        let parts = self.parts(rings, &geometry, share, qpn, &capabilities);
        let mut core = Core::new(device, parts);
        let initial = self.initial(&capabilities).with_partition_key(self.pkey_index);
        core.initialise(&initial).map_err(BuildError::Command)?;
        Ok(PreparedQueuePair { core, service: PhantomData })
    }

    /// Checks that the domain and the shared receive queue are those that the service needs.
    fn check_xrc(&self, capabilities: &Capabilities) -> Result<(), BuildError> {
        let (xrc, given) = (S::TYPE == ServiceType::Xrc, self.xrc_domain.is_some());
        if xrc != given {
            return Err(BuildError::XrcDomain { given });
        }
        if xrc && !capabilities.xrc {
            return Err(BuildError::NoXrc);
        }
        let kind = if xrc { SharedReceiveQueueKind::Xrc } else { SharedReceiveQueueKind::Basic };
        match self.shared {
            Some(queue) if queue.kind != kind => Err(BuildError::SharedQueueKind { kind: queue.kind }),
            _ => Ok(()),
        }
    }

    /// The attributes of the queue pair in INIT.
    fn initial(&self, capabilities: &Capabilities) -> QueuePairAttributes {
        if S::TYPE == ServiceType::Ud {
            return QueuePairAttributes::initial_q_key(self.q_key);
        }
        let rights = [
            (AccessFlags::REMOTE_WRITE, S::serves(WorkCompletionOpcode::RdmaWrite)),
            (AccessFlags::REMOTE_READ, S::serves(WorkCompletionOpcode::RdmaRead)),
            (AccessFlags::REMOTE_ATOMIC, S::serves(WorkCompletionOpcode::FetchAdd) && capabilities.atomics),
        ];
        let possible = rights.iter().filter(|(_, possible)| *possible);
        let all = possible.fold(AccessFlags::LOCAL_READ, |all, (right, _)| all | *right);
        QueuePairAttributes::initial_access(self.access.unwrap_or(all))
    }

    fn take_share(&self, geometry: &QueuePairGeometry) -> Result<Share, BuildError> {
        let device = self.domain.device().device();
        let taken = device.control(|_, _| device.ledgers().take(geometry.blocks, geometry.receives));
        taken.map_err(BuildError::InterfaceBusy)?.map_err(|full| match full {
            Full::Records => BuildError::TooManyQueuePairs { limit: device.ledgers().records() },
            Full::Words { needed } => BuildError::LedgerFull { needed, limit: device.config().ledger_words },
        })
    }

    fn create(
        &self,
        memory: &Dma<DmaOf<D>>,
        geometry: &QueuePairGeometry,
        share: &Share,
    ) -> Result<Qpn, CommandError> {
        let device = self.domain.device().device();
        // Without any queue, there are no pages.
        let length = if S::SENDS || geometry.receives > 0 { geometry.bytes() } else { 0 };
        let run = PageRun::of_buffer(memory.iova(), length, device.config().log_max_page);
        let mut input = CreateQpIn::new();
        input.set_opcode(CommandOpcode::CreateQp);
        input
            .qpc_mut()
            .set_st(self.kind)
            .set_pm_state(PathMigration::Migrated)
            .set_pd(self.domain.number())
            .set_log_rq_size(geometry.receives.max(1).trailing_zeros() as u8)
            .set_log_rq_stride(geometry.log_receive_segments as u8)
            .set_no_sq(!S::SENDS)
            .set_log_sq_size(geometry.blocks.trailing_zeros() as u8)
            .set_xrcd(self.xrc_domain.unwrap_or_default())
            .set_uar_page(device.uar())
            .set_user_index(share.user_index.field())
            .set_log_page_size(run.log_page_size())
            .set_cqn_snd(self.send.number())
            .set_cqn_rcv(self.receive.number())
            .set_dbr_addr(memory.iova() + geometry.bytes() as u64)
            .set_rq_type(match (self.shared, geometry.receives) {
                (Some(_), _) => SHARED_RECEIVE_QUEUE,
                (None, 0) => NO_RECEIVE_QUEUE,
                (None, _) => OWN_RECEIVE_QUEUE,
            })
            .set_srqn_rmpn_xrqn(self.shared.map_or(0, |queue| queue.number.value()));
        let output: CreateQpOut = device.call(&Request::with_tail(&input, run.list(0)))?;
        Ok(output.qpn())
    }

    fn parts(
        &self,
        rings: Rings<DmaOf<D>>,
        geometry: &QueuePairGeometry,
        share: Share,
        qpn: Qpn,
        capabilities: &Capabilities,
    ) -> QueuePairParts<D> {
        let device = self.domain.device().device();
        let ledgers = device.ledgers();
        let record = (geometry.bytes() / BLOCK) as u32;
        let xrc = S::TYPE == ServiceType::Xrc;
        let identity = |queue: &CompletionQueue<D>| Identity::new(queue.number(), share.user_index, qpn);
        let send = Poster::open(ledgers, Side::Send, share.record, share.send);
        send.identify(ledgers, identity(self.send));
        let receive = Poster::open(ledgers, Side::Receive, share.record, share.receive);
        match self.shared.filter(|queue| queue.kind == SharedReceiveQueueKind::Basic) {
            Some(queue) => attach(ledgers, share.record, identity(self.receive), queue.name),
            None => receive.identify(ledgers, identity(self.receive)),
        }
        let (doorbell, blue_flame) = self.doorbell(capabilities);
        let send = SendQueue {
            poster: send,
            last_control: 0,
            doorbell,
            mask: geometry.blocks - 1,
            record,
            encoder: self.encoder(qpn, capabilities),
            max_inline: self.wanted.inline,
            max_slices: self.wanted.send_slices,
            max_message: 1 << S::log_max_message(capabilities.log_max_message),
            behind_key_update: None,
            names_shared_queue: xrc,
        };
        let receive = ReceiveQueue {
            poster: receive,
            log_segments: geometry.log_receive_segments,
            max_slices: self.wanted.receive_slices,
            path: ReceivePath::of_queue(if geometry.receives > 0 { self.wanted.receive_slices } else { 0 }),
        };
        QueuePairParts {
            rings,
            share,
            qpn,
            service: self.kind,
            column: Column::of(S::TYPE, S::SENDS),
            state: QpState::Reset,
            domain: self.domain.number(),
            queues: [self.send.number(), self.receive.number()],
            counter_set: self.counter_set,
            pkey_index: self.pkey_index,
            psn: self.psn.unwrap_or(default_psn(qpn)),
            blue_flame,
            shared: self.shared.is_some() && !xrc,
            send,
            receive,
        }
    }

    /// Requests that name a shared receive queue do not take the fast path.
    fn encoder(&self, qpn: Qpn, capabilities: &Capabilities) -> SendEncoder {
        let owner = QueuePairBits::new(qpn);
        let longest_slice = match self.wanted.send_slices {
            0 => 0,
            _ => MAX_SLICE.min(1 << S::log_max_message(capabilities.log_max_message)),
        };
        let encoder = SendEncoder::new(owner, longest_slice, self.wanted.inline);
        if S::TYPE == ServiceType::Xrc { encoder.without_fast_paths() } else { encoder }
    }

    /// A BlueFlame register of its own if one is left, otherwise the shared doorbell.
    fn doorbell(&self, capabilities: &Capabilities) -> (SendDoorbell, Option<u8>) {
        let device = self.domain.device().device();
        let shared = (SendDoorbell::shared(device.uar()), None);
        if !self.blue_flame || !capabilities.blue_flame {
            return shared;
        }
        let Some(register) = device.blue_flame().take() else { return shared };
        let log_size = capabilities.log_blue_flame_size;
        let doorbell = SendDoorbell::blue_flame(device.uar(), register as usize, log_size);
        debug_assert!(doorbell.end() <= device.hal().mmio().len());
        (doorbell, Some(register))
    }
}

/// Keeps the first PSNs of neighbouring queue pairs apart.
fn default_psn(qpn: Qpn) -> Psn {
    Psn::new(qpn.value().wrapping_mul(0x9e_3779).wrapping_add(0x3c6e))
}

impl Wanted {
    fn geometry<S: Service>(&self, capabilities: &Capabilities) -> Result<QueuePairGeometry, BuildError> {
        let limit = |name, asked: u32, limit: u32| match asked {
            asked if asked <= limit => Ok(()),
            asked => Err(BuildError::Limit { name, asked, limit }),
        };
        let max_size = capabilities.max_queue_size;
        if self.sends == 0 && S::SENDS {
            return Err(BuildError::Limit { name: "send_queue", asked: 0, limit: max_size });
        }
        limit("send_queue", self.sends, max_size)?;
        limit("receive_queue", self.receives, max_size)?;
        // What may come before the data: control segment, datagram address, remote address.
        let head = 1 + S::ADDRESS_SEGMENTS + u32::from(S::offers(WorkCompletionOpcode::RdmaWrite));
        let segments = capabilities.max_send_entry.min(MAX_SEGMENTS * SEGMENT as u32) / SEGMENT as u32;
        limit("max_send_sge", self.send_slices, segments.saturating_sub(head))?;
        limit("max_inline", self.inline, (segments.saturating_sub(head) * SEGMENT as u32).saturating_sub(4))?;
        limit("max_receive_sge", self.receive_slices, capabilities.max_receive_entry / SEGMENT as u32)?;
        let data = self.send_slices.max(if self.inline == 0 { 0 } else { inline_segments(self.inline) });
        let atomics = capabilities.atomics && S::offers(WorkCompletionOpcode::FetchAdd);
        let atomic = if atomics { head + 1 + 1 } else { 0 };
        let per_send = (head + data).max(atomic).div_ceil(4);
        let blocks = (self.sends * per_send).next_power_of_two();
        limit("send_queue times its blocks", blocks, max_size)?;
        let log_receive_segments = self.receive_slices.max(1).next_power_of_two().trailing_zeros();
        let receives = match self.receives {
            0 => 0,
            // The send ring must start at a block, so a receive ring has at least one block.
            receives => receives.next_power_of_two().max(4 >> log_receive_segments.min(2)),
        };
        Ok(QueuePairGeometry { receives, log_receive_segments, blocks })
    }
}

impl QueuePairGeometry {
    const fn receive_blocks(&self) -> u32 {
        (self.receives << self.log_receive_segments) / 4
    }

    const fn bytes(&self) -> usize {
        (self.receive_blocks() + self.blocks) as usize * BLOCK
    }
}
