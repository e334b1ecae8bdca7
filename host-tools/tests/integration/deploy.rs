//! The command understands the systemd units in `deploy/`.

use std::path::{Path, PathBuf};
use std::process::Command;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

/// The words after a unit's `ExecStart=`.
fn exec_start(unit: &str) -> Vec<String> {
    let text = std::fs::read_to_string(deploy(unit)).expect("a unit");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("ExecStart");
    line.split_whitespace().map(str::to_owned).collect()
}

/// The command only fails at a file that is missing on this machine, so it has understood all words before.
#[test]
fn commands_of_systemd_units_parse() {
    for (unit, complaint) in [
        ("bareverbs-dpu.service", "/etc/bareverbs/dpu.toml"),
        ("bareverbs-dpu-host.service", "/var/lib/bareverbs/rows.csv"),
    ] {
        let words = exec_start(unit);
        assert!(words[0].ends_with("/bareverbs"), "{words:?}");
        let output = Command::new(env!("CARGO_BIN_EXE_bareverbs")).args(&words[1..]).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(complaint), "{unit}: {said}");
        assert!(!said.contains("Usage:"), "{unit}: {said}");
    }
}
