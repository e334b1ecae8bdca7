//! Child processes of a judge: run to the end with their output kept, shown now and then, and never left
//! behind.

use super::interrupt;
pub use crate::kill_on_drop::KillOnDrop;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a line of a long-running program is shown.
const SHOW_EVERY: Duration = Duration::from_secs(5);
/// How often a wait checks whether it should end.
pub const TICK: Duration = Duration::from_millis(20);

/// Runs a short program and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is on the path.
pub fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Runs a long program with its output in `log` and a line of it shown every few seconds.
pub fn run_shown(title: &str, command: &mut Command, log: &Path, limit: Duration) -> Result<()> {
    eprintln!("guest: {title} …");
    let started = Instant::now();
    let mut script = Command::new("setpriv");
    script.args(["--pdeathsig", "TERM", "--", "sh", "-c", "exec \"$@\" 2>&1", "sh"]);
    script.arg(command.get_program()).args(command.get_args());
    script.envs(command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    script.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = script.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let mut child = KillOnDrop(child);
    let lines = lines_of(&mut child.0, log)?;
    show(&lines, started, limit).with_context(|| format!("{title}; see {}", log.display()))?;
    let status = child.0.wait()?;
    if !status.success() {
        bail!("{title}: {command:?} ended with {status}; see {}", log.display());
    }
    eprintln!("guest: {title}: done in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Sends the lines of a child to a channel and to the end of `log`.
fn lines_of(child: &mut Child, log: &Path) -> Result<Receiver<String>> {
    let output = child.stdout.take().context("no standard output")?;
    let mut log = File::options().create(true).append(true).open(log)?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if writeln!(log, "{line}").is_err() || sender.send(line).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

fn show(lines: &Receiver<String>, started: Instant, limit: Duration) -> Result<()> {
    let mut shown = Instant::now();
    loop {
        interrupt::check()?;
        if started.elapsed() > limit {
            bail!("not done after {} s", limit.as_secs());
        }
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) if shown.elapsed() >= SHOW_EVERY => {
                shown = Instant::now();
                eprintln!("guest:   {:>4.0} s  {:.100}", started.elapsed().as_secs_f64(), line.trim());
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}
