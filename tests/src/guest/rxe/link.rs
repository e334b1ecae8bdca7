//! Our queue pair, of any service, before and after it knows its peer.

use super::cases::Service;
use anyhow::{Context, Result, bail};
use bareverbs_core::address_handle::{AddressHandle, Destination};
use bareverbs_core::device::Device;
use bareverbs_core::gid::GidEntry;
use bareverbs_core::queue_pair::{
    ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder, Rc, RemoteEndpoint, Uc, Ud,
};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_hal_sim::real_time::RealTimeHal;
use bareverbs_prm::ids::{MacAddress, Qpn};
use bareverbs_prm::numbering::PortType;
use bareverbs_prm::psn::Psn;
use bareverbs_serve::real_time::UnixDatagramIo;
use bareverbs_sim::nic;

/// The HAL of our NIC: simulated, in real time, on a wire of datagrams.
pub(super) type Bus = RealTimeHal<nic::Nic, UnixDatagramIo>;
/// Our device.
pub(super) type OurDevice = std::rc::Rc<Device<Bus>>;

/// The Q_Key of rdma-core's pingpong and of perftest.
const Q_KEY: u32 = 0x1111_1111;

/// A queue pair in any state that a case needs.
pub(super) enum Link {
    PreparedRc(PreparedQueuePair<OurDevice, Rc>),
    PreparedUc(PreparedQueuePair<OurDevice, Uc>),
    Rc(QueuePair<OurDevice, Rc>),
    Uc(QueuePair<OurDevice, Uc>),
    /// Usable from the start; the peer is set later.
    Ud(QueuePair<OurDevice, Ud>, Option<Destination>),
    Broken,
}

impl Link {
    pub(super) fn build(builder: QueuePairBuilder<'_, OurDevice>, service: Service) -> Result<Self> {
        Ok(match service {
            Service::Rc => Self::PreparedRc(builder.build()?),
            Service::Uc => Self::PreparedUc(builder.service::<Uc>().build()?),
            Service::Ud => {
                let prepared = builder.service::<Ud>().q_key(Q_KEY).build()?;
                Self::Ud(prepared.ready_to_send()?, None)
            }
        })
    }

    pub(super) const fn is_datagram(&self) -> bool {
        matches!(self, Self::Ud(..))
    }

    /// Our end, for the peer.
    pub(super) fn endpoint(&self, device: &OurDevice, gid_index: u8) -> Result<RemoteEndpoint> {
        Ok(match self {
            Self::PreparedRc(queue_pair) => queue_pair.endpoint(gid_index)?,
            Self::PreparedUc(queue_pair) => queue_pair.endpoint(gid_index)?,
            Self::Ud(queue_pair, _) => datagram_endpoint(device, queue_pair.qpn(), gid_index)?,
            Self::Rc(_) | Self::Uc(_) | Self::Broken => bail!("the queue pair was connected before"),
        })
    }

    pub(super) fn connect(
        &mut self,
        device: &OurDevice,
        remote: &RemoteEndpoint,
        options: ConnectOptions,
    ) -> Result<()> {
        *self = match core::mem::replace(self, Self::Broken) {
            Self::PreparedRc(queue_pair) => Self::Rc(queue_pair.connect(remote, options)?),
            Self::PreparedUc(queue_pair) => Self::Uc(queue_pair.connect(remote, options)?),
            Self::Ud(queue_pair, None) => {
                let handle = AddressHandle::new(device, &options.address_vector(remote))?;
                Self::Ud(queue_pair, Some(handle.destination(remote.qpn, Q_KEY)))
            }
            Self::Rc(_) | Self::Uc(_) | Self::Ud(..) | Self::Broken => {
                bail!("the queue pair was connected before")
            }
        };
        Ok(())
    }

    pub(super) fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        match self {
            Self::PreparedRc(queue_pair) => queue_pair.post_receive(request)?,
            Self::PreparedUc(queue_pair) => queue_pair.post_receive(request)?,
            Self::Rc(queue_pair) => queue_pair.post_receive(request)?,
            Self::Uc(queue_pair) => queue_pair.post_receive(request)?,
            Self::Ud(queue_pair, _) => queue_pair.post_receive(request)?,
            Self::Broken => bail!("the queue pair could not be connected"),
        }
        Ok(())
    }

    pub(super) fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<()> {
        match self {
            Self::Rc(queue_pair) => queue_pair.post_send(request)?,
            Self::Uc(queue_pair) => queue_pair.post_send(request)?,
            Self::Ud(queue_pair, Some(destination)) => queue_pair.post_send_to(request, destination)?,
            Self::PreparedRc(_) | Self::PreparedUc(_) | Self::Ud(_, None) | Self::Broken => {
                bail!("the queue pair is not connected")
            }
        }
        Ok(())
    }
}

fn datagram_endpoint(device: &OurDevice, qpn: Qpn, gid_index: u8) -> Result<RemoteEndpoint> {
    let psn = Psn::new(0);
    if device.capabilities().port_type == PortType::Ethernet {
        let entry = device.gid(gid_index.into()).context("an address of our own")?;
        let GidEntry { gid, mac, version, .. } = entry;
        return Ok(RemoteEndpoint { qpn, psn, gid, mac, version: Some(version), lid: 0 });
    }
    let (gid, lid) = (device.infiniband_gid(gid_index.into())?, device.port()?.lid);
    Ok(RemoteEndpoint { qpn, psn, gid, mac: MacAddress::default(), version: None, lid })
}
