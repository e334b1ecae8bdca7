//! Executable memory, the call into it, and reads for helpers: the only unsafe code of this crate.

use crate::frame::{ENTRIES, Entry, Frame, Stop};
use crate::translate::Translation;
use bareverbs_offload::program::Helper;
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

    /// Runs a step from its beginning, through calls of helpers, until the code stops; `None` if it does not begin here.
    #[inline]
    pub fn run(&self, frame: &mut Frame<'_>, from: Stop) -> Option<Stop> {
        if from.slot != 0 {
            return None;
        }
        let stop = self.enter(frame, from)?;
        match self.translation.call(stop.slot) {
            None => Some(stop),
            Some(helper) => Some(self.run_on(frame, stop, helper)),
        }
    }

    /// Goes on from a call of this helper.
    // Programs without calls do not need it.
    #[inline(never)]
    fn run_on(&self, frame: &mut Frame<'_>, mut stop: Stop, mut helper: Helper) -> Stop {
        // Code stops before a call that cannot be made.
        while let Some(fuel) = call(helper, frame, stop.fuel) {
            let behind = Stop { slot: stop.slot + 1, fuel };
            let Some(next) = self.enter(frame, behind) else { return behind };
            stop = Stop { slot: next.slot, fuel: next.fuel.min(fuel) };
            match self.translation.call(stop.slot) {
                Some(next) => helper = next,
                None => break,
            }
        }
        stop
    }

    /// Enters the block that begins at a slot: that of slot zero, or one behind a call, with the registers with which the code
    /// stopped there but for r0 to r5. `None` if no block begins there.
    #[inline(always)]
    fn enter(&self, frame: &mut Frame<'_>, from: Stop) -> Option<Stop> {
        let block = self.code.get(self.translation.entry(from.slot)? as usize..)?;
        // SAFETY: the memory begins with the function that `Target::begin` writes, which has this signature and
        // keeps what its ABI has it keep; `new` has made it executable and `synchronize` visible to this processor.
        let enter: Enter = unsafe { core::mem::transmute(self.code.as_ptr()) };
        // The pointers in the frame are valid for reads of the lengths that it has beside them, and for writes unless they
        // are of the parameters or the window: they are made of what is lent to it (`Frame::new`). The code accesses nothing
        // else: the bytes of each access are compared with these lengths by `compare`, in the same block and with the same
        // value of the base, or by `access_anywhere`; or the base is known to point to a segment (`Walk::pointed_to`); or they are
        // relative to the frame pointer and were compared with the stack by `Program::verify` (`check_stack`), which is there for a
        // program that names it (`names_stack`). What is known of a base follows from comparisons of `expect_pointer` by the
        // program's own instructions alone (`Pointers`), because blocks are entered only where they begin, here and by jumps
        // (`Walk::operation`): at slot zero, where r1 is compared, and behind calls, over which `Pointers` keeps r6 to r9 only.
        // Code writes neither to parameters nor to the window (`may_access`, `access_anywhere`).
        Some(Stop::returned(enter(frame, block.as_ptr(), from.fuel)))
    }
}

/// Calls a helper, and returns the fuel that is left; `None` if it cannot work, which the caller of the code finds out again.
fn call(helper: Helper, frame: &mut Frame<'_>, fuel: u32) -> Option<u32> {
    let fuel = fuel.checked_sub(1)?;
    let Frame { registers, segments, .. } = frame;
    let [_, first, second, third, ..] = **registers;
    let range = |address, bytes| range(segments, address, bytes);
    let (result, used) = helper.call([first, second, third], fuel, range).ok()?;
    // As the interpreter leaves them. The code relies on r6 to r9, which stay (`Pointers`).
    registers[0] = result;
    registers[1..6].fill(0);
    fuel.checked_sub(used)
}

/// The bytes at an address of a program, if they are all in the segment that it names.
#[inline]
fn range(segments: &[Entry; ENTRIES], address: u64, bytes: u32) -> Option<&[u8]> {
    let number = (address >> 32).checked_sub(1)?;
    let Entry { origin, length } = segments.get(usize::try_from(number).ok()?)?;
    if u64::from(address as u32) + u64::from(bytes) > *length {
        return None;
    }
    // SAFETY: `origin` with the address is the segment with the low half of the address. From there on, `bytes` were compared
    // with its length, for which it is valid for reads as long as the frame is borrowed (`Frame::new`). The code, which alone
    // writes through the frame, is not running.
    Some(unsafe { core::slice::from_raw_parts(origin.wrapping_add(address as usize), bytes as usize) })
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
