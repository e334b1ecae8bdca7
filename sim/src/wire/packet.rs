//! A decoded packet, and its text form.

use super::bth::Bth;
use super::extension::{AtomicEth, Extension};
use super::opcode::BthOpcode;
use super::route::Route;
use super::service::{ServiceClass, ServiceHeader};
use bareverbs_prm::psn::Psn;
use core::fmt;

/// A parsed and verified packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Everything below the BTH.
    pub route: Route,
    /// Base transport header.
    pub bth: Bth,
    /// Header of the service class.
    pub service_header: ServiceHeader,
    /// Extension headers of the operation.
    pub extension: Extension,
    /// Payload without padding.
    pub payload: &'a [u8],
    /// The invariant CRC, verified.
    pub icrc: u32,
}

/// The per-packet header fields that the transport sets. The rest is in a [`super::HeaderTemplate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// Opcode.
    pub opcode: BthOpcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// Solicited event.
    pub solicited: bool,
    /// Requests an acknowledgement.
    pub ack_request: bool,
    /// Header of the service class; must match the template's class.
    pub service_header: ServiceHeader,
    /// Extension headers; must match the opcode.
    pub extension: Extension,
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bth { service, opcode, destination, psn, .. } = self.bth;
        write!(f, "{} RoCE ", self.route)?;
        if service != ServiceClass::ReliableConnection {
            write!(f, "{service} ")?;
        }
        write!(f, "{opcode} QP={destination} PSN={}{}", psn.value(), self.service_header)?;
        self.extension.fmt(f)?;
        if !self.payload.is_empty() {
            write!(f, " len={}", self.payload.len())?;
        }
        write_flag(f, self.bth.solicited, " [solicited]")?;
        write_flag(f, self.bth.ack_request, " [ack]")
    }
}

impl fmt::Display for PacketHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} PSN={}{}{}", self.opcode, self.psn.value(), self.service_header, self.extension)?;
        write_flag(f, self.solicited, " [solicited]")?;
        write_flag(f, self.ack_request, " [ack]")
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reth) = self.reth() {
            write!(f, " va={:#x} rkey={:#010x} dma={}", reth.address, reth.rkey, reth.length)?;
        }
        if let Some(aeth) = self.aeth() {
            write!(f, " {} MSN={}", aeth.syndrome, aeth.msn)?;
        }
        match self {
            Self::Immediate(data) | Self::RethImmediate(_, data) => write!(f, " imm={data:#010x}"),
            Self::Ieth(key) => write!(f, " inv={key:#010x}"),
            Self::AtomicAck(_, old) => write!(f, " old={old:#x}"),
            Self::AtomicEth(a) => write_atomic(f, a),
            Self::MaskedAtomicEth(masked) => {
                write_atomic(f, &masked.atomic)?;
                write!(f, " masks={:#x},{:#x}", masked.swap_or_add_mask, masked.compare_mask)
            }
            _ => Ok(()),
        }
    }
}

fn write_atomic(f: &mut fmt::Formatter<'_>, a: &AtomicEth) -> fmt::Result {
    let AtomicEth { address, rkey, swap_or_add, compare } = a;
    write!(f, " va={address:#x} rkey={rkey:#010x} val={swap_or_add:#x} cmp={compare:#x}")
}

fn write_flag(f: &mut fmt::Formatter<'_>, set: bool, text: &str) -> fmt::Result {
    if set { f.write_str(text) } else { Ok(()) }
}
