//! The files that describe a device, in a directory named after their contents. The first process that needs
//! it writes it, and it never changes.

use anyhow::{Context, Result, bail};
use bareverbs_uverbs::sysfs::{Entry, Node};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Writes the files, unless they exist, and returns their directory.
pub(super) fn write(home: &Path, tree: &[Entry]) -> Result<PathBuf> {
    let directory = home.join(format!("device-{:016x}", digest(tree)));
    if directory.is_dir() {
        return Ok(directory);
    }
    let unfinished = home.join(format!("unfinished-{}-{:016x}", std::process::id(), digest(tree)));
    let written = fill(&unfinished, tree)
        .with_context(|| format!("cannot write the files of the device to {}", unfinished.display()));
    if written.is_ok() && fs::rename(&unfinished, &directory).is_ok() {
        return Ok(directory);
    }
    // Either writing failed, or another process was faster; the files written so far are useless.
    let _ = fs::remove_dir_all(&unfinished);
    written?;
    if directory.is_dir() { Ok(directory) } else { bail!("cannot make {}", directory.display()) }
}

fn digest(tree: &[Entry]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in tree {
        entry.path.hash(&mut hasher);
        match &entry.node {
            Node::Directory => 0.hash(&mut hasher),
            Node::File(text) => (1, text).hash(&mut hasher),
            Node::Link(target) => (2, target).hash(&mut hasher),
        }
    }
    hasher.finish()
}

fn fill(directory: &Path, tree: &[Entry]) -> std::io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(directory)?;
    for entry in tree {
        let path = directory.join(&entry.path);
        match &entry.node {
            Node::Directory => fs::create_dir(path)?,
            Node::File(text) => fs::write(path, text)?,
            Node::Link(target) => symlink(target, path)?,
        }
    }
    Ok(())
}
