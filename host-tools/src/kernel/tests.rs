use super::*;
use crate::program_object::load;
use bareverbs_offload::kernel::Status;
use bareverbs_offload::kernels::kv_lookup::MAX_PARAMETERS;
use bareverbs_offload::program::Program;
use bareverbs_offload::table::{TableConfig, TablePolicy, TableWriter};
use bareverbs_prm::time::Time;
use std::path::{Path, PathBuf};
use std::process::Command;

const LOOKUP: &[u8] = include_bytes!("../../../offload/programs/kv_lookup.o");
const LOOKUP_OF_RUST: &[u8] = include_bytes!("../../../offload/programs/kv_lookup_rs.o");
const SUM: &[u8] = include_bytes!("../../../offload/programs/sum_list.o");
const SEQUENCER: &[u8] = include_bytes!("../../../offload/programs/sequencer.o");
const PUT: &[u8] = include_bytes!("../../../offload/programs/put.o");

fn program(object: &[u8]) -> Program {
    Program::verify(&load(object, None).expect("one function")).expect("it can be deployed")
}

fn run<'a>(program: &Program, memory: &'a [u8], parameters: &'a [u8]) -> Trial {
    let request = Request { memory, writable: true, parameters, payload: &[], fuel: Fuel::default() };
    let trial = Trial::run(program, &request).expect("it begins");
    let machine_code = Trial::run(&NativeProgram::new(program.clone()), &request).expect("it begins");
    assert_eq!(machine_code, trial, "as machine code, and interpreted");
    trial
}

#[test]
fn the_compiled_lookup_finds_values_in_a_table() {
    let mut memory = vec![0; 16 * 1024];
    let config = TableConfig { buckets: 2, overflow_lines: 8, seed: [3; 16], policy: TablePolicy::default() };
    let mut writer = TableWriter::create(memory.as_mut_slice(), &config).expect("fits");
    for n in 0..20_u8 {
        writer.insert(Time::ZERO, &[n + 1; 8], &[n; 100]).expect("room");
    }
    let table = *writer.descriptor();
    let (of_c, of_rust) = (program(LOOKUP), program(LOOKUP_OF_RUST));
    for n in 0..22_u8 {
        let mut buffer = [0; MAX_PARAMETERS];
        let key = [n + 1; 8];
        let parameters = table.lookup(&key).encode(&mut buffer).expect("fits");
        let ended = run(&of_c, &memory, parameters).ended;
        assert_eq!(run(&of_rust, &memory, parameters).ended, ended);
        if n < 20 {
            assert!(matches!(ended, Ended::Response { bytes, .. } if bytes == [n; 100]));
        } else {
            assert_eq!(ended, Ended::Status { status: Status::NotFound, fault: None });
        }
    }
}

