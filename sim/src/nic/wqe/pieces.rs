//! The local buffer of a WQE, piece by piece.

use crate::nic::mkey::HostRange;

/// A piece of the local buffer of a WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Checked memory.
    Memory(HostRange),
    /// Bytes in the send queue itself: ring offset and length. Software may not change them before the
    /// completion.
    Inline { offset: u32, length: u32 },
}

impl Piece {
    pub(crate) const fn length(&self) -> u64 {
        match self {
            Self::Memory(range) => range.length(),
            Self::Inline { length, .. } => *length as u64,
        }
    }
}

/// The local buffer of a WQE. The first piece is stored in place, since most buffers have only one; the
/// others are in a vector.
#[derive(Debug, Default)]
pub(crate) struct PieceList {
    first: Option<Piece>,
    others: Vec<Piece>,
    length: u64,
}

impl PieceList {
    pub(crate) fn push(&mut self, piece: Piece) {
        match &self.first {
            None => self.first = Some(piece),
            Some(_) => self.others.push(piece),
        }
        self.length = self.length.saturating_add(piece.length());
    }

    pub(crate) fn clear(&mut self) {
        self.first = None;
        self.others.clear();
        self.length = 0;
    }

    /// Bytes of all pieces.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// The range, if the list consists of exactly one range of checked memory.
    #[inline]
    pub(crate) fn only_range(&self) -> Option<&HostRange> {
        match &self.first {
            Some(Piece::Memory(range)) if self.others.is_empty() => Some(range),
            _ => None,
        }
    }

    /// The pieces that cover `length` bytes from `offset` on, each with the offset and the byte count within
    /// it.
    #[inline]
    pub(crate) fn cover(
        &self,
        mut offset: u64,
        mut length: usize,
    ) -> impl Iterator<Item = (&Piece, u64, usize)> {
        self.first.iter().chain(&self.others).filter_map(move |piece| {
            let size = piece.length();
            if length == 0 || offset >= size {
                offset = offset.saturating_sub(size);
                return None;
            }
            let take = usize::try_from(size - offset).unwrap_or(usize::MAX).min(length);
            let start = offset;
            offset = 0;
            length -= take;
            Some((piece, start, take))
        })
    }
}
