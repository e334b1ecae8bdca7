//! Code of x86-64. r0 to r9 are in registers, and so is the fuel; RAX, RCX and RDX are free.

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
    Alu, Code, If, Place, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Reg, Shift, address, alu, alu_constant, at,
    at_sum, compare_with_memory, constant, copy, divide, jump, jump_if, jump_to, load, low_16, multiply,
    multiply_constant, negate, pop, push, ret, shift, shift_constant, store, store_constant, swap_bytes,
    swap_low_bytes, test, test_constant, wide_constant,
};

/// Where the registers r0 to r9 are.
const HOMES: [Reg; 10] = [RDI, RSI, Reg(8), Reg(9), Reg(10), Reg(11), Reg(12), Reg(13), Reg(14), Reg(15)];
const FUEL_REGISTER: Reg = RBX;
const FRAME: Reg = RBP;
/// Has the origin of the segment that was accessed last.
const ORIGIN_REGISTER: Reg = RDX;
/// Registers that a function gives back as it got them (System V ABI for x86-64, figure 3.4), beside those that are homes.
const SAVED: [Reg; 2] = [FUEL_REGISTER, FRAME];
/// The first of the registers of a program whose homes are such registers.
const FIRST_SAVED: usize = 6;

pub struct X86 {
    code: Code,
    /// Stores the registers and leaves; the slot is in RAX.
    leave: Label,
    /// Leaves with the registers stored.
    tail: Label,
}

/// Homes of registers, with the offsets at which they are kept outside.
fn homes(used: [bool; 10]) -> impl Iterator<Item = (i32, Reg)> {
    let all = (0..).step_by(8).zip(HOMES).zip(used);
    all.filter(|(_, used)| *used).map(|(home, _)| home)
}

impl Target for X86 {
    /// The code begins with a function of three arguments: the frame, the address of a block, and the fuel.
    fn begin(used: &Used) -> Self {
        let mut code = Code::new();
        let (leave, tail) = (code.label(), code.label());
        let mut saved = SAVED.to_vec();
        saved.extend(
            HOMES.iter().zip(used.loaded).skip(FIRST_SAVED).filter(|(_, used)| *used).map(|(home, _)| home),
        );
        saved.iter().for_each(|register| push(&mut code, *register));
        copy(&mut code, true, FRAME, RDI);
        copy(&mut code, true, RAX, RSI);
        copy(&mut code, false, FUEL_REGISTER, RDX);
        load(&mut code, 8, RCX, at(FRAME, REGISTERS));
        for (offset, home) in homes(used.loaded) {
            load(&mut code, 8, home, at(RCX, offset));
        }
        jump_to(&mut code, RAX);
        code.bind(leave);
        load(&mut code, 8, RCX, at(FRAME, REGISTERS));
        for (offset, home) in homes(used.stored) {
            store(&mut code, 8, at(RCX, offset), home);
        }
        code.bind(tail);
        // The slot in the low half, the fuel in the high half.
        shift_constant(&mut code, Shift::Left, true, FUEL_REGISTER, 32);
        alu(&mut code, Alu::Or, true, RAX, FUEL_REGISTER);
        saved.iter().rev().for_each(|register| pop(&mut code, *register));
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
        alu_constant(&mut self.code, Alu::Sub, false, FUEL_REGISTER, units as i32);
        jump_if(&mut self.code, If::Below, short);
    }

    fn compute(&mut self, Computation { code, wide, destination, source }: Computation) {
        let to = home(destination);
        match code {
            o::NEG => negate(&mut self.code, wide, to),
            o::MOV => self.copy(wide, to, source),
            o::MUL => self.multiply(wide, to, source),
            o::DIV | o::MOD => self.divide(code == o::MOD, wide, to, source),
            o::LSH => self.shift(Shift::Left, wide, to, source),
            o::RSH => self.shift(Shift::Right, wide, to, source),
            o::ARSH => self.shift(Shift::Arithmetic, wide, to, source),
            o::ADD => self.alu(Alu::Add, wide, to, source),
            o::SUB => self.alu(Alu::Sub, wide, to, source),
            o::OR => self.alu(Alu::Or, wide, to, source),
            o::AND => self.alu(Alu::And, wide, to, source),
            _ => self.alu(Alu::Xor, wide, to, source),
        }
    }

