//! Arrows between modules: which module names which, with one place in the code for each.

use crate::mentions::{Kind, Mention};
use crate::modules::{ModuleId, Modules};
use crate::resolve::{Resolver, Target};
use std::collections::{BTreeMap, BTreeSet};

/// Where an arrow is drawn: a file and a line.
pub type Location = (String, usize);

/// Everything that modules name.
#[derive(Debug, Default)]
pub struct Arrows {
    between: BTreeMap<(ModuleId, ModuleId), Location>,
    named: BTreeMap<(ModuleId, Named), Location>,
}

/// The full name of something in this workspace or outside it.
pub type Named = Vec<String>;

impl Arrows {
    /// Draws the arrows of all modules.
    pub fn of(modules: &Modules) -> Self {
        let mut arrows = Self::default();
        for (id, module) in modules.iter() {
            for mention in &module.mentions {
                arrows.draw(modules, id, mention);
            }
        }
        arrows
    }

    /// Arrows between the files of one crate, from and to.
    pub fn between(&self) -> impl Iterator<Item = (ModuleId, ModuleId, &Location)> {
        self.between.iter().map(|((from, to), location)| (*from, *to, location))
    }

    /// Full names that modules mention.
    pub fn named(&self) -> impl Iterator<Item = (ModuleId, &Named, &Location)> {
        self.named.iter().map(|((from, named), location)| (*from, named, location))
    }

    /// How many arrows there are inside crates.
    pub fn count(&self) -> usize {
        self.between.len()
    }

    /// The crates that a crate names, by their index in the table.
    pub fn crates(&self, modules: &Modules, package: usize) -> BTreeSet<usize> {
        let of_package = self.named.keys().filter(|(from, _)| modules.get(*from).package == package);
        let libraries = of_package.filter_map(|(_, named)| modules.library(named.first()?));
        libraries.map(|library| modules.get(library).package).filter(|other| *other != package).collect()
    }

    fn draw(&mut self, modules: &Modules, from: ModuleId, mention: &Mention) {
        let Some(target) = Resolver::new(modules).resolve(from, &mention.path) else {
            return self.name_macro(modules, from, mention);
        };
        let location = (modules.get(from).file.clone(), mention.line);
        self.name(modules, from, &target, &location);
        let Target::Item(to, _) = target else { return };
        let (from, to) = (modules.of_file(from), modules.of_file(to));
        let same_crate = modules.get(from).package == modules.get(to).package;
        if from != to && same_crate && !is_contents(modules, mention.kind, from, to) {
            self.between.entry((from, to)).or_insert(location);
        }
    }

    fn name(&mut self, modules: &Modules, from: ModuleId, target: &Target, location: &Location) {
        let named = match target {
            Target::Module(to) => full_name(modules, *to),
            Target::Item(to, item) => full_name(modules, *to).into_iter().chain([item.clone()]).collect(),
            Target::Outside(path) => path.clone(),
        };
        self.named.entry((from, named)).or_insert_with(|| location.clone());
    }

    /// A macro of the prelude has no path, so it is recorded as `println!`.
    fn name_macro(&mut self, modules: &Modules, from: ModuleId, mention: &Mention) {
        if let (Kind::Macro, [name]) = (mention.kind, mention.path.as_slice()) {
            let location = (modules.get(from).file.clone(), mention.line);
            self.named.entry((from, vec![format!("{name}!")])).or_insert(location);
        }
    }
}

/// The name of a module with its crate's.
fn full_name(modules: &Modules, id: ModuleId) -> Named {
    let library = modules.house[modules.get(id).package].library();
    [library].into_iter().chain(modules.path(id).into_iter().map(str::to_owned)).collect()
}

/// A module that re-exports names of its own children is their table of contents, which does not count as an
/// arrow.
fn is_contents(modules: &Modules, kind: Kind, from: ModuleId, to: ModuleId) -> bool {
    kind == Kind::Reexport && is_below(modules, to, from)
}

fn is_below(modules: &Modules, module: ModuleId, above: ModuleId) -> bool {
    modules.get(module).parent.is_some_and(|parent| parent == above || is_below(modules, parent, above))
}
