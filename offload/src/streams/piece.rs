//! Pieces of a stream to the cores of a DPU.
//!
//! A call of [`SHUFFLE`](super::open_stream::SHUFFLE) or [`COUNT`](super::open_stream::COUNT) opens the stream, as in a
//! NIC. Each piece is a request of its own, with the op-code [`PIECE`]: its parameters name the call, its payload is
//! the next bytes. The server answers it, without a body, once the kernel has taken all its bytes. So a client has as
//! many pieces under way as it has slots and credits, and a kernel without room makes it wait.
//!
//! The call is answered after the last byte was written, or when the stream cannot go on; each piece that comes
//! after that is answered with [`Status::NoStream`](crate::status::Status::NoStream). Parameters, big-endian:
//!
//! ```text
//!  0  request id of the call: 8
//! ```

use super::open_stream::OpenStream;
use crate::endpoint::MAX_SEND;
use crate::kernel::Opcode;
use crate::wire::HEADER_SIZE;

/// "STREAMED" in ASCII: the next bytes of a stream.
pub const PIECE: Opcode = Opcode(u64::from_be_bytes(*b"STREAMED"));
/// Bytes of the parameters.
pub const PARAMETERS: usize = 8;
/// Most bytes of the stream in one piece.
pub const MAX_PIECE: usize = MAX_SEND - HEADER_SIZE - PARAMETERS;

/// The call that a piece belongs to; `None` if the parameters are not those of a piece.
pub fn call_of(parameters: &[u8]) -> Option<u64> {
    parameters.try_into().ok().map(u64::from_be_bytes)
}

/// Whether streams use this op-code, so that no program may have it.
pub const fn uses(opcode: Opcode) -> bool {
    OpenStream::is_opened_by(opcode) || opcode.0 == PIECE.0
}
