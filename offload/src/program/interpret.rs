//! Runs one step of a verified program without allocation or recursion; fuel bounds it.

use super::code::Program;
use super::decoded::{Decoded, numbers as d};
use super::fault::Fault;
use super::helpers::call;
use super::limits::MAX_INSTRUCTIONS;
use super::machine::{Exit, Position, Registers, beginning};
use super::memory::{Memory, Segment, outside};
use super::operators::with_operators;
use super::plain;

/// Jumps. Returns if the fuel may not last from there on.
macro_rules! jump {
    ($operation:ident, $position:ident, $length:ident, $taken:expr) => {
        if $taken {
            $position.skip($operation.offset);
            if $position.dry < $length {
                return Ok(Run::Low);
            }
        }
    };
}

/// Loads a register: from the segment that was guessed, else from the one that the address names.
macro_rules! load {
    ($operation:ident, $registers:ident, $position:ident, $memory:ident, $guess:expr, $type:ident) => {{
        let address = $registers.right($operation).wrapping_add_signed($operation.offset.into());
        let guessed = $guess.and_then(|segment| $memory.load_from(segment, address));
        match guessed.or_else(|| $memory.load_anywhere(address)) {
            Some(bytes) => $registers.set($operation, $type::from_le_bytes(bytes).into()),
            None => return Err(outside(size_of::<$type>(), $position.current(), address, false)),
        }
    }};
}

/// Stores bytes: to the segment that was guessed, else to the one that the address names.
macro_rules! store {
    ($operation:ident, $registers:ident, $position:ident, $memory:ident, $guess:expr, $value:ident) => {{
        let bytes = $value.to_le_bytes();
        let address = $registers.left($operation).wrapping_add_signed($operation.offset.into());
        let stored = match $guess {
            Some(segment) => $memory.store_to(segment, address, bytes),
            None => false,
        };
        if !stored && !$memory.store_anywhere(address, bytes) {
            return Err(outside(size_of_val(&bytes), $position.current(), address, true));
        }
    }};
}

/// One arm for each opcode of RFC 9669 with a constant on the right, and one for each with a register, so
/// that each instruction costs one jump. Accesses have an arm for each segment.
macro_rules! dispatch {
    (
        $operation:ident, $registers:ident, $position:ident, $length:ident, $memory:ident;
        wide { $($wide:literal $wide_register:literal => $on_wide:expr,)* }
        narrow { $($narrow:literal $narrow_register:literal => $on_narrow:expr,)* }
        jump { $($jump:literal $jump_register:literal => $if_wide:expr,)* }
        narrow_jump { $($short:literal $short_register:literal => $if_narrow:expr,)* }
        load { $($segment_load:ident $b:literal $h:literal $w:literal $dw:literal,)* }
        store { $($segment_store:ident $($size:ident $put:literal $store:literal)*,)* }
        others { $($others:tt)* }
    ) => {
        match $operation.opcode {
            $($wide => $registers.wide($operation, constant($operation), $on_wide),
            $wide_register => $registers.wide($operation, $registers.right($operation), $on_wide),)*
            $($narrow => $registers.narrow($operation, constant($operation), $on_narrow),
            $narrow_register => $registers.narrow($operation, $registers.right($operation), $on_narrow),)*
            $($jump => jump!($operation, $position, $length, $if_wide($registers.left($operation), constant($operation))),
            $jump_register => {
                jump!($operation, $position, $length, $if_wide($registers.left($operation), $registers.right($operation)));
            })*
            $($short => {
                let left = $registers.left($operation) as u32;
                jump!($operation, $position, $length, $if_narrow(left, constant($operation) as u32));
            }
            $short_register => {
                let left = $registers.left($operation) as u32;
                jump!($operation, $position, $length, $if_narrow(left, $registers.right($operation) as u32));
            })*
            $($b => load!($operation, $registers, $position, $memory, Guessed::$segment_load, u8),
            $h => load!($operation, $registers, $position, $memory, Guessed::$segment_load, u16),
            $w => load!($operation, $registers, $position, $memory, Guessed::$segment_load, u32),
            $dw => load!($operation, $registers, $position, $memory, Guessed::$segment_load, u64),)*
            $($($put => {
                let value = constant($operation) as $size;
                store!($operation, $registers, $position, $memory, Guessed::$segment_store, value);
            }
            $store => {
                let value = $registers.right($operation) as $size;
                store!($operation, $registers, $position, $memory, Guessed::$segment_store, value);
            })*)*
            $($others)*
        }
    };
}

