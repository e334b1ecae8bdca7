//! Latency presets: published measurements, split into the delays that a world charges. All figures they produce are
//! simulated; a figure that merely reproduces its calibration is a consistency check, not a result.
//!
//! Published for a 64-byte value: `R`, one RDMA READ from post to completion; `B`, the fixed part of a lookup by a
//! kernel; `D`, one more dependent access by a kernel. The model is `kernel = B + D * (elements + 1)` versus `READs = R
//! * (elements + 1)`.
//!
//! | preset | link | R | kernel in the NIC: B, D | kernel on a DPU: B, D | from |
//! |---|---|---|---|---|---|
//! | `strom-10g` | 10 Gb/s | 6.08 µs | 4.97 µs, 1.11 µs | the same | StRoM (EuroSys 2020), fit of figure 7 |
//! | `strom-100g` | 100 Gb/s | 4.14 µs | 3.14 µs (R - D), 1.0 µs | the same | StRoM figure 12; D inferred |
//! | `bf3-arm` | 200 Gb/s | 3.6 µs | 5.8 µs, 0.9 µs (BlueField-3 DPA) | 6.8 µs, 2.0 µs (Arm) | BlueField-3 measurements |
//!
//! With `w` = doorbell_to_wire, `h` = wire_to_host, `p` = propagation and `s(n)` = serialization of a frame of `n`
//! bytes:
//!
//! ```text
//! R     = w + s(74) + p + h  +  read_dma + s(126) + p + h           READ request, READ response of 64 bytes
//! B nic = w + s(138) + p + h  +  dispatch + s(170) + p + h          RPC with 64 bytes, WRITE of 96 bytes by the NIC itself
//! B dpu = w + s(186) + p + h  +  dispatch + w + s(174) + p + h      SEND of 128 bytes, WRITE with immediate of 96 bytes
//! D nic = per_dma                                                   the DMA is part of it
//! D dpu = per_dma + dpu_dma(64)                                     work on the core, read over PCIe of 64 bytes
//! ```
//!
//! `w`, `h` and `dpu_dma` are not published and were chosen; the others follow. `h` is long in the StRoM presets
//! because it covers the FPGA's whole receive pipeline.
//!
//! The cost of a PCIe read grows with its length, and the operation rate is limited ([`DmaCost`]). Bandwidth: 50 and
//! 100 Gb/s for StRoM's boards (PCIe Gen3 x8; x16, which the paper calls no faster than the network), 26 GB/s for
//! BlueField-3. Operation rates are only published for BlueField-2, and are used for BlueField-3 too; StRoM's engine is
//! limited by bandwidth alone.

use super::dma::DmaCost;
use super::latency::{KernelCost, Latency};
use crate::net::link::{LinkConfig, Rate};
use bareverbs_prm::time::Duration;

/// Size of an element in the published figures, in bytes.
const ELEMENT: u64 = 64;
/// Time that a server core spends per request, then per access to its own memory.
const CPU_SERVICE: Duration = Duration::from_micros(1);
const CPU_ACCESS: Duration = Duration::from_nanos(100);

/// A named set of latencies.
///
/// ```
/// use bareverbs_sim::run::Preset;
///
/// let preset = Preset::find("strom-100g").unwrap();
/// assert_eq!(preset.link.bits_per_second, 100_000_000_000);
/// assert_eq!(preset.nic_kernel.per_dma.as_nanos(), 1_000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Name for command lines.
    pub name: &'static str,
    /// Configuration of every link.
    pub link: LinkConfig,
    /// Latencies of every node.
    pub node: Latency,
    /// Cost of a kernel inside the NIC.
    pub nic_kernel: KernelCost,
    /// Cost of a kernel on the cores of a DPU.
    pub dpu_kernel: KernelCost,
    /// Cost of a kernel on a server core that reads its own memory. Chosen: a million requests per second, and accesses
    /// that hit the cache.
    pub cpu_kernel: KernelCost,
    /// The DMA engine between a DPU and the memory of its host.
    pub dpu_dma: DmaCost,
}

impl Preset {
    /// StRoM on its 10 Gb/s board.
    pub const STROM_10G: Self = Published {
        name: "strom-10g",
        gigabits: 10,
        read: 6_080,
        nic: (4_970, 1_110),
        dpu: (4_970, 1_110),
        doorbell_to_wire: 400,
        wire_to_host: 1_850,
        dpu_dma: 900,
        dma_engine: DmaCost { bytes_per_second: 6_250_000_000, ..DmaCost::FREE },
    }
    .split();

