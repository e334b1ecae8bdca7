//! The port's general services queue pair (IBTA v1.4 §3.9.2): exchanges MADs between queue pairs 1, as the
//! kernel does for its own devices.

use crate::datagram_queue::{DatagramQueue, DatagramQueueSizes, ReceivedDatagram};
use anyhow::{Context as _, Result};
use bareverbs_core::Device;
use bareverbs_core::address_handle::{Destination, ROUTE_HEADER};
use bareverbs_core::hal::Hal;
use bareverbs_core::work_completion::{NetworkType, WorkCompletion};
use bareverbs_prm::ids::Gid;

/// Bytes of a management datagram (IBTA v1.4 §13.4.2).
pub(crate) const DATAGRAM: usize = 256;
/// Datagrams that may be in flight, and datagrams that may wait to be taken.
pub(crate) const DEPTH: u32 = 64;
/// Offset of an IPv4 header, which is at the end of the route header's room, and of the source address in
/// headers.
const IPV4_HEADER_AT: usize = 20;
const IPV4_SOURCE: usize = 12;
const IPV6_SOURCE: usize = 8;

/// A datagram that has arrived, with the completion that describes its sender.
pub(crate) struct Arrived {
    pub(crate) completion: WorkCompletion,
    pub(crate) header: [u8; ROUTE_HEADER],
    pub(crate) datagram: [u8; DATAGRAM],
}

impl Arrived {
    /// The GID of the sender; `None` if the datagram had no route header.
    pub(crate) fn source(&self) -> Option<Gid> {
        match self.completion.network_type()? {
            NetworkType::Ipv4 => {
                let address = self.header[IPV4_HEADER_AT + IPV4_SOURCE..].first_chunk::<4>()?;
                Some(Gid::from_ipv4(*address))
            }
            NetworkType::Ipv6 | NetworkType::RoceV1 => {
                self.header[IPV6_SOURCE..].first_chunk().copied().map(Gid)
            }
        }
    }
}

/// The queue pair.
pub(crate) struct GeneralServices<'d, H: Hal> {
    queue: DatagramQueue<'d, H>,
    pub(crate) device: &'d Device<H>,
}

impl<'d, H: Hal> GeneralServices<'d, H> {
    /// Creates the queue pair and posts its receives.
    pub(crate) fn open(device: &'d Device<H>) -> Result<Self> {
        let sizes = DatagramQueueSizes { receives: DEPTH, sends: DEPTH, longest: DATAGRAM };
        let queue = DatagramQueue::open(device, sizes, |builder| builder.general_services())
            .context("the queue pair of general services")?;
        Ok(Self { queue, device })
    }

    /// Takes the completions of sends. Returns whether another may be posted.
    pub(crate) fn may_send(&mut self) -> Result<bool> {
        self.queue.may_send()
    }

    /// Whether every datagram has left the port.
    pub(crate) fn is_idle(&mut self) -> Result<bool> {
        self.queue.is_idle()
    }

    /// Posts a datagram. The caller has checked [`Self::may_send`].
    pub(crate) fn send(&mut self, datagram: &[u8; DATAGRAM], destination: &Destination) -> Result<()> {
        self.queue.send(datagram, destination)
    }

    /// Datagrams that have arrived. Anything shorter than a management datagram is dropped.
    pub(crate) fn take(&mut self) -> Result<Vec<Arrived>> {
        let received = self.queue.take()?.into_iter();
        Ok(received
            .filter_map(|ReceivedDatagram { completion, header, datagram }| {
                Some(Arrived { completion, header, datagram: datagram.try_into().ok()? })
            })
            .collect())
    }
}
