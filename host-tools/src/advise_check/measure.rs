//! How long lookups take at a point.

use super::grid::Point;
use super::scene::{CheckScene, PointTraffic};
use crate::advise::costs::Costs;
use crate::advise::model::AdvisedWay;
use bareverbs::prm::time::Duration;

/// Lookups that are measured at least.
const LEAST: u32 = 8;
/// Time before the first measurement, as a part of the whole: the queue has to fill first.
const WARM_UP: u32 = 10;

/// What a load leaves of the server if lookups are measured for the longest time.
const LEFT: f64 = 0.1;

/// The traffic of a point if lookups go by `way`. Others keep the server busy with short ones.
fn traffic(costs: &Costs, way: AdvisedWay, point: &Point) -> PointTraffic {
    let busy = match way {
        AdvisedWay::Read => None,
        AdvisedWay::KernelDpu => Some(costs.dpu),
        AdvisedWay::KernelNic => Some(costs.nic),
        AdvisedWay::Cpu => Some(costs.cpu),
    };
    let others = busy.map(|busy| Duration::from_picos((busy.short() / point.load * 1e3) as u64));
    PointTraffic { others, updates: point.updates, hops: point.hops }
}

/// How long to measure at a point. Queues change slowly under load, the more slowly the less of the server is left.
fn span_at(point: &Point, way: AdvisedWay, longest: Duration) -> Duration {
    let share = if way == AdvisedWay::Read { 1.0 } else { LEFT / (1.0 - point.load) };
    Duration::from_picos((longest.as_picos() as f64 * share.min(1.0)) as u64)
}

/// Mean nanoseconds of a lookup by `way`.
pub fn mean(
    scene: &mut CheckScene,
    costs: &Costs,
    way: AdvisedWay,
    point: &Point,
    longest: Duration,
) -> anyhow::Result<f64> {
    let span = span_at(point, way, longest);
    let traffic = traffic(costs, way, point);
    scene.begin(&traffic);
    let warm = Duration::from_picos(span.as_picos() / u64::from(WARM_UP));
    scene.run(way, &traffic, scene.now() + warm)?;
    let end = scene.now() + span;
    let (mut count, mut sum) = (0, 0.0);
    while count < LEAST || scene.now() < end {
        sum += scene.lookup(way, &traffic)?.as_picos() as f64 / 1e3;
        count += 1;
    }
    scene.end(way, &traffic)?;
    Ok(sum / f64::from(count))
}
