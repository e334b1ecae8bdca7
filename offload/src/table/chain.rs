//! A chain of lines, and how one of its lines is changed while readers read it.
//!
//! Each change takes effect with a single word: the reference of a slot, or the word that names the next
//! line. Everything written before it has no meaning yet, so a writer that dies in the middle leaves the old
//! state or the new one.

use super::error::TableError;
use super::memory::TableMemory;
use crate::kernels::kv_layout::{LINE_SIZE, Line};

/// Offset of the word with sequence and seal in a line.
const LAST_WORD: usize = 56;

/// A chain: its first line, and the number that seals all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) head: u64,
    pub(super) number: u32,
}

/// A line that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineAt {
    pub(super) offset: u64,
    pub(super) chain: u32,
    pub(super) line: Line,
}

impl Chain {
    pub(super) fn read(&self, memory: &impl TableMemory, offset: u64) -> Result<LineAt, TableError> {
        let line = Line::parse(&line_bytes(memory, offset)?, self.number)
            .map_err(|_| TableError::Corrupt { line: offset })?;
        Ok(LineAt { offset, chain: self.number, line })
    }

    /// Like `read`, for a line whose writer may have died within a change: completes that change.
    pub(super) fn mend(&self, memory: &mut impl TableMemory, offset: u64) -> Result<LineAt, TableError> {
        let bytes = line_bytes(memory, offset)?;
        let Some(unfinished) = Line::unfinished(&bytes) else { return self.read(memory, offset) };
        let line = Line { sequence: unfinished.sequence.wrapping_add(1), ..unfinished };
        memory.write(offset + LAST_WORD as u64, &line.encode(self.number)[LAST_WORD..])?;
        memory.order();
        Ok(LineAt { offset, chain: self.number, line })
    }
}

fn line_bytes(memory: &impl TableMemory, offset: u64) -> Result<[u8; LINE_SIZE as usize], TableError> {
    let mut bytes = [0; LINE_SIZE as usize];
    memory.read(offset, &mut bytes)?;
    Ok(bytes)
}

impl LineAt {
    /// Writes a line that nothing refers to yet.
    pub(super) fn write_new(&self, memory: &mut impl TableMemory) -> Result<(), TableError> {
        memory.write(self.offset, &self.line.encode(self.chain))?;
        memory.order();
        Ok(())
    }

    /// The three parts of a change: an odd sequence; the words that differ, in their order; an even sequence
    /// with the seal.
    pub(super) fn change(&self, memory: &mut impl TableMemory, new: Line) -> Result<(), TableError> {
        let sequence = self.line.sequence;
        let before = self.line.encode(self.chain);
        let after = Line { sequence: sequence.wrapping_add(2), ..new }.encode(self.chain);
        let mut last_word = [0; 8];
        last_word[..4].copy_from_slice(&sequence.wrapping_add(1).to_be_bytes());
        last_word[4..].copy_from_slice(&before[LAST_WORD + 4..]);
        memory.write(self.offset + LAST_WORD as u64, &last_word)?;
        memory.order();
        for at in (0..LAST_WORD).step_by(8) {
            if before[at..at + 8] != after[at..at + 8] {
                memory.write(self.offset + at as u64, &after[at..at + 8])?;
                memory.order();
            }
        }
        memory.write(self.offset + LAST_WORD as u64, &after[LAST_WORD..])?;
        memory.order();
        Ok(())
    }
}
