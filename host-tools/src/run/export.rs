//! `bareverbs run --print-env`: prints the environment of a program for shells and CI systems that start it themselves.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::ffi::OsStr;
use std::process::Command;

/// Format of the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EnvironmentFormat {
    /// `export NAME='value'`, for `eval` in a POSIX shell.
    Sh,
    /// `NAME=value`, for the file that `GITHUB_ENV` names.
    Github,
}

/// The variables that were set for a command, one per line.
///
/// Fails if a value is not UTF-8, or has a line break that the format cannot represent.
pub(super) fn lines(command: &Command, format: EnvironmentFormat) -> Result<String> {
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    set.map(|(name, value)| line(text(name)?, text(value)?, format)).collect()
}

fn text(part: &OsStr) -> Result<&str> {
    part.to_str().with_context(|| format!("cannot print {part:?}: it is not UTF-8"))
}

fn line(name: &str, value: &str, format: EnvironmentFormat) -> Result<String> {
    match format {
        EnvironmentFormat::Sh => Ok(format!("export {name}='{}'\n", value.replace('\'', r"'\''"))),
        EnvironmentFormat::Github if value.contains(['\n', '\r']) => {
            bail!("cannot print {name} in the form of GITHUB_ENV: its value {value:?} has a line break")
        }
        EnvironmentFormat::Github => Ok(format!("{name}={value}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let mut command = Command::new("true");
        command.env("B", "it's").env("A", "1").env_remove("C");
        command
    }

    #[test]
    fn a_shell_reads_what_was_set() {
        assert_eq!(
            lines(&command(), EnvironmentFormat::Sh).unwrap(),
            "export A='1'\nexport B='it'\\''s'\n",
            "a quote inside the value closes and reopens the quotation"
        );
    }

    #[test]
    fn a_line_break_is_refused_where_it_would_begin_another_variable() {
        assert_eq!(lines(&command(), EnvironmentFormat::Github).unwrap(), "A=1\nB=it's\n");
        let mut command = command();
        command.env("D", "1\nLD_PRELOAD=x");
        let refusal = lines(&command, EnvironmentFormat::Github).unwrap_err().to_string();
        assert!(refusal.contains("GITHUB_ENV") && refusal.contains('D'), "{refusal}");
        assert!(lines(&command, EnvironmentFormat::Sh).unwrap().contains("D='1\nLD_PRELOAD=x'"));
    }
}
