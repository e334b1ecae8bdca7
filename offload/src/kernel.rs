//! The contract between a kernel and whoever runs it.
//!
//! A kernel is a value of bounded size that is handed bytes and answers with one [`Step`]. It owns no memory, reads no
//! clock and never loops over remote data: each element it wants to see is a step, so that the one who runs it can
//! count, charge, interleave and stop it. It sees neither keys nor addresses, only offsets into its [`Grant`].

use crate::grant::{Checked, Grant};
pub use crate::status::Status;
use core::fmt;

/// Bytes that the state of one invocation may have.
pub const MAX_STATE: usize = 256;

/// What a request asks for: 64 bits, the same space as the address field of StRoM's RETH.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u64);

/// What a kernel wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a step that nobody takes leaves the invocation hanging"]
pub enum Step {
    /// Read this range and come back through [`Kernel::dma_done`].
    Fetch(Checked),
    /// What was read cannot be trusted: read this range instead. If no retry is left, end with `otherwise`.
    Refetch {
        /// Where to begin again.
        range: Checked,
        /// The status if there is no retry left.
        otherwise: Status,
    },
    /// Hand over the payload through [`Kernel::payload`].
    AwaitPayload,
    /// The answer: a part of the bytes that were just handed over.
    Emit(Emission),
    /// The end, without an answer.
    Done(Status),
}

/// An answer within the bytes that were last handed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emission {
    /// First byte of the answer.
    pub offset: u32,
    /// Bytes of the answer; zero is an answer too.
    pub length: u32,
    /// The version of what was found.
    pub version: u64,
}

/// A state machine that walks remote data.
pub trait Kernel: Sized {
    /// The op-code it answers to.
    const OPCODE: Opcode;
    /// Fails to compile if the state is too large; whoever runs kernels must name it.
    const STATE_FITS: () =
        assert!(size_of::<Self>() <= MAX_STATE, "the state of a kernel is at most 256 bytes");

    /// Begins, with parameters that nobody has looked at yet.
    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status>;

    /// Goes on with the bytes of the range asked for last, all of them.
    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step;

    /// Goes on with payload of the request. Kernels that never ask for any keep this.
    fn payload(&mut self, chunk: &[u8], last: bool, grant: &Grant) -> Step {
        let _ = (chunk, last, grant);
        Step::Done(Status::BadParameters)
    }
}

/// The kernels of one deployment: an enum over kernels, found by op-code.
pub trait KernelSet: Sized {
    /// Begins the kernel that answers to `opcode`; [`Status::NoKernel`] if there is none.
    fn start(opcode: Opcode, parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status>;
    /// See [`Kernel::dma_done`].
    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step;
    /// See [`Kernel::payload`].
    fn payload(&mut self, chunk: &[u8], last: bool, grant: &Grant) -> Step;
}

/// A single kernel is a deployment, too.
impl<K: Kernel> KernelSet for K {
    fn start(opcode: Opcode, parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let () = K::STATE_FITS;
        if opcode == K::OPCODE { K::start(parameters, grant) } else { Err(Status::NoKernel) }
    }
    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        Kernel::dma_done(self, bytes, grant)
    }
    fn payload(&mut self, chunk: &[u8], last: bool, grant: &Grant) -> Step {
        Kernel::payload(self, chunk, last, grant)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op-code {:#018x}", self.0)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}
