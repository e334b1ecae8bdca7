//! The table of kernels and READs in README.md must follow from the presets.

use bareverbs_prm::time::Duration;
use bareverbs_sim::net::link::Rate;
use bareverbs_sim::run::preset::Preset;

const README: &str = include_str!("../../../README.md");
const BEGIN: &str = "<!-- begin: made by tests/tests/integration/readme.rs -->\n";
const END: &str = "<!-- end -->\n";
const ELEMENTS: [u32; 5] = [1, 2, 4, 8, 16];

/// Where a kernel runs, and its times in nanoseconds: `read` for each READ, `fixed` for the kernel and `step`
/// for each of its accesses.
struct KernelSite {
    name: &'static str,
    read: f64,
    fixed: f64,
    step: f64,
}

impl KernelSite {
    /// How fast the kernel is relative to READs: both touch a line, then `elements` in a chain.
    fn speed(&self, elements: u32) -> f64 {
        let accesses = f64::from(elements + 1);
        self.read * accesses / (self.fixed + self.step * accesses)
    }

    /// The shortest chain for which the kernel is not slower.
    fn break_even(&self) -> u32 {
        (0..100).find(|&elements| self.speed(elements) >= 0.9995).expect("a step is shorter than a READ")
    }

    fn row(&self) -> String {
        let speeds: String =
            ELEMENTS.iter().map(|&elements| format!(" {:.2}× |", self.speed(elements))).collect();
        let from = match self.break_even() {
            0 => "always".to_owned(),
            elements => format!("{elements} elements"),
        };
        format!("| {} |{speeds} {from} |\n", self.name)
    }
}

fn nanos(time: Duration) -> f64 {
    time.as_picos() as f64 / 1000.0
}

/// Combines the parts into which `sim/src/run/preset.rs` splits a preset.
fn place(name: &'static str, preset: &Preset, on_dpu: bool) -> KernelSite {
    let wire = |frames: [usize; 2]| -> f64 {
        let rate = Rate::new(preset.link.bits_per_second);
        frames.iter().map(|&bytes| nanos(rate.serialisation(bytes) + preset.link.propagation)).sum()
    };
    let (to_wire, to_host) = (nanos(preset.node.doorbell_to_wire), nanos(preset.node.wire_to_host));
    let there_and_back = to_wire + 2.0 * to_host;
    let read = there_and_back + wire([74, 126]) + nanos(preset.node.read_dma);
    let (fixed, step) = if on_dpu {
        let cost = preset.dpu_kernel;
        (
            there_and_back + to_wire + wire([186, 174]) + nanos(cost.dispatch),
            nanos(cost.per_dma + preset.dpu_dma.alone(64)),
        )
    } else {
        let cost = preset.nic_kernel;
        (there_and_back + wire([138, 170]) + nanos(cost.dispatch), nanos(cost.per_dma))
    };
    KernelSite { name, read, fixed, step }
}

fn table() -> String {
    let arm = || place("BlueField-3, Arm cores: 2.0 µs a step", &Preset::BF3_ARM, true);
    let places = [
        place("in the NIC: StRoM at 10 Gbit/s, fitted", &Preset::STROM_10G, false),
        place("BlueField-3, data path accelerator: 0.9 µs a step", &Preset::BF3_ARM, false),
        arm(),
        KernelSite { name: "the same, if a step took 1.5 µs", step: 1500.0, ..arm() },
    ];
    let heading = "| where the kernel runs | 1 element | 2 | 4 | 8 | 16 | not slower from |\n|---|--:|--:|--:|--:|--:|---|\n";
    places.iter().map(KernelSite::row).fold(heading.to_owned(), |table, row| table + &row)
}

#[test]
fn the_table_of_kernels_and_reads_is_that_of_the_presets() {
    let (_, rest) = README.split_once(BEGIN).expect("README.md marks where the table begins");
    let (found, _) = rest.split_once(END).expect("and where it ends");
    assert_eq!(found, table(), "README.md has to say\n{}", table());
}

#[test]
fn names_of_the_rows_say_the_steps_of_their_presets() {
    assert_eq!(place("", &Preset::BF3_ARM, true).step, 2000.0);
    assert_eq!(place("", &Preset::BF3_ARM, false).step, 900.0);
}
