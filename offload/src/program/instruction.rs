//! Instructions of eBPF (RFC 9669): eight bytes, little-endian, and what they mean.
//!
//! [`Operation::decode`] knows the subset that programs may use. For everything else it says why it is
//! refused.

use super::helpers::Helper;
use core::fmt;
use zerocopy::little_endian::{I16, I32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The register that points to the end of the stack; programs may not write to it.
pub const FRAME_POINTER: u8 = 10;

/// One slot of a program; a constant of 64 bits takes two.
///
/// ```
/// use bareverbs_offload::program::{Instruction, Operation};
///
/// let code = [Instruction::new(0xb7, 0, 0, 0, 1), Instruction::new(0x95, 0, 0, 0, 0)];
/// let text = |at| Operation::decode(&code, at).map(|operation| operation.to_string());
/// assert_eq!([text(0), text(1)], [Ok("r0 = 1".to_owned()), Ok("exit".to_owned())]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Instruction {
    pub(super) opcode: u8,
    /// Destination in the low half, source in the high half.
    registers: u8,
    pub(super) offset: I16,
    pub(super) immediate: I32,
}

impl Instruction {
    /// An instruction with these fields.
    pub const fn new(opcode: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Self {
        let registers = destination & 15 | source << 4;
        Self { opcode, registers, offset: I16::new(offset), immediate: I32::new(immediate) }
    }
    pub(super) const fn destination(self) -> u8 {
        self.registers & 15
    }
    pub(super) const fn source(self) -> u8 {
        self.registers >> 4
    }
}

/// The numbers of RFC 9669.
pub(super) mod numbers {
    pub(crate) const CLASS: u8 = 0x07;
    pub(crate) const LD: u8 = 0x00;
    pub(crate) const LDX: u8 = 0x01;
    pub(crate) const ST: u8 = 0x02;
    pub(crate) const STX: u8 = 0x03;
    pub(crate) const ALU: u8 = 0x04;
    pub(crate) const JMP: u8 = 0x05;
    pub(crate) const JMP32: u8 = 0x06;
    pub(crate) const ALU64: u8 = 0x07;
    pub(crate) const REGISTER: u8 = 0x08;
    pub(crate) const MEM: u8 = 0x60;
    pub(crate) const ATOMIC: u8 = 0xc0;
    pub(crate) const W: u8 = 0x00;
    pub(crate) const H: u8 = 0x08;
    pub(crate) const B: u8 = 0x10;
    pub(crate) const DW: u8 = 0x18;
    pub(crate) const ADD: u8 = 0x00;
    pub(crate) const SUB: u8 = 0x10;
    pub(crate) const MUL: u8 = 0x20;
    pub(crate) const DIV: u8 = 0x30;
    pub(crate) const OR: u8 = 0x40;
    pub(crate) const AND: u8 = 0x50;
    pub(crate) const LSH: u8 = 0x60;
    pub(crate) const RSH: u8 = 0x70;
    pub(crate) const NEG: u8 = 0x80;
    pub(crate) const MOD: u8 = 0x90;
    pub(crate) const XOR: u8 = 0xa0;
    #[cfg(test)]
    pub(crate) const MOV: u8 = 0xb0;
    pub(crate) const ARSH: u8 = 0xc0;
    pub(crate) const END: u8 = 0xd0;
    pub(crate) const JA: u8 = 0x00;
    pub(crate) const JEQ: u8 = 0x10;
    pub(crate) const JGT: u8 = 0x20;
    pub(crate) const JGE: u8 = 0x30;
    pub(crate) const JSET: u8 = 0x40;
    pub(crate) const JNE: u8 = 0x50;
    pub(crate) const JSGT: u8 = 0x60;
    pub(crate) const JSGE: u8 = 0x70;
    pub(crate) const CALL: u8 = 0x80;
    pub(crate) const EXIT: u8 = 0x90;
    pub(crate) const JLT: u8 = 0xa0;
    pub(crate) const JLE: u8 = 0xb0;
    pub(crate) const JSLT: u8 = 0xc0;
    pub(crate) const JSLE: u8 = 0xd0;
    pub(crate) const LDDW: u8 = LD | DW;
}
use numbers as n;

/// The right-hand operand of a computation, comparison or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Register(u8),
    /// A constant, sign-extended if 64 bits are needed.
    Immediate(i32),
}

