//! Walks a structure that its client describes: a list, a tree, a skip list, a chain of buckets, a graph.
//!
//! The kernel knows no structure. It reads an element, applies the rows of a [`TraversalTable`] to it, and follows, emits or
//! ends. Nothing protects what it reads against a concurrent writer: a structure that changes needs a kernel that checks
//! what it reads, as [`super::kv_lookup`] does.
//!
//! | structure | rows |
//! |---|---|
//! | list, chain of buckets | key equal: emit · otherwise: follow next |
//! | binary tree | key equal: emit · key less: follow right · otherwise: follow left |
//! | skip list whose nodes hold the key of their successor | key equal: emit · successor's key not greater (two rows): follow right · otherwise: follow down |
//! | graph, trie | label equal: follow the edge beside it, with the next label |
//!
//! A binary tree whose nodes are `{ key, left, right, value }`, each of 8 bytes:
//!
//! ```
//! use bareverbs_offload::kernels::field::{ByteOrder, Field, Predicate};
//! use bareverbs_offload::kernels::traversal::{Action, KEYS, Length, Row, TraversalTable, Value};
//!
//! let mut keys = [0; KEYS];
//! keys[0] = 4711;
//! let table = TraversalTable {
//!     start: 0x40,                    // the root, in the granted region
//!     pointer_base: 0x7f12_0000_0000, // where the server has the region mapped
//!     element: 32,
//!     order: ByteOrder::LittleEndian,
//!     value: Value::Inline(Field::word(6)), // positions count 4-byte words
//!     length: Length::Fixed(8),
//!     rows: [
//!         Row::when(Predicate::Equal, 1, Action::Emit),
//!         Row::when(Predicate::LessThan, 1, Action::Follow).pointer(Field::word(4)),
//!         Row::otherwise(Action::Follow).pointer(Field::word(2)),
//!         Row::END,
//!     ],
//!     keys,
//!     key_count: 1,
//! };
//! assert!(table.fits());
//! let parameters = table.encode(); // 160 bytes for `Request::parameters`
//! ```

mod table;

pub use table::{Action, KEYS, Length, MAX_ELEMENT, PARAMETERS, ROWS, Row, TraversalTable, Value};

use super::field::{ByteOrder, Field, Predicate};
use crate::grant::Grant;
use crate::kernel::{Emission, Kernel, Opcode, Status, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expecting {
    Element,
    Value,
}

/// One traversal in progress.
#[derive(Debug, Clone)]
pub struct Traversal {
    table: TraversalTable,
    /// Index of the wanted key.
    key: u8,
    expecting: Expecting,
}

impl Kernel for Traversal {
    /// "TRAVERSE" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"TRAVERSE"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let table = TraversalTable::parse(parameters)?;
        let first = grant.check(table.start, table.element.into())?;
        Ok((Self { table, key: 0, expecting: Expecting::Element }, Step::Fetch(first)))
    }

    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        if self.expecting == Expecting::Value {
            return Step::Emit(Emission { offset: 0, length: bytes.len() as u32, version: 0 });
        }
        let (offset, length) = match self.take_element(bytes) {
            Ok(Wanted::Element { offset }) => (offset, self.table.element.into()),
            Ok(Wanted::Value { offset, length }) => {
                self.expecting = Expecting::Value;
                (offset, length)
            }
            Ok(Wanted::Answer { offset, length }) => {
                return Step::Emit(Emission { offset, length, version: 0 });
            }
            Err(status) => return Step::Done(status),
        };
        match grant.check(offset, length) {
            Ok(range) => Step::Fetch(range),
            Err(fault) => Step::Done(fault.into()),
        }
    }
}

/// What an element leads to. Smaller than a [`Step`], which is made once.
enum Wanted {
    /// The next element, at an offset in the region.
    Element { offset: u64 },
    /// A value that lies elsewhere.
    Value { offset: u64, length: u32 },
    /// A part of the element. The runtime refuses one that leaves it.
    Answer { offset: u32, length: u32 },
}

impl Traversal {
    fn take_element(&mut self, element: &[u8]) -> Result<Wanted, Status> {
        let Self { table, key, .. } = self;
        if *key >= table.key_count {
            return table.value_of(element, 0);
        }
        let wanted = *table.keys.get(usize::from(*key)).ok_or(Status::BadParameters)?;
        for row in &table.rows {
            let Some(base) = row.applies(element, wanted, table.order) else { continue };
            match row.action {
                Action::End => return Err(Status::NotFound),
                Action::Emit => return table.value_of(element, base),
                Action::Follow => {}
                Action::FollowNextKey => *key += 1,
            }
            return Ok(Wanted::Element { offset: table.target(row.pointer, element, base)? });
        }
        Err(Status::NotFound)
    }
}

impl TraversalTable {
    /// The offset in the region that a pointer refers to.
    fn target(&self, pointer: Field, element: &[u8], base: u8) -> Result<u64, Status> {
        match self.load(pointer, element, base)? {
            0 => Err(Status::NotFound),
            address => address.checked_sub(self.pointer_base).ok_or(Status::OutOfBounds),
        }
    }

    /// The table was checked against its element size; bytes of another size are no element of it.
    fn load(&self, field: Field, element: &[u8], base: u8) -> Result<u64, Status> {
        field.load(element, base, self.order).ok_or(Status::BadParameters)
    }

    /// The value of an element whose matching key is at word `base`.
    fn value_of(&self, element: &[u8], base: u8) -> Result<Wanted, Status> {
        let length = match self.length {
            Length::Fixed(length) => length,
            Length::Field(field) => {
                u32::try_from(self.load(field, element, base)?).map_err(|_| Status::OutOfBounds)?
            }
        };
        match self.value {
            Value::Inline(field) => {
                let word = u32::from(field.position) + if field.relative { u32::from(base) } else { 0 };
                Ok(Wanted::Answer { offset: word * 4, length })
            }
            Value::Pointer(field) => {
                let offset = self.target(field, element, base)?;
                // An empty value needs no read.
                let answer = Wanted::Answer { offset: 0, length };
                Ok(if length == 0 { answer } else { Wanted::Value { offset, length } })
            }
        }
    }
}

impl Row {
    /// The word of the first key that satisfies the predicate; `None` if the row does not apply.
    fn applies(&self, element: &[u8], key: u64, order: ByteOrder) -> Option<u8> {
        if self.predicate == Predicate::Always {
            return Some(0);
        }
        let mut positions = self.positions;
        while positions != 0 {
            let position = positions.trailing_zeros() as u8;
            positions &= positions - 1;
            let found = self.key(position).load(element, 0, order)?;
            if self.predicate.holds(found, key) {
                return Some(position);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
