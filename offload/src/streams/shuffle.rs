//! Partitions a stream of values as it arrives: StRoM's shuffle kernel.
//!
//! A value has eight bytes; the low bits of its little-endian number select the partition (radix partitioning). Each
//! partition collects [`VALUES`] values before they are written, because a write over PCIe costs as much for 8 bytes as
//! for 128. A histogram determines beforehand where each partition lies; a partition that exceeds its part is a fault
//! and overwrites nothing.
//!
//! Full buffers move to a pool of `WRITES` places (at most 64), so their partition goes on filling while they are
//! written. When all places await the end of their writes, no more bytes are taken: this is the back-pressure.

use super::{StreamFault, StreamKernel, StreamWrite};
use crate::grant::{Grant, GrantFault, Writable};

/// Values per write: 128 bytes.
pub const VALUES: usize = 16;

type Octets = [u8; 8];

/// Where a partition is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionRange {
    /// Offset of the first byte from the start of the region.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A buffer that is being written or waits to be.
#[derive(Debug, Clone, Copy)]
struct Pending {
    to: Writable,
    values: [Octets; VALUES],
    count: u8,
}

/// Partitions a stream into `PARTITIONS` (a power of two) parts of a region, with up to `WRITES` writes in flight.
///
/// ```
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::streams::StreamKernel;
/// use bareverbs_offload::streams::shuffle::{PartitionRange, Shuffle};
///
/// let grant = Grant::new(0x1000, 64)?.writable();
/// let ranges = [0, 32].map(|offset| PartitionRange { offset, length: 32 });
/// let mut shuffle: Shuffle<2, 4> = Shuffle::new(grant, ranges)?;
/// let mut region = [0; 64];
/// for value in [4_u64, 7, 6, 1] {
///     assert_eq!(shuffle.take(&value.to_le_bytes()), Ok(8));
/// }
/// assert_eq!(shuffle.finish(), Ok(true));
/// while let Some(write) = shuffle.poll_write() {
///     let (at, tag) = (write.to.range().offset() as usize, write.tag);
///     region[at..at + write.bytes.len()].copy_from_slice(write.bytes);
///     shuffle.write_done(tag);
/// }
/// assert_eq!([region[0], region[8], region[32], region[40]], [4, 6, 7, 1]);
/// # Ok::<(), bareverbs_offload::grant::GrantFault>(())
/// ```
#[derive(Debug, Clone)]
pub struct Shuffle<const PARTITIONS: usize, const WRITES: usize> {
    grant: Grant,
    buffers: [[Octets; VALUES]; PARTITIONS],
    /// Values in each buffer.
    filled: [u8; PARTITIONS],
    ranges: [PartitionRange; PARTITIONS],
    /// Bytes of each partition that were handed to the pool.
    written: [u64; PARTITIONS],
    pool: [Option<Pending>; WRITES],
    /// A bit for each free place of the pool.
    free: u64,
    /// A bit for each place whose write has not been handed out.
    waiting: u64,
    /// The beginning of a value whose rest has not arrived.
    begun: Octets,
    begun_bytes: usize,
    /// The next partition that [`StreamKernel::finish`] empties.
    finished: usize,
}

impl<const PARTITIONS: usize, const WRITES: usize> Shuffle<PARTITIONS, WRITES> {
    const SIZES: () = assert!(
        PARTITIONS.is_power_of_two() && WRITES >= 1 && WRITES <= 64,
        "a power of two of partitions, and 1 to 64 writes"
    );
    /// All places of the pool.
    const PLACES: u64 = u64::MAX >> (64 - WRITES);

    /// An empty stream. Partition `n` gets `ranges[n]`, all of which must be writable.
    pub fn new(grant: Grant, ranges: [PartitionRange; PARTITIONS]) -> Result<Self, GrantFault> {
        let () = Self::SIZES;
        for range in ranges.iter().filter(|range| range.length > 0) {
            // Checks the first byte and the last: what lies between is in the region, too.
            grant.check_write(range.offset, 1)?;
            let outside = GrantFault::Outside { offset: range.offset, length: 1, region: grant.length() };
            let last = range.offset.checked_add(range.length - 1).ok_or(outside)?;
            grant.check_write(last, 1)?;
        }
        Ok(Self {
            grant,
            buffers: [[[0; 8]; VALUES]; PARTITIONS],
            filled: [0; PARTITIONS],
            ranges,
            written: [0; PARTITIONS],
            pool: [None; WRITES],
            free: Self::PLACES,
            waiting: 0,
            begun: [0; 8],
            begun_bytes: 0,
            finished: 0,
        })
    }

    /// Number of values of partition `partition`, including those not yet written; zero if there is no such partition.
    pub fn count(&self, partition: usize) -> u64 {
        let filled = self.filled.get(partition).copied().unwrap_or_default();
        self.written.get(partition).copied().unwrap_or_default() / 8 + u64::from(filled)
    }