/// What an instruction does. It is printed as LLVM prints it, but for helpers, which have names.
///
/// ```
/// use bareverbs_offload::program::{Helper, Illegal, Instruction, Operation};
///
/// let call = |helper| Operation::decode(&[Instruction::new(0x85, 0, 0, 0, helper)], 0);
/// assert_eq!(call(1), Ok(Operation::Call(Helper::Crc32c)));
/// assert_eq!(call(99), Err(Illegal::Helper(99)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `destination op= source`, in 64 or in 32 bits; `op` is one of RFC 9669's numbers, without class.
    Compute {
        /// The number of the operation.
        code: u8,
        /// In 64 bits.
        wide: bool,
        /// Where the result goes.
        destination: u8,
        /// The other operand.
        source: Operand,
    },
    /// The bytes of a register in big-endian or little-endian order.
    Swap {
        /// To big-endian.
        big: bool,
        /// 16, 32 or 64.
        bits: u8,
        /// The register.
        destination: u8,
    },
    /// A constant of 64 bits; two slots.
    Constant {
        /// Where it goes.
        destination: u8,
        /// Its value.
        value: u64,
    },
    /// Loads a register from memory.
    Load {
        /// Where it goes.
        destination: u8,
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i16,
        /// 1, 2, 4 or 8.
        bytes: u8,
    },
    /// Stores a register or a constant to memory.
    Store {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i16,
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// What is stored.
        source: Operand,
    },
    /// Jumps, if there is no condition or it holds.
    Jump {
        /// Slots from the next instruction.
        offset: i16,
        /// The condition.
        condition: Option<Condition>,
    },
    /// Calls a helper.
    Call(Helper),
    /// Ends the step.
    Exit,
}

/// The condition of a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// The number of the comparison, without class.
    pub code: u8,
    /// In 64 bits.
    pub wide: bool,
    /// The left side.
    pub left: u8,
    /// The right side.
    pub right: Operand,
}

/// Features of eBPF that programs may not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Loads from a packet.
    PacketAccess = 1,
    /// Maps, and addresses of variables.
    Maps = 2,
    /// Sign-extending loads.
    SignExtension = 3,
    /// Atomic operations.
    Atomics = 4,
    /// Signed division and sign-extending moves.
    SignedDivision = 5,
    /// Unconditional byte swaps.
    Swaps = 6,
    /// Jumps with a 32-bit offset.
    LongJumps = 7,
    /// Calls between functions of the program.
    Functions = 8,
    /// Calls of Linux kernel functions.
    KernelFunctions = 9,
}

impl Feature {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::PacketAccess,
        Self::Maps,
        Self::SignExtension,
        Self::Atomics,
        Self::SignedDivision,
        Self::Swaps,
        Self::LongJumps,
        Self::Functions,
        Self::KernelFunctions,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::PacketAccess => "packet access",
            Self::Maps => "maps, and addresses of variables",
            Self::SignExtension => "loads that extend the sign (compile with -mcpu=v3)",
            Self::Atomics => "atomic operations",
            Self::SignedDivision => "signed division and moves that extend the sign (compile with -mcpu=v3)",
            Self::Swaps => "unconditional byte swaps (compile with -mcpu=v3)",
            Self::LongJumps => "long jumps (compile with -mcpu=v3)",
            Self::Functions => "calls between functions (mark them always_inline)",
            Self::KernelFunctions => "calls of functions of the kernel",
        }
    }
}

/// Why eight bytes are not an instruction that a program may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Illegal {
    /// There is no such op-code.
    Opcode(u8),
    /// There is such an instruction, but programs may not use it.
    Unsupported(Feature),
    /// A field that the instruction does not use is not zero.
    ReservedField,
    /// There is no such register.
    Register(u8),
    /// The second half of a constant is missing or malformed.
    CutConstant,
    /// There is no such helper.
    Helper(i32),
}

impl Operation {
    /// The instruction that begins at slot `at`.
    pub fn decode(code: &[Instruction], at: usize) -> Result<Self, Illegal> {
        let raw = code.get(at).copied().ok_or(Illegal::CutConstant)?;
        for register in [raw.destination(), raw.source()] {
            if register > FRAME_POINTER {
                return Err(Illegal::Register(register));
            }
        }
        match raw.opcode & n::CLASS {
            n::LD => constant(raw, code.get(at + 1)),
            n::LDX | n::ST | n::STX => access(raw),
            n::ALU | n::ALU64 => compute(raw),
            _ => jump(raw),
        }
    }

    /// Slots that the instruction takes.
    pub const fn slots(&self) -> usize {
        if matches!(self, Self::Constant { .. }) { 2 } else { 1 }
    }
}

