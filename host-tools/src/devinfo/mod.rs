//! `bareverbs devinfo`: shows what `ibv_devinfo -v`, `ibstat` and `mlxlink` show, read from the device's own capability
//! pages, for devices without a kernel driver; and the differences between two devices.
//!
//! * `facts`: what the device is asked. `pages`: its capability pages.
//! * `limits`, `flags`, `extended`: what Linux makes of these pages.
//! * `text`: how it is shown.
//! * `difference`: two devices side by side.

mod difference;
mod extended;
mod fact;
mod facts;
mod flags;
mod limits;
mod pages;
mod text;

use crate::Failure;
use crate::output::json_object;
use crate::place::{DeviceSelector, SELECTOR_HELP};
use crate::seat::HostArguments;
use clap::Args;
use fact::Section;
use facts::Gather;
use serde_json::{Map, Value};

/// Arguments of `bareverbs devinfo`.
#[derive(Debug, Clone, Args)]
pub struct DevinfoArguments {
    /// The device.
    #[arg(long, value_name = "DEVICE", default_value = "sim", long_help = format!("Which device: {SELECTOR_HELP}"))]
    device: DeviceSelector,
    #[command(flatten)]
    place: HostArguments,
    /// Also show limits, what the driver uses, and every field of the capability pages.
    #[arg(short, long)]
    verbose: bool,
    /// Compare two devices instead. Exit status 1 if they differ in more than their addresses.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["device", "host", "verbose"])]
    diff: Option<Vec<DeviceSelector>>,
    /// Print one JSON object instead of text. It always contains everything.
    #[arg(long)]
    json: bool,
}

/// Shows a device, or compares two. Returns false if those differ.
pub fn run(arguments: &DevinfoArguments) -> Result<bool, Failure> {
    let (text, same) = execute(arguments)?;
    crate::output::print(&text)?;
    Ok(same)
}

fn execute(arguments: &DevinfoArguments) -> Result<(String, bool), Failure> {
    if let Some([a, b]) = arguments.diff.as_deref() {
        return difference::run([a, b], arguments.json);
    }
    let name = arguments.place.name_of(&arguments.device);
    let kernel = arguments.device.kernel_view()?;
    let sections = arguments.place.with_device(&arguments.device, |_| Gather { kernel })?;
    if arguments.json {
        return Ok((json_object("devinfo", as_json(&name, &sections))?, true));
    }
    Ok((text::show(&name, &sections, arguments.verbose), true))
}

/// An object of sections, each an object of values; and why some values are not known.
fn as_json(device: &str, sections: &[Section]) -> Value {
    let mut object = Map::new();
    object.insert("selector".to_owned(), device.into());
    for section in sections {
        let facts = section.facts.iter().map(|fact| (fact.name.clone(), fact.value.clone()));
        object.insert(section.name.replace(' ', "_"), Value::Object(facts.collect()));
    }
    let facts = sections.iter().flat_map(|section| section.facts.iter().map(move |fact| (section, fact)));
    let unknown: Map<String, Value> = facts
        .filter_map(|(section, fact)| {
            Some((format!("{}.{}", section.name, fact.name), fact.unknown.clone()?.into()))
        })
        .collect();
    if !unknown.is_empty() {
        object.insert("unknown".to_owned(), Value::Object(unknown));
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests;