    fn swap(&mut self, big: bool, bits: u8, register: u8) {
        let register = home(register);
        match (big, bits) {
            (false, 16) => low_16(&mut self.code, register),
            (false, 32) => copy(&mut self.code, false, register, register),
            (false, _) => {}
            (true, 16) => {
                swap_low_bytes(&mut self.code, register);
                low_16(&mut self.code, register);
            }
            (true, bits) => swap_bytes(&mut self.code, bits == 64, register),
        }
    }

    fn constant(&mut self, destination: u8, value: u64) {
        wide_constant(&mut self.code, home(destination), value);
    }

    fn jump(&mut self, to: Label) {
        jump(&mut self.code, to);
    }

    fn jump_if(&mut self, condition: Condition, to: Label) {
        let Condition { code, wide, left, right } = condition;
        let left = self.value(left, RAX);
        match (code == o::JSET, right) {
            (true, Operand::Immediate(value)) => test_constant(&mut self.code, wide, left, value),
            (false, Operand::Immediate(value)) => {
                alu_constant(&mut self.code, Alu::Cmp, wide, left, value);
            }
            (tests, Operand::Register(right)) => {
                let right = self.value(right, RCX);
                if tests {
                    test(&mut self.code, wide, left, right);
                } else {
                    alu(&mut self.code, Alu::Cmp, wide, left, right);
                }
            }
        }
        jump_if(&mut self.code, meaning(code), to);
    }

    fn access_stack(&mut self, access: Access) {
        load(&mut self.code, 8, RAX, at(FRAME, STACK_END));
        self.transfer(access, at(RAX, access.offset.into()));
    }

    fn compare(&mut self, span: Span, miss: Label) {
        let code = &mut self.code;
        // The offset in the segment of the first byte, if it is there, and else a larger number.
        wide_constant(code, RAX, (i64::from(span.first) as u64).wrapping_sub(span.segment.address()));
        alu(code, Alu::Add, true, RAX, home(span.base));
        match fixed_length(span.segment) {
            Some(length) => alu_constant(code, Alu::Cmp, true, RAX, length as i32 - span.bytes()),
            None => {
                load(code, 8, RCX, at(FRAME, entry(span.segment) + LENGTH));
                alu_constant(code, Alu::Sub, true, RCX, span.bytes());
                jump_if(code, If::Below, miss);
                alu(code, Alu::Cmp, true, RAX, RCX);
            }
        }
        jump_if(code, If::Above, miss);
    }

    fn expect_pointer(&mut self, register: u8, segment: Segment, otherwise: Label) {
        wide_constant(&mut self.code, RAX, segment.address());
        alu(&mut self.code, Alu::Cmp, true, RAX, home(register));
        jump_if(&mut self.code, If::NotEqual, otherwise);
    }

    fn expect_length(&mut self, segment: Segment, bytes: i32, otherwise: Label) {
        constant(&mut self.code, false, RAX, bytes);
        compare_with_memory(&mut self.code, RAX, at(FRAME, entry(segment) + LENGTH));
        jump_if(&mut self.code, If::Above, otherwise);
    }

    fn access_in(&mut self, segment: Segment, access: Access, again: bool) {
        if !again {
            load(&mut self.code, 8, ORIGIN_REGISTER, at(FRAME, entry(segment) + ORIGIN));
        }
        self.transfer(access, at_sum(ORIGIN_REGISTER, home(access.base), access.offset.into()));
    }

    fn access_anywhere(&mut self, access: Access, stop: Label) {
        let code = &mut self.code;
        address(code, RAX, at(home(access.base), access.offset.into()));
        copy(code, true, RDX, RAX);
        shift_constant(code, Shift::Right, true, RDX, 32);
        // The index of the entry. Zero becomes a large number.
        alu_constant(code, Alu::Sub, false, RDX, 1);
        alu_constant(code, Alu::Cmp, false, RDX, ENTRIES as i32 - 1);
        jump_if(code, If::Above, stop);
        if access.stores() {
            address(code, RCX, at(RDX, -i32::from(index(Segment::Parameters))));
            alu_constant(code, Alu::Cmp, false, RCX, 1);
            jump_if(code, If::BelowOrEqual, stop);
        }
        // The offset has 32 bits, so its end cannot wrap.
        copy(code, false, RCX, RAX);
        alu_constant(code, Alu::Add, true, RCX, access.bytes.into());
        shift_constant(code, Shift::Left, false, RDX, ENTRY_SHIFT);
        compare_with_memory(code, RCX, at_sum(FRAME, RDX, SEGMENTS + LENGTH));
        jump_if(code, If::Above, stop);
        load(code, 8, RDX, at_sum(FRAME, RDX, SEGMENTS + ORIGIN));
        self.transfer(access, at_sum(RDX, RAX, 0));
    }

