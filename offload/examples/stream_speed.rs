//! How many bytes of a stream one core processes per second: `cargo run --release -p bareverbs-offload
//! --example stream_speed`.
//!
//! Each line is the fastest of 50 runs over 4 MiB of random values, handed over in messages of 4 KiB. The
//! fastest run was the least disturbed by the rest of the machine.

use bareverbs_offload::grant::{Grant, GrantFault};
use bareverbs_offload::kernels::checksum::crc64;
use bareverbs_offload::streams::hyper_log_log::{CountingTap, Sketch};
use bareverbs_offload::streams::shuffle::{PartitionRange, Shuffle};
use bareverbs_offload::streams::{StreamFault, StreamKernel};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of the stream.
const STREAM: usize = 4 << 20;
/// Bytes of a message.
const MESSAGE: usize = 4096;

/// Random values.
fn stream() -> Vec<u8> {
    let values = (0..STREAM as u64 / 8).map(|n| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11);
    values.flat_map(u64::to_le_bytes).collect()
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn timed(run: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    run();
    begin.elapsed()
}

/// Prints the fastest of 50 runs.
fn fastest(name: &str, mut run: impl FnMut() -> Duration) {
    let best = (0..50).map(|_| run()).min().unwrap_or_default();
    let gigabytes = STREAM as f64 / 1e9 / best.as_secs_f64();
    println!("{name:34} {gigabytes:6.2} GB/s  {:6.2} ns a value", 8.0 / gigabytes);
}

/// Hands the stream over, and carries out the writes to `region`.
fn pass(kernel: &mut impl StreamKernel, stream: &[u8], region: &mut [u8]) -> Result<(), StreamFault> {
    for message in stream.chunks(MESSAGE) {
        let mut rest = message;
        while !rest.is_empty() {
            let taken = kernel.take(rest)?;
            rest = &rest[taken..];
            write_all(kernel, region);
        }
    }
    while !kernel.finish()? {
        write_all(kernel, region);
    }
    write_all(kernel, region);
    Ok(())
}

fn write_all(kernel: &mut impl StreamKernel, region: &mut [u8]) {
    while let Some(write) = kernel.poll_write() {
        let (at, tag) = (write.to.range().offset() as usize, write.tag);
        region[at..at + write.bytes.len()].copy_from_slice(write.bytes);
        kernel.write_done(tag);
    }
}

fn shuffle<const PARTITIONS: usize>(stream: &[u8], region: &mut [u8]) -> Result<(), Box<dyn Error>> {
    let mut counts = [0_u64; PARTITIONS];
    for value in stream.as_chunks().0 {
        counts[u64::from_le_bytes(*value) as usize % PARTITIONS] += 1;
    }
    let mut end = 0;
    let ranges = counts.map(|count| {
        let range = PartitionRange { offset: end, length: count * 8 };
        end += range.length;
        range
    });
    let grant = Grant::new(0, STREAM as u64)?.writable();
    let new = || -> Result<_, GrantFault> { Ok(Box::new(Shuffle::<PARTITIONS, 64>::new(grant, ranges)?)) };
    new()?;
    fastest(&format!("shuffle into {PARTITIONS} partitions"), || {
        let Ok(mut kernel) = new() else { return Duration::ZERO };
        timed(|| assert_eq!(pass(&mut *kernel, stream, region), Ok(())))
    });
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (stream, mut region) = (stream(), vec![0; STREAM]);
    fastest("copy (what a WRITE does)", || timed(|| region.copy_from_slice(black_box(&stream))));
    shuffle::<16>(&stream, &mut region)?;
    shuffle::<1024>(&stream, &mut region)?;
    fastest("HyperLogLog, 4,096 registers", || {
        let mut sketch = Sketch::<4096>::new();
        timed(|| {
            stream.as_chunks().0.iter().for_each(|value| sketch.add(u64::from_le_bytes(*value)));
            black_box(&mut sketch);
        })
    });
    let grant = Grant::new(0, STREAM as u64)?.writable();
    fastest("the same as a tap, with its copies", || {
        let mut tap = CountingTap::<4096, MESSAGE>::new(grant);
        timed(|| assert_eq!(pass(&mut tap, &stream, &mut region), Ok(())))
    });
    fastest("CRC-64 of the consistency kernel", || {
        timed(|| {
            black_box(crc64(black_box(&stream)));
        })
    });
    Ok(())
}
