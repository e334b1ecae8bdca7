//! Windows: bytes that were checked once, with offsets that the compiler checks.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// `N` bytes of DMA memory, checked once, aligned to `N`. Offsets inside are constants checked by the compiler.
#[derive(Clone, Copy)]
pub struct Window<'a, const N: usize> {
    pub(super) base: NonNull<u8>,
    pub(super) memory: PhantomData<&'a ()>,
}

impl<const N: usize> Window<'_, N> {
    /// Loads the byte at `O`.
    #[inline(always)]
    pub fn load_u8<const O: usize>(&self) -> u8 {
        const { assert!(O < N) };
        // SAFETY: the window has `N` bytes; `O` is inside.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(O)) }.load(Ordering::Relaxed)
    }

    /// Loads the big-endian 16-bit number at `O`.
    #[inline(always)]
    pub fn load_be16<const O: usize>(&self) -> u16 {
        const { assert!(O + 2 <= N && O.is_multiple_of(2)) };
        // SAFETY: the window is aligned to `N` and has `N` bytes; `O` is aligned and inside.
        u16::from_be(unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(O).cast()) }.load(Ordering::Relaxed))
    }

    /// Loads 32 bits at `O` in memory order.
    #[inline(always)]
    pub fn load_raw32<const O: usize>(&self) -> u32 {
        const { assert!(O + 4 <= N && O.is_multiple_of(4)) };
        // SAFETY: the window is aligned to `N` and has `N` bytes; `O` is aligned and inside.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(O).cast()) }.load(Ordering::Relaxed)
    }

    /// Loads the big-endian 32-bit number at `O`.
    #[inline(always)]
    pub fn load_be32<const O: usize>(&self) -> u32 {
        u32::from_be(self.load_raw32::<O>())
    }

    /// Stores a big-endian 32-bit number at `O`.
    #[inline(always)]
    pub fn store_be32<const O: usize>(&self, value: u32) {
        const { assert!(O + 4 <= N && O.is_multiple_of(4)) };
        // SAFETY: as in `load_raw32`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(O).cast()) }
            .store(value.to_be(), Ordering::Relaxed);
    }

    /// Loads the big-endian 64-bit number at `O`.
    #[inline(always)]
    pub fn load_be64<const O: usize>(&self) -> u64 {
        u64::from_be(self.load_word::<O>())
    }

    /// Stores a big-endian 64-bit number at `O`.
    #[inline(always)]
    pub fn store_be64<const O: usize>(&self, value: u64) {
        self.store_word::<O>(value.to_be());
    }

    /// Loads 64 bits at `O` in memory order.
    #[inline(always)]
    pub fn load_word<const O: usize>(&self) -> u64 {
        self.word::<O>().load(Ordering::Relaxed)
    }

    /// Stores 64 bits at `O` in memory order.
    #[inline(always)]
    pub fn store_word<const O: usize>(&self, value: u64) {
        self.word::<O>().store(value, Ordering::Relaxed);
    }

    /// The 64 bits at `O` in memory order.
    #[inline(always)]
    pub(crate) fn word<const O: usize>(&self) -> &AtomicU64 {
        const { assert!(O + 8 <= N && O.is_multiple_of(8)) };
        // SAFETY: the window is aligned to `N` and has `N` bytes; `O` is aligned and inside.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(O).cast()) }
    }
}

impl Window<'_, 64> {
    /// Stores the first `K` words of a block, in memory order.
    #[inline(always)]
    pub fn store_first<const K: usize>(&self, words: &[u64; 8]) {
        const { assert!(K <= 8) };
        let put = |index: usize| {
            // SAFETY: the window is aligned to 64 and has 64 bytes; `index` is below `K`, which is at most 8.
            unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(index * 8).cast()) }
                .store(words[index], Ordering::Relaxed)
        };
        (0..K).for_each(put);
    }

    /// Stores word number `index` of the block, modulo 8, in memory order.
    #[inline(always)]
    pub fn store_word_at(&self, index: usize, word: u64) {
        // SAFETY: the window is aligned to 64 and has 64 bytes; the number is below 8.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(index % 8 * 8).cast()) }
            .store(word, Ordering::Relaxed)
    }

    /// Loads a whole block, eight words in memory order.
    #[inline(always)]
    pub fn load(&self) -> [u64; 8] {
        [
            self.load_word::<0>(),
            self.load_word::<8>(),
            self.load_word::<16>(),
            self.load_word::<24>(),
            self.load_word::<32>(),
            self.load_word::<40>(),
            self.load_word::<48>(),
            self.load_word::<56>(),
        ]
    }

    /// Copies the block out as bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (out, word) in bytes.chunks_exact_mut(8).zip(self.load()) {
            out.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// `N` bytes, checked once, aligned to a word, for loads and stores that are ordered.
#[derive(Clone, Copy)]
pub struct Extent<'a, const N: usize> {
    pub(super) base: NonNull<u8>,
    pub(super) memory: PhantomData<&'a ()>,
}

impl<const N: usize> Extent<'_, N> {
    /// Word `W`.
    #[inline(always)]
    pub fn word<const W: usize>(&self) -> &AtomicU64 {
        const { assert!(W < N / 8) };
        // SAFETY: word `W` is inside; all are aligned (`Dma::extent`) and only ever accessed by atomics.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(W * 8).cast()) }
    }
}