/// All operations of RFC 9669; the caller supplies those that are neither computations, nor conditional jumps, nor
/// accesses.
macro_rules! execute {
    ($operation:ident, $registers:ident, $position:ident, $length:ident, $memory:ident; $($others:tt)*) => {
        with_operators! {
            $operation, $registers, $position, $length, $memory;
            load {
                Window 0x11 0x09 0x01 0x19,
                Context 0x31 0x29 0x21 0x39,
                Parameters 0x51 0x49 0x41 0x59,
                Unknown 0x71 0x69 0x61 0x79,
                State 0x91 0x89 0x81 0x99,
                Stack 0xb1 0xa9 0xa1 0xb9,
            }
            store {
                Context u8 0x32 0x33 u16 0x2a 0x2b u32 0x22 0x23 u64 0x3a 0x3b,
                Unknown u8 0x72 0x73 u16 0x6a 0x6b u32 0x62 0x63 u64 0x7a 0x7b,
                State u8 0x92 0x93 u16 0x8a 0x8b u32 0x82 0x83 u64 0x9a 0x9b,
                Stack u8 0xb2 0xb3 u16 0xaa 0xab u32 0xa2 0xa3 u64 0xba 0xbb,
            }
            others { $($others)* }
        }
    };
}

/// The segment that an access was guessed to go to.
struct Guessed;

#[allow(non_upper_case_globals, reason = "the table above names them as the segments are named")]
impl Guessed {
    const Context: Option<Segment> = Some(Segment::Context);
    const Parameters: Option<Segment> = Some(Segment::Parameters);
    const Window: Option<Segment> = Some(Segment::Window);
    const State: Option<Segment> = Some(Segment::State);
    const Stack: Option<Segment> = Some(Segment::Stack);
    const Unknown: Option<Segment> = None;
}

/// How a run ended that did not fail.
enum Run {
    Ended(Exit),
    /// The fuel may not last to the end of the program.
    Low,
}

/// Runs until `exit`.
///
/// Fuel is checked where a straight line begins: at the start, and after a jump or a call. A line is never longer than
/// what is left of the program. If the fuel may not last for that, the plain interpreter goes on.
#[inline(never)]
pub(super) fn run(program: &Program, memory: &mut Memory<'_>, fuel: u32) -> Result<Exit, Fault> {
    let (mut registers, mut position) = beginning(fuel);
    if position.dry >= program.instructions().len() as u64
        && let Run::Ended(exit) = run_lines(program, memory, &mut registers, &mut position)?
    {
        return Ok(exit);
    }
    plain::run(program.instructions(), memory, registers, position)
}

#[inline(always)]
fn run_lines(
    program: &Program,
    memory: &mut Memory<'_>,
    registers: &mut Registers,
    position: &mut Position,
) -> Result<Run, Fault> {
    let operations = program.operations();
    let length = program.instructions().len() as u64;
    loop {
        let operation = &operations[position.next as usize % MAX_INSTRUCTIONS];
        position.next = position.next.wrapping_add(1);
        execute! { operation, registers, position, length, memory;
            d::CONSTANT => {
                let high = operations[position.next as usize % MAX_INSTRUCTIONS].value as u32;
                let low = operation.value as u32;
                registers.set(operation, u64::from(high) << 32 | u64::from(low));
                position.skip(1);
            }
            d::LITTLE_16 => registers.set(operation, u64::from(registers.left(operation) as u16)),
            d::LITTLE_32 => registers.set(operation, u64::from(registers.left(operation) as u32)),
            d::LITTLE_64 => {}
            d::BIG_16 => {
                let low = registers.left(operation) as u16;
                registers.set(operation, low.swap_bytes().into());
            }
            d::BIG_32 => {
                let low = registers.left(operation) as u32;
                registers.set(operation, low.swap_bytes().into());
            }
            d::BIG_64 => registers.set(operation, registers.left(operation).swap_bytes()),
            0x05 => jump!(operation, position, length, true),
            0x85 => {
                let fuel = call(position.current(), operation.value, &mut registers.0, memory, position.fuel())?;
                position.dry = position.dry.wrapping_sub(fuel.into());
                if position.dry < length {
                    return Ok(Run::Low);
                }
            }
            0x95 => return Ok(Run::Ended(Exit { value: registers.0[0], fuel: position.fuel() })),
            // The verifier has refused every path that leads out of the program.
            _ => return Err(unverified(position.next)),
        }
    }
}

#[cold]
#[inline(never)]
const fn unverified(next: u64) -> Fault {
    Fault::Unverified { instruction: next.wrapping_sub(1) as usize }
}

/// The constant on the right, sign-extended.
#[inline(always)]
const fn constant(operation: &Decoded) -> u64 {
    operation.value as i64 as u64
}

impl Registers {
    #[inline(always)]
    fn left(&self, operation: &Decoded) -> u64 {
        self.0[operation.destination as usize]
    }

    /// The register on the right.
    #[inline(always)]
    const fn right(&self, operation: &Decoded) -> u64 {
        self.0[(operation.value & 15) as usize]
    }

    #[inline(always)]
    fn set(&mut self, operation: &Decoded, value: u64) {
        self.0[operation.destination as usize] = value;
    }

    #[inline(always)]
    fn wide(&mut self, operation: &Decoded, right: u64, compute: impl Fn(u64, u64) -> u64) {
        self.set(operation, compute(self.left(operation), right));
    }

    /// Computes in 32 bits; the high half of the result is zero.
    #[inline(always)]
    fn narrow(&mut self, operation: &Decoded, right: u64, compute: impl Fn(u32, u32) -> u32) {
        self.set(operation, compute(self.left(operation) as u32, right as u32).into());
    }
}
