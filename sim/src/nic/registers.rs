//! Registers of BAR0 that firmware does not own (PRM, initialization segment).

use super::config::NicConfig;
use bareverbs_prm::time::Time;

/// First UAR index that the device allocates; the pages before it hold the initialization segment and MSI-X.
pub(crate) const FIRST_UAR: u32 = 0x10;

/// State of the registers that firmware does not own.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// When firmware finishes its initialization.
    pub(super) ready_at: Time,
    pub(super) queue_high: u32,
    pub(super) queue_low: u32,
    pub(super) interface: u8,
    /// First half of a 64-bit doorbell that arrived as two writes: its offset and value.
    pub(super) latch: Option<(u64, u32)>,
}

impl Registers {
    /// Registers after power-on or a reset at `now`.
    pub(crate) fn new(config: &NicConfig, now: Time) -> Self {
        Self { ready_at: now + config.firmware_ready_after, ..Self::default() }
    }
}
