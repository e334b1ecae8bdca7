//! Whether a port takes part in congestion control by marking (ECN, DCQCN), for each priority.

use crate::command::{CommandError, Request};
use crate::device::Device;
use crate::hal::Hal;
use bareverbs_prm::command::congestion::{
    NOTIFICATION_POINT, QueryCongStatusIn, QueryCongStatusOut, REACTION_POINT,
};
use bareverbs_prm::numbering::CommandOpcode;

/// Priorities of Ethernet.
const PRIORITIES: u8 = 8;

/// How a port reacts to congestion. Bit `n` of a mask is priority `n`.
///
/// ```
/// use bareverbs_core::congestion_control::CongestionControl;
///
/// // Marked packets of priority 3 are answered, but only senders of priority 5 would slow down.
/// assert!(CongestionControl { reacts: 1 << 5, notifies: 1 << 3 }.is_off());
/// assert!(!CongestionControl { reacts: 1 << 3, notifies: 1 << 3 }.is_off());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CongestionControl {
    /// Priorities whose packets are marked ECN-capable and slow down after a notification (reaction point,
    /// `roce_rp`).
    pub reacts: u8,
    /// Priorities whose marked packets are answered by a notification (notification point, `roce_np`).
    pub notifies: u8,
}

impl CongestionControl {
    /// Whether marks slow no sender down: one of the two halves is off for every priority.
    pub const fn is_off(&self) -> bool {
        self.reacts & self.notifies == 0
    }
}

impl<H: Hal> Device<H> {
    /// Queries whether congestion control is on at an Ethernet port, with one command per priority and half.
    ///
    /// # Errors
    /// A command failed. A device supports the query if
    /// [`congestion_query`](crate::Capabilities::congestion_query) says so.
    #[doc(alias = "QUERY_CONG_STATUS")]
    #[doc(alias = "ECN")]
    pub fn congestion_control(&self) -> Result<CongestionControl, CommandError> {
        Ok(CongestionControl {
            reacts: self.congestion_priorities(REACTION_POINT)?,
            notifies: self.congestion_priorities(NOTIFICATION_POINT)?,
        })
    }

    fn congestion_priorities(&self, protocol: u8) -> Result<u8, CommandError> {
        (0..PRIORITIES).try_fold(0, |mask, priority| {
            let mut input = QueryCongStatusIn::new();
            input.set_opcode(CommandOpcode::QueryCongStatus);
            input.set_priority(priority).set_cong_protocol(protocol);
            let output: QueryCongStatusOut = self.call(&Request::new(&input))?;
            Ok(mask | u8::from(output.enable()) << priority)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_control_needs_both_halves_of_one_priority() {
        let with = |reacts, notifies| CongestionControl { reacts, notifies }.is_off();
        assert!(with(0, 0) && with(0xff, 0) && with(0, 0xff) && with(0b0010, 0b1101));
        assert!(!with(0b1000, 0b1100));
    }
}