    /// Puts a value into the buffer of its partition. Returns `false` and does nothing if there is no room.
    #[inline]
    fn put(&mut self, value: Octets) -> Result<bool, StreamFault> {
        let partition = u64::from_le_bytes(value) as usize & (PARTITIONS - 1);
        let filled = usize::from(self.filled[partition]);
        // A buffer that became full and found no place has waited until now.
        if filled == VALUES && !self.move_to_pool(partition)? {
            return Ok(false);
        }
        let at = filled % VALUES;
        self.buffers[partition][at] = value;
        self.filled[partition] = at as u8 + 1;
        if at + 1 == VALUES {
            self.move_to_pool(partition)?;
        }
        Ok(true)
    }

    /// Moves the buffer of a partition to the pool. Returns `false` if all places are in use.
    fn move_to_pool(&mut self, partition: usize) -> Result<bool, StreamFault> {
        let length = u64::from(self.filled[partition]) * 8;
        if length == 0 {
            return Ok(true);
        }
        let (range, written) = (self.ranges[partition], self.written[partition]);
        if length > range.length - written {
            return Err(StreamFault::PartitionFull { partition, capacity: range.length });
        }
        let place = self.free.trailing_zeros();
        let Some(pending) = self.pool.get_mut(place as usize) else { return Ok(false) };
        let offset = range.offset + written;
        let to = self.grant.check_write(offset, length as u32).map_err(|_| StreamFault::Region { offset })?;
        let (values, count) = (self.buffers[partition], self.filled[partition]);
        *pending = Some(Pending { to, values, count });
        self.free &= !(1 << place);
        self.waiting |= 1 << place;
        self.written[partition] += length;
        self.filled[partition] = 0;
        Ok(true)
    }

    /// Completes the value that an earlier piece began. Returns the number of bytes that it took; `None` if
    /// there is no room.
    fn complete_begun(&mut self, bytes: &[u8]) -> Result<Option<usize>, StreamFault> {
        let length = (8 - self.begun_bytes).min(bytes.len());
        let mut value = self.begun;
        value[self.begun_bytes..][..length].copy_from_slice(&bytes[..length]);
        if self.begun_bytes + length == 8 {
            if !self.put(value)? {
                return Ok(None);
            }
            self.begun_bytes = 0;
        } else {
            (self.begun, self.begun_bytes) = (value, self.begun_bytes + length);
        }
        Ok(Some(length))
    }
}

impl<const PARTITIONS: usize, const WRITES: usize> StreamKernel for Shuffle<PARTITIONS, WRITES> {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, StreamFault> {
        let mut taken = 0;
        if self.begun_bytes > 0 {
            match self.complete_begun(bytes)? {
                Some(length) => taken = length,
                None => return Ok(0),
            }
        }
        let (values, rest) = bytes[taken..].as_chunks::<8>();
        for value in values {
            if !self.put(*value)? {
                return Ok(taken);
            }
            taken += 8;
        }
        self.begun[self.begun_bytes..][..rest.len()].copy_from_slice(rest);
        self.begun_bytes += rest.len();
        Ok(taken + rest.len())
    }

    fn finish(&mut self) -> Result<bool, StreamFault> {
        if self.begun_bytes > 0 {
            return Err(StreamFault::Incomplete { bytes: self.begun_bytes });
        }
        while self.finished < PARTITIONS {
            if !self.move_to_pool(self.finished)? {
                return Ok(false);
            }
            self.finished += 1;
        }
        Ok(true)
    }

