//! Remote management of programs on a service: deploy, list, remove.

use super::digits::hex;
use super::program_file::ProgramFile;
use crate::Failure;
use crate::dpu::client::{ServiceArguments, ServiceConnection, ServiceConnector, ServiceTask};
use crate::dpu::offer::ConnectionKind;
use crate::dpu::opcode::{opcode_text, parse_opcode};
use crate::output::json_object;
use anyhow::{Context as _, Result, anyhow};
use bareverbs_core::hal::Hal;
use bareverbs_offload::client::deployer::{DeployFailure, Deployer, DeployerConfig, DeployerEvent};
use bareverbs_offload::kernel::Opcode;
use bareverbs_offload::program::{Deployed, Program};
use bareverbs_prm::time::Duration;
use clap::Args;
use serde_json::{Value, json};

#[derive(Debug, Clone, Args)]
pub(super) struct DeployArguments {
    #[command(flatten)]
    program: ProgramFile,
    /// Opcode for requests: up to eight letters, such as KVLOOKPR, or a number such as 0x1234. Replaces the program
    /// with that opcode; requests already in progress finish with the old version.
    #[arg(long, value_name = "OPCODE", value_parser = parse_opcode)]
    opcode: Opcode,
    #[command(flatten)]
    service: ServiceArguments,
}

#[derive(Debug, Clone, Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    service: ServiceArguments,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Args)]
pub(super) struct RemoveArguments {
    /// Opcode of the program.
    #[arg(value_name = "OPCODE", value_parser = parse_opcode)]
    opcode: Opcode,
    #[command(flatten)]
    service: ServiceArguments,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// An operation on the programs of a service.
enum ProgramTask {
    Deploy { opcode: Opcode, program: Vec<u8> },
    List,
    Remove { opcode: Opcode },
}

/// The outcome of an operation.
#[derive(Debug, Default)]
struct TaskOutcome {
    version: u64,
    listed: Vec<Deployed>,
}

/// Deploys a program. Only the service's verifier judges it, because the service may have another version.
pub(super) fn deploy(arguments: &DeployArguments) -> Result<String, Failure> {
    let (opcode, program) = (arguments.opcode, arguments.program.bytes()?);
    let instructions = program.len() / 8;
    let digest = Program::verify(&program).ok().map(|program| hex(&program.digest()));
    let outcome = arguments.service.with_service(ProgramTask::Deploy { opcode, program })?;
    let (name, version) = (opcode_text(opcode), outcome.version);
    if arguments.program.json {
        let value =
            json!({"opcode": name, "version": version, "instructions": instructions, "sha256": digest});
        return json_object("kernel-deploy", value);
    }
    let digest = digest.unwrap_or_default();
    Ok(format!("version {version} answers to {name}: {instructions} instructions, sha256 {digest}"))
}

/// Lists all versions, including old ones that still serve running requests.
pub(super) fn list(arguments: &ListArguments) -> Result<String, Failure> {
    let listed = arguments.service.with_service(ProgramTask::List)?.listed;
    if arguments.json {
        return json_object("kernel-list", listed.iter().map(object).collect());
    }
    let lines: Vec<String> = listed.iter().map(line).collect();
    Ok(if lines.is_empty() { "no programs".to_owned() } else { lines.join("\n") })
}

fn object(program: &Deployed) -> Value {
    let Deployed { opcode, version, digest, instructions, running, current } = program;
    let (opcode, digest) = (opcode_text(*opcode), hex(digest));
    json!({"opcode": opcode, "version": version, "sha256": digest, "instructions": instructions, "running": running, "current": current})
}

fn line(program: &Deployed) -> String {
    let Deployed { opcode, version, digest, instructions, running, current } = program;
    let state = if *current { "answers" } else { "leaves when its requests have ended" };
    let (opcode, digest) = (opcode_text(*opcode), hex(digest));
    format!(
        "{opcode:8}  version {version}  {state}  {running} running  {instructions} instructions  sha256 {digest}"
    )
}

/// Removes a program.
pub(super) fn remove(arguments: &RemoveArguments) -> Result<String, Failure> {
    let opcode = arguments.opcode;
    let version = arguments.service.with_service(ProgramTask::Remove { opcode })?.version;
    let name = opcode_text(opcode);
    if arguments.json {
        return json_object("kernel-remove", json!({"opcode": name, "version": version}));
    }
    Ok(format!("version {version} no longer answers to {name}"))
}

impl ProgramTask {
    fn words(&self) -> String {
        match self {
            Self::Deploy { opcode, .. } => format!("deploying {}", opcode_text(*opcode)),
            Self::List => "listing programs".to_owned(),
            Self::Remove { opcode } => format!("removing {}", opcode_text(*opcode)),
        }
    }
}

impl ServiceTask for ProgramTask {
    type Output = TaskOutcome;

    fn run<H: Hal>(self, connector: &ServiceConnector<'_, H>) -> Result<TaskOutcome, Failure> {
        let words = self.words();
        let connected =
            connector.connect(ConnectionKind::Deploy, DeployerConfig::MEMORY).context(words.clone());
        let mut connection = connected.map_err(Failure::Input)?;
        self.carry_out(connector, &mut connection).context(words).map_err(Failure::Run)
    }
}

impl ProgramTask {
    fn carry_out<H: Hal>(
        &self,
        connector: &ServiceConnector<'_, H>,
        connection: &mut ServiceConnection<'_, H>,
    ) -> Result<TaskOutcome> {
        let memory = connection.endpoint.region();
        let (address, rkey) = (memory.address(), memory.rkey().value());
        let timeout = Duration::from_millis(u64::try_from(connector.timeout.as_millis())?);
        let mut deployer =
            Deployer::new(DeployerConfig { address, rkey, credits: connection.credits(), timeout });
        let (hal, endpoint) = (connector.device.hal(), &mut connection.endpoint);
        let now = hal.now();
        let begun = match self {
            Self::Deploy { opcode, program } => deployer.deploy(now, endpoint, *opcode, program),
            Self::List => deployer.list(now, endpoint),
            Self::Remove { opcode } => deployer.remove(now, endpoint, *opcode),
        };
        begun?;
        let mut listed = Vec::new();
        loop {
            match deployer.poll(hal.now(), &mut connection.endpoint) {
                Some(DeployerEvent::Listed(program)) => listed.push(program),
                Some(DeployerEvent::ListEnd) => return Ok(TaskOutcome { version: 0, listed }),
                Some(DeployerEvent::Deployed { version } | DeployerEvent::Removed { version }) => {
                    return Ok(TaskOutcome { version, listed });
                }
                Some(DeployerEvent::Failed(failure)) => return Err(explained(failure, connection)),
                None => connector.rest(),
            }
        }
    }
}

/// A failure, with the service's message if it ended the connection.
fn explained<H: Hal>(failure: DeployFailure, connection: &mut ServiceConnection<'_, H>) -> anyhow::Error {
    match failure {
        DeployFailure::Disconnected => match connection.farewell() {
            Some(said) => anyhow!("{failure}; {said}"),
            None => failure.into(),
        },
        _ => failure.into(),
    }
}
