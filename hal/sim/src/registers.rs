//! Conversion of register accesses, shared by both runners. BAR0 is big-endian and drivers use numbers; the simulated
//! device sees a write as a run of bytes.

/// Implements [`Mmio`](bareverbs_core::hal::Mmio) with the type's own `read_register`, `write_bytes` and
/// `window_length`.
macro_rules! mmio_by_bytes {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> bareverbs_core::hal::Mmio for $type {
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
                self.write_bytes(offset, zerocopy::IntoBytes::as_bytes(block));
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
    use bareverbs_core::hal::Mmio;
    use core::cell::RefCell;

    /// A window that records the last write.
    #[derive(Default)]
    struct LastWrite(RefCell<Vec<u8>>);

    impl LastWrite {
        fn read_register(&self, _offset: usize) -> u32 {
            0
        }

        fn write_bytes(&self, _offset: usize, bytes: &[u8]) {
            self.0.replace(bytes.to_vec());
        }

        fn window_length(&self) -> usize {
            64
        }
    }

    mmio_by_bytes!([] LastWrite);

    #[test]
    fn a_block_keeps_the_order_of_memory() {
        let words: [u64; 8] = core::array::from_fn(|index| index as u64 * 0x0101);
        let window = LastWrite::default();
        window.write_block64(0, &words);
        for (chunk, word) in window.0.take().chunks_exact(8).zip(words) {
            assert_eq!(chunk, word.to_ne_bytes());
        }
    }
}
