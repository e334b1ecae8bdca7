//! Our own programs at devices that the kernel owns (`--device uverbs:mlx5_0`), which `bareverbs run --devx` simulates: a service, lookups in
//! every way, a service that is killed, one that is told to end, and `bareverbs perf`.

use crate::guest::table::Verdict;
use crate::installation::{Installation, free_port};
use anyhow::{Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const SCRIPT: &str = include_str!("../../peers/kernel_device.sh");
/// The lookup as a program, and its name in the script.
const PROGRAM: (&str, &[u8]) = ("kv_lookup.o", include_bytes!("../../../offload/programs/kv_lookup.o"));
/// Values that the tenant must get, and what the two ends of a test compare.
const SAID: [&str; 5] = [
    "value of key-7",
    "value of key-8",
    "value of key-9",
    " 1000000 bytes compared, all equal",
    " 8 bytes compared, all equal",
];

/// Runs the script.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    let (port, measured) = (free_port()?, free_port()?);
    let directory = installation.own_directory(&format!("service-{port}"))?;
    let program = directory.join(PROGRAM.0);
    fs::write(&program, PROGRAM.1)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644))?;
    let script = format!("cd '{}'\nport={port} measured={measured}\n{SCRIPT}", directory.display());
    let ended = installation.run_shell(&script)?;
    ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    for words in SAID {
        ensure!(ended.said.contains(words), "{words:?} is not in what was said:\n{}", ended.said);
    }
    Ok(Verdict::Pass(String::new()))
}
