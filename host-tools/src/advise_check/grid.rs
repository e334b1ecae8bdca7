//! The points at which the advice is checked.

use bareverbs_prm::time::Duration;
use bareverbs_sim::run::Preset;

/// A point, apart from its preset.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Elements before the value.
    pub hops: u32,
    /// Bytes of the value.
    pub bytes: u32,
    /// Time between two updates of the line that leads to the value, on the average.
    pub updates: Option<Duration>,
    /// Load of the server.
    pub load: f64,
}

/// The values of each dimension; every combination is a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    pub presets: Vec<Preset>,
    pub hops: Vec<u32>,
    pub bytes: Vec<u32>,
    pub updates: Vec<Option<Duration>>,
    pub loads: Vec<f64>,
    /// How long lookups are measured at each point and by each way, at a load of 0.9.
    pub span: Duration,
}

impl Grid {
    /// All of it.
    pub fn full() -> Self {
        let every = |micros| Some(Duration::from_micros(micros));
        Self {
            presets: Preset::ALL.to_vec(),
            hops: vec![1, 2, 4, 8, 16, 32],
            bytes: vec![64, 1_024, 4_096, 16_384, 65_536],
            updates: vec![None, every(10), every(2)],
            loads: vec![0.1, 0.3, 0.5, 0.7, 0.9],
            span: Duration::from_millis(20),
        }
    }

    /// A few points of each dimension.
    pub fn quick() -> Self {
        Self {
            hops: vec![1, 8],
            bytes: vec![64, 16_384],
            updates: vec![Some(Duration::from_micros(10))],
            loads: vec![0.1, 0.7],
            span: Duration::from_millis(5),
            ..Self::full()
        }
    }
}
