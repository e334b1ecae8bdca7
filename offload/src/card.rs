//! A DPU's access to host memory on real hardware: DMA work requests ([`DmaQueue`]) under aliases of memory keys that
//! the host shares ([`RemoteVhcaRegion`]). No processor copies the bytes between the memory of the host and that of the
//! endpoint.
//!
//! A request under a key that the host revoked fails and breaks the queue: the requests behind it come back as
//! [`DmaEnd::Flushed`]. The owner then makes another queue with [`CardDma::repair`]. The region is refused until
//! [`CardDma::replace`], so one region cannot break the queue for the others repeatedly.

use crate::endpoint::{Endpoint, Part, PostError};
use crate::grant::HostRegion;
use crate::host_dma::{DmaEnd, DmaFault, HostDma, HostDmaDone};
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::device::DeviceRef;
use bareverbs_core::dma_queue::{DmaCopy, DmaQueue, DmaQueueConfig, DmaQueueError};
use bareverbs_core::memory_region::{MemoryRegion, MemorySlice};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::remote_vhca_region::RemoteVhcaRegion;
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionStatus};
use bareverbs_prm::numbering::CqeSyndrome;
use core::fmt;
use heapless::{Deque, Vec};

/// Copies that one doorbell submits; when this many wait, the doorbell rings without a flush.
const BATCH: usize = 16;

/// A region of the host, and whether it still is one.
struct Shared<D: DeviceRef> {
    region: RemoteVhcaRegion<D>,
    taken_back: bool,
}

/// A request that was submitted.
#[derive(Debug, Clone, Copy)]
struct Submitted {
    tag: u64,
    region: HostRegion,
}

/// A queue of at most `DEPTH` DMA work requests for `REGIONS` regions of the host.
///
/// ```
/// use bareverbs_core::{CompletionQueue, DeviceRef, MemoryRegion, ProtectionDomain, RemoteVhcaRegion, SharedRegion};
/// use bareverbs_offload::card::CardDma;
/// use bareverbs_offload::grant::HostRegion;
/// use std::error::Error;
///
/// /// On the Arm cores: a DMA channel to one region that the host shares. `memory` is where the runtime's buffers lie.
/// fn dma<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     completions: CompletionQueue<D>,
///     memory: &MemoryRegion<D>,
///     shared: &SharedRegion,
/// ) -> Result<(CardDma<D, 4, 64>, HostRegion), Box<dyn Error>> {
///     let mut dma = CardDma::create(domain, completions, memory, 0)?;
///     let region = RemoteVhcaRegion::open(domain, shared)?;
///     let number = dma.add(region).map_err(|_| "the channel has room for four regions")?;
///     Ok((dma, number))
/// }
/// ```
pub struct CardDma<D: DeviceRef, const REGIONS: usize, const DEPTH: usize> {
    queue: DmaQueue<D>,
    config: DmaQueueConfig,
    completions: CompletionQueue<D>,
    regions: [Option<Shared<D>>; REGIONS],
    /// The memory of the endpoint.
    local: MemorySlice,
    /// Copies that have had no doorbell yet.
    waiting: Vec<DmaCopy, BATCH>,
    /// All submitted copies in order, unposted ones last. Work requests of a queue complete in order.
    submitted: Deque<Submitted, DEPTH>,
    state: Health,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Working,
    /// A work request failed.
    Broken,
    /// The device wrote an impossible completion.
    Faulty,
}

