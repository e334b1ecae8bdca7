//! A process of the command whose log a test reads.

use super::KillOnDrop;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{ChildStderr, Command};

/// A process that is killed when this is dropped, and its error output.
pub struct LoggedProcess {
    pub child: KillOnDrop,
    log: BufReader<ChildStderr>,
}

impl LoggedProcess {
    /// Starts a command whose error output is a pipe.
    pub fn start(mut command: Command) -> Self {
        let mut child = KillOnDrop(command.spawn().expect("the program"));
        let log = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { child, log }
    }

    /// The next line of the log that contains `part`.
    pub fn logged(&mut self, part: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).expect("a pipe") > 0, "{part:?} was not logged: {all}");
            if line.contains(part) {
                return line.trim_end().to_owned();
            }
            all.push_str(&line);
        }
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits until the process, which was told to end, ends with status 0.
    pub fn ends_well(&mut self) {
        let status = self.child.wait().expect("the program");
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).expect("a pipe");
        assert!(status.success(), "{status}: {rest}");
    }
}
