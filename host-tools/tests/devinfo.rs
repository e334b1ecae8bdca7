//! `bareverbs devinfo` as a process, on a device that another process serves.

mod support;

use std::path::Path;
use std::process::Output;
use support::{Served, object_of, output_of};
use tempfile::TempDir;

fn devinfo(directory: &Path, arguments: &[&str]) -> Output {
    output_of(directory, &[&["devinfo"], arguments].concat())
}

#[test]
fn a_served_device_is_shown_and_compared() {
    let directory = TempDir::new().expect("a directory");
    let _server = Served::start(directory.path(), &["--link", "eth"]);
    let output = devinfo(directory.path(), &["--device", "vfio-user:nic", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let object = object_of("devinfo", &output);
    assert_eq!(
        (&object["device"]["vendor_id"], &object["port"]["link_layer"]),
        (&"0x02c9".into(), &"Ethernet".into())
    );
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
