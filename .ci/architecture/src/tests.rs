//! Small crates that must be caught, and some that must pass.

use crate::arrows::Arrows;
use crate::house::{Ban, CrateRules, HOUSE};
use crate::modules::Modules;
use crate::ratchet::{self, Counts};
use crate::sources::Sources;
use crate::{cycles, draw, rules, sizes, words};
use std::collections::BTreeSet;

const MANIFEST: (&str, &str) = ("leaf/Cargo.toml", "[package]\nname = \"the-leaf\"\n");
const UPPER: (&str, &str) = ("upper/Cargo.toml", "[package]\nname = \"the-upper\"\n");
const ROOMS: &str = "pub mod low; pub mod middle; pub mod high;";

/// Two crates: the upper one may depend on the leaf, which has three rooms one above the other.
const TABLE: &[CrateRules] = &[
    CrateRules {
        package: "the-leaf",
        directory: "leaf",
        knows: &[],
        layers: &[&["low"], &["middle"], &["high"]],
        pure: &["low"],
        bans: &[Ban { room: "high::blind", names: &["crate"], but: &["crate::low"], why: "blind" }],
    },
    CrateRules {
        package: "the-upper",
        directory: "upper",
        knows: &["the_leaf"],
        layers: &[&["a", "b"], &["main"]],
        pure: &[],
        bans: &[],
    },
];

/// Reads the leaf with these files, missing rooms left empty.
fn leaf(files: &[(&str, &str)]) -> (Modules, Vec<String>) {
    let mut all = vec![MANIFEST, UPPER, ("leaf/src/lib.rs", ROOMS)];
    all.extend_from_slice(files);
    for room in ["leaf/src/low.rs", "leaf/src/middle.rs", "leaf/src/high.rs"] {
        let directory = room.trim_end_matches(".rs");
        if !all.iter().any(|(path, _)| *path == room || *path == format!("{directory}/mod.rs")) {
            all.push((room, ""));
        }
    }
    Modules::read(TABLE, &Sources::of(&all)).unwrap()
}

/// The faults of the leaf: tree, rules and cycles.
fn faults(files: &[(&str, &str)]) -> Vec<String> {
    let (modules, mut faults) = leaf(files);
    let arrows = Arrows::of(&modules);
    faults.extend(rules::check(&modules, &arrows));
    faults.extend(cycles::check(&cycles::find(&modules, &arrows)));
    faults
}

#[track_caller]
fn caught(files: &[(&str, &str)], expected: &str) {
    let faults = faults(files);
    assert!(faults.iter().any(|fault| fault.contains(expected)), "expected '{expected}', found {faults:#?}");
}

#[track_caller]
fn passes(files: &[(&str, &str)]) {
    assert_eq!(faults(files), Vec::<String>::new());
}

const HIGH: (&str, &str) =
    ("leaf/src/high.rs", "pub struct Tower; pub fn build() {} #[macro_export] macro_rules! m { () => {} }");

/// Every way to write a path that points upwards.
#[test]
fn an_arrow_that_runs_up_is_caught_however_it_is_written() {
    for code in [
        "use crate::high::Tower;",
        "use crate::{high::Tower, middle};",
        "use crate::high::Tower as Other;",
        "use crate::high::{self}; fn f(_: high::Tower) {}",
        "use crate::high::*; fn f(_: Tower) {}",
        "use super::high::Tower;",
        "use super::{high::{Tower}};",
        "fn f() { crate::high::build() }",
        "fn f() { super::high::build() }",
        "fn f(_: &dyn Fn(crate::high::Tower)) {}",
        "fn f() { use crate::high::Tower; }",
        "fn f() { assert!(matches!(0, crate::high::LIMIT)); }",
        "fn f() { println!(\"{}\", super::high::build()); }",
        "mod inside { use super::super::high::Tower; }",
        "use crate::high as tower; fn f() { tower::build() }",
        "macro_rules! m { () => { $crate::high::build() } }",
        "#[cfg(test)] mod tests {} \n use crate::high::Tower;",
        "#[cfg(not(test))] use crate::high::Tower;",
        "crate::m!();",
        "pub use crate::high::Tower;",
        "impl Fn for crate::high::Tower {}",
        "fn f() { let crate::high::Tower = x else { return }; }",
    ] {
        caught(&[HIGH, ("leaf/src/low.rs", code)], "low names high, which is above it");
    }
}

