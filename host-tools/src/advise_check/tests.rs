use super::*;
use crate::advise::model::AdvisedWay;
use bareverbs_prm::time::Duration;
use bareverbs_sim::run::Preset;
use grid::Point;
use verdict::PointVerdict;

/// The goal holds on the short grid, whatever the seed.
#[test]
fn the_advice_of_a_short_grid_is_good() {
    for seed in [1, 2] {
        let checked = Checked::of(&Grid::quick(), seed).expect("runs");
        assert!(checked.is_good(), "{}", report::text(&checked));
    }
}

fn one_point() -> Grid {
    let Grid { presets, span, .. } = Grid::quick();
    let (hops, bytes, updates, loads) = (vec![2], vec![64], vec![None], vec![0.5]);
    Grid { presets: presets[2..].to_vec(), hops, bytes, updates, loads, span }
}

#[test]
fn the_seed_decides_everything() {
    let measured = |seed| Checked::of(&one_point(), seed).expect("runs").verdicts[0].measured;
    assert_eq!(measured(1), measured(1));
    assert_ne!(measured(1), measured(2));
}

/// A check that does not see load or updates would find any advice good that ignores them.
#[test]
fn load_and_updates_cost_time_in_the_simulator() {
    let at = |load, updates| {
        let span = Duration::from_millis(50);
        let grid = Grid { loads: vec![load], updates: vec![updates], span, ..one_point() };
        Checked::of(&grid, 1).expect("runs").verdicts[0].measured
    };
    let (idle, busy) = (at(0.1, None), at(0.8, None));
    for way in [AdvisedWay::KernelDpu, AdvisedWay::KernelNic, AdvisedWay::Cpu] {
        assert!(busy[way as usize] > 1.3 * idle[way as usize], "{}: {idle:?} {busy:?}", way.name());
    }
    let changing = at(0.1, Some(Duration::from_micros(1)));
    // A walk that begins again costs READs and the DPU microseconds; the other ways, little more than their queues vary.
    for way in [AdvisedWay::Read, AdvisedWay::KernelDpu] {
        assert!(changing[way as usize] > 1.03 * idle[way as usize], "{}: {idle:?} {changing:?}", way.name());
    }
}

fn verdict(measured: [f64; 4], advised: AdvisedWay) -> PointVerdict {
    let point = Point { hops: 1, bytes: 64, updates: None, load: 0.5 };
    let best = AdvisedWay::Read;
    PointVerdict { preset: Preset::BF3_ARM, point, retries: 0.0, modelled: measured, measured, advised, best }
}

#[test]
fn the_verdict_rejects_bad_advice() {
    let times = [100.0, 108.0, 150.0, 200.0];
    let checked = |ways: &[AdvisedWay]| {
        let verdicts = ways.iter().map(|way| verdict(times, *way)).collect();
        Checked { seed: 1, verdicts }
    };
    let close = checked(&[AdvisedWay::Read, AdvisedWay::KernelDpu]);
    assert_eq!((close.share(), close.is_good()), (1.0, true));
    assert!((close.mean_regret() - 0.04).abs() < 1e-9);
    let far = checked(&[AdvisedWay::Read, AdvisedWay::KernelNic]);
    assert_eq!((far.share(), far.is_good()), (0.5, false));
    let often_close = checked(&[AdvisedWay::KernelDpu; 30]);
    assert_eq!((often_close.share(), often_close.is_good()), (1.0, false), "8 % on average");
}
