//! The datagram queue pair of an IPoIB interface.

use super::neighbours::SubnetLane;
use super::port::{Arrival, DatagramWay, InterfaceOutput, PortIdentity};
use crate::datagram_queue::{DatagramQueue, DatagramQueueSizes, ReceivedDatagram};
use crate::general_services::GeneralServices;
use anyhow::{Context as _, Result};
use bareverbs_core::address_handle::{GENERAL_SERVICES_Q_KEY, GENERAL_SERVICES_QPN};
use bareverbs_core::command::CommandError;
use bareverbs_core::hal::Hal;
use bareverbs_core::queue_pair::AddressVector;
use bareverbs_core::{AddressHandle, Device};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use std::collections::BTreeSet;

/// Largest datagram in bytes.
const LARGEST: usize = 4096;
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

/// The interface; see the module's comment.
pub(super) struct IpoibInterface<'d, H: Hal> {
    queue: DatagramQueue<'d, H>,
    q_key: u32,
    groups: BTreeSet<Gid>,
}

impl<'d, H: Hal> IpoibInterface<'d, H> {
    /// Creates the queue pair and posts its receives.
    pub(super) fn open(device: &'d Device<H>, depths: InterfaceDepths) -> Result<Self> {
        let InterfaceDepths { receives, sends } = depths;
        let sizes = DatagramQueueSizes { receives, sends, longest: LARGEST };
        let queue = DatagramQueue::open(device, sizes, |builder| builder.q_key(0))
            .context("the queue pair of the interface")?;
        Ok(Self { queue, q_key: 0, groups: BTreeSet::new() })
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.queue.queue_pair.qpn()
    }

    /// Sets the Q_Key that datagrams must carry from now on.
    fn set_q_key(&mut self, q_key: u32) -> Result<()> {
        if q_key != self.q_key {
            self.queue.queue_pair.set_q_key(q_key).context("the Q_Key of the broadcast group")?;
            self.q_key = q_key;
        }
        Ok(())
    }

    /// Attaches the queue pair to a group.
    fn attach(&mut self, group: Gid) -> Result<()> {
        if self.groups.insert(group) {
            self.queue
                .queue_pair
                .attach_multicast(group)
                .with_context(|| format!("cannot attach to {group}"))?;
        }
        Ok(())
    }

    /// Detaches it from a group.
    fn detach(&mut self, group: Gid) -> Result<()> {
        if self.groups.remove(&group) {
            self.queue
                .queue_pair
                .detach_multicast(group)
                .with_context(|| format!("cannot detach from {group}"))?;
        }
        Ok(())
    }

    fn send(&mut self, way: &DatagramWay, qpn: Qpn, q_key: u32, packet: &[u8]) -> Result<()> {
        let handle = AddressHandle::new(&self.queue.device, &vector(way))?;
        self.queue.send(packet, &handle.destination(qpn, q_key))
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
                if !self.queue.may_send()? {
                    return Ok(false);
                }
                self.send(way, *qpn, *q_key, packet)?;
            }
            InterfaceOutput::Request(datagram) => {
                if !services.may_send()? {
                    return Ok(false);
                }
                // Without a manager nobody can answer.
                let Some(port) = administrator else { return Ok(true) };
                let lane = SubnetLane { lid: port.manager_lid, service_level: 0, mtu: 0 };
                let handle = AddressHandle::new(&self.queue.device, &vector(&DatagramWay::Port(lane)))?;
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
        let received = self.queue.take()?.into_iter();
        Ok(received.map(|received| (arrival(&received), received.datagram)).collect())
    }
}

/// How a datagram came.
fn arrival(received: &ReceivedDatagram) -> Arrival {
    let origin = received.completion.origin;
    let destination = received.header[DESTINATION_AT..].first_chunk().copied().map(Gid);
    let group = destination.filter(|gid| origin.has_route_header() && gid.is_multicast());
    Arrival { lid: origin.lid(), qpn: origin.qpn(), group }
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
