//! The core on which a runtime is charged for running.

use crate::cost::KernelCost;
use bareverbs_prm::time::{Duration, Time};

/// What running costs, and when the core has done everything that was charged so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedCore {
    pub(super) cost: KernelCost,
    free_at: Time,
}

impl SharedCore {
    /// An idle core.
    pub(super) const fn new(cost: KernelCost) -> Self {
        Self { cost, free_at: Time::ZERO }
    }

    /// Charges the start of an invocation that used so much fuel, and returns when it is done.
    #[inline]
    pub(super) fn start(&mut self, now: Time, fuel: u32) -> Time {
        self.charge(now, self.cost.dispatch + self.cost.per_fuel.saturating_mul(fuel.into()))
    }

    /// Charges a step after a DMA.
    #[inline]
    pub(super) fn step(&mut self, now: Time, fuel: u32) -> Time {
        self.charge(now, self.cost.per_dma + self.cost.per_fuel.saturating_mul(fuel.into()))
    }

    /// Work on a core that is shared begins after all that was charged before.
    #[inline]
    fn charge(&mut self, now: Time, work: Duration) -> Time {
        if !self.cost.one_core {
            return now + work;
        }
        self.free_at = now.max(self.free_at) + work;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_on_a_shared_core_waits_and_other_work_does_not() {
        let (at, work) = (|nanos| Time::ZERO + Duration::from_nanos(nanos), Duration::from_nanos(100));
        let cost = KernelCost { dispatch: work, ..KernelCost::FREE };
        let mut core = SharedCore::new(cost);
        assert_eq!([0, 10].map(|now| core.start(at(now), 0)), [at(100), at(110)]);
        let mut core = SharedCore::new(KernelCost { one_core: true, ..cost });
        assert_eq!([0, 10, 150, 900].map(|now| core.start(at(now), 0)), [100, 200, 300, 1_000].map(at));
    }
}
