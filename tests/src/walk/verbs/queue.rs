//! A queue pair of any service behind one interface, because a walk does the same with all of them.

use crate::node::Handle;
use bareverbs_core::address_handle::Destination;
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::memory_region::AccessFlags;
use bareverbs_core::queue_pair::{
    ModifyError, PostError, PreparedQueuePair, QueuePair, QueuePairAttributes, Rc, ResetError, Uc, Ud,
    XrcInitiator, XrcTarget,
};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::QpState;

/// A queue pair in RTS or a later state.
pub enum Queue {
    /// Of a reliable connection.
    Rc(QueuePair<Handle, Rc>),
    /// Of an unreliable connection.
    Uc(QueuePair<Handle, Uc>),
    /// Of datagrams, with its destination.
    Ud(QueuePair<Handle, Ud>, Destination),
    /// The initiator of an extended reliable connection.
    Initiator(QueuePair<Handle, XrcInitiator>),
    /// The target.
    Target(QueuePair<Handle, XrcTarget>),
}

/// A queue pair in INIT.
pub enum PreparedQueue {
    /// Of a reliable connection.
    Rc(PreparedQueuePair<Handle, Rc>),
    /// Of an unreliable connection.
    Uc(PreparedQueuePair<Handle, Uc>),
    /// Of datagrams.
    Ud(PreparedQueuePair<Handle, Ud>),
    /// The initiator of an extended reliable connection.
    Initiator(PreparedQueuePair<Handle, XrcInitiator>),
    /// The target.
    Target(PreparedQueuePair<Handle, XrcTarget>),
}

macro_rules! each {
    ($kind:ident, $self:expr, $queue:ident => $work:expr) => {
        match $self {
            $kind::Rc($queue) => $work,
            $kind::Uc($queue) => $work,
            $kind::Ud($queue, ..) => $work,
            $kind::Initiator($queue) => $work,
            $kind::Target($queue) => $work,
        }
    };
}

macro_rules! batch {
    ($queue:ident, $work:ident) => {{
        let mut batch = $queue.send_batch();
        $work(&mut |request| batch.post(request));
        batch.ring();
    }};
}

/// Adds a request to a batch.
pub type Post<'a> = dyn FnMut(&WorkRequest<'_>) -> Result<(), PostError> + 'a;

impl Queue {
    /// Its number.
    pub fn qpn(&self) -> Qpn {
        each!(Self, self, queue => queue.qpn())
    }

    /// Posts the requests of `work` with one doorbell.
    pub fn batch(&mut self, work: impl FnOnce(&mut Post<'_>)) {
        match self {
            Self::Rc(queue) => batch!(queue, work),
            Self::Uc(queue) => batch!(queue, work),
            Self::Initiator(queue) => batch!(queue, work),
            Self::Target(queue) => batch!(queue, work),
            Self::Ud(queue, destination) => {
                let mut batch = queue.send_batch();
                work(&mut |request| batch.post_to(request, destination));
                batch.ring();
            }
        }
    }

    /// Posts a receive.
    pub fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        each!(Self, self, queue => queue.post_receive(request))
    }

    /// Moves it to another state, or changes attributes in this one.
    pub fn modify(&mut self, to: QpState, attributes: &QueuePairAttributes) -> Result<(), ModifyError> {
        each!(Self, self, queue => queue.modify(to, attributes))
    }

    /// Moves it to SQD.
    pub fn drain(&mut self) -> Result<(), ModifyError> {
        each!(Self, self, queue => queue.drain())
    }

    /// Lets it send again.
    pub fn resume(&mut self) -> Result<(), ModifyError> {
        each!(Self, self, queue => queue.resume())
    }

    /// Moves it to ERROR.
    pub fn modify_to_error(&mut self) -> Result<(), ModifyError> {
        each!(Self, self, queue => queue.modify_to_error())
    }

    /// The state according to the device.
    pub fn state(&mut self) -> QpState {
        let status = each!(Self, self, queue => queue.query());
        status.unwrap_or_else(|error| panic!("{error}")).state
    }

    /// Sends and receives that the driver has not retired.
    pub fn outstanding(&self) -> (u32, u32) {
        each!(Self, self, queue => (queue.sends_outstanding(), queue.receives_outstanding()))
    }

    /// Resets it and brings it to INIT.
    pub fn reset(
        self,
        send: &mut CompletionQueue<Handle>,
        receive: Option<&mut CompletionQueue<Handle>>,
        initial: Initial,
    ) -> Result<PreparedQueue, ResetError> {
        let Initial { access, q_key } = initial;
        Ok(match self {
            Self::Rc(queue) => PreparedQueue::Rc(queue.reset(send, receive, access)?),
            Self::Uc(queue) => PreparedQueue::Uc(queue.reset(send, receive, AccessFlags::REMOTE_WRITE)?),
            Self::Ud(queue, _) => PreparedQueue::Ud(queue.reset(send, receive, q_key)?),
            Self::Initiator(queue) => PreparedQueue::Initiator(queue.reset(send, receive, access)?),
            Self::Target(queue) => PreparedQueue::Target(queue.reset(send, receive, access)?),
        })
    }
}

/// The attributes of a queue pair in INIT.
#[derive(Debug, Clone, Copy)]
pub struct Initial {
    /// What peers may do, with connected services.
    pub access: AccessFlags,
    /// The Q_Key that datagrams must carry, with datagram services.
    pub q_key: u32,
}
