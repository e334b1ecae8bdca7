//! OpenMPI over UCX: four ranks of a virtual host, each with a device of its own, exchange data with all
//! others.

use super::ucx;
use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, is_installed};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const SOURCE: &str = include_str!("../../peers/all_to_all.c");
/// Only the device may carry messages: no shared memory, no TCP.
const ENVIRONMENT: [&str; 2] = ["UCX_TLS=rc_v,self", "UCX_NET_DEVICES=mlx5_0:1"];
const MPIRUN: [&str; 9] = ["mpirun", "-n", "4", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "btl"];

/// Compiles the program and runs it.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if let Some(program) = ["mpicc", "mpirun", "gcc"].into_iter().find(|program| !is_installed(program)) {
        let reason =
            format!("{program} is not installed (Debian: apt-get install openmpi-bin libopenmpi-dev gcc)");
        return Ok(Verdict::Skip(reason));
    }
    if let Some(reason) = ucx::missing(&ENVIRONMENT.map(str::to_owned)) {
        return Ok(Verdict::Skip(reason));
    }
    let (source, program) = (installation.path("all_to_all.c"), installation.path("all_to_all"));
    fs::write(&source, SOURCE)?;
    let compiled = Command::new("mpicc").arg("-O1").arg("-o").arg(&program).arg(&source).output();
    let compiled = compiled.context("mpicc")?;
    ensure!(compiled.status.success(), "mpicc: {}", String::from_utf8_lossy(&compiled.stderr));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let home = installation.own_directory("home")?;
    let mut command = vec!["env".to_owned(), format!("HOME={}", home.display())];
    command.extend(ENVIRONMENT.iter().chain(&MPIRUN).map(|&word| word.to_owned()));
    command.extend(["self".to_owned(), program.to_string_lossy().into_owned()]);
    let ended = installation.run(&HostedProgram { host: "a".into(), command }, &[])?;
    ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    ensure!(ended.said.contains("4 ranks, 0 wrong"), "it said:\n{}", ended.said);
    Ok(Verdict::Pass(String::new()))
}
