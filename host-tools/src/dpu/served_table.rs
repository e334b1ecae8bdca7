//! The table that is served: rows of a file, or made up, in memory of the service that its device can read.

use super::config::TableSource;
use crate::demo::data::{self, Header, Row, table_config, table_size};
use anyhow::{Context as _, Result};
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::table::{TableDescriptor, TablePolicy, TableWriter};
use bareverbs::offload::verbs::RegionTable;
use bareverbs::prm::time::Time;
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs_core::device::DeviceRef;
use std::rc::Rc;

/// The rows that a source names.
pub(super) fn rows(source: &TableSource) -> Result<Vec<Row>> {
    match source {
        TableSource::File(path) => {
            let loaded = data::load(Some(path), Header::Auto);
            Ok(loaded.with_context(|| format!("the table's data {}", path.display()))?.rows)
        }
        TableSource::Demo(rows) => Ok((0..*rows).map(demo_row).collect()),
    }
}

/// Values of different lengths, each of which says what its key is.
fn demo_row(number: u32) -> Row {
    let key = format!("key-{number}");
    let value = format!("value of {key}").repeat(1 + number as usize % 16);
    Row { key: key.into(), value: value.into() }
}

/// What is served, and how.
pub(super) struct ServedRows {
    pub(super) rows: Vec<Row>,
    /// Whether peers can READ the table, for as long as the service lives.
    pub(super) readable: bool,
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
        // Nothing is replaced in it while it is served, so no reader needs to be waited for.
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

    /// The table's memory as the service's own processor reaches it.
    pub(super) fn memory(&self, device: &D) -> RegionTable<Rc<MemoryRegion<D>>, D> {
        RegionTable::new(self.region.clone(), device.clone())
    }
}
