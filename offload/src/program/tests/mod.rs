//! Programs from clang, from an assembler of eight lines, and from a generator. The oracle is rbpf, an
//! independent implementation.

mod lookup;
mod oracle;
mod steps;
mod verifier;

use super::instruction::numbers as n;
use super::*;
use object::{Object, ObjectSection, SectionKind};
use zerocopy::IntoBytes;

/// The bytes of instructions.
fn bytes(code: &[Instruction]) -> Vec<u8> {
    code.as_bytes().to_vec()
}

fn verified(code: &[Instruction]) -> Program {
    Program::verify(&bytes(code)).expect("the verifier lets it pass")
}

const fn mov(to: u8, value: i32) -> Instruction {
    Instruction::new(n::ALU64 | n::MOV, to, 0, 0, value)
}

const fn copy(to: u8, from: u8) -> Instruction {
    Instruction::new(n::ALU64 | n::MOV | n::REGISTER, to, from, 0, 0)
}

const fn exit() -> Instruction {
    Instruction::new(n::JMP | n::EXIT, 0, 0, 0, 0)
}

const fn jump(offset: i16) -> Instruction {
    Instruction::new(n::JMP | n::JA, 0, 0, offset, 0)
}

const fn load(size: u8, to: u8, base: u8, offset: i16) -> Instruction {
    Instruction::new(n::LDX | n::MEM | size, to, base, offset, 0)
}

const fn store(size: u8, base: u8, offset: i16, from: u8) -> Instruction {
    Instruction::new(n::STX | n::MEM | size, base, from, offset, 0)
}

const fn put(size: u8, base: u8, offset: i16, value: i32) -> Instruction {
    Instruction::new(n::ST | n::MEM | size, base, 0, offset, value)
}

const fn call(helper: Helper) -> Instruction {
    Instruction::new(n::JMP | n::CALL, 0, 0, 0, helper.number())
}

/// The code of an object file that clang or rustc compiled; `offload/programs` has the sources.
fn compiled(object: &[u8]) -> Program {
    let file = object::File::parse(object).expect("an ELF file");
    let is_code =
        |section: &object::Section<'_, '_>| section.kind() == SectionKind::Text && section.size() > 0;
    let text = file.sections().find(is_code).expect("code");
    Program::verify(text.data().expect("bytes")).expect("the verifier lets it pass")
}
