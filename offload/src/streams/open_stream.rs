//! Streams that clients open and fill, and that the NIC or a core of a DPU answers: StRoM's kernels on the receive path.
//!
//! An RPC Params names the kernel by its op-code and states the length of the stream and its destination. RPC WRITEs of
//! the same op-code carry the bytes, in any number of messages. One answer follows when all bytes have arrived and are
//! written, or a status as soon as the stream cannot continue. Parameters, numbers big-endian:
//!
//! ```text
//!  0  bytes of the stream, a multiple of 8: 8
//!  8  SHUFFLE only, for each of 16 partitions: offset in the region 8 | bytes 8
//! ```
//!
//! | op-code | what it does | answer |
//! |---|---|---|
//! | [`SHUFFLE`] | puts each value of 8 bytes into the partition that its low 4 bits name | how many values each partition got: 16 numbers of 8 bytes |
//! | [`COUNT`] | writes the stream to the start of the region, and counts its different values | the registers of the sketch, 1,024 bytes: [`Sketch::from_registers`](super::hyper_log_log::Sketch::from_registers) |
//!
//! A NIC writes as fast as its wire delivers, so [`OpenStream::take`] takes everything and has each write carried out at
//! once. A core waits for its DMAs: [`OpenStream::offer`] takes as much as there is room for.

use super::hyper_log_log::CountingTap;
use super::shuffle::{PartitionRange, Shuffle};
use super::{StreamFault, StreamKernel, StreamWrite};
use crate::grant::Grant;
use crate::kernel::Opcode;
use crate::status::Status;
use zerocopy::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "SHUFFLE" in ASCII: partitions a stream.
pub const SHUFFLE: Opcode = Opcode(u64::from_be_bytes(*b"SHUFFLE\0"));
/// "COUNTHLL" in ASCII: counts the distinct values of a stream.
pub const COUNT: Opcode = Opcode(u64::from_be_bytes(*b"COUNTHLL"));
/// Partitions of [`SHUFFLE`].
pub const PARTITIONS: usize = 16;
/// Registers of the sketch of [`COUNT`]: a standard error of 3.3 %.
pub const REGISTERS: usize = 1024;
/// Most bytes of an answer.
pub const MAX_RESPONSE: usize = REGISTERS;
/// Writes of a stream at a time; their tags are less.
pub const WRITES: usize = 8;
/// Bytes that the tap has under way.
const BUFFER: usize = 4096;

/// Parameters of [`SHUFFLE`].
///
/// ```
/// use bareverbs_offload::streams::open_stream::{PARTITIONS, ShuffleParameters};
/// use zerocopy::IntoBytes;
///
/// // 1,024 bytes of values that are spread evenly.
/// let parameters = ShuffleParameters::without_gaps([64; PARTITIONS]);
/// assert_eq!((parameters.bytes.get(), parameters.partitions[3].offset.get()), (1024, 192));
/// assert_eq!(parameters.as_bytes().len(), 8 + 16 * PARTITIONS);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ShuffleParameters {
    /// Bytes of the stream.
    pub bytes: U64,
    /// Where each partition goes.
    pub partitions: [PartitionPlace; PARTITIONS],
}

/// The place of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PartitionPlace {
    /// Offset of the first byte from the start of the region.
    pub offset: U64,
    /// Capacity in bytes.
    pub length: U64,
}

impl ShuffleParameters {
    /// The parameters of a stream whose partitions have these lengths in bytes and are next to each other.
    pub fn without_gaps(lengths: [u64; PARTITIONS]) -> Self {
        let mut end = 0;
        let partitions = lengths.map(|length| {
            let place = PartitionPlace { offset: U64::new(end), length: length.into() };
            end += length;
            place
        });
        Self { bytes: end.into(), partitions }
    }
}

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is no heap here; who has one boxes the stream")]
enum StreamKind {
    Shuffle(Shuffle<PARTITIONS, WRITES>),
    Count(CountingTap<REGISTERS, BUFFER>),
}

