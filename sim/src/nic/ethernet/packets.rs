//! The packets of a send queue's work request, one after the other.

use super::segment::SegmentedSend;

/// The packets of a work request that have not been sent yet.
#[derive(Debug, Default)]
pub(crate) enum Packets {
    /// No more.
    #[default]
    None,
    /// One complete packet.
    One(Vec<u8>),
    /// The packets of a large send, each built when it is requested.
    Segmented(Box<SegmentedSend>),
}

impl Packets {
    /// Whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(packet) => packet.len(),
            Self::Segmented(send) => send.bytes(),
        }
    }

    /// Packets of a large send that have been built.
    #[cfg(test)]
    pub(crate) fn made(&self) -> usize {
        if let Self::Segmented(send) = self { send.made() } else { 0 }
    }
}

impl Iterator for Packets {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        match core::mem::take(self) {
            Self::None => None,
            Self::One(packet) => Some(packet),
            Self::Segmented(mut send) => {
                let packet = send.next();
                if !send.is_at_end() {
                    *self = Self::Segmented(send);
                }
                packet
            }
        }
    }
}
