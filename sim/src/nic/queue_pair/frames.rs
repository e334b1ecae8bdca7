//! Frames that a queue pair sends, and what is told of them.

use crate::nic::observer::FrameOrigin;
use crate::wire::FrameBuffer;
use bareverbs_prm::ids::Qpn;

/// Why a frame is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitClass {
    /// A request: its work request was fetched after a doorbell.
    Request,
    /// An acknowledgement: nothing had to be fetched.
    Response,
    /// A READ response: its payload was fetched from host memory.
    ReadResponse,
}

/// What is told of a frame that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Why it is sent.
    pub class: TransmitClass,
    /// Sending queue pair.
    pub qpn: Qpn,
    /// Invariant CRC of the frame.
    pub icrc: u32,
}

/// A frame that is complete and waits for the wire.
#[derive(Debug, Default)]
pub(crate) struct FinishedFrame {
    pub(crate) bytes: FrameBuffer,
    pub(crate) icrc: u32,
    pub(crate) qpn: Qpn,
    /// Whose it is, if the device is observed and the frame is of a work request.
    pub(crate) origin: Option<FrameOrigin>,
}

/// A frame that a queue pair wrote in its turn.
pub(crate) struct PolledFrame {
    pub(crate) transmit: Transmit,
    /// It is for a queue pair of this very device.
    pub(crate) loops_back: bool,
}
