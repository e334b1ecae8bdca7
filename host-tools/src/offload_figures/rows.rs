//! One row for each point of a figure.

use super::components::Components;
use super::paper::{CONSISTENCY, COUNTING, ConsistencyPoint, FAILURES, FailurePoint, GET, LIST, SHUFFLE};
use super::served::{Served, call};
use crate::Failure;
use anyhow::Context as _;
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::Kernel as _;
use bareverbs_offload::kernels::consistency::{self, Consistency};
use bareverbs_offload::kernels::field::{ByteOrder, Field, Predicate};
use bareverbs_offload::kernels::kv_layout::object_size;
use bareverbs_offload::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use bareverbs_offload::kernels::traversal::{Action, KEYS, Length, Row, Traversal, TraversalTable, Value};
use bareverbs_offload::streams::StreamKernel;
use bareverbs_offload::streams::hyper_log_log::{CountingTap, Sketch};
use bareverbs_offload::streams::shuffle::{PartitionRange, Shuffle};
use bareverbs_offload::table::{TableConfig, TablePolicy, TableWriter};
use bareverbs_prm::time::Time;

/// How far a ratio may deviate from the paper's without a note.
const TOLERANCE: f64 = 0.10;

/// A point of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureRow {
    /// The figure of the paper.
    pub figure: &'static str,
    /// The point on its axis.
    pub point: String,
    /// The compared quantity.
    pub what: &'static str,
    /// The paper's value.
    pub paper: f64,
    /// The value of our kernels with the components.
    pub here: f64,
    /// Why the two differ by more than 10 %, or why they cannot differ.
    pub note: Option<&'static str>,
}

impl FigureRow {
    fn new(figure: &'static str, point: String, what: &'static str, ratios: [f64; 2]) -> Self {
        let [paper, here] = ratios;
        Self { figure, point, what, paper, here, note: None }
    }

    fn noted(self, note: Option<&'static str>) -> Self {
        Self { note, ..self }
    }

    /// Keeps the note only if the two values differ.
    fn noted_if_apart(self, note: &'static str) -> Self {
        let apart = !self.is_close();
        self.noted(apart.then_some(note))
    }

    /// Whether the two values are within 10 %.
    pub fn is_close(&self) -> bool {
        (self.here / self.paper - 1.0).abs() <= TOLERANCE
    }

    /// Whether they are, or a note says why not.
    pub const fn is_explained(&self) -> bool {
        let ratio = self.here / self.paper;
        self.note.is_some() || (ratio >= 1.0 - TOLERANCE && ratio <= 1.0 + TOLERANCE)
    }
}

