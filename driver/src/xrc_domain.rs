//! XRC domains: a target queue pair delivers into the shared receive queues of its own domain (IBTA v1.4, annex A14).

use crate::command::{CommandError, Request};
use crate::device::{DestroyCommand, DeviceRef};
use bareverbs_prm::command::srq::{AllocXrcdIn, AllocXrcdOut};
use bareverbs_prm::ids::Xrcdn;
use bareverbs_prm::numbering::CommandOpcode;

/// An XRC domain. If it is dropped before its shared receive queues and queue pairs, it is destroyed after them.
///
/// ```
/// use bareverbs_core::{
///     CompletionQueue, DeviceRef, ProtectionDomain, SharedReceiveQueue, SharedReceiveQueueConfig, XrcDomain,
/// };
/// use std::error::Error;
///
/// /// Receives that any peer of the process may send to, whichever queue pair it came through.
/// fn receives<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     completions: &CompletionQueue<D>,
/// ) -> Result<SharedReceiveQueue<D>, Box<dyn Error>> {
///     let xrc = XrcDomain::allocate(domain.device().clone())?;
///     let config = SharedReceiveQueueConfig { receives: 128, slices: 1 };
///     Ok(SharedReceiveQueue::create_xrc(domain, &xrc, completions, config)?)
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_xrcd")]
pub struct XrcDomain<D: DeviceRef> {
    device: D,
    number: Xrcdn,
}

impl<D: DeviceRef> XrcDomain<D> {
    /// Allocates an XRC domain.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn allocate(device: D) -> Result<Self, CommandError> {
        let mut input = AllocXrcdIn::new();
        input.set_opcode(CommandOpcode::AllocXrcd);
        let output: AllocXrcdOut = device.device().call(&Request::new(&input))?;
        Ok(Self { device, number: output.xrcd() })
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// XRC domain number.
    pub fn number(&self) -> Xrcdn {
        self.number
    }
}

impl<D: DeviceRef> Drop for XrcDomain<D> {
    #[doc(alias = "ibv_close_xrcd")]
    fn drop(&mut self) {
        let command = DestroyCommand::new(CommandOpcode::DeallocXrcd, self.number.value());
        self.device.device().destroy(command, None);
    }
}
