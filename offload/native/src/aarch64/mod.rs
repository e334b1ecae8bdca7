//! Code of aarch64. r0 to r9 are in X0 to X9, and X10 has the end of the stack. No register is used that a function would
//! have to save (AAPCS64, section 6.1.1), and X18 belongs to the system.

pub mod encode;

use crate::access::{Access, Direction, FRAME_POINTER, Span};
use crate::buffer::Label;
use crate::frame::{
    ENTRIES, ENTRY_SHIFT, LENGTH, ORIGIN, REGISTERS, SEGMENTS, STACK_ADDRESS, STACK_END, entry, fixed_length,
    index,
};
use crate::known::Used;
use crate::operators as o;
use crate::translate::{Computation, Target};
use bareverbs_offload::program::{Condition, Operand, Segment};
use encode::{
    ConditionCode, DataProcessing, DataProcessingConstant, Register, ShiftKind, Words, ZERO, add_shifted,
    alu, alu_constant, constant, copy, high_half, is_short, jump, jump_if, jump_to, load, load_near,
    load_pair, load_sum, low_16, multiply_subtract, ret, shift_constant, store, store_near, store_pair,
    store_sum, swap_bytes, swap_bytes_of_halves,
};

const STACK: Register = Register(10);
const FRAME: Register = Register(11);
/// Free for one instruction of a program.
const OFFSET: Register = Register(12);
/// Has the origin of the segment that was accessed last, or the index of an entry.
const PLACE: Register = Register(13);
const VALUE: Register = Register(14);
const OTHER: Register = Register(15);
const FUEL_REGISTER: Register = Register(16);
/// The slot, where the code is left.
const SLOT_REGISTER: Register = Register(17);

pub struct Arm {
    code: Words,
    /// Stores the registers and leaves.
    leave: Label,
    /// Leaves with the registers stored.
    tail: Label,
}

/// The registers r0 to r9 in pairs of which at least one is used, with the offsets at which they are kept outside.
fn pairs(used: [bool; 10]) -> impl Iterator<Item = (i32, [Register; 2])> {
    let pairs = (0..5).map(|pair| (i32::from(pair) * 16, [Register(2 * pair), Register(2 * pair + 1)]));
    pairs.filter(move |(_, pair)| pair.iter().any(|register| used[usize::from(register.0)]))
}

impl Target for Arm {
    /// The code begins with a function of three arguments: the frame, the address of a block, and the fuel.
    fn begin(used: &Used) -> Self {
        let mut code = Words::new();
        let (leave, tail) = (code.label(), code.label());
        copy(&mut code, true, FRAME, Register(0));
        copy(&mut code, true, SLOT_REGISTER, Register(1));
        copy(&mut code, false, FUEL_REGISTER, Register(2));
        load(&mut code, STACK, FRAME, STACK_END);
        load(&mut code, PLACE, FRAME, REGISTERS);
        pairs(used.loaded).for_each(|(offset, pair)| load_pair(&mut code, pair, PLACE, offset));
        jump_to(&mut code, SLOT_REGISTER);
        code.bind(leave);
        load(&mut code, PLACE, FRAME, REGISTERS);
        // Whoever writes to one register of a pair has loaded both.
        pairs(used.stored).for_each(|(offset, pair)| store_pair(&mut code, pair, PLACE, offset));
        code.bind(tail);
        // The slot in the low half, the fuel in the high half.
        add_shifted(&mut code, Register(0), SLOT_REGISTER, FUEL_REGISTER, 32);
        ret(&mut code);
        Self { code, leave, tail }
    }

    fn here(&self) -> usize {
        self.code.here()
    }

    fn label(&mut self) -> Label {
        self.code.label()
    }

    fn bind(&mut self, label: Label) {
        self.code.bind(label);
    }

