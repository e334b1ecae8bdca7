//! Which calls of the C library are this library's own: while it holds the device, what it opens and closes is none of the
//! program's files.

use core::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// As long as this lives, this thread does this library's work.
#[derive(Debug)]
pub(crate) struct OwnWork(());

impl OwnWork {
    pub(crate) fn begin() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for OwnWork {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

/// Whether this thread does this library's work.
pub(crate) fn is_going_on() -> bool {
    DEPTH.get() > 0
}
