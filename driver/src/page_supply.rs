//! Host pages for the device's firmware. The device asks for pages to boot, for pages to initialize, and for
//! more at any time.
//!
//! Pages come from the [`Hal`] in chunks. Each chunk records which of its pages the device holds, and is freed once the
//! device has returned all of them. MANAGE_PAGES has a reserved slot in the command queue and reserved mailboxes, so the
//! driver can serve a page request while another command waits for it.

use crate::command::{CommandError, Lane, Request, Tail};
use crate::dma::Dma;
use crate::executor::{CommandExecutor, CommandOutput};
use crate::hal::{DmaMemory, Hal, HalError};
use crate::trace::TraceEvent;
use bareverbs_prm::command::pages::{ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut};
use bareverbs_prm::mutation::mutated;
use bareverbs_prm::numbering::{CommandOpcode, ManagePagesMode, QueryPagesStage};
use core::fmt;
use zerocopy::FromBytes;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages of the smallest and of the largest chunk.
const CHUNK_PAGES: core::ops::RangeInclusive<u32> = 16..=1024;
/// Maximum number of chunks: 256 MiB if all have the largest size.
const CHUNKS: usize = 64;
/// The limit for reclaiming all pages in command timeouts, however slowly the device returns them.
const RECLAIM_TIMEOUTS: u64 = 6;
/// Maximum number of pages per command: the reserved mailboxes hold no more.
const BATCH: usize = 128;

/// Why pages could not be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageError {
    /// The command failed.
    Command(CommandError),
    /// The HAL has no memory left.
    Memory(HalError),
    /// The device holds as many chunks as the driver can record.
    TooManyChunks {
        /// Pages it holds.
        held: u32,
        /// Pages that it asked for.
        asked: u32,
    },
    /// The device returned a page that the driver never gave it.
    ForeignPage {
        /// The address.
        address: u64,
    },
    /// The device did not return its pages in time.
    NotReturned {
        /// Pages it still holds.
        held: u32,
    },
}

impl From<CommandError> for PageError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Command(error) => write!(f, "{error}"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::TooManyChunks { held, asked } => {
                write!(
                    f,
                    "the device asks for {asked} pages and holds {held} already: the driver cannot record more"
                )
            }
            Self::ForeignPage { address } => {
                write!(f, "the device returned page {address:#x}, which the driver never gave it")
            }
            Self::NotReturned { held } => {
                write!(f, "the device did not return {held} pages; the driver never reuses them")
            }
        }
    }
}

impl core::error::Error for PageError {}

struct Chunk<M> {
    memory: Dma<M>,
    pages: u32,
    given: [u64; *CHUNK_PAGES.end() as usize / 64],
}

impl<M: DmaMemory> Chunk<M> {
    fn allocate<H: Hal<Dma = M>>(hal: &H, pages: u32) -> Result<Self, HalError> {
        let memory = Dma::allocate(hal, pages as usize * PAGE, PAGE)?;
        Ok(Self { memory, pages, given: [0; 16] })
    }

    fn address(&self, page: u32) -> u64 {
        self.memory.iova() + page as u64 * PAGE as u64
    }

    fn take_free(&mut self) -> Option<u64> {
        let word = self.given.iter().position(|&word| word != u64::MAX)?;
        let page = word as u32 * 64 + self.given[word].trailing_ones();
        if page >= self.pages {
            return None;
        }
        self.given[word] |= 1 << (page % 64);
        Some(self.address(page))
    }

    /// Marks a page as returned. Returns whether it is a page of this chunk that the device held.
    fn put_back(&mut self, address: u64) -> bool {
        let offset = address.wrapping_sub(self.memory.iova());
        let page = offset / PAGE as u64;
        if !offset.is_multiple_of(PAGE as u64) || page >= self.pages as u64 {
            return false;
        }
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        let given = self.given[word] & bit != 0;
        self.given[word] &= !bit;
        given || mutated("page_twice")
    }

    fn is_unused(&self) -> bool {
        self.given.iter().all(|&word| word == 0)
    }
}

/// All pages that the device holds.
pub struct PageSupply<M> {
    chunks: heapless::Vec<Chunk<M>, CHUNKS>,
    held: u32,
}

impl<M> Default for PageSupply<M> {
    fn default() -> Self {
        Self { chunks: heapless::Vec::new(), held: 0 }
    }
}

