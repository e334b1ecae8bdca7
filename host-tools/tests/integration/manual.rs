//! Completions, man pages and the version, as a packager gets them.

use std::process::{Command, Output};

fn bareverbs(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bareverbs")).args(arguments).output().expect("the program")
}

fn text(arguments: &[&str]) -> String {
    let output = bareverbs(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Names of the subcommands, as help lists them.
fn subcommands() -> Vec<String> {
    let help = text(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").expect("a list");
    let (list, _) = list.split_once("\n\n").expect("an end of the list");
    let names = list.lines().filter_map(|line| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned()));
    names.filter(|name| !name.is_empty() && name != "help").collect()
}

#[test]
fn every_subcommand_is_completed_and_has_a_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let to = directory.path().join("man1");
    assert!(bareverbs(&["man", to.to_str().expect("text")]).status.success());
    let names = subcommands();
    assert!(names.len() >= 10, "{names:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = text(&["completions", shell]);
        for name in &names {
            assert!(completions.contains(name.as_str()), "{shell}: {name}");
        }
    }
    for name in names {
        let page = std::fs::read_to_string(to.join(format!("bareverbs-{name}.1")));
        assert!(page.is_ok_and(|page| page.contains(".SH SYNOPSIS")), "{name}");
    }
    assert!(to.join("bareverbs.1").exists());
    assert_eq!(bareverbs(&["completions", "tcsh"]).status.code(), Some(2));
    assert_eq!(bareverbs(&["man"]).status.code(), Some(2));
}

#[test]
fn the_version_has_the_commit() {
    let version = text(&["--version"]);
    assert!(version.starts_with(&format!("bareverbs {} (", env!("CARGO_PKG_VERSION"))), "{version}");
}
