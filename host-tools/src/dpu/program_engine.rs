//! What runs the programs of a service. Programs that should be machine code and cannot are interpreted, and the log says so.

use super::opcode::opcode_text;
use bareverbs::offload::kernel::Opcode;
use bareverbs::offload::program::{Engine, Executable as _, Program};
use bareverbs_offload_native::{MachineCode, NativeProgram, TranslateError};
use std::io::ErrorKind;

/// Machine code, if the configuration says so, with a warning for each program that gets none.
pub(super) struct ProgramEngine {
    machine_code: MachineCode,
}

impl ProgramEngine {
    pub(super) const fn new(machine_code: MachineCode) -> Self {
        Self { machine_code }
    }
}

impl Engine for ProgramEngine {
    type Executable = NativeProgram;

    fn prepare(&mut self, opcode: Opcode, program: Program) -> NativeProgram {
        let prepared = self.machine_code.prepare(opcode, program);
        match prepared.translation() {
            Ok(_) | Err(TranslateError::Off) => {}
            Err(error) => warn(opcode, prepared.program(), error),
        }
        prepared
    }
}

fn warn(opcode: Opcode, program: &Program, error: TranslateError) {
    let digest: String = program.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    tracing::warn!(
        program = opcode_text(opcode),
        sha256 = digest,
        instructions = program.instructions().len(),
        "this program is interpreted, which takes two to three times as long: {error}; {}",
        advice(error)
    );
}

/// What the operator can do.
const fn advice(error: TranslateError) -> &'static str {
    match error {
        TranslateError::Memory { error: ErrorKind::PermissionDenied, .. } => {
            "let the service make memory executable (SELinux: execmem, systemd: MemoryDenyWriteExecute=no) and deploy again, or set machine_code = false"
        }
        TranslateError::Memory { .. } => {
            "give the service more memory (ulimit -v, systemd: MemoryMax=) and deploy again, or set machine_code = false"
        }
        _ => "deploy a shorter program, or set machine_code = false",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::log_to_stderr;
    use bareverbs::offload::program::{Fuel, Instruction, ProgramStore};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::process::{Command, Output};
    use zerocopy::IntoBytes as _;

    const SUM: Opcode = Opcode(u64::from_be_bytes(*b"SUM\0\0\0\0\0"));
    /// Says that this process is one of its own, of which the memory can be limited.
    const ALONE: &str = "BAREVERBS_TEST_LIMITED_MEMORY";

    /// Runs a test of this file once more, in a process of its own.
    fn alone(test: &str) -> Output {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        command.args(["--exact", &format!("dpu::program_engine::tests::{test}"), "--nocapture"]);
        let output = command.env(ALONE, "1").env("RUST_LOG", "info").output().expect("this program");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("running 1 test"), "no test of this name: {said}");
        output
    }

    /// Deploys a program in a process that gets no further memory from the system.
    fn deploy_without_memory(engine: MachineCode) {
        log_to_stderr("info").expect("a log");
        // r0 = 0, which is the verb "done"; exit.
        let code = [Instruction::new(0xb7, 0, 0, 0, 0), Instruction::new(0x95, 0, 0, 0, 0)];
        let program = Program::verify(code.as_bytes()).expect("it ends");
        let mut store: ProgramStore<2, _> =
            ProgramStore::with_engine(Fuel::default(), ProgramEngine::new(engine));
        let before = getrlimit(Resource::As);
        setrlimit(Resource::As, Rlimit { current: Some(0), ..before }).expect("less is allowed");
        let deployed = store.deploy(SUM, program);
        setrlimit(Resource::As, before).expect("no more than before");
        assert_eq!(deployed, Ok(1));
    }

    #[test]
    fn a_program_that_gets_no_memory_for_its_code_is_logged() {
        let Ok(engine) = MachineCode::new() else {
            println!("SKIPPED: no machine code runs here");
            return;
        };
        if std::env::var_os(ALONE).is_some() {
            return deploy_without_memory(engine);
        }
        let output = alone("a_program_that_gets_no_memory_for_its_code_is_logged");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}");
        for part in [
            "WARN",
            "this program is interpreted",
            "machine code: Cannot allocate memory (os error 12)",
            "ulimit -v",
            "program=\"SUM\"",
            "instructions=2",
            "sha256=\"",
        ] {
            assert!(log.contains(part), "{part:?} is not in {log}");
        }
    }

    /// Without a request for machine code there is no warning that it is missing.
    #[test]
    fn machine_code_that_is_off_is_no_warning() {
        if std::env::var_os(ALONE).is_some() {
            return deploy_without_memory(MachineCode::OFF);
        }
        let output = alone("machine_code_that_is_off_is_no_warning");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !log.contains("WARN"), "{log}");
    }

    #[test]
    fn advice_fits_what_the_system_said() {
        let refused = |error| TranslateError::Memory { bytes: 64, error, errno: None };
        assert!(advice(refused(ErrorKind::PermissionDenied)).contains("SELinux"));
        assert!(advice(refused(ErrorKind::OutOfMemory)).contains("MemoryMax"));
    }
}