impl<M: DmaMemory> PageSupply<M> {
    /// Number of pages that the device holds.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Asks the device how many pages it needs at `stage`, and gives them.
    pub fn serve_stage<H: Hal<Dma = M>>(
        &mut self,
        executor: &mut CommandExecutor<'_, H>,
        stage: QueryPagesStage,
    ) -> Result<(), PageError> {
        let mut input = QueryPagesIn::new();
        input.set_opcode(CommandOpcode::QueryPages).set_op_mod(stage.raw());
        let output: QueryPagesOut = executor.call(&Request::new(&input), |_| ())?;
        self.move_pages(executor, output.function_id(), output.num_pages() as i32)
    }

    /// Gives `count` pages or, if it is negative, takes pages back. If there is no memory for them, informs
    /// the device.
    pub fn serve_request<H: Hal<Dma = M>>(
        &mut self,
        executor: &mut CommandExecutor<'_, H>,
        function: u16,
        count: i32,
    ) -> Result<(), PageError> {
        let result = self.move_pages(executor, function, count);
        if count > 0 && matches!(result, Err(PageError::Memory(_) | PageError::TooManyChunks { .. })) {
            let mut input = header(ManagePagesMode::CannotGive, function);
            input.set_input_num_entries(0);
            manage(executor, &Request::new(&input), &mut [0; ManagePagesOut::SIZE])?;
        }
        result
    }

    fn move_pages<H: Hal<Dma = M>>(
        &mut self,
        executor: &mut CommandExecutor<'_, H>,
        function: u16,
        count: i32,
    ) -> Result<(), PageError> {
        let mut left = count.unsigned_abs();
        while left > 0 {
            let batch = left.min(BATCH as u32);
            let moved = if count > 0 {
                self.give(executor, function, batch)?
            } else {
                self.take(executor, function, batch)?
            };
            if moved == 0 {
                break;
            }
            left -= moved.min(left);
        }
        Ok(())
    }

    /// Takes all pages back. Gives up if the device returns none for one command timeout, or has not returned
    /// all after six.
    pub fn reclaim<H: Hal<Dma = M>>(
        &mut self,
        executor: &mut CommandExecutor<'_, H>,
    ) -> Result<(), PageError> {
        let mut deadline = executor.hal.now() + executor.timing.timeout;
        let end = executor.hal.now() + executor.timing.timeout.saturating_mul(RECLAIM_TIMEOUTS);
        while self.held > 0 {
            let batch = self.held.min(BATCH as u32);
            let moved = self.take(executor, 0, batch)?;
            let now = executor.hal.now();
            if moved > 0 && now < end {
                deadline = end.min(now + executor.timing.timeout);
            } else if now >= deadline {
                return Err(PageError::NotReturned { held: self.held });
            } else {
                executor.hal.relax(deadline.min(now + executor.timing.poll_interval));
            }
        }
        Ok(())
    }

    /// Leaks all chunks that the device may still use. Returns the number of pages that it holds.
    pub fn leak(&mut self) -> u32 {
        while let Some(chunk) = self.chunks.pop() {
            if !chunk.is_unused() {
                core::mem::forget(chunk);
            }
        }
        core::mem::take(&mut self.held)
    }

    fn give<H: Hal<Dma = M>>(
        &mut self,
        executor: &mut CommandExecutor<'_, H>,
        function: u16,
        count: u32,
    ) -> Result<u32, PageError> {
        let mut list = [0; BATCH];
        let list = &mut list[..(count as usize).min(BATCH)];
        for i in 0..list.len() {
            match self.free_page(executor.hal, count - i as u32) {
                Ok(address) => list[i] = address,
                Err(error) => {
                    self.forget(&list[..i]);
                    return Err(error);
                }
            }
        }
        self.held += list.len() as u32;
        let mut input = header(ManagePagesMode::Give, function);
        input.set_input_num_entries(list.len() as u32);
        let request = Request::with_tail(&input, Tail::Addresses(list));
        if let Err(error) = manage(executor, &request, &mut [0; ManagePagesOut::SIZE]) {
            // A device that refused does not have the pages. A device that did not answer may have them.
            if error.status().is_some() {
                self.held -= list.len() as u32;
                self.forget(list);
            }
            return Err(error.into());
        }
        report(executor, list.len() as i32);
        Ok(list.len() as u32)
    }

