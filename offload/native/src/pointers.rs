//! Which registers point to a known place of a segment at each instruction, whichever way a step came there. Accesses
//! relative to them need no comparison of their address.
//!
//! Two places are known, and code compares both: r1 points to the context when a step begins, and what a step loads
//! from where the context has a pointer is that pointer. Copies and constant distances follow from these.

use crate::access::{FRAME_POINTER, MAX_SPAN};
use crate::known::written;
use crate::operations::Operations;
use crate::operators as o;
use bareverbs_offload::program::{Instruction, Operand, Operation, Segment};

/// A place, by its distance from the beginning of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    pub segment: Segment,
    pub offset: i32,
}

impl Pointer {
    const fn to(segment: Segment) -> Self {
        Self { segment, offset: 0 }
    }

    /// The pointer moved by a constant. Larger distances than a comparison spans are not followed.
    fn moved(self, by: i32) -> Option<Self> {
        let offset = self.offset.checked_add(by)?;
        (offset.unsigned_abs() <= MAX_SPAN.unsigned_abs()).then_some(Self { offset, ..self })
    }
}

/// What registers point to.
type Facts = [Option<Pointer>; FRAME_POINTER as usize];

/// The facts before each instruction; `None` if nothing leads there.
pub struct Pointers(Vec<Option<Facts>>);

impl Pointers {
    pub fn of(code: &[Instruction]) -> Self {
        let mut before = vec![None; code.len()];
        let mut first: Facts = [None; FRAME_POINTER as usize];
        first[1] = Some(Pointer::to(Segment::Context));
        let mut arrivals = vec![(0, first)];
        while let Some((slot, facts)) = arrivals.pop() {
            let Some(known) = before.get_mut(slot) else { continue };
            let both = known.map_or(facts, |known| in_both(&known, &facts));
            if *known == Some(both) {
                continue;
            }
            *known = Some(both);
            let Some((_, operation)) = (Operations { code, slot }).next() else { continue };
            let (behind, next) = (after(both, &operation), slot + operation.slots());
            match operation {
                Operation::Jump { offset, condition } => {
                    arrivals.push((next.wrapping_add_signed(offset.into()), behind));
                    arrivals.extend(condition.map(|_| (next, behind)));
                }
                Operation::Exit => {}
                _ => arrivals.push((next, behind)),
            }
        }
        Self(before)
    }

    /// Where a register points before an instruction.
    pub fn before(&self, slot: usize, register: u8) -> Option<Pointer> {
        pointer(self.0.get(slot)?.as_ref()?, register)
    }

    /// The segment whose beginning an instruction loads from the context, if the context still says so.
    pub fn loaded(&self, slot: usize, operation: &Operation) -> Option<Segment> {
        loaded(self.0.get(slot)?.as_ref()?, operation)
    }
}

fn pointer(facts: &Facts, register: u8) -> Option<Pointer> {
    facts.get(usize::from(register)).copied().flatten()
}

/// The facts that are true wherever a step came from.
fn in_both(one: &Facts, other: &Facts) -> Facts {
    core::array::from_fn(|register| one[register].filter(|pointer| other[register] == Some(*pointer)))
}

/// The facts behind an instruction.
fn after(mut facts: Facts, operation: &Operation) -> Facts {
    if let Operation::Call(_) = operation {
        facts[..6].fill(None);
    }
    let Some(to) = written(operation) else { return facts };
    let found = match *operation {
        Operation::Compute { code: o::MOV, wide: true, source: Operand::Register(from), .. } => {
            pointer(&facts, from)
        }
        Operation::Compute { code: o::ADD, wide: true, source: Operand::Immediate(by), .. } => {
            pointer(&facts, to).and_then(|pointer| pointer.moved(by))
        }
        _ => loaded(&facts, operation).map(Pointer::to),
    };
    if let Some(fact) = facts.get_mut(usize::from(to)) {
        *fact = found;
    }
    facts
}

