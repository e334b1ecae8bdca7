//! A key file: 64 hexadecimal digits, readable only by its owner and group.

use anyhow::{Context as _, Result, bail};
use bareverbs_exchange::SharedKey;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Most bytes read of a file that should have 64 and a line end.
const LONGEST: u64 = 4096;

/// Reads the key in a file.
pub(super) fn read_key(path: &Path) -> Result<SharedKey> {
    let read = || -> Result<SharedKey> {
        let mut file = File::open(path)?;
        let mode = file.metadata()?.permissions().mode();
        if mode & 0o004 != 0 {
            bail!("everybody on this machine may read it: chmod 600");
        }
        let mut text = String::new();
        file.by_ref().take(LONGEST).read_to_string(&mut text)?;
        text.parse().context("make one with `openssl rand -hex 32`")
    };
    read().with_context(|| format!("key file {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};

    #[test]
    fn a_key_is_read_from_a_file_that_not_everybody_may_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        let complaint = || format!("{:#}", read_key(&path).expect_err("refused"));
        assert!(complaint().contains("No such file"));
        write(&path, format!("{}\n", "a1".repeat(32))).expect("written");
        set_permissions(&path, Permissions::from_mode(0o644)).expect("set");
        assert!(complaint().ends_with("chmod 600"), "{}", complaint());
        set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        assert_eq!(read_key(&path).expect("a key"), SharedKey::new([0xa1; 32]));
        write(&path, "secret").expect("written");
        assert!(complaint().contains("openssl rand -hex 32"), "{}", complaint());
        assert!(!complaint().contains("secret"));
    }
}
