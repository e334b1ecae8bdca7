//! What is wrong with a program near data: why it cannot be deployed, and how a running one fails before its
//! `exit`. Entries are recognised by the words that `bareverbs kernel` and `dpu` print.

use super::table::{Entry, Kind};

/// An explanation, and the words of its line in this order.
pub(super) struct Program {
    phrases: &'static [&'static str],
    pub(super) entry: Entry,
}

macro_rules! programs {
    ($($name:literal, [$($phrase:literal),+]: $cause:literal, $compare:literal, $attempt:literal;)*) => {
        pub(super) const PROGRAMS: &[Program] = &[
            $(Program {
                phrases: &[$($phrase),+],
                entry: Entry { kind: Kind::Program, names: &[$name], number: None, cause: $cause, compare: $compare, attempt: $attempt },
            },)*
        ];
    };
}

programs! {
    "PROGRAM_EMPTY", ["the program has no instructions"]:
        "the file has no code: it is empty, or the object has no section of a program", "sections of the object: llvm-objdump -h",
        "compile with clang -target bpf -O2 -c, and give the object";
    "PROGRAM_TOO_LONG", ["the program has ", " instructions, ", " are allowed"]:
        "the program is longer than a device keeps", "instructions against the limit in the message", "compile with -Os; do not unroll loops";
    "PROGRAM_NOT_WHOLE", [" bytes are not whole instructions of 8 bytes"]:
        "the file is neither an object nor a list of whole instructions", "length of the file", "give the object that clang made, or its section .text";
    "PROGRAM_OPCODE", ["there is no op-code "]:
        "the bytes are not an eBPF instruction", "whether the file holds code at all; bareverbs kernel disassemble", "compile with clang -target bpf";
    "PROGRAM_UNSUPPORTED", ["programs may not have "]:
        "the instruction exists, and programs near data may not have it", "what the message names; docs/offload.md has the list",
        "write it without: no maps, no global variables, no atomics; inline functions (static inline, -mcpu=v3)";
    "PROGRAM_RESERVED", ["a field that the instruction does not use is not zero"]:
        "the instruction is malformed", "the 8 bytes of the instruction: bareverbs kernel disassemble", "compile with clang -target bpf; do not write code by hand";
    "PROGRAM_REGISTER", ["there is no register r"]: "registers are r0 to r10", "the instruction: bareverbs kernel disassemble", "compile with clang -target bpf";
    "PROGRAM_CUT_CONSTANT", ["the second half of a 64-bit constant is missing"]:
        "a constant of 64 bits takes two instructions, and the second is not there", "the end of the program", "give the whole section";
    "PROGRAM_HELPER", ["there is no helper "]:
        "the program calls a helper that does not exist here", "number of the helper against the list in docs/offload.md", "call one of the list";
    "PROGRAM_FRAME_POINTER", [" writes to r10, the frame pointer"]:
        "r10 points to the stack and cannot be changed", "the instruction: bareverbs kernel disassemble", "copy it to another register first";
    "PROGRAM_JUMP_OUTSIDE", [" jumps to ", ", outside of the program"]:
        "a jump leads out of the program", "target of the jump: bareverbs kernel disassemble", "give the whole section; do not cut code";
    "PROGRAM_JUMP_INTO_CONSTANT", [" jumps to ", ", into a 64-bit constant"]:
        "a jump leads into the second half of a constant", "target of the jump: bareverbs kernel disassemble", "compile with clang -target bpf";
    "PROGRAM_SHIFT", [" shifts by ", " bits"]: "a shift is by more bits than the register has", "the constant in the source", "shift by less than 32 or 64 bits";
    "PROGRAM_DIVISION_BY_ZERO", [" divides by zero"]: "a divisor is the constant zero", "the division in the source", "divide by another value";
    "PROGRAM_STACK", [" bytes at r10 ", "the stack has "]:
        "local variables reach beyond the stack", "size of arrays and structures that are local", "use fewer; keep large ones in the state of the invocation";
    "PROGRAM_NO_END", ["the program continues past instruction "]: "the last instruction is neither an exit nor a jump", "the end of the program", "return from the function";
    "PROGRAM_OUT_OF_FUEL", ["out of fuel before instruction "]:
        "a step took more instructions than it may", "loops without an end; steps that bareverbs kernel run counts", "bound the loop, or allow more fuel";
    "PROGRAM_OUTSIDE", [", leaves the memory of the program"]:
        "the program read or wrote memory that it does not have, or may not write",
        "segment and offset in the message against parameters, stack, state and what was fetched", "check lengths before the access";
    "PROGRAM_VERB", ["the program returned ", ", which is not a verb or status"]:
        "a step must return the number of a verb, and this is not one", "what the function returns on every path", "return one of the verbs of docs/offload.md";
    "PROGRAM_UNVERIFIED", ["instruction ", " was never verified"]:
        "the program changed after it was checked", "whether its memory was written", "deploy it again; this should not happen";
}

/// The entry for a line that a tool printed.
pub(super) fn program_in(what: &str) -> impl Iterator<Item = &'static Entry> {
    PROGRAMS.iter().filter(|program| follow_each_other(program.phrases, what)).map(|program| &program.entry)
}

fn follow_each_other(phrases: &[&str], what: &str) -> bool {
    let rest = phrases.iter().try_fold(what, |rest, phrase| rest.split_once(phrase).map(|(_, rest)| rest));
    rest.is_some()
}