/// See [`Pointers::loaded`]. If the pointer is another one, the instruction is executed again, so it must not overwrite its base.
fn loaded(facts: &Facts, operation: &Operation) -> Option<Segment> {
    let Operation::Load { destination, base, offset, bytes: 8 } = *operation else { return None };
    let from = pointer(facts, base).filter(|from| from.segment == Segment::Context && base != destination)?;
    Segment::pointed_to_at(usize::try_from(from.moved(offset.into())?.offset).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mov(to: u8, from: u8) -> Instruction {
        Instruction::new(0xbf, to, from, 0, 0)
    }

    const fn add(to: u8, by: i32) -> Instruction {
        Instruction::new(0x07, to, 0, 0, by)
    }

    const fn load(to: u8, base: u8, offset: i16) -> Instruction {
        Instruction::new(0x79, to, base, offset, 0)
    }

    const EXIT: Instruction = Instruction::new(0x95, 0, 0, 0, 0);
    const CALL: Instruction = Instruction::new(0x85, 0, 0, 0, 1);

    /// Where a register points before the last of these instructions and an `exit`.
    fn at_the_end(code: &[Instruction], register: u8) -> Option<(Segment, i32)> {
        let code = [code, &[EXIT]].concat();
        Pointers::of(&code)
            .before(code.len() - 1, register)
            .map(|Pointer { segment, offset }| (segment, offset))
    }

    #[test]
    fn copies_and_distances_are_followed() {
        assert_eq!(at_the_end(&[], 1), Some((Segment::Context, 0)));
        assert_eq!(at_the_end(&[mov(6, 1), add(6, 12), add(6, -4)], 6), Some((Segment::Context, 8)));
        assert_eq!(at_the_end(&[mov(6, 1), load(7, 6, 8), mov(8, 7)], 8), Some((Segment::State, 0)));
        assert_eq!(at_the_end(&[add(1, 16), load(2, 1, 0)], 2), Some((Segment::Window, 0)));
        assert_eq!(at_the_end(&[add(1, 16), load(2, 1, -16)], 2), Some((Segment::Parameters, 0)));
    }

    #[test]
    fn other_changes_are_forgotten() {
        for code in [
            &[Instruction::new(0xbc, 1, 1, 0, 0)][..],
            &[Instruction::new(0x04, 1, 0, 0, 4)],
            &[Instruction::new(0x0f, 1, 2, 0, 0)],
            &[Instruction::new(0x17, 1, 0, 0, 4)],
            &[Instruction::new(0xdc, 1, 0, 0, 64)],
            &[Instruction::new(0x18, 1, 0, 0, 0), Instruction::new(0, 0, 0, 0, 1)],
            &[add(1, 4096)],
            &[add(1, i32::MIN), add(1, i32::MIN)],
            &[load(1, 1, 8)],
            &[Instruction::new(0x61, 1, 1, 8, 0)],
            &[mov(1, 10)],
            &[CALL],
        ] {
            assert_eq!(at_the_end(code, 1), None, "{code:?}");
        }
        assert_eq!(at_the_end(&[load(2, 1, 4)], 2), None, "no pointer is there");
        assert_eq!(at_the_end(&[load(2, 1, 24)], 2), None, "nor there");
        assert_eq!(at_the_end(&[load(2, 1, 8), load(3, 2, 8)], 3), None, "nor in the state");
        assert_eq!(at_the_end(&[mov(6, 1), CALL], 6), Some((Segment::Context, 0)), "a call keeps r6 to r9");
    }

    #[test]
    fn two_ways_know_what_both_do() {
        // Skips one instruction if r2 is zero.
        let branch = Instruction::new(0x15, 2, 0, 1, 0);
        assert_eq!(at_the_end(&[mov(6, 1), branch, add(6, 8)], 6), None);
        assert_eq!(at_the_end(&[mov(6, 1), branch, mov(6, 1)], 6), Some((Segment::Context, 0)));
        // A loop that moves its pointer, and one that does not.
        let back = |slots| Instruction::new(0x55, 2, 0, slots, 0);
        assert_eq!(at_the_end(&[mov(6, 1), add(6, 8), back(-2)], 6), None);
        assert_eq!(at_the_end(&[mov(6, 1), add(7, 8), back(-2)], 6), Some((Segment::Context, 0)));
        // Back to the first instruction.
        assert_eq!(at_the_end(&[mov(6, 1), mov(1, 7), back(-3)], 6), None);
    }
}
