//! A capture runs out of disk space: the program gets a message and continues.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// Enough messages that their frames need several times the available room.
const MESSAGES: u32 = 500;
/// What the script prints about the capture.
const CAPTURED: &str = "captured bytes:";

/// Why the capture has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// It reaches the maximum length of a file (`ulimit -f`), in blocks of 512 bytes: the program gets an
    /// error and no signal.
    LongestFile,
    /// The disk is full: a file system of 4 MiB that only the program sees.
    FullDisk,
}

/// Both.
pub const SHORTAGES: [Shortage; 2] = [Shortage::LongestFile, Shortage::FullDisk];

impl Shortage {
    /// The name of the row.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LongestFile => "a / b: a capture that reaches the longest length of a file",
            Self::FullDisk => "a / b: a capture on a disk that is full",
        }
    }

    /// The words of a command that starts a shell with a script; the script's arguments are a command.
    fn script(self, directory: &str) -> Vec<String> {
        let after =
            format!("\"$@\"; status=$?; echo '{CAPTURED}' $(wc -c <{directory}/x.pcapng); exit $status");
        let (shell, before): (&[&str], String) = match self {
            Self::LongestFile => (&["sh"], "trap '' XFSZ; ulimit -f 8192".into()),
            Self::FullDisk => (
                &["unshare", "--user", "--map-root-user", "--mount", "sh"],
                format!("mount -t tmpfs -o size=4m none {directory}"),
            ),
        };
        let words = shell.iter().map(|&word| word.to_owned());
        words.chain(["-c".to_owned(), format!("{before} || exit; {after}")]).collect()
    }

    /// Why it cannot be arranged here, if it cannot.
    fn missing(self) -> Option<String> {
        let mut probe = Command::new("unshare");
        probe
            .args(["--user", "--map-root-user", "--mount", "true"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let may = self == Self::LongestFile || probe.status().is_ok_and(|status| status.success());
        (!may).then(|| "this machine gives its users no mount namespaces of their own".into())
    }

    /// Runs a test of perftest with such a capture.
    pub fn judge(self, installation: &Installation) -> Result<Verdict> {
        if !is_installed("ib_write_bw") {
            return Ok(Verdict::Skip(
                "ib_write_bw is not installed (Debian: apt-get install perftest)".into(),
            ));
        }
        if let Some(reason) = self.missing() {
            return Ok(Verdict::Skip(reason));
        }
        let port = free_port()?;
        let directory = installation.own_directory(&format!("full-{port}"))?;
        let program = |host: &str, peer: &str| {
            let command = format!("ib_write_bw -F -n {MESSAGES} -p {port}{peer}");
            HostedProgram {
                host: host.into(),
                command: command.split_whitespace().map(str::to_owned).collect(),
            }
        };
        let mut server = installation.start(&program("a", ""), &[])?;
        server.wait_for_port(installation, port)?;
        let options = ["--capture".to_owned(), directory.join("x.pcapng").to_string_lossy().into_owned()];
        let script = self.script(&directory.to_string_lossy());
        let script: Vec<&str> = script.iter().map(String::as_str).collect();
        let client = installation.start_by_script(&script, &program("b", " a"), &options)?;
        let (client, server) = (client.finish()?, server.finish()?);
        for ended in [&server, &client] {
            ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
        }
        for words in ["the capture stopped", "check space", "the program goes on"] {
            ensure!(client.said.contains(words), "\"{words}\" is not in the output:\n{}", client.said);
        }
        let written = client.said.split(CAPTURED).nth(1).and_then(|rest| rest.split_whitespace().next());
        let written: u64 = written.with_context(|| client.said.clone())?.parse()?;
        ensure!(written > 0, "nothing was captured before");
        Ok(Verdict::Pass(format!("{written} bytes")))
    }
}
