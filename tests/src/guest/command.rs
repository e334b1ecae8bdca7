//! The command `bareverbs`, built from this tree, and servers that run it.

use super::process::{self, KillOnDrop, TICK};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The packages of the judge and of what it judges. Cargo chooses features for all packages of a command together, so a command
/// with fewer of them would compile what they share anew.
const PACKAGES: [&str; 3] = ["bareverbs-tests", "bareverbs-tools", "bareverbs-preload"];
/// The variable that says that everything beside this program was built with it. `.ci/run` sets it: its build has the features of the whole
/// workspace, and cargo would compile the packages here once more without them.
const AS_BUILT: &str = "BAREVERBS_AS_BUILT";
/// How long a server may take to listen.
const LIMIT: Duration = Duration::from_secs(20);

/// Builds the command with this program's profile and returns its path.
pub fn build() -> Result<PathBuf> {
    build_program(&PACKAGES, &["--bin", "bareverbs"], "bareverbs")
}

/// Like [`build`], for the library that `bareverbs run` loads into programs.
pub fn build_library() -> Result<PathBuf> {
    build_program(&PACKAGES, &["--lib"], "libbareverbs_preload.so")
}

/// Like [`build`], for an example of the backends.
pub fn build_example(name: &str) -> Result<PathBuf> {
    let target = ["--features", "uverbs", "--example", name];
    build_program(&["bareverbs-hal"], &target, &format!("examples/{name}"))
}

/// Builds `target` of these packages; cargo puts the result into `file`, beside this program.
fn build_program(packages: &[&str], target: &[&str], file: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.parent().context("this program has no directory")?.join(file);
    let as_built = std::env::var_os(AS_BUILT).is_some();
    if !as_built {
        run_cargo(packages, target).with_context(|| format!("{file} cannot be built"))?;
    }
    if !program.is_file() {
        let who = if as_built { AS_BUILT } else { "cargo" };
        bail!("{} is missing although {who} says that it was built", program.display());
    }
    Ok(program)
}

/// Runs cargo with this program's profile.
fn run_cargo(packages: &[&str], target: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet"]).args(packages.iter().flat_map(|package| ["-p", package]));
    command.args(target);
    command.args(if cfg!(debug_assertions) { None } else { Some("--release") });
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    process::output(&mut command).map(drop)
}

/// Runs `bareverbs serve` with a socket and more arguments until its owner is dropped. Its output goes to
/// `log`.
pub fn serve(bareverbs: &Path, socket: &Path, arguments: &[&str], log: &Path) -> Result<KillOnDrop> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(bareverbs).args(["serve", "--socket"]).arg(socket);
    let log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let child = KillOnDrop(command.spawn().context("cannot run bareverbs serve")?);
    let deadline = Instant::now() + LIMIT;
    while !socket.exists() {
        anyhow::ensure!(Instant::now() < deadline, "bareverbs serve does not listen");
        std::thread::sleep(TICK);
    }
    Ok(child)
}
