//! The advised way, the best one, and what the advice costs.

use super::grid::{Grid, Point};
use super::measure::mean;
use super::scene::{CheckScene, ColumnPlan};
use super::table::Chain;
use crate::advise::costs::Costs;
use crate::advise::model::{AdvisedWay, Case, best, time};
use anyhow::Context as _;
use bareverbs_prm::time::Duration;
use bareverbs_sim::run::Preset;

/// How much longer than the best way the advised one may take at a point that counts as good.
const CLOSE: f64 = 0.10;
/// The share of points that have to be good.
pub const GOOD_SHARE: f64 = 0.95;
/// The mean regret that is allowed.
pub const MEAN_REGRET: f64 = 0.05;

/// A point with its times.
#[derive(Debug, Clone)]
pub struct PointVerdict {
    pub preset: Preset,
    pub point: Point,
    /// Share of walks that the model expects to begin again.
    pub retries: f64,
    /// Nanoseconds of a lookup by each way, by the model and in the simulator.
    pub modelled: [f64; 4],
    pub measured: [f64; 4],
    pub advised: AdvisedWay,
    pub best: AdvisedWay,
}

impl PointVerdict {
    /// How much longer than the best way the advised one takes.
    pub fn regret(&self) -> f64 {
        self.measured[self.advised as usize] / self.measured[self.best as usize] - 1.0
    }

    pub fn is_close(&self) -> bool {
        self.regret() <= CLOSE
    }
}

/// All points.
#[derive(Debug, Clone)]
pub struct Checked {
    pub seed: u64,
    pub verdicts: Vec<PointVerdict>,
}

impl Checked {
    /// Measures every point of the grid.
    pub fn of(grid: &Grid, seed: u64) -> anyhow::Result<Self> {
        let mut verdicts = Vec::new();
        for preset in &grid.presets {
            for bytes in &grid.bytes {
                verdicts.extend(Column { grid, preset: *preset, bytes: *bytes, seed }.verdicts()?);
            }
        }
        Ok(Self { seed, verdicts })
    }

    /// The share of points at which the advised way takes at most 10 % longer than the best.
    pub fn share(&self) -> f64 {
        self.verdicts.iter().filter(|verdict| verdict.is_close()).count() as f64 / self.verdicts.len() as f64
    }

    pub fn mean_regret(&self) -> f64 {
        self.verdicts.iter().map(PointVerdict::regret).sum::<f64>() / self.verdicts.len() as f64
    }

    pub fn is_good(&self) -> bool {
        self.share() >= GOOD_SHARE && self.mean_regret() <= MEAN_REGRET
    }
}

/// The points of a preset and a size, which share a scene.
struct Column<'a> {
    grid: &'a Grid,
    preset: Preset,
    bytes: u32,
    seed: u64,
}

impl Column<'_> {
    fn verdicts(&self) -> anyhow::Result<Vec<PointVerdict>> {
        let Self { grid, preset, bytes, seed } = *self;
        let costs = Costs::of(preset);
        let mut scene = CheckScene::build(&ColumnPlan { seed, preset, hops: &grid.hops, bytes })?;
        let mut verdicts = Vec::new();
        for hops in &grid.hops {
            for updates in &grid.updates {
                let point = Point { hops: *hops, bytes, updates: *updates, load: 0.0 };
                let mut measure = |way, point: &Point| {
                    mean(&mut scene, &costs, way, point, grid.span).with_context(|| {
                        format!("{} with {}, seed {seed}: {point:?}", way.name(), preset.name)
                    })
                };
                // READs do not meet the load.
                let read = measure(AdvisedWay::Read, &point)?;
                for load in &grid.loads {
                    let point = Point { load: *load, ..point };
                    let mut measured = [read; 4];
                    for way in AdvisedWay::ALL.into_iter().filter(|way| *way != AdvisedWay::Read) {
                        measured[way as usize] = measure(way, &point)?;
                    }
                    verdicts.push(judged(&costs, point, measured)?);
                }
            }
        }
        Ok(verdicts)
    }
}

fn judged(costs: &Costs, point: Point, measured: [f64; 4]) -> anyhow::Result<PointVerdict> {
    let Point { hops, bytes, load, .. } = point;
    let retries = retries(costs, &point)?;
    let case = Case { hops, bytes, load, retries };
    let modelled = AdvisedWay::ALL.map(|way| time(costs, way, &case));
    let fastest = AdvisedWay::ALL
        .into_iter()
        .min_by(|a, b| measured[*a as usize].total_cmp(&measured[*b as usize]))
        .unwrap_or(AdvisedWay::Read);
    let advised = best(costs, &case);
    Ok(PointVerdict { preset: costs.preset, point, retries, modelled, measured, advised, best: fastest })
}

/// The share of time in which the line is being changed, and so of walks that begin again.
fn retries(costs: &Costs, point: &Point) -> anyhow::Result<f64> {
    let Some(updates) = point.updates else { return Ok(0.0) };
    let stores = Chain::new(1, &[], 0)?.stores_of_a_change()?;
    let change: Duration = costs.preset.cpu_kernel.per_dma.saturating_mul(stores.into());
    Ok(change.as_picos() as f64 / updates.as_picos() as f64)
}
