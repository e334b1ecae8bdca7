//! The files of the repository, by path from its root.

use std::collections::BTreeMap;
use std::process::Command;

/// Every Rust source and every manifest that git tracks.
#[derive(Debug, Default)]
pub struct Sources(BTreeMap<String, String>);

impl Sources {
    /// Reads what `git ls-files` names, new files included.
    pub fn of_repository() -> Result<Self, String> {
        let list = ["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*Cargo.toml"];
        let output = Command::new("git").args(list).output().map_err(|error| format!("git: {error}"))?;
        let names = String::from_utf8(output.stdout).map_err(|error| format!("git ls-files: {error}"))?;
        let mut files = BTreeMap::new();
        for name in names.lines() {
            // git also lists a file that was moved or deleted without a commit.
            if let Ok(text) = std::fs::read_to_string(name) {
                files.insert(name.to_owned(), text);
            }
        }
        Ok(Self(files))
    }

    /// Made-up sources for a test.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    /// The text of a file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Every Rust source with its text.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending(".rs")
    }

    /// Every Cargo manifest with its text.
    pub fn manifests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending("Cargo.toml")
    }

    fn ending(&self, end: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter(move |(path, _)| path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}