#[test]
fn code_without_an_arrow_passes() {
    for code in [
        "// use crate::high::Tower;",
        "/// [`crate::high::Tower`] is above.\nfn f() { let text = \"crate::high::Tower\"; }",
        "#[cfg(test)] mod tests { use crate::high::Tower; }",
        "#[cfg(all(test, unix))] use crate::high::Tower;",
        "#[test] fn f() { crate::high::build() }",
        "pub(crate) fn high() {} fn f(high: u8) -> u8 { high }",
        "use core::fmt; fn f(high: &mut fmt::Formatter) { println!(\"{}\", high) }",
    ] {
        let code = code.replace("println", "write");
        passes(&[HIGH, ("leaf/src/low.rs", &code)]);
    }
    passes(&[HIGH, ("leaf/src/middle.rs", "use crate::low; use super::low::*;")]);
}

/// What a parent re-exports from its child belongs to the child.
#[test]
fn a_re_export_leads_to_the_module_that_declares_the_name() {
    let parts = [
        ("leaf/src/middle/mod.rs", "mod one; mod two; pub use one::One; pub use two::*;"),
        ("leaf/src/middle/one.rs", "use super::Two; pub struct One;"),
        ("leaf/src/middle/two.rs", "pub struct Two; pub fn f(_: super::One) {}"),
    ];
    caught(&parts, "the_leaf::middle: one two: a cycle between rooms");
    caught(&parts, "one -> two  leaf/src/middle/one.rs:1");
}

#[test]
fn a_re_export_at_the_root_leads_to_its_room() {
    let lib = ("leaf/src/lib.rs", "pub mod low; pub mod middle; pub mod high; pub use high::Tower;");
    caught(&[lib, HIGH, ("leaf/src/low.rs", "use crate::Tower;")], "low names high");
    passes(&[lib, HIGH, ("leaf/src/middle.rs", "use crate::low;")]);
}

#[test]
fn a_cycle_through_a_modules_own_file_is_caught_apart() {
    let parts = [
        ("leaf/src/high.rs", "mod part; use part::Part; pub struct Tower(Part);"),
        ("leaf/src/high/part.rs", "pub struct Part; impl super::Tower {}"),
    ];
    caught(&parts, "the_leaf::high: . part: a cycle between rooms");
    // A child that extends its parent's type is fine, and so is a table of contents.
    passes(&[("leaf/src/high.rs", "mod part; pub use part::Part; pub struct Tower;"), parts[1]]);
}

#[test]
fn rooms_below_different_parents_are_a_cycle_of_the_parents() {
    let table = [
        ("leaf/src/high/mod.rs", "mod a; mod b;"),
        ("leaf/src/high/a/mod.rs", "mod one; mod two;"),
        ("leaf/src/high/a/one.rs", "use crate::high::b::B;"),
        ("leaf/src/high/a/two.rs", "pub struct A;"),
        ("leaf/src/high/b.rs", "pub struct B; use crate::high::a::two::A;"),
    ];
    caught(&table, "the_leaf::high: a b: a cycle between rooms");
}

#[test]
fn banned_names_are_refused_except_where_allowed() {
    let high = |blind| [("leaf/src/high.rs", "mod blind;"), ("leaf/src/high/blind.rs", blind)];
    caught(&high("use crate::middle::x;"), "the_leaf::middle::x (blind)");
    passes(&high("use crate::low::x;"));
}

#[test]
fn a_pure_room_has_no_clock_and_no_output() {
    for (code, what) in [
        ("use std::time::Instant;", "std::time::Instant"),
        ("use std::time; fn f() { time::Instant::now(); }", "std::time::Instant::now"),
        ("use std::{collections::{BTreeMap, HashMap}};", "HashMap"),
        ("fn f() { println!() }", "println!"),
        ("fn f() { if x { std::thread::sleep(y) } }", "std::thread::sleep"),
        ("use std::io; fn f() { io::stderr().lock(); }", "std::io::stderr"),
        ("use std::hash::RandomState;", "std::hash::RandomState"),
        ("fn f(_: std::collections::hash_map::HashMap<u8, u8>) {}", "std::collections::hash_map"),
        ("fn f(bytes: &mut [u8]) { getrandom::fill(bytes) }", "getrandom::fill"),
    ] {
        caught(&[("leaf/src/low.rs", code)], what);
        passes(&[("leaf/src/middle.rs", code)]);
    }
    passes(&[("leaf/src/low.rs", "use core::time::Duration; use std::collections::BTreeMap;")]);
}

