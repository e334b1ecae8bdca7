//! The parameters of a traversal: where it begins, what an element looks like, and what to do
//! depending on its contents.
//!
//! The parameter table of StRoM (Sidler et al., EuroSys 2020, table 2), with four rows where StRoM has one, and with an action
//! of its own for each row. The predicates keep StRoM's numbers. 160 bytes; numbers are big-endian:
//!
//! ```text
//!  0  start 8                                          32  4 rows of 16
//!  8  pointer base 8                                   96  8 keys of 8
//! 16  element length 2 | key count 1 | flags 1
//! 20  fixed length 4
//! 24  value 4 | length 4
//! row:    0  positions 8 | predicate 1 | action 1 | key shift 1 | key bits 1 | pointer 4
//! field:  0  position 1 | relative 1 | shift 1 | bits 1
//! flags:  bit 0 = big-endian elements, bit 1 = the value is in the element, bit 2 = its length is in the element
//! ```

use crate::kernel::Status;
use crate::kernels::field::{ByteOrder, Field, FieldBytes, Predicate};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Rows of a table.
pub const ROWS: usize = 4;
/// Keys of a table.
pub const KEYS: usize = 8;
/// Most bytes of an element: one bit of [`Row::positions`] for each 4-byte word.
pub const MAX_ELEMENT: u16 = 256;
/// Bytes of the parameters.
pub const PARAMETERS: usize = size_of::<TableBytes>();

/// What to do if a row applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// End the walk: the key is not there.
    End,
    /// Go to the element that [`Row::pointer`] points to.
    Follow,
    /// Like `Follow`, and look for the next key there. After the last key, emit the element reached.
    FollowNextKey,
    /// Answer with the value.
    Emit,
}

/// One rule. The first row that applies decides; if none does, the walk ends with [`Status::NotFound`].
///
/// ```
/// use bareverbs_offload::kernels::field::{Field, Predicate};
/// use bareverbs_offload::kernels::traversal::{Action, Row};
///
/// // Ends at the key at word 0; else follows the pointer at word 2.
/// let rows = [
///     Row::when(Predicate::Equal, 1 << 0, Action::Emit),
///     Row::otherwise(Action::Follow).pointer(Field::word(2)),
/// ];
/// assert_eq!(rows[1].predicate, Predicate::Always);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Where keys begin: bit n stands for the word at byte 4n. The lowest position that satisfies the predicate counts.
    pub positions: u64,
    /// The lowest bit of the key in its word.
    pub key_shift: u8,
    /// Number of bits of the key, 1 to 64.
    pub key_bits: u8,
    /// The predicate that the key must satisfy.
    pub predicate: Predicate,
    /// What to do then.
    pub action: Action,
    /// The pointer to follow; ignored for [`Action::End`] and [`Action::Emit`].
    pub pointer: Field,
}

/// Where the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Where this field points.
    Pointer(Field),
    /// In the element, from this 4-byte word on (relative or not); it is not read again.
    Inline(Field),
}

/// How long the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// This many bytes.
    Fixed(u32),
    /// The value of this field.
    Field(Field),
}

/// The parameters of a traversal.
///
/// ```
/// use bareverbs_offload::kernels::field::{ByteOrder, Field, Predicate};
/// use bareverbs_offload::kernels::traversal::{Action, Length, Row, TraversalTable, Value};
///
/// // A list whose elements are key, pointer to the next one, value: finds the value of key 42.
/// let equal = Row::when(Predicate::Equal, 1, Action::Emit);
/// let next = Row::otherwise(Action::Follow).pointer(Field::word(2));
/// let table = TraversalTable {
///     start: 64,
///     pointer_base: 0x7f12_0000_0000,
///     element: 24,
///     order: ByteOrder::LittleEndian,
///     value: Value::Inline(Field::word(4)),
///     length: Length::Fixed(8),
///     rows: [equal, next, Row::END, Row::END],
///     keys: [42, 0, 0, 0, 0, 0, 0, 0],
///     key_count: 1,
/// };
/// assert_eq!(TraversalTable::parse(&table.encode()), Ok(table));
/// assert!(!TraversalTable { element: 8, ..table }.fits(), "pointer and value leave the element");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraversalTable {
    /// Offset of the first element in the region.
    pub start: u64,
    /// What is subtracted from a pointer to get an offset in the region: the address at which the owner of the structure
    /// has the region mapped. A pointer of zero points to nothing.
    pub pointer_base: u64,
    /// Bytes of an element: a multiple of 4, at most [`MAX_ELEMENT`].
    pub element: u16,
    /// The order of bytes in the words of elements.
    pub order: ByteOrder,
    /// Where the answer is.
    pub value: Value,
    /// How long it is.
    pub length: Length,
    /// The rules; unused ones are [`Row::END`].
    pub rows: [Row; ROWS],
    /// The wanted key, or one key for each [`Action::FollowNextKey`] of a path.
    pub keys: [u64; KEYS],
    /// How many keys there are, at least one.
    pub key_count: u8,
}

impl Row {
    /// Ends the walk.
    pub const END: Self = Self {
        positions: 0,
        key_shift: 0,
        key_bits: 64,
        predicate: Predicate::Always,
        action: Action::End,
        pointer: Field::word(0),
    };

    /// `action`, if a key of 8 bytes at one of `positions` satisfies `predicate`.
    pub const fn when(predicate: Predicate, positions: u64, action: Action) -> Self {
        Self { positions, predicate, action, ..Self::END }
    }

    /// `action` for each element that no earlier row applies to.
    pub const fn otherwise(action: Action) -> Self {
        Self { action, ..Self::END }
    }

    /// Follows this pointer.
    pub const fn pointer(self, pointer: Field) -> Self {
        Self { pointer, ..self }
    }

