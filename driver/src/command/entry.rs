//! A command as bytes: fixed part, variable part, and the queue entry that carries the first 16 of them.

use super::error::CommandError;
use super::error::CommandFailure;
use super::signature::signature;
use bareverbs_prm::command::entry::{CommandHeaderIn, CommandQueueEntry};
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the input and of the output that the entry itself carries.
pub(crate) const INLINE: usize = 16;
/// `type` of an entry: PCIe command transport.
const TRANSPORT_PCIE: u8 = 7;

/// The variable part of an input.
#[derive(Debug, Clone, Copy)]
pub enum Tail<'a> {
    /// There is none.
    None,
    /// Bytes, sent unchanged.
    Bytes(&'a [u8]),
    /// Addresses of consecutive pages.
    Pages {
        /// The address of the first page, including flags in its low bits.
        first: u64,
        /// log2 of the distance between pages.
        log_size: u8,
        /// Number of pages.
        count: u32,
    },
    /// Addresses of arbitrary pages.
    Addresses(&'a [u64]),
    /// Words that are computed when they are needed.
    Words(&'a dyn WordList),
}

/// The words of a variable part.
pub trait WordList: core::fmt::Debug {
    /// Number of words.
    fn count(&self) -> usize;
    /// Word number `index` in native byte order; zero beyond the end.
    fn word(&self, index: usize) -> u64;
}

impl Tail<'_> {
    fn len(&self) -> usize {
        match *self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Pages { count, .. } => count as usize * 8,
            Self::Addresses(list) => list.len() * 8,
            Self::Words(list) => list.count() * 8,
        }
    }

    /// Word number `index`; zero beyond the end.
    fn word(&self, index: usize) -> u64 {
        match *self {
            Self::Pages { first, log_size, count } if index < count as usize => {
                first.wrapping_add((index as u64) << (log_size as u32 & 63))
            }
            Self::Addresses(list) => list.get(index).copied().unwrap_or(0),
            Self::Words(list) => list.word(index),
            _ => 0,
        }
    }

    /// Writes bytes `offset..` of the tail over `out`. Bytes of `out` beyond the end of the tail keep their
    /// value.
    fn fill(&self, offset: usize, out: &mut [u8]) {
        if let Self::Bytes(bytes) = self {
            overlay(bytes, offset, out);
            return;
        }
        let mut at = 0;
        while at < out.len() && offset + at < self.len() {
            let (index, skip) = ((offset + at) / 8, (offset + at) % 8);
            let bytes = self.word(index).to_be_bytes();
            let take = (8 - skip).min(out.len() - at);
            out[at..at + take].copy_from_slice(&bytes[skip..skip + take]);
            at += take;
        }
    }
}

/// Writes `source[offset..]` over `out`, up to the end of the shorter one.
fn overlay(source: &[u8], offset: usize, out: &mut [u8]) {
    let rest = source.get(offset..).unwrap_or(&[]);
    let take = rest.len().min(out.len());
    out[..take].copy_from_slice(&rest[..take]);
}

/// An input: the fixed part, then the tail, then zeros up to the length.
///
/// ```
/// use bareverbs_core::testing::{Request, Tail};
/// use bareverbs_prm::command::pages::ManagePagesIn;
/// use bareverbs_prm::numbering::CommandOpcode;
///
/// let pages = [0x10_0000_0000, 0x10_0000_1000];
/// let mut give = ManagePagesIn::new();
/// give.set_opcode(CommandOpcode::ManagePages).set_op_mod(1).set_input_num_entries(2);
/// let request = Request::with_tail(&give, Tail::Addresses(&pages));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    fixed: &'a [u8],
    tail: Tail<'a>,
    length: usize,
}

impl<'a> Request<'a> {
    /// A command without a variable part.
    pub fn new<T: IntoBytes + Immutable>(fixed: &'a T) -> Self {
        let fixed = fixed.as_bytes();
        Self { fixed, tail: Tail::None, length: fixed.len() }
    }

    /// A command with a variable part after the fixed one.
    pub fn with_tail<T: IntoBytes + Immutable>(fixed: &'a T, tail: Tail<'a>) -> Self {
        let fixed = fixed.as_bytes();
        Self { fixed, tail, length: fixed.len() + tail.len() }
    }

    /// The same command, padded with zeros to `length` bytes if it is shorter.
    pub fn padded_to(self, length: usize) -> Self {
        Self { length: self.length.max(length), ..self }
    }

    /// Bytes of the input; at least a header.
    pub(crate) fn len(&self) -> usize {
        self.length.max(INLINE)
    }

