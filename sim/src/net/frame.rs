//! Frames in flight: a pool of recycled buffers, so that sending a frame allocates nothing.

use super::fault::Fate;
use crate::wire::FrameBuffer;

/// Identifies a frame of a [`FramePool`] until it is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameId(u32);

/// A frame, with metadata that saves reading its bytes.
#[derive(Debug, Default)]
pub struct Frame {
    /// Ethernet frame without preamble and frame check sequence, or InfiniBand packet with both CRCs.
    pub bytes: FrameBuffer,
    /// Invariant CRC as computed by the sender. It represents the payload in the event digest.
    pub icrc: u32,
    /// Its fate on the current link.
    pub fate: Fate,
    /// Whether this is its first link, rather than one behind a switch.
    pub fresh: bool,
    /// Number of the sending node; `None` for a frame that a switch originated.
    pub sender: Option<u32>,
    /// Comment for a capture, if one is being written.
    pub comment: Option<Box<str>>,
}

/// Frame buffers. Last in, first out, because the most recent buffer is still in the cache.
#[derive(Debug, Default)]
pub struct FramePool {
    frames: Vec<Frame>,
    free: Vec<FrameId>,
}

impl FramePool {
    /// Takes an empty frame.
    pub fn take(&mut self) -> FrameId {
        self.free.pop().unwrap_or_else(|| self.grow())
    }

    /// Takes a frame and fills it with these bytes. It has not been on any link.
    pub fn insert(&mut self, bytes: &[u8], icrc: u32) -> FrameId {
        let id = self.take();
        let frame = self.get_mut(id);
        frame.bytes.replace(bytes);
        (frame.icrc, frame.fresh, frame.sender) = (icrc, true, None);
        frame.comment = None;
        id
    }

    /// Removes all capture comments. Returning a frame keeps its comment, to keep that cheap; while a capture is
    /// written, every sending node sets it anew.
    pub fn clear_comments(&mut self) {
        self.frames.iter_mut().for_each(|frame| frame.comment = None);
    }

    /// Takes a frame and copies `original` into it.
    pub fn copy(&mut self, original: FrameId) -> FrameId {
        let id = self.take();
        if let Ok([from, to]) = self.frames.get_disjoint_mut([original.0 as usize, id.0 as usize]) {
            to.bytes.copy_from(&from.bytes);
            (to.icrc, to.fate, to.fresh, to.sender) = (from.icrc, from.fate, from.fresh, from.sender);
            to.comment.clone_from(&from.comment);
        }
        id
    }

    /// The frame `id`.
    pub fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// The frame `id`, mutable.
    pub fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[id.0 as usize]
    }

    /// Returns a frame to the pool.
    #[inline]
    pub fn give_back(&mut self, id: FrameId) {
        let frame = self.get_mut(id);
        frame.bytes.clear();
        (frame.icrc, frame.fate, frame.fresh) = (0, Fate::Delivered, false);
        self.free.push(id);
    }

    /// Number of frames in use.
    pub fn in_use(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    fn grow(&mut self) -> FrameId {
        let id = FrameId(self.frames.len() as u32);
        self.frames.push(Frame::default());
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let mut pool = FramePool::default();
        let first = pool.take();
        pool.get_mut(first).bytes.replace(&[1; 4096]);
        let copy = pool.copy(first);
        assert_eq!(*pool.get(copy).bytes, [1; 4096]);
        assert_eq!(pool.in_use(), 2);
        pool.give_back(first);
        let again = pool.take();
        assert_eq!(again, first);
        assert!(pool.get(again).bytes.is_empty());
        assert_eq!(pool.get_mut(again).bytes.capacity(), 4096, "the buffer was thrown away");
        assert_eq!(pool.in_use(), 2);
    }
}
