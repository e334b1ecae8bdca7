//! A served card keeps its link type across a reset; a new one takes effect at its next power-on.

use crate::support;

use std::path::Path;
use support::{Served, object_of, output_of};
use tempfile::TempDir;

/// The link layer that the device reports; opening the device resets it.
fn link_layer(directory: &Path) -> String {
    let output = output_of(directory, &["devinfo", "--device", "vfio-user:nic", "--json"]);
    object_of("devinfo", &output)["port"]["link_layer"].as_str().expect("a link layer").to_owned()
}

#[test]
fn a_link_type_is_kept_across_resets_and_changes_with_the_power() {
    let directory = TempDir::new().expect("a directory");
    let directory = directory.path();
    // The default of --link is InfiniBand.
    assert!(output_of(directory, &["link-type", "eth", "--settings", "card"]).status.success());
    let card = Served::start(directory, &["--settings", "card"]);
    assert_eq!([link_layer(directory), link_layer(directory)], ["Ethernet", "Ethernet"]);
    assert!(output_of(directory, &["link-type", "ib", "--settings", "card"]).status.success());
    assert_eq!(link_layer(directory), "Ethernet", "in force from the next power-on");
    drop(card);
    let _card = Served::start(directory, &["--settings", "card"]);
    assert_eq!(link_layer(directory), "InfiniBand");
}

#[test]
fn a_file_that_holds_no_settings_is_refused() {
    let directory = TempDir::new().expect("a directory");
    std::fs::write(directory.path().join("card"), "LINK_TYPE_P1=FDDI\n").expect("written");
    for arguments in
        [&["link-type", "--settings", "card"][..], &["serve", "--socket", "nic", "--settings", "card"]]
    {
        let output = output_of(directory.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("line 1: LINK_TYPE_P1=FDDI is not a setting"), "{error}");
    }
}
