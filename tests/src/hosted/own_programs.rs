//! A program as a user writes it (`tests/peers/own_program.c`), in the ways in which users run theirs: in threads, beside children of `fork` and
//! `vfork`, as a daemon, with sanitizers, below valgrind, and as the first process of a container.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, is_installed};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("../../peers/own_program.c");
const HEADER: &str = "/usr/include/infiniband/verbs.h";
/// The command that gives a process and its children namespaces of their own, without privileges.
const UNSHARE: [&str; 6] = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
/// What a program prints that found every byte to be right.
const GOOD: &str = "every byte is right";

/// A way to run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnCase {
    /// Additional compiler flags.
    flags: &'static [&'static str],
    /// Words before it on the command line.
    below: &'static [&'static str],
    arguments: &'static str,
}

const fn plain(arguments: &'static str) -> OwnCase {
    OwnCase { flags: &[], below: &[], arguments }
}

/// The ways.
pub const CASES: [OwnCase; 10] = [
    plain("threads 1"),
    plain("threads 8"),
    plain("vfork"),
    plain("fork"),
    plain("daemon"),
    plain("closefrom"),
    OwnCase { flags: &["-fsanitize=address"], below: &[], arguments: "threads 2" },
    OwnCase { flags: &["-fsanitize=thread"], below: &[], arguments: "threads 8" },
    OwnCase {
        flags: &[],
        below: &[
            "valgrind",
            "-q",
            "--error-exitcode=3",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ],
        arguments: "threads 1",
    },
    OwnCase { flags: &[], below: &UNSHARE, arguments: "threads 2" },
];

impl OwnCase {
    /// The name of the row.
    pub fn name(&self) -> String {
        let words = [self.below, &["own_program"], &[self.arguments], self.flags].concat();
        format!("a: {}", words.join(" "))
    }

    /// Why it cannot run here, if it cannot.
    fn missing(&self) -> Option<String> {
        if !is_installed("gcc") || fs::metadata(HEADER).is_err() {
            return Some(
                "gcc or verbs.h is not installed (Debian: apt-get install gcc libc6-dev libibverbs-dev)"
                    .into(),
            );
        }
        let (first, rest) = self.below.split_first()?;
        if !is_installed(first) {
            return Some(format!("{first} is not installed (Debian: apt-get install {first})"));
        }
        let mut probe = Command::new(first);
        probe.args(rest).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
        let may = probe.status().is_ok_and(|status| status.success());
        (!may).then(|| format!("{} cannot be run here", self.below.join(" ")))
    }

    /// Compiles it and runs it.
    pub fn judge(&self, installation: &Installation) -> Result<Verdict> {
        if let Some(reason) = self.missing() {
            return Ok(Verdict::Skip(reason));
        }
        let program = compile(installation, self.flags)?;
        let words = [self.below, &[program.as_str()]].concat();
        let command = words.into_iter().chain(self.arguments.split(' ')).map(str::to_owned).collect();
        let ended = installation.run(&HostedProgram { host: "a".into(), command }, &[])?;
        ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
        ensure!(ended.said.contains(GOOD), "it said:\n{}", ended.said);
        Ok(Verdict::Pass(String::new()))
    }
}

/// Compiles the program with these flags and returns its path.
fn compile(installation: &Installation, flags: &[&str]) -> Result<String> {
    let source = installation.path("own_program.c");
    let program = installation.path(&format!("own_program{}", flags.concat()));
    fs::write(&source, SOURCE)?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-g", "-Wall", "-Werror"]).args(flags).arg("-o").arg(&program).arg(&source);
    let compiled = gcc.args(["-libverbs", "-lpthread"]).output().context("gcc")?;
    ensure!(compiled.status.success(), "gcc: {}", String::from_utf8_lossy(&compiled.stderr));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program.to_string_lossy().into_owned())
}
