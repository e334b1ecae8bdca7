//! BAR0, memory-mapped. Every access is one volatile instruction; no slice of it is ever formed.

use bareverbs_core::hal::Mmio;
use core::ptr::NonNull;
use memmap2::{MmapOptions, MmapRaw};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use volatile_register::RW;

/// The BAR0 window of a device in user space.
///
/// Registers are big-endian; arguments and results are numbers. An access that is misaligned or outside the window is
/// not performed: a read returns all ones, like a read that no device answers.
#[derive(Debug)]
pub struct MappedBar {
    start: NonNull<u8>,
    length: usize,
    /// Keeps the mapping alive.
    _map: MmapRaw,
}

// SAFETY: the window is mapped as long as this value lives, wherever that is, and is reached by volatile accesses alone.
unsafe impl Send for MappedBar {}
// SAFETY: registers are made to be written by several processors; each access is one instruction.
unsafe impl Sync for MappedBar {}

impl MappedBar {
    /// Maps `length` bytes of a file from `offset`.
    pub(crate) fn new(file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Self> {
        let map =
            MmapOptions::new().offset(offset).len(length).no_reserve_swap().map_raw(file.as_raw_fd())?;
        let start = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, length, _map: map })
    }

    /// The register at `offset`, if it lies in the window and is aligned.
    #[inline(always)]
    fn register<T: Copy>(&self, offset: usize) -> Option<&RW<T>> {
        // Rotating moves the low bits of a misaligned offset to the top, which puts it far outside the window.
        let log = size_of::<T>().trailing_zeros();
        if offset.rotate_right(log) >= self.length >> log {
            return None;
        }
        // SAFETY: `offset` is a multiple of the size of `T` and less than the length of the window, which begins at a page
        // and is mapped as long as `self`. `RW` is a cell: the reference claims nothing of the bytes.
        Some(unsafe { self.start.add(offset).cast::<RW<T>>().as_ref() })
    }
}

impl Mmio for MappedBar {
    #[inline(always)]
    fn read32(&self, offset: usize) -> u32 {
        self.register::<u32>(offset).map_or(u32::MAX, |register| u32::from_be(register.read()))
    }

    #[inline(always)]
    fn write32(&self, offset: usize, value: u32) {
        if let Some(register) = self.register::<u32>(offset) {
            // SAFETY: what a store to a register does is the business of the driver that asks for it; it touches no memory
            // of this process.
            unsafe { register.write(value.to_be()) };
        }
    }

    #[inline(always)]
    fn write64(&self, offset: usize, value: u64) {
        if let Some(register) = self.register::<u64>(offset) {
            // SAFETY: as in `write32`.
            unsafe { register.write(value.to_be()) };
        }
    }

    #[inline(always)]
    fn write_block64(&self, offset: usize, block: &[u64; 8]) {
        let Some(registers) = self.register::<[u64; 8]>(offset) else { return };
        let first = core::ptr::from_ref(registers).cast::<RW<u64>>();
        for (index, word) in block.iter().enumerate() {
            // SAFETY: the block of eight registers lies in the window; the rest as in `write32`.
            unsafe { (*first.add(index)).write(*word) };
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    fn window() -> (std::fs::File, MappedBar) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let bar = MappedBar::new(file.as_fd(), 4096, 4096).unwrap();
        (file, bar)
    }

    #[test]
    fn registers_are_big_endian_and_blocks_are_bytes() {
        let (file, bar) = window();
        bar.write32(8, 0x0102_0304);
        bar.write64(16, 0x1112_1314_1516_1718);
        bar.write_block64(64, &core::array::from_fn(|index| u64::from_ne_bytes([index as u8; 8])));
        let mut bytes = [0; 128];
        file.read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(bytes[8..12], [1, 2, 3, 4]);
        assert_eq!(bytes[16..24], [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        assert!(bytes[64..].chunks(8).enumerate().all(|(index, word)| word == [index as u8; 8]));
        assert_eq!((bar.read32(8), bar.read32(20), bar.len()), (0x0102_0304, 0x1516_1718, 4096));
    }

    #[test]
    fn accesses_outside_the_bar_or_misaligned_are_refused() {
        let (_file, bar) = window();
        for offset in [4096, 4094, 2, usize::MAX, usize::MAX - 3] {
            assert_eq!(bar.read32(offset), u32::MAX);
            bar.write32(offset, 0);
        }
        for offset in [4092, 4, 4096, usize::MAX - 7] {
            bar.write64(offset, u64::MAX);
        }
        for offset in [4096 - 32, 8, 4096] {
            bar.write_block64(offset, &[u64::MAX; 8]);
        }
        assert!((0..4096).step_by(4).all(|offset| bar.read32(offset) == 0));
        assert_eq!(bar.read32(4092), 0, "the last register is inside");
    }
}
