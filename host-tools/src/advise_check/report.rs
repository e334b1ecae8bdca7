//! The result as text and as JSON.

use super::verdict::{Checked, GOOD_SHARE, MEAN_REGRET, PointVerdict};
use crate::Failure;
use crate::advise::model::AdvisedWay;
use crate::output::json_object;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn by_way(nanos: &[f64; 4]) -> Value {
    let values = AdvisedWay::ALL.map(|way| (way.name().to_owned(), json!(nanos[way as usize].round())));
    Value::Object(values.into_iter().collect::<Map<_, _>>())
}

fn object(verdict: &PointVerdict) -> Value {
    let PointVerdict { preset, point, retries, modelled, measured, advised, best } = verdict;
    json!({
        "preset": preset.name,
        "hops": point.hops,
        "bytes": point.bytes,
        "update_every_nanoseconds": point.updates.map(|every| every.as_nanos()),
        "retries": rounded(*retries),
        "load": point.load,
        "modelled_nanoseconds": by_way(modelled),
        "measured_nanoseconds": by_way(measured),
        "advised": advised.name(),
        "best": best.name(),
        "regret": rounded(verdict.regret()),
    })
}

/// One JSON object.
pub fn json(checked: &Checked) -> Result<String, Failure> {
    json_object(
        "advise-check",
        json!({
            "seed": checked.seed,
            "points": checked.verdicts.iter().map(object).collect::<Vec<_>>(),
            "within_ten_percent": rounded(checked.share()),
            "mean_regret": rounded(checked.mean_regret()),
            "good": checked.is_good(),
        }),
    )
}

/// A line for each point, and one for all.
pub fn text(checked: &Checked) -> String {
    let mut text = format!("seed {}: simulated microseconds of a lookup\n", checked.seed);
    let head = AdvisedWay::ALL.map(|way| format!("{:>11}", way.name())).concat();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{:10} {:>4} {:>6} {:>7} {:>4}{head}  {:10} {:10} regret",
        "preset", "hops", "bytes", "updates", "load", "advised", "best"
    );
    for verdict in &checked.verdicts {
        let PointVerdict { preset, point, measured, advised, best, .. } = verdict;
        let times = AdvisedWay::ALL.map(|way| format!("{:>11.2}", measured[way as usize] / 1e3)).concat();
        let updates =
            point.updates.map_or("none".to_owned(), |every| format!("{} µs", every.as_nanos() / 1000));
        let _ = writeln!(
            text,
            "{:10} {:>4} {:>6} {updates:>7} {:>4}{times}  {:10} {:10} {:.1} %{}",
            preset.name,
            point.hops,
            point.bytes,
            point.load,
            advised.name(),
            best.name(),
            verdict.regret() * 100.0,
            if verdict.is_close() { "" } else { " !" },
        );
    }
    let _ = write!(
        text,
        "{} points: the advised way takes at most 10 % longer than the best at {:.1} % of them (goal: {:.0} %), and {:.1} % \
         on average (goal: {:.0} %)",
        checked.verdicts.len(),
        checked.share() * 100.0,
        GOOD_SHARE * 100.0,
        checked.mean_regret() * 100.0,
        MEAN_REGRET * 100.0,
    );
    text
}
