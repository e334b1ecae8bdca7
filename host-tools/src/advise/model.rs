//! Cost model of a lookup for each way: the components of a preset, plus the queue in front of the server.
//!
//! ```text
//! READ    = Σ R(s) (1 + p)                                 R: one RDMA READ; p: share of reads that have to be repeated
//! kernel  = B + Σ D(s) (1 + p) + W                         B: the call; D: one access over PCIe; W: the queue at the kernel
//! cpu     = 5 µs + (0.1 µs a read + its bytes) (1 + p) + W      a call of a good RPC, and accesses in the cache
//! W       = S ρ / 2(1 - ρ)                                 S: service of one request; ρ: load of the server (M/D/1)
//! ```

use crate::offload_figures::components::Components;

/// A call of the server's processor by a good RPC, from SEND to WRITE: 4.7 µs for an echo (SmartNS, EuroSys 2026), and its handler.
const CPU_CALL: f64 = 5_000.0;
/// An access of the server's processor to its own memory.
const CPU_ACCESS: f64 = 100.0;
/// What a core of the server is busy with for one request, besides accesses. Chosen: a million requests a second and core.
const CPU_SERVICE: f64 = 1_000.0;
/// Most elements of which a break-even is looked for.
const LONGEST: u32 = 10_000;

/// A lookup and the server's load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Elements read before the value.
    pub hops: u32,
    /// Size of the value in bytes.
    pub bytes: u32,
    /// Load of the server, from 0 to less than 1.
    pub load: f64,
    /// Fraction of reads that are repeated.
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

/// Waiting for a server that is busy for `service` nanoseconds with each request (M/D/1).
fn queue(service: f64, load: f64) -> f64 {
    service * load / (2.0 * (1.0 - load))
}

/// Time of a lookup in nanoseconds.
pub fn time(components: &Components, way: AdvisedWay, case: &Case) -> f64 {
    let Case { hops, bytes, load, retries } = *case;
    let (hops, again) = (f64::from(hops), 1.0 + retries);
    match way {
        AdvisedWay::Read => (hops * components.read(64) + components.read(bytes)) * again,
        AdvisedWay::KernelDpu => {
            let accesses = (hops * components.dpu_access(64) + components.dpu_access(bytes)) * again;
            components.dpu_call(accesses, bytes) + queue(accesses, load)
        }
        AdvisedWay::KernelNic => {
            let accesses = (hops * components.nic_access(64) + components.nic_access(bytes)) * again;
            components.nic_call(accesses, bytes) + queue(accesses, load)
        }
        AdvisedWay::Cpu => {
            let accesses = (hops + 1.0) * CPU_ACCESS * again;
            CPU_CALL
                + accesses
                + components.answer_beyond_element(bytes)
                + queue(CPU_SERVICE + accesses, load)
        }
    }
}

/// The fastest way among the permitted ones.
pub fn best(components: &Components, case: &Case) -> AdvisedWay {
    let by_time =
        |a: &AdvisedWay, b: &AdvisedWay| time(components, *a, case).total_cmp(&time(components, *b, case));
    AdvisedWay::ALL.into_iter().min_by(by_time).unwrap_or(AdvisedWay::Read)
}

/// The smallest number of elements at which a way is faster than READs; `None` if there is none.
pub fn break_even(components: &Components, way: AdvisedWay, case: &Case) -> Option<u32> {
    (0..=LONGEST).find(|hops| {
        let case = Case { hops: *hops, ..*case };
        time(components, way, &case) < time(components, AdvisedWay::Read, &case)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_sim::run::Preset;

    const CASE: Case = Case { hops: 1, bytes: 64, load: 0.0, retries: 0.0 };

    fn microseconds(preset: Preset, way: AdvisedWay, case: Case) -> f64 {
        time(&Components::of(preset), way, &case) / 1e3
    }

    /// The published figures of a preset are R, B and D for 64 bytes.
    #[test]
    fn without_load_it_is_what_was_published() {
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
                    (AdvisedWay::Cpu, 5.0 + 0.1 * accesses),
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

    /// h* = B / (R - D): a kernel on an Arm core pays from five accesses on (4.25), StRoM's from the second (1.0).
    #[test]
    fn a_kernel_pays_from_the_break_even_on() {
        let even = |preset, way, case| break_even(&Components::of(preset), way, &case);
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
    fn more_of_anything_takes_longer_on_each_way() {
        let components = Components::of(Preset::BF3_ARM);
        for way in AdvisedWay::ALL {
            let at = |case: Case| time(&components, way, &case);
            assert!(at(Case { hops: 2, ..CASE }) > at(CASE), "{way:?}");
            assert!(at(Case { bytes: 65_536, ..CASE }) > at(CASE), "{way:?}");
            assert!(at(Case { retries: 0.5, ..CASE }) > at(CASE), "{way:?}");
            let served = at(Case { load: 0.5, ..CASE }) > at(CASE);
            assert_eq!(served, way != AdvisedWay::Read, "nobody serves a READ: {way:?}");
            let best = time(&components, best(&components, &CASE), &CASE);
            assert!(best <= at(CASE));
        }
    }
}
