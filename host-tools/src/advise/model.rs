//! Cost model of a lookup for each way: the parts of a preset ([`costs`](super::costs)), plus the wait for the server.
//!
//! ```text
//! READ       = h R(64) (1 + p) + R(s)                       R: one RDMA READ; p: share of walks that begin again
//! kernel-dpu = B + (1 + a) U + h D(64) (1 + p) + D(s)       B: the call; D: one access over PCIe; a: accesses
//! kernel-nic = B + U + S / (1 - ρ)                          S: all that the engine does for the lookup
//! cpu        = B + U + S / (1 - ρ)
//! ```
//!
//! A walk that meets a line that is being changed begins again with the first line, before it has read the value.
//!
//! The load ρ is the share of time in which the server's core, or the engine in its NIC, works at short lookups of others:
//! one element and a value of 64 bytes. It does one step of a lookup after the other, in turn, and a DMA in flight does not
//! occupy it. On a DPU a step waits each time for what is being done then: U = ρ E(X²) / 2 E(X) (1 - ρ), where X is a
//! step of the others (Pollaczek and Khinchine). Where nothing is in flight between two steps, the lookup is always present
//! and gets the share of the core that the others leave.

use super::costs::Costs;

/// Most elements of which a break-even is looked for.
const LONGEST: u32 = 10_000;

/// A lookup and the server's load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Elements read before the value.
    pub hops: u32,
    /// Size of the value in bytes.
    pub bytes: u32,
    /// Share of time in which the server works at short lookups of others, from 0 to less than 1.
    pub load: f64,
    /// Fraction of walks that begin again.
    pub retries: f64,
}

/// A way of looking up, named as in `bareverbs demo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdvisedWay {
    /// RDMA READs.
    Read,
    /// A kernel on the cores of a DPU.
    KernelDpu,
    /// A kernel in the NIC.
    KernelNic,
    /// A core of the server.
    Cpu,
}

impl AdvisedWay {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Read, Self::KernelDpu, Self::KernelNic, Self::Cpu];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::KernelDpu => "kernel-dpu",
            Self::KernelNic => "kernel-nic",
            Self::Cpu => "cpu",
        }
    }
}

/// Time of a lookup in nanoseconds.
pub fn time(costs: &Costs, way: AdvisedWay, case: &Case) -> f64 {
    let Case { hops, bytes, load, retries } = *case;
    let lines = f64::from(hops) * (1.0 + retries);
    match way {
        AdvisedWay::Read => lines * costs.read(64) + costs.read(bytes),
        AdvisedWay::KernelDpu => {
            let accesses = lines * costs.dpu_access(64) + costs.dpu_access(bytes);
            let visits = 2.0 + lines;
            costs.dpu_call(bytes) + accesses + visits * costs.dpu.wait(load)
        }
        AdvisedWay::KernelNic => costs.nic_call(bytes) + costs.nic.shared(lines + 1.0, load),
        AdvisedWay::Cpu => costs.cpu_call(bytes) + costs.cpu.shared(lines + 1.0, load),
    }
}

/// The fastest way among the permitted ones.
pub fn best(costs: &Costs, case: &Case) -> AdvisedWay {
    let by_time = |a: &AdvisedWay, b: &AdvisedWay| time(costs, *a, case).total_cmp(&time(costs, *b, case));
    AdvisedWay::ALL.into_iter().min_by(by_time).unwrap_or(AdvisedWay::Read)
}

