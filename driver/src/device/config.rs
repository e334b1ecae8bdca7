//! Configuration for opening a device.

use crate::executor::CommandTiming;
use crate::trace::Observer;
use bareverbs_prm::time::Duration;
use core::fmt;

/// Configuration for opening a device. The default suits a few dozen queue pairs.
///
/// ```
/// use bareverbs_core::hal::Hal;
/// use bareverbs_core::{Device, DeviceConfig};
/// use bareverbs_prm::time::Duration;
/// use std::error::Error;
///
/// /// A server of a thousand connections that would rather fail than wait long for its firmware.
/// fn open<H: Hal>(hal: H) -> Result<Device<H>, Box<dyn Error>> {
///     let config = DeviceConfig {
///         queue_pairs: 1000,
///         ledger_words: 1 << 19,
///         command_timeout: Duration::from_secs(2),
///         ..DeviceConfig::default()
///     };
///     Ok(Device::open(hal, config)?)
/// }
/// ```
#[derive(Clone, Copy)]
pub struct DeviceConfig {
    /// Longest wait for the firmware to become ready.
    pub firmware_timeout: Duration,
    /// Longest wait for the answer to a command.
    pub command_timeout: Duration,
    /// Longest pause between two polls. The HAL may end a pause early.
    pub poll_interval: Duration,
    /// Mailbox blocks of 512 bytes for commands, at most 1024. A page list takes one for every 64 pages.
    pub mailbox_blocks: usize,
    /// Entries of the event queue.
    pub event_queue_entries: u32,
    /// Maximum number of queue pairs and shared receive queues at a time, at most 131,072.
    pub queue_pairs: u32,
    /// Words of 8 bytes in the ledgers, which remember posted work. A send queue takes two for each basic block, a receive
    /// queue one for each entry (at least two in all), a shared receive queue two for each entry.
    pub ledger_words: u32,
    /// Log2 of the largest page size in page lists, 12 to 31.
    pub log_max_page: u8,
    /// Whether the device signs its answers and the driver checks the signatures.
    pub checked: bool,
    /// Whether the driver may write work queue entries to doorbell registers (BlueFlame), if the device can.
    pub blue_flame: bool,
    /// Receives trace events.
    pub observer: Option<&'static dyn Observer>,
}

impl DeviceConfig {
    pub(crate) const fn command_timing(&self) -> CommandTiming {
        CommandTiming { timeout: self.command_timeout, poll_interval: self.poll_interval }
    }
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            firmware_timeout: Duration::from_secs(120),
            command_timeout: Duration::from_secs(10),
            poll_interval: Duration::from_micros(20),
            mailbox_blocks: 64,
            event_queue_entries: 256,
            queue_pairs: 64,
            ledger_words: 1 << 15,
            log_max_page: 21,
            checked: false,
            blue_flame: true,
            observer: None,
        }
    }
}

impl fmt::Debug for DeviceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceConfig")
            .field("command_timeout", &self.command_timeout)
            .field("mailbox_blocks", &self.mailbox_blocks)
            .field("queue_pairs", &self.queue_pairs)
            .field("ledger_words", &self.ledger_words)
            .finish_non_exhaustive()
    }
}
