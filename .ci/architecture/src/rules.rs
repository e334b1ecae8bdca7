//! The rules of the table: layers, names that a room may not mention, and dependencies of crates.

use crate::arrows::{Arrows, Location, Named};
use crate::house::{Ban, CrateRules, IMPURE};
use crate::modules::{ModuleId, Modules};
use std::collections::BTreeSet;

/// Violations of the rules.
pub fn check(modules: &Modules, arrows: &Arrows) -> Vec<String> {
    let mut faults = unknown_rooms(modules);
    faults.extend(upward(modules, arrows));
    for (from, named, location) in arrows.named() {
        faults.extend(unknown_crate(modules, from, named, location));
        faults.extend(banned(modules, from, named, location));
        faults.extend(impure(modules, from, named, location));
    }
    faults
}

/// The room of a module: its topmost ancestor below the crate's root, or itself.
pub fn room(modules: &Modules, id: ModuleId) -> &str {
    match modules.path(id).first() {
        Some(room) => room,
        None => &modules.get(id).name,
    }
}

fn rules(modules: &Modules, id: ModuleId) -> &'static CrateRules {
    &modules.house[modules.get(id).package]
}

/// Rooms that the table lacks. A crate's root file only counts if it takes part in arrows.
fn unknown_rooms(modules: &Modules) -> Vec<String> {
    let children = modules.iter().filter(|(_, module)| module.parent.is_some());
    let unknown = children.filter(|(id, _)| rules(modules, *id).layer(room(modules, *id)).is_none());
    let names: BTreeSet<String> = unknown
        .map(|(id, _)| {
            format!(
                "{}::{}: a room that .ci/architecture/src/house.rs does not know",
                rules(modules, id).library(),
                room(modules, id)
            )
        })
        .collect();
    names.into_iter().collect()
}

fn upward(modules: &Modules, arrows: &Arrows) -> Vec<String> {
    let mut faults = Vec::new();
    for (from, to, (file, line)) in arrows.between() {
        let rules = rules(modules, from);
        let (from, to) = (room(modules, from), room(modules, to));
        match (rules.layer(from), rules.layer(to)) {
            (Some(below), Some(above)) if below < above => {
                faults.push(format!("{file}:{line}: {from} names {to}, which is above it"));
            }
            (None, _) if from != to && rules.layer(to).is_some() => {
                faults
                    .push(format!("{file}:{line}: {from} names {to}, and the table has no layer for {from}"));
            }
            (_, None) if from != to => {
                faults.push(format!("{file}:{line}: {from} names {to}, and the table has no layer for {to}"));
            }
            _ => {}
        }
    }
    faults
}

fn unknown_crate(
    modules: &Modules,
    from: ModuleId,
    named: &Named,
    (file, line): &Location,
) -> Option<String> {
    let name = named.first()?;
    let rules = rules(modules, from);
    let known =
        *name == rules.library() || rules.knows.contains(&name.as_str()) || modules.library(name).is_none();
    (!known).then(|| format!("{file}:{line}: names {name}, which {} may not know", rules.package))
}

fn banned(modules: &Modules, from: ModuleId, named: &Named, (file, line): &Location) -> Vec<String> {
    let rules = rules(modules, from);
    let path = modules.path(from).join("::");
    let broken = |ban: &&Ban| {
        is_within(&path, ban.room)
            && ban.names.iter().any(|name| covers(rules, name, named))
            && !ban.but.iter().any(|name| covers(rules, name, named))
    };
    let broken = rules.bans.iter().filter(broken);
    broken.map(|ban| format!("{file}:{line}: {} ({})", named.join("::"), ban.why)).collect()
}

fn impure(modules: &Modules, from: ModuleId, named: &Named, (file, line): &Location) -> Option<String> {
    let rules = rules(modules, from);
    let impure = rules.is_pure(room(modules, from)) && IMPURE.iter().any(|name| covers(rules, name, named));
    impure.then(|| format!("{file}:{line}: {} in a pure room", named.join("::")))
}

/// Whether a name of the table is a full name or a prefix of it.
fn covers(rules: &CrateRules, name: &str, named: &Named) -> bool {
    let name = match name.strip_prefix("crate") {
        Some(rest) => rules.library() + rest,
        None => name.to_owned(),
    };
    is_within(&named.join("::"), &name)
}

fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
