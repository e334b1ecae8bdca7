//! Descriptions of structures and fields, under the names of the reference tables.

/// The description of a structure.
#[derive(Debug, Clone, Copy)]
pub struct LayoutInfo {
    /// Name in this crate.
    pub name: &'static str,
    /// Name in the reference tables.
    pub prm_name: &'static str,
    /// Length of the fixed part in dwords.
    pub dwords: usize,
    /// Fields in the order of declaration.
    pub fields: &'static [FieldInfo],
}

/// How the bytes of a field are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// It is a number, most significant byte first.
    BigEndian,
    /// It is a run of bytes, or a structure: there is nothing to swap.
    Memory,
}

/// The description of a field.
#[derive(Debug, Clone, Copy)]
pub struct FieldInfo {
    /// Path in the reference tables, below the structure.
    pub path: &'static str,
    /// Bits from the start of the structure; bit 0 is the most significant bit of byte 0.
    pub bit_offset: u32,
    /// Width in bits.
    pub bit_width: u32,
    /// How its bytes are ordered.
    pub order: ByteOrder,
    /// The structure at this place, if it is not a number.
    pub part: Option<&'static LayoutInfo>,
    /// Whether it is another meaning of bits that other fields declare.
    pub is_alternative: bool,
}