fn constant(raw: Instruction, next: Option<&Instruction>) -> Result<Operation, Illegal> {
    if raw.opcode != n::LDDW {
        return Err(match raw.opcode & 0xe0 {
            0x20 | 0x40 => Illegal::Unsupported(Feature::PacketAccess),
            _ => Illegal::Opcode(raw.opcode),
        });
    }
    if raw.source() != 0 {
        return Err(Illegal::Unsupported(Feature::Maps));
    }
    let next = next.filter(|next| next.opcode == 0 && next.registers == 0 && next.offset.get() == 0);
    let high = next.ok_or(Illegal::CutConstant)?.immediate.get();
    if raw.offset.get() != 0 {
        return Err(Illegal::ReservedField);
    }
    let value = u64::from(high as u32) << 32 | u64::from(raw.immediate.get() as u32);
    Ok(Operation::Constant { destination: raw.destination(), value })
}

fn access(raw: Instruction) -> Result<Operation, Illegal> {
    let class = raw.opcode & n::CLASS;
    let bytes = match raw.opcode & 0x18 {
        n::W => 4,
        n::H => 2,
        n::B => 1,
        _ => 8,
    };
    match (raw.opcode & 0xe0, class) {
        (n::MEM, _) => {}
        (0x80, n::LDX) => {
            return Err(Illegal::Unsupported(Feature::SignExtension));
        }
        (n::ATOMIC, n::STX) => return Err(Illegal::Unsupported(Feature::Atomics)),
        _ => return Err(Illegal::Opcode(raw.opcode)),
    }
    let (destination, source, offset) = (raw.destination(), raw.source(), raw.offset.get());
    let unused = match class {
        n::LDX | n::STX => raw.immediate.get() == 0,
        _ => source == 0,
    };
    if !unused {
        return Err(Illegal::ReservedField);
    }
    Ok(match class {
        n::LDX => Operation::Load { destination, base: source, offset, bytes },
        n::STX => Operation::Store { base: destination, offset, bytes, source: Operand::Register(source) },
        _ => {
            let source = Operand::Immediate(raw.immediate.get());
            Operation::Store { base: destination, offset, bytes, source }
        }
    })
}

/// The second operand. The field that it does not use must be zero.
fn operand(raw: Instruction) -> Result<Operand, Illegal> {
    let (source, immediate) = (raw.source(), raw.immediate.get());
    match raw.opcode & n::REGISTER {
        0 if source == 0 => Ok(Operand::Immediate(immediate)),
        n::REGISTER if immediate == 0 => Ok(Operand::Register(source)),
        _ => Err(Illegal::ReservedField),
    }
}

fn compute(raw: Instruction) -> Result<Operation, Illegal> {
    let (code, wide, destination) = (raw.opcode & 0xf0, raw.opcode & n::CLASS == n::ALU64, raw.destination());
    if code > n::END {
        return Err(Illegal::Opcode(raw.opcode));
    }
    if code == n::END {
        return swap(raw, wide);
    }
    if raw.offset.get() != 0 {
        return Err(Illegal::Unsupported(Feature::SignedDivision));
    }
    let source = operand(raw)?;
    if code == n::NEG && source != Operand::Immediate(0) {
        return Err(Illegal::ReservedField);
    }
    Ok(Operation::Compute { code, wide, destination, source })
}

fn swap(raw: Instruction, wide: bool) -> Result<Operation, Illegal> {
    if wide {
        return Err(Illegal::Unsupported(Feature::Swaps));
    }
    let bits = match raw.immediate.get() {
        16 => 16,
        32 => 32,
        64 => 64,
        _ => return Err(Illegal::ReservedField),
    };
    if raw.source() != 0 || raw.offset.get() != 0 {
        return Err(Illegal::ReservedField);
    }
    Ok(Operation::Swap { big: raw.opcode & n::REGISTER != 0, bits, destination: raw.destination() })
}

