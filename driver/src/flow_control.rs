//! Flow control of a port: pause frames and priority flow control (register PFCC).

use crate::command::CommandError;
use crate::device::Device;
use crate::hal::Hal;
use bareverbs_prm::command::ethernet_port::PfccRegister;
use bareverbs_prm::numbering::RegisterId;

/// Flow control of an Ethernet port. Bit `n` of a mask is priority `n` (IEEE 802.1Qbb).
///
/// ```
/// use bareverbs_core::flow_control::FlowControl;
///
/// // RoCE on priority 3 without loss: the port honours its pause frames, and sends them.
/// let lossless = FlowControl { priorities_received: 1 << 3, priorities_sent: 1 << 3, ..FlowControl::default() };
/// assert!(!lossless.is_off() && FlowControl::default().is_off());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowControl {
    /// Whether the port honours global pause frames (IEEE 802.3x).
    pub pause_received: bool,
    /// Whether the port sends global pause frames.
    pub pause_sent: bool,
    /// Priorities whose pause frames the port honours.
    pub priorities_received: u8,
    /// Priorities for which the port sends pause frames.
    pub priorities_sent: u8,
}

impl FlowControl {
    /// Whether nothing throttles a sender, so that a full buffer drops frames.
    pub const fn is_off(&self) -> bool {
        !self.pause_received && !self.pause_sent && self.priorities_received == 0 && self.priorities_sent == 0
    }
}

impl<H: Hal> Device<H> {
    /// Reads the flow control of an Ethernet port.
    ///
    /// # Errors
    /// A command failed. InfiniBand ports have no such register; their link layer uses credits.
    #[doc(alias = "PFCC")]
    #[doc(alias = "PFC")]
    pub fn flow_control(&self) -> Result<FlowControl, CommandError> {
        let mut selector = PfccRegister::new();
        selector.set_local_port(1);
        let register: PfccRegister = self.register(RegisterId::Pfcc, &selector)?;
        Ok(FlowControl {
            pause_received: register.pprx(),
            pause_sent: register.pptx(),
            priorities_received: register.pfcrx(),
            priorities_sent: register.pfctx(),
        })
    }
}
