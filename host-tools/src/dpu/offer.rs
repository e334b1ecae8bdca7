//! What the ends tell each other beside their queue pairs: JSON in the data of the exchange. The caller's first slice of memory is where answers
//! may be written; the service's is the table, for who may READ it.

use anyhow::{Context as _, Result, bail};
use bareverbs::offload::budget::Limits;
use bareverbs::offload::table::{DESCRIPTOR_SIZE, TableDescriptor};
use bareverbs::prm::time::Duration;
use serde::{Deserialize, Serialize};

/// What both ends must be there for.
pub(crate) const PURPOSE: &str = "bareverbs dpu 1";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Aim {
    /// Requests to kernels and programs.
    Lookup,
    /// READs of the table.
    Read,
    /// Deployment of programs.
    Deploy,
}

/// What a caller says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallerAim {
    pub(super) wish: Aim,
}

/// What the service says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// The region in which lookups are granted.
    pub(crate) region: u32,
    /// Requests that are taken before the first answer.
    pub(super) credits: u32,
    /// Bytes of the longest value.
    pub(super) max_value: u32,
    hops: u16,
    bytes: u32,
    retries: u16,
    time_us: u64,
    /// The table's descriptor.
    table: Vec<u8>,
}

impl CallerAim {
    pub(super) fn to_data(self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(&self)?)
    }

    pub(super) fn from_data(data: &[u8]) -> Result<Self> {
        serde_json::from_slice(data)
            .context("what the caller wishes is not understood: is it of another version?")
    }
}

impl Offer {
    pub(super) fn new(
        region: u32,
        credits: u32,
        max_value: u32,
        limits: Limits,
        table: &TableDescriptor,
    ) -> Self {
        let Limits { hops, bytes, retries, time } = limits;
        let time_us = time.as_nanos().div_ceil(1000);
        Self { region, credits, max_value, hops, bytes, retries, time_us, table: table.encode().to_vec() }
    }

    pub(super) fn to_data(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(super) fn from_data(data: &[u8]) -> Result<Self> {
        let offer: Self = serde_json::from_slice(data)
            .context("what the service offers is not understood: is it of another version?")?;
        offer.table()?;
        Ok(offer)
    }

    pub(crate) const fn limits(&self) -> Limits {
        let Self { hops, bytes, retries, time_us, .. } = *self;
        Limits { hops, bytes, retries, time: Duration::from_micros(time_us) }
    }

    pub(super) fn table(&self) -> Result<TableDescriptor> {
        let bytes: Option<&[u8; DESCRIPTOR_SIZE]> = self.table.as_slice().try_into().ok();
        let Some(table) = bytes.and_then(TableDescriptor::parse) else {
            bail!("the service's description of its table has a wrong checksum or length");
        };
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs::offload::table::{TableConfig, TablePolicy, TableWriter};

    #[test]
    fn what_is_told_is_understood_and_other_bytes_are_not() {
        let config =
            TableConfig { buckets: 1, overflow_lines: 1, seed: [1; 16], policy: TablePolicy::default() };
        let mut memory = [0; 4096];
        let table = *TableWriter::create(&mut memory[..], &config).expect("fits").descriptor();
        let offer = Offer::new(7, 8, 99, Limits::default(), &table);
        let told = Offer::from_data(&offer.to_data().expect("JSON")).expect("understood");
        assert_eq!((&told, told.limits(), told.table().ok()), (&offer, Limits::default(), Some(table)));
        let damaged = Offer { table: vec![0; DESCRIPTOR_SIZE], ..offer };
        assert!(Offer::from_data(&damaged.to_data().expect("JSON")).is_err());
        assert!(Offer::from_data(b"{}").is_err());
        for wish in [Aim::Lookup, Aim::Read, Aim::Deploy] {
            assert_eq!(
                CallerAim::from_data(&CallerAim { wish }.to_data().expect("JSON")).expect("understood").wish,
                wish
            );
        }
        assert!(CallerAim::from_data(b"{\"wish\":\"all\"}").is_err());
    }
}
