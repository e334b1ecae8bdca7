//! Both ends of the wire: devices, memory, and a reliable connection.

use super::Place;
use anyhow::{Context, Result, bail, ensure};
use bareverbs_core::completion_queue::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::gid::GidEntry;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::MemoryRegion;
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Duration;
use std::rc::Rc;

/// Handle to a device, as every object holds it.
pub type PlaceDevice<H> = Rc<Device<H>>;

/// Work that may be outstanding on a side.
pub(super) const DEPTH: u32 = 64;
/// Bytes of the memory of a side.
pub(super) const MEMORY: usize = 256 << 10;
/// Longest time without any completion.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Longest sleep between two polls.
const REST: Duration = Duration::from_micros(50);

/// One end. Fields are dropped in this order: queues before memory before the device.
pub struct PlaceEnd<H: Hal> {
    /// Its end of the connection.
    pub queue_pair: QueuePair<PlaceDevice<H>>,
    /// Where its sends complete.
    pub sends: CompletionQueue<PlaceDevice<H>>,
    /// Where its receives complete.
    pub receives: CompletionQueue<PlaceDevice<H>>,
    /// Its memory, with all rights.
    pub memory: MemoryRegion<PlaceDevice<H>>,
    /// Its protection domain.
    pub domain: ProtectionDomain<PlaceDevice<H>>,
    /// Its device.
    pub device: PlaceDevice<H>,
}

struct PreparedEnd<H: Hal> {
    queue_pair: PreparedQueuePair<PlaceDevice<H>>,
    sends: CompletionQueue<PlaceDevice<H>>,
    receives: CompletionQueue<PlaceDevice<H>>,
    memory: MemoryRegion<PlaceDevice<H>>,
    domain: ProtectionDomain<PlaceDevice<H>>,
    device: PlaceDevice<H>,
}

/// Two ends that are connected.
pub struct Ends<H: Hal> {
    /// The end that is usually the requester.
    pub a: PlaceEnd<H>,
    /// The end that is usually the responder.
    pub b: PlaceEnd<H>,
}

impl<H: Hal> Ends<H> {
    /// Opens both ends of a place and connects them.
    pub fn open<P: Place<Hal = H>>(place: &mut P) -> Result<Self> {
        let a = PreparedEnd::new(place.open(0).context("end 0")?, 1).context("end 0")?;
        let b = PreparedEnd::new(place.open(1).context("end 1")?, 2).context("end 1")?;
        let (to_a, to_b) = (a.queue_pair.endpoint(0)?, b.queue_pair.endpoint(0)?);
        let join = |side: PreparedEnd<H>, remote| -> Result<PlaceEnd<H>> {
            let PreparedEnd { queue_pair, sends, receives, memory, domain, device } = side;
            let queue_pair = queue_pair.connect(&remote, ConnectOptions::default())?;
            Ok(PlaceEnd { queue_pair, sends, receives, memory, domain, device })
        };
        Ok(Self { a: join(a, to_b)?, b: join(b, to_a)? })
    }

    /// Gives both ends a new queue pair; the old ones are destroyed.
    pub(super) fn reconnect(&mut self) -> Result<()> {
        let a = self.a.prepare(&self.a.sends)?;
        self.join(a)
    }

    /// The same, with the sends of end A completing in `sends`.
    pub(super) fn reconnect_to(&mut self, sends: &CompletionQueue<PlaceDevice<H>>) -> Result<()> {
        let a = self.a.prepare(sends)?;
        self.join(a)
    }

    fn join(&mut self, a: PreparedQueuePair<PlaceDevice<H>>) -> Result<()> {
        let b = self.b.prepare(&self.b.sends)?;
        let (to_a, to_b) = (a.endpoint(0)?, b.endpoint(0)?);
        self.a.queue_pair = a.connect(&to_b, ConnectOptions::default())?;
        self.b.queue_pair = b.connect(&to_a, ConnectOptions::default())?;
        Ok(())
    }

