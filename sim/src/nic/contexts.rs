//! Numbered objects: slabs whose index is the number in commands, WQEs and packets.

use std::collections::VecDeque;

/// How many freed numbers stay unused, so that a stale number names no object for a while.
const QUARANTINE: usize = 16;

/// Objects of one kind. A look-up indexes once; iteration is in numerical order.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    base: u32,
    /// Numbers have this many bits in commands and packets.
    bits: u32,
    entries: Vec<Option<T>>,
    free: VecDeque<u32>,
    live: u32,
}

impl<T> Slab<T> {
    /// An empty slab. The first number is `base`, and numbers have `bits` bits.
    pub(crate) const fn new(base: u32, bits: u32) -> Self {
        Self { base, bits, entries: Vec::new(), free: VecDeque::new(), live: 0 }
    }

    /// Number that the next object gets, if there are fewer than `limit`.
    pub(crate) fn next_number(&self, limit: u64) -> Option<u32> {
        let limit = limit.min((1u64 << self.bits).saturating_sub(self.base.into()));
        if u64::from(self.live) >= limit {
            return None;
        }
        let fresh = self.entries.len() as u64;
        if self.free.len() > QUARANTINE || fresh >= limit {
            return self.free.front().copied();
        }
        u32::try_from(u64::from(self.base) + fresh).ok()
    }

    /// Stores an object under a number that [`Self::next_number`] returned.
    pub(crate) fn insert(&mut self, number: u32, object: T) {
        if self.free.front() == Some(&number) {
            self.free.pop_front();
        }
        let at = number.wrapping_sub(self.base) as usize;
        if at == self.entries.len() {
            self.entries.push(None);
        }
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = Some(object);
            self.live += 1;
        }
    }

    /// The object with a number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number.wrapping_sub(self.base) as usize)?.as_ref()
    }

    /// The object with a number, mutably.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number.wrapping_sub(self.base) as usize)?.as_mut()
    }

    /// Removes an object. Its number stays unused for a while.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let object = self.entries.get_mut(number.wrapping_sub(self.base) as usize)?.take()?;
        self.free.push_back(number);
        self.live -= 1;
        Some(object)
    }

    /// How many objects there are.
    pub(crate) const fn len(&self) -> usize {
        self.live as usize
    }

    /// Numbers and objects in numerical order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let base = self.base;
        self.entries.iter().enumerate().filter_map(move |(i, e)| Some((base + i as u32, e.as_ref()?)))
    }

    /// Numbers and objects in numerical order, mutably.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let base = self.base;
        self.entries.iter_mut().enumerate().filter_map(move |(i, e)| Some((base + i as u32, e.as_mut()?)))
    }

    /// Removes all objects.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.free.clear();
        self.live = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rest_and_limits_hold() {
        let mut slab = Slab::new(0x40, 24);
        for i in 0..3 {
            let number = slab.next_number(3).unwrap();
            assert_eq!(number, 0x40 + i);
            slab.insert(number, i);
        }
        assert_eq!(slab.next_number(3), None);
        assert_eq!(slab.remove(0x41), Some(1));
        assert_eq!(slab.remove(0x41), None);
        assert_eq!(slab.get(0x41), None);
        assert_eq!(slab.get(0x3f), None);
        assert_eq!(slab.next_number(3), Some(0x41), "at the limit a quarantined number is reused");
        assert_eq!(slab.next_number(100), Some(0x43), "otherwise a fresh one");
        assert_eq!(Slab::<()>::new(0xff, 8).next_number(9), Some(0xff));
        assert_eq!(Slab::<()>::new(0x100, 8).next_number(9), None, "a number that does not fit is not used");
        assert_eq!(slab.iter().map(|(n, _)| n).collect::<Vec<_>>(), [0x40, 0x42]);
    }
}
