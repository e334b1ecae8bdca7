//! Memory that is executed, and the call into it: the only unsafe code of this crate.

use crate::frame::{Frame, Stop};
use crate::translate::Translation;
use memmap2::{Mmap, MmapMut};
use std::io;

/// A translation for this processor, where the processor runs it. The memory is writable first and executable then,
/// never both at a time.
pub struct CodeMemory {
    code: Mmap,
    translation: Translation,
}

/// The function with which each translation begins. Returns where it stopped, see [`Stop::returned`].
type Enter = extern "C" fn(frame: *mut Frame<'_>, line: *const u8, fuel: u32) -> u64;

impl CodeMemory {
    /// Copies a translation that [`translate`](crate::translate::translate) made for this processor.
    pub fn new(translation: Translation) -> io::Result<Self> {
        let mut memory = MmapMut::map_anon(translation.bytes().len())?;
        memory.copy_from_slice(translation.bytes());
        let code = memory.make_exec()?;
        synchronize(&code);
        Ok(Self { code, translation })
    }

    pub const fn translation(&self) -> &Translation {
        &self.translation
    }

    /// Runs from the block on that begins at a slot, until the code stops; `None` if no block begins there.
    #[inline]
    pub fn run(&self, frame: &mut Frame<'_>, from: Stop) -> Option<Stop> {
        let block = self.code.get(self.translation.entry(from.slot)? as usize..)?;
        // SAFETY: the memory begins with the function that `Target::begin` writes, which has this signature and
        // keeps what its ABI has it keep; `new` has made it executable and `synchronize` visible to this processor.
        let enter: Enter = unsafe { core::mem::transmute(self.code.as_ptr()) };
        // The pointers in the frame are valid for reads of the lengths that it has beside them, and for writes unless they
        // are of the parameters or the window: they are made of what is lent to it (`Frame::new`). The code accesses nothing
        // else: the bytes of each access are compared with these lengths by `compare`, in the same block and with the same
        // value of the base, or by `access_anywhere`, or they are relative to the frame pointer and were compared with the
        // stack by `Program::verify` (`check_stack`), which is there for a program that names it (`names_stack`). Blocks are entered only where they begin, here and by jumps
        // (`Walk::operation`). Code writes neither to parameters nor to the window (`Walk::guess`, `access_anywhere`).
        Some(Stop::returned(enter(frame, block.as_ptr(), from.fuel)))
    }
}

/// The caches of x86-64 see what was written (Intel SDM, volume 3, section 13.6).
#[cfg(target_arch = "x86_64")]
const fn synchronize(_code: &[u8]) {}

/// The cache of instructions does not see what was written before it is told (Arm ARM, section B2.7.4).
#[cfg(target_arch = "aarch64")]
fn synchronize(code: &[u8]) {
    use core::arch::asm;
    let sizes: u64;
    // SAFETY: Linux lets programs read this register, which has the sizes of lines of both caches.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) sizes, options(nomem, nostack, preserves_flags)) };
    let (data_line, code_line) = (4_usize << (sizes >> 16 & 15), 4_usize << (sizes & 15));
    let lines = |size: usize| {
        let code = code.as_ptr_range();
        let first = code.start.addr() & !(size - 1);
        (first..code.end.addr()).step_by(size)
    };
    for line in lines(data_line) {
        // SAFETY: cleans a line of the data cache; the address is of `code` or before it in the same line.
        unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for line in lines(code_line) {
        // SAFETY: invalidates a line of the cache of instructions; they are fetched again.
        unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers; what was fetched before is fetched again.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}
