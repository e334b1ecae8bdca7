//! Mailbox blocks: 512 bytes of data and a trailer each, chained by address (PRM, command mailboxes).
//!
//! The pool is fixed. A chain takes adjacent blocks, so walking it never depends on pointers read back from
//! memory that the device can write. The first blocks are reserved for MANAGE_PAGES, which must never wait
//! for another command.

use super::entry::{INLINE, Request};
use super::error::CommandFailure;
use super::signature::{is_intact, signature};
use crate::dma::Dma;
use crate::hal::{DmaMemory, Hal, HalError};
use bareverbs_prm::command::entry::CommandMailbox;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of data in a block.
pub(crate) const BLOCK_DATA: usize = 512;
/// Distance between blocks in bytes. Blocks are aligned to it, because a next pointer has no low bits.
const STRIDE: usize = 1024;
/// The part of a block that the control signature covers; the signature is at its end.
const CONTROL: core::ops::Range<usize> = 512..575;
/// Maximum number of blocks in a pool.
pub(crate) const MAX_BLOCKS: usize = 1024;
/// Blocks reserved for MANAGE_PAGES: two in each direction.
pub(crate) const RESERVED: usize = 4;

/// Adjacent blocks of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MailboxChain {
    start: usize,
    count: usize,
}

/// All blocks.
pub(crate) struct MailboxPool<M> {
    dma: Dma<M>,
    blocks: usize,
    used: [u64; MAX_BLOCKS / 64],
}

/// Blocks for `length` bytes of input or output, besides the bytes in the entry.
pub(crate) const fn blocks_for(length: usize) -> usize {
    length.saturating_sub(INLINE).div_ceil(BLOCK_DATA)
}

impl<M: DmaMemory> MailboxPool<M> {
    pub(crate) fn allocate<H: Hal<Dma = M>>(hal: &H, blocks: usize) -> Result<Self, HalError> {
        let blocks = blocks.clamp(RESERVED + 1, MAX_BLOCKS);
        let dma = Dma::allocate(hal, blocks * STRIDE, 4096)?;
        Ok(Self { dma, blocks, used: [0; MAX_BLOCKS / 64] })
    }

    pub(crate) fn iova(&self, chain: MailboxChain) -> u64 {
        if chain.count == 0 { 0 } else { self.dma.iova() + (chain.start * STRIDE) as u64 }
    }
}

impl<M> MailboxPool<M> {
    /// Takes the first run of `count` free blocks, either from the reserved ones or from the others.
    pub(crate) fn take(&mut self, count: usize, reserved: bool) -> Result<MailboxChain, CommandFailure> {
        if count == 0 {
            return Ok(MailboxChain::default());
        }
        let range = if reserved { 0..RESERVED } else { RESERVED..self.blocks };
        let failure = CommandFailure::NoMailbox { needed: count as u32, pool: range.len() as u32 };
        let mut start = range.start;
        while start + count <= range.end {
            match (start..start + count).rev().find(|&block| self.is_used(block)) {
                Some(block) => start = block + 1,
                None => {
                    let chain = MailboxChain { start, count };
                    self.mark(chain, true);
                    return Ok(chain);
                }
            }
        }
        Err(failure)
    }

    /// Returns a chain to the pool.
    pub(crate) fn give_back(&mut self, chain: MailboxChain) {
        self.mark(chain, false);
    }

    fn is_used(&self, block: usize) -> bool {
        self.used[block / 64] >> (block % 64) & 1 != 0
    }

    fn mark(&mut self, chain: MailboxChain, used: bool) {
        for block in chain.start..chain.start + chain.count {
            let bit = 1 << (block % 64);
            if used { self.used[block / 64] |= bit } else { self.used[block / 64] &= !bit }
        }
    }
}

impl<M: DmaMemory> MailboxPool<M> {
    /// Writes the part of `request` that the entry does not carry; with `None`, writes empty blocks for an
    /// output.
    pub(crate) fn write(
        &self,
        chain: MailboxChain,
        request: Option<&Request<'_>>,
        token: u8,
    ) -> Result<(), CommandFailure> {
        for number in 0..chain.count {
            let at = (chain.start + number) * STRIDE;
            let mut block = CommandMailbox::new();
            if let Some(request) = request {
                request.fill(INLINE + number * BLOCK_DATA, &mut block.as_mut_bytes()[..BLOCK_DATA]);
            }
            if number + 1 < chain.count {
                let next = self.dma.iova() + (at + STRIDE) as u64;
                block.set_next_pointer_63_32((next >> 32) as u32).set_next_pointer_31_10(next as u32 >> 10);
            }
            block.set_block_number(number as u32).set_token(token);
            sign(&mut block);
            self.dma.copy_in(at, block.as_bytes()).map_err(CommandFailure::Internal)?;
        }
        Ok(())
    }

