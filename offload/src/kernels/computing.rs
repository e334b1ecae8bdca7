//! Runs a kernel that computes its answer over memory that does not change.

use crate::budget::{Budget, Limits, Next};
use crate::grant::Grant;
use crate::kernel::{Emission, Kernel, Status};
use bareverbs_prm::time::Time;

/// What the kernel computed, and how many ranges it read; each must lie inside.
pub(super) fn computed_by<K: Kernel>(memory: &[u8], parameters: &[u8]) -> Result<(Vec<u8>, u16), Status> {
    let grant = Grant::new(0x10_0000, memory.len() as u64)?;
    let mut budget = Budget::new(Limits::default(), Time::ZERO);
    let (mut kernel, mut step) = K::start(parameters, &grant)?;
    loop {
        match budget.charge(step, Time::ZERO) {
            Next::Read(range) => {
                let bytes = &memory[range.offset() as usize..][..range.length() as usize];
                step = kernel.dma_done(bytes, &grant);
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
