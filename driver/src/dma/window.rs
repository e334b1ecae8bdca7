//! Windows: bytes that were checked once, accessed at offsets that the compiler checks.

use bareverbs_prm::field::Field;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Bytes of the largest window; memory that is used through windows must be aligned to it.
pub const BLOCK: usize = 64;

/// `N` bytes of DMA memory, checked once, aligned to `N`. Offsets inside are constants checked by the compiler.
#[derive(Clone, Copy)]
pub struct Window<'a, const N: usize> {
    pub(super) base: NonNull<u8>,
    pub(super) memory: PhantomData<&'a ()>,
}

impl<const N: usize> Window<'_, N> {
    /// Loads the field of a big-endian structure that begins where the window does. `KEY` is that of its descriptor
    /// ([`Field::key`]).
    #[inline(always)]
    pub fn load_field<const KEY: u32>(&self) -> u64 {
        let (offset, size, shift, mask) = const {
            let field = Field::from_key(KEY);
            assert!(field.offset() + field.size() <= N);
            (field.offset(), field.size(), field.shift(), field.mask())
        };
        let number = match size {
            1 => self.byte(offset).load(Ordering::Relaxed).into(),
            2 => u16::from_be(self.half(offset).load(Ordering::Relaxed)).into(),
            4 => u32::from_be(self.dword(offset).load(Ordering::Relaxed)).into(),
            _ => u64::from_be(self.long(offset).load(Ordering::Relaxed)),
        };
        number >> shift & mask
    }

    /// Loads the byte at `O`.
    #[inline(always)]
    pub fn load_u8<const O: usize>(&self) -> u8 {
        const { assert!(O < N) };
        self.byte(O).load(Ordering::Relaxed)
    }

    /// Loads 32 bits at `O` in memory order.
    #[inline(always)]
    pub fn load_raw32<const O: usize>(&self) -> u32 {
        const { assert!(O + 4 <= N && O.is_multiple_of(4)) };
        self.dword(O).load(Ordering::Relaxed)
    }

    /// Loads the big-endian 32-bit number at `O`.
    #[inline(always)]
    pub fn load_be32<const O: usize>(&self) -> u32 {
        u32::from_be(self.load_raw32::<O>())
    }

    /// Stores a big-endian 32-bit number at `O`.
    #[inline(always)]
    pub fn store_be32<const O: usize>(&self, value: u32) {
        self.store_raw32::<O>(value.to_be());
    }

    /// Stores 32 bits at `O` in memory order.
    #[inline(always)]
    pub fn store_raw32<const O: usize>(&self, value: u32) {
        const { assert!(O + 4 <= N && O.is_multiple_of(4)) };
        self.dword(O).store(value, Ordering::Relaxed);
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
        self.long(O)
    }

    /// The byte at `offset`, modulo the length of the window. For a constant the modulo costs nothing, and no
    /// offset leaves the window.
    #[inline(always)]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: the window has `N` bytes, and the masked offset is within it.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset % N)) }
    }

    /// The 16 bits at `offset`, rounded down, modulo the length.
    #[inline(always)]
    fn half(&self, offset: usize) -> &AtomicU16 {
        const { assert!(N.is_multiple_of(2)) };
        // SAFETY: the window is aligned to `N` and has `N` bytes, and the masked offset is aligned and within
        // it.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add((offset % N) & !1).cast()) }
    }

    /// The 32 bits at `offset`, rounded down, modulo the length.
    #[inline(always)]
    fn dword(&self, offset: usize) -> &AtomicU32 {
        const { assert!(N.is_multiple_of(4)) };
        // SAFETY: as in `half`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add((offset % N) & !3).cast()) }
    }

    /// The 64 bits at `offset`, rounded down, modulo the length.
    #[inline(always)]
    fn long(&self, offset: usize) -> &AtomicU64 {
        const { assert!(N.is_multiple_of(8)) };
        // SAFETY: as in `half`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add((offset % N) & !7).cast()) }
    }
}

impl Window<'_, 64> {
    /// Stores the first `K` words of a block, in memory order.
    #[inline(always)]
    pub fn store_first<const K: usize>(&self, words: &[u64; 8]) {
        const { assert!(K <= 8) };
        (0..K).for_each(|index| self.long(index * 8).store(words[index], Ordering::Relaxed));
    }

    /// Stores word number `index` of the block, modulo 8, in memory order.
    #[inline(always)]
    pub fn store_word_at(&self, index: usize, word: u64) {
        self.long(index % 8 * 8).store(word, Ordering::Relaxed);
    }

    /// Stores `bytes` at `offset`, in plain stores of any size: see [the module](super). If they do not fit there, which
    /// callers know, it does nothing.
    #[inline(always)]
    pub(crate) fn store_bytes<const L: usize>(&self, offset: usize, bytes: &[u8; L]) {
        const { assert!(L <= BLOCK) };
        debug_assert!(offset <= BLOCK - L, "{L} bytes at {offset}");
        if offset <= BLOCK - L {
            // SAFETY: the bytes fit into the window, and a byte array needs no alignment. The queue that writes has the
            // block to itself until it rings the doorbell (`Rings`).
            unsafe { self.base.as_ptr().add(offset).cast::<[u8; L]>().write(*bytes) };
        }
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
    pub fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (out, word) in bytes.chunks_exact_mut(8).zip(self.load()) {
            out.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// `N` bytes, checked once, aligned to a word, for loads and stores with a memory ordering.
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
        // SAFETY: word `W` is within the extent; all words are aligned (`Table::row`) and only ever accessed
        // by atomics.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(W * 8).cast()) }
    }
}
