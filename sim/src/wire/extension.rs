//! Extension headers of the reliable transport: RETH, AETH, AtomicETH, AtomicAckETH, immediate data, IETH.
//! IBTA v1.4 §9.3.

use super::aeth::Aeth;
use super::opcode::ExtensionKind;

/// RDMA extended transport header. IBTA v1.4 §9.3.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address, or StRoM's RPC opcode.
    pub address: u64,
    /// Remote key; StRoM's region handle.
    pub rkey: u32,
    /// Length of the whole message in bytes.
    pub length: u32,
}

/// Atomic extended transport header. IBTA v1.4 §9.3.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in or to add.
    pub swap_or_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// Atomic extended transport header of masked atomics: AtomicETH followed by a mask for each value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskedAtomicEth {
    /// The header without masks.
    pub atomic: AtomicEth,
    /// Bits to swap in; for an addition, the top bit of each field.
    pub swap_or_add_mask: u64,
    /// Bits to compare.
    pub compare_mask: u64,
}

/// Headers between BTH and payload, determined by the opcode.
///
/// ```
/// use bareverbs_sim::wire::{Extension, ExtensionKind};
///
/// let bytes = [0, 0, 0, 42, b'd', b'a', b't', b'a'];
/// let (extension, payload) = Extension::split_from(ExtensionKind::Immediate, &bytes).unwrap();
/// assert_eq!((extension.immediate(), payload), (Some(42), &b"data"[..]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// Nothing.
    None,
    /// RETH.
    Reth(Reth),
    /// RETH and immediate data.
    RethImmediate(Reth, u32),
    /// Immediate data.
    Immediate(u32),
    /// IETH: the R_Key to invalidate.
    Ieth(u32),
    /// AETH.
    Aeth(Aeth),
    /// AETH and AtomicAckETH: the original value.
    AtomicAck(Aeth, u64),
    /// AtomicETH.
    AtomicEth(AtomicEth),
    /// AtomicETH with masks.
    MaskedAtomicEth(MaskedAtomicEth),
}

/// Longest extension in bytes.
pub const MAX_EXTENSION_SIZE: usize = ExtensionKind::MaskedAtomicEth.size();

impl Extension {
    /// The kind of these headers.
    pub const fn kind(&self) -> ExtensionKind {
        match self {
            Self::None => ExtensionKind::None,
            Self::Reth(_) => ExtensionKind::Reth,
            Self::RethImmediate(..) => ExtensionKind::RethImmediate,
            Self::Immediate(_) => ExtensionKind::Immediate,
            Self::Ieth(_) => ExtensionKind::Ieth,
            Self::Aeth(_) => ExtensionKind::Aeth,
            Self::AtomicAck(..) => ExtensionKind::AtomicAck,
            Self::AtomicEth(_) => ExtensionKind::AtomicEth,
            Self::MaskedAtomicEth(_) => ExtensionKind::MaskedAtomicEth,
        }
    }
    /// The RETH, if there is one.
    pub const fn reth(&self) -> Option<Reth> {
        match self {
            Self::Reth(reth) | Self::RethImmediate(reth, _) => Some(*reth),
            _ => None,
        }
    }
    /// The AETH, if there is one.
    pub const fn aeth(&self) -> Option<Aeth> {
        match self {
            Self::Aeth(aeth) | Self::AtomicAck(aeth, _) => Some(*aeth),
            _ => None,
        }
    }
    /// The immediate data, if there is some.
    pub const fn immediate(&self) -> Option<u32> {
        match self {
            Self::Immediate(data) | Self::RethImmediate(_, data) => Some(*data),
            _ => None,
        }
    }
    /// The R_Key to invalidate, if there is one.
    pub const fn invalidate(&self) -> Option<u32> {
        match self {
            Self::Ieth(key) => Some(*key),
            _ => None,
        }
    }

