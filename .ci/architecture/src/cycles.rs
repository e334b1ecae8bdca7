//! Cycles between rooms, at every depth.
//!
//! The rooms of a module are its children, each with everything below it, and the module's own file. So a
//! cycle between two files is found too: at the module where their paths diverge.

use crate::arrows::{Arrows, Location};
use crate::modules::{ModuleId, Modules};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::{BTreeMap, BTreeSet};

/// A place with rooms: a module, or a crate with all its roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Crate(usize),
    Module(ModuleId),
}

/// Rooms of one module that name each other in a cycle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycle {
    /// The module that contains the rooms.
    pub module: String,
    /// Their names.
    pub rooms: BTreeSet<String>,
    /// The arrows among them, each with a place in the code.
    pub arrows: Vec<String>,
}

/// All cycles of all crates.
pub fn find(modules: &Modules, arrows: &Arrows) -> Vec<Cycle> {
    let mut scopes: BTreeMap<Scope, BTreeMap<(ModuleId, ModuleId), &Location>> = BTreeMap::new();
    for (from, to, location) in arrows.between() {
        let (scope, from, to) = part(modules, from, to);
        scopes.entry(scope).or_default().entry((from, to)).or_insert(location);
    }
    let mut cycles: Vec<Cycle> =
        scopes.iter().flat_map(|(scope, arrows)| circles(modules, *scope, arrows)).collect();
    cycles.sort();
    cycles
}

/// Where the paths to two modules diverge, and the rooms there that contain them.
fn part(modules: &Modules, from: ModuleId, to: ModuleId) -> (Scope, ModuleId, ModuleId) {
    let (from, to) = (way(modules, from), way(modules, to));
    let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let scope = match common {
        0 => Scope::Crate(modules.get(from[0]).package),
        _ => Scope::Module(from[common - 1]),
    };
    let own = |way: &[ModuleId]| way.get(common).copied().unwrap_or(way[way.len() - 1]);
    (scope, own(&from), own(&to))
}

/// The files from a crate's root to a module. The root of a library is beside its modules, not above them.
fn way(modules: &Modules, id: ModuleId) -> Vec<ModuleId> {
    let mut way = vec![id];
    while let Some(parent) = modules.get(way[way.len() - 1]).parent {
        way.push(modules.of_file(parent));
    }
    if way.len() > 1 {
        way.pop();
    }
    way.reverse();
    way
}

/// Cycles among the rooms without the module's own file, then those through it.
fn circles(
    modules: &Modules,
    scope: Scope,
    arrows: &BTreeMap<(ModuleId, ModuleId), &Location>,
) -> Vec<Cycle> {
    let own = |id: ModuleId| scope == Scope::Module(id);
    let among = strong(arrows.keys().filter(|(from, to)| !own(*from) && !own(*to)));
    let through = strong(arrows.keys()).into_iter().filter(|rooms| rooms.iter().any(|id| own(*id)));
    among.into_iter().chain(through).map(|rooms| describe(modules, scope, &rooms, arrows)).collect()
}

/// Strongly connected rooms.
fn strong<'a>(arrows: impl Iterator<Item = &'a (ModuleId, ModuleId)>) -> Vec<BTreeSet<ModuleId>> {
    let graph: DiGraphMap<ModuleId, ()> = arrows.map(|(from, to)| (*from, *to, ())).collect();
    let components = tarjan_scc(&graph).into_iter().filter(|rooms| rooms.len() > 1);
    components.map(|rooms| rooms.into_iter().collect()).collect()
}

fn describe(
    modules: &Modules,
    scope: Scope,
    rooms: &BTreeSet<ModuleId>,
    arrows: &BTreeMap<(ModuleId, ModuleId), &Location>,
) -> Cycle {
    let name = |id: ModuleId| match scope {
        Scope::Module(own) if own == id => ".".to_owned(),
        _ => modules.get(id).name.clone(),
    };
    let inside = arrows.iter().filter(|((from, to), _)| rooms.contains(from) && rooms.contains(to));
    Cycle {
        module: match scope {
            Scope::Crate(package) => modules.house[package].library(),
            Scope::Module(id) => modules.title(id),
        },
        rooms: rooms.iter().map(|id| name(*id)).collect(),
        arrows: inside
            .map(|((from, to), (file, line))| format!("    {} -> {}  {file}:{line}", name(*from), name(*to)))
            .collect(),
    }
}

/// A fault for each cycle.
pub fn check(found: &[Cycle]) -> Vec<String> {
    let fault = |cycle: &Cycle| {
        format!("{}: a cycle between rooms\n{}", line(&cycle.module, &cycle.rooms), cycle.arrows.join("\n"))
    };
    found.iter().map(fault).collect()
}

fn line(module: &str, rooms: &BTreeSet<String>) -> String {
    let rooms: Vec<&str> = rooms.iter().map(String::as_str).collect();
    format!("{module}: {}", rooms.join(" "))
}
