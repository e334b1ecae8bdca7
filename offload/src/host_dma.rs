//! A DPU's access to the memory of its host: reads and writes between regions that the host shares and the memory of
//! the DPU's own [`Endpoint`].
//!
//! The interface is shaped like a queue of DMA work requests. A request names a region, an address in it and a part of
//! the endpoint's memory. A submitted request may rest until [`HostDma::flush`] rings the doorbell for all of them.
//! Completions come later, and one failure can break the queue and flush the requests behind it. [`card`](crate::card)
//! implements it with such work requests; an implementation by plain memory copies does its work when it is polled.

use crate::endpoint::{Endpoint, Part, PostError};
use crate::grant::HostRegion;
use bareverbs_prm::time::Time;

/// Why an access to host memory failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmaFault {
    /// The access failed: the memory does not answer, or the request is impossible.
    Memory,
    /// The host no longer shares the region: it revoked it, or was reset.
    TakenBack,
    /// The path to the memory cannot compare and swap; see [`HostDma::compares_and_swaps`].
    NoCompareAndSwap,
}

/// How a read or write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmaEnd {
    /// All its bytes have arrived.
    Done,
    /// It failed. None of its bytes may be used.
    Fault(DmaFault),
    /// It was not executed because an earlier request broke the queue. It can be submitted again once there is room.
    Flushed,
}

/// A read or write that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostDmaDone {
    /// The tag it was submitted with.
    pub tag: u64,
    /// How it ended.
    pub end: DmaEnd,
}

/// A range of the host's memory, and the part of the endpoint's memory that its bytes go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRead {
    /// The region.
    pub region: HostRegion,
    /// First address.
    pub address: u64,
    /// Destination, and how many bytes to read.
    pub into: Part,
}

/// Reads and writes of a DPU in the memory of its host.
pub trait HostDma {
    /// Whether another request can be submitted. A broken channel has no room.
    fn has_room(&self) -> bool;

    /// Asks to read `into.length` bytes at `address` of `region` into a part of the endpoint's memory. Until the read has ended, that part
    /// belongs to the channel. `tag` names the read.
    ///
    /// # Errors
    /// [`PostError::Full`]: not now. [`PostError::Broken`]: the region was taken back. [`PostError::BadRequest`]: there is no such region,
    /// or the range leaves it. Nothing will be read, and no end is reported.
    fn submit_read(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        into: Part,
    ) -> Result<(), PostError>;

    /// Asks to write a part of the endpoint's memory to `address` of `region`.
    ///
    /// # Errors
    /// As [`HostDma::submit_read`].
    fn submit_write(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        from: Part,
    ) -> Result<(), PostError>;

    /// Whether [`HostDma::submit_compare_and_swap`] can do anything. A queue of DMA work requests cannot: mlx5 has no such request for it.
    fn compares_and_swaps(&self) -> bool {
        false
    }

    /// Asks to read the big-endian word at `address` of `region` into a part of the endpoint's memory, and to put the second of
    /// `words` in its place if it is the first, atomically with respect to everything else that uses this channel.
    ///
    /// # Errors
    /// As [`HostDma::submit_read`]; always [`PostError::BadRequest`] for a channel that cannot.
    fn submit_compare_and_swap(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        words: [u64; 2],
        into: Part,
    ) -> Result<(), PostError> {
        let _ = (tag, region, address, words, into);
        Err(PostError::BadRequest)
    }

    /// Whether [`HostDma::read_at_once`] can answer. Its user then has less in progress at a time.
    fn reads_at_once(&self) -> bool {
        false
    }

    /// Reads without a submission and a completion, which memory within reach of this processor allows: copies the bytes
    /// into a part of the endpoint's memory and returns them, from the memory itself or from `scratch`. `None`: submit it.
    fn read_at_once<'b>(
        &'b mut self,
        read: &HostRead,
        memory: &mut impl Endpoint,
        scratch: &'b mut [u8],
    ) -> Option<Result<&'b [u8], DmaFault>> {
        let _ = (read, memory, scratch);
        None
    }

    /// Begins all that was submitted, with one doorbell.
    fn flush(&mut self) {}

    /// The next request that has ended. `memory` is the endpoint whose parts were named: a device has accessed it by itself, a channel of plain
    /// memory copies now.
    fn poll(&mut self, memory: &mut impl Endpoint) -> Option<HostDmaDone>;

    /// Whether the channel has failed, and has no room until its owner repairs it.
    fn is_broken(&self) -> bool {
        false
    }

    /// When the next request ends, if that is known.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
