//! The program to run: where it is, and whether a library can be loaded into it.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;
const EXECUTABLE: u32 = 0o111;
/// Library directories of distributions, in addition to `LD_LIBRARY_PATH`.
const LIBRARY_DIRECTORIES: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

/// Finds a program by name, as a shell does.
pub(super) fn find(name: &OsStr) -> Result<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories)
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
        .with_context(|| format!("{} is not in a directory of PATH", name.to_string_lossy()))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & EXECUTABLE != 0)
}

/// Refuses programs into which the dynamic linker loads nothing.
pub(super) fn check(path: &Path) -> Result<()> {
    let about = path.metadata().with_context(|| format!("cannot run {}", path.display()))?;
    if about.permissions().mode() & SET_ID != 0 {
        bail!(
            "{} runs with the rights of another user, so the dynamic linker loads no library into it; run a copy of it",
            path.display()
        );
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if is_static(&bytes) {
        bail!(
            "{} is linked statically: it calls the kernel without the system's libibverbs and C library, so \
             it cannot be run this way; link it dynamically",
            path.display()
        );
    }
    Ok(())
}

/// Whether this is a 64-bit ELF program without a dynamic linker. The interpreter of a script is another
/// program.
fn is_static(bytes: &[u8]) -> bool {
    const SEGMENTS_AT: usize = 32;
    const SEGMENT_SIZE_AT: usize = 54;
    const SEGMENT_COUNT_AT: usize = 56;
    const INTERPRETER: u32 = 3;
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let half = |at: usize| bytes.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let table = bytes.get(SEGMENTS_AT..SEGMENTS_AT + 8).and_then(|eight| eight.try_into().ok());
    let table = table.and_then(|eight| usize::try_from(u64::from_le_bytes(eight)).ok());
    let segments = bytes.get(table.unwrap_or(usize::MAX)..).unwrap_or(&[]);
    let segments = segments.chunks(usize::from(half(SEGMENT_SIZE_AT)).max(1));
    let mut kinds = segments.take(half(SEGMENT_COUNT_AT).into()).filter_map(|segment| segment.first_chunk());
    !kinds.any(|kind| u32::from_le_bytes(*kind) == INTERPRETER)
}

/// A warning if libibverbs, or its driver for our devices, is not where it is expected.
pub(super) fn missing_library() -> Option<&'static str> {
    let chosen = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = LIBRARY_DIRECTORIES.iter().map(PathBuf::from);
    let directories: Vec<PathBuf> = std::env::split_paths(&chosen).chain(usual).collect();
    missing_in(&directories)
}

fn missing_in(directories: &[PathBuf]) -> Option<&'static str> {
    let is_missing = |name: &str| !directories.iter().any(|directory| directory.join(name).exists());
    NEEDED.into_iter().find(|(name, _)| is_missing(name)).map(|(_, said)| said)
}

/// Libraries, and the warning if one is missing.
const NEEDED: [(&str, &str); 2] = [
    (
        "libibverbs.so.1",
        "bareverbs run: no libibverbs.so.1 in the directories of the system; without it a program looks for no RDMA device \
         (Debian: apt-get install libibverbs1 ibverbs-providers)",
    ),
    (
        "libmlx5.so.1",
        "bareverbs run: no libmlx5.so.1 in the directories of the system; without that driver libibverbs finds no RDMA device \
         (Debian: apt-get install ibverbs-providers)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header with one segment of a kind.
    fn elf(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (bytes[32], bytes[54], bytes[56], bytes[64]) = (64, 56, 1, kind);
        bytes
    }

    #[test]
    fn a_program_without_a_dynamic_linker_is_static() {
        assert!(is_static(&elf(1)));
        assert!(!is_static(&elf(3)));
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(is_static(b"\x7fELF\x02\x01"), "cut short");
        assert!(!is_static(&std::fs::read("/proc/self/exe").unwrap()));
    }

    #[test]
    fn libraries_are_looked_for_in_every_directory_and_the_first_that_is_missing_is_named() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let looked = || missing_in(&[first.path(), second.path()].map(PathBuf::from));
        let says =
            |words: [&str; 2]| looked().is_some_and(|said| words.iter().all(|word| said.contains(word)));
        assert!(says(["libibverbs.so.1", "apt-get install libibverbs1 ibverbs-providers"]));
        std::fs::write(second.path().join("libibverbs.so.1"), "").unwrap();
        assert!(says(["libmlx5.so.1", "apt-get install ibverbs-providers"]));
        std::fs::write(first.path().join("libmlx5.so.1"), "").unwrap();
        assert_eq!(looked(), None);
    }

    #[test]
    fn a_name_without_a_slash_is_looked_for() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(find(OsStr::new("./x")).unwrap(), Path::new("./x"));
        let missing = find(OsStr::new("no-such-program")).unwrap_err().to_string();
        assert_eq!(missing, "no-such-program is not in a directory of PATH");
    }
}
