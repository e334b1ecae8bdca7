//! `bareverbs devinfo` as a process, on a device that another process serves.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that ends with the test.
struct Server(Child);

impl Server {
    /// Serves a device at `socket` in `directory`.
    fn start(directory: &Path, link: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
        command.args(["serve", "--socket", "nic", "--link", link]).current_dir(directory);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program");
        let deadline = Instant::now() + Duration::from_secs(30);
        while !directory.join("nic").exists() {
            assert!(Instant::now() < deadline, "the server opened no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn devinfo(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    command.arg("devinfo").args(arguments).current_dir(directory).output().expect("the program")
}

#[test]
fn a_served_device_is_shown_and_compared() {
    let directory = TempDir::new().expect("a directory");
    let _server = Server::start(directory.path(), "eth");
    let output = devinfo(directory.path(), &["--device", "vfio-user:nic", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let (device, port) = (&object["devinfo"]["device"], &object["devinfo"]["port"]);
    assert_eq!((&object["schema"], &device["vendor_id"]), (&"bareverbs.devinfo.v1".into(), &"0x02c9".into()));
    assert_eq!(port["link_layer"], "Ethernet");
    let output = devinfo(directory.path(), &["--diff", "vfio-user:nic", "vfio-user:nic"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    let output = devinfo(directory.path(), &["--diff", "vfio-user:nic", "sim:infiniband"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("link_layer"));
}

#[test]
fn what_is_not_there_is_refused_with_status_2() {
    let directory = TempDir::new().expect("a directory");
    for (device, complaint) in [
        ("vfio-user:none", "opening vfio-user:none"),
        ("ff:1f.7", "there is no PCI function 0000:ff:1f.7"),
        ("mlx5_0", "names no device"),
    ] {
        let output = devinfo(directory.path(), &["--device", device]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{device}: {error}");
        assert!(error.contains(complaint), "{device}: {error}");
        assert!(output.stdout.is_empty());
    }
}
