//! The rows that are measured.

use super::server::{SLOTS, lookups, parameters, table};
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{Kernel, Status, Step};
use bareverbs_offload::kernels::field::{ByteOrder, Field, Predicate};
use bareverbs_offload::kernels::kv_lookup::KvLookup;
use bareverbs_offload::kernels::traversal::{
    Action, KEYS, Length, ROWS as TABLE_ROWS, Row as Rule, Traversal, TraversalTable, Value,
};
use bareverbs_offload::program::{Executable, Fuel, Instruction, Program, ProgramInvocation};
use bareverbs_offload_native::NativeProgram;
use object::{Object as _, ObjectSection as _};
use std::hint::black_box;
use zerocopy::IntoBytes as _;

/// One row: a call does `units` of what the name says.
pub struct Row {
    pub name: &'static str,
    pub units: u32,
    pub goal: &'static str,
    pub make: fn() -> Box<dyn FnMut()>,
}

/// Elements of the lists.
const LIST: u32 = 64;
/// Instructions of the program that only counts.
const COUNTS: u32 = 400;
/// Rows that are looked up in turn.
const LOOKED_UP: u32 = 64;

pub const ROWS: &[Row] = &[
    Row { name: "server, lookup of 64 B", units: SLOTS as u32, goal: "150", make: || lookups(64) },
    Row { name: "server, lookup of 4 KiB", units: SLOTS as u32, goal: "400", make: || lookups(4096) },
    Row { name: "kernel, lookup of 64 B", units: LOOKED_UP, goal: "-", make: native_lookup },
    Row { name: "program, lookup of 64 B", units: LOOKED_UP, goal: "-", make: || lookup(lookup_program()) },
    Row { name: "program, step of a list", units: LIST, goal: "-", make: || sum(list_program()) },
    Row { name: "program, an instruction", units: COUNTS, goal: "2", make: || count(counting_program()) },
    Row {
        name: "machine code, lookup of 64 B",
        units: LOOKED_UP,
        goal: "130",
        make: || lookup(native(lookup_program())),
    },
    Row {
        name: "machine code, step of a list",
        units: LIST,
        goal: "15",
        make: || sum(native(list_program())),
    },
    Row {
        name: "machine code, an instruction",
        units: COUNTS,
        goal: "-",
        make: || count(native(counting_program())),
    },
    Row { name: "traversal, step of a list", units: LIST, goal: "3", make: traversal_list },
];

/// Runs a kernel to its end; its reads are from `memory`.
fn walk(memory: &[u8], mut step: Step, mut next: impl FnMut(&[u8]) -> Step) -> Step {
    while let Step::Fetch(range) | Step::Refetch { range, .. } = step {
        step = next(&memory[range.offset() as usize..][..range.length() as usize]);
    }
    step
}

/// Grants read access to all of `memory`.
fn granted(memory: &[u8]) -> Grant {
    Grant::new(0x10_0000, memory.len() as u64).expect("no wrap")
}

fn native_lookup() -> Box<dyn FnMut()> {
    let (memory, descriptor) = table(64);
    let grant = granted(&memory);
    let asked: Vec<Vec<u8>> = (0..LOOKED_UP).map(|row| parameters(&descriptor, row)).collect();
    Box::new(move || {
        for parameters in &asked {
            let (mut kernel, step) = KvLookup::start(black_box(parameters), &grant).expect("coherent");
            let end = walk(&memory, step, |bytes| kernel.dma_done(bytes, &grant));
            assert!(matches!(end, Step::Emit(response) if response.length == 64), "{end:?}");
        }
    })
}

/// A program of this tree.
fn program(object: &[u8]) -> Program {
    let file = object::File::parse(object).expect("an object file");
    let text = file.section_by_name(".text").expect("code");
    Program::verify(text.data().expect("bytes")).expect("the verifier lets it pass")
}

fn lookup_program() -> Program {
    program(include_bytes!("../../../programs/kv_lookup.o"))
}