    fn pay(&mut self, units: u32, short: Label) {
        let (fuel, units) = (FUEL_REGISTER, units as u16);
        alu_constant(&mut self.code, DataProcessingConstant::Subs, false, fuel, fuel, units);
        jump_if(&mut self.code, ConditionCode::Below, short);
    }

    fn compute(&mut self, Computation { code, wide, destination, source }: Computation) {
        let to = Register(destination);
        let operation = match code {
            o::NEG => return alu(&mut self.code, DataProcessing::Sub, wide, to, ZERO, to),
            o::MOV => return self.copy(wide, to, source),
            o::LSH | o::RSH | o::ARSH => return self.shift(code, wide, to, source),
            o::ADD | o::SUB => return self.add(code == o::SUB, wide, to, source),
            o::MOD => return self.remainder(wide, to, source),
            o::MUL => DataProcessing::Multiply,
            // By zero it is zero, as RFC 9669 wants it.
            o::DIV => DataProcessing::Divide,
            o::OR => DataProcessing::Or,
            o::AND => DataProcessing::And,
            _ => DataProcessing::Xor,
        };
        let right = self.operand(source, wide, VALUE);
        alu(&mut self.code, operation, wide, to, to, right);
    }

    fn swap(&mut self, big: bool, bits: u8, register: u8) {
        let register = Register(register);
        match (big, bits) {
            (false, 16) => low_16(&mut self.code, register),
            (false, 32) => copy(&mut self.code, false, register, register),
            (false, _) => {}
            (true, 16) => {
                swap_bytes_of_halves(&mut self.code, register);
                low_16(&mut self.code, register);
            }
            (true, bits) => swap_bytes(&mut self.code, bits == 64, register),
        }
    }

    fn constant(&mut self, destination: u8, value: u64) {
        constant(&mut self.code, Register(destination), value);
    }

    fn jump(&mut self, to: Label) {
        jump(&mut self.code, to);
    }

    fn jump_if(&mut self, condition: Condition, to: Label) {
        let Condition { code, wide, left, right } = condition;
        let left = self.value(left, OTHER);
        match right {
            Operand::Immediate(value) if code != o::JSET && is_short(value as u64) => {
                alu_constant(&mut self.code, DataProcessingConstant::Subs, wide, ZERO, left, value as u16);
            }
            right => {
                let right = self.operand(right, wide, VALUE);
                let operation = if code == o::JSET { DataProcessing::Ands } else { DataProcessing::Subs };
                alu(&mut self.code, operation, wide, ZERO, left, right);
            }
        }
        jump_if(&mut self.code, meaning(code), to);
    }

    fn access_stack(&mut self, access: Access) {
        let Access { bytes, offset, .. } = access;
        match access.direction {
            Direction::Load { destination } => {
                load_near(&mut self.code, bytes, Register(destination), STACK, offset);
            }
            Direction::Store { source } => {
                let from = self.operand(source, true, VALUE);
                store_near(&mut self.code, bytes, from, STACK, offset);
            }
        }
    }

    fn compare(&mut self, span: Span, miss: Label) {
        let code = &mut self.code;
        // The offset in the segment of the first byte, if it is there, and else a larger number.
        constant(code, VALUE, span.segment.address().wrapping_sub(i64::from(span.first) as u64));
        alu(code, DataProcessing::Sub, true, OFFSET, Register(span.base), VALUE);
        let bytes = span.bytes() as u16;
        match fixed_length(span.segment) {
            Some(length) => {
                alu_constant(code, DataProcessingConstant::Subs, true, ZERO, OFFSET, length as u16 - bytes);
            }
            None => {
                load(code, OTHER, FRAME, entry(span.segment) + LENGTH);
                alu_constant(code, DataProcessingConstant::Subs, true, OTHER, OTHER, bytes);
                jump_if(code, ConditionCode::Below, miss);
                alu(code, DataProcessing::Subs, true, ZERO, OFFSET, OTHER);
            }
        }
        jump_if(code, ConditionCode::Above, miss);
    }

