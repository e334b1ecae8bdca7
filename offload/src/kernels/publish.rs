//! Writes a value beside the old one, and makes it the current one by a compare-and-swap of the word that
//! refers to it.
//!
//! Readers see the old value or the new one and nothing in between; of two writers, one learns that it came
//! second. Parameters, numbers big-endian; the value follows:
//!
//! ```text
//!  0  offset of the value 8 | offset of the word 8
//! 16  expected word 8 | desired word 8
//! ```
//!
//! Answer: the previous word, 8 bytes. The value is written in any case; it is current if the answer is the
//! expected word. The grant must be writable. If the path to the memory cannot compare and swap, as with a
//! queue of DMA work requests, the kernel ends with [`Status::NoAtomics`].

use crate::grant::Grant;
use crate::kernel::{Emission, Event, Kernel, Opcode, Status, Step};
use zerocopy::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most bytes of a value.
pub const MAX_VALUE: usize = 160;
/// Bytes of the parameters before the value.
pub const FIXED: usize = size_of::<PublishParameters>();

/// What is to be written, and what is to refer to it.
///
/// ```
/// use bareverbs_offload::kernels::publish::{FIXED, PublishParameters};
///
/// let (value, word) = (4096.into(), 64.into());
/// let parameters = PublishParameters { value, word, expected: 0.into(), desired: 4096.into() };
/// let mut buffer = [0; 128];
/// assert_eq!(parameters.encode(b"new value", &mut buffer).map(<[u8]>::len), Some(FIXED + 9));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PublishParameters {
    /// Where the value is written, from the start of the region.
    pub value: U64,
    /// The word that refers to the current value; its address is a multiple of 8.
    pub word: U64,
    /// The value that the word must have.
    pub expected: U64,
    /// The value that it gets.
    pub desired: U64,
}

impl PublishParameters {
    /// Writes the parameters and the value to `buffer` and returns their bytes; `None` if they do not fit, or
    /// if the value is empty or too long.
    pub fn encode<'b>(&self, value: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        if value.is_empty() || value.len() > MAX_VALUE {
            return None;
        }
        let bytes = buffer.get_mut(..FIXED + value.len())?;
        bytes[..FIXED].copy_from_slice(self.as_bytes());
        bytes[FIXED..].copy_from_slice(value);
        Some(bytes)
    }
}

/// A value that is being published.
#[derive(Debug, Clone)]
pub struct Publish {
    parameters: PublishParameters,
    length: u8,
    value: [u8; MAX_VALUE],
}

impl Kernel for Publish {
    /// "PUBLISHV" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"PUBLISHV"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let (parameters, bytes) =
            PublishParameters::read_from_prefix(parameters).map_err(|_| Status::BadParameters)?;
        let mut value = [0; MAX_VALUE];
        value.get_mut(..bytes.len()).ok_or(Status::BadParameters)?.copy_from_slice(bytes);
        // A word that cannot be swapped is refused before anything is written.
        grant.check_word(parameters.word.get())?;
        let to = grant.check_write(parameters.value.get(), bytes.len() as u32)?;
        let publish = Self { parameters, length: bytes.len() as u8, value };
        Ok((publish, Step::Write { to, from: 0 }))
    }

    fn dma_done(&mut self, _bytes: &[u8], _grant: &Grant) -> Step {
        // This kernel reads nothing.
        Step::Done(Status::BadParameters)
    }

    fn resumed(&mut self, event: Event<'_>, grant: &Grant) -> Step {
        match event {
            Event::Written => self.swap(grant),
            Event::Compared { found } => {
                self.length = 8;
                self.value[..8].copy_from_slice(&found.to_be_bytes());
                Step::Reply(Emission { offset: 0, length: 8, version: 0 })
            }
            Event::Part { .. } => Step::Done(Status::BadParameters),
        }
    }

    fn computed(&self) -> &[u8] {
        &self.value[..usize::from(self.length)]
    }
}

