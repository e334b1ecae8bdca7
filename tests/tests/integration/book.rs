//! The book keeps its promises: its Rust compiles, its output is what programs print, and its links lead
//! somewhere.
//!
//! `BAREVERBS_UPDATE_BOOK=1 cargo test -p bareverbs-tests --test integration book::` rewrites the output.
//! `host-tools/tests/integration/book.rs` checks the commands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod cluster;
mod failing;
#[path = "../../../bareverbs/examples/first_write.rs"]
mod first_write;
mod from_libibverbs;
mod memory;
mod output;
mod states;
mod waiting;

/// Where the book's links to the repository lead.
const REPOSITORY: &str = "https://github.com/bareverbs/bareverbs";

/// Where included code may come from: files that cargo compiles with the workspace's tests.
const COMPILED: [&str; 5] = [
    "bare-metal/src/",
    "bareverbs/examples/",
    "hal/examples/",
    "offload/src/",
    "tests/tests/integration/book/",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn source() -> PathBuf {
    root().join("book/src")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Chapters by file name, without the table of contents.
fn chapters() -> Vec<(String, String)> {
    let names =
        fs::read_dir(source()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> =
        names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    names.into_iter().map(|name| (name.clone(), read(&source().join(&name)))).collect()
}

/// Every text between `open` and `close`.
fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).map(move |rest| rest.split(close).next().unwrap_or(rest))
}

/// Fenced blocks: the word after the fence, and the lines.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let (mut blocks, mut open): (Vec<(&str, Vec<&str>)>, bool) = (Vec::new(), false);
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(language) => {
                open = true;
                blocks.push((language, Vec::new()));
            }
            None if open => blocks.last_mut().unwrap().1.push(line),
            None => {}
        }
    }
    assert!(!open, "a block that is not closed");
    blocks
}

/// The text that an include inserts.
fn included(name: &str, include: &str) -> String {
    let (file, anchor) =
        include.split_once(':').map_or((include, None), |(file, anchor)| (file, Some(anchor)));
    let path = source().join(file);
    let text = read(&path);
    let path = path.canonicalize().unwrap();
    let path = path.strip_prefix(root()).unwrap().to_str().unwrap();
    let is_output = path.starts_with("book/src/output/") && path.ends_with(".txt");
    let is_compiled = path.ends_with(".rs") && COMPILED.iter().any(|place| path.starts_with(place));
    assert!(is_output || is_compiled, "{name} includes {path}, which nothing compiles or compares");
    let Some(anchor) = anchor else { return text };
    let (begin, end) = (format!("// ANCHOR: {anchor}\n"), format!("// ANCHOR_END: {anchor}\n"));
    let found: Vec<_> = between(&text, &begin, &end).collect();
    assert!(found.len() == 1 && text.contains(&end), "{name}: {path} has no anchor {anchor}, or several");
    found[0].to_owned()
}

#[test]
fn every_chapter_is_in_the_table_of_contents() {
    let contents = read(&source().join("SUMMARY.md"));
    let listed: Vec<&str> = between(&contents, "](", ")").collect();
    let there: Vec<String> = chapters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), there.iter().map(String::as_str).collect());
    assert_eq!(listed.len(), there.len(), "a chapter is listed twice");
}

/// All Rust and output is included from tested files; other blocks are commands or settings.
#[test]
fn code_and_output_are_included_from_what_is_tested() {
    let mut included_blocks = 0;
    for (name, text) in chapters() {
        for (language, lines) in blocks(&text) {
            let include = match lines[..] {
                [line] => line.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}")),
                _ => None,
            };
            match (language, include) {
                ("rust" | "text", Some(include)) => {
                    let text = included(&name, include);
                    assert!(
                        !text.trim().is_empty() && (language == "rust") == include.contains(".rs"),
                        "{name}: {include}"
                    );
                    included_blocks += 1;
                }
                ("sh" | "toml", None) => {}
                _ => panic!("{name}: a block of {language:?} that is not included: {lines:?}"),
            }
        }
        let includes = text.matches("{{").count();
        let in_blocks =
            blocks(&text).iter().flat_map(|(_, lines)| lines).filter(|line| line.contains("{{")).count();
        assert_eq!(includes, in_blocks, "{name}: an include outside of a block");
    }
    assert!(included_blocks >= 15, "{included_blocks}");
}

/// Links within the book, and links to files of the repository.
#[test]
fn links_lead_to_existing_files() {
    let mut links = 0;
    for (name, text) in chapters() {
        for link in between(&text, "](", ")") {
            let path = match link.strip_prefix(REPOSITORY) {
                Some("") => root(),
                Some(rest) => {
                    root().join(rest.strip_prefix("/blob/main/").expect("a file of the branch main"))
                }
                None => source().join(link),
            };
            assert!(!link.contains('#') && path.exists(), "{name}: {link} leads nowhere");
            links += 1;
        }
    }
    assert!(links >= 8, "{links}");
}

/// The book shows every output file.
#[test]
fn every_output_file_is_in_a_chapter() {
    let text: String = chapters().into_iter().map(|(_, text)| text).collect();
    for entry in fs::read_dir(source().join("output")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(text.contains(&format!("{{{{#include output/{name}}}}}")), "{name} is in no chapter");
    }
}

#[test]
fn the_first_write_prints_what_the_book_says() {
    output::is("first_write", &first_write::write().unwrap());
}