/// A stream under way.
///
/// ```
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::streams::open_stream::{COUNT, MAX_RESPONSE, OpenStream};
/// use bareverbs_offload::streams::hyper_log_log::Sketch;
///
/// let grant = Grant::new(0x1000, 64)?.writable();
/// let mut stream = OpenStream::open(COUNT, &24_u64.to_be_bytes(), grant).unwrap();
/// let mut region = [0; 64];
/// stream.take(&[7; 24], |write| {
///     let at = write.to.range().offset() as usize;
///     region[at..at + write.bytes.len()].copy_from_slice(write.bytes);
///     true
/// }).unwrap();
/// assert!(stream.is_whole() && region[..24] == [7; 24]);
/// let mut answer = [0; MAX_RESPONSE];
/// let sketch = Sketch::<1024>::from_registers(stream.answer(&mut answer)).unwrap();
/// assert_eq!(sketch.estimate().round(), 1.0); // the same value three times
/// # Ok::<(), bareverbs_offload::grant::GrantFault>(())
/// ```
#[derive(Debug, Clone)]
pub struct OpenStream {
    kind: StreamKind,
    /// Bytes that have not arrived.
    left: u64,
}

impl OpenStream {
    /// Whether this op-code opens a stream.
    pub const fn is_opened_by(opcode: Opcode) -> bool {
        opcode.0 == SHUFFLE.0 || opcode.0 == COUNT.0
    }

    /// Opens a stream into the region of a grant, which must be writable.
    ///
    /// # Errors
    /// [`Status::NoKernel`] for another op-code, [`Status::BadParameters`] for parameters of another length or a stream that is empty or no whole number of values,
    /// [`Status::ReadOnly`] and [`Status::OutOfBounds`] as the grant says.
    pub fn open(opcode: Opcode, parameters: &[u8], grant: Grant) -> Result<Self, Status> {
        let (kind, left) = match opcode {
            SHUFFLE => {
                let told =
                    ShuffleParameters::read_from_bytes(parameters).map_err(|_| Status::BadParameters)?;
                let range = |place: PartitionPlace| PartitionRange {
                    offset: place.offset.get(),
                    length: place.length.get(),
                };
                let shuffle = Shuffle::new(grant, told.partitions.map(range))?;
                (StreamKind::Shuffle(shuffle), told.bytes.get())
            }
            COUNT => {
                let bytes = U64::read_from_bytes(parameters).map_err(|_| Status::BadParameters)?.get();
                let last = bytes.checked_sub(1).ok_or(Status::BadParameters)?;
                grant.check_write(last, 1)?;
                (StreamKind::Count(CountingTap::new(grant)), bytes)
            }
            _ => return Err(Status::NoKernel),
        };
        if left == 0 || !left.is_multiple_of(8) {
            return Err(Status::BadParameters);
        }
        Ok(Self { kind, left })
    }

    /// Takes bytes that have arrived. `write` carries out a write and returns whether it succeeded.
    ///
    /// # Errors
    /// The stream is longer than announced, a partition has no room for the bytes ([`Status::OutOfBounds`]), or a write failed ([`Status::DmaFault`]). The stream cannot continue then.
    pub fn take(&mut self, bytes: &[u8], write: impl FnMut(&StreamWrite<'_>) -> bool) -> Result<(), Status> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(Status::BadParameters)?;
        let is_last = self.left == 0;
        match &mut self.kind {
            StreamKind::Shuffle(kernel) => pass(kernel, bytes, is_last, write),
            StreamKind::Count(kernel) => pass(kernel, bytes, is_last, write),
        }
    }

    /// Takes as many of the bytes as there is room for, and returns their number. Writes become due, of at most as many
    /// bytes as were offered at a time.
    ///
    /// # Errors
    /// As [`OpenStream::take`].
    pub fn offer(&mut self, bytes: &[u8]) -> Result<usize, Status> {
        if bytes.len() as u64 > self.left {
            return Err(Status::BadParameters);
        }
        let taken = self.kernel().take(bytes)?;
        self.left = self.left.saturating_sub(taken as u64);
        Ok(taken)
    }

    /// Makes the writes due that were held back to be combined with later bytes. `false`: no room; call it again after a
    /// write has ended. Call it when all bytes were taken.
    ///
    /// # Errors
    /// A partition has no room for the bytes.
    pub fn finish(&mut self) -> Result<bool, Status> {
        Ok(self.kernel().finish()?)
    }

    /// The next write that is due. Its tag is less than [`WRITES`].
    pub fn poll_write(&mut self) -> Option<StreamWrite<'_>> {
        self.kernel().poll_write()
    }

    /// A write has ended.
    pub fn write_done(&mut self, tag: usize) {
        self.kernel().write_done(tag);
    }

    fn kernel(&mut self) -> &mut dyn StreamKernel {
        match &mut self.kind {
            StreamKind::Shuffle(kernel) => kernel,
            StreamKind::Count(kernel) => kernel,
        }
    }