    /// StRoM on its 100 Gb/s board.
    pub const STROM_100G: Self = Published {
        name: "strom-100g",
        gigabits: 100,
        read: 4_140,
        nic: (3_140, 1_000),
        dpu: (3_140, 1_000),
        doorbell_to_wire: 400,
        wire_to_host: 1_080,
        dpu_dma: 800,
        dma_engine: DmaCost { bytes_per_second: 12_500_000_000, ..DmaCost::FREE },
    }
    .split();

    /// BlueField-3: kernels on its Arm cores, or on the data path accelerator (DPA) in its NIC.
    pub const BF3_ARM: Self = Published {
        name: "bf3-arm",
        gigabits: 200,
        read: 3_600,
        nic: (5_800, 900),
        dpu: (6_800, 2_000),
        doorbell_to_wire: 1_000,
        wire_to_host: 800,
        dpu_dma: 1_500,
        dma_engine: DmaCost::BLUEFIELD,
    }
    .split();

    /// All presets.
    pub const ALL: [Self; 3] = [Self::STROM_10G, Self::STROM_100G, Self::BF3_ARM];

    /// Finds the preset called `name`.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }
}

/// Published figures and the chosen split. Times in nanoseconds.
struct Published {
    name: &'static str,
    gigabits: u64,
    read: u64,
    /// B and D.
    nic: (u64, u64),
    /// B and D.
    dpu: (u64, u64),
    doorbell_to_wire: u64,
    wire_to_host: u64,
    /// Latency for 64 bytes.
    dpu_dma: u64,
    /// Bandwidth and operation rate; its latency is the remainder of `dpu_dma`.
    dma_engine: DmaCost,
}

impl Published {
    const fn split(&self) -> Preset {
        let link = LinkConfig::gigabits(self.gigabits);
        let rate = Rate::new(link.bits_per_second);
        let doorbell_to_wire = Duration::from_nanos(self.doorbell_to_wire);
        let wire_to_host = Duration::from_nanos(self.wire_to_host);
        let there_and_back = doorbell_to_wire
            .saturating_add(wire_to_host.saturating_mul(2))
            .saturating_add(link.propagation.saturating_mul(2));
        Preset {
            name: self.name,
            link,
            node: Latency {
                doorbell_to_wire,
                wire_to_host,
                read_dma: rest(self.read, there_and_back, rate, [74, 126]),
            },
            nic_kernel: KernelCost {
                dispatch: rest(self.nic.0, there_and_back, rate, [138, 170]),
                per_dma: Duration::from_nanos(self.nic.1),
            },
            dpu_kernel: KernelCost {
                dispatch: rest(self.dpu.0, there_and_back.saturating_add(doorbell_to_wire), rate, [186, 174]),
                per_dma: Duration::from_nanos(self.dpu.1 - self.dpu_dma),
            },
            cpu_kernel: KernelCost { dispatch: CPU_SERVICE, per_dma: CPU_ACCESS },
            dpu_dma: DmaCost {
                latency: Duration::from_nanos(self.dpu_dma).saturating_sub(self.dma_engine.transfer(ELEMENT)),
                ..self.dma_engine
            },
        }
    }
}

/// The remainder of `whole` nanoseconds after the fixed parts and two frames. A split that does not fit fails to
/// compile.
const fn rest(whole: u64, fixed: Duration, rate: Rate, frames: [usize; 2]) -> Duration {
    let wire = rate.serialisation(frames[0]).saturating_add(rate.serialisation(frames[1]));
    let spent = fixed.saturating_add(wire);
    let whole = Duration::from_nanos(whole);
    assert!(whole.as_picos() >= spent.as_picos(), "the chosen parts are longer than what was published");
    whole.saturating_sub(spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        for preset in Preset::ALL {
            assert_eq!(Preset::find(preset.name), Some(preset));
        }
        assert_eq!(Preset::find("cx-7"), None);
    }

    #[test]
    fn a_hop_costs_the_published_time() {
        let hop = |preset: Preset| {
            (preset.nic_kernel.per_dma, preset.dpu_kernel.per_dma + preset.dpu_dma.alone(ELEMENT))
        };
        let nanos = Duration::from_nanos;
        assert_eq!(hop(Preset::STROM_10G), (nanos(1_110), nanos(1_110)));
        assert_eq!(hop(Preset::STROM_100G), (nanos(1_000), nanos(1_000)));
        assert_eq!(hop(Preset::BF3_ARM), (nanos(900), nanos(2_000)));
    }
}
