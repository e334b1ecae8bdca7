//! Registers of BAR0 are big-endian; drivers and applications speak in numbers. The conversion, once for all backends to
//! which a write is a run of bytes.

/// The bytes of a BlueFlame block, in memory order.
pub(crate) fn block_bytes(block: &[u64; 8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(block) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Implements [`Mmio`](bareverbs::hal::Mmio) by a type's own `read_register`, `write_bytes` and `window_length`.
macro_rules! mmio_by_bytes {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> bareverbs::hal::Mmio for $type {
            fn read32(&self, offset: usize) -> u32 {
                self.read_register(offset)
            }

            fn write32(&self, offset: usize, value: u32) {
                self.write_bytes(offset, &value.to_be_bytes());
            }

            fn write64(&self, offset: usize, value: u64) {
                self.write_bytes(offset, &value.to_be_bytes());
            }

            fn write_block64(&self, offset: usize, block: &[u64; 8]) {
                self.write_bytes(offset, &$crate::registers::block_bytes(block));
            }

            fn len(&self) -> usize {
                self.window_length()
            }
        }
    };
}

pub(crate) use mmio_by_bytes;

#[cfg(test)]
mod tests {
    use super::block_bytes;

    #[test]
    fn a_block_keeps_the_order_of_memory() {
        let words: [u64; 8] = core::array::from_fn(|index| index as u64 * 0x0101);
        let bytes = block_bytes(&words);
        for (chunk, word) in bytes.chunks_exact(8).zip(words) {
            assert_eq!(chunk, word.to_ne_bytes());
        }
    }
}
