//! What the code of one module mentions: paths in imports, expressions, types and macros; and what it declares.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, FnArg, Item, Meta, Token, Type, UseTree, Visibility};

/// Configurations that exist for tests only.
const TEST_CONFIGURATIONS: &[&str] = &["test", "loom", "bareverbs_mutations"];

/// A path in the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// Its names. An empty first name stands for a leading `::`.
    pub path: Vec<String>,
    /// Where it stands.
    pub line: usize,
    /// How it is mentioned.
    pub kind: Kind,
}

/// How a path is mentioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By a `use` for this module alone.
    Import,
    /// By a `use` that other modules see.
    Reexport,
    /// In an expression, a pattern, a type, or the arguments of a macro.
    Code,
    /// As the macro of a call.
    Macro,
}

/// What one module contains, without its child modules.
#[derive(Default)]
pub struct Gathered {
    /// Paths that it mentions.
    pub mentions: Vec<Mention>,
    /// Names of its items.
    pub items: Vec<String>,
    /// Its imports, those inside functions included.
    pub imports: Vec<UseTree>,
    /// Names of its types and traits.
    pub types: Vec<String>,
    /// Names of functions that take a tuple.
    pub tuple_functions: Vec<String>,
    /// Names of macros that are also visible at the crate's root.
    pub exported_macros: Vec<String>,
}

/// Gathers what the items of a module mention. Skips what is only compiled for tests.
pub fn gather(items: &[Item]) -> Gathered {
    let mut gathered = Gathered::default();
    for item in items.iter().filter(|item| !is_test(attributes(item))) {
        gathered.declare(item);
        gathered.visit_item(item);
    }
    gathered
}

/// Whether attributes restrict an item to tests.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|meta| wants_test(&meta))
        }
        meta => meta.path().is_ident("test"),
    })
}

/// Whether a configuration holds in tests only: `test`, or an `all` with it.
fn wants_test(meta: &Meta) -> bool {
    match meta {
        Meta::Path(path) => TEST_CONFIGURATIONS.iter().any(|name| path.is_ident(name)),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|parts| parts.iter().any(wants_test)),
        _ => false,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl Gathered {
    /// Records the name of an item.
    fn declare(&mut self, item: &Item) {
        match item {
            Item::Const(item) => self.items.push(item.ident.to_string()),
            Item::Static(item) => self.items.push(item.ident.to_string()),
            Item::Fn(item) => self.items.push(item.sig.ident.to_string()),
            Item::Enum(item) => self.declare_type(item.ident.to_string()),
            Item::Struct(item) => self.declare_type(item.ident.to_string()),
            Item::Trait(item) => self.declare_type(item.ident.to_string()),
            Item::TraitAlias(item) => self.declare_type(item.ident.to_string()),
            Item::Type(item) => self.declare_type(item.ident.to_string()),
            Item::Union(item) => self.declare_type(item.ident.to_string()),
            Item::Macro(item) => match &item.ident {
                Some(name) => {
                    self.items.push(name.to_string());
                    if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
                        self.exported_macros.push(name.to_string());
                    }
                }
                None => self.declare_from_tokens(item.mac.tokens.clone()),
            },
            _ => {}
        }
    }

    fn declare_type(&mut self, name: String) {
        self.items.push(name.clone());
        self.types.push(name);
    }

    /// Records types declared through a macro: a name after `struct`, `enum`, `union` or `trait`.
    fn declare_from_tokens(&mut self, tokens: TokenStream) {
        let mut declares = false;
        let mut names = BTreeSet::new();
        for token in tokens {
            if let (true, TokenTree::Ident(name)) = (declares, &token) {
                names.insert(name.to_string());
            }
            declares = matches!(&token, TokenTree::Ident(word) if is_type_word(&word.to_string()));
        }
        names.into_iter().for_each(|name| self.declare_type(name));
    }

    fn mention(&mut self, path: Vec<String>, line: usize, kind: Kind) {
        self.mentions.push(Mention { path, line, kind });
    }

    fn mention_uses(&mut self, tree: &UseTree, path: &mut Vec<String>, kind: Kind) {
        let depth = path.len();
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.mention_uses(&part.tree, path, kind);
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.mention(path.clone(), tree.span().start().line, kind)
            }
            UseTree::Rename(name) if name.ident == "self" => {
                self.mention(path.clone(), tree.span().start().line, kind)
            }
            UseTree::Name(syn::UseName { ident }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
                let path = path.iter().cloned().chain([ident.to_string()]).collect();
                self.mention(path, tree.span().start().line, kind);
            }
            UseTree::Glob(_) => self.mention(path.clone(), tree.span().start().line, kind),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.mention_uses(tree, path, kind)),
        }
        path.truncate(depth);
    }

    /// Records paths in the arguments of a macro, which `syn` does not parse: names joined by `::`, and
    /// single names of types.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path = Path::default();
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if !path.awaits_name {
                        self.mention_scanned(std::mem::take(&mut path));
                    }
                    path.push(name.to_string(), name.span().start().line);
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => path.colon(),
                TokenTree::Group(group) => {
                    self.mention_scanned(std::mem::take(&mut path));
                    self.scan(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.mention_scanned(std::mem::take(&mut path))
                }
            }
        }
        self.mention_scanned(path);
    }

    fn mention_scanned(&mut self, path: Path) {
        let is_type = |name: &String| name.starts_with(|letter: char| letter.is_ascii_uppercase());
        if path.names.len() > 1 || path.names.first().is_some_and(is_type) {
            self.mention(path.names, path.line, Kind::Code);
        }
    }
}

/// A path that is being assembled from tokens.
#[derive(Default)]
struct Path {
    names: Vec<String>,
    line: usize,
    colons: usize,
    awaits_name: bool,
}

impl Path {
    fn push(&mut self, name: String, line: usize) {
        self.names.push(name);
        self.line = line;
        self.colons = 0;
        self.awaits_name = false;
    }

    fn colon(&mut self) {
        self.colons += 1;
        self.awaits_name = self.colons == 2;
        if self.colons == 2 && self.names.is_empty() {
            self.names.push(String::new());
        }
    }
}

fn is_type_word(word: &str) -> bool {
    matches!(word, "struct" | "enum" | "union" | "trait")
}

fn takes_tuple(signature: &syn::Signature) -> bool {
    signature.inputs.iter().any(|input| matches!(input, FnArg::Typed(argument) if is_tuple(&argument.ty)))
}

fn is_tuple(kind: &Type) -> bool {
    match kind {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Gathered {
    fn visit_item(&mut self, item: &'ast Item) {
        // Child modules are gathered separately.
        if !matches!(item, Item::Mod(_)) && !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let kind = if matches!(item.vis, Visibility::Inherited) { Kind::Import } else { Kind::Reexport };
        self.mention_uses(&item.tree, &mut Vec::new(), kind);
        self.imports.push(item.tree.clone());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let lead = path.leading_colon.map(|_| String::new());
        let names = lead.into_iter().chain(path.segments.iter().map(|part| part.ident.to_string())).collect();
        self.mention(names, path.span().start().line, Kind::Code);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let names = called.path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.mention(names, called.path.span().start().line, Kind::Macro);
        self.scan(called.tokens.clone());
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if takes_tuple(signature) {
            self.tuple_functions.push(signature.ident.to_string());
        }
        visit::visit_signature(self, signature);
    }

    // syn treats `pub(crate)` as a path, and attributes name no room.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}
