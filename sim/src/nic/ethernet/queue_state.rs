//! States of send and receive queues.

pub(crate) const RESET: u8 = 0;
pub(crate) const READY: u8 = 1;
pub(crate) const ERROR: u8 = 3;