    /// Reads `out.len()` bytes of output from byte [`INLINE`] on. Checks the trailers if `checked` is set.
    pub(crate) fn read(
        &self,
        chain: MailboxChain,
        out: &mut [u8],
        token: u8,
        checked: bool,
    ) -> Result<(), CommandFailure> {
        for (number, part) in out.chunks_mut(BLOCK_DATA).take(chain.count).enumerate() {
            let at = (chain.start + number) * STRIDE;
            if checked {
                self.check(at, token)?;
            }
            self.dma.copy_out(at, part).map_err(CommandFailure::Internal)?;
        }
        Ok(())
    }

    fn check(&self, at: usize, token: u8) -> Result<(), CommandFailure> {
        let mut bytes = [0; CommandMailbox::SIZE];
        self.dma.copy_out(at, &mut bytes).map_err(CommandFailure::Internal)?;
        let block = CommandMailbox::read_from_bytes(&bytes).unwrap_or_default();
        if block.token() != token {
            return Err(CommandFailure::WrongToken { expected: token, found: block.token() });
        }
        if is_intact(&bytes) && is_intact(&bytes[CONTROL]) {
            Ok(())
        } else {
            Err(CommandFailure::WrongSignature)
        }
    }
}

fn sign(block: &mut CommandMailbox) {
    let control = signature(&block.as_bytes()[CONTROL]);
    block.set_ctrl_signature(control);
    let whole = signature(block.as_bytes());
    block.set_signature(whole);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory::Boxed;

    fn pool(blocks: usize) -> MailboxPool<Boxed> {
        MailboxPool { dma: Dma::new(Boxed::new(blocks * STRIDE)), blocks, used: [0; MAX_BLOCKS / 64] }
    }

    #[test]
    fn chains_are_runs_and_the_reserve_stays() {
        let mut pool = pool(100);
        let all = pool.take(96, false).unwrap();
        assert_eq!(pool.take(1, false), Err(CommandFailure::NoMailbox { needed: 1, pool: 96 }));
        let kept = pool.take(4, true).unwrap();
        assert_eq!((all.start, kept.start), (4, 0));
        pool.give_back(all);
        let (a, b) = (pool.take(60, false).unwrap(), pool.take(30, false).unwrap());
        assert_eq!((a.start, b.start), (4, 64));
        pool.give_back(a);
        assert_eq!(pool.take(61, false), Err(CommandFailure::NoMailbox { needed: 61, pool: 96 }));
        assert_eq!(pool.take(10, false).unwrap().start, 4);
    }

    #[test]
    fn blocks_are_chained_numbered_and_signed() {
        let mut pool = pool(8);
        let chain = pool.take(3, false).unwrap();
        pool.write(chain, None, 0x5a).unwrap();
        let mut bytes = [0; CommandMailbox::SIZE];
        pool.dma.copy_out(5 * STRIDE, &mut bytes).unwrap();
        let block = CommandMailbox::read_from_bytes(&bytes).unwrap();
        let next = (block.next_pointer_63_32() as u64) << 32 | (block.next_pointer_31_10() as u64) << 10;
        assert_eq!(
            (block.block_number(), block.token(), next),
            (1, 0x5a, pool.dma.iova() + 6 * STRIDE as u64)
        );
        let mut out = [0; 1100];
        assert_eq!(pool.read(chain, &mut out, 0x5a, true), Ok(()));
        assert!(matches!(pool.read(chain, &mut out, 0x5b, true), Err(CommandFailure::WrongToken { .. })));
        pool.dma.copy_in(5 * STRIDE + 3, &[1]).unwrap();
        assert_eq!(pool.read(chain, &mut out, 0x5a, true), Err(CommandFailure::WrongSignature));
        assert_eq!(pool.read(chain, &mut out, 0x5a, false), Ok(()));
    }
}
