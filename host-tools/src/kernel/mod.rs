//! `bareverbs kernel`: programs to deploy as kernels near data. Before deployment: whether the verifier accepts them,
//! their instructions, and their effect on the memory in a file, step by step. `remote` deploys, lists and removes them
//! on a service; `call` calls one.

mod call;
mod digits;
mod program_file;
mod remote;
mod trial;

use crate::Failure;
use crate::output::json_object;
use anyhow::Context as _;
use bareverbs_offload::program::{Fuel, Operation, Program};
use bareverbs_offload_native::NativeProgram;
use clap::{Args, Subcommand};
use digits::{bytes_of, hex};
use program_file::{ProgramFile, read};
use serde_json::{Value, json};
use std::path::PathBuf;
use trial::{Ended, Request, Trial};

/// Arguments of `bareverbs kernel`.
#[derive(Debug, Clone, Args)]
pub struct KernelArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Check whether a program can be deployed, and print its length and digest. Exit status 1 if it cannot.
    Check(ProgramFile),
    /// Print its instructions in LLVM's syntax.
    Disassemble(ProgramFile),
    /// Run one request over the memory in a file and print each step. Exit status 1 if it ends without an answer.
    Run(TrialArguments),
    /// Deploy a program on a `bareverbs dpu serve` service. Exit status 1 if its verifier refuses it.
    Deploy(Box<remote::DeployArguments>),
    /// List the programs of a service.
    List(Box<remote::ListArguments>),
    /// Call a kernel or a program of a service. Exit status 1 if it returns a status instead of an answer.
    Call(Box<call::CallArguments>),
    /// Remove a program from a service. Exit status 1 if it does not exist.
    Remove(Box<remote::RemoveArguments>),
}

#[derive(Debug, Clone, Args)]
struct TrialArguments {
    #[command(flatten)]
    program: ProgramFile,
    /// File with the granted region. Offsets count from its start.
    #[arg(long, value_name = "FILE")]
    memory: PathBuf,
    /// Grant write access, too. Writes go to a copy, which --memory-after saves.
    #[arg(long)]
    writable: bool,
    /// Save the region as the request left it to this file.
    #[arg(long, value_name = "FILE", requires = "writable")]
    memory_after: Option<PathBuf>,
    /// Parameters of the request, in hexadecimal digits.
    #[arg(long, value_name = "HEX", default_value = "")]
    parameters: String,
    /// Payload of the request, in hexadecimal digits.
    #[arg(long, value_name = "HEX", default_value = "")]
    payload: String,
    /// Fuel per step.
    #[arg(long, value_name = "UNITS", default_value_t = Fuel::default().step)]
    step_fuel: u32,
    /// Fuel for the whole request.
    #[arg(long, value_name = "UNITS", default_value_t = Fuel::default().invocation)]
    fuel: u32,
    /// Run the program as machine code of this processor instead of interpreting it.
    #[arg(long)]
    machine_code: bool,
}

/// Runs the subcommand. Returns false if the program cannot be deployed, or gave no answer.
pub fn run(arguments: &KernelArguments) -> Result<bool, Failure> {
    let (text, good) = match &arguments.action {
        Action::Check(program) => check(program)?,
        Action::Disassemble(program) => (disassemble(program)?, true),
        Action::Run(arguments) => try_out(arguments)?,
        Action::Deploy(arguments) => (remote::deploy(arguments)?, true),
        Action::Call(arguments) => call::call(arguments)?,
        Action::List(arguments) => (remote::list(arguments)?, true),
        Action::Remove(arguments) => (remote::remove(arguments)?, true),
    };
    println!("{text}");
    Ok(good)
}

