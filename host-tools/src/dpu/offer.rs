//! What the ends tell each other in addition to their queue pairs: JSON in the data of the exchange. The
//! caller's first slice of memory is where answers go; the service's is the table, for tenants that may READ
//! it.

use anyhow::{Context as _, Result};
use bareverbs::memory_region::MemoryRegion;
use bareverbs::offload::budget::Limits;
use bareverbs::offload::table::{DESCRIPTOR_SIZE, TableDescriptor};
use bareverbs::prm::ids::{MkeyIndex, VhcaId};
use bareverbs::prm::time::Duration;
use bareverbs_core::device::DeviceRef;
use bareverbs_core::{AccessKey, SharedRegion};
use serde::{Deserialize, Serialize};

/// The purpose that both ends must name.
pub(crate) const PURPOSE: &str = "bareverbs dpu 1";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConnectionKind {
    /// Requests to kernels and programs.
    Lookup,
    /// READs of the table.
    Read,
    /// Deployment of programs.
    Deploy,
    /// The host shares its table.
    Share,
}

/// The caller's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConnectionRequest {
    /// Callers of earlier versions name the field so.
    #[serde(rename = "wish")]
    pub(super) kind: ConnectionKind,
    /// The table that it shares, if it is the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shares: Option<HostTable>,
}

/// The table of a host, and the memory key under which other functions of its card can access it. The access
/// key is the secret of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostTable {
    vhca_id: u32,
    key: u32,
    address: u64,
    length: u64,
    pub(super) rows: usize,
    /// Bytes of the longest value that it may ever hold.
    pub(super) max_value: u32,
    descriptor: Vec<u8>,
}

impl HostTable {
    /// A table in a region that will be shared.
    pub(super) fn new<D: DeviceRef>(
        region: &MemoryRegion<D>,
        table: &TableDescriptor,
        rows: usize,
        max_value: u32,
    ) -> Self {
        Self {
            vhca_id: region.device().device().capabilities().vhca_id.value(),
            key: region.lkey().index().value(),
            address: region.address(),
            length: region.len() as u64,
            rows,
            max_value,
            descriptor: table.encode().to_vec(),
        }
    }

    pub(super) fn descriptor(&self) -> Result<TableDescriptor> {
        parse_descriptor(&self.descriptor)
    }

    /// The region, given the access key.
    pub(super) fn region(&self, access: AccessKey) -> Result<SharedRegion> {
        let key = MkeyIndex::new(self.key).context("the number of the memory key has more than 24 bits")?;
        let vhca_id =
            VhcaId::new(self.vhca_id).context("the number of the function has more than 16 bits")?;
        let (address, length) = (self.address, self.length);
        Ok(SharedRegion { vhca_id, key, address, length, access_key: access })
    }
}

fn parse_descriptor(bytes: &[u8]) -> Result<TableDescriptor> {
    let bytes: Option<&[u8; DESCRIPTOR_SIZE]> = bytes.try_into().ok();
    bytes
        .and_then(TableDescriptor::parse)
        .context("the description of the table has a wrong checksum or length")
}

/// The service's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// The region in which lookups are granted.
    pub(crate) region: u32,
    /// Requests that are accepted before the first answer.
    pub(super) credits: u32,
    /// Bytes of the longest value.
    pub(super) max_value: u32,
    hops: u16,
    bytes: u32,
    retries: u16,
    time_us: u64,
    /// The table's descriptor, if there is a table.
    table: Vec<u8>,
}

impl ConnectionRequest {
    pub(super) const fn new(kind: ConnectionKind) -> Self {
        Self { kind, shares: None }
    }

    pub(super) fn to_data(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(super) fn from_data(data: &[u8]) -> Result<Self> {
        serde_json::from_slice(data)
            .context("the request of the caller is malformed: is the caller of another version?")
    }
}

impl Offer {
    /// The offer of a service that has no table now.
    pub(super) fn new(credits: u32, limits: Limits) -> Self {
        let Limits { hops, bytes, retries, time } = limits;
        let time_us = time.as_nanos().div_ceil(1000);
        Self { region: 0, credits, max_value: 0, hops, bytes, retries, time_us, table: Vec::new() }
    }

    /// Adds a table, which kernels access under this handle.
    pub(super) fn of_table(self, region: u32, max_value: u32, table: &TableDescriptor) -> Self {
        Self { region, max_value, table: table.encode().to_vec(), ..self }
    }

    pub(super) fn to_data(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(super) fn from_data(data: &[u8]) -> Result<Self> {
        serde_json::from_slice(data)
            .context("the offer of the service is malformed: is the service of another version?")
    }

    pub(crate) const fn limits(&self) -> Limits {
        let Self { hops, bytes, retries, time_us, .. } = *self;
        Limits { hops, bytes, retries, time: Duration::from_micros(time_us) }
    }

    pub(super) fn table(&self) -> Result<TableDescriptor> {
        parse_descriptor(&self.table).context("the service's description of its table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs::offload::table::{TableConfig, TablePolicy, TableWriter};

    #[test]
    fn offers_and_requests_survive_their_json_and_other_bytes_are_refused() {
        let config =
            TableConfig { buckets: 1, overflow_lines: 1, seed: [1; 16], policy: TablePolicy::default() };
        let mut memory = [0; 4096];
        let table = *TableWriter::create(&mut memory[..], &config).expect("fits").descriptor();
        let offer = Offer::new(8, Limits::default()).of_table(7, 99, &table);
        let told = Offer::from_data(&offer.to_data().expect("JSON")).expect("understood");
        assert_eq!((&told, told.limits(), told.table().ok()), (&offer, Limits::default(), Some(table)));
        let damaged = Offer { table: vec![0; DESCRIPTOR_SIZE], ..offer };
        let damaged = Offer::from_data(&damaged.to_data().expect("JSON")).expect("JSON");
        assert!(damaged.table().is_err() && Offer::new(8, Limits::default()).table().is_err());
        assert!(Offer::from_data(b"{}").is_err());
        for kind in
            [ConnectionKind::Lookup, ConnectionKind::Read, ConnectionKind::Deploy, ConnectionKind::Share]
        {
            let request = ConnectionRequest::new(kind);
            assert_eq!(
                ConnectionRequest::from_data(&request.to_data().expect("JSON")).expect("parsed"),
                request
            );
        }
        assert!(ConnectionRequest::from_data(b"{\"wish\":\"all\"}").is_err());
    }
}