fn jump(raw: Instruction) -> Result<Operation, Illegal> {
    let (code, wide) = (raw.opcode & 0xf0, raw.opcode & n::CLASS == n::JMP);
    let (left, offset) = (raw.destination(), raw.offset.get());
    let register = raw.opcode & n::REGISTER != 0;
    match code {
        n::JA | n::CALL | n::EXIT if register => Err(Illegal::Opcode(raw.opcode)),
        n::JA if !wide => Err(Illegal::Unsupported(Feature::LongJumps)),
        n::CALL | n::EXIT if !wide => Err(Illegal::Opcode(raw.opcode)),
        n::CALL => call(raw),
        n::JA | n::EXIT if raw.registers != 0 || raw.immediate.get() != 0 => Err(Illegal::ReservedField),
        n::EXIT if offset != 0 => Err(Illegal::ReservedField),
        n::EXIT => Ok(Operation::Exit),
        n::JA => Ok(Operation::Jump { offset, condition: None }),
        _ if code > n::JSLE => Err(Illegal::Opcode(raw.opcode)),
        _ => {
            let condition = Some(Condition { code, wide, left, right: operand(raw)? });
            Ok(Operation::Jump { offset, condition })
        }
    }
}

fn call(raw: Instruction) -> Result<Operation, Illegal> {
    match raw.source() {
        0 if raw.destination() == 0 && raw.offset.get() == 0 => {
            let number = raw.immediate.get();
            Helper::from_number(number).map(Operation::Call).ok_or(Illegal::Helper(number))
        }
        0 => Err(Illegal::ReservedField),
        1 => Err(Illegal::Unsupported(Feature::Functions)),
        _ => Err(Illegal::Unsupported(Feature::KernelFunctions)),
    }
}

impl Operand {
    /// Writes the operand as a name: `r3` in 64 bits, `w3` in 32.
    fn write(self, f: &mut fmt::Formatter<'_>, wide: bool) -> fmt::Result {
        match self {
            Self::Register(number) => write!(f, "{}{number}", prefix(wide)),
            Self::Immediate(value) => write!(f, "{value}"),
        }
    }
}

const fn prefix(wide: bool) -> char {
    if wide { 'r' } else { 'w' }
}

/// An offset as LLVM prints it.
struct Offset(i16);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.0 < 0 { '-' } else { '+' }, self.0.unsigned_abs())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.code {
            n::JEQ => "==",
            n::JGT => ">",
            n::JGE => ">=",
            n::JSET => "&",
            n::JNE => "!=",
            n::JSGT => "s>",
            n::JSGE => "s>=",
            n::JLT => "<",
            n::JLE => "<=",
            n::JSLT => "s<",
            _ => "s<=",
        };
        write!(f, "if {}{} {operator} ", prefix(self.wide), self.left)?;
        self.right.write(f, self.wide)
    }
}

fn operator(code: u8) -> &'static str {
    match code {
        n::ADD => "+=",
        n::SUB => "-=",
        n::MUL => "*=",
        n::DIV => "/=",
        n::OR => "|=",
        n::AND => "&=",
        n::LSH => "<<=",
        n::RSH => ">>=",
        n::MOD => "%=",
        n::XOR => "^=",
        n::ARSH => "s>>=",
        _ => "=",
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = |bytes: u8| bytes * 8;
        match *self {
            Self::Compute { code: n::NEG, wide, destination: to, .. } => {
                write!(f, "{0}{to} = -{0}{to}", prefix(wide))
            }
            Self::Compute { code, wide, destination, source } => {
                write!(f, "{}{destination} {} ", prefix(wide), operator(code))?;
                source.write(f, wide)
            }
            Self::Swap { big, bits, destination: to } => {
                write!(f, "r{to} = {}{bits} r{to}", if big { "be" } else { "le" })
            }
            Self::Constant { destination, value } => write!(f, "r{destination} = {value} ll"),
            Self::Load { destination, base, offset, bytes } => {
                write!(f, "r{destination} = *(u{} *)(r{base} {})", bits(bytes), Offset(offset))
            }
            Self::Store { base, offset, bytes, source } => {
                write!(f, "*(u{} *)(r{base} {}) = ", bits(bytes), Offset(offset))?;
                source.write(f, true)
            }
            Self::Jump { offset, condition: None } => write!(f, "goto {offset:+}"),
            Self::Jump { offset, condition: Some(condition) } => write!(f, "{condition} goto {offset:+}"),
            Self::Call(helper) => write!(f, "call {helper}"),
            Self::Exit => f.write_str("exit"),
        }
    }
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode(opcode) => write!(f, "there is no op-code {opcode:#04x}"),
            Self::Unsupported(feature) => write!(f, "programs may not have {}", feature.text()),
            Self::ReservedField => f.write_str("a field that the instruction does not use is not zero"),
            Self::Register(number) => write!(f, "there is no register r{number}"),
            Self::CutConstant => f.write_str("the second half of a 64-bit constant is missing"),
            Self::Helper(number) => write!(f, "there is no helper {number}"),
        }
    }
}

impl fmt::Debug for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
