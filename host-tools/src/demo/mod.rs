//! `bareverbs demo`: a key-value file in the memory of a simulated server, and a client on another simulated host that
//! looks up every key in six ways and verifies every value.
//!
//! * [`data`]: the file.
//! * [`scene`]: three hosts on a switch, each with its own driver, and the table; `wiring`, `dpu_wiring` and `cpu_wiring` boot and connect them, `swaps`
//!   deploys the program, `advice` chooses among ways.
//! * `changes`: a writer that changes the table meanwhile.
//! * [`ways`]: the lookups.
//! * [`report`]: what was found.

mod advice;
mod changes;
mod cpu_wiring;
pub mod data;
mod dpu_wiring;
pub mod hosts;
pub mod report;
pub mod scene;
mod swaps;
pub mod way_name;
pub mod ways;
pub(crate) mod wiring;

use crate::Failure;
use anyhow::{Context as _, anyhow};
use bareverbs::sim::MemoryConfig;
use bareverbs::sim::run::preset::Preset;
use clap::Args;
use data::{DataSet, Header};
use hosts::SceneConfig;
use report::{Context, Report};
use scene::Scene;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Arguments of `bareverbs demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArguments {
    /// Key-value file, CSV or TSV: the first column is the key (1 to 64 bytes), the rest the value (up to 64 KiB). `-`
    /// is standard input. Default: the table of PRM fields.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Whether the first line of the file is a header; `auto`: if it starts with `key` and `value`.
    #[arg(long, value_enum, default_value_t)]
    pub header: Header,
    /// Seed of all random choices. The same seed gives the same digest.
    #[arg(long, default_value_t = 1, value_parser = parse_seed)]
    pub seed: u64,
    /// Fraction of frames lost on every link, from 0 to less than 1.
    #[arg(long, default_value_t = 0.0, value_parser = parse_loss)]
    pub loss: f64,
    /// Write all frames to this file, as pcapng.
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Also record in that file what hosts and devices did, as text packets next to the frames; `report` shows them.
    #[arg(long, requires = "capture")]
    pub records: bool,
    /// Replace the deployed program this many times while it answers.
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub swaps: u64,
    /// Make this many changes to the table while it is read: new values, and keys that come and go, so that the table
    /// grows.
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub changes: u64,
    /// Latency preset of the simulation.
    #[arg(long, default_value = "strom-10g", value_parser = preset_names())]
    pub preset: String,
    /// Print one JSON object, and nothing else, to standard output.
    #[arg(long)]
    pub json: bool,
}

fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

fn parse_loss(text: &str) -> Result<f64, String> {
    let loss: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..1.0).contains(&loss) {
        Ok(loss)
    } else {
        Err("expected a number from 0 to less than 1, such as 0.01".into())
    }
}

fn preset_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(Preset::ALL.map(|preset| preset.name))
}

/// Runs the demo and prints the results. Returns whether everything was verified.
pub fn run(arguments: &DemoArguments) -> Result<bool, Failure> {
    let (report, context) = execute(arguments)?;
    let text =
        if arguments.json { report.json().context("writing the report")? } else { report.text(&context) };
    crate::output::print(text.trim_end())?;
    Ok(report.all_verified(context.absent))
}

/// Runs the demo and returns the results.
pub fn execute(arguments: &DemoArguments) -> Result<(Report, Context), Failure> {
    let data = data::load(arguments.data.as_deref(), arguments.header)
        .map_err(|error| Failure::Input(describe(arguments, error)))?;
    let preset = Preset::find(&arguments.preset)
        .ok_or_else(|| Failure::Input(anyhow!("there is no preset called {:?}", arguments.preset)))?;
    // The capture may overwrite a file, so it is created only after everything else was checked.
    let capture = create_capture(arguments)?;
    let memory = MemoryConfig::default();
    let DemoArguments { seed, loss, records, changes, .. } = *arguments;
    let config = SceneConfig { seed, loss, preset, memory, records, changes };
    let mut scene = Scene::build(&config, &data.rows, capture)?;
    let absent = ways::absent_keys(&data.rows);
    let ways = ways::run_all(&mut scene, &data.rows, &absent, arguments.swaps)?;
    let frames = scene.finish_capture()?;
    let report = Report {
        schema: report::SCHEMA,
        rows: data.rows.len() as u64,
        seed: arguments.seed,
        loss: arguments.loss,
        preset: preset.name,
        digest: format!("{:016x}", scene.digest()),
        program_swaps: Some(arguments.swaps).filter(|swaps| *swaps > 0),
        writer: scene.writer_report(),
        ways,
    };
    Ok((report, context(arguments, &data, absent.len(), frames)))
}

fn context(arguments: &DemoArguments, data: &DataSet, absent: usize, frames: u64) -> Context {
    Context {
        data: data.name.clone(),
        shortened: data.shortened,
        absent: absent as u64,
        capture: arguments.capture.as_ref().map(|path| (path.display().to_string(), frames)),
    }
}

fn describe(arguments: &DemoArguments, error: data::DataError) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    match &arguments.data {
        Some(path) => error.context(format!("--data {}", path.display())),
        None => error,
    }
}

/// Whether two paths lead to the same file, through whatever links.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    identity(a).is_some_and(|file| Some(file) == identity(b))
}

fn create_capture(arguments: &DemoArguments) -> Result<Option<Box<dyn Write>>, Failure> {
    let Some(path) = &arguments.capture else { return Ok(None) };
    if arguments.data.as_ref().is_some_and(|data| is_same_file(data, path)) {
        let path = path.display();
        return Err(Failure::Input(anyhow!(
            "--capture {path}: that is the file of --data, and would be overwritten"
        )));
    }
    let file = File::create(path)
        .with_context(|| format!("--capture {}: cannot be written", path.display()))
        .map_err(Failure::Input)?;
    Ok(Some(Box::new(BufWriter::new(file))))
}
