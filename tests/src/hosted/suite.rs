//! rdma-core's own tests (its package `rdma-core`, over `python3-pyverbs`) on a virtual host, unmodified, each in a process of its
//! own, by the runner that the guest has too.

use crate::guest::mlx5::suite::{RUNNER, Results, TEST_LIMIT};
use crate::guest::table::{Entry, Verdict};
use crate::installation::{HostedProgram, Installation};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where Debian installs the suite, and the interpreter that its packages are for.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
const PYTHON: &str = "/usr/bin/python3";
/// How a test fails that asks the kernel's `devlink`, and what that means here: to the kernel of this machine there is no such device.
const NO_DEVLINK: &str = "Command '['devlink', 'dev', 'param', 'show', 'pci/";
const WANTS_DEVLINK: &str = "devlink of this machine's kernel knows no device of bareverbs run";
/// For all tests.
const LIMIT: Duration = Duration::from_secs(240);

/// The suite of the installed version.
#[derive(Debug)]
pub struct Suite<'a> {
    installation: &'a Installation,
    /// First number of its version, of which the list of verdicts is.
    pub version: String,
}

/// A test of which nothing was asked of the device, as `devlink` was asked before, has not failed.
fn without_devlink(entry: Entry) -> Entry {
    let verdict = match entry.verdict {
        Verdict::Fail(reason) if reason.contains(NO_DEVLINK) => Verdict::Skip(WANTS_DEVLINK.into()),
        verdict => verdict,
    };
    Entry { verdict, ..entry }
}

/// Why the suite cannot be run here, if it cannot.
pub fn missing() -> Option<String> {
    let pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs.device"]).output();
    let has_pyverbs = pyverbs.is_ok_and(|output| output.status.success());
    if has_pyverbs && Path::new(SUITE).is_dir() {
        return None;
    }
    Some("rdma-core's tests are not installed (Debian: apt-get install rdma-core python3-pyverbs)".into())
}

impl<'a> Suite<'a> {
    /// Unpacks the suite.
    pub fn unpack(installation: &'a Installation) -> Result<Self> {
        let query = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "rdma-core"]).output();
        let query = query.context("dpkg-query")?;
        let version = String::from_utf8(query.stdout)?;
        let version: String = version.chars().take_while(char::is_ascii_digit).collect();
        ensure!(!version.is_empty(), "dpkg-query does not know the version of rdma-core");
        let tests = installation.path("tests");
        let copied = Command::new("cp").arg("-r").arg(SUITE).arg(&tests).status()?;
        ensure!(copied.success(), "cp: {copied}");
        let unpacked = Command::new("gunzip").arg("-qr").arg(&tests).status()?;
        ensure!(unpacked.success(), "gunzip: {unpacked}");
        let runner = installation.path(RUNNER.0);
        fs::write(&runner, RUNNER.1)?;
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o644))?;
        installation.own_directory("suite")?;
        Ok(Self { installation, version })
    }

    /// Runs the tests of some modules, or all, on a host with these options.
    pub fn run(&self, names: &[&str], options: &[String], mut add: impl FnMut(Entry)) -> Result<()> {
        let path = |name: &str| self.installation.path(name).to_string_lossy().into_owned();
        let results = path("suite/results");
        let mut command = vec![PYTHON.to_owned(), path(RUNNER.0), path("tests"), results.clone()];
        command.push(TEST_LIMIT.as_secs().to_string());
        command.extend(names.iter().map(|&name| name.to_owned()));
        let program = HostedProgram { host: "a".into(), command };
        let ended = self.installation.start(&program, options)?.limit(LIMIT).finish()?;
        let text = fs::read_to_string(&results).unwrap_or_default();
        let mut seen = Results::default();
        seen.take(&text, &mut |entry| add(without_devlink(entry)))?;
        ensure!(!seen.is_empty(), "the suite ran no test, {}, and said:\n{}", ended.status, ended.said);
        seen.missing(ended.status.code().unwrap_or(-1)).for_each(add);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_asked_devlink_is_skipped_and_one_that_failed_otherwise_has_failed() {
        let entry = |reason: &str| Entry {
            columns: vec!["test_x.X.test".into()],
            verdict: Verdict::Fail(reason.into()),
            elapsed: Duration::ZERO,
        };
        let devlink = "subprocess.CalledProcessError: Command '['devlink', 'dev', 'param', 'show', 'pci/0000:e1:00.0']' failed";
        assert!(matches!(without_devlink(entry(devlink)).verdict, Verdict::Skip(_)));
        let other = "subprocess.CalledProcessError: Command '['rdma', 'dev']' failed";
        assert!(matches!(without_devlink(entry(other)).verdict, Verdict::Fail(_)));
    }
}