    fn expect_pointer(&mut self, register: u8, segment: Segment, otherwise: Label) {
        constant(&mut self.code, VALUE, segment.address());
        alu(&mut self.code, DataProcessing::Subs, true, ZERO, Register(register), VALUE);
        jump_if(&mut self.code, ConditionCode::NotEqual, otherwise);
    }

    fn expect_length(&mut self, segment: Segment, bytes: i32, otherwise: Label) {
        load(&mut self.code, OTHER, FRAME, entry(segment) + LENGTH);
        alu_constant(&mut self.code, DataProcessingConstant::Subs, true, ZERO, OTHER, bytes as u16);
        jump_if(&mut self.code, ConditionCode::Below, otherwise);
    }

    fn access_in(&mut self, segment: Segment, access: Access, again: bool) {
        if !again {
            load(&mut self.code, PLACE, FRAME, entry(segment) + ORIGIN);
        }
        let address = self.address(access);
        self.transfer(access, address);
    }

    fn access_anywhere(&mut self, access: Access, stop: Label) {
        let address = self.address(access);
        let code = &mut self.code;
        high_half(code, PLACE, address);
        // The index of the entry. Zero becomes a large number.
        alu_constant(code, DataProcessingConstant::Sub, false, PLACE, PLACE, 1);
        alu_constant(code, DataProcessingConstant::Subs, false, ZERO, PLACE, ENTRIES as u16 - 1);
        jump_if(code, ConditionCode::Above, stop);
        if access.stores() {
            let first = u16::from(index(Segment::Parameters));
            alu_constant(code, DataProcessingConstant::Sub, false, VALUE, PLACE, first);
            alu_constant(code, DataProcessingConstant::Subs, false, ZERO, VALUE, 1);
            jump_if(code, ConditionCode::BelowOrEqual, stop);
        }
        add_shifted(code, PLACE, FRAME, PLACE, ENTRY_SHIFT);
        // The offset has 32 bits, so its end cannot wrap.
        copy(code, false, VALUE, address);
        alu_constant(code, DataProcessingConstant::Add, true, VALUE, VALUE, access.bytes.into());
        load(code, OTHER, PLACE, SEGMENTS + LENGTH);
        alu(code, DataProcessing::Subs, true, ZERO, VALUE, OTHER);
        jump_if(code, ConditionCode::Above, stop);
        load(code, PLACE, PLACE, SEGMENTS + ORIGIN);
        self.transfer(access, address);
    }

    fn stop(&mut self, slot: usize, fuel: u32) {
        if fuel > 0 {
            let register = FUEL_REGISTER;
            alu_constant(&mut self.code, DataProcessingConstant::Add, false, register, register, fuel as u16);
        }
        constant(&mut self.code, SLOT_REGISTER, slot as u64);
        jump(&mut self.code, self.leave);
    }

    fn end(&mut self, slot: usize) {
        constant(&mut self.code, SLOT_REGISTER, slot as u64);
        load(&mut self.code, PLACE, FRAME, REGISTERS);
        store(&mut self.code, Register(0), PLACE, 0);
        jump(&mut self.code, self.tail);
    }

    fn finish(self) -> Option<Vec<u8>> {
        self.code.finish()
    }
}

impl Arm {
    /// The register that has the value of a program's register; for the frame pointer it is `free`.
    fn value(&mut self, register: u8, free: Register) -> Register {
        if register == FRAME_POINTER {
            constant(&mut self.code, free, STACK_ADDRESS);
            return free;
        }
        Register(register)
    }

    /// The register that has the value of an operand; for a constant it is `free`, or zero.
    fn operand(&mut self, operand: Operand, wide: bool, free: Register) -> Register {
        match operand {
            Operand::Register(register) => self.value(register, free),
            Operand::Immediate(0) => ZERO,
            Operand::Immediate(value) => {
                let value = if wide { value as u64 } else { u64::from(value as u32) };
                constant(&mut self.code, free, value);
                free
            }
        }
    }

