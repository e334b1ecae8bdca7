//! Sizes: no file over 600 lines except tables, no function over 80.

use crate::sources::Sources;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const LONGEST_FILE: usize = 600;
const LONGEST_FUNCTION: usize = 80;

/// Files that are tables from top to bottom.
const TABLES: &[&str] = &["driver/prm/src/numbering.rs"];

/// Files and functions that are too long, tests included.
pub fn check(sources: &Sources) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for (path, text) in sources.rust() {
        let lines = text.lines().count();
        if lines > LONGEST_FILE && !TABLES.contains(&path) {
            faults.push(format!("{path}: {lines} lines, over {LONGEST_FILE}"));
        }
        let parsed = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
        let mut functions = Functions { path, faults: &mut faults };
        functions.visit_file(&parsed);
    }
    Ok(faults)
}

struct Functions<'a> {
    path: &'a str,
    faults: &'a mut Vec<String>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (signature.span().start().line, body.span().end().line);
        let lines = last - first + 1;
        if lines > LONGEST_FUNCTION {
            let (path, name) = (self.path, &signature.ident);
            self.faults.push(format!("{path}:{first}: {name} has {lines} lines, over {LONGEST_FUNCTION}"));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}
