//! Renderings of the graph: all of it as text, and the summary in ARCHITECTURE.md.

use crate::arrows::Arrows;
use crate::house::CrateRules;
use crate::modules::Modules;
use crate::rules::room;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- begin: made by `.ci/arrows --update` -->\n";
const END: &str = "<!-- end -->";

/// For each room of a crate, the names that it uses.
type Rooms<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Every crate with its rooms from the bottom up, and what each names.
pub fn text(modules: &Modules, arrows: &Arrows) -> String {
    let mut text = String::new();
    for (package, rules) in modules.house.iter().enumerate() {
        let _ = writeln!(text, "{} -> {}", rules.package, crates(modules, arrows, package).join(", "));
        let named = rooms(modules, arrows, package);
        for (layer, names) in rules.layers.iter().enumerate() {
            for name in *names {
                let to: Vec<&str> = named.get(name).into_iter().flatten().copied().collect();
                let _ = writeln!(text, "  {layer} {name} -> {}", to.join(", "));
            }
        }
    }
    text
}

/// The same as a Mermaid graph, with a box for each crate.
pub fn mermaid(modules: &Modules, arrows: &Arrows) -> String {
    let mut text = String::from("graph BT\n");
    for (package, rules) in modules.house.iter().enumerate() {
        let _ = writeln!(text, "  subgraph {}", rules.package);
        for (from, names) in rooms(modules, arrows, package) {
            for to in names {
                let _ = writeln!(text, "    {0}.{from}[{from}] --> {0}.{to}[{to}]", rules.package);
            }
        }
        text.push_str("  end\n");
    }
    for (package, rules) in modules.house.iter().enumerate() {
        for other in crates(modules, arrows, package) {
            let _ = writeln!(text, "  {} --> {other}", rules.package);
        }
    }
    text
}

/// The summary for ARCHITECTURE.md: a line for each crate, with the crates it names and its layers.
pub fn summary(modules: &Modules, arrows: &Arrows) -> String {
    let mut text = String::from("```\n");
    for (package, rules) in modules.house.iter().enumerate() {
        let knows = crates(modules, arrows, package);
        let knows =
            knows.iter().map(|name| name.trim_start_matches("bareverbs-")).collect::<Vec<_>>().join(", ");
        let _ =
            writeln!(text, "{:<22} knows {}", rules.package, if knows.is_empty() { "none" } else { &knows });
        let _ = writeln!(text, "   {}", layers(rules));
    }
    text + "```\n"
}

fn layers(rules: &CrateRules) -> String {
    rules.layers.iter().map(|rooms| rooms.join(" ")).collect::<Vec<_>>().join(" < ")
}

fn crates(modules: &Modules, arrows: &Arrows, package: usize) -> Vec<&'static str> {
    arrows.crates(modules, package).into_iter().map(|other| modules.house[other].package).collect()
}

fn rooms<'a>(modules: &'a Modules, arrows: &Arrows, package: usize) -> Rooms<'a> {
    let mut rooms = Rooms::new();
    for (from, to, _) in arrows.between() {
        let (own, from, to) = (modules.get(from).package == package, room(modules, from), room(modules, to));
        if own && from != to {
            rooms.entry(from).or_default().insert(to);
        }
    }
    rooms
}

/// Checks that ARCHITECTURE.md shows the current graph.
pub fn check(summary: &str) -> Result<Vec<String>, String> {
    let document = read()?;
    let (_, rest) = document.split_once(BEGIN).ok_or_else(no_place)?;
    let (shown, _) = rest.split_once(END).ok_or_else(no_place)?;
    let fault = || format!("{DOCUMENT}: the rooms are not those of the code; run .ci/arrows --update");
    Ok((shown != summary).then(fault).into_iter().collect())
}

/// Writes the graph to ARCHITECTURE.md.
pub fn update(summary: &str) -> Result<(), String> {
    let document = read()?;
    let (before, rest) = document.split_once(BEGIN).ok_or_else(no_place)?;
    let (_, after) = rest.split_once(END).ok_or_else(no_place)?;
    fs::write(DOCUMENT, format!("{before}{BEGIN}{summary}{END}{after}"))
        .map_err(|error| format!("{DOCUMENT}: {error}"))
}

fn read() -> Result<String, String> {
    fs::read_to_string(DOCUMENT).map_err(|error| format!("{DOCUMENT}: {error}"))
}

fn no_place() -> String {
    format!("{DOCUMENT}: no place for the rooms, between '{}' and '{END}'", BEGIN.trim())
}
