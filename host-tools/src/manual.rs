//! Shell completions and man pages, generated from the command line definition.

use crate::{Failure, output};
use anyhow::{Context as _, anyhow};
use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// Version and commit.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BAREVERBS_COMMIT"), ")");

/// Arguments of `bareverbs completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell. For bash: bareverbs completions bash > /etc/bash_completion.d/bareverbs
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `bareverbs man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// Output directory, for one page on the command and one on each subcommand. Created if missing.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// Prints shell completions for `command`.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(mut command: clap::Command, arguments: &CompletionsArguments) -> Result<bool, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "bareverbs", &mut text);
    let text = String::from_utf8(text).map_err(|error| Failure::Run(anyhow!(error)))?;
    output::print(text.trim_end())?;
    Ok(true)
}

/// Writes a man page for `command` and one for each subcommand.
///
/// # Errors
/// [`Failure::Input`] if the directory cannot be written.
pub fn man(command: clap::Command, arguments: &ManArguments) -> Result<bool, Failure> {
    let directory = &arguments.directory;
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command.disable_help_subcommand(true), directory));
    let written = written.with_context(|| format!("cannot write man pages to {}", directory.display()));
    written.map_err(Failure::Input)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_the_commit() {
        let (version, commit) = VERSION.split_once(" (").expect("a commit");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        let commit = commit.trim_end_matches(')');
        assert!(commit == "unknown" || commit.bytes().all(|digit| digit.is_ascii_hexdigit()), "{commit}");
    }

    #[test]
    fn pages_cannot_be_written_to_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "").expect("written");
        let arguments = ManArguments { directory: file };
        let Err(Failure::Input(error)) = man(clap::Command::new("bareverbs"), &arguments) else {
            panic!("pages in a file")
        };
        assert!(format!("{error:#}").starts_with("cannot write man pages to "), "{error:#}");
    }
}
