//! A served card keeps its link type when it is reset, and another one is in force from its next power-on.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A card that loses power when this is dropped.
struct Card(Child);

impl Card {
    fn power_on(directory: &Path) -> Self {
        let _ = std::fs::remove_file(directory.join("nic"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
        command.args(["serve", "--socket", "nic", "--settings", "card"]).current_dir(directory);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program");
        let deadline = Instant::now() + Duration::from_secs(30);
        while !directory.join("nic").exists() {
            assert!(Instant::now() < deadline, "the server opened no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self(child)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn bareverbs(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    command.args(arguments).current_dir(directory).output().expect("the program")
}

/// What the device says; opening it resets it.
fn link_layer(directory: &Path) -> String {
    let output = bareverbs(directory, &["devinfo", "--device", "vfio-user:nic", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    object["devinfo"]["port"]["link_layer"].as_str().expect("a link layer").to_owned()
}

#[test]
fn a_link_type_is_kept_across_resets_and_changes_with_the_power() {
    let directory = TempDir::new().expect("a directory");
    let directory = directory.path();
    // --link has InfiniBand as its default.
    assert!(bareverbs(directory, &["link-type", "eth", "--settings", "card"]).status.success());
    let card = Card::power_on(directory);
    assert_eq!([link_layer(directory), link_layer(directory)], ["Ethernet", "Ethernet"]);
    assert!(bareverbs(directory, &["link-type", "ib", "--settings", "card"]).status.success());
    assert_eq!(link_layer(directory), "Ethernet", "in force from the next power-on");
    drop(card);
    let _card = Card::power_on(directory);
    assert_eq!(link_layer(directory), "InfiniBand");
}

#[test]
fn a_file_that_holds_no_settings_is_refused() {
    let directory = TempDir::new().expect("a directory");
    std::fs::write(directory.path().join("card"), "LINK_TYPE_P1=FDDI\n").expect("written");
    for arguments in
        [&["link-type", "--settings", "card"][..], &["serve", "--socket", "nic", "--settings", "card"]]
    {
        let output = bareverbs(directory.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("line 1: LINK_TYPE_P1=FDDI is no setting"), "{error}");
    }
}
