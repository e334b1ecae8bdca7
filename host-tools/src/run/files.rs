//! The files that describe a device, in a directory that is named after their contents: it is written once, by whoever comes
//! first, and never changes.

use anyhow::{Context, Result, bail};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{DmaFault, HostMemory};
use bareverbs_uverbs::sysfs::{Entry, Node};
use bareverbs_uverbs::{Errno, EventFileId, EventFileKind, Process};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Nobody's memory: a device that is only asked what it is touches none.
#[derive(Debug)]
pub(super) struct NoProgram;

impl HostMemory for NoProgram {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, length: buffer.len(), write: false })
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, length: bytes.len(), write: true })
    }
}

impl Process for NoProgram {
    fn now(&mut self) -> Time {
        Time::ZERO
    }

    fn open_event_file(&mut self, _: EventFileId, _: EventFileKind) -> Result<i32, Errno> {
        Err(Errno::NotSupported)
    }

    fn event_file(&mut self, _: i32) -> Option<EventFileId> {
        None
    }

    fn discard_events(&mut self, _: EventFileId, _: u64) -> u32 {
        0
    }

    fn hang_up(&mut self, _: EventFileId) {}

    fn has_memory(&mut self, _: u64, _: u64, _: bool) -> bool {
        false
    }

    fn resolve(&mut self, _: Gid) -> Option<MacAddress> {
        None
    }

    fn inode(&mut self, _: i32) -> Option<(u64, u64)> {
        None
    }
}

/// Writes the files, unless they are there, and gives their directory.
pub(super) fn write(tree: &[Entry]) -> Result<PathBuf> {
    let home = home()?;
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
    // Either it went wrong, or somebody else was faster; what was written so far is of no use.
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

/// The user's own directory for what is forgotten at the next boot.
fn home() -> Result<PathBuf> {
    let own = rustix::process::getuid().as_raw();
    let home = match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => Path::new(&directory).join("bareverbs"),
        None => std::env::temp_dir().join(format!("bareverbs-{own}")),
    };
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&home).with_context(|| {
        format!("cannot make {}; set XDG_RUNTIME_DIR to a directory of your own", home.display())
    })?;
    let about = fs::symlink_metadata(&home).with_context(|| format!("cannot read {}", home.display()))?;
    if !about.is_dir() || about.uid() != own {
        bail!("{} belongs to somebody else; set XDG_RUNTIME_DIR to a directory of your own", home.display());
    }
    Ok(home)
}
