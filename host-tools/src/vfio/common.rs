//! What the subcommands share: how a function is named, and the shape of JSON.

use crate::Failure;
use bareverbs_hal::pci::Address;
use clap::Args;

/// Where a function is.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// PCI address, as 0000:3b:00.0 or 3b:00.0.
    #[arg(value_name = "BDF")]
    pub(super) address: Address,
}

/// A JSON object with the version of its shape.
pub(super) fn json(kind: &'static str, value: serde_json::Value) -> Result<String, Failure> {
    let object = serde_json::json!({"schema": format!("bareverbs.{kind}.v1"), kind: value});
    serde_json::to_string_pretty(&object).map_err(|error| Failure::Run(error.into()))
}