    fn stop(&mut self, slot: usize, fuel: u32) {
        if fuel > 0 {
            alu_constant(&mut self.code, Alu::Add, false, FUEL_REGISTER, fuel as i32);
        }
        constant(&mut self.code, false, RAX, slot as i32);
        jump(&mut self.code, self.leave);
    }

    fn end(&mut self, slot: usize) {
        constant(&mut self.code, false, RAX, slot as i32);
        load(&mut self.code, 8, RCX, at(FRAME, REGISTERS));
        store(&mut self.code, 8, at(RCX, 0), home(0));
        jump(&mut self.code, self.tail);
    }

    fn finish(self) -> Option<Vec<u8>> {
        self.code.finish()
    }
}

impl X86 {
    /// The register that has the value of a program's register; for the frame pointer it is `free`.
    fn value(&mut self, register: u8, free: Reg) -> Reg {
        if register == FRAME_POINTER {
            wide_constant(&mut self.code, free, STACK_ADDRESS);
            return free;
        }
        home(register)
    }

    fn alu(&mut self, operation: Alu, wide: bool, to: Reg, source: Operand) {
        match source {
            Operand::Immediate(value) => alu_constant(&mut self.code, operation, wide, to, value),
            Operand::Register(from) => {
                let from = self.value(from, RCX);
                alu(&mut self.code, operation, wide, to, from);
            }
        }
    }

    fn copy(&mut self, wide: bool, to: Reg, source: Operand) {
        match source {
            Operand::Immediate(value) => constant(&mut self.code, wide, to, value),
            Operand::Register(from) => {
                let from = self.value(from, RCX);
                copy(&mut self.code, wide, to, from);
            }
        }
    }

    fn multiply(&mut self, wide: bool, to: Reg, source: Operand) {
        match source {
            Operand::Immediate(value) => multiply_constant(&mut self.code, wide, to, value),
            Operand::Register(from) => {
                let from = self.value(from, RCX);
                multiply(&mut self.code, wide, to, from);
            }
        }
    }

    /// RFC 9669, section 4.1: by zero, a quotient is zero, and a remainder the dividend.
    fn divide(&mut self, remainder: bool, wide: bool, to: Reg, source: Operand) {
        self.copy(wide, RCX, source);
        let (by_zero, done) = (self.code.label(), self.code.label());
        let code = &mut self.code;
        copy(code, wide, RAX, to);
        test(code, wide, RCX, RCX);
        jump_if(code, If::Equal, by_zero);
        constant(code, false, RDX, 0);
        divide(code, wide, RCX);
        copy(code, wide, to, if remainder { RDX } else { RAX });
        jump(code, done);
        code.bind(by_zero);
        if remainder {
            copy(code, wide, to, RAX);
        } else {
            constant(code, false, to, 0);
        }
        code.bind(done);
    }

    fn shift(&mut self, operation: Shift, wide: bool, to: Reg, source: Operand) {
        match source {
            Operand::Immediate(0) => copy(&mut self.code, wide, to, to),
            Operand::Immediate(bits) => shift_constant(&mut self.code, operation, wide, to, bits as u8),
            Operand::Register(from) => {
                let from = self.value(from, RCX);
                copy(&mut self.code, false, RCX, from);
                shift(&mut self.code, operation, wide, to);
            }
        }
    }

    fn transfer(&mut self, access: Access, place: Place) {
        match access.direction {
            Direction::Load { destination } => load(&mut self.code, access.bytes, home(destination), place),
            Direction::Store { source: Operand::Immediate(value) } => {
                store_constant(&mut self.code, access.bytes, place, value);
            }
            Direction::Store { source: Operand::Register(from) } => {
                let from = self.value(from, RCX);
                store(&mut self.code, access.bytes, place, from);
            }
        }
    }
}

/// Where one of the registers r0 to r9 is; verified instructions name r10 only where it is read.
fn home(register: u8) -> Reg {
    HOMES[usize::from(register)]
}

/// What a comparison means.
const fn meaning(code: u8) -> If {
    match code {
        o::JEQ => If::Equal,
        o::JGT => If::Above,
        o::JGE => If::AboveOrEqual,
        o::JLT => If::Below,
        o::JLE => If::BelowOrEqual,
        o::JSGT => If::Greater,
        o::JSGE => If::GreaterOrEqual,
        o::JSLT => If::Less,
        o::JSLE => If::LessOrEqual,
        // Both differ from zero: the operands, or their common bits.
        _ => If::NotEqual,
    }
}