    /// The key, from the position on at which it is.
    pub(super) const fn key(&self) -> Field {
        Field { position: 0, relative: true, shift: self.key_shift, bits: self.key_bits }
    }

    /// The last word at which a key of this row may begin.
    fn last_position(&self) -> u32 {
        if self.predicate == Predicate::Always { 0 } else { self.positions.checked_ilog2().unwrap_or(0) }
    }

    fn fits(&self, table: &TraversalTable) -> bool {
        let last = self.last_position();
        let key = self.predicate == Predicate::Always || self.key().fits(table.element, last);
        let action = match self.action {
            Action::End => true,
            Action::Follow | Action::FollowNextKey => self.pointer.fits(table.element, last),
            Action::Emit => table.value_fits(last),
        };
        key && action
    }
}

impl TraversalTable {
    fn value_fits(&self, base: u32) -> bool {
        let value = match self.value {
            Value::Pointer(field) => field.fits(self.element, base),
            Value::Inline(field) => {
                let begin = u32::from(field.position) + if field.relative { base } else { 0 };
                begin * 4 <= u32::from(self.element)
            }
        };
        value && !matches!(self.length, Length::Field(field) if !field.fits(self.element, base))
    }

    /// Whether every word that a row names lies in the element. A table that does not fit is refused before anything is read.
    pub fn fits(&self) -> bool {
        let element = (4..=MAX_ELEMENT).contains(&self.element) && self.element.is_multiple_of(4);
        let keys = (1..=KEYS).contains(&usize::from(self.key_count));
        let paths = self.rows.iter().any(|row| row.action == Action::FollowNextKey);
        element && keys && self.rows.iter().all(|row| row.fits(self)) && (!paths || self.value_fits(0))
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RowBytes {
    positions: U64,
    predicate: u8,
    action: u8,
    key_shift: u8,
    key_bits: u8,
    pointer: FieldBytes,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TableBytes {
    start: U64,
    pointer_base: U64,
    element: U16,
    key_count: u8,
    flags: u8,
    fixed: U32,
    value: FieldBytes,
    length: FieldBytes,
    rows: [RowBytes; ROWS],
    keys: [U64; KEYS],
}

const BIG_ENDIAN: u8 = 1;
const INLINE_VALUE: u8 = 2;
const LENGTH_IN_ELEMENT: u8 = 4;
const KNOWN: u8 = BIG_ENDIAN | INLINE_VALUE | LENGTH_IN_ELEMENT;

impl TraversalTable {
    /// Decodes parameters. Refuses anything but a table whose words lie in its elements.
    pub fn parse(bytes: &[u8]) -> Result<Self, Status> {
        let raw = TableBytes::ref_from_bytes(bytes).map_err(|_| Status::BadParameters)?;
        if raw.flags & !KNOWN != 0 {
            return Err(Status::BadParameters);
        }
        let mut rows = [Row::END; ROWS];
        for (row, raw) in rows.iter_mut().zip(&raw.rows) {
            *row = parse_row(raw)?;
        }
        let (value, length) = (Field::parse(raw.value)?, Field::parse(raw.length)?);
        let has = |flag| raw.flags & flag != 0;
        let table = Self {
            start: raw.start.get(),
            pointer_base: raw.pointer_base.get(),
            element: raw.element.get(),
            order: if has(BIG_ENDIAN) { ByteOrder::BigEndian } else { ByteOrder::LittleEndian },
            value: if has(INLINE_VALUE) { Value::Inline(value) } else { Value::Pointer(value) },
            length: if has(LENGTH_IN_ELEMENT) {
                Length::Field(length)
            } else {
                Length::Fixed(raw.fixed.get())
            },
            rows,
            keys: raw.keys.map(U64::get),
            key_count: raw.key_count,
        };
        if table.fits() { Ok(table) } else { Err(Status::BadParameters) }
    }

    /// The bytes of the parameters.
    pub fn encode(&self) -> [u8; PARAMETERS] {
        let (value, inline) = match self.value {
            Value::Pointer(field) => (field, 0),
            Value::Inline(field) => (field, INLINE_VALUE),
        };
        let (fixed, length, in_element) = match self.length {
            Length::Fixed(bytes) => (bytes, Field::word(0), 0),
            Length::Field(field) => (0, field, LENGTH_IN_ELEMENT),
        };
        let order = if self.order == ByteOrder::BigEndian { BIG_ENDIAN } else { 0 };
        zerocopy::transmute!(TableBytes {
            start: self.start.into(),
            pointer_base: self.pointer_base.into(),
            element: self.element.into(),
            key_count: self.key_count,
            flags: order | inline | in_element,
            fixed: fixed.into(),
            value: FieldBytes::from(value),
            length: FieldBytes::from(length),
            rows: self.rows.map(row_bytes),
            keys: self.keys.map(U64::from),
        })
    }
}

const ACTIONS: [Action; 4] = [Action::End, Action::Follow, Action::FollowNextKey, Action::Emit];

fn parse_row(raw: &RowBytes) -> Result<Row, Status> {
    let predicate = Predicate::from_number(raw.predicate);
    let action = ACTIONS.get(usize::from(raw.action)).copied();
    let (Some(predicate), Some(action)) = (predicate, action) else { return Err(Status::BadParameters) };
    Ok(Row {
        positions: raw.positions.get(),
        key_shift: raw.key_shift,
        key_bits: raw.key_bits,
        predicate,
        action,
        pointer: Field::parse(raw.pointer)?,
    })
}

fn row_bytes(row: Row) -> RowBytes {
    RowBytes {
        positions: row.positions.into(),
        predicate: row.predicate as u8,
        action: row.action as u8,
        key_shift: row.key_shift,
        key_bits: row.key_bits,
        pointer: FieldBytes::from(row.pointer),
    }
}
