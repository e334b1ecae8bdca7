//! `bareverbs run`: an unmodified program finds an RDMA device where there is none.
//!
//! This writes the files that describe the device, points the program's environment at them and at the library that answers
//! for the device (`bareverbs-preload`), and becomes the program.

mod files;
mod program;

use crate::Failure;
use anyhow::{Context, anyhow, bail};
use bareverbs_uverbs::{Uverbs, VirtualHost, sysfs};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that is loaded into the program.
const LIBRARY: &str = "libbareverbs_preload.so";
/// Variables that the library reads.
const DIRECTORY: &str = "BAREVERBS_RUN_DIRECTORY";
const HOST: &str = "BAREVERBS_RUN_HOST";

/// Run a program that finds a simulated RDMA device. Today the device can be found, opened and asked what it is; memory cannot
/// be registered and queue pairs cannot be made yet.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Virtual host that the program runs on; its name decides the addresses of its device.
    #[arg(long, default_value = "host", value_parser = parse_host)]
    pub host: VirtualHost,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

fn parse_host(name: &str) -> Result<VirtualHost, String> {
    VirtualHost::new(name)
        .ok_or_else(|| "a virtual host has 1 to 32 letters, digits, hyphens or dots in its name".into())
}

/// Becomes the program; returns only if that cannot be.
pub fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let mut command = prepare(arguments).map_err(Failure::Input)?;
    let error = command.exec();
    let program = command.get_program().to_string_lossy();
    Err(Failure::Input(anyhow!(error).context(format!("cannot run {program}"))))
}

/// The program with its environment.
fn prepare(arguments: &RunArguments) -> anyhow::Result<Command> {
    let (name, rest) = arguments.command.split_first().context("no program is given")?;
    let path = program::find(name)?;
    program::check(&path)?;
    if !program::has_libibverbs() {
        eprintln!(
            "bareverbs run: no libibverbs.so.1 in the directories of the system; without it a program looks for no RDMA \
             device (Debian: apt-get install libibverbs1 ibverbs-providers)"
        );
    }
    let library = library()?;
    let directory = describe(&arguments.host)?;
    let mut command = Command::new(&path);
    command.args(rest).env(DIRECTORY, directory).env(HOST, arguments.host.name());
    command.env("LD_PRELOAD", preload(&library, std::env::var_os("LD_PRELOAD").as_deref()));
    Ok(command)
}

/// Ours first; what was preloaded before stays.
fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

/// The library lies beside this program.
fn library() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let library = program.with_file_name(LIBRARY);
    if !library.is_file() {
        bail!(
            "{} is not there; `cargo build --release` makes it together with this program",
            library.display()
        );
    }
    // The dynamic linker takes both for the end of a name.
    if library.to_string_lossy().contains([' ', ':']) {
        bail!("{}: a path with a space or a colon cannot be preloaded; move the build", library.display());
    }
    Ok(library)
}

/// Writes the files that describe the device of a host and gives their directory.
fn describe(host: &VirtualHost) -> anyhow::Result<PathBuf> {
    let config = host.nic_config();
    let device = Uverbs::boot(config, &host.gids(), &mut files::NoProgram)
        .context("the simulated device does not come up")?;
    files::write(&sysfs::tree(device.attributes(), &config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_before_stays() {
        let library = Path::new("/x/lib.so");
        assert_eq!(preload(library, None), "/x/lib.so");
        assert_eq!(preload(library, Some(OsStr::new(""))), "/x/lib.so");
        assert_eq!(preload(library, Some(OsStr::new("/y.so"))), "/x/lib.so:/y.so");
    }

    #[test]
    fn the_files_of_a_host_are_written_once() {
        let host = VirtualHost::new("a").unwrap();
        let directory = describe(&host).unwrap();
        let line = |path: &str| std::fs::read_to_string(directory.join(path)).unwrap();
        assert_eq!(line("sys/class/infiniband_verbs/uverbs0/ibdev"), "mlx5_0\n");
        assert_eq!(line("sys/class/infiniband/mlx5_0/device/vendor"), "0x15b3\n");
        assert_eq!(line("sys/bus/pci/devices/0000:e1:00.0/device"), "0x1017\n");
        assert_eq!(line("sys/class/infiniband/mlx5_0/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
        assert_eq!(describe(&host).unwrap(), directory);
        assert_ne!(describe(&VirtualHost::new("b").unwrap()).unwrap(), directory, "another host");
    }
}
