//! The driver where there is no operating system: images for two processors under QEMU look keys up at a simulated peer.
//!
//! ```text
//! QEMU: image, driver ── vfio-user ── NIC ── wire ── NIC ── driver: table, kernels of a DPU
//!        └── console: a line each way ─────────────────────────┘
//! ```

mod emulator;
mod image;
mod peer;

use super::interrupt;
use super::root::Root;
use super::table::{Entry, Report, Verdict};
use anyhow::{Context, Result, bail};
use bareverbs_bare_metal::exchange::{Offer, WayName};
use bareverbs_bare_metal::rows;
use emulator::Emulator;
use image::Image;
pub use image::Processor;
use peer::Peer;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest run of one image: an emulated machine on a busy host is slow.
const LIMIT: Duration = Duration::from_secs(120);

/// What to run.
#[derive(Debug)]
pub struct BareMetalOptions {
    /// Only processors whose name contains this text.
    pub only: Option<String>,
    /// Where consoles go.
    pub output: PathBuf,
}

/// Builds the images and runs each once.
pub fn run(options: &BareMetalOptions) -> Result<Report> {
    let images = image::build()?;
    let root = Root::prepare()?;
    let mut report = Report::new(&["processor", "case"]);
    for image in &images {
        interrupt::check()?;
        let name = image.processor.name();
        if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        report.add(entry(name, "no allocator linked", Instant::now(), image.without_allocator()));
        let begin = Instant::now();
        let console = options.output.join(format!("bare-metal-{name}.log"));
        let mut seen = Seen::default();
        let ended = converse(&root, image, &console, &mut seen);
        for (case, verdict) in seen.verdicts(ended) {
            report.add(entry(name, case, begin, verdict));
        }
    }
    Ok(report)
}

fn entry(processor: &str, case: &str, begin: Instant, verdict: Verdict) -> Entry {
    Entry { columns: vec![processor.into(), case.into()], verdict, elapsed: begin.elapsed() }
}

/// Console lines that report progress.
#[derive(Debug, Default)]
struct Seen {
    lines: Vec<String>,
}

impl Seen {
    fn last(&self, beginning: &str) -> Option<&str> {
        self.lines.iter().rev().find_map(|line| line.strip_prefix(beginning)).map(str::trim)
    }

    fn failed(&self) -> Option<&str> {
        ["bareverbs failed:", "bareverbs panicked:"].iter().find_map(|beginning| self.last(beginning))
    }

    fn verdicts(&self, ended: Result<()>) -> Vec<(&'static str, Verdict)> {
        let why = ended.as_ref().err().map(|error| format!("{error:#}"));
        let missing = self.failed().map(str::to_owned).or_else(|| why.clone()).unwrap_or_default();
        let wanted = [
            ("finds the NIC by PCI configuration space", "bareverbs found".to_owned()),
            ("brings the device up", "bareverbs up:".to_owned()),
            ("looks up by a kernel of the DPU", format!("bareverbs verified {}:", WayName::KernelDpu)),
            ("looks up by RDMA READ", format!("bareverbs verified {}:", WayName::Read)),
            ("takes the device down", "bareverbs done:".to_owned()),
        ];
        let mut verdicts: Vec<_> =
            wanted.into_iter().map(|(case, beginning)| (case, self.verdict(&beginning, &missing))).collect();
        let off = why.map_or_else(|| Verdict::Pass(String::new()), Verdict::Fail);
        verdicts.push(("switches the machine off", off));
        verdicts
    }

    fn verdict(&self, beginning: &str, missing: &str) -> Verdict {
        let complete = |line: &str| match beginning.contains("verified") {
            true => line.starts_with(&format!("{} values, {} absent", rows::ROWS, rows::ABSENT)),
            false => true,
        };
        match self.last(beginning) {
            Some(line) if complete(line) => Verdict::Pass(line.to_owned()),
            Some(line) => Verdict::Fail(format!("not all rows: {line}")),
            None => Verdict::Fail(format!("no '{beginning}' on the console; {missing}")),
        }
    }
}

/// Runs an image to its end and answers its lines.
fn converse(root: &Root, image: &Image, console: &std::path::Path, seen: &mut Seen) -> Result<()> {
    let mut emulator = Emulator::start(root, image, console)?;
    let (own, other) = emulator.far_wire();
    let mut peer = Peer::open(&own, &other)?;
    let deadline = Instant::now() + LIMIT;
    loop {
        interrupt::check()?;
        if Instant::now() > deadline {
            bail!("not at its end after {} s; see {}", LIMIT.as_secs(), console.display());
        }
        let ended = emulator.ended()?;
        while let Some(line) = emulator.line()? {
            if line.starts_with("bareverbs offer") {
                let offer = Offer::parse(&line).with_context(|| format!("the image said '{line}'"))?;
                let answer = peer.answer(&offer)?;
                emulator.say(&answer.to_string())?;
            }
            seen.lines.push(line);
        }
        if let Some(status) = ended {
            return if status.success() { Ok(()) } else { bail!("QEMU ended with {status}") };
        }
        peer.step()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &[&str]) -> Vec<bool> {
        let seen = Seen { lines: lines.iter().map(|line| (*line).to_owned()).collect() };
        let verdicts = seen.verdicts(Ok(()));
        verdicts.iter().map(|(_, verdict)| matches!(verdict, Verdict::Pass(_))).collect()
    }

    #[test]
    fn only_verified_rows_pass() {
        let all = format!("{} values, {} absent, 1.00 round trips each", rows::ROWS, rows::ABSENT);
        let (dpu, read) =
            (format!("bareverbs verified kernel-dpu: {all}"), format!("bareverbs verified read: {all}"));
        let lines = ["bareverbs found X", "bareverbs up: port", &dpu, &read, "bareverbs done: 0"];
        assert_eq!(seen(&lines), [true; 6]);
        let few = ["bareverbs found X", "bareverbs verified read: 3 values, 0 absent, 1 round trips"];
        assert_eq!(seen(&few), [true, false, false, false, false, true]);
    }
}
