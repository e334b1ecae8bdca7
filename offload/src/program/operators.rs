//! The operators of RFC 9669, once for both interpreters.

/// Hands the computations and conditional jumps to the caller's `dispatch!`: the opcode with a constant on the right, that
/// with a register, and what the two operands become. First come names of the caller's, and then what it adds.
macro_rules! with_operators {
    ($($name:ident),*; $($more:tt)*) => {
        dispatch! {
            $($name),*;
            wide {
                0x07 0x0f => u64::wrapping_add,
                0x17 0x1f => u64::wrapping_sub,
                0x27 0x2f => u64::wrapping_mul,
                0x37 0x3f => |left: u64, right| left.checked_div(right).unwrap_or(0),
                0x47 0x4f => |left, right| left | right,
                0x57 0x5f => |left, right| left & right,
                0x67 0x6f => |left: u64, right| left.wrapping_shl(right as u32),
                0x77 0x7f => |left: u64, right| left.wrapping_shr(right as u32),
                0x87 0x8f => |left: u64, _| left.wrapping_neg(),
                0x97 0x9f => |left: u64, right| left.checked_rem(right).unwrap_or(left),
                0xa7 0xaf => |left, right| left ^ right,
                0xb7 0xbf => |_, right| right,
                0xc7 0xcf => |left, right| (left as i64).wrapping_shr(right as u32) as u64,
            }
            narrow {
                0x04 0x0c => u32::wrapping_add,
                0x14 0x1c => u32::wrapping_sub,
                0x24 0x2c => u32::wrapping_mul,
                0x34 0x3c => |left: u32, right| left.checked_div(right).unwrap_or(0),
                0x44 0x4c => |left, right| left | right,
                0x54 0x5c => |left, right| left & right,
                0x64 0x6c => u32::wrapping_shl,
                0x74 0x7c => u32::wrapping_shr,
                0x84 0x8c => |left: u32, _| left.wrapping_neg(),
                0x94 0x9c => |left: u32, right| left.checked_rem(right).unwrap_or(left),
                0xa4 0xac => |left, right| left ^ right,
                0xb4 0xbc => |_, right| right,
                0xc4 0xcc => |left, right| (left as i32).wrapping_shr(right) as u32,
            }
            jump {
                0x15 0x1d => |left: u64, right: u64| left == right,
                0x25 0x2d => |left: u64, right: u64| left > right,
                0x35 0x3d => |left: u64, right: u64| left >= right,
                0x45 0x4d => |left: u64, right: u64| left & right != 0,
                0x55 0x5d => |left: u64, right: u64| left != right,
                0x65 0x6d => |left: u64, right: u64| left as i64 > right as i64,
                0x75 0x7d => |left: u64, right: u64| left as i64 >= right as i64,
                0xa5 0xad => |left: u64, right: u64| left < right,
                0xb5 0xbd => |left: u64, right: u64| left <= right,
                0xc5 0xcd => |left: u64, right: u64| (left as i64) < right as i64,
                0xd5 0xdd => |left: u64, right: u64| left as i64 <= right as i64,
            }
            narrow_jump {
                0x16 0x1e => |left: u32, right: u32| left == right,
                0x26 0x2e => |left: u32, right: u32| left > right,
                0x36 0x3e => |left: u32, right: u32| left >= right,
                0x46 0x4e => |left: u32, right: u32| left & right != 0,
                0x56 0x5e => |left: u32, right: u32| left != right,
                0x66 0x6e => |left: u32, right: u32| left as i32 > right as i32,
                0x76 0x7e => |left: u32, right: u32| left as i32 >= right as i32,
                0xa6 0xae => |left: u32, right: u32| left < right,
                0xb6 0xbe => |left: u32, right: u32| left <= right,
                0xc6 0xce => |left: u32, right: u32| (left as i32) < right as i32,
                0xd6 0xde => |left: u32, right: u32| left as i32 <= right as i32,
            }
            $($more)*
        }
    };
}
pub(super) use with_operators;
