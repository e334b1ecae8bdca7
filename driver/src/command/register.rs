//! ACCESS_REG, which reads or writes a register of the device.

use bareverbs_prm::command::hca::AccessRegisterIn;
use bareverbs_prm::numbering::{CommandOpcode, RegisterId};

/// Bytes of the output of ACCESS_REG before the register.
pub(crate) const REGISTER_HEADER: usize = 16;

/// `op_mod` of ACCESS_REG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegisterAccess {
    Write = 0,
    Read = 1,
}

/// ACCESS_REG without the register itself, which follows as the tail of the request.
pub(crate) fn access_register(register: RegisterId, access: RegisterAccess) -> AccessRegisterIn {
    let mut input = AccessRegisterIn::new();
    input.set_opcode(CommandOpcode::AccessReg).set_op_mod(access as u16).set_register_id(register);
    input
}