    /// Writes bytes `offset..offset + out.len()` of the input to `out`, with zeros beyond the end.
    pub(crate) fn fill(&self, offset: usize, out: &mut [u8]) {
        out.fill(0);
        overlay(self.fixed, offset, out);
        let begin = self.fixed.len().saturating_sub(offset).min(out.len());
        self.tail.fill((offset + begin).saturating_sub(self.fixed.len()), &mut out[begin..]);
    }

    pub(crate) fn inline(&self) -> [u8; INLINE] {
        let mut bytes = [0; INLINE];
        self.fill(0, &mut bytes);
        bytes
    }

    fn header(&self) -> CommandHeaderIn {
        CommandHeaderIn::read_from_bytes(&self.inline()).unwrap_or_default()
    }

    /// The command.
    pub fn opcode(&self) -> CommandOpcode {
        self.header().opcode()
    }

    /// Its modifier.
    pub fn op_mod(&self) -> u16 {
        self.header().op_mod()
    }

    /// The error that reports the failure of this command.
    pub fn error(&self, failure: CommandFailure) -> CommandError {
        let header = self.header();
        let [_, _, a, b] = *header.dwords();
        CommandError {
            opcode: header.opcode(),
            op_mod: header.op_mod(),
            arguments: [a.get(), b.get()],
            failure,
        }
    }
}

/// The addresses of the parts of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    pub(crate) input_mailbox: u64,
    pub(crate) output_mailbox: u64,
    pub(crate) output_length: u32,
    pub(crate) token: u8,
}

/// Encodes the entry of `request`: owned by the device, and signed.
pub(crate) fn encode(request: &Request<'_>, place: Placement) -> CommandQueueEntry {
    let mut entry = CommandQueueEntry::new();
    entry
        .set_kind(TRANSPORT_PCIE)
        .set_input_length(request.len() as u32)
        .set_input_mailbox_pointer_63_32((place.input_mailbox >> 32) as u32)
        .set_input_mailbox_pointer_31_9(place.input_mailbox as u32 >> 9)
        .set_command_input_inline_data(request.inline())
        .set_output_mailbox_pointer_63_32((place.output_mailbox >> 32) as u32)
        .set_output_mailbox_pointer_31_9(place.output_mailbox as u32 >> 9)
        .set_output_length(place.output_length)
        .set_token(place.token)
        .set_ownership(true);
    entry.set_signature(signature(entry.as_bytes()));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::command::hca::EnableHcaIn;
    use bareverbs_prm::command::pages::ManagePagesIn;

    #[test]
    fn enable_hca_is_the_entry_that_linux_sends() {
        // The first command that Linux sends to a ConnectX-4, from snabbco/snabb
        // src/apps/mellanox/connectx4-boot-trace (Apache-2.0).
        let mut input = EnableHcaIn::new();
        input.set_opcode(CommandOpcode::EnableHca);
        let place = Placement { input_mailbox: 0, output_mailbox: 0, output_length: 16, token: 1 };
        let entry = encode(&Request::new(&input), place);
        let mut expected = [0; 64];
        expected[..8].copy_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0x10]);
        expected[0x10..0x14].copy_from_slice(&[1, 4, 0, 0]);
        expected[0x38..].copy_from_slice(&[0, 0, 0, 0x10, 0x01, 0xfd, 0x00, 0x01]);
        assert_eq!(entry.as_bytes(), expected);
    }

    #[test]
    fn parts_join_without_a_seam() {
        let mut input = ManagePagesIn::new();
        input.set_opcode(CommandOpcode::ManagePages).set_input_num_entries(3);
        let list = [0x1000, 0x1122_3344_5566_7000, 0x3000];
        let request = Request::with_tail(&input, Tail::Addresses(&list)).padded_to(48);
        let mut whole = [0xff; 50];
        request.fill(0, &mut whole);
        assert_eq!(request.len(), 48);
        assert_eq!(whole[24..32], 0x1122_3344_5566_7000u64.to_be_bytes());
        assert_eq!(whole[40..], [0; 10]);
        for offset in 0..48 {
            for length in 1..48 - offset {
                let mut part = [0xff; 48];
                request.fill(offset, &mut part[..length]);
                assert_eq!(part[..length], whole[offset..offset + length], "{offset}+{length}");
            }
        }
    }

    #[test]
    fn a_run_of_pages_is_a_list() {
        let input = ManagePagesIn::new();
        let run = Tail::Pages { first: 0x7000_0000, log_size: 12, count: 3 };
        let list = [0x7000_0000, 0x7000_1000, 0x7000_2000];
        let (mut a, mut b) = ([0; 48], [0; 48]);
        Request::with_tail(&input, run).fill(0, &mut a);
        Request::with_tail(&input, Tail::Addresses(&list)).fill(0, &mut b);
        assert_eq!(a, b);
    }
}
