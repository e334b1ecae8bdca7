//! What results look like: one JSON object with the version of its shape, on standard output.

use crate::Failure;
use serde_json::{Value, json};

/// A JSON object of kind `kind`, version 1 of its shape.
pub fn json_object(kind: &'static str, value: Value) -> Result<String, Failure> {
    let object = json!({"schema": format!("bareverbs.{kind}.v1"), kind: value});
    serde_json::to_string_pretty(&object).map_err(|error| Failure::Run(error.into()))
}
