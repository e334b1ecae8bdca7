//! Unforgiving memory: processor and device have separate views of a region.
//!
//! The processor stores through a raw pointer, which cannot be intercepted. Stores are found by comparing its bytes
//! with their last known values.

use super::block::Block;

/// What the processor reads where the device has written but no barrier has followed.
pub const STALE: u8 = 0xa5;

const PAGE: usize = 4096;
const WORD: usize = 8;

/// The two views of one region.
#[derive(Debug)]
pub(super) struct Views {
    /// The device's view.
    device: Vec<u8>,
    /// The processor's bytes when last compared.
    known: Vec<u8>,
    /// Ranges that the device wrote and the processor cannot see yet.
    unseen: Vec<(usize, usize)>,
    scratch: Vec<u8>,
}

impl Views {
    /// Starts both views with the bytes of the block.
    pub(super) fn new(block: &Block) -> Self {
        let mut device = vec![0; block.len()];
        block.read(0, &mut device);
        Self { known: device.clone(), device, unseen: Vec::new(), scratch: Vec::new() }
    }

    pub(super) fn device_read(&self, offset: usize, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.device[offset..offset + buffer.len()]);
    }

    /// A DMA write: its last byte is visible at once, the others read as stale.
    pub(super) fn device_write(&mut self, block: &Block, offset: usize, bytes: &[u8]) {
        let Some((last, body)) = bytes.split_last() else { return };
        self.device[offset..offset + bytes.len()].copy_from_slice(bytes);
        let seen = &mut self.known[offset..offset + bytes.len()];
        seen.fill(STALE);
        seen[body.len()] = *last;
        block.write(offset, seen);
        if !body.is_empty() {
            self.unseen.push((offset, body.len()));
        }
    }

    /// Makes every store of the processor visible to the device. Returns the number of bytes.
    pub(super) fn publish(&mut self, block: &Block) -> u64 {
        (0..block.len()).step_by(PAGE).map(|start| self.publish_range(block, start, PAGE)).sum()
    }

    /// Makes the device's writes visible to the processor, except where the processor has stored since. Returns the
    /// number of bytes.
    pub(super) fn reveal(&mut self, block: &Block) -> u64 {
        let mut bytes = 0;
        for (start, length) in core::mem::take(&mut self.unseen) {
            bytes += self.reveal_range(block, start, length);
        }
        bytes
    }

    /// Makes the first stored word at or after `from` (modulo the length) visible to the device early.
    pub(super) fn leak_word(&mut self, block: &Block, from: usize) -> bool {
        let words = block.len().div_ceil(WORD);
        let first = from % words;
        let first_page = first * WORD / PAGE * PAGE;
        let pages = (first_page..block.len()).step_by(PAGE).chain((0..first_page).step_by(PAGE));
        for page in pages {
            if let Some(word) = self.first_stored_word(block, page) {
                return self.publish_range(block, word, WORD) > 0;
            }
        }
        false
    }

    fn first_stored_word(&mut self, block: &Block, page: usize) -> Option<usize> {
        let end = (page + PAGE).min(block.len());
        self.look(block, page, end);
        let known = &self.known[page..end];
        // Most pages have no stores, so the bytes need not be compared one by one.
        if self.scratch == known {
            return None;
        }
        let differs = self.scratch.iter().zip(known).position(|(now, before)| now != before)?;
        Some(page + differs / WORD * WORD)
    }

    fn publish_range(&mut self, block: &Block, start: usize, length: usize) -> u64 {
        let end = (start + length).min(block.len());
        self.look(block, start, end);
        let (known, device) = (&mut self.known[start..end], &mut self.device[start..end]);
        if self.scratch == known {
            return 0;
        }
        let mut bytes = 0;
        for ((&now, known), device) in self.scratch.iter().zip(known).zip(device) {
            if now != *known {
                (*known, *device) = (now, now);
                bytes += 1;
            }
        }
        bytes
    }

    fn reveal_range(&mut self, block: &Block, start: usize, length: usize) -> u64 {
        let end = start + length;
        self.look(block, start, end);
        let (known, device) = (&mut self.known[start..end], &self.device[start..end]);
        let mut bytes = 0;
        for ((now, known), &device) in self.scratch.iter_mut().zip(known).zip(device) {
            if *now == *known && *now != device {
                (*now, *known) = (device, device);
                bytes += 1;
            }
        }
        block.write(start, &self.scratch);
        bytes
    }

    fn look(&mut self, block: &Block, start: usize, end: usize) {
        self.scratch.resize(end - start, 0);
        block.read(start, &mut self.scratch);
    }
}