    /// Whether all bytes have arrived and, with [`OpenStream::take`], were written.
    pub const fn is_whole(&self) -> bool {
        self.left == 0
    }

    /// The answer that the client gets at the end.
    pub fn answer<'b>(&self, buffer: &'b mut [u8; MAX_RESPONSE]) -> &'b [u8] {
        match &self.kind {
            StreamKind::Shuffle(shuffle) => {
                let (counts, _) = buffer.as_chunks_mut::<8>();
                for (partition, count) in counts.iter_mut().take(PARTITIONS).enumerate() {
                    *count = shuffle.count(partition).to_be_bytes();
                }
                &buffer[..8 * PARTITIONS]
            }
            StreamKind::Count(tap) => {
                buffer.copy_from_slice(tap.sketch().registers());
                buffer
            }
        }
    }
}

/// Takes all bytes, and carries out each write as the kernel emits it.
fn pass(
    kernel: &mut impl StreamKernel,
    mut bytes: &[u8],
    is_last: bool,
    mut write: impl FnMut(&StreamWrite<'_>) -> bool,
) -> Result<(), Status> {
    let mut written = |kernel: &mut _| write_all(kernel, &mut write);
    while !bytes.is_empty() {
        let taken = kernel.take(bytes)?;
        // When all writes are done, there is room.
        if written(kernel)? == 0 && taken == 0 {
            return Err(Status::DmaFault);
        }
        bytes = bytes.get(taken..).unwrap_or_default();
    }
    while is_last && !kernel.finish()? {
        if written(kernel)? == 0 {
            return Err(Status::DmaFault);
        }
    }
    written(kernel).map(drop)
}

/// Carries out all writes and returns how many there were.
fn write_all<K: StreamKernel>(
    kernel: &mut K,
    write: &mut impl FnMut(&StreamWrite<'_>) -> bool,
) -> Result<usize, Status> {
    let mut count = 0;
    while let Some(wanted) = kernel.poll_write() {
        let (tag, done) = (wanted.tag, write(&wanted));
        kernel.write_done(tag);
        count += 1;
        if !done {
            return Err(Status::DmaFault);
        }
    }
    Ok(count)
}

impl From<StreamFault> for Status {
    fn from(fault: StreamFault) -> Self {
        match fault {
            StreamFault::PartitionFull { .. } | StreamFault::Region { .. } => Self::OutOfBounds,
            StreamFault::Incomplete { .. } => Self::BadParameters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::hyper_log_log::Sketch;
    use proptest::prelude::*;

    fn grant(length: usize) -> Grant {
        Grant::new(0x1000, length as u64).expect("no wrap").writable()
    }

    /// Sends the stream in pieces; returns the status if it cannot go on.
    fn fill(
        stream: &mut OpenStream,
        region: &mut [u8],
        bytes: &[u8],
        pieces: &[usize],
    ) -> Result<(), Status> {
        let (mut rest, mut lengths) = (bytes, pieces.iter().cycle());
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(*lengths.next().expect("it cycles")));
            stream.take(piece, |write| {
                let at = write.to.range().offset() as usize;
                region[at..at + write.bytes.len()].copy_from_slice(write.bytes);
                true
            })?;
            rest = later;
        }
        Ok(())
    }

    fn shuffled(values: &[u64], room: impl Fn(usize) -> u64) -> ShuffleParameters {
        let lengths = core::array::from_fn(|partition| {
            let count = values.iter().filter(|value| **value as usize % PARTITIONS == partition).count();
            8 * count as u64 + room(partition)
        });
        let bytes = (8 * values.len() as u64).into();
        ShuffleParameters { bytes, ..ShuffleParameters::without_gaps(lengths) }
    }

    proptest! {
        #[test]
        fn a_shuffled_stream_has_each_value_in_its_partition(
            values in proptest::collection::vec(any::<u64>(), 1..600),
            pieces in proptest::collection::vec(1_usize..300, 1..10),
        ) {
            let parameters = shuffled(&values, |_| 8);
            let mut region = vec![0; 8 * (values.len() + PARTITIONS)];
            let mut stream = OpenStream::open(SHUFFLE, parameters.as_bytes(), grant(region.len())).expect("opens");
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            prop_assert_eq!(fill(&mut stream, &mut region, &bytes, &pieces), Ok(()));
            prop_assert!(stream.is_whole());
            let mut buffer = [0; MAX_RESPONSE];
            let response = stream.answer(&mut buffer);
            for (partition, count) in response.chunks_exact(8).enumerate() {
                let wanted: Vec<u64> = values.iter().copied().filter(|value| *value as usize % PARTITIONS == partition).collect();
                prop_assert_eq!(u64::from_be_bytes(count.try_into().unwrap()), wanted.len() as u64);
                let begin = parameters.partitions[partition].offset.get() as usize;
                let found = region[begin..][..8 * wanted.len()].chunks_exact(8);
                let found: Vec<u64> = found.map(|value| u64::from_le_bytes(value.try_into().unwrap())).collect();
                prop_assert_eq!(found, wanted, "in the order of the stream");
            }
        }

        #[test]
        fn a_counted_stream_is_written_as_it_came(
            stream_bytes in proptest::collection::vec(any::<[u8; 8]>(), 1..2000),
            pieces in proptest::collection::vec(1_usize..5000, 1..10),
        ) {
            let bytes = stream_bytes.as_flattened();
            let mut region = vec![0; bytes.len()];
            let mut stream = OpenStream::open(COUNT, &(bytes.len() as u64).to_be_bytes(), grant(bytes.len())).expect("opens");
            prop_assert_eq!(fill(&mut stream, &mut region, bytes, &pieces), Ok(()));
            prop_assert_eq!(&region, bytes);
            let mut expected = Sketch::<REGISTERS>::new();
            stream_bytes.iter().for_each(|value| expected.add(u64::from_le_bytes(*value)));
            let mut buffer = [0; MAX_RESPONSE];
            prop_assert_eq!(stream.answer(&mut buffer), expected.registers());
        }
    }

    #[test]
    fn a_stream_that_cannot_be_is_refused() {
        let open = |opcode, parameters: &[u8], grant| {
            OpenStream::open(opcode, parameters, grant).map(|_| ()).unwrap_err()
        };
        let bytes = |bytes: u64| bytes.to_be_bytes();
        let read_only = Grant::new(0x1000, 64).expect("no wrap");
        assert_eq!(open(Opcode(1), &bytes(8), grant(64)), Status::NoKernel);
        assert_eq!(open(COUNT, &bytes(0), grant(64)), Status::BadParameters);
        assert_eq!(open(COUNT, &bytes(9), grant(64)), Status::BadParameters);
        assert_eq!(open(COUNT, &bytes(72), grant(64)), Status::OutOfBounds);
        assert_eq!(open(COUNT, &bytes(u64::MAX), grant(64)), Status::OutOfBounds);
        assert_eq!(open(COUNT, &bytes(8), read_only), Status::ReadOnly);
        assert_eq!(open(COUNT, &[0; 7], grant(64)), Status::BadParameters);
        let values = [1, 2, 3];
        assert_eq!(open(SHUFFLE, shuffled(&values, |_| 0).as_bytes(), grant(16)), Status::OutOfBounds);
        assert_eq!(
            open(SHUFFLE, &shuffled(&values, |_| 0).as_bytes()[1..], grant(64)),
            Status::BadParameters
        );
        assert_eq!(open(SHUFFLE, shuffled(&[], |_| 0).as_bytes(), grant(64)), Status::BadParameters);
        assert!(
            OpenStream::is_opened_by(SHUFFLE)
                && OpenStream::is_opened_by(COUNT)
                && !OpenStream::is_opened_by(Opcode(0))
        );
    }

    #[test]
    fn a_stream_that_goes_wrong_ends_with_the_reason() {
        let mut region = vec![0; 64];
        let mut stream = OpenStream::open(COUNT, &16_u64.to_be_bytes(), grant(64)).expect("opens");
        assert_eq!(fill(&mut stream, &mut region, &[1; 24], &[24]), Err(Status::BadParameters), "too long");
        let mut stream = OpenStream::open(COUNT, &16_u64.to_be_bytes(), grant(64)).expect("opens");
        assert_eq!(stream.take(&[1; 8], |_| false), Err(Status::DmaFault));
        // The histogram has one value for partition 1, and two arrive.
        let mut parameters = shuffled(&[1, 2], |_| 0);
        parameters.bytes = 24.into();
        let mut stream = OpenStream::open(SHUFFLE, parameters.as_bytes(), grant(64)).expect("opens");
        let values = [1_u64, 2, 1].map(u64::to_le_bytes);
        assert_eq!(fill(&mut stream, &mut region, values.as_flattened(), &[8]), Err(Status::OutOfBounds));
        assert_eq!(region[8..16], [0; 8], "partition 2 was not overwritten");
    }
}
