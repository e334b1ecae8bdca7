//! A program, instruction by instruction.

use bareverbs_offload::program::{Instruction, Operation};

/// The instructions of a verified program from a slot on.
#[derive(Clone)]
pub struct Operations<'p> {
    pub code: &'p [Instruction],
    pub slot: usize,
}

impl Iterator for Operations<'_> {
    type Item = (usize, Operation);

    fn next(&mut self) -> Option<(usize, Operation)> {
        let slot = self.slot;
        let operation = Operation::decode(self.code, slot).ok()?;
        self.slot += operation.slots();
        Some((slot, operation))
    }
}
