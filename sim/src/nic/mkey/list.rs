//! Indirect keys: lists of ranges (KLM), of ranges that repeat with a stride, and of ranges of one size
//! (KSM).
//!
//! An entry is 16 bytes: byte count, key, address. [`REPEAT`] in place of a key begins a repeat block. Its
//! header holds the bytes of one round, the number of rounds and the number of entries that follow. Each of
//! these has a stride, a byte count, a key and an address, and round *n* reads it at `address + n · stride`
//! (PRM, UMR repeat block).

use super::step::TranslationStep;
use bareverbs_prm::ids::Mkey;

/// The value that the header of a repeat block has in place of a key.
const REPEAT: u32 = 0x400;

/// A sequence of other keys.
#[derive(Debug)]
pub(crate) struct KeyList {
    stretches: Vec<Stretch>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Range `i` ends at `ends[i]`.
    Lengths { ends: Vec<u64> },
    /// Every range has `1 << log_size` bytes, and the region begins `lead` bytes into the first.
    Size { log_size: u8, lead: u64 },
}

#[derive(Debug, PartialEq, Eq)]
enum Stretch {
    Plain { key: Mkey, address: u64 },
    Repeated { round: u64, parts: Vec<Part> },
}

/// A part of a repeat block.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    key: Mkey,
    address: u64,
    stride: u64,
    /// Where it ends within its round.
    end: u64,
}

impl KeyList {
    /// A list whose entries have their own lengths. Entries beyond `length` bytes are padding and are
    /// ignored.
    pub(super) fn of_lengths(entries: &[u64], length: u64) -> Self {
        let (mut stretches, mut ends, mut end) = (Vec::new(), Vec::new(), 0u64);
        let mut octwords = entries.chunks_exact(2);
        while let Some(&[head, tail]) = octwords.next() {
            if end >= length {
                break;
            }
            let (count, key) = (head >> 32, Mkey::new(head as u32));
            let (stretch, bytes) = if key.value() == REPEAT {
                let parts = take_parts(&mut octwords, tail as u16);
                let round = parts.last().map_or(0, |part| part.end);
                // Each round has as many bytes as its parts together; the count in the header repeats this.
                (Stretch::Repeated { round, parts }, round.saturating_mul(tail >> 32))
            } else {
                (Stretch::Plain { key, address: tail }, count)
            };
            if bytes > 0 {
                end = end.saturating_add(bytes);
                stretches.push(stretch);
                ends.push(end);
            }
        }
        Self { stretches, form: Form::Lengths { ends } }
    }

    /// A list whose entries all have `1 << log_size` bytes, like pages.
    pub(super) fn of_size(entries: &[u64], log_size: u8, start: u64) -> Self {
        let plain = |octword: &[u64]| {
            let (head, address) = halves(octword);
            Stretch::Plain { key: Mkey::new(head as u32), address }
        };
        let lead = start & ((1u64 << log_size) - 1);
        let stretches = entries.chunks_exact(2).map(plain).collect();
        Self { stretches, form: Form::Size { log_size, lead } }
    }

    /// Position of the first byte of the region.
    pub(super) const fn lead(&self) -> u64 {
        match self.form {
            Form::Lengths { .. } => 0,
            Form::Size { lead, .. } => lead,
        }
    }

    /// Total bytes of a list whose entries have their own lengths; otherwise zero.
    pub(super) fn length(&self) -> u64 {
        match &self.form {
            Form::Lengths { ends } => ends.last().copied().unwrap_or(0),
            Form::Size { .. } => 0,
        }
    }

    /// Every key of the list.
    pub(super) fn keys(&self) -> impl Iterator<Item = Mkey> + '_ {
        self.stretches.iter().flat_map(|stretch| {
            let (plain, parts): (_, &[Part]) = match stretch {
                Stretch::Plain { key, .. } => (Some(*key), &[]),
                Stretch::Repeated { parts, .. } => (None, parts),
            };
            plain.into_iter().chain(parts.iter().map(|part| part.key))
        })
    }

    pub(super) fn step(&self, at: u64) -> Option<(TranslationStep, u64)> {
        self.step_in(self.stretch_of(at)?, at)
    }

    /// The index of the range that contains a position, if there is one.
    pub(super) fn stretch_of(&self, at: u64) -> Option<usize> {
        match &self.form {
            Form::Lengths { ends } => Some(ends.partition_point(|end| *end <= at)),
            Form::Size { log_size, .. } => usize::try_from(at >> log_size).ok(),
        }
    }

    /// The index of the range that contains a position, searched from `stretch` on.
    pub(super) fn stretch_from(&self, stretch: usize, at: u64) -> Option<usize> {
        match &self.form {
            Form::Lengths { ends } => {
                let passed = ends.get(stretch..)?.iter().take_while(|end| **end <= at);
                Some(stretch + passed.count())
            }
            Form::Size { .. } => self.stretch_of(at),
        }
    }

    /// What is at a position of this range.
    pub(super) fn step_in(&self, stretch: usize, at: u64) -> Option<(TranslationStep, u64)> {
        match &self.form {
            Form::Lengths { ends } => {
                let start = stretch.checked_sub(1).map_or(0, |before| ends[before]);
                self.stretches.get(stretch)?.step(at - start, ends[stretch] - start)
            }
            Form::Size { log_size, .. } => {
                let size = 1u64 << log_size;
                self.stretches.get(stretch)?.step(at & (size - 1), size)
            }
        }
    }
}

impl Stretch {
    /// What is at offset `at` of the range, which has `length` bytes.
    fn step(&self, at: u64, length: u64) -> Option<(TranslationStep, u64)> {
        match self {
            Self::Plain { key, address } => {
                Some((TranslationStep::Key { key: *key, address: address.checked_add(at)? }, length - at))
            }
            Self::Repeated { round, parts } => {
                let (count, within) = (at.checked_div(*round)?, at.checked_rem(*round)?);
                let index = parts.partition_point(|part| part.end <= within);
                let start = index.checked_sub(1).map_or(0, |before| parts[before].end);
                let Part { key, address, stride, end } = parts.get(index)?;
                let address = address.checked_add(stride.checked_mul(count)?)?.checked_add(within - start)?;
                Some((TranslationStep::Key { key: *key, address }, end - within))
            }
        }
    }
}

/// The two words of an octword.
fn halves(octword: &[u64]) -> (u64, u64) {
    match octword {
        &[head, tail] => (head, tail),
        _ => (0, 0),
    }
}

fn take_parts<'a>(octwords: &mut impl Iterator<Item = &'a [u64]>, count: u16) -> Vec<Part> {
    let mut end = 0;
    let part = |octword: &[u64]| {
        let (head, address) = halves(octword);
        end += head >> 32 & 0xffff;
        Part { key: Mkey::new(head as u32), address, stride: head >> 48, end }
    };
    octwords.take(count.into()).map(part).collect()
}

#[cfg(test)]
#[path = "../tests/key_list.rs"]
mod tests;
