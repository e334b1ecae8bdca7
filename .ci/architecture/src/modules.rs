//! The module tree of every crate, read from the `mod` declarations, with the names that each module declares.

use crate::house::CrateRules;
use crate::mentions::{self, Mention};
use crate::sources::Sources;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, UseTree};

/// The number of a module in [`Modules`].
pub type ModuleId = usize;

/// One module: a file, or a block inside a file.
#[derive(Debug)]
pub struct Module {
    /// The index of its crate in the table.
    pub package: usize,
    /// Name in its parent; for a root `lib`, `main` or `bin/NAME`.
    pub name: String,
    /// The module that declares it; none for a root.
    pub parent: Option<ModuleId>,
    /// The file that has its text.
    pub file: String,
    /// Whether it is a block inside another module's file.
    pub inline: bool,
    /// What a name in it may refer to, in the order of declaration.
    pub names: BTreeMap<String, Vec<Name>>,
    /// Paths of its glob imports.
    pub globs: Vec<Vec<String>>,
    /// What its code mentions.
    pub mentions: Vec<Mention>,
    /// Types that it declares.
    pub types: Vec<String>,
    /// Functions with a tuple among their parameters.
    pub tuple_functions: Vec<String>,
}

/// What a name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// An item that the module declares.
    Item,
    /// A module below it.
    Child(ModuleId),
    /// An import, by its path.
    Import(Vec<String>),
}

/// All modules of all crates, without tests.
#[derive(Debug)]
pub struct Modules {
    /// The table by which they were read.
    pub house: &'static [CrateRules],
    all: Vec<Module>,
    seen: BTreeSet<String>,
}

impl Modules {
    /// Reads the crates of the table. Also returns what is wrong with the table and the tree themselves.
    pub fn read(house: &'static [CrateRules], sources: &Sources) -> Result<(Self, Vec<String>), String> {
        let mut modules = Self { house, all: Vec::new(), seen: BTreeSet::new() };
        let mut faults = unknown_crates(house, sources);
        for (package, rules) in house.iter().enumerate() {
            for (name, file) in roots(rules, sources) {
                let place = Place { package, name, parent: None, file, in_tests: false };
                modules.read_file(sources, place)?;
            }
            faults.extend(modules.orphans(rules, sources));
        }
        Ok((modules, faults))
    }

    /// A module.
    pub fn get(&self, id: ModuleId) -> &Module {
        &self.all[id]
    }

    /// Every module with its number.
    pub fn iter(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        self.all.iter().enumerate()
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.all.iter().filter(|module| !module.inline).count()
    }

    /// The root of a module's crate.
    pub fn root(&self, id: ModuleId) -> ModuleId {
        self.get(id).parent.map_or(id, |parent| self.root(parent))
    }

    /// The module whose file has a module's text: itself, unless it is a block.
    pub fn of_file(&self, id: ModuleId) -> ModuleId {
        match self.get(id) {
            Module { inline: true, parent: Some(parent), .. } => self.of_file(*parent),
            _ => id,
        }
    }

    /// The library of a crate, by the name that other crates use.
    pub fn library(&self, name: &str) -> Option<ModuleId> {
        let package = self.house.iter().position(|rules| rules.library() == name)?;
        self.all
            .iter()
            .position(|module| module.package == package && module.parent.is_none() && module.name == "lib")
    }

    /// Names from the root down, without the root's own.
    pub fn path(&self, id: ModuleId) -> Vec<&str> {
        let module = self.get(id);
        let Some(parent) = module.parent else { return Vec::new() };
        let mut path = self.path(parent);
        path.push(&module.name);
        path
    }

    /// The readable name of a module: `bareverbs-sim::nic::bar`.
    pub fn title(&self, id: ModuleId) -> String {
        let mut title = self.house[self.get(id).package].library();
        for name in self.path(id) {
            title.push_str("::");
            title.push_str(name);
        }
        title
    }

    /// Reads a file and what it declares. Test modules are walked, so that their files are known, but not
    /// kept.
    fn read_file(&mut self, sources: &Sources, place: Place) -> Result<Option<ModuleId>, String> {
        let text = sources.get(&place.file).ok_or_else(|| format!("{}: no such file", place.file))?;
        let parsed = syn::parse_file(text).map_err(|error| format!("{}: {error}", place.file))?;
        self.seen.insert(place.file.clone());
        let directory = children_directory(&place.file, place.parent.is_none());
        self.read_items(sources, place, &parsed.items, Layout { directory, inline: false })
    }

    fn read_items(
        &mut self,
        sources: &Sources,
        place: Place,
        items: &[Item],
        layout: Layout,
    ) -> Result<Option<ModuleId>, String> {
        let id = (!place.in_tests).then(|| self.add(&place, items, layout.inline));
        for item in items {
            let Item::Mod(declared) = item else { continue };
            let in_tests = place.in_tests || mentions::is_test(&declared.attrs);
            let name = declared.ident.to_string();
            let child = Place {
                package: place.package,
                name: name.clone(),
                parent: id,
                file: place.file.clone(),
                in_tests,
            };
            let read = match &declared.content {
                Some((_, items)) => {
                    let directory = format!("{}/{name}", layout.directory);
                    self.read_items(sources, child, items, Layout { directory, inline: true })?
                }
                None => {
                    let file = file_of(sources, &place.file, &layout.directory, declared)?;
                    self.read_file(sources, Place { file, ..child })?
                }
            };
            if let (Some(id), Some(read)) = (id, read) {
                self.all[id].names.entry(name).or_default().push(Name::Child(read));
            }
        }
        Ok(id)
    }

