//! The macro that declares device structures in the coordinates of the Programmer's Reference Manual.
//!
//! A structure is an array of big-endian dwords. A field is `(dword, high bit, low bit)`, a 64-bit quantity, a run of
//! bytes, or another structure. Fields that overlap, leave the structure or are wider than their Rust type are compile
//! errors. Each structure also carries a description of itself ([`LayoutInfo`]) under the names of the reference
//! tables, which is what the oracle test walks, and the position of each field as constants ([`Field`]): `Name::FIELDS.field`.

#[doc(hidden)]
pub mod describe;
mod descriptor;
mod info;
#[doc(hidden)]
pub mod show;

pub use descriptor::{BitRange, Field};
pub use info::{ByteOrder, FieldInfo, LayoutInfo};

use zerocopy::byteorder::big_endian::U32;

/// A value that fits a bit field of at most 32 bits.
pub trait FieldValue: Copy {
    /// Width in bits that every value of the type fits.
    const WIDTH: u32;
    /// The raw bits, right-aligned.
    fn to_field(self) -> u32;
    /// The value of raw bits, right-aligned. Never fails: unknown numbers are values.
    fn from_field(raw: u32) -> Self;
}

macro_rules! unsigned_field {
    ($($ty:ty),*) => {$(
        impl FieldValue for $ty {
            const WIDTH: u32 = <$ty>::BITS;
            #[inline(always)]
            fn to_field(self) -> u32 {
                self as u32
            }
            #[inline(always)]
            fn from_field(raw: u32) -> Self {
                raw as $ty
            }
        }
    )*};
}
unsigned_field!(u8, u16, u32);

impl FieldValue for bool {
    const WIDTH: u32 = 1;
    #[inline(always)]
    fn to_field(self) -> u32 {
        self as u32
    }
    #[inline(always)]
    fn from_field(raw: u32) -> Self {
        raw & 1 != 0
    }
}

/// A structure declared with [`layout!`](crate::layout).
pub trait Layout {
    /// Its description under the names of the reference tables.
    const INFO: LayoutInfo;
    /// Its length in bytes.
    const SIZE: usize;
}

/// Checks at compile time that fields stay inside a structure of `N` dwords and do not overlap.
///
/// # Panics
/// At compile time, with the rule that was broken.
#[doc(hidden)]
pub const fn check_layout<const N: usize>(fields: &[FieldInfo]) {
    let mut used = [0u32; N];
    let mut i = 0;
    while i < fields.len() {
        let (start, width) = (fields[i].bit_offset, fields[i].bit_width);
        assert!(width > 0, "a field has no bits");
        assert!((start + width) as usize <= N * 32, "a field leaves its structure");
        let mut at = start;
        while at < start + width && !fields[i].is_alternative {
            let room = 32 - at % 32;
            let left = start + width - at;
            let take = if left < room { left } else { room };
            let mask = (u32::MAX >> (32 - take)) << (room - take);
            assert!(used[(at / 32) as usize] & mask == 0, "two fields overlap");
            used[(at / 32) as usize] |= mask;
            at += take;
        }
        i += 1;
    }
}

/// Reads bits `hi:lo` of a dword.
#[doc(hidden)]
#[inline(always)]
pub fn get_bits<T: FieldValue>(dword: &U32, hi: u32, lo: u32) -> T {
    T::from_field(dword.get() >> lo & u32::MAX >> (31 - (hi - lo)))
}

/// Writes bits `hi:lo` of a dword. Debug builds refuse a value that does not fit; release builds cut it, so that a
/// neighbour is never touched.
#[doc(hidden)]
#[inline(always)]
pub fn set_bits<T: FieldValue>(dword: &mut U32, hi: u32, lo: u32, value: T) {
    let mask = u32::MAX >> (31 - (hi - lo));
    let raw = value.to_field();
    debug_assert!(raw & !mask == 0, "value {raw:#x} does not fit bits {hi}:{lo}");
    dword.set(dword.get() & !(mask << lo) | (raw & mask) << lo);
}

