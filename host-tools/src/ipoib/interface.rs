//! The datagram queue pair of an IPoIB interface, and its memory.

use super::neighbours::SubnetLane;
use super::port::{Arrival, DatagramWay, InterfaceOutput, PortIdentity};
use crate::general_services::GeneralServices;
use anyhow::{Context as _, Result, bail};
use bareverbs_core::address_handle::{GENERAL_SERVICES_Q_KEY, GENERAL_SERVICES_QPN, ROUTE_HEADER};
use bareverbs_core::command::CommandError;
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

/// Largest datagram in bytes, and the distance between two buffers.
const LARGEST: usize = 4096;
const STRIDE: usize = LARGEST + 128;
/// Completions that are taken at a time.
const BATCH: usize = 16;
/// Offset of the destination in a route header.
const DESTINATION_AT: usize = 24;

/// Queue depths of an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct InterfaceDepths {
    /// Posted receives.
    pub(super) receives: u32,
    /// Datagrams that may be in flight.
    pub(super) sends: u32,
}

/// The interface; see the module's comment. The fields are in the order in which they have to be dropped.
pub(super) struct IpoibInterface<'d, H: Hal> {
    queue_pair: QueuePair<&'d Device<H>, Ud>,
    sends: CompletionQueue<&'d Device<H>>,
    receives: CompletionQueue<&'d Device<H>>,
    memory: MemoryRegion<&'d Device<H>>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    domain: ProtectionDomain<&'d Device<H>>,
    device: &'d Device<H>,
    depths: InterfaceDepths,
    q_key: u32,
    groups: BTreeSet<Gid>,
    /// Sends that were posted, and sends that have completed.
    posted: u64,
    done: u64,
}

impl<'d, H: Hal> IpoibInterface<'d, H> {
    /// Creates the queue pair and posts its receives.
    pub(super) fn open(device: &'d Device<H>, depths: InterfaceDepths) -> Result<Self> {
        let domain = ProtectionDomain::allocate(device)?;
        let InterfaceDepths { receives: most_receives, sends: most_sends } = depths;
        let rooms = (most_receives + most_sends) as usize;
        let memory = MemoryRegion::allocate(&domain, rooms * STRIDE, AccessFlags::LOCAL_WRITE)?;
        let sends = CompletionQueue::builder(device).entries(most_sends).create()?;
        let receives = CompletionQueue::builder(device).entries(most_receives).create()?;
        let builder = QueuePairBuilder::new(&domain, &sends, &receives)
            .send_queue(most_sends)
            .receive_queue(most_receives);
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
            depths,
            q_key: 0,
            groups,
            posted: 0,
            done: 0,
        };
        for room in 0..u64::from(most_receives) {
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

    /// Sets the Q_Key that datagrams must carry from now on.
    fn set_q_key(&mut self, q_key: u32) -> Result<()> {
        if q_key != self.q_key {
            self.queue_pair.set_q_key(q_key).context("the Q_Key of the group of broadcasts")?;
            self.q_key = q_key;
        }
        Ok(())
    }

    /// Attaches the queue pair to a group.
    fn attach(&mut self, group: Gid) -> Result<()> {
        if self.groups.insert(group) {
            self.queue_pair.attach_multicast(group).with_context(|| format!("cannot attach to {group}"))?;
        }
        Ok(())
    }

    /// Detaches it from a group.
    fn detach(&mut self, group: Gid) -> Result<()> {
        if self.groups.remove(&group) {
            self.queue_pair.detach_multicast(group).with_context(|| format!("cannot detach from {group}"))?;
        }
        Ok(())
    }

    /// Takes the completions of sends. Returns whether another may be posted.
    fn may_send(&mut self) -> Result<bool> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.sends.poll(&mut batch)?;
        for completion in &batch[..count] {
            if !completion.is_success() {
                bail!("a datagram was not sent: {}", completion.status);
            }
            self.done += 1;
        }
        Ok(self.posted - self.done < self.depths.sends.into())
    }

    /// Posts a datagram. The caller has checked [`Self::may_send`].
    fn send(&mut self, way: &DatagramWay, qpn: Qpn, q_key: u32, packet: &[u8]) -> Result<()> {
        let handle = AddressHandle::new(&self.device, &vector(way))?;
        let InterfaceDepths { receives, sends } = self.depths;
        let room = (u64::from(receives) + self.posted % u64::from(sends)) as usize * STRIDE;
        self.memory.copy_in(room, packet)?;
        let slices = [self.memory.slice(room, packet.len())?];
        let request = WorkRequest::send(self.posted, &slices);
        self.queue_pair.post_send_to(&request, &handle.destination(qpn, q_key))?;
        self.posted += 1;
        Ok(())
    }

    /// Carries out an output. Returns false if there is no room for it now.
    pub(super) fn perform(
        &mut self,
        services: &mut GeneralServices<'d, H>,
        administrator: Option<PortIdentity>,
        output: &InterfaceOutput,
    ) -> Result<bool> {
        match output {
            InterfaceOutput::Datagram { way, qpn, q_key, packet } => {
                if !self.may_send()? {
                    return Ok(false);
                }
                self.send(way, *qpn, *q_key, packet)?;
            }
            InterfaceOutput::Question(datagram) => {
                if !services.may_send()? {
                    return Ok(false);
                }
                // Without a manager nobody can answer.
                let Some(port) = administrator else { return Ok(true) };
                let lane = SubnetLane { lid: port.manager_lid, service_level: 0, mtu: 0 };
                let handle = AddressHandle::new(&self.device, &vector(&DatagramWay::Port(lane)))?;
                let destination = handle.destination(GENERAL_SERVICES_QPN, GENERAL_SERVICES_Q_KEY);
                services.send(datagram, &destination)?;
            }
            InterfaceOutput::Ready { q_key, .. } => self.set_q_key(*q_key)?,
            InterfaceOutput::Attach(group) => self.attach(*group)?,
            InterfaceOutput::Detach(group) => self.detach(*group)?,
        }
        Ok(true)
    }

    /// Datagrams that have arrived, without the room for a route header.
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

/// The identity of the port; `None` while it is not active or has no manager.
pub(super) fn identity<H: Hal>(device: &Device<H>) -> Result<Option<PortIdentity>, CommandError> {
    let port = device.port()?;
    if port.state.is_down() || port.lid == 0 || port.subnet_manager_lid == 0 {
        return Ok(None);
    }
    Ok(Some(PortIdentity {
        gid: device.infiniband_gid(0)?,
        lid: port.lid,
        manager_lid: port.subnet_manager_lid,
        partition_key: device.partition_key(0)?,
    }))
}

/// The address vector of a path: within the subnet only groups need a route header.
fn vector(way: &DatagramWay) -> AddressVector {
    let within = |SubnetLane { lid, service_level, .. }: SubnetLane| AddressVector {
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
