//! The file behind a client's memory, mapped if nobody can truncate it.
//!
//! Accessing a mapping beyond the end of its file raises SIGBUS, which would kill this process with every other card in
//! it. So a file is only mapped if it has the seal `F_SEAL_SHRINK`, which cannot be removed. Other files are accessed
//! by system calls: truncating one only causes errors for its own client, at a higher cost per access.

use rustix::fs::{SealFlags, fcntl_get_seals};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use vm_memory::mmap::{MmapRegion, MmapRegionBuilder};
use vm_memory::{FileOffset, VolatileMemory};

/// A client's file, from its first byte.
#[derive(Debug)]
pub(super) enum View {
    /// The file cannot shrink.
    Mapped(MmapRegion),
    /// The file may shrink. It had `length` bytes when it was mapped.
    File { file: File, length: u64 },
}

impl View {
    /// Creates a view of the first `length` bytes of a file.
    pub(super) fn new(file: File, length: u64, writable: bool) -> io::Result<Self> {
        if fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Ok(Self::Mapped(map(file, length, writable)?));
        }
        // An empty write tells whether the file supports writing: hugetlbfs does not.
        if writable {
            file.write_at(&[], 0).map_err(|cause| {
                let what = "the file can become shorter and cannot be written without a mapping";
                io::Error::new(cause.kind(), format!("{what}: {cause}; seal it (F_SEAL_SHRINK)"))
            })?;
        }
        tracing::info!("lent memory is not sealed against shrinking: it is accessed by system calls, slowly");
        Ok(Self::File { file, length })
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Mapped(region) => region.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    /// Reads from byte `at`; `None` if the file is too short.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> Option<()> {
        match self {
            Self::Mapped(region) => {
                region.get_slice(usize::try_from(at).ok()?, to.len()).ok()?.copy_to(to);
                Some(())
            }
            Self::File { file, .. } => file.read_exact_at(to, at).ok(),
        }
    }

    /// Writes from byte `at`; `None` if that is impossible.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        match self {
            Self::Mapped(region) => {
                region.get_slice(usize::try_from(at).ok()?, bytes.len()).ok()?.copy_from(bytes);
                Some(())
            }
            // A write beyond the end would grow the file without its owner's knowledge.
            Self::File { file, .. } => {
                let end = at.checked_add(bytes.len() as u64)?;
                (file.metadata().ok()?.len() >= end).then_some(())?;
                file.write_all_at(bytes, at).ok()
            }
        }
    }
}

fn map(file: File, length: u64, writable: bool) -> io::Result<MmapRegion> {
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    MmapRegionBuilder::new(length)
        .with_mmap_prot(protection)
        .with_mmap_flags(libc::MAP_SHARED | libc::MAP_NORESERVE)
        .with_file_offset(FileOffset::new(file, 0))
        .build()
        .map_err(io::Error::other)
}
