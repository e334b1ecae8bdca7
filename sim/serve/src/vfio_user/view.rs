//! What lies behind memory that a client lends: its file, mapped if nobody can make it shorter.
//!
//! An access to a mapping beyond the end of its file is a SIGBUS, which would end this process and every other card in it. So
//! a file is mapped only if it carries `F_SEAL_SHRINK`, which is never taken off again. Any other file is read and written by
//! system calls: cutting it short is then an error of that client alone, and every access costs more.

use rustix::fs::{SealFlags, fcntl_get_seals};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use vm_memory::mmap::{MmapRegion, MmapRegionBuilder};
use vm_memory::{FileOffset, VolatileMemory};

/// A file of a client, from its first byte on.
#[derive(Debug)]
pub(super) enum View {
    /// It keeps its length.
    Mapped(MmapRegion),
    /// It may become shorter. It had `length` bytes when it was lent.
    File { file: File, length: u64 },
}

impl View {
    /// Views the first `length` bytes of a file.
    pub(super) fn new(file: File, length: u64, writable: bool) -> io::Result<Self> {
        if fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Ok(Self::Mapped(map(file, length, writable)?));
        }
        // An empty write tells whether the file can be written at all: hugetlbfs has no write.
        if writable {
            file.write_at(&[], 0).map_err(|cause| {
                let what = "the file can become shorter and cannot be written without a mapping";
                io::Error::new(cause.kind(), format!("{what}: {cause}; seal it (F_SEAL_SHRINK)"))
            })?;
        }
        tracing::info!("lent memory is not sealed against shrinking: it is accessed by system calls, slowly");
        Ok(Self::File { file, length })
    }

    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Mapped(region) => region.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    /// Reads from byte `at` on; `None` if the file does not have the bytes (any more).
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> Option<()> {
        match self {
            Self::Mapped(region) => {
                region.get_slice(usize::try_from(at).ok()?, to.len()).ok()?.copy_to(to);
                Some(())
            }
            Self::File { file, .. } => file.read_exact_at(to, at).ok(),
        }
    }

    /// Writes from byte `at` on; `None` if that cannot be.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        match self {
            Self::Mapped(region) => {
                region.get_slice(usize::try_from(at).ok()?, bytes.len()).ok()?.copy_from(bytes);
                Some(())
            }
            // A write beyond the end would make the file longer again behind its owner's back.
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
