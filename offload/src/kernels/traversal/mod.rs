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

mod fast_path;
mod table;

pub use table::{Action, KEYS, Length, MAX_ELEMENT, PARAMETERS, ROWS, Row, TraversalTable, Value};

use super::field::{ByteOrder, Field, Load, Outcomes, Predicate};
use crate::grant::{Checked, Grant};
use crate::kernel::{Emission, Kernel, Opcode, Status, Step};
use fast_path::FastPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expecting {
    Element,
    /// The element that the last key of a path leads to.
    Last,
    Value,
}

/// One traversal in progress.
#[derive(Debug, Clone)]
pub struct Traversal {
    rules: [Rule; ROWS],
    /// The wanted key.
    key: u64,
    pointer_base: u64,
    element: u32,
    expecting: Expecting,
    /// Keys that were found.
    found: u8,
    key_count: u8,
    order: ByteOrder,
    value: Value,
    length: Length,
    keys: [u64; KEYS],
}

/// A row as it is applied to each element: its fields are worked out when the walk begins.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// Where keys begin: bit n stands for the word at byte 4n.
    positions: u64,
    key: Load,
    pointer: Load,
    wanted: Outcomes,
    action: Action,
    fast_path: FastPath,
}

impl Kernel for Traversal {
    /// "TRAVERSE" in ASCII.
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"TRAVERSE"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let table = TraversalTable::parse(parameters)?;
        let first = grant.check(table.start, table.element.into())?;
        Ok((Self::of(&table), Step::Fetch(first)))
    }

    #[inline]
    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        match self.next_element(bytes, grant) {
            Some(element) => Step::Fetch(element),
            None => self.advance(bytes, grant),
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
    fn of(table: &TraversalTable) -> Self {
        let TraversalTable { pointer_base, element, order, value, length, keys, key_count, .. } = *table;
        let mut rules = [Rule::END; ROWS];
        for (rule, row) in rules.iter_mut().zip(&table.rows) {
            *rule = Rule::of(row, order);
            // No later row is ever applied.
            if row.predicate == Predicate::Always {
                break;
            }
        }
        Self {
            rules,
            key: keys[0],
            pointer_base,
            element: element.into(),
            expecting: Expecting::Element,
            found: 0,
            key_count,
            order,
            value,
            length,
            keys,
        }
    }

    /// The next element, if the fast path of each rule up to the one that applies decides it. Otherwise, for whatever reason,
    /// nothing has changed, and [`Self::advance`] decides.
    #[inline(always)]
    fn next_element(&self, element: &[u8], grant: &Grant) -> Option<Checked> {
        for Rule { wanted, fast_path, .. } in &self.rules {
            if fast_path.applies(*wanted, element, self.key)? {
                let offset = fast_path.pointer(element)?.checked_sub(self.pointer_base)?;
                return grant.check(offset, self.element).ok();
            }
        }
        None
    }

    /// The general path: applies any rule to any bytes that were read.
    #[inline(never)]
    fn advance(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        let wanted = match self.expecting {
            Expecting::Element => self.take_element(bytes),
            Expecting::Last => self.value_of(bytes, 0),
            Expecting::Value => {
                return Step::Emit(Emission { offset: 0, length: bytes.len() as u32, version: 0 });
            }
        };
        let (offset, length) = match wanted {
            Ok(Wanted::Element { offset }) => (offset, self.element),
            Ok(Wanted::Value { offset, length }) => {
                self.set_expecting(Expecting::Value);
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

    /// Waits for something else than an element, which has no fast path.
    fn set_expecting(&mut self, expecting: Expecting) {
        self.expecting = expecting;
        self.rules[0].fast_path = FastPath::NONE;
    }

    fn take_element(&mut self, element: &[u8]) -> Result<Wanted, Status> {
        for rule in &self.rules {
            let Some(key) = rule.applies(element, self.key) else { continue };
            let pointer = rule.pointer;
            if rule.action != Action::Follow {
                match rule.action {
                    Action::End => return Err(Status::NotFound),
                    Action::Emit => return self.value_of(element, key),
                    Action::Follow | Action::FollowNextKey => self.take_next_key(),
                }
            }
            return Ok(Wanted::Element { offset: self.target(pointer, element, key)? });
        }
        Err(Status::NotFound)
    }

    /// The next key becomes the wanted one; after the last, the element that is read next has the value.
    fn take_next_key(&mut self) {
        self.found += 1;
        match self.keys.get(usize::from(self.found)) {
            Some(next) if self.found < self.key_count => self.key = *next,
            _ => self.set_expecting(Expecting::Last),
        }
    }

    /// The offset in the region that a pointer refers to.
    fn target(&self, pointer: Load, element: &[u8], key: u16) -> Result<u64, Status> {
        // The table was checked against its element size; bytes of another size are no element of it.
        match pointer.value(element, key).ok_or(Status::BadParameters)? {
            0 => Err(Status::NotFound),
            address => address.checked_sub(self.pointer_base).ok_or(Status::OutOfBounds),
        }
    }

    /// The value of an element whose matching key is at byte `key`.
    fn value_of(&self, element: &[u8], key: u16) -> Result<Wanted, Status> {
        let length = match self.length {
            Length::Fixed(length) => length,
            Length::Field(field) => {
                let length = Load::new(field, self.order).value(element, key).ok_or(Status::BadParameters)?;
                u32::try_from(length).map_err(|_| Status::OutOfBounds)?
            }
        };
        match self.value {
            Value::Inline(Field { position, relative, .. }) => {
                let from_key = if relative { u32::from(key) } else { 0 };
                Ok(Wanted::Answer { offset: u32::from(position) * 4 + from_key, length })
            }
            Value::Pointer(field) => {
                let offset = self.target(Load::new(field, self.order), element, key)?;
                // An empty value needs no read.
                let answer = Wanted::Answer { offset: 0, length };
                Ok(if length == 0 { answer } else { Wanted::Value { offset, length } })
            }
        }
    }
}

impl Rule {
    const END: Self = Self::of(&Row::END, ByteOrder::LittleEndian);

    const fn of(row: &Row, order: ByteOrder) -> Self {
        let Row { positions, action, .. } = *row;
        let (key, pointer) = (Load::new(row.key(), order), Load::new(row.pointer, order));
        let fast_path = FastPath::of(row, order);
        Self { positions, key, pointer, wanted: Outcomes::of(row.predicate), action, fast_path }
    }

    /// The byte of the first key that satisfies the predicate; `None` if the row does not apply.
    #[inline(always)]
    fn applies(&self, element: &[u8], key: u64) -> Option<u16> {
        if self.wanted == Outcomes::ALL {
            return Some(0);
        }
        let mut positions = self.positions;
        while positions != 0 {
            let at = positions.trailing_zeros() as u16 * 4;
            positions &= positions - 1;
            if self.wanted.have(self.key.value_at(element, at.into())?, key) {
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
