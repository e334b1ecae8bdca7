//! Memory of a walk: a slot for each request that may be outstanding, with guard bytes around and between the pieces that the
//! request may touch.

use super::plan::{GUARD, MAX_PIECES, SLOT};
use crate::node::Handle;
use bareverbs_core::fast_region::FastRegion;
use bareverbs_core::memory_region::{MemoryRegion, MemorySlice};

/// The content of memory where nothing was written.
const POISON: u8 = 0xa5;
/// Bytes between the pieces of a request.
const GAP: usize = 16;
/// Most bytes of a message.
pub const LONGEST: usize = SLOT - 2 * GUARD;
/// Bytes of a slot with room for the gaps between pieces.
const SPAN: usize = SLOT + MAX_PIECES * GAP;

/// Memory that a processor can access.
pub trait Bytes {
    /// Writes `bytes` at `offset`; the range must be inside.
    fn put(&self, offset: usize, bytes: &[u8]);
    /// Reads from `offset`; the range must be inside.
    fn get(&self, offset: usize, bytes: &mut [u8]);
}

impl Bytes for MemoryRegion<Handle> {
    fn put(&self, offset: usize, bytes: &[u8]) {
        self.copy_in(offset, bytes).expect("a slot is inside its region");
    }
    fn get(&self, offset: usize, bytes: &mut [u8]) {
        self.copy_out(offset, bytes).expect("a slot is inside its region");
    }
}

impl Bytes for FastRegion<Handle> {
    fn put(&self, offset: usize, bytes: &[u8]) {
        self.copy_in(offset, bytes).expect("a slot is inside its region");
    }
    fn get(&self, offset: usize, bytes: &mut [u8]) {
        self.copy_out(offset, bytes).expect("a slot is inside its region");
    }
}

/// The three areas of a region. Each has the same number of slots.
#[derive(Debug, Clone, Copy)]
pub enum Area {
    /// Data of this side's requests.
    Own = 0,
    /// Where the peer's WRITEs go and its READs come from.
    Target = 1,
    /// Buffers of receives.
    Receive = 2,
}

/// Where the slots of a region are.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Slots of an area.
    pub slots: usize,
}

impl Layout {
    /// Bytes of `areas` areas.
    pub const fn bytes(self, areas: usize) -> usize {
        areas * self.slots * SPAN
    }

    /// The slot of this number, cut into pieces.
    pub fn slot(self, area: Area, number: usize, pieces: &[usize]) -> Slot {
        let start = (area as usize * self.slots + number) * SPAN;
        let mut at = start + GUARD;
        let mut place = |&length: &usize| {
            let place = (at, length);
            at += length + GAP;
            place
        };
        Slot { start, places: pieces.iter().map(&mut place).collect() }
    }
}

/// What the pieces may hold after the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// What was there before.
    Untouched,
    /// Anything: part of a message may have been written before the rest was lost.
    Anything,
}

/// A slot and the pieces of it that a request may touch: offsets and lengths.
#[derive(Debug, Clone)]
pub struct Slot {
    start: usize,
    places: Vec<(usize, usize)>,
}

impl Slot {
    /// The pieces as a device sees them.
    pub fn slices(&self, memory: &MemoryRegion<Handle>) -> Vec<MemorySlice> {
        let slice = |&(at, length): &(usize, usize)| memory.slice(at, length);
        self.places.iter().map(slice).collect::<Result<_, _>>().expect("a slot is inside its region")
    }

    /// Where the first piece begins.
    pub fn offset(&self) -> usize {
        self.start + GUARD
    }

    /// Poisons the slot and writes `data` to its pieces.
    pub fn prepare(&self, memory: &impl Bytes, data: &[u8]) {
        memory.put(self.start, &self.image(data));
    }

    /// What the pieces hold.
    pub fn read(&self, memory: &impl Bytes) -> Vec<u8> {
        let mut bytes = vec![0; self.places.iter().map(|&(_, length)| length).sum()];
        let mut rest = bytes.as_mut_slice();
        for &(at, length) in &self.places {
            let (piece, behind) = rest.split_at_mut(length);
            memory.get(at, piece);
            rest = behind;
        }
        bytes
    }

    /// Checks the whole slot, guards and gaps included: `data` must be at the front of the pieces.
    #[track_caller]
    pub fn check(&self, memory: &impl Bytes, data: &[u8], rest: Rest, what: &str) {
        let mut found = vec![0; SPAN];
        memory.get(self.start, &mut found);
        let mut wanted = data.to_vec();
        if rest == Rest::Anything {
            wanted.extend(self.read(memory).split_off(data.len()));
        }
        let wanted = self.image(&wanted);
        if found != wanted {
            let differs = (0..SPAN).find(|&at| found[at] != wanted[at]);
            let at = differs.expect("both are a slot long");
            panic!("{what}: byte {at} of the slot is {:#04x} and should be {:#04x}", found[at], wanted[at]);
        }
    }

    /// The expected content of the slot: poison, and `data` spread over the pieces.
    fn image(&self, data: &[u8]) -> Vec<u8> {
        let mut image = vec![POISON; SPAN];
        let mut data = data;
        for &(at, length) in &self.places {
            let (head, rest) = data.split_at(length.min(data.len()));
            image[at - self.start..at - self.start + head.len()].copy_from_slice(head);
            data = rest;
        }
        image
    }
}