    fn take<H: Hal<Dma = M>>(
        &mut self,
        executor: &mut CommandExecutor<'_, H>,
        function: u16,
        count: u32,
    ) -> Result<u32, PageError> {
        let count = count.min(self.held).min(BATCH as u32);
        if count == 0 {
            return Ok(0);
        }
        let mut input = header(ManagePagesMode::TakeBack, function);
        input.set_input_num_entries(count);
        let mut output = [0; ManagePagesOut::PAS_OFFSET + BATCH * 8];
        let output = &mut output[..ManagePagesOut::PAS_OFFSET + count as usize * 8];
        manage(executor, &Request::new(&input), output)?;
        let found = ManagePagesOut::read_from_prefix(output).map_or(0, |(out, _)| out.output_num_entries());
        let list = &output[ManagePagesOut::PAS_OFFSET..];
        let mut moved = 0;
        for address in list.chunks_exact(8).take(found as usize) {
            self.put_back(address.try_into().map_or(0, u64::from_be_bytes))?;
            moved += 1;
        }
        report(executor, -(moved as i32));
        Ok(moved)
    }

    fn free_page<H: Hal<Dma = M>>(&mut self, hal: &H, wanted: u32) -> Result<u64, PageError> {
        if let Some(address) = self.chunks.iter_mut().find_map(Chunk::take_free) {
            return Ok(address);
        }
        let full = PageError::TooManyChunks { held: self.held, asked: wanted };
        if self.chunks.is_full() {
            return Err(full);
        }
        let pages = wanted.max(self.held).clamp(*CHUNK_PAGES.start(), *CHUNK_PAGES.end());
        let mut chunk = Chunk::allocate(hal, pages).map_err(PageError::Memory)?;
        let address = chunk.take_free().ok_or(full)?;
        self.chunks.push(chunk).map_err(|_| full)?;
        Ok(address)
    }

    fn put_back(&mut self, address: u64) -> Result<(), PageError> {
        let index = self.chunks.iter_mut().position(|chunk| chunk.put_back(address));
        let index = index.ok_or(PageError::ForeignPage { address })?;
        self.held = self.held.saturating_sub(1);
        if self.chunks[index].is_unused() {
            drop(self.chunks.swap_remove(index));
        }
        Ok(())
    }

    /// Marks pages that the device does not hold as free.
    fn forget(&mut self, list: &[u64]) {
        for &address in list {
            self.chunks.iter_mut().any(|chunk| chunk.put_back(address));
        }
    }
}

fn header(mode: ManagePagesMode, function: u16) -> ManagePagesIn {
    let mut input = ManagePagesIn::new();
    input.set_opcode(CommandOpcode::ManagePages).set_op_mod(mode.raw()).set_function_id(function);
    input
}

fn manage<H: Hal>(
    executor: &mut CommandExecutor<'_, H>,
    request: &Request<'_>,
    output: &mut [u8],
) -> Result<(), CommandError> {
    let length = output.len();
    executor.execute(request, CommandOutput { buffer: output, length }, Lane::Reserved, |_| ())
}

fn report<H: Hal>(executor: &CommandExecutor<'_, H>, count: i32) {
    if let Some(observer) = executor.observer {
        observer.observe(&TraceEvent::PagesMoved { count });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory::Boxed;

    /// A supply with one chunk, two pages of which the device holds.
    fn supply() -> (PageSupply<Boxed>, [u64; 2]) {
        let mut chunk = Chunk { memory: Dma::new(Boxed::new(16 * PAGE)), pages: 16, given: [0; 16] };
        let given = [chunk.take_free().unwrap(), chunk.take_free().unwrap()];
        let mut supply = PageSupply { held: 2, ..PageSupply::default() };
        assert!(supply.chunks.push(chunk).is_ok());
        (supply, given)
    }

    /// Believing the second return would make the driver think that the device holds nothing, and free memory
    /// that is still in use.
    #[test]
    fn a_page_that_is_returned_twice_is_not_believed() {
        let (mut supply, [first, second]) = supply();
        supply.put_back(first).unwrap();
        assert_eq!(supply.put_back(first), Err(PageError::ForeignPage { address: first }));
        assert_eq!((supply.held(), supply.chunks.len()), (1, 1), "the device still holds one page");
        supply.put_back(second).unwrap();
        assert_eq!((supply.held(), supply.chunks.len()), (0, 0));
    }

    #[test]
    fn addresses_beside_a_page_are_not_believed() {
        let (mut supply, [first, second]) = supply();
        for address in
            [first + 1, first - PAGE as u64, second + PAGE as u64, first + 16 * PAGE as u64, 0, u64::MAX]
        {
            assert_eq!(supply.put_back(address), Err(PageError::ForeignPage { address }));
        }
        assert_eq!(supply.held(), 2);
    }
}
