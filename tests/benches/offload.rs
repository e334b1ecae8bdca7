//! Wall-clock time of a whole offload server for each lookup. The example `kernel_speed`, whose server this is, counts its
//! instructions.
//!
//! ```text
//! cargo bench -p bareverbs-tests --features bareverbs-offload/std --bench offload
//! ```

#[path = "../../offload/native/examples/kernel_speed/server.rs"]
mod server;

use criterion::{Criterion, Throughput, criterion_main};
use server::{SLOTS, lookups};

fn offload(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("offload");
    // Criterion then prints lookups a second, of one core.
    group.throughput(Throughput::Elements(SLOTS as u64));
    for (name, value) in [("server, lookup of 64 B", 64), ("server, lookup of 4 KiB", 4096)] {
        let mut call = lookups(value);
        group.bench_function(name, |bencher| bencher.iter(&mut call));
    }
    group.finish();
}

#[allow(missing_docs, reason = "the macro makes a public function")]
mod group {
    use super::offload;
    criterion::criterion_group!(benches, offload);
}
criterion_main!(group::benches);
