//! Detects from its registers whether the device is still the one that the driver brought up. A lost device
//! stays lost.

use super::error::DeviceLoss;
use crate::hal::{Hal, Mmio};
use bareverbs_prm::doorbell::init_segment;

/// Bits of the command queue register that hold the queue's address; the others hold its geometry and the
/// interface state.
const ADDRESS: u32 = !0xfff;

/// The known state of the device's presence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Presence {
    /// The command queue address as read back after it was written, if the device reads back what was
    /// written.
    announced: Option<u32>,
    loss: Option<DeviceLoss>,
}

impl Presence {
    /// Records that the low half of the queue's address was written. If the device shows the address there,
    /// the driver can later tell that it has forgotten it.
    pub(super) fn announced<H: Hal>(hal: &H, address: u32) -> Self {
        let shown = hal.mmio().read32(init_segment::CMDQ_ADDRESS_LOW) & ADDRESS;
        Self { announced: (shown == address & ADDRESS && shown != 0).then_some(shown), loss: None }
    }

    /// Checks two registers.
    ///
    /// # Errors
    /// The device reads as all ones, is initializing, or has forgotten the command queue's address, now or at
    /// an earlier check.
    pub(super) fn check<H: Hal>(&mut self, hal: &H) -> Result<(), DeviceLoss> {
        self.loss = self.loss.or_else(|| self.look(hal));
        self.loss.map_or(Ok(()), Err)
    }

    fn look<H: Hal>(&self, hal: &H) -> Option<DeviceLoss> {
        let read = |register| hal.mmio().read32(register);
        match (read(init_segment::INITIALIZING), self.announced) {
            (u32::MAX, _) => Some(DeviceLoss::Removed),
            // Bit 31: firmware is initializing, which it had finished before the first command.
            (value, _) if value >> 31 != 0 => Some(DeviceLoss::Reset),
            (_, Some(announced)) => match read(init_segment::CMDQ_ADDRESS_LOW) {
                u32::MAX => Some(DeviceLoss::Removed),
                shown => (shown & ADDRESS != announced).then_some(DeviceLoss::Reset),
            },
            (_, None) => None,
        }
    }
}
