//! BTH opcodes: operation and position in the message. IBTA v1.4 §9.2, table 38. All service classes
//! ([`ServiceClass`](super::ServiceClass)) number the operations alike.
//!
//! A number outside the table is [`BthOpcode::Unknown`]. 0x18 to 0x1c are StRoM's RPC opcodes; newer revisions of the
//! standard use 0x1c for FLUSH, which no device here sends. 0x1e and 0x1f are masked atomics, whose opcodes on the wire
//! have never been published (docs/adr/0010).

use core::fmt;

/// The operation that a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// ACK, NAK or RNR NAK.
    Acknowledge,
    /// Response to an atomic.
    AtomicAcknowledge,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// StRoM RPC Params.
    RpcParams,
    /// StRoM RPC WRITE.
    RpcWrite,
    /// Not in the table.
    Unknown,
}

/// Position of a packet in its message.
///
/// ```
/// use bareverbs_sim::wire::Position;
///
/// assert_eq!(Position::new(true, false), Position::First);
/// assert!(Position::Only.begins() && Position::Only.ends());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The only one.
    Only,
}

impl Position {
    /// The position, given whether the packet starts and ends its message.
    pub const fn new(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
    /// Whether the packet starts its message.
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }
    /// Whether the packet ends its message.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// Which extension headers follow the BTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtensionKind {
    /// None.
    None,
    /// RETH.
    Reth,
    /// RETH, then immediate data.
    RethImmediate,
    /// Immediate data.
    Immediate,
    /// IETH.
    Ieth,
    /// AETH.
    Aeth,
    /// AETH, then AtomicAckETH.
    AtomicAck,
    /// AtomicETH.
    AtomicEth,
    /// AtomicETH, then a mask for each of its two values.
    MaskedAtomicEth,
}

impl ExtensionKind {
    /// Bytes of the headers.
    pub const fn size(self) -> usize {
        match self {
            Self::None => 0,
            Self::Immediate | Self::Ieth | Self::Aeth => 4,
            Self::AtomicAck => 12,
            Self::Reth => 16,
            Self::RethImmediate => 20,
            Self::AtomicEth => 28,
            Self::MaskedAtomicEth => 44,
        }
    }
}