    fn poll_write(&mut self) -> Option<StreamWrite<'_>> {
        let tag = self.waiting.trailing_zeros() as usize;
        let pending = self.pool.get(tag)?.as_ref()?;
        self.waiting &= !(1 << tag);
        let bytes = pending.values.get(..pending.count.into())?.as_flattened();
        Some(StreamWrite { tag, to: pending.to, bytes })
    }

    fn write_done(&mut self, tag: usize) {
        let bit = u32::try_from(tag).ok().and_then(|tag| 1_u64.checked_shl(tag)).unwrap_or_default();
        let place = bit & Self::PLACES;
        // A place that was not handed out, or has already ended, stays as it is.
        self.free |= place & !self.waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARTITIONS: usize = 8;
    type Small = Shuffle<PARTITIONS, 3>;

    /// Consecutive parts of a region, as a histogram of the values determines them.
    fn ranges(values: &[u64]) -> ([PartitionRange; PARTITIONS], u64) {
        let mut end = 0;
        let ranges = std::array::from_fn(|partition| {
            let count = values.iter().filter(|value| **value as usize % PARTITIONS == partition).count();
            let range = PartitionRange { offset: end, length: count as u64 * 8 };
            end += range.length;
            range
        });
        (ranges, end)
    }

    fn new(values: &[u64]) -> (Small, Vec<u8>) {
        let (ranges, length) = ranges(values);
        let grant = Grant::new(0x1000, length).expect("no wrap").writable();
        (Small::new(grant, ranges).expect("inside"), vec![0xaa; length as usize])
    }

    /// Carries out one of the writes in flight.
    fn write(shuffle: &mut Small, region: &mut [u8], under_way: &mut Vec<usize>) {
        if let Some(write) = shuffle.poll_write() {
            let at = write.to.range().offset() as usize;
            assert_eq!(write.bytes.len(), write.to.range().length() as usize);
            region[at..at + write.bytes.len()].copy_from_slice(write.bytes);
            under_way.push(write.tag);
        }
    }

    proptest! {
        #[test]
        fn every_value_reaches_its_partition_in_order_however_pieces_and_writes_fall(
            values in proptest::collection::vec(any::<u64>(), 0..600),
            pieces in proptest::collection::vec(1_usize..200, 1..20),
            ends in any::<u64>(),
        ) {
            let (mut shuffle, mut region) = new(&values);
            let stream: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let (mut at, mut turn, mut under_way, mut refused) = (0, 0_u32, vec![], 0);
            let mut done = false;
            while !done || !under_way.is_empty() {
                turn += 1;
                prop_assert!(turn < 100_000, "the shuffle never ends");
                if at < stream.len() {
                    let length = pieces[turn as usize % pieces.len()].min(stream.len() - at);
                    let taken = shuffle.take(&stream[at..at + length]).expect("counted before");
                    refused += usize::from(taken < length);
                    at += taken;
                } else {
                    done = shuffle.finish().expect("whole values");
                }
                // Writes end late and out of order.
                if ends.rotate_left(turn) & 1 == 1 {
                    write(&mut shuffle, &mut region, &mut under_way);
                }
                if ends.rotate_left(turn / 2) & 1 == 0 && !under_way.is_empty() {
                    let last = under_way.remove(turn as usize % under_way.len());
                    shuffle.write_done(last);
                }
                if ends == 0 || ends == u64::MAX {
                    write(&mut shuffle, &mut region, &mut under_way);
                    under_way.drain(..).for_each(|tag| shuffle.write_done(tag));
                }
            }
            while let Some(StreamWrite { tag, to, bytes }) = shuffle.poll_write() {
                let at = to.range().offset() as usize;
                region[at..at + bytes.len()].copy_from_slice(bytes);
                shuffle.write_done(tag);
            }
            let mut expected = vec![];
            for partition in 0..PARTITIONS {
                let of_it = values.iter().filter(|value| **value as usize % PARTITIONS == partition);
                prop_assert_eq!(shuffle.count(partition), of_it.clone().count() as u64);
                expected.extend(of_it.flat_map(|value| value.to_le_bytes()));
            }
            prop_assert_eq!(region, expected, "refused {} times", refused);
        }
    }

    #[test]
    fn a_shuffle_takes_no_more_bytes_until_a_write_ends() {
        let values = vec![8_u64; 1000];
        let (mut shuffle, mut region) = new(&values);
        let stream: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        // Three buffers are in the pool, and a full one waits for a place.
        let taken = shuffle.take(&stream).expect("fits");
        assert_eq!(taken, 4 * VALUES * 8);
        assert_eq!(shuffle.take(&stream[taken..]), Ok(0));
        let mut under_way = vec![];
        write(&mut shuffle, &mut region, &mut under_way);
        assert_eq!(shuffle.take(&stream[taken..]), Ok(0), "the write is still in flight");
        shuffle.write_done(2);
        assert_eq!(shuffle.take(&stream[taken..]), Ok(0), "write 2 was not handed out");
        shuffle.write_done(under_way[0]);
        assert_eq!(shuffle.take(&stream[taken..]), Ok(VALUES * 8));
    }

    #[test]
    fn a_partition_that_is_full_is_a_fault_and_nothing_is_written_behind_it() {
        let (mut shuffle, _) = new(&[1; 16]);
        assert_eq!(shuffle.take(&[1, 0, 0, 0, 0, 0, 0, 0].repeat(16)), Ok(128));
        assert_eq!(shuffle.poll_write().map(|write| write.bytes.len()), Some(128));
        assert_eq!(shuffle.take(&[1, 0, 0, 0, 0, 0, 0, 0]), Ok(8), "the value waits in its partition");
        let full = StreamFault::PartitionFull { partition: 1, capacity: 128 };
        assert_eq!(shuffle.finish(), Err(full));
        assert_eq!(shuffle.poll_write(), None);
        let (mut shuffle, _) = new(&[]);
        assert_eq!(shuffle.take(&[0; 4]), Ok(4));
        assert_eq!(shuffle.finish(), Err(StreamFault::Incomplete { bytes: 4 }));
    }

    #[test]
    fn partitions_have_to_lie_in_the_writable_grant() {
        let ranges = |offset, length| [PartitionRange { offset, length }; 2];
        let read = Grant::new(0x1000, 64).expect("no wrap");
        assert!(matches!(Shuffle::<2, 1>::new(read, ranges(0, 8)), Err(GrantFault::ReadOnly { .. })));
        let grant = read.writable();
        for (offset, length) in [(0, 65), (64, 1), (u64::MAX, 2), (8, u64::MAX)] {
            assert!(Shuffle::<2, 1>::new(grant, ranges(offset, length)).is_err(), "{offset} {length}");
        }
        assert!(Shuffle::<2, 1>::new(grant, ranges(u64::MAX, 0)).is_ok(), "nothing is written there");
    }
}