impl Publish {
    fn swap(&self, grant: &Grant) -> Step {
        let PublishParameters { word, expected, desired, .. } = self.parameters;
        match grant.check_word(word.get()) {
            Ok(word) => Step::CompareAndSwap { word, expected: expected.get(), desired: desired.get() },
            Err(fault) => Step::Done(fault.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs the kernel to its end over memory that nobody else changes.
    fn run(memory: &mut [u8], parameters: &[u8]) -> Result<u64, Status> {
        let grant = Grant::new(0x1000, memory.len() as u64)?.writable();
        let (mut kernel, mut step) = Publish::start(parameters, &grant)?;
        loop {
            step = match step {
                Step::Write { to, from } => {
                    let (at, length) = (to.range().offset() as usize, to.range().length() as usize);
                    memory[at..at + length].copy_from_slice(&kernel.computed()[from as usize..][..length]);
                    kernel.resumed(Event::Written, &grant)
                }
                Step::CompareAndSwap { word, expected, desired } => {
                    let word =
                        memory[word.range().offset() as usize..].first_chunk_mut().expect("eight bytes");
                    let found = u64::from_be_bytes(*word);
                    if found == expected {
                        *word = desired.to_be_bytes();
                    }
                    kernel.resumed(Event::Compared { found }, &grant)
                }
                Step::Reply(_) => {
                    return Ok(u64::from_be_bytes(kernel.computed().try_into().expect("a word")));
                }
                Step::Done(status) => return Err(status),
                other => panic!("{other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn a_value_becomes_current_only_if_the_word_is_unchanged(
            value in proptest::collection::vec(any::<u8>(), 1..=MAX_VALUE),
            at in 8_u64..300,
            current in 0_u64..2,
        ) {
            let mut memory = vec![0; 512];
            memory[7] = current as u8;
            let (word, expected, desired) = (0.into(), 0.into(), at.into());
            let parameters = PublishParameters { value: at.into(), word, expected, desired };
            let mut buffer = [0; FIXED + MAX_VALUE];
            let parameters = parameters.encode(&value, &mut buffer).expect("fits");
            prop_assert_eq!(run(&mut memory, parameters), Ok(current));
            prop_assert_eq!(&memory[at as usize..][..value.len()], &value[..]);
            let now = if current == 0 { at } else { current };
            prop_assert_eq!(&memory[..8], &now.to_be_bytes());
            prop_assert!(memory[8..at as usize].iter().all(|byte| *byte == 0));
        }

        #[test]
        fn arbitrary_parameters_end_and_write_nothing_outside(
            bytes in proptest::collection::vec(any::<u8>(), 0..256),
            small in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if small && bytes.len() >= 16 {
                bytes[..7].fill(0);
                bytes[8..15].fill(0);
            }
            let _ended = run(&mut [0; 128], &bytes);
        }
    }

    #[test]
    fn a_region_that_may_only_be_read_is_not_written_and_words_are_aligned() {
        let parameters = |value: u64, word: u64| {
            let fixed = PublishParameters {
                value: value.into(),
                word: word.into(),
                expected: 0.into(),
                desired: 1.into(),
            };
            let mut buffer = [0; FIXED + 8];
            fixed.encode(&[1; 8], &mut buffer).expect("fits").to_vec()
        };
        let grant = Grant::new(0x1000, 64).expect("no wrap");
        assert_eq!(Publish::start(&parameters(8, 0), &grant).err(), Some(Status::ReadOnly));
        let mut memory = [0; 64];
        assert_eq!(run(&mut memory, &parameters(8, 4)), Err(Status::BadParameters));
        assert_eq!(run(&mut memory, &parameters(57, 0)), Err(Status::OutOfBounds));
        assert_eq!(run(&mut memory, &parameters(8, 64)), Err(Status::OutOfBounds));
        assert_eq!(memory, [0; 64], "nothing was written");
    }
}
