//! `bareverbs dpu serve` as a process, on one of two served devices, with two tenants that use the other.

use super::logged_process::LoggedProcess;
use super::{Served, bareverbs_on_card, object_of, output_of, wait_for};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

/// The configuration without tenants. No test here is about time, and an emulated service on a busy machine takes more than the tenth
/// of a second that a request has by default.
pub const CONFIG: &str =
    "listen = \"127.0.0.1:0\"\ndevice = \"vfio-user:nic\"\n[limits]\ntime_us = 10_000_000\n";
/// A tenant that may do everything.
pub const OWNER: &str =
    "[[tenant]]\nname = \"owner\"\nkey_file = \"owner.key\"\ndeploy = true\nread = true\nwrite = true\n";
/// A tenant that may look up, but not write.
pub const GUEST: &str = "[[tenant]]\nname = \"guest\"\nkey_file = \"guest.key\"\n";

/// A service with its devices, in its own directory.
///
/// The process ends before its devices and its directory are dropped, so it is the first field.
pub struct DpuService {
    process: LoggedProcess,
    pub directory: tempfile::TempDir,
    _devices: Served,
    address: String,
}

/// The error output of a command.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A key of 32 bytes made of these digits.
pub fn write_key(directory: &Path, name: &str, digits: &str) {
    let path = directory.join(name);
    fs::write(&path, digits.repeat(32)).expect("written");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("set");
}

/// A program of this tree.
pub fn program(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../offload/programs").join(name);
    path.into_os_string().into_string().expect("text")
}

impl DpuService {
    /// Serves fifty rows, and waits until tenants can connect.
    pub fn start(arguments: &[&str]) -> Self {
        let words = [&["--demo-table", "50"], arguments].concat();
        Self::start_with(&["--link", "eth"], &format!("{CONFIG}{OWNER}{GUEST}"), &words)
    }

    /// The same with these devices in addition to `nic` and `other`, this configuration and these arguments.
    pub fn start_with(devices: &[&str], config: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let here = directory.path();
        let served = Served::start(here, &[&["--socket", "other"], devices].concat());
        wait_for(&here.join("other"), "the second device is not served");
        for option in devices.windows(2).filter(|option| option[0] == "--dpu") {
            wait_for(&here.join(format!("{}.arm", option[1])), "the card's function is not served");
        }
        for (name, digits) in [("owner.key", "0f"), ("guest.key", "a5"), ("wrong.key", "a6")] {
            write_key(here, name, digits);
        }
        fs::write(here.join("dpu.toml"), config).expect("written");
        let mut command = bareverbs_on_card(here, &["dpu", "serve", "--config", "dpu.toml"]);
        command.args(arguments);
        let mut process = LoggedProcess::start(command);
        let line = process.logged("serving tenants at ");
        let address = line
            .rsplit("serving tenants at ")
            .next()
            .and_then(|rest| rest.split(' ').next())
            .expect("an address")
            .to_owned();
        Self { process, directory, _devices: served, address }
    }

    /// The address for tenants.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Runs a tenant's command at the other device.
    pub fn run(&self, tenant: &str, words: &[&str]) -> Output {
        let key = format!("{tenant}.key");
        self.run_as(tenant, &key, words)
    }

    /// The same with another key.
    pub fn run_as(&self, tenant: &str, key: &str, words: &[&str]) -> Output {
        let common =
            ["--device", "vfio-user:other", "--server", &self.address, "--tenant", tenant, "--key-file", key];
        output_of(self.directory.path(), &[words, &common].concat())
    }

    /// The JSON output of a command that succeeds.
    pub fn object(&self, kind: &str, tenant: &str, words: &[&str]) -> Value {
        let output = self.run(tenant, &[words, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
        object_of(kind, &output)
    }

    /// Runs a command that must succeed.
    pub fn succeeds(&self, tenant: &str, words: &[&str]) {
        let output = self.run(tenant, words);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {printed}{}", said(&output));
    }

    /// Runs a command that must fail with this status and this message.
    pub fn refused(&self, (tenant, key): (&str, &str), words: &[&str], status: i32, reason: &str) {
        let output = self.run_as(tenant, key, words);
        let complaint = said(&output);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {complaint}");
        assert!(complaint.contains(reason), "{words:?}: {complaint}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

impl Deref for DpuService {
    type Target = LoggedProcess;

    fn deref(&self) -> &LoggedProcess {
        &self.process
    }
}

impl DerefMut for DpuService {
    fn deref_mut(&mut self) -> &mut LoggedProcess {
        &mut self.process
    }
}
