//! A verified program in the form that runs: decoded once, when it is verified.
//!
//! Every slot of the program has an operation, so that a jump goes where it went before and a fault names the
//! same instruction. An access to memory also has a guess of the segment that it goes to, which makes the usual
//! case cheap. A guess may be wrong: whoever runs the operation compares it with the address.

use super::instruction::{FRAME_POINTER, Instruction, numbers as n};
use super::limits::{MAX_INSTRUCTIONS, STACK};
use super::memory::Segment;

/// Op-codes that only decoded operations have. A decoded access has its segment in place of its mode, see
/// [`Guess::mode`].
pub(super) mod numbers {
    /// The least and the greatest number mean something, so that no number has to be compared with them.
    pub(crate) const CONSTANT: u8 = 0x00;
    pub(crate) const LITTLE_64: u8 = 0xff;
    pub(crate) const NONE: u8 = 0x06;
    pub(crate) const LITTLE_16: u8 = 0xc0;
    pub(crate) const LITTLE_32: u8 = 0xd0;
    pub(crate) const BIG_16: u8 = 0xc8;
    pub(crate) const BIG_32: u8 = 0xd8;
    pub(crate) const BIG_64: u8 = 0xe8;
}
use numbers as d;

/// What one slot does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) opcode: u8,
    pub(super) destination: Register,
    /// Added to an address, or to the number of the next slot by a jump.
    pub(super) offset: i16,
    /// The constant, or the number of the source register.
    pub(super) value: i32,
}

/// The operations of a program. Slots after its last one have no operation.
pub(super) type DecodedProgram = [Decoded; MAX_INSTRUCTIONS];

const NONE: Decoded = Decoded { opcode: d::NONE, destination: Register::R0, offset: 0, value: 0 };

/// A register as a number that is always one, so that it needs no check where it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

impl Register {
    const ALL: [Self; 11] = [
        Self::R0,
        Self::R1,
        Self::R2,
        Self::R3,
        Self::R4,
        Self::R5,
        Self::R6,
        Self::R7,
        Self::R8,
        Self::R9,
        Self::R10,
    ];

    /// The register with this number; verified instructions have no other ones.
    fn numbered(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::R0)
    }
}

/// Decodes a verified program.
pub(super) fn decode(code: &[Instruction]) -> DecodedProgram {
    let mut operations = [NONE; MAX_INSTRUCTIONS];
    let mut guesses = Guesses::new();
    // Of each slot, the registers that point to the window where a jump to it comes from.
    let mut windows = [0_u16; MAX_INSTRUCTIONS];
    let mut second_half = false;
    for (at, (operation, raw)) in operations.iter_mut().zip(code).enumerate() {
        guesses.join(windows.get(at).copied().unwrap_or(0));
        *operation = one(*raw, &guesses);
        if !second_half {
            if let Some(place) = forward(at, *raw).and_then(|target| windows.get_mut(target)) {
                *place |= guesses.windows();
            }
            guesses.follow(*raw);
        }
        second_half = raw.opcode == n::LDDW;
    }
    operations
}

/// Where an instruction jumps to, if that is behind it.
fn forward(at: usize, raw: Instruction) -> Option<usize> {
    let jumps = matches!(raw.opcode & n::CLASS, n::JMP | n::JMP32);
    if !jumps || matches!(raw.opcode & 0xf0, n::CALL | n::EXIT) {
        return None;
    }
    Some(at + 1 + usize::try_from(raw.offset.get()).ok()?)
}

/// The segment that an access probably goes to; `None` if there is no guess, or no access.
pub(super) const fn guess(operation: &Decoded) -> Option<Segment> {
    match operation.opcode & n::CLASS {
        n::LDX | n::ST | n::STX => Guess::in_mode(operation.opcode).0,
        _ => None,
    }
}

fn one(raw: Instruction, guesses: &Guesses) -> Decoded {
    let (to, source) = (raw.destination(), raw.source());
    let destination = Register::numbered(to);
    let (opcode, offset, value) = (raw.opcode, raw.offset.get(), raw.immediate.get());
    let plain = Decoded { opcode, destination, offset, value };
    let register = Decoded { value: source.into(), ..plain };
    let accesses = |operation, base| Decoded { opcode: guesses.of(base).opcode(opcode), ..operation };
    match opcode & n::CLASS {
        n::LDX => accesses(register, source),
        n::STX => accesses(register, to),
        n::ST => accesses(plain, to),
        // The second half of a constant has no operation of its own; its first half takes the value.
        n::LD if opcode == n::LDDW => Decoded { opcode: d::CONSTANT, ..plain },
        n::LD => Decoded { opcode: d::NONE, ..plain },
        n::ALU if opcode & 0xf0 == n::END => Decoded { opcode: swap(opcode, value), ..plain },
        n::ALU | n::ALU64 | n::JMP | n::JMP32 if opcode & n::REGISTER != 0 => register,
        _ => plain,
    }
}