    /// Splits the headers of `kind` off the start of `bytes`; `None` if `bytes` is too short.
    pub fn split_from(kind: ExtensionKind, bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(kind.size())?;
        let extension = match kind {
            ExtensionKind::None => Self::None,
            ExtensionKind::Reth => Self::Reth(Reth::read(head)?),
            ExtensionKind::RethImmediate => Self::RethImmediate(Reth::read(head)?, read_u32(head, 16)?),
            ExtensionKind::Immediate => Self::Immediate(read_u32(head, 0)?),
            ExtensionKind::Ieth => Self::Ieth(read_u32(head, 0)?),
            ExtensionKind::Aeth => Self::Aeth(Aeth::from_raw(read_u32(head, 0)?)),
            ExtensionKind::AtomicAck => {
                Self::AtomicAck(Aeth::from_raw(read_u32(head, 0)?), read_u64(head, 4)?)
            }
            ExtensionKind::AtomicEth => Self::AtomicEth(AtomicEth::read(head)?),
            ExtensionKind::MaskedAtomicEth => Self::MaskedAtomicEth(MaskedAtomicEth {
                atomic: AtomicEth::read(head)?,
                swap_or_add_mask: read_u64(head, 28)?,
                compare_mask: read_u64(head, 36)?,
            }),
        };
        Some((extension, rest))
    }

    /// Encodes the headers. Returns the bytes and how many of them count.
    pub fn to_bytes(&self) -> ([u8; MAX_EXTENSION_SIZE], usize) {
        let mut bytes = [0; MAX_EXTENSION_SIZE];
        self.write(&mut bytes);
        (bytes, self.kind().size())
    }

    /// Encodes the headers into the start of `bytes`.
    #[inline(always)]
    pub(super) fn write(&self, bytes: &mut [u8; MAX_EXTENSION_SIZE]) {
        match *self {
            Self::None => {}
            Self::Reth(reth) => reth.write(bytes),
            Self::RethImmediate(reth, data) => {
                reth.write(bytes);
                bytes[16..20].copy_from_slice(&data.to_be_bytes());
            }
            Self::Immediate(word) | Self::Ieth(word) => bytes[..4].copy_from_slice(&word.to_be_bytes()),
            Self::Aeth(aeth) => bytes[..4].copy_from_slice(&aeth.to_raw().to_be_bytes()),
            Self::AtomicAck(aeth, old) => {
                bytes[..4].copy_from_slice(&aeth.to_raw().to_be_bytes());
                bytes[4..12].copy_from_slice(&old.to_be_bytes());
            }
            Self::AtomicEth(atomic) => atomic.write(bytes),
            Self::MaskedAtomicEth(MaskedAtomicEth { atomic, swap_or_add_mask, compare_mask }) => {
                atomic.write(bytes);
                bytes[28..36].copy_from_slice(&swap_or_add_mask.to_be_bytes());
                bytes[36..].copy_from_slice(&compare_mask.to_be_bytes());
            }
        }
    }
}

impl Reth {
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self { address: read_u64(bytes, 0)?, rkey: read_u32(bytes, 8)?, length: read_u32(bytes, 12)? })
    }
    fn write(&self, bytes: &mut [u8; MAX_EXTENSION_SIZE]) {
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_be_bytes());
    }
}

impl AtomicEth {
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            address: read_u64(bytes, 0)?,
            rkey: read_u32(bytes, 8)?,
            swap_or_add: read_u64(bytes, 12)?,
            compare: read_u64(bytes, 20)?,
        })
    }
    fn write(&self, bytes: &mut [u8; MAX_EXTENSION_SIZE]) {
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.compare.to_be_bytes());
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::aeth::Syndrome;

    #[test]
    fn every_kind_survives() {
        let reth = Reth { address: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c, length: 0x0d0e_0f10 };
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0x12_3456 };
        let atomic = AtomicEth { address: 8, rkey: 9, swap_or_add: u64::MAX, compare: 0x1122_3344_5566_7788 };
        for extension in [
            Extension::None,
            Extension::Reth(reth),
            Extension::RethImmediate(reth, 0xdead_beef),
            Extension::Immediate(1),
            Extension::Ieth(2),
            Extension::Aeth(aeth),
            Extension::AtomicAck(aeth, 0x55),
            Extension::AtomicEth(atomic),
            Extension::MaskedAtomicEth(MaskedAtomicEth { atomic, swap_or_add_mask: 0x77, compare_mask: !1 }),
        ] {
            let (bytes, size) = extension.to_bytes();
            let kind = extension.kind();
            assert_eq!(Extension::split_from(kind, &bytes[..size]), Some((extension, &[][..])));
            if size > 0 {
                assert_eq!(Extension::split_from(kind, &bytes[..size - 1]), None);
            }
        }
    }
}
