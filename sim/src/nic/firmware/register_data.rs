//! What register handlers share: conversion from and to bytes, and the check of the port number.

use crate::nic::syndrome::{self, Refusal};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Reads a register from the data of a command.
pub(super) fn read<T: FromBytes>(data: &[u8]) -> Result<T, Refusal> {
    T::read_from_prefix(data).map(|(register, _)| register).map_err(|_| syndrome::REGISTER_LENGTH)
}

/// Like [`read`], for a register that has grown over the years: data of at least `shortest` bytes is extended
/// with zeros.
pub(super) fn read_grown<T: FromBytes + IntoBytes>(data: &[u8], shortest: usize) -> Result<T, Refusal> {
    let mut register = T::new_zeroed();
    let place = register.as_mut_bytes();
    let length = data.len().min(place.len());
    if length < shortest {
        return Err(syndrome::REGISTER_LENGTH);
    }
    place[..length].copy_from_slice(&data[..length]);
    Ok(register)
}

/// The bytes of a register for the response.
pub(super) fn bytes<T: IntoBytes + Immutable>(register: &T) -> Result<Vec<u8>, Refusal> {
    Ok(register.as_bytes().to_vec())
}

/// The device has one port.
pub(super) fn check_port(port: u8) -> Result<(), Refusal> {
    if port == 1 { Ok(()) } else { Err(syndrome::REGISTER_PORT) }
}
