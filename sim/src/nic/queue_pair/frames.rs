//! Frames that a queue pair sends, and what observers learn about each.

use crate::nic::observer::FrameOrigin;
use crate::wire::FrameBuffer;
use bareverbs_prm::ids::Qpn;

/// Why a frame is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitClass {
    /// A request: a doorbell announced its work request, which was then fetched.
    Request,
    /// An acknowledgement, which needs no fetch.
    Response,
    /// A READ response, whose payload is fetched from host memory.
    ReadResponse,
}

/// What observers learn about a sent frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Why it is sent.
    pub class: TransmitClass,
    /// Sending queue pair.
    pub qpn: Qpn,
    /// Invariant CRC of the frame.
    pub icrc: u32,
}

/// A complete frame that waits for the wire.
#[derive(Debug, Default)]
pub(crate) struct FinishedFrame {
    pub(crate) bytes: FrameBuffer,
    pub(crate) icrc: u32,
    pub(crate) qpn: Qpn,
    /// The work request that it belongs to, if it belongs to one and the device is observed.
    pub(crate) origin: Option<FrameOrigin>,
}

/// A frame that a queue pair wrote during its turn.
pub(crate) struct PolledFrame {
    pub(crate) transmit: Transmit,
    /// Its destination is a queue pair of this same device.
    pub(crate) loops_back: bool,
}