#[test]
fn a_crate_may_name_only_those_that_it_knows() {
    let upper = |code| [("upper/src/main.rs", code)];
    passes(&upper("use the_leaf::low; fn main() {}"));
    caught(&[("leaf/src/low.rs", "fn f() { the_upper::g() }"), ("upper/src/lib.rs", "")], "names the_upper");
}

#[test]
fn rooms_crates_and_files_that_the_table_lacks_are_caught() {
    let lib = ("leaf/src/lib.rs", "pub mod low; pub mod middle; pub mod high; mod attic;");
    caught(&[lib, ("leaf/src/attic.rs", "")], "the_leaf::attic: a room that");
    caught(&[("new/Cargo.toml", "[package]\nname = \"new\"")], "new/Cargo.toml: a crate that");
    caught(&[("leaf/src/lost.rs", "")], "leaf/src/lost.rs: no module declares it");
    passes(&[("leaf/src/low.rs", "#[cfg(test)] mod tests;"), ("leaf/src/low/tests.rs", "use crate::high;")]);
}

#[test]
fn a_path_attribute_leads_to_its_file() {
    let parts = [
        ("leaf/src/high.rs", "#[path = \"other/../odd.rs\"] mod odd;"),
        ("leaf/src/odd.rs", "use std::time::Instant;"),
    ];
    passes(&parts);
    caught(
        &[("leaf/src/low.rs", "#[path = \"odd.rs\"] mod odd;"), parts[1]],
        "leaf/src/odd.rs:1: std::time::Instant",
    );
}

#[test]
fn every_cycle_is_a_fault() {
    let parts = [
        ("leaf/src/high/mod.rs", "mod a; mod b;"),
        ("leaf/src/high/a.rs", "use super::b::B; pub struct A;"),
        ("leaf/src/high/b.rs", "use super::a::A; pub struct B;"),
    ];
    let (modules, _) = leaf(&parts);
    let found = cycles::find(&modules, &Arrows::of(&modules));
    let faults = cycles::check(&found);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("the_leaf::high: a b: a cycle between rooms\n"), "{faults:?}");
    assert!(cycles::check(&[]).is_empty());
}

#[test]
fn long_files_and_functions_are_caught() {
    let function = |lines: usize| format!("impl T {{ fn f() {{\n{}}} }}", "g();\n".repeat(lines - 2));
    let check = |text: &str| sizes::check(&Sources::of(&[("x.rs", text)])).unwrap();
    assert_eq!(check(&function(80)), Vec::<String>::new());
    assert_eq!(check(&function(82)).len(), 1);
    assert_eq!(check(&"\n".repeat(600)), Vec::<String>::new());
    assert_eq!(check(&"\n".repeat(601)), ["x.rs: 601 lines, over 600"]);
}

#[test]
fn words_are_counted() {
    let parts = [
        ("leaf/src/low.rs", "pub struct Entry; layout! { pub struct Title { x: u8 } } fn f(at: (u8, u8)) {}"),
        ("leaf/src/middle.rs", "enum Entry {} trait Title {} #[cfg(test)] mod tests { struct Entry; }"),
        ("leaf/src/high.rs", "type Own = u8; trait T { type Own; fn g(&self, at: &(u8, u8)); fn h(_: ()); }"),
    ];
    let (modules, _) = leaf(&parts);
    let cited = Sources::of(&[
        ("leaf/src/low.rs", concat!("// As the contract", " §3 says.\n")),
        ("upper/src/main.rs", ""),
    ]);
    let counts = words::count(&modules, &cited);
    let count = |what: &str| counts[&("the-leaf".to_owned(), what.to_owned())];
    assert_eq!((count("repeated type names"), count("functions that take a tuple")), (2, 2));
    assert_eq!(count("citations that lead nowhere"), 1);
    let report = words::report(&modules, &cited);
    assert!(report.contains("Entry: leaf/src/low.rs, leaf/src/middle.rs"), "{report}");
}

#[test]
fn functions_named_by_a_pronoun_are_counted() {
    let count = |text: &str| {
        let sources = Sources::of(&[("leaf/src/low.rs", text)]);
        let (modules, _) = leaf(&[("leaf/src/low.rs", "")]);
        words::count(&modules, &sources)
            [&("the-leaf".to_owned(), "function names that begin with a pronoun".to_owned())]
    };
    assert_eq!(count(concat!("    fn ", "what_is_meant() {}\n    pub const fn ", "nobody_knows() {}\n")), 2);
    assert_eq!(count("fn a_reader_knows_what_is_meant() {}\n// fn\nfn whatever() {}\n"), 0);
}

