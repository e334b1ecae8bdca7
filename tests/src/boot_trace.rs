//! Reader of `tests/vectors/connectx4/boot-trace.txt`: commands and replies of a real ConnectX-4 at boot.

use crate::prm_tables::vector;
use bareverbs_prm::command::entry::{CommandMailbox, CommandQueueEntry};
use bareverbs_prm::field::LayoutInfo;
use zerocopy::FromBytes;

/// Bytes of a command's input or output that the queue entry itself holds.
pub const INLINE: usize = 16;
/// Bytes of data in a mailbox block.
pub const BLOCK_DATA: usize = 512;

/// A queue entry and the mailbox blocks that were dumped with it.
#[derive(Debug, Clone)]
pub struct Dump {
    /// The queue entry.
    pub entry: CommandQueueEntry,
    /// The blocks of the input, or of the output, in the order of the chain; the log may lack some of them.
    pub blocks: Vec<CommandMailbox>,
    /// The bytes as dumped.
    pub bytes: Vec<u8>,
}

/// A command and its reply.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The opcode that the log names.
    pub opcode: u16,
    /// What the driver wrote.
    pub input: Dump,
    /// What the device left.
    pub output: Dump,
    /// The driver's notes about the reply.
    pub notes: Vec<String>,
}

impl Dump {
    fn new(bytes: Vec<u8>) -> Self {
        let (entry, mut rest) =
            CommandQueueEntry::read_from_prefix(&bytes).expect("a dump begins with an entry");
        let mut blocks = Vec::new();
        while let Ok((block, tail)) = CommandMailbox::read_from_prefix(rest) {
            blocks.push(block);
            rest = tail;
        }
        assert!(rest.is_empty(), "a dump ends inside a block");
        Self { entry, blocks, bytes }
    }

    fn payload(&self, inline: [u8; INLINE], length: u32) -> Vec<u8> {
        let mut bytes = inline.to_vec();
        self.blocks.iter().for_each(|block| bytes.extend(block.mailbox_data()));
        bytes.truncate(length as usize);
        bytes
    }
}

impl Exchange {
    /// The input, as far as the log has it.
    pub fn inbox(&self) -> Vec<u8> {
        let entry = &self.input.entry;
        self.input.payload(entry.command_input_inline_data(), entry.input_length())
    }

    /// Whether the log has the whole input.
    pub fn inbox_is_whole(&self) -> bool {
        self.inbox().len() == self.input.entry.input_length() as usize
    }

    /// The output, as far as the log has it.
    pub fn outbox(&self) -> Vec<u8> {
        let entry = &self.output.entry;
        self.output.payload(entry.command_output_inline_data(), entry.output_length())
    }

    /// Whether the log has the whole output.
    pub fn outbox_is_whole(&self) -> bool {
        self.outbox().len() == self.output.entry.output_length() as usize
    }