    fn copy(&mut self, wide: bool, to: Register, source: Operand) {
        match source {
            Operand::Immediate(value) => {
                let value = if wide { value as u64 } else { u64::from(value as u32) };
                constant(&mut self.code, to, value);
            }
            Operand::Register(register) => {
                let from = self.value(register, VALUE);
                copy(&mut self.code, wide, to, from);
            }
        }
    }

    fn shift(&mut self, code: u8, wide: bool, to: Register, source: Operand) {
        let (constant, register) = match code {
            o::LSH => (ShiftKind::Left, DataProcessing::Left),
            o::RSH => (ShiftKind::Right, DataProcessing::Right),
            _ => (ShiftKind::Arithmetic, DataProcessing::Arithmetic),
        };
        match source {
            Operand::Immediate(bits) => shift_constant(&mut self.code, constant, wide, to, bits as u8),
            Operand::Register(from) => {
                let from = self.value(from, VALUE);
                alu(&mut self.code, register, wide, to, to, from);
            }
        }
    }

    fn add(&mut self, subtract: bool, wide: bool, to: Register, source: Operand) {
        if let Operand::Immediate(value) = source
            && is_short(value.unsigned_abs().into())
        {
            let down = subtract != (value < 0);
            let operation = if down { DataProcessingConstant::Sub } else { DataProcessingConstant::Add };
            return alu_constant(&mut self.code, operation, wide, to, to, value.unsigned_abs() as u16);
        }
        let right = self.operand(source, wide, VALUE);
        let operation = if subtract { DataProcessing::Sub } else { DataProcessing::Add };
        alu(&mut self.code, operation, wide, to, to, right);
    }

    /// A quotient by zero is zero, so that the dividend remains, as RFC 9669 wants it.
    fn remainder(&mut self, wide: bool, to: Register, source: Operand) {
        let right = self.operand(source, wide, VALUE);
        alu(&mut self.code, DataProcessing::Divide, wide, OTHER, to, right);
        multiply_subtract(&mut self.code, wide, to, OTHER, right, to);
    }

    /// The register that has the address of an access.
    fn address(&mut self, access: Access) -> Register {
        let base = Register(access.base);
        let distance = access.offset.unsigned_abs();
        match access.offset {
            0 => return base,
            offset if is_short(distance.into()) => {
                let operation =
                    if offset < 0 { DataProcessingConstant::Sub } else { DataProcessingConstant::Add };
                alu_constant(&mut self.code, operation, true, OFFSET, base, distance);
            }
            offset => {
                constant(&mut self.code, OFFSET, i64::from(offset) as u64);
                alu(&mut self.code, DataProcessing::Add, true, OFFSET, base, OFFSET);
            }
        }
        OFFSET
    }

    /// Loads or stores at the sum of `PLACE` and the address.
    fn transfer(&mut self, access: Access, address: Register) {
        match access.direction {
            Direction::Load { destination } => {
                load_sum(&mut self.code, access.bytes, Register(destination), PLACE, address);
            }
            Direction::Store { source } => {
                let from = self.operand(source, true, VALUE);
                store_sum(&mut self.code, access.bytes, from, PLACE, address);
            }
        }
    }
}

/// What a comparison means.
const fn meaning(code: u8) -> ConditionCode {
    match code {
        o::JEQ => ConditionCode::Equal,
        o::JGT => ConditionCode::Above,
        o::JGE => ConditionCode::AboveOrEqual,
        o::JLT => ConditionCode::Below,
        o::JLE => ConditionCode::BelowOrEqual,
        o::JSGT => ConditionCode::Greater,
        o::JSGE => ConditionCode::GreaterOrEqual,
        o::JSLT => ConditionCode::Less,
        o::JSLE => ConditionCode::LessOrEqual,
        // Both differ from zero: the operands, or their common bits.
        _ => ConditionCode::NotEqual,
    }
}