#[test]
fn a_type_that_an_application_makes_wants_an_example() {
    let missing = |text: &str| {
        let parts = [("leaf/src/low.rs", text), ("leaf/src/lib.rs", ROOMS), MANIFEST];
        let (modules, _) = leaf(&parts);
        let counts = words::count(&modules, &Sources::of(&parts));
        counts
            [&("the-leaf".to_owned(), "types that an application makes and that have no example".to_owned())]
    };
    assert_eq!(missing("pub struct T; impl T { pub fn new() -> Result<Self, E> {} }"), 1);
    assert_eq!(missing("pub struct T; impl T { pub fn make(n: u8) -> Arc<T> {} }"), 1);
    assert_eq!(
        missing("/// ```\n/// T::new();\n/// ```\npub struct T; impl T { pub fn new() -> Self {} }"),
        0
    );
    assert_eq!(
        missing("pub struct T; impl T {\n/// ```\n/// T::new();\n/// ```\npub fn new() -> Self {} }"),
        0
    );
    // Code that is not compiled does not count as an example.
    let fenced = |word: &str| {
        format!("/// ```{word}\n/// T\n/// ```\npub struct T; impl T {{ pub fn new() -> Self {{}} }}")
    };
    assert_eq!([missing(&fenced("no_run")), missing(&fenced("text")), missing(&fenced("ignore"))], [0, 1, 1]);
    // A type that only this crate sees, one that nobody can create, and one that comes from another value.
    assert_eq!(missing("pub(crate) struct T; impl T { pub fn new() -> Self {} }"), 0);
    assert_eq!(missing("pub struct T; impl T { pub(crate) fn new() -> Self {} }"), 0);
    assert_eq!(missing("pub struct T; impl T { pub fn next(&self) -> Self {} }"), 0);
    assert_eq!(missing("mod inner { pub struct T; impl T { pub fn new() -> Self {} } }"), 0);
    // A configuration: an application fills it in. Results and values without a default do not count.
    let derived = "#[derive(Clone, Default)] pub struct T { pub a: u8 }";
    let taken = "pub fn open(name: &str, config: Option<&T>) {}";
    assert_eq!(missing(&format!("{derived} {taken}")), 1);
    assert_eq!(
        missing(&format!("pub struct T {{ pub a: u8 }} impl Default for T {{}} impl U {{ {taken} }}")),
        1
    );
    assert_eq!(missing(&format!("/// ```\n/// T::default();\n/// ```\n{derived} {taken}")), 0);
    assert_eq!(missing(derived), 0);
    assert_eq!(missing(&format!("pub struct T {{ pub a: u8 }} {taken}")), 0);
    assert_eq!(missing(&format!("#[derive(Default)] pub struct T {{ pub a: u8, b: u8 }} {taken}")), 0);
}

#[test]
fn a_count_may_fall_and_not_rise() {
    let counts = |number| Counts::from([(("crate".to_owned(), "things".to_owned()), number)]);
    assert!(ratchet::check(&counts(3), &counts(3)).is_empty());
    assert!(ratchet::check(&counts(2), &counts(3)).is_empty());
    assert_eq!(ratchet::check(&counts(4), &counts(3)).len(), 1);
    assert_eq!(ratchet::check(&counts(1), &Counts::new()).len(), 1);
}

#[test]
fn the_picture_names_rooms_from_the_bottom_up() {
    let (modules, _) = leaf(&[("leaf/src/high.rs", "use crate::low::x; use crate::middle::y;")]);
    let arrows = Arrows::of(&modules);
    assert!(draw::text(&modules, &arrows).contains("  2 high -> low, middle\n"));
    assert!(draw::mermaid(&modules, &arrows).contains("the-leaf.high[high] --> the-leaf.low[low]"));
    assert!(draw::summary(&modules, &arrows).contains("low < middle < high"));
}

/// No crate depends on one above it.
#[test]
fn the_table_is_in_order() {
    for (position, rules) in HOUSE.iter().enumerate() {
        for known in rules.knows.iter().filter(|known| **known != rules.library()) {
            let below = HOUSE.iter().position(|other| other.library() == **known);
            assert!(below.is_some_and(|below| below < position), "{} knows {known}", rules.package);
        }
        let rooms: Vec<&str> = rules.layers.concat();
        let unique: BTreeSet<&str> = rooms.iter().copied().collect();
        assert_eq!(rooms.len(), unique.len(), "{}: a room stands twice", rules.package);
    }
}
