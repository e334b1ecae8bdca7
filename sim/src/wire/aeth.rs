//! ACK extended transport header: syndrome and message sequence number. IBTA v1.4 §9.3.5.

use core::fmt;

/// ACK extended transport header.
///
/// ```
/// use bareverbs_sim::wire::{Aeth, NakCode, Syndrome};
///
/// let nak = Aeth { syndrome: Syndrome::Nak(NakCode::SequenceError), msn: 7 };
/// assert_eq!(nak.to_raw(), 0x6000_0007);
/// assert_eq!(Aeth::from_raw(0x6000_0007), nak);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Decodes a raw 32-bit word.
    pub const fn from_raw(raw: u32) -> Self {
        Self { syndrome: Syndrome::from_raw((raw >> 24) as u8), msn: raw & 0xff_ffff }
    }
    /// Encodes as a raw 32-bit word.
    pub const fn to_raw(self) -> u32 {
        (self.syndrome.raw() as u32) << 24 | (self.msn & 0xff_ffff)
    }
}

/// Syndrome of an AETH. IBTA v1.4 table 44.
///
/// ```
/// use bareverbs_sim::wire::{NakCode, Syndrome};
///
/// assert_eq!(Syndrome::from_raw(0x1f), Syndrome::ACK);
/// assert_eq!(Syndrome::from_raw(0x2c), Syndrome::RnrNak(12));
/// assert_eq!(Syndrome::from_raw(0x62), Syndrome::Nak(NakCode::RemoteAccess));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// ACK with a 5-bit credit count code; 31 means no count.
    Ack(u8),
    /// Receiver not ready; 5-bit timer code of IBTA v1.4 table 45.
    RnrNak(u8),
    /// NAK.
    Nak(NakCode),
    /// Reserved.
    Unknown(u8),
}

/// Why a request was refused. IBTA v1.4 table 46.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NakCode {
    /// PSN sequence error.
    SequenceError,
    /// Invalid request.
    InvalidRequest,
    /// Remote access error.
    RemoteAccess,
    /// Remote operational error.
    RemoteOperational,
    /// Invalid RD request.
    InvalidRdRequest,
    /// Reserved.
    Unknown(u8),
}

impl Syndrome {
    /// ACK without a credit count.
    pub const ACK: Self = Self::Ack(31);

    /// Decodes the raw byte. Never fails.
    pub const fn from_raw(raw: u8) -> Self {
        match (raw >> 5, raw & 0x1f) {
            (0, credits) => Self::Ack(credits),
            (1, timer) => Self::RnrNak(timer),
            (3, code) => Self::Nak(NakCode::from_raw(code)),
            _ => Self::Unknown(raw),
        }
    }
    /// The raw byte.
    pub const fn raw(self) -> u8 {
        match self {
            Self::Ack(credits) => credits & 0x1f,
            Self::RnrNak(timer) => 1 << 5 | (timer & 0x1f),
            Self::Nak(code) => 3 << 5 | code.raw(),
            Self::Unknown(raw) => raw,
        }
    }
}

impl NakCode {
    const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::SequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            other => Self::Unknown(other),
        }
    }
    /// The five-bit code.
    pub const fn raw(self) -> u8 {
        match self {
            Self::SequenceError => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
            Self::InvalidRdRequest => 4,
            Self::Unknown(other) => other & 0x1f,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(31) => f.write_str("ACK"),
            Self::Ack(credits) => write!(f, "ACK credits {credits}"),
            Self::RnrNak(timer) => write!(f, "RNR NAK timer {timer}"),
            Self::Nak(code) => write!(f, "NAK {code}"),
            Self::Unknown(raw) => write!(f, "syndrome {raw:#04x}"),
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SequenceError => f.write_str("PSN sequence error"),
            Self::InvalidRequest => f.write_str("invalid request"),
            Self::RemoteAccess => f.write_str("remote access error"),
            Self::RemoteOperational => f.write_str("remote operational error"),
            Self::InvalidRdRequest => f.write_str("invalid RD request"),
            Self::Unknown(code) => write!(f, "code {code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        for raw in 0..=255 {
            assert_eq!(Syndrome::from_raw(raw).raw(), raw);
        }
    }

    #[test]
    fn numbers_of_the_standard() {
        assert_eq!(Syndrome::ACK.raw(), 0x1f);
        assert_eq!(Syndrome::RnrNak(12).raw(), 0x2c);
        assert_eq!(Syndrome::Nak(NakCode::SequenceError).raw(), 0x60);
        assert_eq!(Syndrome::Nak(NakCode::RemoteOperational).raw(), 0x63);
    }
}
