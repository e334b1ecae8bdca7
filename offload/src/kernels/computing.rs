//! Runs a kernel that computes its answer over memory that does not change.

use crate::budget::{Budget, Limits, Next};
use crate::grant::{Checked, Grant};
use crate::kernel::{Emission, Event, Kernel, Status};
use bareverbs_prm::time::Time;

/// What the kernel computed, and how many ranges it read, each of which must lie inside. Ranges that are read
/// together complete in order.
pub(super) fn computed_by<K: Kernel>(memory: &[u8], parameters: &[u8]) -> Result<(Vec<u8>, u16), Status> {
    computed_in_order::<K>(memory, parameters, |parts| parts.remove(0))
}

/// The same; `next` chooses the range that completes next among those being read.
pub(super) fn computed_in_order<K: Kernel>(
    memory: &[u8],
    parameters: &[u8],
    mut next: impl FnMut(&mut Vec<(usize, Checked)>) -> (usize, Checked),
) -> Result<(Vec<u8>, u16), Status> {
    let grant = Grant::new(0x10_0000, memory.len() as u64)?;
    let mut budget = Budget::new(Limits::default(), Time::ZERO);
    let (mut kernel, mut step) = K::start(parameters, &grant)?;
    let mut parts = vec![];
    let read = |range: Checked| &memory[range.offset() as usize..][..range.length() as usize];
    loop {
        match budget.charge(step, Time::ZERO) {
            Next::Read(range) => step = kernel.dma_done(read(range), &grant),
            asked @ (Next::ReadEach(_) | Next::AwaitPart) => {
                if let Next::ReadEach(ranges) = asked {
                    parts = ranges.iter().enumerate().collect();
                }
                let (part, range) = next(&mut parts);
                step = kernel.resumed(Event::Part { part, bytes: read(range) }, &grant);
            }
            Next::Reply(Emission { offset: 0, length, .. }) => {
                assert_eq!(length as usize, kernel.computed().len());
                return Ok((kernel.computed().to_vec(), budget.hops()));
            }
            Next::End(status) => return Err(status),
            other => panic!("{other:?}"),
        }
    }
}
