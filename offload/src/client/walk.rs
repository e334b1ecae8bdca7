//! The lookup kernel, run by the client: what a kernel fetches by DMA, the client fetches by RDMA READ.
//!
//! One state machine for all ways means that only one place understands the table, and the cost of not offloading is
//! exactly the round trips counted here.

use crate::budget::{Budget, Limits, Next};
use crate::grant::{Checked, Grant};
use crate::kernel::{Emission, Kernel, Step};
use crate::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use crate::status::Status;
use crate::table::TableDescriptor;
use bareverbs_prm::time::Time;

/// One lookup by READs.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_offload::client::walk::{Walk, WalkStep};
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::table::{TableConfig, TablePolicy, TableWriter};
/// use bareverbs_prm::time::Time;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut memory = vec![0; 4096];
/// let config = TableConfig { buckets: 4, overflow_lines: 4, seed: [3; 16], policy: TablePolicy::default() };
/// let mut writer = TableWriter::create(&mut memory[..], &config)?;
/// writer.insert(Time::ZERO, b"user:4711", b"Ada")?;
/// let (table, region) = (*writer.descriptor(), Grant::new(0x10_0000, 4096)?);
///
/// let (mut walk, mut step) = Walk::start(Time::ZERO, &table, region, b"user:4711", Limits::default())?;
/// while let WalkStep::Read(range) = step {
///     // A client would READ these bytes of the server.
///     let bytes = &memory[range.offset() as usize..][..range.length() as usize];
///     step = walk.read_done(Time::ZERO, bytes);
/// }
/// assert!(matches!(step, WalkStep::Found(value) if value.length == 3));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Walk {
    kernel: KvLookup,
    region: Grant,
    budget: Budget,
    last_read: u32,
}

/// What a walk wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a walk goes on only if this is done"]
pub enum WalkStep {
    /// READ this range of the server, then call [`Walk::read_done`].
    Read(Checked),
    /// The value is this part of the bytes.
    Found(Emission),
    /// The walk ends without a value.
    End(Status),
}

impl Walk {
    /// Starts looking `key` up in a table that begins where `region` begins.
    pub fn start(
        now: Time,
        table: &TableDescriptor,
        region: Grant,
        key: &[u8],
        limits: Limits,
    ) -> Result<(Self, WalkStep), Status> {
        let mut buffer = [0; MAX_PARAMETERS];
        let parameters = table.lookup(key).encode(&mut buffer).ok_or(Status::BadParameters)?;
        let (kernel, step) = KvLookup::start(parameters, &region)?;
        let mut walk = Self { kernel, region, budget: Budget::new(limits, now), last_read: 0 };
        let step = walk.charge(now, step);
        Ok((walk, step))
    }

    /// Continues with all the bytes of the range requested last.
    pub fn read_done(&mut self, now: Time, bytes: &[u8]) -> WalkStep {
        let step = self.kernel.dma_done(bytes, &self.region);
        self.charge(now, step)
    }

    fn charge(&mut self, now: Time, step: Step) -> WalkStep {
        match self.budget.charge(step, now) {
            Next::Read(range) => {
                self.last_read = range.length();
                WalkStep::Read(range)
            }
            Next::Emit(emission) => WalkStep::Found(emission),
            Next::End(status) => WalkStep::End(status),
            // A lookup reads one range after the other, answers with what it read, has no payload, and writes
            // nothing.
            Next::Payload
            | Next::Reply(_)
            | Next::ReadEach(_)
            | Next::AwaitPart
            | Next::Write { .. }
            | Next::CompareAndSwap { .. } => WalkStep::End(Status::BadParameters),
        }
    }

    /// Bytes of the range requested last.
    pub const fn last_read(&self) -> u32 {
        self.last_read
    }

    /// What the walk has consumed so far.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{TableConfig, TablePolicy, TableWriter};

    #[test]
    fn a_hit_takes_one_read_for_each_line_and_one_for_the_object() {
        let mut memory = vec![0; 4096];
        let config =
            TableConfig { buckets: 1, overflow_lines: 4, seed: [1; 16], policy: TablePolicy::default() };
        let mut writer = TableWriter::create(memory.as_mut_slice(), &config).expect("fits");
        for key in 0..4_u8 {
            writer.insert(Time::ZERO, &[key], &[key; 9]).expect("room");
        }
        let table = *writer.descriptor();
        let region = Grant::new(0x5000, 4096).expect("no wrap");
        let (mut walk, mut step) =
            Walk::start(Time::ZERO, &table, region, &[3], Limits::default()).expect("begins");
        let mut bytes: &[u8] = &[];
        while let WalkStep::Read(range) = step {
            assert_eq!(range.address(), 0x5000 + range.offset());
            bytes = &memory[range.offset() as usize..][..range.length() as usize];
            step = walk.read_done(Time::ZERO, bytes);
        }
        let WalkStep::Found(found) = step else { panic!("{step:?}") };
        assert_eq!(bytes[found.offset as usize..][..found.length as usize], [3; 9]);
        assert_eq!(walk.budget().hops(), 3, "two lines and the object");
    }
}
