//! Checks that every type that an application creates has a compiled example, at the type or at a function
//! that returns it. An application creates what a public function returns, and a configuration: a structure that
//! a public function takes, that has a default, and whose fields are all public.

use crate::mentions;
use crate::modules::{ModuleId, Modules};
use crate::sources::Sources;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;
use syn::{
    Attribute, Fields, FnArg, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, ReturnType, Signature, Type,
    UseTree, Visibility,
};

/// What is known about a type of one crate.
#[derive(Debug, Default)]
struct Made {
    /// The file that declares it.
    file: String,
    /// Whether an application creates one: a public function returns it, or it is a configuration.
    is_made: bool,
    /// Whether it is a structure whose fields are all public, and that a public function takes.
    is_open: bool,
    /// Whether it has an example.
    has_example: bool,
}

/// The modules of one library, parsed.
type Parsed = BTreeMap<ModuleId, syn::File>;

/// The types of a library that other crates can create and that have no example.
pub fn missing(modules: &Modules, sources: &Sources, package: usize) -> Vec<String> {
    let parsed = parse(modules, sources, package);
    let mut taken = Taken::default();
    parsed.values().for_each(|file| taken.visit_file(file));
    let mut types = BTreeMap::new();
    for (id, file) in &parsed {
        declare(&mut types, &taken, &modules.get(*id).file, &file.items);
    }
    for file in parsed.values() {
        file.items.iter().for_each(|item| implement(&mut types, item));
    }
    let public = public_names(modules, &parsed);
    let missing =
        types.into_iter().filter(|(name, made)| made.is_made && !made.has_example && public.contains(name));
    missing.map(|(name, made)| format!("{name}: {}", made.file)).collect()
}

/// Parses the files of a library. Skips files that do not parse, which are reported elsewhere.
fn parse(modules: &Modules, sources: &Sources, package: usize) -> Parsed {
    let is_of_library = |id: ModuleId| modules.get(modules.root(id)).name == "lib";
    let own = modules
        .iter()
        .filter(|(id, module)| module.package == package && !module.inline && is_of_library(*id));
    own.filter_map(|(id, module)| Some((id, syn::parse_file(sources.get(&module.file)?).ok()?))).collect()
}

/// The names in the arguments of public functions.
#[derive(Default)]
struct Taken(BTreeSet<String>);

impl Visit<'_> for Taken {
    fn visit_item_fn(&mut self, function: &ItemFn) {
        self.take(&function.vis, &function.sig);
    }

    fn visit_impl_item_fn(&mut self, function: &ImplItemFn) {
        self.take(&function.vis, &function.sig);
    }
}

impl Taken {
    fn take(&mut self, visibility: &Visibility, signature: &Signature) {
        struct Names<'a>(&'a mut BTreeSet<String>);
        impl Visit<'_> for Names<'_> {
            fn visit_ident(&mut self, ident: &proc_macro2::Ident) {
                self.0.insert(ident.to_string());
            }
        }
        if is_public(visibility) {
            signature.inputs.iter().for_each(|input| Names(&mut self.0).visit_fn_arg(input));
        }
    }
}

fn declare(types: &mut BTreeMap<String, Made>, taken: &Taken, file: &str, items: &[Item]) {
    for item in items {
        let (name, attributes, visibility, is_open) = match item {
            Item::Struct(item) => (&item.ident, &item.attrs, &item.vis, is_open(&item.fields)),
            Item::Enum(item) => (&item.ident, &item.attrs, &item.vis, false),
            _ => continue,
        };
        if is_public(visibility) && !mentions::is_test(attributes) {
            let is_open = is_open && taken.0.contains(&name.to_string());
            let (is_made, has_example) = (is_open && derives_default(attributes), has_example(attributes));
            types.insert(name.to_string(), Made { file: file.to_owned(), is_made, is_open, has_example });
        }
    }
}

/// Whether a structure has named fields, all of them public.
fn is_open(fields: &Fields) -> bool {
    matches!(fields, Fields::Named(_)) && fields.iter().all(|field| is_public(&field.vis))
}

