//! A table in memory of this process that its device can read, with rows from a file or made-up ones.

use super::config::TableSource;
use crate::demo::data::{self, Header, Row, table_config, table_size};
use anyhow::{Context as _, Result};
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::kernels::kv_layout::MAX_VALUE;
use bareverbs::offload::table::{TableDescriptor, TableError, TablePolicy, TableWriter};
use bareverbs::offload::verbs::RegionTable;
use bareverbs::prm::time::{Duration, Time};
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs_core::device::DeviceRef;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

/// The rows of a file.
pub(super) fn rows_of(path: &Path) -> Result<Vec<Row>> {
    let loaded = data::load(Some(path), Header::Auto);
    Ok(loaded.with_context(|| format!("the table's data {}", path.display()))?.rows)
}

/// This many made-up rows.
pub(super) fn demo_rows(rows: u32) -> Vec<Row> {
    (0..rows).map(demo_row).collect()
}

/// Values of different lengths, each containing its key.
fn demo_row(number: u32) -> Row {
    let key = format!("key-{number}");
    let value = format!("value of {key}").repeat(1 + number as usize % 16);
    Row { key: key.into(), value: value.into() }
}

/// The rows to serve, and how.
pub(super) struct ServedRows {
    pub(super) rows: Vec<Row>,
    /// Whether peers can READ the table, for the whole life of the service.
    pub(super) readable: bool,
}

impl ServedRows {
    /// The rows of a source; `None` if the host has the table.
    pub(super) fn of(source: &TableSource, readable: bool) -> Result<Option<Self>> {
        let rows = match source {
            TableSource::File(path) => rows_of(path)?,
            TableSource::Demo(rows) => demo_rows(*rows),
            TableSource::Host(_) => return Ok(None),
        };
        Ok(Some(Self { rows, readable }))
    }
}

/// A table in memory of a device.
pub(super) struct ServedTable<D: DeviceRef> {
    pub(super) region: Rc<MemoryRegion<D>>,
    pub(super) descriptor: TableDescriptor,
    pub(super) rows: usize,
    /// Bytes of the longest value.
    pub(super) max_value: u32,
}

impl<D: DeviceRef + Clone> ServedTable<D> {
    /// Makes the table.
    pub(super) fn fill(domain: &ProtectionDomain<D>, device: &D, served: &ServedRows) -> Result<Self> {
        let ServedRows { rows, readable } = served;
        // Nothing in it is replaced while it is served, so there are no readers to wait for.
        let config = table_config(rows.len(), TablePolicy::default());
        let length = table_size(&config, rows);
        let access = if *readable { AccessFlags::REMOTE_READ } else { AccessFlags::default() };
        let region = MemoryRegion::allocate(domain, length, access)
            .with_context(|| format!("allocating {length} bytes for the table"))?;
        let region = Rc::new(region);
        let memory = RegionTable::new(region.clone(), device.clone());
        let mut writer = TableWriter::create(memory, &config).context("making the table")?;
        for row in rows {
            let inserted = writer.insert(Time::ZERO, &row.key, &row.value);
            inserted.with_context(|| format!("inserting {:?}", String::from_utf8_lossy(&row.key)))?;
        }
        let max_value = rows.iter().map(|row| row.value.len()).max().unwrap_or_default() as u32;
        Ok(Self { descriptor: *writer.descriptor(), region, rows: rows.len(), max_value })
    }

    /// The table's memory, accessed by the service's own processor.
    pub(super) fn memory(&self, device: &D) -> RegionTable<Rc<MemoryRegion<D>>, D> {
        RegionTable::new(self.region.clone(), device.clone())
    }
}

/// How long kernels on the Arm cores may keep reading replaced bytes. A slower reader has to read again.
const LEASE: Duration = Duration::from_millis(200);

type HostWriter<D> = TableWriter<RegionTable<Rc<MemoryRegion<D>>, D>>;

/// A table that the host shares and changes.
pub(super) struct HostRows<D: DeviceRef + Clone> {
    pub(super) region: Rc<MemoryRegion<D>>,
    writer: HostWriter<D>,
    keys: BTreeSet<Vec<u8>>,
    max_value: u32,
}

impl<D: DeviceRef + Clone> HostRows<D> {
    /// Creates the table, with this much more room than its rows need.
    pub(super) fn fill(domain: &ProtectionDomain<D>, device: &D, rows: Vec<Row>, room: u32) -> Result<Self> {
        let policy = TablePolicy { lease: LEASE, ..TablePolicy::default() };
        let config = table_config(rows.len() * (100 + room as usize) / 100, policy);
        let length = table_size(&config, &rows);
        let length = length + length / 100 * room as usize;
        let region = MemoryRegion::allocate(domain, length, AccessFlags::LOCAL_WRITE)
            .with_context(|| format!("allocating {length} bytes for the table"))?;
        let region = Rc::new(region);
        let memory = RegionTable::new(region.clone(), device.clone());
        let writer = TableWriter::create(memory, &config).context("making the table")?;
        let mut table = Self { region, writer, keys: BTreeSet::new(), max_value: MAX_VALUE as u32 };
        table.change(|| Time::ZERO, rows)?;
        Ok(table)
    }

    /// Adds, changes and deletes rows until the table holds exactly these; returns how many it changed. If
    /// too many replaced values wait for their readers, it waits too.
    pub(super) fn change(&mut self, clock: impl Fn() -> Time, rows: Vec<Row>) -> Result<usize> {
        let mut value = vec![0; MAX_VALUE];
        let mut changes = 0;
        let mut gone = self.keys.clone();
        for row in rows {
            let name = || format!("row {:?}", String::from_utf8_lossy(&row.key));
            gone.remove(&row.key);
            let stored = self.writer.get(&row.key, &mut value).with_context(name)?;
            if stored.is_some_and(|stored| value.get(..stored.length) == Some(&row.value[..])) {
                continue;
            }
            self.patiently(&clock, |writer, now| writer.upsert(now, &row.key, &row.value))
                .with_context(name)?;
            self.keys.insert(row.key);
            changes += 1;
        }
        for key in gone {
            self.patiently(&clock, |writer, now| writer.delete(now, &key))
                .with_context(|| format!("deleting {:?}", String::from_utf8_lossy(&key)))?;
            self.keys.remove(&key);
            changes += 1;
        }
        Ok(changes)
    }

    fn patiently<T>(
        &mut self,
        clock: impl Fn() -> Time,
        mut change: impl FnMut(&mut HostWriter<D>, Time) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        match change(&mut self.writer, clock()) {
            Err(TableError::ReadersPending { .. }) => {
                std::thread::sleep(std::time::Duration::from_nanos(LEASE.as_nanos()));
                change(&mut self.writer, clock())
            }
            done => done,
        }
    }

    pub(super) const fn descriptor(&self) -> &TableDescriptor {
        self.writer.descriptor()
    }

    pub(super) fn rows(&self) -> usize {
        self.keys.len()
    }

    /// Bytes of the longest value that it may ever hold.
    pub(super) const fn max_value(&self) -> u32 {
        self.max_value
    }
}
