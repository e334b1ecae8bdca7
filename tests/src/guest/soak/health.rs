//! The resources of a process, measured from outside: private memory, descriptors and threads.

use super::super::table::Verdict;
use anyhow::{Context, Result};
use core::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// By how much memory may grow between the first third of the samples and the last.
const GROWTH: u64 = 16 << 10;

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Private memory in KiB, without memory that is mapped from files; what guests share is mapped from
    /// files.
    pub memory: u64,
    pub descriptors: u64,
    pub threads: u64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, descriptors, threads } = self;
        write!(f, "{memory} KiB, {descriptors} descriptors, {threads} threads")
    }
}

/// All samples of a process. They are also written to a file.
#[derive(Debug)]
pub(super) struct Health {
    process: PathBuf,
    samples: Vec<Sample>,
    file: File,
    start: Instant,
}

impl Health {
    pub fn watch(process: u32, csv: &Path) -> Result<Self> {
        let mut file = File::create(csv).with_context(|| format!("cannot write {}", csv.display()))?;
        writeln!(file, "seconds,kib,descriptors,threads")?;
        let process = PathBuf::from(format!("/proc/{process}"));
        Ok(Self { process, samples: Vec::new(), file, start: Instant::now() })
    }

    pub fn look(&mut self) -> Result<Sample> {
        let status = std::fs::read_to_string(self.process.join("status"))?;
        let descriptors = std::fs::read_dir(self.process.join("fd"))?.count() as u64;
        let number = |name| value(&status, name).with_context(|| format!("no {name} in {status}"));
        let sample = Sample { memory: number("RssAnon:")?, descriptors, threads: number("Threads:")? };
        let Sample { memory, descriptors, threads } = sample;
        writeln!(self.file, "{},{memory},{descriptors},{threads}", self.start.elapsed().as_secs())?;
        self.samples.push(sample);
        Ok(sample)
    }

    /// Checks that no resource is greater in the last third of the samples than in the first.
    pub fn verdicts(&self) -> [(&'static str, Verdict); 3] {
        [
            ("memory of the server, KiB", flat(&self.samples, GROWTH, |sample| sample.memory)),
            ("descriptors of the server", flat(&self.samples, 0, |sample| sample.descriptors)),
            ("threads of the server", flat(&self.samples, 0, |sample| sample.threads)),
        ]
    }
}

fn value(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn flat(samples: &[Sample], growth: u64, of: impl Fn(&Sample) -> u64) -> Verdict {
    let third = samples.len() / 3;
    let most = |part: &[Sample]| part.iter().map(&of).max();
    let (first, last) = (samples.get(..third), samples.get(samples.len() - third..));
    let (Some(first), Some(last)) = (first.and_then(most), last.and_then(most)) else {
        return Verdict::Fail(format!("{} rounds are too few to compare", samples.len()));
    };
    let seen = format!("at most {first} in the first third of {} rounds, {last} in the last", samples.len());
    if last <= first + growth { Verdict::Pass(seen) } else { Verdict::Fail(seen) }
}

#[cfg(test)]
mod tests {
    use super::{Sample, Verdict, flat, value};

    fn samples(descriptors: &[u64]) -> Vec<Sample> {
        descriptors.iter().map(|&descriptors| Sample { memory: 1, descriptors, threads: 1 }).collect()
    }

    #[test]
    fn one_descriptor_more_is_lost() {
        let verdict = |counts: &[u64]| flat(&samples(counts), 0, |sample| sample.descriptors);
        assert!(matches!(verdict(&[7, 9, 12, 8, 9, 9]), Verdict::Pass(_)));
        assert!(matches!(verdict(&[7, 9, 8, 8, 9, 10]), Verdict::Fail(_)));
        assert!(matches!(verdict(&[7, 9]), Verdict::Fail(_)), "nothing to compare");
    }

    #[test]
    fn a_line_of_the_status_is_read() {
        let status = "Name:\tbareverbs\nRssAnon:\t    5120 kB\nThreads:\t7\n";
        assert_eq!((value(status, "RssAnon:"), value(status, "Threads:")), (Some(5120), Some(7)));
        assert_eq!(value(status, "VmSwap:"), None);
    }
}
