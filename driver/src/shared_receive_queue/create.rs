//! Creates shared receive queues: limits, memory, CREATE_RMP and CREATE_XRC_SRQ.

use super::ring::{SharedQueue, SharedRing};
use super::{
    POOL_READY, SharedReceiveQueue, SharedReceiveQueueConfig, SharedReceiveQueueError, SharedReceiveQueueKind,
};
use crate::command::{CommandError, Request};
use crate::completion_queue::CompletionQueue;
use crate::device::ledgers::{Full, Share};
use crate::device::{DeviceRef, DmaOf};
use crate::dma::{BLOCK, Dma, Rings};
use crate::hal::HalError;
use crate::ledger::shared::{SharedName, SharedPoster};
use crate::ledger::{Identity, UserIndex};
use crate::protection_domain::ProtectionDomain;
use crate::translation::PageRun;
use crate::wqe::receive::ReceivePath;
use crate::xrc_domain::XrcDomain;
use bareverbs_prm::command::srq::{CreateRmpIn, CreateRmpOut, CreateXrcSrqIn, CreateXrcSrqOut};
use bareverbs_prm::ids::{Cqn, Qpn, Srqn, Xrcdn};
use bareverbs_prm::numbering::CommandOpcode;
use bareverbs_prm::wqe::SEGMENT;

/// The memory layout: the entries, an unused block, the doorbell record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SharedQueueGeometry {
    /// log2 of the number of entries.
    log_entries: u32,
    /// log2 of the segments per entry.
    log_segments: u32,
}

/// What only an XRC shared receive queue has.
#[derive(Debug, Clone, Copy)]
struct Xrc {
    domain: Xrcdn,
    completions: Cqn,
}

impl<D: DeviceRef> SharedReceiveQueue<D> {
    /// Creates a queue for queue pairs that name it at creation. Memory of its receives is looked up in `domain`,
    /// whatever the queue pairs' domains.
    #[doc(alias = "ibv_create_srq")]
    pub fn create(
        domain: &ProtectionDomain<D>,
        config: SharedReceiveQueueConfig,
    ) -> Result<Self, SharedReceiveQueueError> {
        make(domain, None, config)
    }

    /// Creates a queue for the target queue pairs of `xrc`. Its receives complete into `completions`.
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn create_xrc(
        domain: &ProtectionDomain<D>,
        xrc: &XrcDomain<D>,
        completions: &CompletionQueue<D>,
        config: SharedReceiveQueueConfig,
    ) -> Result<Self, SharedReceiveQueueError> {
        if !domain.device().device().capabilities().xrc {
            return Err(SharedReceiveQueueError::NoXrc);
        }
        make(domain, Some(Xrc { domain: xrc.number(), completions: completions.number() }), config)
    }
}

fn make<D: DeviceRef>(
    domain: &ProtectionDomain<D>,
    xrc: Option<Xrc>,
    config: SharedReceiveQueueConfig,
) -> Result<SharedReceiveQueue<D>, SharedReceiveQueueError> {
    let device = domain.device().clone();
    let geometry = geometry(&device, config)?;
    let length = geometry.bytes() + 2 * BLOCK;
    let memory =
        Dma::allocate(device.device().hal(), length, 4096).map_err(SharedReceiveQueueError::Memory)?;
    let short = HalError::OutOfDmaMemory { length, alignment: 4096 };
    let rings = Rings::new(memory, geometry.segments(), 1).ok_or(SharedReceiveQueueError::Memory(short))?;
    let share = take_share(&device, geometry)?;
    let created = match xrc {
        None => create_pool(domain, rings.memory(), geometry),
        Some(xrc) => create_xrc(domain, rings.memory(), geometry, xrc, share.user_index),
    };
    let number = match created {
        Ok(number) => number,
        Err(error) => {
            device.device().ledgers().give_back(share);
            if error.status().is_none() {
                core::mem::forget(rings);
            }
            return Err(SharedReceiveQueueError::Command(error));
        }
    };
    let poster = poster(&device, &share, xrc);
    let (log_segments, path) = (geometry.log_segments, ReceivePath::of_queue(config.slices));
    let queue = SharedQueue { poster, log_segments, max_slices: config.slices, path };
    let ring = SharedRing { rings, queue };
    let kind = if xrc.is_some() { SharedReceiveQueueKind::Xrc } else { SharedReceiveQueueKind::Basic };
    Ok(SharedReceiveQueue { device, ring, share, number, domain: domain.number(), kind })
}

