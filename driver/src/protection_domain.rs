//! Protection domains: only memory regions and queue pairs of the same domain can be used together.

use crate::command::{CommandError, Request};
use crate::device::{DestroyCommand, DeviceRef};
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut};
use bareverbs_prm::ids::Pdn;
use bareverbs_prm::numbering::CommandOpcode;

/// A protection domain. If it is dropped before its regions and queue pairs, it is destroyed after them.
///
/// ```
/// use bareverbs_core::{AccessFlags, DeviceRef, MemoryRegion, ProtectionDomain};
/// use std::error::Error;
///
/// fn inbox<D: DeviceRef>(device: D) -> Result<MemoryRegion<D>, Box<dyn Error>> {
///     let domain = ProtectionDomain::allocate(device)?;
///     Ok(MemoryRegion::allocate(&domain, 4096, AccessFlags::LOCAL_WRITE)?)
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain<D: DeviceRef> {
    device: D,
    number: Pdn,
}

impl<D: DeviceRef> ProtectionDomain<D> {
    /// Allocates a protection domain.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn allocate(device: D) -> Result<Self, CommandError> {
        let mut input = AllocPdIn::new();
        input.set_opcode(CommandOpcode::AllocPd);
        let output: AllocPdOut = device.device().call(&Request::new(&input))?;
        Ok(Self { device, number: output.pd() })
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Protection domain number.
    pub fn number(&self) -> Pdn {
        self.number
    }
}

impl<D: DeviceRef> Drop for ProtectionDomain<D> {
    #[doc(alias = "ibv_dealloc_pd")]
    fn drop(&mut self) {
        let command = DestroyCommand::new(CommandOpcode::DeallocPd, self.number.value());
        self.device.device().destroy(command, None);
    }
}
