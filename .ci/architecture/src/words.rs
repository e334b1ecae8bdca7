//! Words: type names with two meanings in one crate, tuples as parameters, functions without a subject in their
//! names, dangling citations, types without an example.

use crate::examples;
use crate::house::CrateRules;
use crate::modules::Modules;
use crate::ratchet::Counts;
use crate::sources::Sources;
use std::collections::BTreeMap;
use std::fmt::Write;

const REPEATED_TYPES: &str = "repeated type names";
const TUPLE_PARAMETERS: &str = "functions that take a tuple";
const PRONOUNS: &str = "function names that begin with a pronoun";
const LOST_CITATIONS: &str = "citations that lead nowhere";
const MISSING_EXAMPLES: &str = "types that an application makes and that have no example";

/// The beginning of citations of a document that is not in this repository.
const LOST: &str = concat!("contract", " §");

/// The beginnings of names that say neither what is tested nor what a function is about.
const PRONOUN_PREFIXES: [&str; 12] = [
    "everybody_",
    "everything_",
    "it_",
    "nobody_",
    "nothing_",
    "somebody_",
    "something_",
    "those_",
    "what_",
    "who_",
    "whoever_",
    "whose_",
];

/// Findings in one crate: the kind, and the places.
type Found = BTreeMap<&'static str, Vec<String>>;

/// How often each thing occurs in each crate.
pub fn count(modules: &Modules, sources: &Sources) -> Counts {
    let mut counts = Counts::new();
    for (package, found) in find(modules, sources) {
        for (what, places) in found {
            counts.insert((package.clone(), what.to_owned()), places.len());
        }
    }
    counts
}

/// Every occurrence, with its places.
pub fn report(modules: &Modules, sources: &Sources) -> String {
    let mut text = String::new();
    for (package, found) in find(modules, sources) {
        for (what, places) in found {
            let _ = writeln!(text, "{package}: {} {what}", places.len());
            for place in places {
                let _ = writeln!(text, "    {place}");
            }
        }
    }
    text
}

fn find(modules: &Modules, sources: &Sources) -> BTreeMap<String, Found> {
    let packages = modules.house.iter().enumerate();
    packages
        .map(|(package, rules)| {
            let found = [
                (REPEATED_TYPES, repeated_types(modules, package)),
                (TUPLE_PARAMETERS, tuple_parameters(modules, package)),
                (PRONOUNS, lines_of(rules, sources, begins_with_pronoun)),
                (LOST_CITATIONS, lines_of(rules, sources, |line| line.contains(LOST))),
                (MISSING_EXAMPLES, missing_examples(modules, sources, package)),
            ];
            (rules.package.to_owned(), Found::from(found))
        })
        .collect()
}

fn repeated_types(modules: &Modules, package: usize) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, module) in modules.iter().filter(|(_, module)| module.package == package) {
        for name in &module.types {
            places.entry(name).or_default().push(&module.file);
        }
    }
    let repeated = places.into_iter().filter(|(_, files)| files.len() > 1);
    repeated.map(|(name, files)| format!("{name}: {}", files.join(", "))).collect()
}

fn tuple_parameters(modules: &Modules, package: usize) -> Vec<String> {
    let modules = modules.iter().filter(|(_, module)| module.package == package);
    let named = modules
        .flat_map(|(_, module)| module.tuple_functions.iter().map(|name| format!("{name}: {}", module.file)));
    named.collect()
}

/// Types without examples in crates that are meant for applications; the others have no users outside this
/// repository.
fn missing_examples(modules: &Modules, sources: &Sources, package: usize) -> Vec<String> {
    let rules = &modules.house[package];
    let manifest = sources.get(&rules.manifest()).unwrap_or_default();
    if manifest.contains("publish.workspace = true") || manifest.contains("publish = false") {
        return Vec::new();
    }
    examples::missing(modules, sources, package)
}

/// The lines of a crate's sources that `is_fault` finds, with their numbers.
fn lines_of(rules: &CrateRules, sources: &Sources, is_fault: fn(&str) -> bool) -> Vec<String> {
    let own = sources.rust().filter(|(path, _)| crate_of(path) == Some(rules.directory));
    let lines =
        own.flat_map(|(path, text)| text.lines().enumerate().map(move |(line, text)| (path, line, text)));
    let faults = lines.filter(|(_, _, text)| is_fault(text));
    faults.map(|(path, line, _)| format!("{path}:{}", line + 1)).collect()
}

/// Whether a line declares a function whose name begins with a pronoun.
fn begins_with_pronoun(line: &str) -> bool {
    let words = line.split_whitespace().skip_while(|word| *word != "fn").nth(1);
    words.is_some_and(|name| PRONOUN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

/// The directory of the crate that contains a file: the part before `src`, `tests`, `benches` or `examples`.
fn crate_of(path: &str) -> Option<&str> {
    ["/src/", "/tests/", "/benches/", "/examples/"]
        .iter()
        .filter_map(|part| path.find(part))
        .min()
        .map(|end| &path[..end])
}