    fn add(&mut self, place: &Place, items: &[Item], inline: bool) -> ModuleId {
        let gathered = mentions::gather(items);
        let mut module = Module {
            package: place.package,
            name: place.name.clone(),
            parent: place.parent,
            file: place.file.clone(),
            inline,
            names: BTreeMap::new(),
            globs: Vec::new(),
            mentions: gathered.mentions,
            types: gathered.types,
            tuple_functions: gathered.tuple_functions,
        };
        for name in gathered.items {
            module.names.entry(name).or_default().push(Name::Item);
        }
        for tree in &gathered.imports {
            import(&mut module, tree, &mut Vec::new());
        }
        self.all.push(module);
        let id = self.all.len() - 1;
        self.export(id, gathered.exported_macros);
        id
    }

    /// Adds a macro that a module exports to the root of the crate, as the compiler does.
    fn export(&mut self, id: ModuleId, macros: Vec<String>) {
        let root = self.root(id);
        let path: Vec<String> =
            ["crate".to_owned()].into_iter().chain(self.path(id).into_iter().map(str::to_owned)).collect();
        for name in macros.into_iter().filter(|_| root != id) {
            let target = path.iter().cloned().chain([name.clone()]).collect();
            self.all[root].names.entry(name).or_default().push(Name::Import(target));
        }
    }

    /// Files of a crate that no module declares.
    fn orphans(&self, rules: &CrateRules, sources: &Sources) -> Vec<String> {
        let directory = format!("{}/src/", rules.directory);
        let unseen = |path: &&str| path.starts_with(&directory) && !self.seen.contains(*path);
        sources
            .rust()
            .map(|(path, _)| path)
            .filter(unseen)
            .map(|path| format!("{path}: no module declares it"))
            .collect()
    }
}

/// Where a module is being read.
struct Place {
    package: usize,
    name: String,
    parent: Option<ModuleId>,
    file: String,
    in_tests: bool,
}

/// Where the files of a module's children are, and whether the module is a block.
struct Layout {
    directory: String,
    inline: bool,
}

/// Crates that are missing in the table, and crates of the table that no longer exist.
fn unknown_crates(house: &[CrateRules], sources: &Sources) -> Vec<String> {
    let known = |path: &str| house.iter().any(|rules| rules.manifest() == path);
    let has = |text: &str, table: &str| text.lines().any(|line| line.trim() == table);
    // A package with its own workspace, such as the fuzz targets, is not part of the house.
    let packages =
        sources.manifests().filter(|(_, text)| has(text, "[package]") && !has(text, "[workspace]"));
    let unknown = packages
        .filter(|(path, _)| !known(path))
        .map(|(path, _)| format!("{path}: a crate that .ci/architecture/src/house.rs does not know"));
    let named = |rules: &CrateRules| {
        let line = format!("name = \"{}\"", rules.package);
        sources.get(&rules.manifest()).is_some_and(|text| text.lines().any(|found| found.trim() == line))
    };
    let gone = house
        .iter()
        .filter(|rules| !named(rules))
        .map(|rules| format!("{}: the table calls this crate {}", rules.manifest(), rules.package));
    unknown.chain(gone).collect()
}

/// The roots of a crate: its library and its programs.
fn roots(rules: &CrateRules, sources: &Sources) -> Vec<(String, String)> {
    let source = format!("{}/src/", rules.directory);
    let name = |path: &str| match path.strip_prefix(&source)?.strip_suffix(".rs")? {
        root @ ("lib" | "main") => Some(root.to_owned()),
        other => other.strip_prefix("bin/").filter(|name| !name.contains('/')).map(|_| other.to_owned()),
    };
    sources.rust().filter_map(|(path, _)| Some((name(path)?, path.to_owned()))).collect()
}

/// Where the files of a file's modules are.
fn children_directory(file: &str, is_root: bool) -> String {
    let (directory, name) = file.rsplit_once('/').unwrap_or((".", file));
    match name.trim_end_matches(".rs") {
        "mod" => directory.to_owned(),
        _ if is_root => directory.to_owned(),
        stem => format!("{directory}/{stem}"),
    }
}

fn file_of(
    sources: &Sources,
    parent: &str,
    directory: &str,
    declared: &syn::ItemMod,
) -> Result<String, String> {
    let name = declared.ident.to_string();
    let usual = || [format!("{directory}/{name}.rs"), format!("{directory}/{name}/mod.rs")].into();
    let candidates: Vec<String> = given_path(parent, declared).map_or_else(usual, |path| vec![path]);
    let found = candidates.iter().find(|path| sources.get(path).is_some());
    found.cloned().ok_or_else(|| format!("{parent}: no file for `mod {name}`"))
}

/// The file of a `#[path = "…"]`, which is relative to the directory of the declaring file.
fn given_path(parent: &str, declared: &syn::ItemMod) -> Option<String> {
    let path = declared.attrs.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => string(&pair.value),
        _ => None,
    })?;
    let mut parts: Vec<&str> = parent.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

fn string(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Adds the names that a `use` brings into a module.
fn import(module: &mut Module, tree: &UseTree, path: &mut Vec<String>) {
    let depth = path.len();
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            import(module, &part.tree, path);
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            bind(module, path, &name, &name);
        }
        UseTree::Rename(rename) => bind(module, path, &rename.ident.to_string(), &rename.rename.to_string()),
        UseTree::Glob(_) => module.globs.push(path.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| import(module, tree, path)),
    }
    path.truncate(depth);
}

fn bind(module: &mut Module, path: &[String], name: &str, known_as: &str) {
    let mut target = path.to_vec();
    let mut known_as = known_as;
    if name == "self" {
        if known_as == "self" {
            known_as = path.last().map_or("self", String::as_str);
        }
    } else {
        target.push(name.to_owned());
    }
    module.names.entry(known_as.to_owned()).or_default().push(Name::Import(target));
}
