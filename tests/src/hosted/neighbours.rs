//! A program that resolves an unknown neighbour outside the network waits for the answer; its other threads
//! do not.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use anyhow::{Context, Result, ensure};

const SCRIPT: &str = include_str!("../../peers/neighbour.py");
const PYTHON: &str = "/usr/bin/python3";
const TIMED_OUT: u64 = 110;
/// Milliseconds for which the bridge keeps asking, at least.
const ASKED: u64 = 500;

/// Runs the script in a network whose wire leads to nobody.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if !is_installed("ibv_devinfo") || !std::path::Path::new(PYTHON).exists() {
        return Ok(Verdict::Skip("python3 is not installed (Debian: apt-get install python3)".into()));
    }
    let port = free_port()?;
    let network = format!("asking-{port}");
    let directory = installation.own_directory(&network)?;
    let end = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let wire = ["run", "--network", &network, "--wire", &end("own"), "--wire-to", &end("nobody")];
    let bridge = installation.start_tool(&wire)?;
    let _bridge = bridge.wait_for_file(&installation.network_path(&network).join("outside"))?;
    let script = installation.path("neighbour.py");
    std::fs::write(&script, SCRIPT)?;
    let command = vec![PYTHON.to_owned(), script.to_string_lossy().into_owned()];
    let options = ["--network", &network].map(str::to_owned);
    let ended = installation.run(&HostedProgram { host: "a".into(), command }, &options)?;
    ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    let number = |name: &str| -> Result<u64> {
        let mut words = ended.said.split_whitespace().skip_while(|word| *word != name);
        Ok(words.nth(1).with_context(|| format!("{name} in {}", ended.said))?.parse()?)
    };
    let (asked, error, longest) = (number("asked")?, number("error")?, number("longest")?);
    ensure!(error == TIMED_OUT && asked >= ASKED, "{}", ended.said);
    ensure!(longest < asked / 2, "another thread waited for the neighbour, too: {}", ended.said);
    Ok(Verdict::Pass(ended.said.trim().into()))
}