/// All rows, figure by figure.
pub fn all(components: &Components) -> Result<Vec<FigureRow>, Failure> {
    let mut rows = Vec::new();
    for (length, read, kernel) in LIST {
        rows.push(list(components, length, read / kernel)?);
    }
    for (size, read, kernel) in GET {
        rows.push(get(components, size, read / kernel)?);
    }
    for point in &CONSISTENCY {
        rows.extend(checked(components, point)?);
    }
    for point in &FAILURES {
        rows.extend(failing(components, point)?);
    }
    rows.extend(shuffled(components)?);
    rows.extend(counted()?);
    Ok(rows)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

/// A list of `length` elements of 64 bytes (key, next, pointer to the value), and a value of 64 bytes for each.
fn list_memory(length: u32) -> Vec<u8> {
    let mut memory = vec![0; 64 + length as usize * 128];
    for index in 0..length as usize {
        let next = if index + 1 < length as usize { 64 + (index as u64 + 1) * 128 } else { 0 };
        let at = 64 + index * 128;
        let words = [index as u64 + 1, next, at as u64 + 64];
        for (word, place) in words.iter().zip(memory[at..].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
    memory
}

/// Figure 7: the traversal kernel looks up each key of the list once, compared with a READ for each element
/// and for the value.
fn list(components: &Components, length: u32, paper: f64) -> Result<FigureRow, Failure> {
    let memory = list_memory(length);
    let (mut kernel, mut reads) = (Vec::new(), Vec::new());
    for key in 1..=u64::from(length) {
        let mut keys = [0; KEYS];
        keys[0] = key;
        let table = TraversalTable {
            start: 64,
            pointer_base: 0,
            element: 64,
            order: ByteOrder::LittleEndian,
            value: Value::Pointer(Field::word(4)),
            length: Length::Fixed(64),
            rows: [
                Row::when(Predicate::Equal, 1, Action::Emit),
                Row::otherwise(Action::Follow).pointer(Field::word(2)),
                Row::END,
                Row::END,
            ],
            keys,
            key_count: 1,
        };
        let served = call(components, Traversal::OPCODE, &table.encode(), |_| &memory)?;
        kernel.push(components.call(served.nanos, served.answer));
        reads.push(components.read(64) * f64::from(served.hops));
    }
    let here = median(reads) / median(kernel);
    let row = FigureRow::new("7 list", format!("{length} elements"), "READs / kernel", [paper, here]);
    Ok(row.noted_if_apart(
        "the paper's medians of READ and kernel fall on different elements: 30.7 µs are five accesses, 11.5 µs six",
    ))
}

/// Figure 8: a lookup that hits in the first line of our hash table. Without a kernel it takes one READ for
/// the line and one for the object.
fn get(components: &Components, size: u32, paper: f64) -> Result<FigureRow, Failure> {
    let served = looked_up(components, size).map_err(Failure::Run)?;
    let (read, kernel) = (
        components.read(64) + components.read(object_size(8, size as usize)),
        components.call(served.nanos, served.answer),
    );
    Ok(FigureRow::new("8 GET", format!("{size} B"), "two READs / kernel", [paper, read / kernel]))
}

fn looked_up(components: &Components, size: u32) -> anyhow::Result<Served> {
    let mut memory = vec![0; 32_768];
    let config = TableConfig { buckets: 4, overflow_lines: 1, seed: [3; 16], policy: TablePolicy::default() };
    let mut writer = TableWriter::create(&mut memory[..], &config).context("making a table")?;
    writer.insert(Time::ZERO, b"some key", &vec![7; size as usize]).context("filling it")?;
    let mut buffer = [0; MAX_PARAMETERS];
    let table = *writer.descriptor();
    let parameters = table.lookup(b"some key").encode(&mut buffer).context("a lookup")?;
    match call(components, KvLookup::OPCODE, parameters, |_| &memory) {
        Ok(served) => Ok(served),
        Err(Failure::Input(error) | Failure::Run(error)) => Err(error),
    }
}

/// An object with its checksum, and one that a writer has torn.
fn objects(size: u32) -> [Vec<u8>; 2] {
    let mut whole: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
    consistency::seal(&mut whole);
    let mut torn = whole.clone();
    torn[0] ^= 1;
    [whole, torn]
}

/// The consistency kernel on an object that is torn in the first `failures` reads.
fn consistent(components: &Components, size: u32, failures: u64) -> Result<f64, Failure> {
    let [whole, torn] = objects(size);
    let parameters = consistency::encode(0, size);
    let bytes = |read: u64| if read < failures { &torn[..] } else { &whole[..] };
    let served = call(components, Consistency::OPCODE, &parameters, bytes)?;
    // The kernel holds the object back until it has seen all of it, so the object takes its time over PCIe
    // once more.
    let held_back = f64::from(size) * components.pcie_per_byte;
    Ok(components.call(served.nanos, served.answer) + held_back)
}

/// Figure 9: the overhead of a check near the data, and of one on the client.
fn checked(components: &Components, point: &ConsistencyPoint) -> Result<[FigureRow; 2], Failure> {
    let ConsistencyPoint { bytes: size, read, client: software, kernel } = *point;
    let (read_here, kernel_here) = (components.read(size), consistent(components, size, 0)?);
    let software_here = read_here + f64::from(size) * components.crc_on_client_per_byte;
    let at = || format!("{size} B");
    Ok([
        FigureRow::new("9 consistent", at(), "kernel / READ", [kernel / read, kernel_here / read_here]),
        FigureRow::new(
            "9 consistent",
            at(),
            "READ and check / READ",
            [software / read, software_here / read_here],
        )
        .noted(Some("the speed of the check on the client is implied by this figure")),
    ])
}

/// Figure 10: the mean when half of the reads fail once. The client's retry is a READ without a second check,
/// as the paper's figures imply.
fn failing(components: &Components, point: &FailurePoint) -> Result<[FigureRow; 2], Failure> {
    let FailurePoint { bytes: size, client: [software, software_half], kernel: [kernel, kernel_half] } =
        *point;
    let read = components.read(size);
    let software_here = read + f64::from(size) * components.crc_on_client_per_byte;
    let (good, retried) = (consistent(components, size, 0)?, consistent(components, size, 1)?);
    let at = || format!("{size} B, half fail");
    let kernel_ratios = [kernel_half / kernel, f64::midpoint(good, retried) / good];
    let software_ratios = [software_half / software, (software_here + read / 2.0) / software_here];
    Ok([
        FigureRow::new("10 failures", at(), "kernel / without", kernel_ratios),
        FigureRow::new("10 failures", at(), "client / without", software_ratios),
    ])
}

/// Number of shuffled values, to count writes. The ratio does not depend on it once buffers fill.
const SHUFFLED: u64 = 1 << 20;
const PARTITIONS: usize = 1024;

/// Figure 11. The shuffle kernel really partitions; its writes are counted, and must keep up with the stream.
fn shuffled(components: &Components) -> Result<Vec<FigureRow>, Failure> {
    let writes = writes_of_a_shuffle().map_err(Failure::Run)?;
    let per_byte =
        writes as f64 * components.pcie_per_write / (SHUFFLED as f64 * 8.0) + components.pcie_per_byte;
    let stream = components.stream_per_byte();
    // Writes over PCIe and frames on the wire overlap: the slower one counts.
    let kernel = stream.max(per_byte);
    let software = stream + components.partition_on_client_per_byte;
    let at = |megabytes: u32| format!("{megabytes} MB");
    Ok(SHUFFLE
        .into_iter()
        .flat_map(|(megabytes, by_client, by_kernel, plain)| {
            let software = [by_client / by_kernel, software / kernel];
            [
                FigureRow::new("11 shuffle", at(megabytes), "client partitions / kernel", software)
                    .noted(Some("the speed of partitioning on the client is implied by this figure")),
                FigureRow::new(
                    "11 shuffle",
                    at(megabytes),
                    "kernel / plain WRITE",
                    [by_kernel / plain, kernel / stream],
                ),
            ]
        })
        .collect())
}

/// A stream of values with pseudorandom partitions.
fn values() -> impl Iterator<Item = u64> {
    (0..SHUFFLED).map(|n| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
}

fn writes_of_a_shuffle() -> anyhow::Result<u64> {
    let mut counts = [0_u64; PARTITIONS];
    values().for_each(|value| counts[value as usize % PARTITIONS] += 1);
    let mut end = 0;
    let ranges = counts.map(|count| {
        let range = PartitionRange { offset: end, length: count * 8 };
        end += range.length;
        range
    });
    let grant = Grant::new(0, end)?.writable();
    let mut shuffle = Box::new(Shuffle::<PARTITIONS, 64>::new(grant, ranges)?);
    let mut writes = 0;
    for value in values() {
        shuffle.take(&value.to_le_bytes())?;
        writes += carry_out(&mut *shuffle);
    }
    while !shuffle.finish()? {
        writes += carry_out(&mut *shuffle);
    }
    Ok(writes + carry_out(&mut *shuffle))
}

/// Carries out all waiting writes and counts them.
fn carry_out(kernel: &mut impl StreamKernel) -> u64 {
    let mut writes = 0;
    while let Some(write) = kernel.poll_write() {
        let tag = write.tag;
        kernel.write_done(tag);
        writes += 1;
    }
    writes
}

/// Figure 13: a tap changes no byte and adds no write, so its rate is that of WRITEs; and the error of the
/// estimate.
fn counted() -> Result<Vec<FigureRow>, Failure> {
    let mut rows = Vec::new();
    for (size, with, without) in COUNTING {
        let here = passed(size as usize).map_err(Failure::Run)?;
        let row =
            FigureRow::new("13 counting", format!("{size} B"), "with / without", [with / without, here]);
        rows.push(row.noted_if_apart(
            "at 64 B the paper's board loses 16 % to the arbitration between stack and kernel, which the model does not have",
        ));
    }
    let mut sketch = Sketch::<4096>::new();
    values().for_each(|value| sketch.add(value));
    let distinct = SHUFFLED as f64;
    let error = (sketch.estimate() / distinct - 1.0).abs() * 64.0 / 1.04;
    rows.push(
        FigureRow::new("13 counting", "2^20 values, m = 4096".into(), "error / (1.04/√m)", [1.0, error])
            .noted(Some(
                "the paper gives no error: 1 is the theory's standard error, and this is one sample",
            )),
    );
    Ok(rows)
}

/// Bytes that a tap writes for each byte that arrives.
fn passed(size: usize) -> anyhow::Result<f64> {
    let (messages, message) = (64, vec![9; size]);
    let mut tap = CountingTap::<4096, 16_384>::new(Grant::new(0, (messages * size) as u64)?.writable());
    let mut written = 0;
    for _ in 0..messages {
        tap.take(&message)?;
        while let Some(write) = tap.poll_write() {
            written += write.bytes.len();
            let tag = write.tag;
            tap.write_done(tag);
        }
    }
    Ok(written as f64 / (messages * size) as f64)
}
