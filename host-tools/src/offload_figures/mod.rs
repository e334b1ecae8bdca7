//! `bareverbs offload-figures`: the figures of StRoM (Sidler et al., EuroSys 2020) beside the results of our
//! kernels with the same components.
//!
//! * [`components`]: the cost of each part with its source, stated before anything is computed.
//! * [`served`]: runs a kernel to its end over real memory, in virtual time.
//! * [`paper`]: the paper's figures.
//! * [`rows`]: one row for each point.
//!
//! The kernels are those that a DPU or a NIC runs, the runtime is the real one, and so are hops, bytes and
//! writes. Their cost is the model: no figure here was measured on hardware, and a ratio that only reproduces
//! what a component was fitted to says so in its note.

pub mod components;
pub mod paper;
pub mod rows;
pub mod served;

use crate::Failure;
use crate::output::{json_object, print};
use clap::Args;
use components::Components;
use rows::{FigureRow, all};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Arguments of `bareverbs offload-figures`.
#[derive(Debug, Clone, Args)]
pub struct FiguresArguments {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Computes all figures and prints them. Returns whether each is within 10 % of the paper's or says why not.
pub fn run(arguments: &FiguresArguments) -> Result<bool, Failure> {
    let components = Components::STROM_10G;
    let rows = all(&components)?;
    let text = if arguments.json {
        let rows: Vec<Value> = rows.iter().map(object).collect();
        json_object("offload-figures", json!({"components": components.object(), "rows": rows}))?
    } else {
        text(&components, &rows)
    };
    print(&text)?;
    Ok(rows.iter().all(FigureRow::is_explained))
}

fn object(row: &FigureRow) -> Value {
    json!({"figure": row.figure, "point": row.point, "what": row.what, "paper": row.paper, "here": row.here, "note": row.note})
}

fn text(components: &Components, rows: &[FigureRow]) -> String {
    let mut text = format!("components: {components}\n");
    for row in rows {
        let note = row.note.map_or(String::new(), |note| format!("  ({note})"));
        let FigureRow { figure, point, what, paper, here, .. } = row;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{figure:12} {point:22} {what:28} paper {paper:8.3}  here {here:8.3}{note}");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests;
