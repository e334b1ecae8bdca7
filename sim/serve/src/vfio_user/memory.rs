//! A client's memory: DMA_MAP, DMA_UNMAP, and the device's accesses to mapped ranges.
//!
//! A booting virtual machine maps and unmaps parts of one file hundreds of times. So each file is mapped into this
//! process once, as a whole, and a DMA mapping only names a part of it. Accesses outside any mapping fault. A file that
//! is too short when it is mapped is refused; if it is truncated later, accesses fault ([`View`]).

use super::view::View;
use bareverbs_sim::nic::{DmaFault, HostMemory};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

/// Most mappings of a client.
const MAXIMUM: usize = 1 << 20;
/// Most files of a client. Each takes a descriptor of this process, which all cards share.
const FILES: usize = 64;
/// The last bytes of a write, stored after all others because software polls them.
const TAIL: usize = 4;

/// One range of I/O virtual addresses.
#[derive(Debug)]
struct Mapping {
    size: u64,
    /// The view behind it and the offset in it; `None` if this process cannot access it.
    view: Option<(Arc<View>, u64)>,
    readable: bool,
    writable: bool,
}

/// A file that is already mapped.
#[derive(Debug)]
struct KnownFile {
    device: u64,
    inode: u64,
    writable: bool,
    view: Weak<View>,
}

/// A mapping request of the client.
#[derive(Debug)]
pub(super) struct MapRequest {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) file: Option<File>,
}

/// All mappings of a client.
#[derive(Debug, Default)]
pub struct ClientMemory {
    mappings: BTreeMap<u64, Mapping>,
    files: Vec<KnownFile>,
}

impl ClientMemory {
    /// Number of mapped ranges.
    pub fn len(&self) -> usize {
        self.mappings.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Removes all mappings.
    pub(super) fn clear(&mut self) {
        self.mappings.clear();
        self.files.clear();
    }

    /// Maps a range that overlaps no other. Without a file the range exists, but every access to it faults.
    pub(super) fn map(&mut self, request: MapRequest) -> io::Result<()> {
        let end = end_of(request.address, request.size)?;
        if self.mappings.len() >= MAXIMUM {
            return Err(io::Error::new(ErrorKind::OutOfMemory, "too many mappings"));
        }
        if self.overlapping(request.address, end).next().is_some() {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "the range overlaps a mapping"));
        }
        let writable = request.writable;
        let view = match request.file {
            Some(file) => {
                let end = end_of(request.offset, request.size)?;
                Some((self.view(file, end, writable)?, request.offset))
            }
            None => None,
        };
        let mapping = Mapping { size: request.size, view, readable: request.readable, writable };
        self.mappings.insert(request.address, mapping);
        Ok(())
    }

    /// Unmaps all mappings inside a range. If the range would cut a mapping, nothing is unmapped.
    pub(super) fn unmap(&mut self, address: u64, size: u64) -> io::Result<()> {
        let end = end_of(address, size)?;
        let hit: Vec<(u64, u64)> = self.overlapping(address, end).map(|(at, map)| (at, map.size)).collect();
        if hit.iter().any(|&(at, size)| at < address || at + (size - 1) > end) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the range would cut a mapping"));
        }
        for (at, _) in hit {
            self.mappings.remove(&at);
        }
        Ok(())
    }

    /// Mappings that overlap the addresses from `address` to `last`.
    fn overlapping(&self, address: u64, last: u64) -> impl Iterator<Item = (u64, &Mapping)> {
        let before = self.mappings.range(..address).next_back();
        let before = before.filter(move |(at, map)| **at + (map.size - 1) >= address);
        before.into_iter().chain(self.mappings.range(address..=last)).map(|(at, map)| (*at, map))
    }

    /// A view of a file whose bytes up to `last` will be used.
    fn view(&mut self, file: File, last: u64, writable: bool) -> io::Result<Arc<View>> {
        let about = file.metadata()?;
        let kind = about.file_type();
        if kind.is_char_device() || kind.is_fifo() || kind.is_socket() || about.len() <= last {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the file does not hold the range"));
        }
        self.files.retain(|known| known.view.strong_count() > 0);
        let known =
            self.files.iter().filter(|known| (known.device, known.inode) == (about.dev(), about.ino()));
        let known = known.filter(|known| known.writable >= writable).find_map(|known| known.view.upgrade());
        if let Some(view) = known.filter(|view| view.len() > last) {
            return Ok(view);
        }
        if self.files.len() >= FILES {
            let message = format!("{FILES} files are lent already; lend memory from fewer files");
            return Err(io::Error::new(ErrorKind::QuotaExceeded, message));
        }
        let view = Arc::new(View::new(file, about.len(), writable)?);
        let (device, inode) = (about.dev(), about.ino());
        self.files.push(KnownFile { device, inode, writable, view: Arc::downgrade(&view) });
        Ok(view)
    }

    /// Calls `step` for each piece of an access with the view, the offset in it, and the part of the buffer.
    fn walk(
        &self,
        iova: u64,
        length: usize,
        write: bool,
        mut step: impl FnMut(&View, u64, core::ops::Range<usize>) -> Option<()>,
    ) -> Result<(), DmaFault> {
        let fault = DmaFault { iova, length, write };
        let mut done = 0;
        while done < length {
            let at = iova.checked_add(done as u64).ok_or(fault)?;
            let (start, map) = self.mappings.range(..=at).next_back().ok_or(fault)?;
            let inside = at - start;
            let left = map.size.checked_sub(inside).filter(|left| *left > 0).ok_or(fault)?;
            let (view, offset) = map.view.as_ref().ok_or(fault)?;
            if !(if write { map.writable } else { map.readable }) {
                return Err(fault);
            }
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(length - done);
            step(view, offset + inside, done..done + take).ok_or(fault)?;
            done += take;
        }
        Ok(())
    }
}

impl HostMemory for ClientMemory {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        self.walk(iova, buffer.len(), false, |view, from, part| view.read(from, buffer.get_mut(part)?))?;
        // Orders this read before the next: a doorbell record before the entries it counts.
        fence(Ordering::Acquire);
        Ok(())
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let (head, tail) = bytes.split_at(bytes.len().saturating_sub(TAIL));
        self.copy_out(iova, head)?;
        // An entry's owner byte is in the tail, and software checks it first.
        fence(Ordering::Release);
        self.copy_out(iova.wrapping_add(head.len() as u64), tail)
    }
}

impl ClientMemory {
    fn copy_out(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.walk(iova, bytes.len(), true, |view, from, part| view.write(from, bytes.get(part)?))
    }
}

/// Last address of a range; an error if the range is empty or wraps around.
fn end_of(address: u64, size: u64) -> io::Result<u64> {
    let last = size.checked_sub(1).and_then(|rest| address.checked_add(rest));
    last.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the range is empty or has no end"))
}

#[cfg(test)]
mod tests;
