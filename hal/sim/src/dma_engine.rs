//! A PCIe door: one node reads the memory of another, as a DPU reads its host.
//!
//! Several reads may be under way. Each ends when the engine says ([`DmaCost`]): latency, bytes and operations a second are
//! charged, plus jitter if asked for. The bytes are those of the moment of completion.

use super::world::SimWorld;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::{DmaFault, HostMemory, Nic};
use bareverbs_sim::run::{Device, DmaClock, DmaCost, NodeId};
use core::fmt;
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;
use std::collections::BTreeMap;

/// Reads that may be under way at once.
pub const MAX_OUTSTANDING_READS: usize = 1024;
/// Longest single read.
pub const MAX_READ: usize = 16 << 20;

/// Why a read was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// [`MAX_OUTSTANDING_READS`] reads are under way.
    Busy,
    /// The read is longer than [`MAX_READ`].
    TooLong {
        /// Bytes that were asked for.
        length: usize,
    },
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(f, "{MAX_OUTSTANDING_READS} DMA reads are under way: poll some first"),
            Self::TooLong { length } => {
                write!(f, "a DMA read of {length} bytes is longer than {MAX_READ}: read it in parts")
            }
        }
    }
}

impl core::error::Error for SubmitError {}

/// A read that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaCompletion {
    /// The tag it was submitted with.
    pub tag: u64,
    /// Bytes at the start of the caller's buffer, or why there are none.
    pub result: Result<usize, DmaFault>,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    tag: u64,
    iova: u64,
    length: usize,
}

/// The door; see the module.
#[derive(Debug)]
pub struct DmaEngine<D = Nic> {
    world: SimWorld<D>,
    target: NodeId,
    clock: DmaClock,
    jitter: Duration,
    stream: ChaCha8Rng,
    /// By time of completion and number of submission.
    reads: BTreeMap<(Time, u64), Read>,
    submitted: u64,
}

impl<D: Device> SimWorld<D> {
    /// A door from `reader` into the memory of `target` over a simulated PCIe of this cost.
    pub fn dma_engine(&self, reader: NodeId, target: NodeId, cost: DmaCost) -> DmaEngine<D> {
        let stream = self.with(|world| {
            let name = format!("DMA of {} into {}", world.node_name(reader), world.node_name(target));
            world.seed().stream(&name)
        });
        DmaEngine::new(self.clone(), target, cost, stream)
    }
}

impl<D: Device> DmaEngine<D> {
    fn new(world: SimWorld<D>, target: NodeId, cost: DmaCost, stream: ChaCha8Rng) -> Self {
        let (clock, jitter) = (DmaClock::new(cost), Duration::ZERO);
        Self { world, target, clock, jitter, stream, reads: BTreeMap::new(), submitted: 0 }
    }

    /// The same door with up to `jitter` more latency for each read, drawn from the seed: reads overtake each other.
    #[must_use]
    pub fn with_jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// Begins to read `length` bytes at `iova`; `tag` names the read.
    pub fn submit_read(&mut self, tag: u64, iova: u64, length: usize) -> Result<(), SubmitError> {
        if length > MAX_READ {
            return Err(SubmitError::TooLong { length });
        }
        if self.reads.len() >= MAX_OUTSTANDING_READS {
            return Err(SubmitError::Busy);
        }
        let due = self.clock.admit(self.world.now(), length as u64) + self.draw_jitter();
        self.submitted += 1;
        self.reads.insert((due, self.submitted), Read { tag, iova, length });
        self.world.with(|world| world.wake_at(due));
        Ok(())
    }

    /// The next read that has ended, its bytes at the start of `buffer`. A buffer that is too short is a fault of the read.
    pub fn poll(&mut self, buffer: &mut [u8]) -> Option<DmaCompletion> {
        let next = self.reads.first_entry()?;
        if next.key().0 > self.world.now() {
            return None;
        }
        let Read { tag, iova, length } = next.remove();
        let result = match buffer.get_mut(..length) {
            Some(buffer) => self.world.with(|world| world.memory_mut(self.target).read(iova, buffer)),
            None => Err(DmaFault { iova, length, write: false }),
        };
        Some(DmaCompletion { tag, result: result.map(|()| length) })
    }

    /// Bytes that the next completion needs, whether it is due or not.
    pub fn next_length(&self) -> Option<usize> {
        self.reads.first_key_value().map(|(_, read)| read.length)
    }

    /// When the next read ends.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.reads.first_key_value().map(|(&(due, _), _)| due)
    }

    /// Reads that are under way.
    pub fn outstanding(&self) -> usize {
        self.reads.len()
    }

    fn draw_jitter(&mut self) -> Duration {
        if self.jitter == Duration::ZERO {
            return Duration::ZERO;
        }
        let scaled = (u128::from(self.jitter.as_picos()) * u128::from(self.stream.next_u32())) >> 32;
        Duration::from_picos(scaled as u64)
    }
}