fn geometry<D: DeviceRef>(
    device: &D,
    config: SharedReceiveQueueConfig,
) -> Result<SharedQueueGeometry, SharedReceiveQueueError> {
    let capabilities = device.device().capabilities();
    let check = |name, asked: u32, limit: u32| match asked {
        asked if asked > 0 && asked <= limit => Ok(()),
        asked => Err(SharedReceiveQueueError::Limit { name, asked, limit }),
    };
    // One entry always stays free, because the last posted entry has to name it.
    check("receives", config.receives, capabilities.max_shared_receive_queue_size - 1)?;
    // One segment of each entry names the next entry.
    let slices = (capabilities.max_receive_entry / SEGMENT as u32).saturating_sub(1);
    check("slices", config.slices, slices)?;
    Ok(SharedQueueGeometry {
        log_entries: (config.receives + 1).next_power_of_two().trailing_zeros(),
        log_segments: (config.slices + 1).next_power_of_two().trailing_zeros(),
    })
}

impl SharedQueueGeometry {
    const fn segments(self) -> u32 {
        1 << (self.log_entries + self.log_segments)
    }
    const fn bytes(self) -> usize {
        self.segments() as usize * SEGMENT
    }
    /// log2 of the bytes per entry.
    const fn log_stride(self) -> u32 {
        self.log_segments + SEGMENT.trailing_zeros()
    }
}

fn take_share<D: DeviceRef>(
    device: &D,
    geometry: SharedQueueGeometry,
) -> Result<Share, SharedReceiveQueueError> {
    let device = device.device();
    let taken = device.control(|_, _| device.ledgers().take(1 << geometry.log_entries, 0));
    taken.map_err(SharedReceiveQueueError::InterfaceBusy)?.map_err(|full| match full {
        Full::Records => SharedReceiveQueueError::TooManyQueues { limit: device.ledgers().records() },
        Full::Words { needed } => {
            SharedReceiveQueueError::LedgerFull { needed, limit: device.config().ledger_words }
        }
    })
}

fn create_pool<D: DeviceRef>(
    domain: &ProtectionDomain<D>,
    memory: &Dma<DmaOf<D>>,
    geometry: SharedQueueGeometry,
) -> Result<Srqn, CommandError> {
    let device = domain.device().device();
    let run = PageRun::of_buffer(memory.iova(), geometry.bytes(), device.config().log_max_page);
    let mut input = CreateRmpIn::new();
    input.set_opcode(CommandOpcode::CreateRmp);
    input.ctx_mut().set_state(POOL_READY);
    // `wq_type` stays zero: a linked list.
    input
        .ctx_mut()
        .wq_mut()
        .set_pd(domain.number())
        .set_log_wq_sz(geometry.log_entries as u8)
        .set_log_wq_stride(geometry.log_stride() as u8)
        .set_log_wq_pg_sz(run.log_page_size())
        .set_dbr_addr(memory.iova() + record_offset(geometry));
    let output: CreateRmpOut = device.call(&Request::with_tail(&input, run.list(0)))?;
    Ok(output.rmpn())
}

fn create_xrc<D: DeviceRef>(
    domain: &ProtectionDomain<D>,
    memory: &Dma<DmaOf<D>>,
    geometry: SharedQueueGeometry,
    xrc: Xrc,
    user_index: UserIndex,
) -> Result<Srqn, CommandError> {
    let device = domain.device().device();
    let run = PageRun::of_buffer(memory.iova(), geometry.bytes(), device.config().log_max_page);
    let record = memory.iova() + record_offset(geometry);
    let mut input = CreateXrcSrqIn::new();
    input.set_opcode(CommandOpcode::CreateXrcSrq);
    input
        .xrc_srq_context_entry_mut()
        .set_log_xrc_srq_size(geometry.log_entries as u8)
        .set_log_rq_stride(geometry.log_segments as u8)
        .set_xrcd(xrc.domain)
        .set_cqn(xrc.completions)
        .set_log_page_size(run.log_page_size())
        .set_user_index(user_index.field())
        .set_pd(domain.number())
        .set_db_record_addr_h((record >> 32) as u32)
        .set_db_record_addr_l(record as u32 >> 2);
    let output: CreateXrcSrqOut = device.call(&Request::with_tail(&input, run.list(0)))?;
    Ok(output.xrc_srqn())
}

const fn record_offset(geometry: SharedQueueGeometry) -> u64 {
    (geometry.bytes() + BLOCK) as u64
}

fn poster<D: DeviceRef>(device: &D, share: &Share, xrc: Option<Xrc>) -> SharedPoster {
    let ledgers = device.device().ledgers();
    let poster = SharedPoster::open(ledgers, share.record, share.send, SharedName::new(share.user_index));
    if let Some(xrc) = xrc {
        poster.identify(ledgers, Identity::new(xrc.completions, share.user_index, Qpn::from_low_bits(0)));
    }
    poster
}
