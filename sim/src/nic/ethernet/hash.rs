//! Receive side scaling: the hash that spreads packets over receive queues (PRM, TIR context).

use super::headers::{Headers, NetworkProtocol, TCP, UDP};
use bareverbs_prm::command::ethernet_receive::TirContext;

/// `rx_hash_fn`.
pub(crate) const NONE: u8 = 0;
pub(crate) const INVERTED_XOR8: u8 = 1;
pub(crate) const TOEPLITZ: u8 = 2;
/// `selected_fields`.
const SOURCE_IP: u32 = 1 << 0;
const DESTINATION_IP: u32 = 1 << 1;
const SOURCE_PORT: u32 = 1 << 2;
const DESTINATION_PORT: u32 = 1 << 3;
const SECURITY_INDEX: u32 = 1 << 4;
const PORTS: u32 = SOURCE_PORT | DESTINATION_PORT;
pub(crate) const FIELDS: u32 = SOURCE_IP | DESTINATION_IP | PORTS | SECURITY_INDEX;
/// Bytes of the key, and the longest hash input: two IPv6 addresses and two ports.
const KEY: usize = 40;
const LONGEST: usize = 36;

/// A hash and its type, as completions report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hash {
    pub(crate) value: u32,
    /// Bits 7:6 the transport, bits 3:2 the network; zero if nothing was hashed.
    pub(crate) kind: u8,
}

/// The hash input of one packet.
struct Input {
    bytes: [u8; LONGEST],
    length: usize,
    kind: u8,
}

impl Input {
    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The hash of a packet as a TIR configures it. A packet without the headers that the TIR selects is not
/// hashed.
pub(crate) fn compute(tir: &TirContext, frame: &[u8], headers: &Headers) -> Hash {
    let Some(input) = collect(tir, frame, headers) else { return Hash::default() };
    let value = match tir.rx_hash_fn() {
        TOEPLITZ => toeplitz(&tir.rx_hash_toeplitz_key(), input.bytes()),
        INVERTED_XOR8 => inverted_xor8(input.bytes()),
        _ => return Hash::default(),
    };
    Hash { value, kind: input.kind }
}

fn collect(tir: &TirContext, frame: &[u8], headers: &Headers) -> Option<Input> {
    let fields = tir.rx_hash_field_selector_outer_selected_fields();
    let network = if tir.rx_hash_field_selector_outer_l3_prot_type() {
        NetworkProtocol::V6
    } else {
        NetworkProtocol::V4
    };
    if fields & FIELDS == 0 || headers.network != network {
        return None;
    }
    let (source, destination) = headers.addresses();
    let symmetric = tir.rx_hash_symmetric();
    let mut input = Input { bytes: [0; LONGEST], length: 0, kind: 0 };
    let (source, destination) =
        (HashedEnd::new(SOURCE_IP, source), HashedEnd::new(DESTINATION_IP, destination));
    push_pair(&mut input, fields, source, destination, symmetric);
    if fields & (SOURCE_IP | DESTINATION_IP) != 0 {
        input.kind |= if network == NetworkProtocol::V4 { 1 << 2 } else { 2 << 2 };
    }
    if fields & SECURITY_INDEX != 0 {
        input.push(headers.security_index(frame)?);
        input.kind |= 3 << 6;
    } else if fields & PORTS != 0 {
        let protocol = if tir.rx_hash_field_selector_outer_l4_prot_type() { UDP } else { TCP };
        let (from, to) = headers.ports(frame).filter(|_| headers.protocol == protocol)?;
        let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
        push_pair(
            &mut input,
            fields,
            HashedEnd::new(SOURCE_PORT, &from),
            HashedEnd::new(DESTINATION_PORT, &to),
            symmetric,
        );
        input.kind |= if protocol == TCP { 1 << 6 } else { 2 << 6 };
    }
    Some(input)
}

/// An address or a port of one end, and the bit that selects it.
#[derive(Clone, Copy)]
struct HashedEnd<'a> {
    field: u32,
    bytes: &'a [u8],
}

impl<'a> HashedEnd<'a> {
    const fn new(field: u32, bytes: &'a [u8]) -> Self {
        Self { field, bytes }
    }
}

/// Adds both ends as far as they are selected. A symmetric hash takes the smaller one first, so that both
/// directions hash alike.
fn push_pair(input: &mut Input, fields: u32, one: HashedEnd<'_>, other: HashedEnd<'_>, symmetric: bool) {
    let both = fields & one.field != 0 && fields & other.field != 0;
    let (first, second) =
        if symmetric && both && other.bytes < one.bytes { (other, one) } else { (one, other) };
    for HashedEnd { field, bytes } in [first, second] {
        if fields & field != 0 {
            input.push(bytes);
        }
    }
}

/// Toeplitz hash: XORs the 32 bits of the key at the position of every set bit of the input.
pub(crate) fn toeplitz(key: &[u8; KEY], input: &[u8]) -> u32 {
    let mut window = key.first_chunk().map_or(0, |head| u32::from_be_bytes(*head));
    let mut hash = 0;
    for (index, &byte) in input.iter().enumerate() {
        let next = key.get(index + 4).copied().unwrap_or(0);
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

/// XOR of all bytes, with its bits in reverse order.
fn inverted_xor8(input: &[u8]) -> u32 {
    input.iter().fold(0u8, |sum, byte| sum ^ byte).reverse_bits().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and the results that Microsoft publishes for implementers ("Verifying the RSS hash
    /// calculation").
    const MICROSOFT: [u8; KEY] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn input(source: [u8; 4], destination: [u8; 4], ports: Option<(u16, u16)>) -> Vec<u8> {
        let mut bytes = [source, destination].concat();
        for port in ports.into_iter().flat_map(|(from, to)| [from, to]) {
            bytes.extend_from_slice(&port.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn toeplitz_is_that_of_the_published_vectors() {
        let (source, destination) = ([66, 9, 149, 187], [161, 142, 100, 80]);
        assert_eq!(toeplitz(&MICROSOFT, &input(source, destination, None)), 0x323e_8fc2);
        assert_eq!(toeplitz(&MICROSOFT, &input(source, destination, Some((2794, 1766)))), 0x51cc_c178);
        let (source, destination) = ([199, 92, 111, 2], [65, 69, 140, 83]);
        assert_eq!(toeplitz(&MICROSOFT, &input(source, destination, None)), 0xd718_262a);
        assert_eq!(toeplitz(&MICROSOFT, &input(source, destination, Some((14230, 4739)))), 0xc626_b0ea);
    }

    #[test]
    fn xor_is_reversed() {
        assert_eq!(inverted_xor8(&[0x01, 0x02]), 0xc0);
        assert_eq!(inverted_xor8(&[]), 0);
    }
}