    /// The number that follows `phrase` in one of the driver's notes.
    pub fn noted(&self, phrase: &str) -> Option<u64> {
        let rest = self.notes.iter().find_map(|note| note.split_once(phrase))?.1.trim_start();
        let digits = rest.split_whitespace().next()?;
        digits.strip_prefix("0x").map_or_else(|| digits.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
    }
}

/// One dump of the file before pairing.
struct RawDump {
    opcode: u16,
    is_input: bool,
    bytes: Vec<u8>,
}

/// Reads the whole trace.
pub fn load() -> Vec<Exchange> {
    let path = vector("connectx4/boot-trace.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut exchanges, mut input, mut current) = (Vec::<Exchange>::new(), None, None);
    for line in text.lines() {
        match line.split_once(' ').expect("a line has a word and a value") {
            ("command", rest) => {
                pair(current.replace(raw_dump(rest)), &mut input, &mut exchanges);
            }
            ("note", note) => {
                pair(current.take(), &mut input, &mut exchanges);
                if let Some(exchange) = exchanges.last_mut() {
                    exchange.notes.push(note.to_owned());
                }
            }
            (offset, bytes) => fill(current.as_mut().expect("bytes belong to a command"), offset, bytes),
        }
    }
    pair(current, &mut input, &mut exchanges);
    exchanges
}

/// Parses `0x100 input 64`: the opcode, the direction, and how many bytes follow; bytes that the file does
/// not list are zero.
fn raw_dump(text: &str) -> RawDump {
    let mut words = text.split(' ');
    let mut word = || words.next().expect("a command line has three values");
    let opcode = u16::from_str_radix(word().trim_start_matches("0x"), 16).expect("an opcode");
    let is_input = word() == "input";
    RawDump { opcode, is_input, bytes: vec![0; word().parse().expect("a length")] }
}

fn fill(dump: &mut RawDump, offset: &str, hex: &str) {
    let start = usize::from_str_radix(offset, 16).expect("an offset");
    for (i, digits) in hex.as_bytes().chunks(2).enumerate() {
        let digits = std::str::from_utf8(digits).expect("ASCII");
        dump.bytes[start + i] = u8::from_str_radix(digits, 16).expect("a byte");
    }
}

fn pair(dump: Option<RawDump>, input: &mut Option<RawDump>, exchanges: &mut Vec<Exchange>) {
    let Some(dump) = dump else { return };
    if dump.is_input {
        assert!(input.replace(dump).is_none(), "two inputs without an output");
        return;
    }
    let sent = input.take().expect("an output follows an input");
    assert_eq!(sent.opcode, dump.opcode, "an output answers its input");
    exchanges.push(Exchange {
        opcode: sent.opcode,
        input: Dump::new(sent.bytes),
        output: Dump::new(dump.bytes),
        notes: Vec::new(),
    });
}

/// Set bits of `bytes` inside the fixed part of a layout that no declared field covers, as bit offsets.
pub fn undeclared_bits(info: &LayoutInfo, bytes: &[u8]) -> Vec<u32> {
    let fixed = (info.dwords * 32).min(bytes.len() * 8) as u32;
    let is_set = |bit: u32| bytes[bit as usize / 8] & (0x80 >> (bit % 8)) != 0;
    (0..fixed).filter(|&bit| is_set(bit) && !declares(info, bit)).collect()
}

fn declares(info: &LayoutInfo, bit: u32) -> bool {
    let holds = |offset: u32, width: u32| (offset..offset + width).contains(&bit);
    info.fields.iter().filter(|field| holds(field.bit_offset, field.bit_width)).any(|field| {
        match field.part {
            None => true,
            Some(part) => declares(part, bit - field.bit_offset),
        }
    })
}

/// Signature of a queue entry: the complement of the XOR of its other bytes (PRM, command interface).
pub fn signature_of(entry: &[u8]) -> u8 {
    const SIGNATURE: usize = 61;
    !entry.iter().enumerate().filter(|&(i, _)| i != SIGNATURE).fold(0, |sum, (_, byte)| sum ^ byte)
}

/// Address of the first input block of a command; zero if there is none.
pub fn input_pointer(entry: &CommandQueueEntry) -> u64 {
    u64::from(entry.input_mailbox_pointer_63_32()) << 32 | u64::from(entry.input_mailbox_pointer_31_9()) << 9
}

/// Address of the first output block of a command; zero if there is none.
pub fn output_pointer(entry: &CommandQueueEntry) -> u64 {
    u64::from(entry.output_mailbox_pointer_63_32()) << 32
        | u64::from(entry.output_mailbox_pointer_31_9()) << 9
}

/// Address of the block after this one.
pub fn next_block(block: &CommandMailbox) -> u64 {
    u64::from(block.next_pointer_63_32()) << 32 | u64::from(block.next_pointer_31_10()) << 10
}

/// Mailbox blocks that `length` bytes of input or output need besides the entry.
pub fn blocks_for(length: u32) -> usize {
    (length as usize).saturating_sub(INLINE).div_ceil(BLOCK_DATA)
}