fn list_program() -> Program {
    program(include_bytes!("../../../programs/sum_list.o"))
}

/// A chain of additions: nothing but instructions.
fn counting_program() -> Program {
    const ADD: u8 = 0x07;
    let mut code = vec![Instruction::new(ADD, 1, 0, 0, 1); COUNTS as usize - 2];
    code.push(Instruction::new(0xb7, 0, 0, 0, 0));
    code.push(Instruction::new(0x95, 0, 0, 0, 0));
    Program::verify(code.as_bytes()).expect("the verifier lets it pass")
}

/// Translates a program, where that is possible.
fn native(program: Program) -> NativeProgram {
    let native = NativeProgram::new(program);
    if let Err(error) = native.translation() {
        eprintln!("{error}");
    }
    native
}

fn lookup<E: Executable + 'static>(program: E) -> Box<dyn FnMut()> {
    let (memory, descriptor) = table(64);
    let grant = granted(&memory);
    let asked: Vec<Vec<u8>> = (0..LOOKED_UP).map(|row| parameters(&descriptor, row)).collect();
    Box::new(move || {
        for parameters in &asked {
            let mut invocation = ProgramInvocation::idle(Fuel::default());
            let step = invocation.begin(&program, black_box(parameters), &grant).expect("they fit");
            let end = walk(&memory, step, |bytes| invocation.dma_done(&program, bytes, &grant));
            assert!(matches!(end, Step::Emit(response) if response.length == 64), "{end:?}");
        }
    })
}

/// A list of elements { key, next, value pointer } in the order of their offsets; the last has no next.
fn list() -> Vec<u8> {
    let mut memory = vec![0; 64];
    for element in 1..=u64::from(LIST) {
        let next = if element == u64::from(LIST) { 0 } else { 64 + element * 24 };
        [element, next, 8].iter().for_each(|word| memory.extend(word.to_le_bytes()));
    }
    memory
}

fn sum<E: Executable + 'static>(program: E) -> Box<dyn FnMut()> {
    let memory = list();
    let grant = granted(&memory);
    Box::new(move || {
        let start = black_box(64_u64).to_le_bytes();
        let mut invocation = ProgramInvocation::idle(Fuel::default());
        let step = invocation.begin(&program, &start, &grant).expect("they fit");
        let end = walk(&memory, step, |bytes| invocation.dma_done(&program, bytes, &grant));
        assert!(matches!(end, Step::Reply(_)), "{end:?}");
    })
}

fn count<E: Executable + 'static>(program: E) -> Box<dyn FnMut()> {
    let grant = granted(&[0; 64]);
    Box::new(move || {
        let begun = ProgramInvocation::idle(Fuel::default()).begin(&program, black_box(&[]), &grant);
        assert!(matches!(begun, Ok(Step::Done(Status::Ok))));
    })
}

fn traversal_list() -> Box<dyn FnMut()> {
    let memory = list();
    let grant = granted(&memory);
    let mut rules = [Rule::END; TABLE_ROWS];
    rules[0] = Rule::when(Predicate::Equal, 1, Action::Emit);
    rules[1] = Rule::otherwise(Action::Follow).pointer(Field::word(2));
    let mut keys = [0; KEYS];
    keys[0] = u64::MAX;
    let table = TraversalTable {
        start: 64,
        pointer_base: 0,
        element: 24,
        order: ByteOrder::LittleEndian,
        value: Value::Pointer(Field::word(4)),
        length: Length::Fixed(8),
        rows: rules,
        keys,
        key_count: 1,
    };
    let parameters = table.encode();
    Box::new(move || {
        let begun = Traversal::start(black_box(&parameters), &grant);
        let (mut kernel, step) = begun.expect("coherent");
        let end = walk(&memory, step, |bytes| kernel.dma_done(bytes, &grant));
        assert_eq!(end, Step::Done(Status::NotFound));
    })
}
