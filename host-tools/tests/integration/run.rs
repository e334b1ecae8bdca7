//! The errors of `bareverbs run` for bad input: a sentence that names the problem and what to do. No program
//! is started.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Exit status for unusable input.
const BAD_INPUT: i32 = 2;

/// A home directory for networks, only for this test.
fn home() -> TempDir {
    TempDir::new().expect("a directory")
}

/// Runs `bareverbs run`, which must refuse and print all of `words`.
fn refuses(home: &Path, arguments: &[&str], words: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    command.arg("run").args(arguments).env("XDG_RUNTIME_DIR", home).current_dir(home);
    let output = command.output().expect("bareverbs starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(BAD_INPUT), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}: the program was started");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: {word:?} is not in {said:?}");
    }
}

/// An executable file.
fn program(home: &Path, name: &str, bytes: &[u8], mode: u32) {
    let path = home.join(name);
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
}

#[test]
fn a_name_that_no_host_can_have_is_refused() {
    let home = home();
    for name in ["a b", "", "a/b", &"a".repeat(33)] {
        refuses(home.path(), &["--host", name, "--", "true"], &["--host", "letters", "digits"]);
    }
    refuses(home.path(), &["--link-down", "nobody"], &["no host \"nobody\"", "its hosts are"]);
}

#[test]
fn a_network_of_another_version_is_refused() {
    let home = home();
    let network = home.path().join("bareverbs/networks/default");
    fs::create_dir_all(&network).expect("made");
    fs::write(network.join("version"), "99\n").expect("written");
    let words = ["version 99", "--network", "delete"];
    refuses(home.path(), &["--list"], &words);
    refuses(home.path(), &["--link-down", "a"], &words);
}

#[test]
fn a_static_program_is_refused() {
    let home = home();
    // The header of a 64-bit ELF program without a segment that names a dynamic linker.
    let mut header = vec![0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    program(home.path(), "static", &header, 0o755);
    refuses(home.path(), &["--", "./static"], &["./static", "statically", "link it dynamically"]);
}

#[test]
fn a_program_with_the_rights_of_another_user_is_refused() {
    let home = home();
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2755)] {
        program(home.path(), name, b"#!/bin/sh\necho started\n", mode);
        let named = format!("./{name}");
        refuses(home.path(), &["--", &named], &[&named, "another user", "run a copy"]);
    }
}

#[test]
fn a_capture_that_cannot_be_written_is_refused() {
    let home = home();
    program(home.path(), "script", b"#!/bin/sh\necho started\n", 0o755);
    let refuse = |file: &str, words: &[&str]| {
        refuses(home.path(), &["--capture", file, "--", "./script"], words);
    };
    // If the library is not beside it, the command says that first.
    let library = Path::new(env!("CARGO_BIN_EXE_bareverbs")).with_file_name("libbareverbs_preload.so");
    if !library.exists() {
        assert!(std::env::var_os("BAREVERBS_AS_BUILT").is_none(), "{} was not built", library.display());
        refuse("none/x.pcapng", &["cargo build", "libbareverbs_preload.so"]);
        return;
    }
    refuse("none/x.pcapng", &["cannot write the capture", "none/x.pcapng"]);
    refuse("/dev/null", &["cannot write the capture", "not a file"]);
}

#[test]
fn a_program_that_is_not_there_is_refused() {
    let home = home();
    refuses(home.path(), &["--", "no-such-program"], &["no-such-program", "PATH"]);
    refuses(home.path(), &["--", "./no-such-program"], &["cannot run ./no-such-program"]);
}
