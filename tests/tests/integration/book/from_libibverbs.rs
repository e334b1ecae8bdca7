//! The chapter for readers who come from C: the names it mentions exist in the driver, and its count of our
//! example is right.

use super::{read, root, source};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The name of the function or type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| matches!(*word, "fn" | "struct" | "enum"))?;
    words.get(at + 1)?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Names of C with the item of the driver that has each as an alias.
fn aliases() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for file in rust_files(&root().join("driver/src")) {
        let text = read(&file);
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let alias =
                line.trim().strip_prefix("#[doc(alias = \"").and_then(|rest| rest.strip_suffix("\")]"));
            let item = lines[number..].iter().find_map(|line| declared(line));
            found.extend(alias.zip(item).map(|(alias, item)| (alias.to_owned(), item.to_owned())));
        }
    }
    found
}

#[test]
fn c_names_lead_to_the_items_with_that_alias() {
    let (aliases, chapter) = (aliases(), read(&source().join("from-libibverbs.md")));
    let rows = chapter.lines().filter_map(|line| line.strip_prefix("| `ibv_"));
    let mut count = 0;
    for row in rows {
        let mut names = row.split('`');
        let (c, ours) = (names.next().unwrap(), names.nth(1).unwrap());
        let pair = (format!("ibv_{c}"), ours.rsplit("::").next().unwrap().to_owned());
        assert!(aliases.contains(&pair), "the driver has no {ours} with the alias ibv_{c}");
        count += 1;
    }
    assert!(count > 30, "{count} rows");
}

#[test]
fn our_example_has_as_many_lines_as_the_table_says() {
    let example = read(&root().join("bareverbs/examples/hello.rs"));
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines = example.lines().filter(code).count();
    let row = format!("| bareverbs | `bareverbs/examples/hello.rs` | {lines} |");
    assert!(read(&source().join("from-libibverbs.md")).contains(&row), "{row}");
}
