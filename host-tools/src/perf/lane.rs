//! One queue pair of the test, of any service, in any state.

use super::plan::{Operation, Transport};
use anyhow::{Context as _, Result, bail};
use bareverbs_core::address_handle::Destination;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{MemorySlice, RemoteSlice};
use bareverbs_core::queue_pair::{
    ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder, Rc, RemoteEndpoint, Uc, Ud, XrcInitiator,
    XrcTarget,
};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_core::{AddressHandle, Device};
use bareverbs_prm::ids::{Qpn, Srqn};
use bareverbs_prm::psn::Psn;

/// The Q_Key of perftest's datagrams.
pub(crate) const Q_KEY: u32 = 0x1111_1111;
/// Longest message that is copied into its work request.
pub(crate) const MOST_INLINE: usize = 912;

type DeviceHandle<'d, H> = &'d Device<H>;

/// A queue pair.
pub(crate) enum Lane<'d, H: Hal> {
    PreparedRc(PreparedQueuePair<DeviceHandle<'d, H>, Rc>),
    PreparedUc(PreparedQueuePair<DeviceHandle<'d, H>, Uc>),
    PreparedInitiator(PreparedQueuePair<DeviceHandle<'d, H>, XrcInitiator>),
    PreparedTarget(PreparedQueuePair<DeviceHandle<'d, H>, XrcTarget>),
    Rc(QueuePair<DeviceHandle<'d, H>, Rc>),
    Uc(QueuePair<DeviceHandle<'d, H>, Uc>),
    Initiator(QueuePair<DeviceHandle<'d, H>, XrcInitiator>),
    /// Only answers; its receives are those of a shared receive queue.
    Target(QueuePair<DeviceHandle<'d, H>, XrcTarget>),
    /// Usable from the start; the peer is set later.
    Ud(QueuePair<DeviceHandle<'d, H>, Ud>, Option<Destination>),
    Broken,
}

/// A message to post.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) token: u64,
    pub(crate) operation: Operation,
    pub(crate) slice: [MemorySlice; 1],
    pub(crate) remote: RemoteSlice,
    pub(crate) signalled: bool,
    /// The bytes, if they go inline.
    pub(crate) inline: Option<Vec<u8>>,
    /// The addend of an atomic, or its compare and swap values.
    pub(crate) operands: [u64; 2],
    /// The peer's shared receive queue, with XRC.
    pub(crate) shared_queue: Option<Srqn>,
    /// Immediate data for the peer's receive.
    pub(crate) immediate: Option<u32>,
}

impl Message {
    fn request(&self) -> WorkRequest<'_> {
        let Self { token, slice, remote, operands, .. } = self;
        let request = match (self.operation, &self.inline) {
            (Operation::Send, None) => WorkRequest::send(*token, slice),
            (Operation::Send, Some(bytes)) => WorkRequest::send_inline(*token, bytes),
            (Operation::Write, None) => WorkRequest::write(*token, slice, *remote),
            (Operation::Write, Some(bytes)) => WorkRequest::write_inline(*token, bytes, *remote),
            (Operation::Read, _) => WorkRequest::read(*token, slice, *remote),
            (Operation::FetchAdd, _) => WorkRequest::fetch_add(*token, slice, *remote, operands[0]),
            (Operation::CompareSwap, _) => {
                WorkRequest::compare_swap(*token, slice, *remote, operands[0], operands[1])
            }
        };
        let request = request.signalled(self.signalled);
        let request = match self.immediate {
            Some(number) => request.immediate(number),
            None => request,
        };
        match self.shared_queue {
            Some(queue) => request.for_shared_queue(queue),
            None => request,
        }
    }
}

impl<'d, H: Hal> Lane<'d, H> {
    pub(crate) fn build(
        builder: QueuePairBuilder<'_, DeviceHandle<'d, H>>,
        transport: Transport,
        q_key: u32,
    ) -> Result<Self> {
        Ok(match transport {
            Transport::Rc => Self::PreparedRc(builder.build()?),
            Transport::Uc => Self::PreparedUc(builder.service::<Uc>().build()?),
            Transport::Ud => Self::Ud(builder.service::<Ud>().q_key(q_key).build()?.ready_to_send()?, None),
            Transport::Xrc => bail!("a queue pair of XRC has one end only, and a domain"),
        })
    }

    /// Number and first PSN, for the peer.
    pub(crate) fn identity(&self, gid_index: u8) -> Result<(Qpn, Psn)> {
        let endpoint = match self {
            Self::PreparedRc(queue_pair) => queue_pair.endpoint(gid_index)?,
            Self::PreparedUc(queue_pair) => queue_pair.endpoint(gid_index)?,
            Self::PreparedInitiator(queue_pair) => queue_pair.endpoint(gid_index)?,
            Self::PreparedTarget(queue_pair) => queue_pair.endpoint(gid_index)?,
            Self::Ud(queue_pair, _) => return Ok((queue_pair.qpn(), Psn::new(0))),
            Self::Rc(_) | Self::Uc(_) | Self::Initiator(_) | Self::Target(_) | Self::Broken => {
                bail!("the queue pair was connected before")
            }
        };
        Ok((endpoint.qpn, endpoint.psn))
    }

    /// Connects it. `q_key` is the peer's; only datagrams have one.
    pub(crate) fn connect(
        &mut self,
        device: &Device<H>,
        remote: &RemoteEndpoint,
        options: ConnectOptions,
        q_key: u32,
    ) -> Result<()> {
        let attempt = || {
            format!(
                "connecting to queue pair {} at {} (LID {}) with GID index {} and path MTU {:?}",
                remote.qpn, remote.gid, remote.lid, options.gid_index, options.path_mtu
            )
        };
        *self = match core::mem::replace(self, Self::Broken) {
            Self::PreparedRc(queue_pair) => {
                Self::Rc(queue_pair.connect(remote, options).with_context(attempt)?)
            }
            Self::PreparedUc(queue_pair) => {
                Self::Uc(queue_pair.connect(remote, options).with_context(attempt)?)
            }
            Self::PreparedInitiator(queue_pair) => {
                Self::Initiator(queue_pair.connect(remote, options).with_context(attempt)?)
            }
            Self::PreparedTarget(queue_pair) => {
                Self::Target(queue_pair.connect(remote, options).with_context(attempt)?)
            }
            Self::Ud(queue_pair, None) => {
                let handle =
                    AddressHandle::new(&device, &options.address_vector(remote)).with_context(attempt)?;
                Self::Ud(queue_pair, Some(handle.destination(remote.qpn, q_key)))
            }
            _ => bail!("the queue pair was connected before"),
        };
        Ok(())
    }

    pub(crate) fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<()> {
        self.post_receives(core::slice::from_ref(request))
    }

    /// Posts all receives with one doorbell.
    pub(crate) fn post_receives(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        macro_rules! post_to {
            ($queue_pair:ident) => {{
                let mut batch = $queue_pair.receive_batch();
                requests.iter().try_for_each(|request| batch.post(request))?;
                batch.ring();
            }};
        }
        match self {
            Self::PreparedRc(queue_pair) => post_to!(queue_pair),
            Self::PreparedUc(queue_pair) => post_to!(queue_pair),
            Self::Rc(queue_pair) => post_to!(queue_pair),
            Self::Uc(queue_pair) => post_to!(queue_pair),
            Self::Ud(queue_pair, _) => post_to!(queue_pair),
            Self::PreparedInitiator(_) | Self::PreparedTarget(_) | Self::Initiator(_) | Self::Target(_) => {
                bail!("a queue pair of XRC has no receive queue of its own")
            }
            Self::Broken => bail!("the queue pair could not be connected"),
        }
        Ok(())
    }

    /// Posts a datagram that is not a message of the test.
    pub(crate) fn post_datagram(&mut self, request: &WorkRequest<'_>) -> Result<()> {
        let Self::Ud(queue_pair, Some(destination)) = self else {
            bail!("only a queue pair of datagrams that has a peer sends one")
        };
        Ok(queue_pair.post_send_to(request, destination)?)
    }

    /// Posts all messages with one doorbell.
    pub(crate) fn post(&mut self, messages: &[Message]) -> Result<()> {
        match self {
            Self::Rc(queue_pair) => {
                let mut batch = queue_pair.send_batch();
                messages.iter().try_for_each(|message| batch.post(&message.request()))?;
                batch.ring();
            }
            Self::Uc(queue_pair) => {
                let mut batch = queue_pair.send_batch();
                messages.iter().try_for_each(|message| batch.post(&message.request()))?;
                batch.ring();
            }
            Self::Initiator(queue_pair) => {
                let mut batch = queue_pair.send_batch();
                messages.iter().try_for_each(|message| batch.post(&message.request()))?;
                batch.ring();
            }
            Self::Ud(queue_pair, Some(destination)) => {
                let mut batch = queue_pair.send_batch();
                messages.iter().try_for_each(|message| batch.post_to(&message.request(), destination))?;
                batch.ring();
            }
            Self::Target(_) => bail!("this queue pair answers and sends nothing"),
            _ => bail!("the queue pair is not connected"),
        }
        Ok(())
    }
}
