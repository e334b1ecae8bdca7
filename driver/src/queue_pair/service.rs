//! Transport services (IBTA v1.4 §9.7). The service of a queue pair never changes, so it is a type.
//!
//! A service is never a value and costs nothing at run time. An operation that a service lacks is either missing from
//! its API or a typed refusal, which the compiler removes for services that have everything.

use crate::work_completion::WorkCompletionOpcode;
use bareverbs_prm::numbering::ServiceType;

/// The service of a queue pair.
pub trait Service: sealed::Sealed + Send + Sync + 'static {
    /// Its number in the context of a queue pair.
    const TYPE: ServiceType;

    /// Whether the peer acknowledges what it received, so that there are retries, RDMA READs and atomics.
    const ACKNOWLEDGED: bool;

    /// Whether queue pairs have a send queue.
    const SENDS: bool = true;

    /// Segments between the control segment and the segments that every service has. They hold the
    /// destination.
    const ADDRESS_SEGMENTS: u32;

    /// log2 of the longest message, on a device whose own limit is `device`.
    fn log_max_message(device: u8) -> u8 {
        device
    }

    /// Whether requests of this kind can be sent.
    fn offers(kind: WorkCompletionOpcode) -> bool;

    /// Whether the peer can send requests of this kind.
    fn serves(kind: WorkCompletionOpcode) -> bool {
        Self::offers(kind)
    }
}

/// A service between two connected queue pairs.
pub trait Connected: Service {}

/// Reliable connection: everything arrives exactly once and in order, or the sender gets an error.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "IBV_QPT_RC")]
pub enum Rc {}

/// Unreliable connection: SEND and RDMA WRITE without acknowledgement. A message arrives whole, once and in order, or
/// not at all; the sender gets no error.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "IBV_QPT_UC")]
pub enum Uc {}

/// Unreliable datagram: single-packet SENDs to any queue pair or multicast group, without acknowledgement.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "IBV_QPT_UD")]
pub enum Ud {}

/// Extended reliable connection, the requester's side. Like [`Rc`], but every request names the peer's shared receive
/// queue that it is for, and nothing is received.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "IBV_QPT_XRC_SEND")]
pub enum XrcInitiator {}

/// Extended reliable connection, the responder's side: messages go to the shared receive queues of its domain that they
/// name, and nothing is sent.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "IBV_QPT_XRC_RECV")]
pub enum XrcTarget {}

impl Service for Rc {
    const TYPE: ServiceType = ServiceType::Rc;
    const ADDRESS_SEGMENTS: u32 = 0;
    const ACKNOWLEDGED: bool = true;

    #[inline(always)]
    fn offers(_: WorkCompletionOpcode) -> bool {
        true
    }
}

impl Service for Uc {
    const TYPE: ServiceType = ServiceType::Uc;
    const ADDRESS_SEGMENTS: u32 = 0;
    const ACKNOWLEDGED: bool = false;

    #[inline(always)]
    fn offers(kind: WorkCompletionOpcode) -> bool {
        kind != WorkCompletionOpcode::RdmaRead && !kind.is_atomic()
    }
}

/// log2 of the largest path MTU, which no datagram can exceed (IBTA v1.4 §9.8.3).
pub(super) const LOG_LARGEST_PACKET: u8 = 12;

impl Service for Ud {
    const TYPE: ServiceType = ServiceType::Ud;
    const ADDRESS_SEGMENTS: u32 = 3;
    const ACKNOWLEDGED: bool = false;

    fn log_max_message(device: u8) -> u8 {
        device.min(LOG_LARGEST_PACKET)
    }

    #[inline(always)]
    fn offers(kind: WorkCompletionOpcode) -> bool {
        matches!(kind, WorkCompletionOpcode::Send | WorkCompletionOpcode::Nop)
    }
}

impl Service for XrcInitiator {
    const TYPE: ServiceType = ServiceType::Xrc;
    const ADDRESS_SEGMENTS: u32 = 1;
    const ACKNOWLEDGED: bool = true;

    #[inline(always)]
    fn offers(_: WorkCompletionOpcode) -> bool {
        true
    }

    fn serves(_: WorkCompletionOpcode) -> bool {
        false
    }
}

impl Service for XrcTarget {
    const TYPE: ServiceType = ServiceType::Xrc;
    const ADDRESS_SEGMENTS: u32 = 1;
    const ACKNOWLEDGED: bool = true;
    const SENDS: bool = false;

    #[inline(always)]
    fn offers(_: WorkCompletionOpcode) -> bool {
        false
    }

    fn serves(_: WorkCompletionOpcode) -> bool {
        true
    }
}

impl Connected for Rc {}
impl Connected for Uc {}
impl Connected for XrcInitiator {}
impl Connected for XrcTarget {}

mod sealed {
    /// Only this crate can define services.
    pub trait Sealed {}
    impl Sealed for super::Rc {}
    impl Sealed for super::Uc {}
    impl Sealed for super::Ud {}
    impl Sealed for super::XrcInitiator {}
    impl Sealed for super::XrcTarget {}
}
