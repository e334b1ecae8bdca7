//! Reads registers of the device with ACCESS_REG.

use super::Device;
use crate::command::{CommandError, REGISTER_HEADER, RegisterAccess, Request, Tail, access_register};
use crate::executor::CommandOutput;
use crate::hal::Hal;
use bareverbs_prm::field::Layout;
use bareverbs_prm::numbering::RegisterId;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of the largest register that this driver reads: PPCNT.
const LARGEST_REGISTER: usize = 256;

impl<H: Hal> Device<H> {
    /// Reads a register. `selector` is the register with the fields that select a port, group or index.
    pub(crate) fn register<R>(&self, id: RegisterId, selector: &R) -> Result<R, CommandError>
    where
        R: Layout + IntoBytes + FromBytes + Immutable + Default,
    {
        const { assert!(R::SIZE <= LARGEST_REGISTER) };
        let input = access_register(id, RegisterAccess::Read);
        let request = Request::with_tail(&input, Tail::Bytes(selector.as_bytes()));
        let mut bytes = [0; REGISTER_HEADER + LARGEST_REGISTER];
        let length = REGISTER_HEADER + R::SIZE;
        self.execute(&request, CommandOutput { buffer: &mut bytes[..length], length })?;
        Ok(R::read_from_bytes(&bytes[REGISTER_HEADER..length]).unwrap_or_default())
    }
}
