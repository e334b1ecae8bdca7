//! Resolves paths: follows imports, re-exports, `super`, `self`, `crate` and globs to the module that
//! declares the name.

use crate::modules::{ModuleId, Modules, Name};

/// How many imports one path may lead through before it counts as a cycle of imports.
const LONGEST_CHAIN: usize = 16;

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A module itself.
    Module(ModuleId),
    /// A name that a module declares.
    Item(ModuleId, String),
    /// A name of the standard library or another package.
    Outside(Vec<String>),
}

/// Resolves paths among all modules.
#[derive(Clone, Copy)]
pub struct Resolver<'a> {
    modules: &'a Modules,
    depth: usize,
}

impl<'a> Resolver<'a> {
    /// A resolver for these modules.
    pub fn new(modules: &'a Modules) -> Self {
        Self { modules, depth: 0 }
    }

    /// The target of a path in the code of `from`; `None` if it is a local name or unknown.
    pub fn resolve(self, from: ModuleId, path: &[String]) -> Option<Target> {
        let resolver = self.deeper()?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => resolver.walk(self.modules.root(from), rest),
            "self" => resolver.walk(from, rest),
            "super" => resolver.above(from, rest),
            "Self" => None,
            "" => resolver.foreign(rest),
            _ => resolver.lookup(from, first, rest).or_else(|| resolver.foreign(path)),
        }
    }

    fn deeper(self) -> Option<Self> {
        (self.depth < LONGEST_CHAIN).then_some(Self { depth: self.depth + 1, ..self })
    }

    fn above(self, from: ModuleId, rest: &[String]) -> Option<Target> {
        let parent = self.modules.get(from).parent?;
        match rest.split_first() {
            Some((next, rest)) if next == "super" => self.above(parent, rest),
            _ => self.walk(parent, rest),
        }
    }

    /// A path that begins with the name of a crate.
    fn foreign(self, path: &[String]) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        match self.modules.library(first) {
            Some(library) => self.walk(library, rest),
            None if rest.is_empty() => None,
            None => Some(Target::Outside(path.to_vec())),
        }
    }

    /// Continues inside a module. A name that the module does not declare comes from one of its macros.
    fn walk(self, module: ModuleId, rest: &[String]) -> Option<Target> {
        let Some((name, rest)) = rest.split_first() else { return Some(Target::Module(module)) };
        self.lookup(module, name, rest).or_else(|| Some(Target::Item(module, name.clone())))
    }

    /// The target of a module's name, followed by the rest of the path.
    fn lookup(self, module: ModuleId, name: &str, rest: &[String]) -> Option<Target> {
        let meanings = self.modules.get(module).names.get(name).map_or(&[][..], Vec::as_slice);
        let found = meanings.iter().filter_map(|meaning| self.follow(module, name, meaning, rest));
        let found = found.max_by_key(|target| fit(target, rest.is_empty()));
        found.or_else(|| self.through_globs(module, name, rest))
    }

    fn follow(self, module: ModuleId, name: &str, meaning: &Name, rest: &[String]) -> Option<Target> {
        match meaning {
            Name::Item => Some(Target::Item(module, name.to_owned())),
            Name::Child(child) => self.walk(*child, rest),
            Name::Import(path) => match self.resolve(module, path)? {
                Target::Module(found) => self.deeper()?.walk(found, rest),
                Target::Outside(path) => {
                    Some(Target::Outside(path.into_iter().chain(rest.iter().cloned()).collect()))
                }
                item @ Target::Item(..) => Some(item),
            },
        }
    }

    fn through_globs(self, module: ModuleId, name: &str, rest: &[String]) -> Option<Target> {
        let resolver = self.deeper()?;
        self.modules.get(module).globs.iter().find_map(|path| match resolver.resolve(module, path)? {
            Target::Module(found) if found != module => resolver.lookup(found, name, rest),
            _ => None,
        })
    }
}

/// A name may be a module and an item at once: in the middle of a path it is the module, at its end the item.
fn fit(target: &Target, at_end: bool) -> u8 {
    match target {
        Target::Item(..) => u8::from(at_end) + 1,
        Target::Module(_) => 1,
        Target::Outside(_) => 0,
    }
}