macro_rules! opcodes {
    ($($variant:ident = $value:literal, $name:literal, $kind:ident, $position:ident, $extension:ident;)*) => {
        /// Operation and position of a packet: the low five bits of the BTH opcode.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum BthOpcode {
            $(
                #[doc = concat!("`", $name, "`, ", stringify!($value), ".")]
                $variant,
            )*
            /// A number outside the table.
            Unknown(u8),
        }

        impl BthOpcode {
            /// Every opcode in the table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Decodes a raw number. Never fails.
            pub const fn from_raw(raw: u8) -> Self {
                match raw {
                    $($value => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }
            /// The raw number.
            pub const fn raw(self) -> u8 {
                match self {
                    $(Self::$variant => $value,)*
                    Self::Unknown(other) => other,
                }
            }
            /// The name in the standard.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }
            /// The operation it belongs to.
            pub const fn kind(self) -> OperationKind {
                match self {
                    $(Self::$variant => OperationKind::$kind,)*
                    Self::Unknown(_) => OperationKind::Unknown,
                }
            }
            /// Its position in the message.
            pub const fn position(self) -> Position {
                match self {
                    $(Self::$variant => Position::$position,)*
                    Self::Unknown(_) => Position::Only,
                }
            }
            /// The extension headers after the BTH; none for an unknown opcode.
            pub const fn extension(self) -> ExtensionKind {
                match self {
                    $(Self::$variant => ExtensionKind::$extension,)*
                    Self::Unknown(_) => ExtensionKind::None,
                }
            }
        }
    };
}

opcodes! {
    SendFirst = 0x00, "SEND First", Send, First, None;
    SendMiddle = 0x01, "SEND Middle", Send, Middle, None;
    SendLast = 0x02, "SEND Last", Send, Last, None;
    SendLastImmediate = 0x03, "SEND Last with Immediate", Send, Last, Immediate;
    SendOnly = 0x04, "SEND Only", Send, Only, None;
    SendOnlyImmediate = 0x05, "SEND Only with Immediate", Send, Only, Immediate;
    WriteFirst = 0x06, "RDMA WRITE First", Write, First, Reth;
    WriteMiddle = 0x07, "RDMA WRITE Middle", Write, Middle, None;
    WriteLast = 0x08, "RDMA WRITE Last", Write, Last, None;
    WriteLastImmediate = 0x09, "RDMA WRITE Last with Immediate", Write, Last, Immediate;
    WriteOnly = 0x0a, "RDMA WRITE Only", Write, Only, Reth;
    WriteOnlyImmediate = 0x0b, "RDMA WRITE Only with Immediate", Write, Only, RethImmediate;
    ReadRequest = 0x0c, "RDMA READ Request", ReadRequest, Only, Reth;
    ReadResponseFirst = 0x0d, "RDMA READ Response First", ReadResponse, First, Aeth;
    ReadResponseMiddle = 0x0e, "RDMA READ Response Middle", ReadResponse, Middle, None;
    ReadResponseLast = 0x0f, "RDMA READ Response Last", ReadResponse, Last, Aeth;
    ReadResponseOnly = 0x10, "RDMA READ Response Only", ReadResponse, Only, Aeth;
    Acknowledge = 0x11, "Acknowledge", Acknowledge, Only, Aeth;
    AtomicAcknowledge = 0x12, "ATOMIC Acknowledge", AtomicAcknowledge, Only, AtomicAck;
    CompareSwap = 0x13, "CmpSwap", CompareSwap, Only, AtomicEth;
    FetchAdd = 0x14, "FetchAdd", FetchAdd, Only, AtomicEth;
    SendLastInvalidate = 0x16, "SEND Last with Invalidate", Send, Last, Ieth;
    SendOnlyInvalidate = 0x17, "SEND Only with Invalidate", Send, Only, Ieth;
    RpcParams = 0x18, "RDMA RPC Params", RpcParams, Only, Reth;
    RpcWriteFirst = 0x19, "RDMA RPC WRITE First", RpcWrite, First, Reth;
    RpcWriteMiddle = 0x1a, "RDMA RPC WRITE Middle", RpcWrite, Middle, None;
    RpcWriteLast = 0x1b, "RDMA RPC WRITE Last", RpcWrite, Last, None;
    RpcWriteOnly = 0x1c, "RDMA RPC WRITE Only", RpcWrite, Only, Reth;
    MaskedCompareSwap = 0x1e, "Masked CmpSwap", CompareSwap, Only, MaskedAtomicEth;
    MaskedFetchAdd = 0x1f, "Masked FetchAdd", FetchAdd, Only, MaskedAtomicEth;
}

impl BthOpcode {
    /// Whether the request carries payload and is answered by an ACK rather than by data.
    pub const fn is_acknowledged(self) -> bool {
        use OperationKind::{RpcParams, RpcWrite, Send, Write};
        matches!(self.kind(), Send | Write | RpcParams | RpcWrite)
    }
    /// Whether the packet goes from a responder to a requester.
    pub const fn is_response(self) -> bool {
        use OperationKind::{Acknowledge, AtomicAcknowledge, ReadResponse};
        matches!(self.kind(), ReadResponse | Acknowledge | AtomicAcknowledge)
    }
}

impl fmt::Debug for BthOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BthOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(raw) => write!(f, "op-code {raw:#04x}"),
            known => f.write_str(known.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives() {
        for raw in 0..=255 {
            assert_eq!(BthOpcode::from_raw(raw).raw(), raw);
        }
        assert_eq!(BthOpcode::ALL.len(), 30);
    }

    #[test]
    fn only_response_opcodes_are_responses() {
        let answers: Vec<u8> = BthOpcode::ALL.iter().filter(|o| o.is_response()).map(|o| o.raw()).collect();
        assert_eq!(answers, [0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12]);
    }
}
