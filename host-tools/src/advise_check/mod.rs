//! `bareverbs advise-check`: is the advice good? Compares what [`advise`](crate::advise) recommends with the fastest way in
//! the simulator, point by point.
//!
//! * `grid`: the points.
//! * `table`, `served`, `scene`: a chain that is read, by a client of each way, while others ask the same server and a
//!   writer changes the chain.
//! * `measure`: how long lookups take.
//! * `verdict`: the advised way, the best one and the regret of each point.
//! * `report`: text and JSON.
//!
//! Both sides know the costs of the same preset, so this checks the model: what it adds up, what waits for what, and what it
//! leaves out. It does not check the preset.

mod grid;
mod measure;
mod report;
mod scene;
mod served;
mod table;
mod verdict;

use crate::Failure;
use crate::output::print;
use clap::Args;
use grid::Grid;
use verdict::Checked;

/// Arguments of `bareverbs advise-check`.
#[derive(Debug, Clone, Args)]
pub struct AdviseCheckArguments {
    /// Check 24 points instead of 1,350.
    #[arg(long)]
    quick: bool,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Measures all points and prints them. Returns whether the advice is good enough.
pub fn run(arguments: &AdviseCheckArguments) -> Result<bool, Failure> {
    let grid = if arguments.quick { Grid::quick() } else { Grid::full() };
    let checked = Checked::of(&grid, arguments.seed).map_err(Failure::Run)?;
    print(&if arguments.json { report::json(&checked)? } else { report::text(&checked) })?;
    Ok(checked.is_good())
}

#[cfg(test)]
mod tests;
