//! Whether the device is still the one that the driver brought up, as its registers tell. What was lost once stays lost.

use super::error::DeviceLoss;
use crate::hal::{Hal, Mmio};
use bareverbs_prm::doorbell::init_segment;

/// Bits of the register that hold the address of the command queue; the others are its geometry and the interface state.
const ADDRESS: u32 = !0xfff;

/// What is known of the device's presence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Presence {
    /// What the register of the command queue's address read after it was written, if it reads what was written.
    announced: Option<u32>,
    loss: Option<DeviceLoss>,
}

impl Presence {
    /// The low half of the queue's address was written. A device that shows it there can be seen to have forgotten it.
    pub(super) fn announced<H: Hal>(hal: &H, address: u32) -> Self {
        let shown = hal.mmio().read32(init_segment::CMDQ_ADDRESS_LOW) & ADDRESS;
        Self { announced: (shown == address & ADDRESS && shown != 0).then_some(shown), loss: None }
    }

    /// Looks at two registers.
    ///
    /// # Errors
    /// The device reads as all ones, initialises, or has forgotten where the command queue is; now, or when it was looked at before.
    pub(super) fn check<H: Hal>(&mut self, hal: &H) -> Result<(), DeviceLoss> {
        self.loss = self.loss.or_else(|| self.look(hal));
        self.loss.map_or(Ok(()), Err)
    }

    fn look<H: Hal>(&self, hal: &H) -> Option<DeviceLoss> {
        let read = |register| hal.mmio().read32(register);
        match (read(init_segment::INITIALIZING), self.announced) {
            (u32::MAX, _) => Some(DeviceLoss::Removed),
            // Bit 31: firmware initialises, which it did before the first command.
            (value, _) if value >> 31 != 0 => Some(DeviceLoss::Reset),
            (_, Some(announced)) => match read(init_segment::CMDQ_ADDRESS_LOW) {
                u32::MAX => Some(DeviceLoss::Removed),
                shown => (shown & ADDRESS != announced).then_some(DeviceLoss::Reset),
            },
            (_, None) => None,
        }
    }
}
