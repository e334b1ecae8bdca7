//! Nanoseconds of wall-clock time for each work request and each completion. `rig` describes the workload;
//! the example `data_path_instructions` of `bareverbs-core` counts instructions.
//!
//! ```text
//! cargo bench -p bareverbs-tests --bench data_path
//! ```

mod rig;

use criterion::{Criterion, Throughput, criterion_main};
use rig::{Bench, CHUNK, Row};
use std::time::{Duration, Instant};

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn chunk(bench: &mut Bench, row: Row) -> Duration {
    bench.prepare(row);
    let elapsed = bench.run(row, |work| {
        let start = Instant::now();
        work();
        start.elapsed()
    });
    bench.retire(row);
    elapsed
}

fn data_path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("data_path");
    group.throughput(Throughput::Elements(CHUNK as u64)).sample_size(31);
    for (row, name, ..) in Row::ALL {
        let mut bench = Bench::new();
        group.bench_function(name, |b| {
            b.iter_custom(|chunks| (0..chunks).map(|_| chunk(&mut bench, row)).sum());
        });
    }
    group.finish();
}

#[allow(missing_docs, reason = "the macro makes a public function")]
mod group {
    use super::data_path;
    criterion::criterion_group!(benches, data_path);
}
criterion_main!(group::benches);
