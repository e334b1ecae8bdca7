//! Frames in flight: a pool of buffers that are used again and again, so that a frame costs no allocation.

use super::fault::Fate;
use crate::wire::FrameBuffer;

/// Names a frame of a [`FramePool`] until it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameId(u32);

/// A frame and what is known of it without reading its bytes.
#[derive(Debug, Default)]
pub struct Frame {
    /// Ethernet frame without preamble and frame check sequence, or InfiniBand packet with both CRCs.
    pub bytes: FrameBuffer,
    /// Invariant CRC as the sender wrote it; stands for the payload in the event digest.
    pub icrc: u32,
    /// What happened to it on the present link.
    pub fate: Fate,
    /// Whether this is its first link, as opposed to one behind a switch.
    pub fresh: bool,
    /// Number of the node that sent it; nothing for what a switch says itself.
    pub sender: Option<u32>,
    /// What a capture is to say of it, if one is written.
    pub comment: Option<Box<str>>,
}

/// Buffers of frames. The one given back last is handed out first: it is warm.
#[derive(Debug, Default)]
pub struct FramePool {
    frames: Vec<Frame>,
    free: Vec<FrameId>,
}

impl FramePool {
    /// Hands out an empty frame.
    pub fn take(&mut self) -> FrameId {
        self.free.pop().unwrap_or_else(|| self.grow())
    }

    /// Hands out a frame of these bytes that has not been on any link.
    pub fn insert(&mut self, bytes: &[u8], icrc: u32) -> FrameId {
        let id = self.take();
        let frame = self.get_mut(id);
        frame.bytes.replace(bytes);
        (frame.icrc, frame.fresh, frame.sender) = (icrc, true, None);
        frame.comment = None;
        id
    }

    /// Forgets what a capture was to say of frames. A frame that is given back keeps it, so that giving back costs nothing; a node that
    /// sends while a capture is written sets it.
    pub fn clear_comments(&mut self) {
        self.frames.iter_mut().for_each(|frame| frame.comment = None);
    }

    /// Hands out a copy of `original`.
    pub fn copy(&mut self, original: FrameId) -> FrameId {
        let id = self.take();
        if let Ok([from, to]) = self.frames.get_disjoint_mut([original.0 as usize, id.0 as usize]) {
            to.bytes.copy_from(&from.bytes);
            (to.icrc, to.fate, to.fresh, to.sender) = (from.icrc, from.fate, from.fresh, from.sender);
            to.comment.clone_from(&from.comment);
        }
        id
    }

    /// The frame called `id`.
    pub fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// The frame called `id`, to change it.
    pub fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[id.0 as usize]
    }

    /// Takes the frame back.
    pub fn give_back(&mut self, id: FrameId) {
        let frame = self.get_mut(id);
        frame.bytes.clear();
        (frame.icrc, frame.fate, frame.fresh) = (0, Fate::Delivered, false);
        self.free.push(id);
    }

    /// Frames that are handed out.
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
