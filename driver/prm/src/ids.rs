//! Numbers of device objects, each its own type so that one cannot be mistaken for another.
//!
//! The numbers are handed out by the device. A constructor refuses what does not fit the field of the device, so
//! that a setter never has to truncate.

use crate::field::FieldValue;
use core::fmt;

/// A number that is too large for the field that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberTooLarge {
    /// The kind of object that it should name.
    pub name: &'static str,
    /// The number.
    pub value: u32,
    /// Bits of the field.
    pub bits: u32,
}

impl fmt::Display for NumberTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, bits } = self;
        write!(f, "{value:#x} is not a valid {name}: it has more than {bits} bits")
    }
}

impl core::error::Error for NumberTooLarge {}

macro_rules! object_number {
    ($($(#[$meta:meta])* $name:ident, $bits:literal, $label:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// The number, if it fits the field of the device.
            pub const fn new(value: u32) -> Option<Self> {
                if value >> ($bits - 1) > 1 { None } else { Some(Self(value)) }
            }
            /// The low bits of `value` that the field of the device can hold.
            pub const fn from_low_bits(value: u32) -> Self {
                Self(value & (u32::MAX >> (32 - $bits)))
            }
            /// A number that [`Self::value`] returned before.
            ///
            /// # Panics
            /// Debug builds panic if it does not fit the field of the device.
            #[inline(always)]
            pub const fn from_value(value: u32) -> Self {
                debug_assert!(value >> ($bits - 1) <= 1, "no value of such a number");
                Self(value)
            }
            /// The number.
            pub const fn value(self) -> u32 {
                self.0
            }
        }

        impl TryFrom<u32> for $name {
            type Error = NumberTooLarge;

            fn try_from(value: u32) -> Result<Self, NumberTooLarge> {
                Self::new(value).ok_or(NumberTooLarge { name: $label, value, bits: $bits })
            }
        }

        impl From<$name> for u32 {
            fn from(number: $name) -> Self {
                number.0
            }
        }

        impl FieldValue for $name {
            const WIDTH: u32 = $bits;
            fn to_field(self) -> u32 {
                self.0
            }
            fn from_field(raw: u32) -> Self {
                Self::from_low_bits(raw)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {:#x}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    )*};
}

object_number! {
    /// Queue pair number, 24 bits.
    Qpn, 24, "qpn";
    /// Completion queue number, 24 bits.
    Cqn, 24, "cqn";
    /// Number of a receive memory pool or an XRC shared receive queue, 24 bits.
    Srqn, 24, "srqn";
    /// XRC domain number, 24 bits.
    Xrcdn, 24, "xrcd";
    /// Number of an Ethernet receive queue, 24 bits.
    Rqn, 24, "rqn";
    /// Number of an Ethernet send queue, 24 bits; doorbells take it for a queue pair number.
    Sqn, 24, "sqn";
    /// Number of a transport interface receive, 24 bits.
    Tirn, 24, "tirn";
    /// Number of a transport interface send, 24 bits.
    Tisn, 24, "tisn";
    /// Number of a receive queue table, 24 bits.
    Rqtn, 24, "rqtn";
    /// Transport domain number, 24 bits.
    TransportDomain, 24, "transport domain";
    /// Number of a flow table, 24 bits.
    FlowTableId, 24, "flow table";
    /// Event queue number, 8 bits.
    Eqn, 8, "eqn";
    /// Protection domain number, 24 bits.
    Pdn, 24, "pd";
    /// User access region index: page `n` of the UAR space of BAR0, 24 bits.
    UarIndex, 24, "uar";
    /// Number of a user memory object, 24 bits.
    UmemId, 24, "umem";
    /// Number of a function among those of a card (virtual HCA), 16 bits.
    VhcaId, 16, "vhca id";
    /// Memory key index, 24 bits; the key itself adds 8 variant bits.
    MkeyIndex, 24, "mkey index";
}

/// A memory key as work requests and packets carry it: 24-bit index, 8-bit variant.
///
/// ```
/// use bareverbs_prm::ids::{Mkey, MkeyIndex};
///
/// let key = Mkey::from_parts(MkeyIndex::from_low_bits(0x1234), 0x56);
/// assert_eq!(key, Mkey::new(0x0012_3456));
/// assert_eq!((key.index().value(), key.variant()), (0x1234, 0x56));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mkey(u32);

impl Mkey {
    /// The key of object `index` with the given variant.
    pub const fn from_parts(index: MkeyIndex, variant: u8) -> Self {
        Self(index.value() << 8 | variant as u32)
    }
    /// The key from its 32 bits.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }
    /// All 32 bits.
    pub const fn value(self) -> u32 {
        self.0
    }
    /// The object index.
    pub const fn index(self) -> MkeyIndex {
        MkeyIndex::from_low_bits(self.0 >> 8)
    }
    /// The variant byte, chosen by software at creation.
    pub const fn variant(self) -> u8 {
        self.0 as u8
    }
}

impl From<u32> for Mkey {
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl FieldValue for Mkey {
    const WIDTH: u32 = 32;
    fn to_field(self) -> u32 {
        self.0
    }
    fn from_field(raw: u32) -> Self {
        Self(raw)
    }
}

impl fmt::Debug for Mkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mkey {:#010x}", self.0)
    }
}

impl fmt::Display for Mkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A 48-bit Ethernet address in transmission order.
///
/// ```
/// use bareverbs_prm::ids::MacAddress;
///
/// let mac = MacAddress([0x02, 0, 0, 0, 0xaa, 0x07]);
/// assert_eq!(mac.to_string(), "02:00:00:00:aa:07");
/// assert_eq!((mac.high(), mac.low()), (0x0200, 0xaa07));
/// assert_eq!(MacAddress::from_parts(0x0200, 0xaa07), mac);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Bits 47:32, as the PRM splits addresses.
    pub const fn high(self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }
    /// Bits 31:0, as the PRM splits addresses.
    pub const fn low(self) -> u32 {
        u32::from_be_bytes([self.0[2], self.0[3], self.0[4], self.0[5]])
    }
    /// The address from its two PRM parts.
    pub const fn from_parts(high: u16, low: u32) -> Self {
        let (h, l) = (high.to_be_bytes(), low.to_be_bytes());
        Self([h[0], h[1], l[0], l[1], l[2], l[3]])
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A 128-bit global identifier in transmission order. RoCEv2 over IPv4 uses `::ffff:a.b.c.d` (RoCEv2 A17.4.1.1).
///
/// ```
/// use bareverbs_prm::ids::Gid;
///
/// let gid = Gid::from_ipv4([10, 0, 0, 1]);
/// assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a00:0001");
/// assert_eq!(gid.to_ipv4(), Some([10, 0, 0, 1]));
/// let group = Gid::from_ipv4([239, 1, 2, 3]);
/// assert_eq!(group.multicast_mac().unwrap().to_string(), "01:00:5e:01:02:03");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IPv4-mapped identifier of an IPv4 address.
    pub const fn from_ipv4([a, b, c, d]: [u8; 4]) -> Self {
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }
    /// The IPv4 address, if this is an IPv4-mapped identifier.
    pub fn to_ipv4(self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }
    /// Whether this names a multicast group: of IPv6, or of IPv4 mapped.
    pub fn is_multicast(self) -> bool {
        match self.to_ipv4() {
            Some([first, ..]) => first & 0xf0 == 0xe0,
            None => self.0[0] == 0xff,
        }
    }
    /// The Ethernet address of a multicast group (RFC 1112 §6.4, RFC 2464 §7).
    pub fn multicast_mac(self) -> Option<MacAddress> {
        match (self.is_multicast(), self.to_ipv4(), self.0) {
            (false, ..) => None,
            (true, Some([_, b, c, d]), _) => Some(MacAddress([1, 0, 0x5e, b & 0x7f, c, d])),
            (true, None, [.., a, b, c, d]) => Some(MacAddress([0x33, 0x33, a, b, c, d])),
        }
    }
    /// Whether all bits are zero, which marks an unused entry of the GID table.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pair) in self.0.chunks_exact(2).enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            write!(f, "{colon}{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_ethernet_addresses() {
        let group = Gid::from_ipv4([239, 200, 3, 4]);
        assert_eq!(group.multicast_mac(), Some(MacAddress([1, 0, 0x5e, 72, 3, 4])));
        let mut six = Gid([0; 16]);
        (six.0[0], six.0[1], six.0[15]) = (0xff, 0x0e, 9);
        assert_eq!(six.multicast_mac(), Some(MacAddress([0x33, 0x33, 0, 0, 0, 9])));
        assert_eq!(Gid::from_ipv4([10, 0, 0, 1]).multicast_mac(), None);
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(Qpn::new(0xff_ffff).map(Qpn::value), Some(0xff_ffff));
        assert_eq!(Qpn::new(0x100_0000), None);
        assert_eq!(Eqn::new(0x100), None);
    }

    #[test]
    fn mkey_parts() {
        let key = Mkey::from_parts(MkeyIndex::from_low_bits(0x1234), 0x56);
        assert_eq!(key.value(), 0x12_3456);
        assert_eq!(key.index().value(), 0x1234);
        assert_eq!(key.variant(), 0x56);
    }

    #[test]
    fn mac_parts() {
        let mac = MacAddress([2, 0, 0, 0, 0xaa, 7]);
        assert_eq!(MacAddress::from_parts(mac.high(), mac.low()), mac);
    }
}
