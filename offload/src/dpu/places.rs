//! Where receive and staging buffers are in the memory of the endpoint.

use crate::runtime::STAGING;

/// Size of a receive buffer in bytes. The queue pair refuses longer requests.
pub const RECEIVE_SIZE: usize = 512;
/// Size of a staging buffer in bytes.
pub const STAGING_SIZE: usize = STAGING as usize;

/// Bytes of endpoint memory that a server with `receives` receive buffers and `slots` staging buffers needs.
pub const fn memory_size(receives: usize, slots: usize) -> usize {
    receives * RECEIVE_SIZE + slots * STAGING_SIZE
}

pub(super) const fn receive_offset<const RECEIVES: usize>(connection: usize, buffer: usize) -> usize {
    (connection * RECEIVES + buffer) * RECEIVE_SIZE
}

pub(super) const fn staging_offset<const CONNECTIONS: usize, const RECEIVES: usize>(buffer: usize) -> usize {
    CONNECTIONS * RECEIVES * RECEIVE_SIZE + buffer * STAGING_SIZE
}