const fn swap(opcode: u8, bits: i32) -> u8 {
    match (opcode & n::REGISTER != 0, bits) {
        (false, 16) => d::LITTLE_16,
        (false, 32) => d::LITTLE_32,
        (false, _) => d::LITTLE_64,
        (true, 16) => d::BIG_16,
        (true, 32) => d::BIG_32,
        (true, _) => d::BIG_64,
    }
}

/// The segment that a register probably points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Guess(Option<Segment>);

impl Guess {
    const NOTHING: Self = Self(None);

    /// What stands in place of the mode in the op-code of an access.
    const fn mode(self, store: bool) -> u8 {
        match self.0 {
            Some(Segment::Context) => 0x20,
            Some(Segment::Parameters) if !store => 0x40,
            Some(Segment::Window) if !store => 0x00,
            Some(Segment::State) => 0x80,
            Some(Segment::Stack) => 0xa0,
            _ => n::MEM,
        }
    }

    const fn opcode(self, opcode: u8) -> u8 {
        opcode & 0x1f | self.mode(opcode & n::CLASS != n::LDX)
    }

    /// The guess that stands in the op-code of a decoded access.
    const fn in_mode(opcode: u8) -> Self {
        Self(match opcode & 0xe0 {
            0x20 => Some(Segment::Context),
            0x40 => Some(Segment::Parameters),
            0x00 => Some(Segment::Window),
            0x80 => Some(Segment::State),
            0xa0 => Some(Segment::Stack),
            _ => None,
        })
    }
}

/// Words of the stack.
const WORDS: usize = STACK / 8;

/// What registers and words of the stack probably point to. Follows the instructions in their order, whatever
/// jumps there are: compilers keep a pointer where it is. Where ways meet on which a register points to the parameters and to
/// the window, the window is more probable: every step but the first has one.
struct Guesses {
    registers: [Guess; 16],
    stack: [Guess; WORDS],
}

impl Guesses {
    fn new() -> Self {
        let mut registers = [Guess::NOTHING; 16];
        registers[1] = Guess(Some(Segment::Context));
        registers[usize::from(FRAME_POINTER)] = Guess(Some(Segment::Stack));
        Self { registers, stack: [Guess::NOTHING; WORDS] }
    }

    fn of(&self, register: u8) -> Guess {
        self.registers[usize::from(register & 15)]
    }

    /// The registers that point to the window, as bits.
    fn windows(&self) -> u16 {
        let points = |guess: &Guess| u16::from(guess.0 == Some(Segment::Window));
        self.registers.iter().rev().fold(0, |bits, guess| bits << 1 | points(guess))
    }

    /// A jump comes from where these registers point to the window.
    fn join(&mut self, windows: u16) {
        for (register, guess) in self.registers.iter_mut().enumerate() {
            if windows >> register & 1 != 0 && guess.0 == Some(Segment::Parameters) {
                *guess = Guess(Some(Segment::Window));
            }
        }
    }

    fn follow(&mut self, raw: Instruction) {
        let (to, from) = (raw.destination(), raw.source());
        let guess = match raw.opcode & n::CLASS {
            n::LDX => self.loaded(raw),
            n::STX => return self.stored(raw),
            n::ALU64 => match raw.opcode {
                // r = r
                0xbf => self.of(from),
                // r += number, r -= number
                0x07 | 0x17 | 0x1f => self.of(to),
                // r += r: a pointer and a number, whichever is which
                0x0f if self.of(to) == Guess::NOTHING => self.of(from),
                0x0f => self.of(to),
                _ => Guess::NOTHING,
            },
            n::ALU | n::LD => Guess::NOTHING,
            _ if raw.opcode & 0xf0 == n::CALL => {
                self.registers[..6].fill(Guess::NOTHING);
                return;
            }
            _ => return,
        };
        self.registers[usize::from(to)] = guess;
    }

    fn loaded(&self, raw: Instruction) -> Guess {
        let (base, offset) = (raw.source(), raw.offset.get());
        match self.of(base) {
            _ if raw.opcode != n::LDX | n::MEM | n::DW => Guess::NOTHING,
            Guess(Some(Segment::Context)) => {
                Guess(usize::try_from(offset).ok().and_then(Segment::pointed_to_at))
            }
            _ if base == FRAME_POINTER => {
                word(offset).and_then(|word| self.stack.get(word)).copied().unwrap_or(Guess::NOTHING)
            }
            _ => Guess::NOTHING,
        }
    }

    fn stored(&mut self, raw: Instruction) {
        let guess = self.of(raw.source());
        if raw.destination() == FRAME_POINTER
            && let Some(place) = word(raw.offset.get()).and_then(|word| self.stack.get_mut(word))
        {
            *place = if raw.opcode == n::STX | n::MEM | n::DW { guess } else { Guess::NOTHING };
        }
    }
}

/// The word of the stack at an offset from its end.
fn word(offset: i16) -> Option<usize> {
    usize::try_from(STACK as i16 + offset).ok().map(|from| from / 8)
}
