//! The table that is read: one chain of lines, so that a key's line is the number of elements before its value; and a key
//! in a line of its own for the others' short lookups.

use anyhow::{Context as _, anyhow};
use bareverbs::offload::kernels::kv_layout::{bucket_of, hash_key, object_size};
use bareverbs::offload::table::{
    HEADER_SIZE, MemoryFault, TableConfig, TableDescriptor, TableMemory, TablePolicy, TableWriter,
};
use bareverbs::prm::time::{Duration, Time};
use std::collections::VecDeque;

const SEED: [u8; 16] = *b"bareverbs advise";
/// Keys of a line.
const LINE: usize = 3;
/// Bytes of a value that others look up, and of one that is updated.
pub const SHORT: usize = 64;
/// The buckets: the chain, and the line of the others.
const BUCKETS: u32 = 2;

/// A store that has not happened yet.
#[derive(Debug, Clone)]
pub struct Store {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// The writer's view of the table: its stores are kept until somebody carries them out.
pub struct Stores {
    view: Vec<u8>,
    waiting: VecDeque<Store>,
}

impl Stores {
    /// The first store that has not been taken yet.
    pub fn take(&mut self) -> Option<Store> {
        self.waiting.pop_front()
    }
}

impl TableMemory for Stores {
    fn length(&self) -> u64 {
        self.view.len() as u64
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        let fault = MemoryFault { offset, length: buffer.len() };
        let at = usize::try_from(offset).map_err(|_| fault)?;
        buffer.copy_from_slice(self.view.get(at..at + buffer.len()).ok_or(fault)?);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.view.as_mut_slice().write(offset, bytes)?;
        self.waiting.push_back(Store { offset, bytes: bytes.to_vec() });
        Ok(())
    }
}

/// The chain and its writer.
pub struct Chain {
    writer: TableWriter<Stores>,
    keys: Vec<Vec<u8>>,
    others: Vec<u8>,
}

impl Chain {
    /// A chain of `lines` lines. Each of `read` has a key with a value of `bytes` bytes.
    pub fn new(lines: usize, read: &[u32], bytes: usize) -> anyhow::Result<Self> {
        let policy = TablePolicy { max_buckets: BUCKETS, lease: Duration::ZERO };
        let config = TableConfig { buckets: BUCKETS, overflow_lines: lines as u32, seed: SEED, policy };
        let keys: Vec<Vec<u8>> = keys_of(0).take(lines * LINE).collect();
        let others = keys_of(1).next().unwrap_or_default();
        let length = Self::length(lines, read.len(), bytes);
        let memory = Stores { view: vec![0; length], waiting: VecDeque::new() };
        let mut writer = TableWriter::create(memory, &config).context("making the table")?;
        for (index, key) in keys.iter().enumerate() {
            let hops = place_in_chain(index / LINE, lines) as u32 + 1;
            let is_read = index % LINE == 0 && read.contains(&hops);
            let value = vec![index as u8; if is_read { bytes } else { SHORT }];
            writer.insert(Time::ZERO, key, &value).context("filling the chain")?;
        }
        writer.insert(Time::ZERO, &others, &[1; SHORT]).context("adding the key of the others")?;
        writer.memory().waiting.clear();
        Ok(Self { writer, keys, others })
    }

    /// Objects may occupy a quarter more than their size; updates need room for a few more.
    fn length(lines: usize, read: usize, bytes: usize) -> usize {
        let short = object_size(KEY, SHORT) as usize * 5 / 4 + 16;
        let long = object_size(KEY, bytes) as usize * 5 / 4 + 16;
        HEADER_SIZE + (lines + 4) * 64 + (lines * LINE + 64) * short + read * long
    }

    /// All bytes of the table.
    pub fn bytes(&mut self) -> &[u8] {
        &self.writer.memory().view
    }

    pub fn descriptor(&self) -> TableDescriptor {
        *self.writer.descriptor()
    }

    /// The key whose value comes after `hops` lines.
    pub fn key(&self, hops: u32) -> anyhow::Result<&[u8]> {
        self.in_line(hops, 0)
    }

    fn in_line(&self, hops: u32, place: usize) -> anyhow::Result<&[u8]> {
        let lines = self.keys.len() / LINE;
        let line = (0..lines).find(|line| place_in_chain(*line, lines) + 1 == hops as usize);
        let key = line.and_then(|line| self.keys.get(line * LINE + place));
        key.map(Vec::as_slice).ok_or_else(|| anyhow!("the chain has no line {hops}"))
    }

    /// The key that the others look up: one line, and a short value.
    pub fn others(&self) -> &[u8] {
        &self.others
    }

    /// Changes a value of the same line, and so the line, but not the value that is read.
    pub fn update(&mut self, now: Time, hops: u32) -> anyhow::Result<()> {
        let key = self.in_line(hops, 1)?.to_vec();
        let value = [now.since(Time::ZERO).as_nanos() as u8; SHORT];
        self.writer.update(now, &key, &value).context("updating a value")?;
        Ok(())
    }

    pub fn next_store(&mut self) -> Option<Store> {
        self.writer.memory().take()
    }

    /// Stores of an update between the first one to the line, which makes readers wait, and the last.
    pub fn stores_of_a_change(&mut self) -> anyhow::Result<u32> {
        self.update(Time::ZERO, 1)?;
        let lines = self.descriptor().lines..self.descriptor().heap;
        let to_line = std::iter::from_fn(|| self.next_store()).filter(|store| lines.contains(&store.offset));
        Ok((to_line.count() as u32).saturating_sub(1))
    }
}

/// Where the line that was added as number `line` is in a chain of `lines`: each new one comes right after the first.
const fn place_in_chain(line: usize, lines: usize) -> usize {
    if line == 0 { 0 } else { lines - line }
}

/// Bytes of a key.
const KEY: usize = 8;

/// Keys of a bucket.
fn keys_of(bucket: u32) -> impl Iterator<Item = Vec<u8>> {
    let keys = (0_u64..).map(|n| n.to_be_bytes().to_vec());
    keys.filter(move |key| bucket_of(hash_key(&SEED, key), BUCKETS) == bucket)
}
