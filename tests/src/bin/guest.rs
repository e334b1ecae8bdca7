//! The judges that live in a Linux guest. `guest rxe` lets Linux's Soft-RoCE judge the wire.

use anyhow::Result;
use bareverbs_tests::guest::machine::{Configuration, Machine};
use bareverbs_tests::guest::root::Root;
use bareverbs_tests::guest::{Skipped, interrupt};
use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "Judges in a Linux guest: programs that nobody here wrote against the simulated NIC")]
struct Arguments {
    #[command(subcommand)]
    judge: Judge,
}

#[derive(Subcommand)]
enum Judge {
    /// Build the guest's root file system and stop.
    Build,
    /// Boot the guest and run one shell command in it.
    Run {
        /// The command.
        command: String,
    },
}

fn main() -> ExitCode {
    match interrupt::install().and_then(|()| run(&Arguments::parse())) {
        Ok(code) => code,
        Err(error) => match error.downcast_ref::<Skipped>() {
            Some(skipped) => {
                println!("{skipped}");
                ExitCode::SUCCESS
            }
            None => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.judge {
        Judge::Build => Root::prepare().map(|_| ExitCode::SUCCESS),
        Judge::Run { command } => run_command(command),
    }
}

fn run_command(command: &str) -> Result<ExitCode> {
    let root = Root::prepare()?;
    let mut machine = Machine::boot(&root, &Configuration::default(), Path::new("target/guest/console.log"))?;
    let outcome = machine.control.run(command, Duration::from_secs(300))?;
    print!("{}", outcome.output);
    Ok(ExitCode::from(u8::try_from(outcome.status).unwrap_or(1)))
}