/// Declares a device structure. One line a field:
///
/// * `bits get / set: Type = D[hi:lo], "path";` at most 32 bits of dword `D`
/// * `wide get / set: u64 = D, "path";` dwords `D` and `D + 1`, most significant first
/// * `bytes get / set: N = D, "path";` `N` bytes from dword `D`, in memory order
/// * `part get / get_mut: Struct = D, "path";` another structure from dword `D`
/// * `or get / set: Type = D[hi:lo], "path";` like `bits`, but another meaning of bits that have one already (a union): only
///   this kind may overlap others, and `Debug` leaves it out
#[macro_export]
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $name:ident, $prm:literal, $dwords:literal;
        $(
            $(#[$field_meta:meta])*
            $kind:ident $get:ident / $set:ident : $ty:tt = $dw:literal $([$hi:literal : $lo:literal])?, $path:literal;
        )*
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, PartialEq, Eq,
            ::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::KnownLayout, ::zerocopy::Immutable,
            ::zerocopy::Unaligned,
        )]
        #[repr(transparent)]
        pub struct $name([::zerocopy::byteorder::big_endian::U32; $dwords]);

        const _: () = $crate::field::check_layout::<$dwords>(<$name as $crate::field::Layout>::INFO.fields);

        impl $crate::field::Layout for $name {
            const SIZE: usize = $dwords * 4;
            const INFO: $crate::field::LayoutInfo = $crate::field::LayoutInfo {
                name: stringify!($name),
                prm_name: $prm,
                dwords: $dwords,
                fields: &[$($crate::field::describe::$kind::<$ty>($path, $dw $(, $hi, $lo)?)),*],
            };
        }

        const _: () = {
            /// The position of each field.
            pub struct Fields {
                $(
                    #[doc = concat!("Where `", stringify!($get), "` stands.")]
                    pub $get: $crate::field::Field,
                )*
            }

            impl $name {
                /// The position of each field, under the name of its getter.
                pub const FIELDS: Fields = {
                    #[allow(unused_mut, unused_variables, reason = "a structure may have no field")]
                    let mut rest = <$name as $crate::field::Layout>::INFO.fields;
                    Fields { $($get: $crate::field::Field::first_of(&mut rest),)* }
                };
            }
        };

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl core::fmt::Debug for $name {
            /// Prints the fields that are not zero, in hexadecimal.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                #[allow(unused_mut, reason = "a structure may have no field")]
                let mut s = f.debug_struct(stringify!($name));
                $($crate::field::show::$kind(&mut s, stringify!($get), self.$get());)*
                s.finish()
            }
        }

        impl $name {
            /// Length in bytes.
            pub const SIZE: usize = $dwords * 4;
            /// All bits zero.
            pub const fn new() -> Self {
                Self([::zerocopy::byteorder::big_endian::U32::ZERO; $dwords])
            }
            /// The dwords, most significant bit first.
            pub const fn dwords(&self) -> &[::zerocopy::byteorder::big_endian::U32; $dwords] {
                &self.0
            }
            $($crate::layout_field!($(#[$field_meta])* $kind $get / $set : $ty = $dw $([$hi:$lo])?);)*
        }
    };
}

/// Accessors of one field; see [`layout!`](crate::layout).
#[doc(hidden)]
#[macro_export]
macro_rules! layout_field {
    ($(#[$meta:meta])* bits $get:ident / $set:ident : $ty:tt = $dw:literal [$hi:literal : $lo:literal]) => {
        $(#[$meta])*
        #[doc = concat!("Bits ", $hi, ":", $lo, " of dword ", $dw, ".")]
        #[inline(always)]
        pub fn $get(&self) -> $ty {
            $crate::field::get_bits(&self.0[$dw], $hi, $lo)
        }
        #[doc = concat!("Sets bits ", $hi, ":", $lo, " of dword ", $dw, ".")]
        #[inline(always)]
        pub fn $set(&mut self, value: $ty) -> &mut Self {
            $crate::field::set_bits(&mut self.0[$dw], $hi, $lo, value);
            self
        }
    };
    ($(#[$meta:meta])* or $($field:tt)*) => {
        $crate::layout_field!($(#[$meta])* bits $($field)*);
    };
    ($(#[$meta:meta])* wide $get:ident / $set:ident : u64 = $dw:literal) => {
        $(#[$meta])*
        #[doc = concat!("64 bits from dword ", $dw, ".")]
        #[inline(always)]
        pub fn $get(&self) -> u64 {
            (self.0[$dw].get() as u64) << 32 | self.0[$dw + 1].get() as u64
        }
        #[doc = concat!("Sets 64 bits from dword ", $dw, ".")]
        #[inline(always)]
        pub fn $set(&mut self, value: u64) -> &mut Self {
            self.0[$dw].set((value >> 32) as u32);
            self.0[$dw + 1].set(value as u32);
            self
        }
    };
    ($(#[$meta:meta])* bytes $get:ident / $set:ident : $len:literal = $dw:literal) => {
        $(#[$meta])*
        #[doc = concat!($len, " bytes from dword ", $dw, ", in memory order.")]
        #[inline]
        pub fn $get(&self) -> [u8; $len] {
            let mut bytes = [0; $len];
            bytes.copy_from_slice(&::zerocopy::IntoBytes::as_bytes(self)[$dw * 4..$dw * 4 + $len]);
            bytes
        }
        #[doc = concat!("Sets ", $len, " bytes from dword ", $dw, ", in memory order.")]
        #[inline]
        pub fn $set(&mut self, value: [u8; $len]) -> &mut Self {
            ::zerocopy::IntoBytes::as_mut_bytes(self)[$dw * 4..$dw * 4 + $len].copy_from_slice(&value);
            self
        }
    };
    ($(#[$meta:meta])* part $get:ident / $set:ident : $ty:tt = $dw:literal) => {
        $(#[$meta])*
        #[doc = concat!("The [`", stringify!($ty), "`] from dword ", $dw, ".")]
        #[inline]
        pub fn $get(&self) -> &$ty {
            let dwords: &[_; $ty::SIZE / 4] = self.0[$dw..].first_chunk().unwrap();
            ::zerocopy::transmute_ref!(dwords)
        }
        #[doc = concat!("The [`", stringify!($ty), "`] from dword ", $dw, ", to be changed.")]
        #[inline]
        pub fn $set(&mut self) -> &mut $ty {
            let dwords: &mut [_; $ty::SIZE / 4] = self.0[$dw..].first_chunk_mut().unwrap();
            ::zerocopy::transmute_mut!(dwords)
        }
    };
}

#[cfg(test)]
#[allow(dead_code, reason = "a layout has more accessors than a test asks")]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    layout! {
        /// Inner.
        pub struct Inner, "inner", 2;
        bits low / set_low: u8 = 0[4:0], "low";
        or lowest / set_lowest: u8 = 0[1:0], "lowest";
        bits flag / set_flag: bool = 1[31:31], "flag";
    }
    layout! {
        /// Outer.
        pub struct Outer, "outer", 6;
        bits opcode / set_opcode: u16 = 0[31:16], "opcode";
        wide address / set_address: u64 = 1, "address";
        part inner / inner_mut: Inner = 3, "inner";
        bytes tail / set_tail: 4 = 5, "tail";
    }

    #[test]
    fn bytes_are_big_endian() {
        let mut s = Outer::new();
        s.set_opcode(0x104).set_address(0x1122_3344_5566_7788).set_tail([1, 2, 3, 4]);
        s.inner_mut().set_low(0x1f).set_flag(true);
        let expected = [
            0x01, 0x04, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0, 0, 0x1f, 0x80, 0, 0, 0,
            1, 2, 3, 4,
        ];
        assert_eq!(s.as_bytes(), expected);
        assert_eq!((s.opcode(), s.inner().low(), s.inner().flag()), (0x104, 0x1f, true));
        assert_eq!(Outer::INFO.fields[2].part.map(|p| p.prm_name), Some("inner"));
    }

    #[test]
    fn an_alternative_is_another_meaning_of_the_same_bits() {
        let mut s = Inner::new();
        s.set_low(0x1f).set_lowest(0);
        assert_eq!((s.low(), s.lowest()), (0x1c, 0));
        assert_eq!(Inner::FIELDS.lowest.mask(), 3);
        assert!(!Inner::INFO.fields[0].is_alternative && Inner::INFO.fields[1].is_alternative);
    }

    #[test]
    #[should_panic(expected = "two fields overlap")]
    fn other_fields_that_overlap_are_refused() {
        let whole =
            FieldInfo { bit_offset: 0, bit_width: 32, is_alternative: false, ..Inner::INFO.fields[0] };
        check_layout::<2>(&[whole, Inner::INFO.fields[0]]);
    }

    #[test]
    #[should_panic(expected = "leaves its structure")]
    fn an_alternative_outside_its_structure_is_refused() {
        check_layout::<1>(&[FieldInfo { bit_offset: 32, ..Inner::INFO.fields[1] }]);
    }

    #[test]
    #[should_panic(expected = "does not fit bits 4:0")]
    fn a_value_that_does_not_fit_is_refused() {
        Inner::new().set_low(0x20);
    }
}
