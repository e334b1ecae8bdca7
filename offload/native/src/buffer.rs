//! The bytes of a translation, its labels, and the jumps to labels that were not placed when they were written.

/// A place in the code, perhaps one that comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// How a processor writes the distance of a jump.
pub trait Distance: Copy {
    /// Writes the distance from the jump at `from` to `to` into the jump; `false` if it is too far.
    fn write(self, bytes: &mut [u8], from: usize, to: usize) -> bool;
}

pub struct Buffer<D> {
    bytes: Vec<u8>,
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Label, D)>,
}

impl<D: Distance> Buffer<D> {
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), places: Vec::new(), jumps: Vec::new() }
    }

    pub const fn here(&self) -> usize {
        self.bytes.len()
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub fn bind(&mut self, label: Label) {
        self.places[label.0] = Some(self.bytes.len());
    }

    /// The bytes that follow are a jump to the label.
    pub fn jump(&mut self, label: Label, distance: D) {
        self.jumps.push((self.bytes.len(), label, distance));
    }

    /// The code with all its jumps; `None` if one of them has nowhere to go, or too far.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        for (from, label, distance) in self.jumps {
            let to = self.places.get(label.0).copied().flatten()?;
            if !distance.write(&mut self.bytes, from, to) {
                return None;
            }
        }
        Some(self.bytes)
    }
}