fn check(file: &ProgramFile) -> Result<(String, bool), Failure> {
    let bytes = file.bytes()?;
    let verified = Program::verify(&bytes);
    let digest = verified.as_ref().ok().map(|program| hex(&program.digest()));
    let instructions = bytes.len() / 8;
    let error = verified.as_ref().err().map(ToString::to_string);
    let text = if file.json {
        let value = json!({"instructions": instructions, "sha256": digest, "error": error});
        json_object("kernel-check", value)?
    } else {
        match (&digest, &error) {
            (Some(digest), _) => format!("{instructions} instructions, sha256 {digest}: can be deployed"),
            (None, error) => format!("cannot be deployed: {}", error.as_deref().unwrap_or_default()),
        }
    };
    Ok((text, verified.is_ok()))
}

fn disassemble(file: &ProgramFile) -> Result<String, Failure> {
    let program = file.program()?;
    let code = program.instructions();
    let mut lines = Vec::new();
    let mut at = 0;
    while let Ok(operation) = Operation::decode(code, at) {
        let target = match operation {
            Operation::Jump { offset, .. } => Some(at as i64 + 1 + i64::from(offset)),
            _ => None,
        };
        lines.push((at, operation.to_string(), target));
        at += operation.slots();
    }
    if file.json {
        let object = |(at, text, target): &(usize, String, Option<i64>)| json!({"instruction": at, "text": text, "target": target});
        return json_object("kernel-disassembly", lines.iter().map(object).collect());
    }
    let line = |(at, text, target): &(usize, String, Option<i64>)| match target {
        Some(target) => format!("{at:4}: {text}  # {target}"),
        None => format!("{at:4}: {text}"),
    };
    Ok(lines.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn try_out(arguments: &TrialArguments) -> Result<(String, bool), Failure> {
    let program = arguments.program.program()?;
    let memory = read(&arguments.memory)?;
    let parameters = bytes_of("--parameters", &arguments.parameters)?;
    let payload = bytes_of("--payload", &arguments.payload)?;
    let request = Request {
        memory: &memory,
        writable: arguments.writable,
        parameters: &parameters,
        payload: &payload,
        fuel: Fuel { step: arguments.step_fuel, invocation: arguments.fuel },
    };
    let trial = if arguments.machine_code {
        let program = NativeProgram::new(program);
        program.translation().context("--machine-code").map_err(Failure::Input)?;
        Trial::run(&program, &request)
    } else {
        Trial::run(&program, &request)
    };
    let trial = trial.map_err(Failure::Input)?;
    if let Some(path) = &arguments.memory_after {
        let written = std::fs::write(path, &trial.memory);
        written.with_context(|| format!("writing {}", path.display())).map_err(Failure::Run)?;
    }
    let good = matches!(trial.ended, Ended::Response { .. });
    let text = if arguments.program.json { json_object("kernel-run", object(&trial))? } else { text(&trial) };
    Ok((text, good))
}

fn text(trial: &Trial) -> String {
    let mut lines: Vec<String> = trial
        .steps
        .iter()
        .enumerate()
        .map(|(number, step)| format!("step {number}, {} units of fuel: {}", step.fuel, step.action))
        .collect();
    lines.push(match &trial.ended {
        Ended::Response { bytes, version } => {
            format!("answer of {} bytes, version {version}: {}", bytes.len(), hex(bytes))
        }
        Ended::Status { status, fault: None } => format!("no answer: {status}"),
        Ended::Status { status, fault: Some(fault) } => format!("no answer: {status} ({fault})"),
    });
    lines.join("\n")
}

fn object(trial: &Trial) -> Value {
    let steps: Vec<Value> =
        trial.steps.iter().map(|step| json!({"fuel": step.fuel, "action": step.action})).collect();
    match &trial.ended {
        Ended::Response { bytes, version } => {
            json!({"steps": steps, "answer": hex(bytes), "version": version, "status": "ok"})
        }
        Ended::Status { status, fault } => {
            let fault = fault.as_ref().map(ToString::to_string);
            json!({"steps": steps, "answer": null, "status": status.to_string(), "fault": fault})
        }
    }
}

#[cfg(test)]
mod tests;
