//! What handlers of registers share: from bytes to a register, back, and the port that it names.

use crate::nic::syndrome::{self, Refusal};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A register from the data of a command.
pub(super) fn read<T: FromBytes>(data: &[u8]) -> Result<T, Refusal> {
    T::read_from_prefix(data).map(|(register, _)| register).map_err(|_| syndrome::REGISTER_LENGTH)
}

/// A register as the answer holds it.
pub(super) fn bytes<T: IntoBytes + Immutable>(register: &T) -> Result<Vec<u8>, Refusal> {
    Ok(register.as_bytes().to_vec())
}

/// The device has one port.
pub(super) fn check_port(port: u8) -> Result<(), Refusal> {
    if port == 1 { Ok(()) } else { Err(syndrome::REGISTER_PORT) }
}