    /// The next completion that `poll` finds; both ends sleep in between.
    pub(super) fn next(
        &mut self,
        mut poll: impl FnMut(&mut Self) -> Result<Option<WorkCompletion>>,
    ) -> Result<WorkCompletion> {
        let end = self.a.device.hal().now() + TIMEOUT;
        loop {
            if let Some(completion) = poll(self)? {
                return Ok(completion);
            }
            let now = self.a.device.hal().now();
            if now >= end {
                bail!("no completion in {TIMEOUT}; {}; {}", self.a.device.health(), self.b.device.health());
            }
            self.a.device.hal().relax(now + REST);
            // Time passes for both ends in some places, and for this end alone in others.
            self.b.device.hal().relax(self.b.device.hal().now());
        }
    }

    /// The next completion of a send of end A, which must be a success.
    pub(super) fn sent(&mut self) -> Result<WorkCompletion> {
        let completion = self.next(|ends| Ok(ends.a.sends.poll_one()?))?;
        ensure!(completion.is_success(), "send {} failed: {}", completion.wr_id, completion.status);
        Ok(completion)
    }

    /// The next completion of a receive of end B, which must be a success.
    pub(super) fn received(&mut self) -> Result<WorkCompletion> {
        let completion = self.next(|ends| Ok(ends.b.receives.poll_one()?))?;
        ensure!(completion.is_success(), "receive {} failed: {}", completion.wr_id, completion.status);
        Ok(completion)
    }

    /// Takes everything down and checks that all resources were returned.
    pub(super) fn close<P: Place<Hal = H>>(self) -> Result<String> {
        let mut told = Vec::new();
        for (name, side) in [("end 0", self.a), ("end 1", self.b)] {
            let PlaceEnd { queue_pair, sends, receives, memory, domain, device } = side;
            drop((queue_pair, sends, receives, memory, domain));
            ensure!(
                device.leaked_objects() == 0,
                "{name}: {} objects were not destroyed",
                device.leaked_objects()
            );
            let pages = device.pages_held();
            let device = Rc::into_inner(device).context("somebody still holds the device")?;
            let hal = device.close().map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
            ensure!(
                P::memory_used(&hal) == 0,
                "{name}: {} bytes of memory did not come back",
                P::memory_used(&hal)
            );
            told.push(format!("{name} gave back {pages} pages"));
        }
        Ok(told.join(", "))
    }
}

impl<H: Hal> PlaceEnd<H> {
    fn prepare(&self, sends: &CompletionQueue<PlaceDevice<H>>) -> Result<PreparedQueuePair<PlaceDevice<H>>> {
        queue_pair(&self.domain, sends, &self.receives)
    }

    /// Bytes of the memory.
    pub(super) fn bytes(&self, offset: usize, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.memory.copy_out(offset, &mut bytes)?;
        Ok(bytes)
    }
}

impl<H: Hal> PreparedEnd<H> {
    fn new(hal: H, number: u8) -> Result<Self> {
        let device = Rc::new(Device::open(hal, DeviceConfig::default())?);
        device.ping()?;
        let mac = MacAddress([0x02, 0xc9, 0, 0, 0, number]);
        let own = device.port()?.mac;
        let mac = if own == MacAddress::default() { mac } else { own };
        device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, number]), mac))?;
        let domain = ProtectionDomain::allocate(device.clone())?;
        let queue = || CompletionQueue::create(device.clone(), CompletionQueueConfig { entries: 4 * DEPTH });
        let (sends, receives) = (queue()?, queue()?);
        let queue_pair = queue_pair(&domain, &sends, &receives)?;
        let memory = MemoryRegion::allocate(&domain, MEMORY, crate::node::all_access())?;
        Ok(Self { queue_pair, sends, receives, memory, domain, device })
    }
}

fn queue_pair<H: Hal>(
    domain: &ProtectionDomain<PlaceDevice<H>>,
    sends: &CompletionQueue<PlaceDevice<H>>,
    receives: &CompletionQueue<PlaceDevice<H>>,
) -> Result<PreparedQueuePair<PlaceDevice<H>>> {
    let builder = QueuePairBuilder::new(domain, sends, receives)
        .send_queue(DEPTH)
        .receive_queue(DEPTH)
        .max_send_sge(4)
        .max_receive_sge(4)
        .max_inline(96)
        .access(crate::node::all_access());
    Ok(builder.build()?)
}
