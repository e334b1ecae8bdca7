//! Commands in the book: the command itself parses each of them, and the output of `explain` there is up to
//! date. `tests/tests/book.rs` checks the rest of the book.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Lines of shell code blocks, each with its chapter.
fn commands() -> Vec<(String, String)> {
    let mut commands = Vec::new();
    for entry in fs::read_dir(root().join("book/src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".md") {
            continue;
        }
        let text = read(&format!("book/src/{name}"));
        for block in text.split("```sh\n").skip(1) {
            let lines = block.split("```").next().unwrap().lines();
            commands.extend(lines.map(|line| (name.clone(), line.to_owned())));
        }
    }
    commands
}

/// Whether the command accepts these words. Nothing runs, because `--help` is appended.
fn is_parsed(words: &[&str]) -> Result<(), String> {
    let own = words.split(|word| *word == "--").next().unwrap_or_default();
    let output = Command::new(env!("CARGO_BIN_EXE_bareverbs")).args(own).arg("--help").output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The value of `option` in a cargo command.
fn option<'a>(words: &[&'a str], option: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == option)?;
    words.get(at + 1).copied()
}

/// Checks a cargo command: the package exists, and so does the example, with its features.
fn check_cargo(words: &[&str]) -> Result<(), String> {
    let Some(example) = option(words, "--example") else {
        let behind = words.iter().position(|word| *word == "--").map(|at| &words[at + 1..]);
        return behind.map_or(Ok(()), is_parsed);
    };
    let directory = match option(words, "-p") {
        Some("bareverbs") => "bareverbs",
        Some("bareverbs-hal") => "hal",
        other => return Err(format!("no directory is known for the package {other:?}")),
    };
    let manifest = read(&format!("{directory}/Cargo.toml"));
    let file = root().join(directory).join("examples").join(format!("{example}.rs"));
    let required = manifest
        .split("[[example]]")
        .find(|section| section.contains(&format!("name = \"{example}\"")))
        .and_then(|section| section.split("required-features = [").nth(1))
        .and_then(|rest| rest.split(']').next())
        .map(|list| list.replace(['"', ' '], ""));
    // The features that an example of the hal needs are its default ones.
    let given = option(words, "--features").map(str::to_owned);
    match file.exists() && (directory == "hal" || given == required) {
        true => Ok(()),
        false => Err(format!("the example needs the features {required:?}")),
    }
}

#[test]
fn every_command_is_one() {
    let commands = commands();
    for (chapter, line) in &commands {
        let words: Vec<&str> = line.split_whitespace().collect();
        let outcome = match words[..] {
            ["bareverbs", ref rest @ ..] | ["sudo", "bareverbs", ref rest @ ..] => is_parsed(rest),
            ["cargo", "run", ref rest @ ..] => check_cargo(rest),
            ["cargo", "build", "--release"] => Ok(()),
            _ => Err("no command of this repository".to_owned()),
        };
        outcome.unwrap_or_else(|error| panic!("{chapter}: {line}: {error}"));
    }
    assert!(commands.len() >= 25, "{}", commands.len());
    assert!(is_parsed(&["doctor", "--divice", "sim"]).is_err(), "a misspelt option is seen");
}

/// `BAREVERBS_UPDATE_BOOK=1 cargo test -p bareverbs-tools --test integration book::` rewrites it.
#[test]
fn the_explanation_is_what_the_command_prints() {
    let output = Command::new(env!("CARGO_BIN_EXE_bareverbs"))
        .args(["explain", "REMOTE_ACCESS_ERR"])
        .output()
        .unwrap();
    let (path, text) = ("book/src/output/explain.txt", String::from_utf8(output.stdout).unwrap());
    let text = format!("{}\n", text.trim_end());
    if std::env::var_os("BAREVERBS_UPDATE_BOOK").is_some() {
        fs::write(root().join(path), &text).unwrap();
    }
    assert_eq!(
        read(path),
        text,
        "BAREVERBS_UPDATE_BOOK=1 cargo test -p bareverbs-tools --test integration book::"
    );
}
