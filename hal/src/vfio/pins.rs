//! Pinned pages, for a device that gets physical addresses.
//!
//! With an IOMMU, the kernel pins mapped pages. Without one, nobody does: locked pages stay in memory, but compaction
//! and NUMA balancing may still move them while the device keeps writing to the old location. Registering a buffer with
//! an io_uring pins it for the lifetime of the ring, on any kernel that permits io_uring.

use crate::memory::{Piece, Stretch};
use rustix::io_uring::{IoringRegisterOp, io_uring_params, io_uring_register, io_uring_setup};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Longest buffer that the kernel registers, in bytes.
const LONGEST: usize = 1 << 30;

/// Resources of one piece until all its stretches are unmapped.
#[derive(Debug)]
struct Pinned {
    /// Pins the pages until it is closed.
    _ring: OwnedFd,
    stretches: Vec<u64>,
}

/// The pinned pieces of one device.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<Vec<Pinned>>);

impl Pins {
    /// Pins a piece, obtains its stretches from `addresses`, and remembers them until all are unmapped.
    ///
    /// # Errors
    /// An errno: the kernel has no io_uring or forbids it (`kernel.io_uring_disabled`), the limit of locked memory is
    /// reached, or `addresses` failed.
    ///
    /// # Safety
    /// As [`Mapper::map`](crate::memory::Mapper::map).
    pub(super) unsafe fn map(
        &self,
        piece: &Piece<'_>,
        addresses: impl FnOnce(&Piece<'_>) -> Result<Vec<Stretch>, i32>,
    ) -> Result<Vec<Stretch>, i32> {
        // SAFETY: the caller promises that the pages stay mapped.
        let ring = unsafe { pin(piece) }?;
        let stretches = addresses(piece)?;
        let pinned =
            Pinned { _ring: ring, stretches: stretches.iter().map(|stretch| stretch.iova).collect() };
        self.lock().push(pinned);
        Ok(stretches)
    }

    /// Forgets a stretch. The last stretch of a piece unpins its pages.
    pub(super) fn unmap(&self, stretch: &Stretch) {
        let mut pins = self.lock();
        let holder = pins.iter().position(|pinned| pinned.stretches.contains(&stretch.iova));
        let Some(holder) = holder else { return };
        let held = &mut pins[holder].stretches;
        if let Some(at) = held.iter().position(|iova| *iova == stretch.iova) {
            held.swap_remove(at);
        }
        if held.is_empty() {
            pins.swap_remove(holder);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pinned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pins the pages of a piece until the returned file is closed.
///
/// # Safety
/// The pages must be mapped in this process.
unsafe fn pin(piece: &Piece<'_>) -> Result<OwnedFd, i32> {
    let buffers: Vec<libc::iovec> = (0..piece.length)
        .step_by(LONGEST)
        .map(|offset| libc::iovec {
            iov_base: piece.start.as_ptr().wrapping_add(offset).cast(),
            iov_len: LONGEST.min(piece.length - offset),
        })
        .collect();
    let count = u32::try_from(buffers.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the parameters ask for an ordinary ring, whose queues are never mapped and never used.
    let ring = unsafe { io_uring_setup(1, &mut io_uring_params::default()) };
    let ring = ring.map_err(|errno| errno.raw_os_error())?;
    let list: *const c_void = buffers.as_ptr().cast();
    // SAFETY: `list` has `count` buffers, and the kernel only pins their pages: nothing is ever submitted to the ring.
    unsafe { io_uring_register(&ring, IoringRegisterOp::RegisterBuffers, list, count) }
        .map_err(|errno| errno.raw_os_error())?;
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::{MmapOptions, MmapRaw};
    use std::ptr::NonNull;

    const PAGE: usize = 4096;
    /// The kernel accounts pinned pages per process, so only one test may pin at a time.
    static PINNING: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        PINNING.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(count: usize) -> MmapRaw {
        MmapOptions::new().len(count * PAGE).map_anon().expect("memory").into()
    }

    fn pinned_pages() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmPin:"))
            .expect("the kernel counts pinned pages");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024 / PAGE as u64
    }

    #[test]
    fn pages_are_pinned_until_their_last_stretch_is_unmapped() {
        let _alone = alone();
        let memory = pages(64);
        let start = NonNull::new(memory.as_mut_ptr()).expect("an address");
        let piece = Piece { start, length: 64 * PAGE, page: PAGE, file: None };
        let half =
            |index: usize| Stretch { offset: index * 32 * PAGE, iova: 7 + index as u64, length: 32 * PAGE };
        let (pins, before) = (Pins::default(), pinned_pages());
        // SAFETY: `memory` lives to the end of the test.
        let mapped = unsafe { pins.map(&piece, |_| Ok(vec![half(0), half(1)])) };
        if let Err(errno @ (libc::EPERM | libc::ENOSYS)) = mapped {
            println!("SKIPPED: this kernel allows no io_uring (errno {errno})");
            return;
        }
        assert_eq!(mapped.map(|stretches| stretches.len()), Ok(2));
        assert!(pinned_pages() >= before + 64, "{} pages before, {} now", before, pinned_pages());
        pins.unmap(&half(0));
        assert_eq!(pins.lock().len(), 1);
        pins.unmap(&half(1));
        pins.unmap(&half(1));
        assert!(pins.lock().is_empty());
    }

    #[test]
    fn a_piece_whose_addresses_are_hidden_is_not_held() {
        let _alone = alone();
        let memory = pages(1);
        let start = NonNull::new(memory.as_mut_ptr()).expect("an address");
        let piece = Piece { start, length: PAGE, page: PAGE, file: None };
        let pins = Pins::default();
        // SAFETY: as above.
        assert!(unsafe { pins.map(&piece, |_| Err(libc::EPERM)) }.is_err());
        assert!(pins.lock().is_empty());
    }
}