/// The smallest number of elements at which a way is faster than READs; `None` if there is none.
pub fn break_even(costs: &Costs, way: AdvisedWay, case: &Case) -> Option<u32> {
    (0..=LONGEST).find(|hops| {
        let case = Case { hops: *hops, ..*case };
        time(costs, way, &case) < time(costs, AdvisedWay::Read, &case)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::costs::CoreWork;
    use bareverbs_sim::run::Preset;

    const CASE: Case = Case { hops: 1, bytes: 64, load: 0.0, retries: 0.0 };

    fn microseconds(preset: Preset, way: AdvisedWay, case: Case) -> f64 {
        time(&Costs::of(preset), way, &case) / 1e3
    }

    /// The published figures of a preset are R, B and D for 64 bytes.
    #[test]
    fn without_load_the_model_gives_the_published_latency() {
        for (preset, read, dpu, nic) in [
            (Preset::STROM_10G, 6.08, (4.97, 1.11), (4.97, 1.11)),
            (Preset::STROM_100G, 4.14, (4.14 - 1.0, 1.0), (4.14 - 1.0, 1.0)),
            (Preset::BF3_ARM, 3.6, (6.8, 2.0), (5.8, 0.9)),
        ] {
            for hops in [0, 1, 7, 31] {
                let case = Case { hops, ..CASE };
                let accesses = f64::from(hops + 1);
                for (way, expected) in [
                    (AdvisedWay::Read, read * accesses),
                    (AdvisedWay::KernelDpu, dpu.0 + dpu.1 * accesses),
                    (AdvisedWay::KernelNic, nic.0 + nic.1 * accesses),
                ] {
                    let found = microseconds(preset, way, case);
                    assert!(
                        (found / expected - 1.0).abs() < 0.005,
                        "{} {way:?} {hops}: {found} {expected}",
                        preset.name
                    );
                }
            }
        }
    }

    /// SmartNS (EuroSys 2026) measured 4.7 µs for an echo by RPC, and the preset of that class of card has parts of its own.
    #[test]
    fn a_call_of_a_core_takes_the_measured_time() {
        let call = microseconds(Preset::BF3_ARM, AdvisedWay::Cpu, Case { hops: 0, ..CASE });
        assert!((call / 4.7 - 1.0).abs() < 0.05, "{call}");
    }

    #[test]
    fn the_wait_for_a_shared_core_follows_the_queueing_model() {
        let even = CoreWork { start: 100.0, access: 100.0 };
        // M/D/1 at half load: half a service.
        assert!((even.wait(0.5) - 50.0).abs() < 1e-9);
        assert!((even.shared(1.0, 0.5) - (50.0 + 2.0 * 200.0)).abs() < 1e-9);
        let uneven = CoreWork { start: 280.0, access: 10.0 };
        assert!(uneven.wait(0.5) > even.wait(0.5), "the same work, but in a long piece");
    }

    /// h* = B / (R - D): a kernel on an Arm core pays from five accesses on (4.25), StRoM's from the second (1.0).
    #[test]
    fn a_kernel_pays_from_the_break_even_on() {
        let even = |preset, way, case| break_even(&Costs::of(preset), way, &case);
        assert_eq!(
            even(Preset::BF3_ARM, AdvisedWay::KernelDpu, CASE),
            Some(4),
            "four elements and the value"
        );
        assert_eq!(even(Preset::STROM_10G, AdvisedWay::KernelNic, CASE), Some(1));
        assert_eq!(even(Preset::BF3_ARM, AdvisedWay::Cpu, CASE), Some(1));
        let busy = Case { load: 0.95, ..CASE };
        assert_eq!(even(Preset::BF3_ARM, AdvisedWay::KernelDpu, busy), None, "a core that is never free");
        assert!(even(Preset::BF3_ARM, AdvisedWay::Cpu, busy) > even(Preset::BF3_ARM, AdvisedWay::Cpu, CASE));
    }

    #[test]
    fn more_hops_bytes_or_retries_take_longer_on_each_way() {
        let costs = Costs::of(Preset::BF3_ARM);
        for way in AdvisedWay::ALL {
            let at = |case: Case| time(&costs, way, &case);
            assert!(at(Case { hops: 2, ..CASE }) > at(CASE), "{way:?}");
            assert!(at(Case { bytes: 65_536, ..CASE }) > at(CASE), "{way:?}");
            assert!(at(Case { retries: 0.5, ..CASE }) > at(CASE), "{way:?}");
            let served = at(Case { load: 0.5, ..CASE }) > at(CASE);
            assert_eq!(served, way != AdvisedWay::Read, "nobody serves a READ: {way:?}");
            let best = time(&costs, best(&costs, &CASE), &CASE);
            assert!(best <= at(CASE));
        }
    }
}
