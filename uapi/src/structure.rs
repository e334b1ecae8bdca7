//! Descriptions of the headers' structures, and the macro that declares a structure.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Location of a structure's field.
#[derive(Debug, Clone, Copy)]
pub struct FieldPlace {
    /// Name in the header.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: usize,
    /// Width in bytes.
    pub width: usize,
}

/// Description of a structure.
#[derive(Debug, Clone, Copy)]
pub struct Structure {
    /// Name in the header.
    pub name: &'static str,
    /// Length in bytes.
    pub size: usize,
    /// Its fields.
    pub fields: &'static [FieldPlace],
}

/// Decodes a structure that may be shorter or longer in the caller's version: missing bytes are zero, excess
/// bytes are ignored.
pub fn read_extended<T: FromBytes + FromZeros + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let known = value.as_mut_bytes();
    let length = known.len().min(bytes.len());
    known[..length].copy_from_slice(&bytes[..length]);
    value
}

/// Declares structures of a header in the machine's byte order. A hole between fields is a compile error.
macro_rules! structures {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident = $header_name:literal { $($field:ident: $ty:ty),* $(,)? }
    )*) => {
        $(
            $(#[$meta])*
            #[derive(
                Debug, Clone, Copy,
                zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
            )]
            #[repr(C)]
            pub struct $name {
                $(pub $field: $ty,)*
            }
        )*

        pub(super) const STRUCTURES: &[$crate::structure::Structure] = &[$($crate::structure::Structure {
            name: $header_name,
            size: size_of::<$name>(),
            fields: &[$($crate::structure::FieldPlace {
                name: stringify!($field),
                offset: core::mem::offset_of!($name, $field),
                width: size_of::<$ty>(),
            }),*],
        }),*];
    };
}