#[test]
fn output_of_a_program_is_shown_and_kept() {
    let mut memory = vec![0; 64];
    memory[15] = 41;
    let parameters = [8_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat();
    let trial = run(&program(SEQUENCER), &memory, &parameters);
    assert_eq!(trial.steps[1].action, "put 0x2b at 0x8 if the word there is 0x29");
    assert_eq!(trial.ended, Ended::Response { bytes: 41_u64.to_be_bytes().to_vec(), version: 0 });
    assert_eq!(trial.memory[8..16], 43_u64.to_be_bytes());
    let parameters = [&16_u64.to_le_bytes()[..], b"new"].concat();
    let trial = run(&program(PUT), &memory, &parameters);
    assert_eq!(trial.steps[1].action, "write 11 bytes at 0x10");
    assert_eq!(trial.memory[16..27], *b"\x01\0\0\0\0\0\0\0new");
    let request = Request {
        memory: &memory,
        writable: false,
        parameters: &parameters,
        payload: &[],
        fuel: Fuel::default(),
    };
    let refused = Trial::run(&program(PUT), &request).expect("it begins");
    assert_eq!(refused.ended, Ended::Status { status: Status::ReadOnly, fault: None });
    assert_eq!(refused.memory, memory);
}

#[test]
fn a_run_prints_each_step() {
    let mut memory = vec![0; 128];
    memory[64] = 5;
    memory[72] = 96;
    memory[96] = 7;
    let trial = run(&program(SUM), &memory, &64_u64.to_le_bytes());
    let actions: Vec<&str> = trial.steps.iter().map(|step| step.action.as_str()).collect();
    assert_eq!(
        actions,
        ["fetch 16 bytes at 0x40", "fetch 16 bytes at 0x60", "answer with 16 bytes at 0x0 of the state"]
    );
    assert!(trial.steps.iter().all(|step| (5..30).contains(&step.fuel)));
    assert!(text(&trial).ends_with("answer of 16 bytes, version 0: 0c000000000000000200000000000000"));
    memory[104] = 120;
    let outside = run(&program(SUM), &memory, &64_u64.to_le_bytes());
    assert_eq!(outside.ended, Ended::Status { status: Status::OutOfBounds, fault: None });
}

#[test]
fn a_fault_names_its_instruction() {
    let endless = Program::verify(&[0x05, 0, 0xff, 0xff, 0, 0, 0, 0]).expect("a loop is legal");
    let trial = run(&endless, &[0; 8], &[]);
    let told = text(&trial);
    assert!(told.contains("ran out of fuel") && told.contains("before instruction 0"), "{told}");
}

#[test]
fn objects_that_are_no_program_say_why() {
    let error = |bytes: &[u8], section| format!("{:#}", load(bytes, section).expect_err("refused"));
    let this = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
    assert!(error(&this, None).contains("compile with `clang -target bpf"), "{}", error(&this, None));
    assert!(error(b"\x7fELF", None).contains("cannot be read"));
    assert!(error(LOOKUP, Some("xdp")).contains(".text"), "{}", error(LOOKUP, Some("xdp")));
    assert_eq!(load(&[1, 2, 3], None).expect("not an object"), [1, 2, 3]);
}

#[test]
fn hexadecimal_digits_are_bytes() {
    assert_eq!(bytes_of("--payload", "00fF10").expect("digits"), [0, 255, 16]);
    assert!(bytes_of("--payload", "0").is_err() && bytes_of("--payload", "zz").is_err());
    assert!(bytes_of("--payload", "é").is_err());
}

/// Runs the build line of `offload/programs/bareverbs.h` with clang: the verifier accepts its code, and the
/// clang version that made the objects here produces the same bytes. Programs that cannot be deployed are
/// refused by name.
#[test]
fn clang_builds_what_is_deployed() {
    let Some(version) = clang_version() else {
        assert!(std::env::var_os("BAREVERBS_REQUIRE_JUDGES").is_none(), "clang is missing: run .ci/install");
        println!("SKIPPED: clang is not there");
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../offload/programs");
    let compile = |source: &Path| {
        let output = directory.path().join("out.o");
        let compiled = Command::new("clang")
            .args(["-target", "bpf", "-mcpu=v3", "-O2", "-ffreestanding", "-Wall", "-Werror", "-c"])
            .arg("-I")
            .arg(&sources)
            .arg(source)
            .arg("-o")
            .arg(&output)
            .status();
        assert!(compiled.expect("clang runs").success(), "{}", source.display());
        std::fs::read(output).expect("the object")
    };
    for (name, object) in
        [("kv_lookup.c", LOOKUP), ("sum_list.c", SUM), ("sequencer.c", SEQUENCER), ("put.c", PUT)]
    {
        let code = load(&compile(&sources.join(name)), None).expect("one function");
        Program::verify(&code).expect("it can be deployed");
        if version.contains("14.0.6") {
            assert_eq!(
                code,
                load(object, None).expect("one function"),
                "{name} differs from the program in its object"
            );
        }
    }
    for (text, reason) in [
        ("static volatile u64 kept; u64 step(void *c) { return kept++; }", "refers to"),
        ("u64 other(void *c) { return 1; } u64 step(void *c) { return 2; }", "several functions"),
        (
            "__attribute__((noinline)) static u64 f(u64 x) { asm volatile(\"\"); return x; } u64 step(u64 *c) { return f(*c); }",
            "several functions",
        ),
    ] {
        let source = directory.path().join("bad.c");
        std::fs::write(&source, format!("#include \"bareverbs.h\"\n{text}\n")).expect("written");
        let object = compile(&source);
        let error = format!("{:#}", load(&object, None).expect_err("refused"));
        assert!(error.contains(reason), "{text}: {error}");
    }
}

/// The nightly rustc that made `kv_lookup_rs.o`.
const RUSTC: &str = "1.101.0-nightly (92b5b8c87 2026-10-29)";

/// Runs the build line of `docs/offload.md` for programs in Rust. The rustc version that made the object here produces
/// the same bytes. Another nightly may need another line, and a build of core needs its sources and its dependencies, so
/// a build may fail unless judges are required.
#[test]
fn rustc_builds_what_is_deployed() {
    let Some(version) = version_of("rustc", &["+nightly", "--version"]) else {
        println!("SKIPPED: a nightly rustc is not there");
        return;
    };
    let object = match object_of_rust() {
        Ok(object) => object,
        Err(complaint) => {
            let is_required = std::env::var_os("BAREVERBS_REQUIRE_JUDGES").is_some();
            assert!(!(is_required && version.contains(RUSTC)), "{version}: {complaint}");
            println!("SKIPPED: {version} does not build it: {complaint}");
            return;
        }
    };
    let code = load(&object, None).expect("one function");
    Program::verify(&code).expect("it can be deployed");
    if version.contains(RUSTC) {
        assert_eq!(
            code,
            load(LOOKUP_OF_RUST, None).expect("one function"),
            "kv_lookup_rs.o is of other sources"
        );
    }
}

/// The object that the build line makes of `kv_lookup.rs`, or what the compiler or the assembler says.
fn object_of_rust() -> Result<Vec<u8>, String> {
    let directory = programs_directory();
    // Cargo locks the directory, but the assembler does not: each run has its own object.
    let objects = tempfile::tempdir().map_err(|error| format!("a directory: {error}"))?;
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../offload/programs");
    let (assembly, object) = (directory.join("out.s"), objects.path().join("out.o"));
    let mut compiler = Command::new("cargo");
    compiler
        .args(["+nightly", "rustc", "--release", "--quiet", "--locked", "-Z", "build-std=core"])
        .args(["--target", "bpfel-unknown-none", "--manifest-path"])
        .arg(programs.join("Cargo.toml"))
        .args(["--", "-C", "target-cpu=v3", "--emit"])
        .arg(format!("asm={}", assembly.display()))
        .env("CARGO_TARGET_DIR", &directory);
    // What is set for the build of this test is not for the program.
    for name in std::env::vars_os().map(|(name, _)| name) {
        let text = name.to_string_lossy();
        if text.contains("RUSTFLAGS") || text.contains("_WRAPPER") || text.starts_with("CARGO_PROFILE_") {
            compiler.env_remove(name);
        }
    }
    let mut assembler = Command::new("clang");
    assembler.args(["-target", "bpf", "-mcpu=v3", "-c"]).arg(&assembly).arg("-o").arg(&object);
    for command in [&mut compiler, &mut assembler] {
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    std::fs::read(&object).map_err(|error| format!("{}: {error}", object.display()))
}

/// Where programs in Rust are built: beside what cargo builds for this test, so that core is built once.
fn programs_directory() -> PathBuf {
    let this = std::env::current_exe().expect("a path");
    let profile = this.parent().and_then(Path::parent).expect("this test is in deps of its profile");
    profile.join("programs-of-rust")
}

/// The version text of clang, if it is installed.
fn clang_version() -> Option<String> {
    version_of("clang", &["--version"])
}

/// What a program writes, if it is installed.
fn version_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then_some(())?;
    String::from_utf8(output.stdout).ok()
}
