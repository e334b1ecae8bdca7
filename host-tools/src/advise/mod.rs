//! `bareverbs advise`: READs, a kernel near the data, or a core of the server? Applies [`model`] to the costs of a
//! preset.

pub mod costs;
pub mod model;

use crate::Failure;
use crate::output::{json_object, print};
use anyhow::anyhow;
use bareverbs_sim::run::Preset;
use clap::Args;
use costs::Costs;
use model::{AdvisedWay, Case, best, break_even, time};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Arguments of `bareverbs advise`.
#[derive(Debug, Clone, Args)]
pub struct AdviseArguments {
    /// Elements read before the value, such as the length of a chain. Comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32", value_name = "ELEMENTS", value_parser = parse_hops)]
    hops: Vec<u32>,
    /// Size of the value in bytes. Comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "64,4096", value_name = "BYTES")]
    size: Vec<u32>,
    /// Share of time in which the DPU, the engine in the NIC or the core is busy with short lookups of others, from 0 to
    /// less than 1. Comma-separated.
    #[arg(long, value_delimiter = ',', default_value = "0,0.7", value_name = "SHARE", value_parser = parse_share)]
    load: Vec<f64>,
    /// Fraction of walks that meet an element that is being changed and begin again, from 0 to less than 1.
    #[arg(long, default_value = "0", value_name = "SHARE", value_parser = parse_share)]
    retries: f64,
    /// Preset with the costs.
    #[arg(long, default_value = "bf3-arm", value_parser = clap::builder::PossibleValuesParser::new(Preset::ALL.map(|preset| preset.name)))]
    preset: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn parse_hops(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("every lookup reads at least one element: give 1 or more".into()),
        Ok(hops) => Ok(hops),
        Err(_) => Err("expected a number of elements, such as 8".into()),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to less than 1, such as 0.7".into()),
    }
}

/// Prints the time of each way, and from which length it is faster than READs.
pub fn run(arguments: &AdviseArguments) -> Result<(), Failure> {
    let preset = Preset::find(&arguments.preset)
        .ok_or_else(|| Failure::Input(anyhow!("there is no preset called {:?}", arguments.preset)))?;
    let advice = Advice { costs: Costs::of(preset), arguments };
    print(&if arguments.json { json_object("advise", advice.object())? } else { advice.text() })
}

struct Advice<'a> {
    costs: Costs,
    arguments: &'a AdviseArguments,
}

impl Advice<'_> {
    /// Sizes and loads; the number of elements is left open.
    fn loads(&self) -> impl Iterator<Item = Case> {
        let AdviseArguments { size, load, retries, .. } = self.arguments;
        size.iter().flat_map(move |bytes| {
            load.iter().map(move |load| Case { hops: 0, bytes: *bytes, load: *load, retries: *retries })
        })
    }

    fn cases(&self) -> impl Iterator<Item = Case> {
        self.loads().flat_map(|case| self.arguments.hops.iter().map(move |hops| Case { hops: *hops, ..case }))
    }

    /// A number for each way, under its name.
    fn by_way(of: impl Fn(AdvisedWay) -> Value) -> Value {
        Value::Object(
            AdvisedWay::ALL.map(|way| (way.name().to_owned(), of(way))).into_iter().collect::<Map<_, _>>(),
        )
    }

    fn object(&self) -> Value {
        let case = |case: Case| {
            let Case { hops, bytes, load, retries } = case;
            let times = Self::by_way(|way| json!(time(&self.costs, way, &case).round()));
            let best = best(&self.costs, &case).name();
            json!({"hops": hops, "bytes": bytes, "load": load, "retries": retries, "nanoseconds": times, "best": best})
        };
        let even = |case: Case| {
            let from = Self::by_way(|way| json!(break_even(&self.costs, way, &case)));
            json!({"bytes": case.bytes, "load": case.load, "retries": case.retries, "hops": from})
        };
        let preset = self.costs.preset.name;
        json!({
            "preset": preset,
            "cases": self.cases().map(case).collect::<Vec<_>>(),
            "break_even": self.loads().map(even).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let preset = self.costs.preset.name;
        let mut text = format!("preset {preset}: modelled microseconds of a lookup, nothing measured\n");
        let head = AdvisedWay::ALL.map(|way| format!("{:>11}", way.name())).concat();
        let _ = writeln!(text, "{:>5} {:>6} {:>5}{head}  fastest", "hops", "bytes", "load");
        for case in self.cases() {
            let Case { hops, bytes, load, .. } = case;
            let times =
                AdvisedWay::ALL.map(|way| format!("{:>11.2}", time(&self.costs, way, &case) / 1e3)).concat();
            // Writing to a string does not fail.
            let _ =
                writeln!(text, "{hops:>5} {bytes:>6} {load:>5}{times}  {}", best(&self.costs, &case).name());
        }
        for case in self.loads() {
            let _ = writeln!(
                text,
                "faster than READs for {} bytes at load {}: {}",
                case.bytes,
                case.load,
                self.evens(&case)
            );
        }
        text.trim_end().to_owned()
    }

    fn evens(&self, case: &Case) -> String {
        let served = AdvisedWay::ALL.into_iter().filter(|way| *way != AdvisedWay::Read);
        let even = served.map(|way| match break_even(&self.costs, way, case) {
            Some(hops) => format!("{} from {hops} elements on", way.name()),
            None => format!("{} never", way.name()),
        });
        even.collect::<Vec<_>>().join(", ")
    }
}
