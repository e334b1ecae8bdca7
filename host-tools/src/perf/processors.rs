//! What Linux reports about the machine's processors: their clock rate (`-C`) and their load (`--cpu_util`).

use anyhow::{Context as _, Result};

/// Reads the processors' cycles per microsecond, if Linux reports them.
pub(super) fn cycles_per_microsecond() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/cpuinfo").context("-C: reading /proc/cpuinfo")?;
    fastest(&text).context("-C: /proc/cpuinfo of this machine has no 'cpu MHz', so times cannot be shown in cycles; leave -C out")
}

/// The highest rate in the text of `/proc/cpuinfo`.
fn fastest(text: &str) -> Option<f64> {
    let rates = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        value.trim().parse::<f64>().ok().filter(|rate| name.trim() == "cpu MHz" && *rate > 0.0)
    });
    rates.reduce(f64::max)
}

/// Time of all processors since the machine began, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessorTime {
    total: u64,
    idle: u64,
}

impl ProcessorTime {
    /// Reads the times.
    pub(super) fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("--cpu_util: reading /proc/stat")?;
        Self::of(&text).context("--cpu_util: /proc/stat has no line of all processors")
    }

    /// Parses the line of all processors: user, nice, system, idle, I/O wait, and more. The fields after the
    /// eighth are already included in the first ones.
    fn of(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let [_, _, _, idle, waiting, ..] = ticks[..] else { return None };
        Some(Self { total: ticks.iter().sum(), idle: idle + waiting })
    }

    /// How much of the time since then was not idle, in percent. Ticks are coarse: before the next one
    /// nothing is known.
    pub(super) fn busy_percent_since(self, then: Self) -> Option<f64> {
        let total = self.total.checked_sub(then.total).filter(|total| *total > 0)?;
        let idle = self.idle.saturating_sub(then.idle).min(total);
        Some((total - idle) as f64 * 100.0 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_fastest_processor() {
        let text = "processor : 0\ncpu MHz\t\t: 2400.000\nmodel name : x\ncpu MHz : 3100.5\n";
        assert_eq!(fastest(text), Some(3100.5));
        assert_eq!(fastest("BogoMIPS : 50.00\ncpu MHz : -\n"), None);
    }

    #[test]
    fn time_that_is_not_idle_is_busy() {
        let at = |text: &str| ProcessorTime::of(text).unwrap();
        let then = at("cpu  100 0 50 800 50 0 0 0 9 9\ncpu0 1 2 3 4 5\n");
        let now = at("cpu  130 0 70 830 70 0 0 0 99 99\n");
        assert_eq!(now.busy_percent_since(then), Some(50.0));
        assert_eq!(then.busy_percent_since(then), None);
        assert_eq!(ProcessorTime::of("cpu0 1 2 3 4 5\n"), None);
        assert_eq!(ProcessorTime::of("cpu 1 2\n"), None);
    }
}
