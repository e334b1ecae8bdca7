//! Two devices side by side: only what differs.

use super::fact::{Fact, Section};
use super::facts::Gather;
use crate::Failure;
use crate::output::json_object;
use crate::place::DeviceSelector;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Value, json};

/// A value that two devices do not share. One of them may not have it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference<'a> {
    section: &'static str,
    name: &'a str,
    values: [Option<&'a Fact>; 2],
}

impl Difference<'_> {
    /// Whether any two devices of one make differ in it, or one does not tell it.
    pub(super) fn is_expected(&self) -> bool {
        self.values.iter().flatten().any(|fact| fact.own || fact.unknown.is_some())
    }

    fn text(&self, side: usize) -> String {
        self.values[side].map_or("(does not have it)".to_owned(), |fact| fact.text.clone())
    }

    fn value(&self, side: usize) -> Value {
        self.values[side].map_or(Value::Null, |fact| fact.value.clone())
    }
}

pub(super) fn run(devices: [&DeviceSelector; 2], as_json: bool) -> Result<(String, bool), Failure> {
    let gather = |device: &DeviceSelector| device.with_device(Gather { kernel: device.kernel_view()? });
    let [a, b] = [gather(devices[0])?, gather(devices[1])?];
    let differences = compare(&a, &b);
    let same = differences.iter().all(Difference::is_expected);
    let text = if as_json { object(devices, &differences)? } else { table(devices, &differences, same) };
    Ok((text, same))
}

/// Every value that is not the same in both, in the order of `a`, then what only `b` has.
pub(super) fn compare<'a>(a: &'a [Section], b: &'a [Section]) -> Vec<Difference<'a>> {
    let mut differences = Vec::new();
    for section in a {
        for fact in &section.facts {
            let other = find(b, section.name, &fact.name);
            if other.is_none_or(|other| other.value != fact.value) {
                differences.push(Difference {
                    section: section.name,
                    name: &fact.name,
                    values: [Some(fact), other],
                });
            }
        }
    }
    for section in b {
        let missing = section.facts.iter().filter(|fact| find(a, section.name, &fact.name).is_none());
        differences.extend(missing.map(|fact| Difference {
            section: section.name,
            name: &fact.name,
            values: [None, Some(fact)],
        }));
    }
    differences
}

fn find<'a>(sections: &'a [Section], section: &str, name: &str) -> Option<&'a Fact> {
    let section = sections.iter().find(|candidate| candidate.name == section)?;
    section.facts.iter().find(|fact| fact.name == name)
}

fn table(devices: [&DeviceSelector; 2], differences: &[Difference<'_>], same: bool) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header([
        "section".to_owned(),
        "name".to_owned(),
        devices[0].to_string(),
        devices[1].to_string(),
    ]);
    for difference in differences.iter().filter(|difference| !difference.is_expected()) {
        table.add_row([
            difference.section.to_owned(),
            difference.name.to_owned(),
            difference.text(0),
            difference.text(1),
        ]);
    }
    if same {
        format!("{} and {} differ only in their addresses", devices[0], devices[1])
    } else {
        table.trim_fmt()
    }
}

fn object(devices: [&DeviceSelector; 2], differences: &[Difference<'_>]) -> Result<String, Failure> {
    let rows: Vec<Value> = differences
        .iter()
        .map(|difference| {
            json!({
                "section": difference.section,
                "name": difference.name,
                "a": difference.value(0),
                "b": difference.value(1),
                "expected": difference.is_expected(),
            })
        })
        .collect();
    let names = devices.map(ToString::to_string);
    json_object("devinfo_diff", json!({"a": names[0], "b": names[1], "differences": rows}))
}
