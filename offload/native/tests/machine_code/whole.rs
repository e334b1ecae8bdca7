//! Programs that clang compiled, and a store that translates what it is given.

use crate::assemble::{exit, mov, verified};
use crate::{Inputs, native};
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{Opcode, Status, Step};
use bareverbs_offload::kernels::kv_lookup::MAX_PARAMETERS;
use bareverbs_offload::program::{Fuel, Program, ProgramStore};
use bareverbs_offload::table::{TableConfig, TablePolicy, TableWriter};
use bareverbs_offload_native::{MachineCode, NativeProgram, TranslateError};
use bareverbs_prm::time::Time;
use object::{Object as _, ObjectSection as _};

/// The code of an object file that clang compiled; `offload/programs` has the sources.
fn compiled(object: &[u8]) -> Program {
    let file = object::File::parse(object).expect("an ELF file");
    let text = file.section_by_name(".text").expect("code");
    Program::verify(text.data().expect("bytes")).expect("the verifier lets it pass")
}

#[test]
fn a_table_is_searched_alike() {
    let config =
        TableConfig { buckets: 16, overflow_lines: 64, seed: [7; 16], policy: TablePolicy::default() };
    let mut memory = vec![0; 64 * 1024];
    let mut writer = TableWriter::create(&mut memory[..], &config).expect("room for the table");
    let key = |row: u32| [&b"the key of row "[..], &row.to_be_bytes()].concat();
    for row in 0..100 {
        writer.insert(Time::ZERO, &key(row), &vec![row as u8; 64 + row as usize]).expect("room for the row");
    }
    let descriptor = *writer.descriptor();
    let program = compiled(include_bytes!("../../../programs/kv_lookup.o"));
    let mut found = 0;
    for row in 0..110 {
        let mut buffer = [0; MAX_PARAMETERS];
        let parameters = descriptor.lookup(&key(row)).encode(&mut buffer).expect("they fit").to_vec();
        let mut inputs = Inputs { parameters, memory: memory.clone(), ..Inputs::default() };
        let seen = inputs.compare(&program, 64);
        found += u32::from(matches!(seen.last().map(|seen| seen.step), Some(Ok(Step::Emit(_)))));
        // And in a table that is damaged.
        for at in (row as usize..inputs.memory.len()).step_by(97) {
            inputs.memory[at] ^= 0x11;
        }
        inputs.compare(&program, 64);
    }
    assert_eq!(found, 100);
}

#[test]
fn lists_counters_and_records_too() {
    let mut inputs = Inputs::default();
    inputs.memory[64..80].copy_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    inputs.memory[512..528].copy_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    inputs.parameters = 64_u64.to_le_bytes().to_vec();
    let seen = inputs.compare(&compiled(include_bytes!("../../../programs/sum_list.o")), 9);
    assert!(matches!(seen.last().map(|seen| seen.step), Some(Ok(Step::Reply(_)))), "{seen:?}");
    inputs.parameters = [64_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat();
    let seen = inputs.compare(&compiled(include_bytes!("../../../programs/sequencer.o")), 9);
    assert!(matches!(seen.last().map(|seen| seen.step), Some(Ok(Step::Reply(_)))), "{seen:?}");
    for length in [0, 1, 8, 13, 152, 153] {
        inputs.parameters = [&128_u64.to_le_bytes()[..], &vec![9; length]].concat();
        let seen = inputs.compare(&compiled(include_bytes!("../../../programs/put.o")), 9);
        assert!(seen.len() > 1 || seen[0].step == Ok(Step::Done(Status::BadParameters)), "{seen:?}");
    }
}

/// The mappings of this process that are executable and belong to no file.
#[cfg(target_os = "linux")]
fn own_executable_memory() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let executable = |line: &&str| line.split(' ').nth(1).is_some_and(|rights| rights.contains('x'));
    let anonymous = |line: &&str| !line.contains('/') && !line.contains('[');
    maps.lines().filter(executable).filter(anonymous).map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn code_is_executable_and_not_writable() {
    let program = native(&verified(&[mov(0, 0), exit()]));
    let found = own_executable_memory();
    assert_eq!(found.is_empty(), program.translation().is_err(), "{found:?}");
    assert!(found.iter().all(|line| line.contains(" r-xp ")), "{found:?}");
}

#[test]
fn a_store_runs_what_its_engine_made() {
    let code = verified(&[mov(0, 0), exit()]);
    let grant = Grant::new(0, 64).expect("no wrap");
    let engine = MachineCode::new().unwrap_or(MachineCode::OFF);
    for engine in [engine, MachineCode::OFF] {
        let mut store: ProgramStore<2, _> = ProgramStore::with_engine(Fuel::default(), engine);
        store.deploy(Opcode(0x11), code.clone()).expect("a place");
        let (run, step) = store.start(Opcode(0x11), &[], &grant).expect("it is deployed");
        assert_eq!((step, run.invocation().fuel_used()), (Step::Done(Status::Ok), 2));
    }
    assert_eq!(NativeProgram::interpreted(code.clone()).translation().err(), Some(TranslateError::Off));
    if MachineCode::new().is_ok() {
        assert!(native(&code).translation().is_ok());
    }
}
