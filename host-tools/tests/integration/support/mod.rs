//! Runs the command as a process, alone and as a server.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod dpu_service;
#[path = "../../../../tests/src/free_port.rs"]
mod free_port;
pub mod logged_process;

use serde_json::Value;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it is ready.
const READY: Duration = Duration::from_secs(30);

/// The command, to be run in `directory`.
pub fn bareverbs(directory: &Path, arguments: &[&str]) -> Command {
    in_directory(Command::new(env!("CARGO_BIN_EXE_bareverbs")), directory, arguments)
}

/// The command on the card of a DPU. `BAREVERBS_DPU_COMMAND` says in words how to start it there, such as `qemu-aarch64 PATH`.
pub fn bareverbs_on_card(directory: &Path, arguments: &[&str]) -> Command {
    let Ok(words) = std::env::var("BAREVERBS_DPU_COMMAND") else { return bareverbs(directory, arguments) };
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().expect("BAREVERBS_DPU_COMMAND names a program"));
    command.args(words);
    in_directory(command, directory, arguments)
}

fn in_directory(mut command: Command, directory: &Path, arguments: &[&str]) -> Command {
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The output of the command when it runs in `directory`.
pub fn output_of(directory: &Path, arguments: &[&str]) -> Output {
    bareverbs(directory, arguments).output().expect("the program")
}

/// The JSON object of a tool, which must match the schema with its name.
pub fn object_of(kind: &str, output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let mut object: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(object["schema"], format!("bareverbs.{kind}.v1"));
    object[kind].take()
}

/// A process that is killed when this is dropped.
pub struct KillOnDrop(pub Child);

impl Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A served device. Dropping it cuts its power.
pub struct Served(#[expect(dead_code, reason = "dropping it ends the process")] KillOnDrop);

impl Served {
    /// Serves devices in `directory`: the first at the socket `nic`.
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        let _ = std::fs::remove_file(directory.join("nic"));
        let mut command = bareverbs(directory, &["serve", "--socket", "nic"]);
        let child =
            command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program");
        let served = Self(KillOnDrop(child));
        wait_for(&directory.join("nic"), "the server opened no socket");
        served
    }
}

/// Waits until a file exists.
pub fn wait_for(path: &Path, complaint: &str) {
    let deadline = Instant::now() + READY;
    while !path.exists() {
        assert!(Instant::now() < deadline, "{complaint}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A TCP port that nobody uses, as text.
pub fn free_port() -> String {
    free_port::free_port().expect("a port").to_string()
}

/// Hosts of a private network.
pub struct Hosts(tempfile::TempDir);

impl Hosts {
    /// A network without hosts.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    /// The home directory of their network.
    pub fn home(&self) -> &Path {
        self.0.path()
    }

    /// The output of `bareverbs run --list` for it.
    pub fn list(&self) -> String {
        let mut command = bareverbs(self.0.path(), &["run", "--list"]);
        let output = command.env("XDG_RUNTIME_DIR", self.0.path()).output().expect("the program");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The command, to run on a host.
    pub fn on(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = bareverbs(self.0.path(), arguments);
        command.args(["--host", host]).env("XDG_RUNTIME_DIR", self.0.path());
        command
    }

    /// The output of `client` on host b and of `server` on host a, which starts first.
    pub fn both(&self, server: &[&str], client: &[&str]) -> [Output; 2] {
        let server = self.on("a", server).spawn().expect("the program");
        wait_for(&self.0.path().join("bareverbs/networks/default/hosts/a"), "the server is in no network");
        let client = self.on("b", client).output().expect("the program");
        [client, server.wait_with_output().expect("the program")]
    }
}
