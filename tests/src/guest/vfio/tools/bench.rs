//! Runs of the command in the guest.

use super::super::super::machine::Machine;
use super::super::cases::surrounded;
use super::super::fleet::Fleet;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::time::Duration;

/// Time limit for the commands of a row.
const LIMIT: Duration = Duration::from_secs(90);
/// Marks where a command's standard output and standard error begin. No tool prints it.
const MARK: &str = "=-=-=";

/// The guest, and the devices that the rows use.
pub(super) struct ToolBench<'a> {
    pub(super) machine: &'a mut Machine,
    pub(super) fleet: &'a Fleet,
}

/// How a command ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolEnd {
    pub(super) status: i32,
    /// Standard output.
    pub(super) said: String,
    /// Standard error.
    pub(super) complained: String,
}

impl ToolBench<'_> {
    /// Runs the command to its end. `$a` and the like are PCI addresses.
    pub(super) fn run(&mut self, words: &str) -> Result<ToolEnd> {
        let [end] = self.play([format!("bareverbs {words}")])?;
        Ok(end)
    }

    /// Runs a server and its client, each in a process of its own.
    pub(super) fn pair(&mut self, server: &str, client: &str) -> Result<[ToolEnd; 2]> {
        self.play([format!("bareverbs {server}"), format!("bareverbs {client}")])
    }

    /// Runs shell commands in parallel until all have ended. Command N runs as process `$pN` and writes to `/tmp/toolN.out`.
    pub(super) fn play<const N: usize>(&mut self, commands: [String; N]) -> Result<[ToolEnd; N]> {
        let outcome = self.machine.control.run(&surrounded(&script(&commands)), LIMIT)?;
        ensure!(outcome.is_success(), "status {}: {}", outcome.status, outcome.output.trim());
        let ends = parse(&outcome.output)?;
        let count = ends.len();
        ends.try_into().map_err(|_| anyhow::anyhow!("{count} ends of {N} commands: {}", outcome.output))
    }

    /// Output of a shell command of the set-up, which must succeed.
    pub(super) fn require(&mut self, command: &str) -> Result<String> {
        self.machine.control.require(&surrounded(command), LIMIT)
    }
}

fn script(commands: &[String]) -> String {
    let begin = commands.iter().enumerate().map(|(number, command)| {
        format!("{{ {command}; }} >/tmp/tool{number}.out 2>/tmp/tool{number}.err & p{number}=$!\n")
    });
    let end = (0..commands.len()).map(|number| {
        format!(
            "wait $p{number}; echo \"{MARK} said $?\"; cat /tmp/tool{number}.out
             echo; echo \"{MARK} complained\"; cat /tmp/tool{number}.err; echo\n"
        )
    });
    begin.chain(end).collect()
}

fn parse(output: &str) -> Result<Vec<ToolEnd>> {
    let mut ends: Vec<ToolEnd> = Vec::new();
    let mut complains = false;
    for line in output.lines() {
        match line.strip_prefix(MARK).map(str::trim) {
            Some("complained") => complains = true,
            Some(said) => {
                let status = said.strip_prefix("said ").and_then(|status| status.parse().ok());
                ends.push(ToolEnd { status: status.context("no status")?, ..ToolEnd::default() });
                complains = false;
            }
            // The shell reports how a killed process ended.
            None if ends.is_empty() => {}
            None => {
                let end = ends.last_mut().context("a command")?;
                let text = if complains { &mut end.complained } else { &mut end.said };
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    Ok(ends)
}

impl ToolEnd {
    /// Returns the end if it has this exit status, and fails otherwise.
    pub(super) fn ended(self, status: i32) -> Result<Self> {
        if self.status != status {
            bail!("status {} and not {status}: {}{}", self.status, self.complained, self.said);
        }
        Ok(self)
    }

    /// The JSON object that the tool printed.
    pub(super) fn object(&self, tool: &str) -> Result<Value> {
        let mut object: Value = serde_json::from_str(&self.said)
            .with_context(|| format!("no JSON: {}{}", self.complained, self.said))?;
        ensure!(object["schema"] == format!("bareverbs.{tool}.v1"), "the schema is {}", object["schema"]);
        Ok(object[tool].take())
    }

    /// Whether standard error contains these words.
    pub(super) fn complains(&self, wanted: &str) -> Result<()> {
        ensure!(self.complained.contains(wanted), "'{wanted}' is not in: {}{}", self.complained, self.said);
        Ok(())
    }
}

/// Compares values of an object, addressed by JSON pointers, and returns their number.
pub(super) fn compare(object: &Value, wanted: &[(&str, Value)]) -> Result<usize> {
    for (pointer, value) in wanted {
        let shown = object.pointer(pointer).with_context(|| format!("no {pointer} in {object}"))?;
        ensure!(shown == value, "{pointer} is {shown}, and should be {value}");
    }
    Ok(wanted.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_two_commands_are_kept_apart() {
        let commands = ["echo one; echo two >&2; exit 3", "echo three"].map(str::to_owned);
        let shell = std::process::Command::new("sh").arg("-c").arg(script(&commands)).output().unwrap();
        let ends = parse(&String::from_utf8_lossy(&shell.stdout)).unwrap();
        let said: Vec<_> =
            ends.iter().map(|end| (end.status, end.said.trim(), end.complained.trim())).collect();
        assert_eq!(said, [(3, "one", "two"), (0, "three", "")]);
        assert_eq!(parse("Killed\n").unwrap(), []);
        assert!(parse(&format!("{MARK} said nothing")).is_err());
    }

    #[test]
    fn a_value_that_differs_or_is_missing_is_named() {
        let object = serde_json::json!({"port": {"state": 4}});
        assert_eq!(compare(&object, &[("/port/state", 4.into())]).unwrap(), 1);
        let error = compare(&object, &[("/port/state", 1.into())]).unwrap_err();
        assert_eq!(error.to_string(), "/port/state is 4, and should be 1");
        assert!(compare(&object, &[("/port/lid", 1.into())]).is_err());
    }
}
