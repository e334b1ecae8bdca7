//! Commands in the guest: one line out, one line back, over a virtio-serial port. See `init.sh` for the other end.

use super::{interrupt, process};
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The guest ends a command at its time limit. This is how much longer its answer may take.
const GRACE: Duration = Duration::from_secs(10);
/// Longest line that a guest may send: 64 KiB in base64 and some more.
const LONGEST_LINE: usize = 128 << 10;

/// The host's end of the control port.
#[derive(Debug)]
pub struct Control {
    stream: UnixStream,
    received: Vec<u8>,
    issued: u64,
    ended: BTreeMap<u64, CommandOutcome>,
    kernel: Option<String>,
}

/// A command that was started in the guest.
#[derive(Debug)]
#[must_use = "a command that nobody waits for is a command that may fail in silence"]
pub struct GuestJob {
    number: u64,
    /// What runs, for messages.
    pub command: String,
    deadline: Instant,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    /// Exit status; 124 if it ran out of time.
    pub status: i32,
    /// The end of its standard output and error.
    pub output: String,
}

impl CommandOutcome {
    /// Whether the command ended with status 0.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }
}

impl Control {
    /// Takes the port over.
    pub fn new(stream: UnixStream) -> Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Vec::new(), issued: 0, ended: BTreeMap::new(), kernel: None })
    }

    /// The kernel's release, once the guest has reported that it is ready.
    pub fn kernel(&mut self) -> Result<Option<&str>> {
        self.receive()?;
        Ok(self.kernel.as_deref())
    }

    /// Starts a shell command that may run for `limit` at most.
    pub fn start(&mut self, command: &str, limit: Duration) -> Result<GuestJob> {
        self.issued += 1;
        let seconds = limit.as_secs().max(1);
        let line = format!("{} {seconds} {}\n", self.issued, BASE64.encode(command));
        self.send(line.as_bytes()).with_context(|| format!("cannot start in the guest: {command}"))?;
        let deadline = Instant::now() + Duration::from_secs(seconds) + GRACE;
        Ok(GuestJob { number: self.issued, command: command.to_owned(), deadline })
    }

    /// Sends a command that restarts the guest. Running commands are forgotten, and the guest has to report
    /// anew that it is ready.
    pub fn restart(&mut self, command: &str) -> Result<()> {
        let _ends_with_the_guest = self.start(command, GRACE)?;
        self.kernel = None;
        self.ended.clear();
        self.received.clear();
        Ok(())
    }

    /// The outcome of a command if it has ended.
    pub fn poll(&mut self, job: &GuestJob) -> Result<Option<CommandOutcome>> {
        self.receive()?;
        let outcome = self.ended.remove(&job.number);
        if outcome.is_none() && Instant::now() > job.deadline {
            bail!("the guest gave no answer in time to: {}", job.command);
        }
        Ok(outcome)
    }

    /// Waits for the end of a command.
    pub fn wait(&mut self, job: &GuestJob) -> Result<CommandOutcome> {
        loop {
            if let Some(outcome) = self.poll(job)? {
                return Ok(outcome);
            }
            interrupt::check()?;
            std::thread::sleep(process::TICK);
        }
    }

    /// Runs a command to its end, whatever its exit status.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<CommandOutcome> {
        let job = self.start(command, limit)?;
        self.wait(&job)
    }

    /// Runs a command that must succeed and returns its output.
    pub fn require(&mut self, command: &str, limit: Duration) -> Result<String> {
        let outcome = self.run(command, limit)?;
        if !outcome.is_success() {
            bail!("in the guest, '{command}' ended with {}: {}", outcome.status, outcome.output.trim());
        }
        Ok(outcome.output)
    }

    /// Ends a command early and returns its outcome.
    pub fn cancel(&mut self, job: &GuestJob) -> Result<CommandOutcome> {
        let kill = format!("kill $(cat /run/bareverbs/{}.process) 2>/dev/null || true", job.number);
        self.require(&kill, Duration::from_secs(5))?;
        self.wait(job)
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        let deadline = Instant::now() + GRACE;
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                    interrupt::check()?;
                    std::thread::sleep(process::TICK);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => bail!("the guest closed its control port (did its kernel panic?)"),
                Ok(count) => self.received.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("control port of the guest"),
            }
            self.take_lines()?;
        }
        Ok(())
    }

    fn take_lines(&mut self) -> Result<()> {
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            self.take_line(String::from_utf8_lossy(&line).trim())?;
        }
        if self.received.len() > LONGEST_LINE {
            bail!("the guest sends a line that does not end");
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str) -> Result<()> {
        if let Some(kernel) = line.strip_prefix("ready ") {
            self.kernel = Some(kernel.to_owned());
            return Ok(());
        }
        let (number, outcome) = parse_done(line).with_context(|| format!("the guest says {line:.80}"))?;
        self.ended.insert(number, outcome);
        Ok(())
    }
}

fn parse_done(line: &str) -> Option<(u64, CommandOutcome)> {
    let mut words = line.strip_prefix("done ")?.split(' ');
    let (number, status) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let output = BASE64.decode(words.next().unwrap_or_default()).ok()?;
    Some((number, CommandOutcome { status, output: String::from_utf8_lossy(&output).into_owned() }))
}

#[cfg(test)]
mod tests {
    use super::{CommandOutcome, Control, parse_done};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn an_answer_has_number_status_and_output() {
        let outcome = CommandOutcome { status: 3, output: "hi\n".into() };
        assert_eq!(parse_done("done 7 3 aGkK"), Some((7, outcome)));
        assert_eq!(parse_done("done 7 0 "), Some((7, CommandOutcome { status: 0, output: String::new() })));
        for bad in ["", "done", "done x 0 ", "done 1 y ", "done 1 0 %%%", "gone 1 0 "] {
            assert_eq!(parse_done(bad), None, "{bad}");
        }
    }

    #[test]
    fn answers_find_their_jobs_in_any_order() {
        let (host, mut guest) = UnixStream::pair().expect("a pair of sockets");
        let mut control = Control::new(host).expect("a control port");
        let first = control.start("echo one", Duration::from_secs(5)).expect("started");
        let second = control.start("false", Duration::from_secs(5)).expect("started");
        let mut requests = vec![0; 64];
        let count = guest.read(&mut requests).expect("requests");
        assert!(String::from_utf8_lossy(&requests[..count]).starts_with("1 5 ZWNobyBvbmU=\n2 5 "));
        assert_eq!(control.poll(&first).expect("alive"), None);
        guest.write_all(b"ready 6.12\ndone 2 1 \ndone 1 0 b25lCg==\n").expect("answers");
        assert_eq!(control.wait(&first).expect("ended").output, "one\n");
        assert_eq!(control.wait(&second).expect("ended").status, 1);
        assert_eq!(control.kernel().expect("alive"), Some("6.12"));
        drop(guest);
        assert!(control.poll(&second).is_err());
    }
}