/// Why a queue could not be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairError {
    /// Some requests of the broken queue have not been polled.
    Outstanding {
        /// Their number.
        requests: usize,
    },
    /// The device wrote an impossible completion: make another [`CardDma`] with another completion queue.
    Completions,
    /// The new queue could not be created.
    Queue(DmaQueueError),
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outstanding { requests } => {
                write!(f, "{requests} requests of the broken queue have not been polled: poll them first")
            }
            Self::Completions => f.write_str(
                "the device wrote an impossible completion: create another channel with another completion queue",
            ),
            Self::Queue(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RepairError {}

impl<D: DeviceRef, const REGIONS: usize, const DEPTH: usize> CardDma<D, REGIONS, DEPTH> {
    /// `memory` is that of the endpoint. `completions` has at least `DEPTH` entries and no other user.
    ///
    /// # Errors
    /// The DMA queue cannot be created; see [`DmaQueue::create`].
    pub fn create(
        domain: &ProtectionDomain<D>,
        completions: CompletionQueue<D>,
        memory: &MemoryRegion<D>,
        gid_index: u8,
    ) -> Result<Self, DmaQueueError> {
        let config = DmaQueueConfig { copies: DEPTH as u32, gid_index };
        let queue = DmaQueue::create(domain, &completions, config)?;
        let length = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        Ok(Self {
            queue,
            config,
            completions,
            regions: [const { None }; REGIONS],
            local: MemorySlice::from_raw(memory.address(), length, memory.lkey()),
            waiting: Vec::new(),
            submitted: Deque::new(),
            state: Health::Working,
        })
    }

    /// Makes a region reachable. Returns the region if there is no room for it.
    pub fn add(&mut self, region: RemoteVhcaRegion<D>) -> Result<HostRegion, RemoteVhcaRegion<D>> {
        let Some(index) = self.regions.iter().position(Option::is_none) else { return Err(region) };
        self.regions[index] = Some(Shared { region, taken_back: false });
        Ok(HostRegion(index as u16))
    }

    /// Replaces a region that the host revoked by one that it shares anew. Grants on the old region now apply to the
    /// new one by address: revoke them first if its addresses differ. Returns the region if the old one does not exist.
    pub fn replace(
        &mut self,
        at: HostRegion,
        region: RemoteVhcaRegion<D>,
    ) -> Result<(), RemoteVhcaRegion<D>> {
        match self.regions.get_mut(usize::from(at.0)) {
            Some(place @ Some(_)) => {
                *place = Some(Shared { region, taken_back: false });
                Ok(())
            }
            _ => Err(region),
        }
    }

    /// Makes another queue after one broke.
    ///
    /// # Errors
    /// Some requests have not ended, or the new queue cannot be created.
    pub fn repair(&mut self, domain: &ProtectionDomain<D>) -> Result<(), RepairError> {
        match self.state {
            Health::Working => return Ok(()),
            Health::Faulty => return Err(RepairError::Completions),
            Health::Broken => {}
        }
        if !self.submitted.is_empty() {
            return Err(RepairError::Outstanding { requests: self.submitted.len() });
        }
        self.queue = DmaQueue::create(domain, &self.completions, self.config).map_err(RepairError::Queue)?;
        self.state = Health::Working;
        Ok(())
    }

    /// Both ends of a request: the host's and the endpoint's.
    fn ends(
        &self,
        region: HostRegion,
        address: u64,
        part: Part,
    ) -> Result<(MemorySlice, MemorySlice), PostError> {
        let Some(Some(shared)) = self.regions.get(usize::from(region.0)) else {
            return Err(PostError::BadRequest);
        };
        if shared.taken_back {
            return Err(PostError::Broken);
        }
        let offset = address.checked_sub(shared.region.address()).ok_or(PostError::BadRequest)?;
        let far = shared.region.slice(offset, part.length).map_err(|_| PostError::BadRequest)?;
        let begin = u32::try_from(part.offset).map_err(|_| PostError::BadRequest)?;
        match begin.checked_add(part.length) {
            Some(end) if end <= self.local.length => {}
            _ => return Err(PostError::BadRequest),
        }
        let near = MemorySlice::from_raw(self.local.address + u64::from(begin), part.length, self.local.lkey);
        Ok((far, near))
    }

    fn submit(&mut self, copy: DmaCopy, submitted: Submitted) -> Result<(), PostError> {
        if self.waiting.is_full() {
            self.flush();
        }
        // A failed doorbell breaks the queue. A refused copy must not be among the submitted ones, because
        // nothing would end it.
        if !self.has_room() {
            return Err(PostError::Full);
        }
        self.waiting.push(copy).map_err(|_| PostError::Full)?;
        self.submitted.push_back(submitted).map_err(|_| PostError::Full)
    }

    fn completed(&mut self, completion: &WorkCompletion) -> Option<HostDmaDone> {
        let Submitted { tag, region } = self.submitted.pop_front()?;
        if tag != completion.wr_id {
            self.state = Health::Faulty;
            return None;
        }
        let end = match completion.status {
            WorkCompletionStatus::Success => DmaEnd::Done,
            WorkCompletionStatus::Failed(syndrome) => self.failed(syndrome, region),
        };
        Some(HostDmaDone { tag, end })
    }

    /// Our own memory is registered for as long as the channel is used, so a protection error means that the
    /// host revoked its region.
    fn failed(&mut self, syndrome: CqeSyndrome, region: HostRegion) -> DmaEnd {
        self.state = Health::Broken;
        match syndrome {
            CqeSyndrome::WorkRequestFlushed => DmaEnd::Flushed,
            CqeSyndrome::LocalProtection => {
                if let Some(Some(shared)) = self.regions.get_mut(usize::from(region.0)) {
                    shared.taken_back = true;
                }
                DmaEnd::Fault(DmaFault::TakenBack)
            }
            _ => DmaEnd::Fault(DmaFault::Memory),
        }
    }

    /// A copy that waited for a doorbell when the queue broke will never be posted.
    fn poll_never_posted(&mut self) -> Option<HostDmaDone> {
        let broken = self.state == Health::Broken && self.submitted.len() == self.waiting.len();
        let submitted = if broken { self.submitted.pop_front() } else { None };
        submitted.map(|Submitted { tag, .. }| {
            self.waiting.pop();
            HostDmaDone { tag, end: DmaEnd::Flushed }
        })
    }
}

impl<D: DeviceRef, const REGIONS: usize, const DEPTH: usize> HostDma for CardDma<D, REGIONS, DEPTH> {
    fn has_room(&self) -> bool {
        self.state == Health::Working && !self.submitted.is_full()
    }

    fn submit_read(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        into: Part,
    ) -> Result<(), PostError> {
        let (from, to) = self.ends(region, address, into)?;
        self.submit(DmaCopy::new(tag, from, to), Submitted { tag, region })
    }

    fn submit_write(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        from: Part,
    ) -> Result<(), PostError> {
        let (to, from) = self.ends(region, address, from)?;
        self.submit(DmaCopy::new(tag, from, to), Submitted { tag, region })
    }

    fn flush(&mut self) {
        if self.waiting.is_empty() || self.state != Health::Working {
            return;
        }
        match self.queue.post_all(&self.waiting) {
            Ok(posted) if posted == self.waiting.len() => self.waiting.clear(),
            // Cannot happen: the queue has room for every submitted copy. The posted ones end, the others are
            // flushed.
            Ok(posted) => {
                let kept = self.waiting.len() - posted;
                self.waiting.truncate(kept);
                self.state = Health::Broken;
            }
            Err(_) => self.state = Health::Broken,
        }
    }

    fn poll(&mut self, _memory: &mut impl Endpoint) -> Option<HostDmaDone> {
        if self.state == Health::Faulty {
            return None;
        }
        match self.completions.poll_one() {
            Ok(Some(completion)) => self.completed(&completion),
            Ok(None) => self.poll_never_posted(),
            Err(_) => {
                self.state = Health::Faulty;
                None
            }
        }
    }

    fn is_broken(&self) -> bool {
        self.state != Health::Working
    }
}
