//! The queue pair of datagrams that is an interface of IPoIB, and its memory.

use super::gateway::{Arrival, DatagramWay};
use super::neighbours::SubnetLane;
use anyhow::{Context as _, Result, bail};
use bareverbs_core::address_handle::ROUTE_HEADER;
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{AddressVector, QueuePair, QueuePairBuilder, Ud};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_core::{AddressHandle, Device};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use std::collections::BTreeSet;

/// Receives that wait for datagrams, and datagrams that may be under way.
const RECEIVES: u32 = 256;
const SENDS: u32 = 128;
/// Bytes of the largest datagram, and between two rooms.
const LARGEST: usize = 4096;
const STRIDE: usize = LARGEST + 128;
/// Completions that are taken at once.
const BATCH: usize = 16;
/// Where the destination lies in a route header.
const DESTINATION_AT: usize = 24;

/// See the module. Fields are in the order in which they must go.
pub(super) struct IpoibInterface<'d, H: Hal> {
    queue_pair: QueuePair<&'d Device<H>, Ud>,
    sends: CompletionQueue<&'d Device<H>>,
    receives: CompletionQueue<&'d Device<H>>,
    memory: MemoryRegion<&'d Device<H>>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    domain: ProtectionDomain<&'d Device<H>>,
    device: &'d Device<H>,
    q_key: u32,
    groups: BTreeSet<Gid>,
    /// Sends that were posted, and those that are done.
    posted: u64,
    done: u64,
}

impl<'d, H: Hal> IpoibInterface<'d, H> {
    /// Makes the queue pair and posts its receives.
    pub(super) fn open(device: &'d Device<H>) -> Result<Self> {
        let domain = ProtectionDomain::allocate(device)?;
        let rooms = (RECEIVES + SENDS) as usize;
        let memory = MemoryRegion::allocate(&domain, rooms * STRIDE, AccessFlags::LOCAL_WRITE)?;
        let sends = CompletionQueue::builder(device).entries(SENDS).create()?;
        let receives = CompletionQueue::builder(device).entries(RECEIVES).create()?;
        let builder =
            QueuePairBuilder::new(&domain, &sends, &receives).send_queue(SENDS).receive_queue(RECEIVES);
        let prepared = builder.service::<Ud>().q_key(0).build().context("the queue pair of the interface")?;
        let queue_pair = prepared.ready_to_send()?;
        let groups = BTreeSet::new();
        let mut interface = Self {
            queue_pair,
            sends,
            receives,
            memory,
            domain,
            device,
            q_key: 0,
            groups,
            posted: 0,
            done: 0,
        };
        for room in 0..u64::from(RECEIVES) {
            interface.post_receive(room)?;
        }
        Ok(interface)
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.queue_pair.qpn()
    }

    fn post_receive(&mut self, room: u64) -> Result<()> {
        let slices = [self.memory.slice(room as usize * STRIDE, ROUTE_HEADER + LARGEST)?];
        self.queue_pair.post_receive(&ReceiveRequest::new(room, &slices))?;
        Ok(())
    }

    /// Datagrams have to carry this Q_Key from now on.
    pub(super) fn set_q_key(&mut self, q_key: u32) -> Result<()> {
        if q_key != self.q_key {
            self.queue_pair.set_q_key(q_key).context("the Q_Key of the group of broadcasts")?;
            self.q_key = q_key;
        }
        Ok(())
    }

    /// Takes what is sent to a group.
    pub(super) fn attach(&mut self, group: Gid) -> Result<()> {
        if self.groups.insert(group) {
            self.queue_pair.attach_multicast(group).with_context(|| format!("cannot attach to {group}"))?;
        }
        Ok(())
    }

    /// Takes it no longer.
    pub(super) fn detach(&mut self, group: Gid) -> Result<()> {
        if self.groups.remove(&group) {
            self.queue_pair.detach_multicast(group).with_context(|| format!("cannot detach from {group}"))?;
        }
        Ok(())
    }

    /// Takes the completions of sends; whether another may be posted.
    pub(super) fn may_send(&mut self) -> Result<bool> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.sends.poll(&mut batch)?;
        for completion in &batch[..count] {
            if !completion.is_success() {
                bail!("a datagram was not sent: {}", completion.status);
            }
            self.done += 1;
        }
        Ok(self.posted - self.done < SENDS.into())
    }

    /// Posts a datagram; [`Self::may_send`] was asked before.
    pub(super) fn send(&mut self, way: &DatagramWay, qpn: Qpn, q_key: u32, packet: &[u8]) -> Result<()> {
        let handle = AddressHandle::new(&self.device, &vector(way))?;
        let room = (u64::from(RECEIVES) + self.posted % u64::from(SENDS)) as usize * STRIDE;
        self.memory.copy_in(room, packet)?;
        let slices = [self.memory.slice(room, packet.len())?];
        let request = WorkRequest::send(self.posted, &slices);
        self.queue_pair.post_send_to(&request, &handle.destination(qpn, q_key))?;
        self.posted += 1;
        Ok(())
    }

    /// Datagrams that have come, without the room for a route header.
    pub(super) fn take(&mut self) -> Result<Vec<(Arrival, Vec<u8>)>> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.receives.poll(&mut batch)?;
        let mut arrived = Vec::with_capacity(count);
        for completion in &batch[..count] {
            if !completion.is_success() {
                bail!("a receive of the interface failed: {}", completion.status);
            }
            let at = completion.wr_id as usize * STRIDE;
            let length = (completion.byte_count as usize).clamp(ROUTE_HEADER, ROUTE_HEADER + LARGEST);
            let (mut header, mut datagram) = ([0; ROUTE_HEADER], vec![0; length - ROUTE_HEADER]);
            self.memory.copy_out(at, &mut header)?;
            self.memory.copy_out(at + ROUTE_HEADER, &mut datagram)?;
            self.post_receive(completion.wr_id)?;
            let origin = completion.origin;
            let destination = header[DESTINATION_AT..].first_chunk().copied().map(Gid);
            let group = destination.filter(|gid| origin.has_route_header() && gid.is_multicast());
            arrived.push((Arrival { lid: origin.lid(), qpn: origin.qpn(), group }, datagram));
        }
        Ok(arrived)
    }
}

/// The path as the device has it: within the subnet only groups need a route header.
fn vector(way: &DatagramWay) -> AddressVector {
    let within = |SubnetLane { lid, service_level }: SubnetLane| AddressVector {
        lid,
        service_level,
        hop_limit: 0,
        ..AddressVector::roce(0, Gid::default(), MacAddress::default())
    };
    match *way {
        DatagramWay::Port(lane) => within(lane),
        DatagramWay::Group { lane, gid, hop_limit, traffic_class, flow_label } => {
            AddressVector { gid, hop_limit, traffic_class, flow_label, ..within(lane) }
        }
    }
}