fn derives_default(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("derive")).any(|attribute| {
        let mut is_default = false;
        let seen = attribute.parse_nested_meta(|meta| {
            is_default |= meta.path.is_ident("Default");
            Ok(())
        });
        seen.is_ok() && is_default
    })
}

/// Records the functions of a type, and its default.
fn implement(types: &mut BTreeMap<String, Made>, item: &Item) {
    let Item::Impl(item) = item else { return };
    let Some(made) = name_of(&item.self_ty).and_then(|name| types.get_mut(&name)) else { return };
    match &item.trait_ {
        None => implement_own(made, item),
        Some((_, name, _)) => made.is_made |= made.is_open && name.is_ident("Default"),
    }
}

/// Records the inherent functions of a type.
fn implement_own(made: &mut Made, item: &ItemImpl) {
    let Some(name) = name_of(&item.self_ty) else { return };
    for function in &item.items {
        let ImplItem::Fn(function) = function else { continue };
        if !is_public(&function.vis) || mentions::is_test(&function.attrs) {
            continue;
        }
        let takes_one = matches!(function.sig.inputs.first(), Some(FnArg::Receiver(_)));
        made.is_made |= !takes_one && gives(&function.sig.output, &name);
        made.has_example |= has_example(&function.attrs);
    }
}

/// Whether a function returns the type, directly or inside another: `Self`, `Result<Self, E>`, `Arc<Name>`.
fn gives(output: &ReturnType, name: &str) -> bool {
    struct Finder<'a>(&'a str, bool);
    impl Visit<'_> for Finder<'_> {
        fn visit_ident(&mut self, ident: &proc_macro2::Ident) {
            self.1 |= ident == "Self" || ident == self.0;
        }
    }
    let ReturnType::Type(_, output) = output else { return false };
    let mut finder = Finder(name, false);
    finder.visit_type(output);
    finder.1
}

/// The public names of the library: public items in modules that are public from the root down, and their
/// re-exports.
fn public_names(modules: &Modules, parsed: &Parsed) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, file) in parsed.iter().filter(|(id, _)| is_shown(modules, parsed, **id)) {
        file.items.iter().for_each(|item| show(&mut names, item));
    }
    names
}

fn show(names: &mut BTreeSet<String>, item: &Item) {
    match item {
        Item::Struct(item) if is_public(&item.vis) => drop(names.insert(item.ident.to_string())),
        Item::Enum(item) if is_public(&item.vis) => drop(names.insert(item.ident.to_string())),
        Item::Use(item) if is_public(&item.vis) => hand_on(names, &item.tree),
        _ => {}
    }
}

fn hand_on(names: &mut BTreeSet<String>, tree: &UseTree) {
    match tree {
        UseTree::Path(path) => hand_on(names, &path.tree),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(rename) => drop(names.insert(rename.ident.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| hand_on(names, tree)),
        UseTree::Glob(_) => {}
    }
}

/// Whether every `mod` from the root down to this one is public.
fn is_shown(modules: &Modules, parsed: &Parsed, id: ModuleId) -> bool {
    let module = modules.get(id);
    let Some(parent) = module.parent else { return true };
    let declares =
        |item: &Item| matches!(item, Item::Mod(item) if item.ident == module.name && is_public(&item.vis));
    let is_public = parsed.get(&parent).is_some_and(|file| file.items.iter().any(declares));
    is_public && is_shown(modules, parsed, parent)
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether the documentation has code that the compiler checks. Text, other languages and ignored code do not
/// count.
fn has_example(attributes: &[Attribute]) -> bool {
    let mut is_open = false;
    attributes.iter().filter_map(doc_line).any(|line| {
        let Some(words) = line.trim_start().strip_prefix("```").map(str::to_owned) else { return false };
        is_open = !is_open;
        is_open && words.trim().split(',').all(|word| ["", "rust", "no_run", "should_panic"].contains(&word))
    })
}

/// A line of documentation.
fn doc_line(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

fn name_of(own: &Type) -> Option<String> {
    match own {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}
