//! `bareverbs link-type`: whether the ports of a card are InfiniBand or Ethernet, under mlxconfig's names
//! (`LINK_TYPE_P1`); also for a simulated card, whose settings are in a file (`bareverbs serve --settings FILE`).
//!
//! A setting survives a reset of the card and takes effect at the next power-on. This is as on hardware, where
//! `mstfwreset` or a power cycle activates it and a function reset does not. **Where to read first.** `settings`.

pub mod settings;

use crate::Failure;
use crate::output::{json_object, print};
use anyhow::{Context as _, anyhow};
use bareverbs_hal::pci::{Address, Tree};
use clap::{ArgGroup, Args, ValueEnum};
use serde_json::json;
use settings::{CardSettings, LinkType};
use std::path::{Path, PathBuf};

/// Arguments of `bareverbs link-type`.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("card").required(true))]
pub struct LinkTypeArguments {
    /// New link type; without it, show the current one.
    #[arg(value_enum, value_name = "ib|eth")]
    wanted: Option<Choice>,
    /// Settings file of a simulated card, as passed to `bareverbs serve --settings FILE`. Created if missing.
    #[arg(long, group = "card", value_name = "FILE")]
    settings: Option<PathBuf>,
    /// A card of this machine: prints the mstflint commands that show and set it. Changes nothing.
    #[arg(long, group = "card", value_name = "BDF")]
    device: Option<Address>,
    /// Port of the card.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    port: u8,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Another root of the file system, for tests.
    #[arg(long, hide = true, default_value = "/")]
    root: PathBuf,
}

/// Link types on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// InfiniBand.
    Ib,
    /// Ethernet, for RoCE.
    Eth,
}

impl From<Choice> for LinkType {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Ib => Self::InfiniBand,
            Choice::Eth => Self::Ethernet,
        }
    }
}

/// Shows or sets the link type.
///
/// # Errors
/// [`Failure::Input`] if this machine has no such card, or the file holds no settings.
pub fn run(arguments: &LinkTypeArguments) -> Result<bool, Failure> {
    if let Some(device) = arguments.device {
        Tree::at(&arguments.root).function(device).map_err(|error| Failure::Input(error.into()))?;
    }
    print(&execute(arguments)?)?;
    Ok(true)
}

fn execute(arguments: &LinkTypeArguments) -> Result<String, Failure> {
    let wanted = arguments.wanted.map(LinkType::from);
    match (&arguments.settings, arguments.device) {
        (Some(path), _) => simulated(arguments, path, wanted),
        (None, Some(device)) => Ok(on_silicon(arguments, device, wanted)?),
        (None, None) => Err(Failure::Input(anyhow!("name a card: --settings FILE or --device BDF"))),
    }
}

fn simulated(
    arguments: &LinkTypeArguments,
    path: &Path,
    wanted: Option<LinkType>,
) -> Result<String, Failure> {
    let mut settings = CardSettings::read(path).map_err(|error| Failure::Input(error.into()))?;
    let before = settings.link_type(arguments.port);
    if let Some(wanted) = wanted {
        settings.set_link_type(arguments.port, wanted);
        let written = settings.write(path);
        written.with_context(|| format!("cannot write {}", path.display())).map_err(Failure::Input)?;
    }
    let next = settings.link_type(arguments.port);
    let name = CardSettings::link_type_name(arguments.port);
    if arguments.json {
        let value = json!({
            "settings": path.display().to_string(),
            "name": name,
            "before": before.map(LinkType::number),
            "next_power_on": next.map(LinkType::number),
            "text": next.map(|next| next.to_string()),
        });
        return json_object("link_type", value);
    }
    let shown = |link: Option<LinkType>| {
        link.map_or("not set (--link of serve decides)".to_owned(), |link| link.to_string())
    };
    let mut text = format!("{name}  {}", shown(next));
    if wanted.is_some() && before != next {
        text.push_str(&format!(
            "  (was {})\na reset of the card changes nothing; the setting takes effect at the next power-on: end `bareverbs serve --settings {}` and start it again",
            shown(before),
            path.display()
        ));
    }
    Ok(text)
}

/// The commands for a card of this machine. Its settings are in its flash, which mstflint writes.
fn on_silicon(
    arguments: &LinkTypeArguments,
    device: Address,
    wanted: Option<LinkType>,
) -> Result<String, Failure> {
    let name = CardSettings::link_type_name(arguments.port);
    let query = format!("mstconfig -d {device} query {name}");
    let set = wanted.map(|wanted| {
        vec![
            format!("mstconfig -d {device} set {name}={}", wanted.number()),
            format!("mstfwreset -d {device} reset"),
        ]
    });
    if arguments.json {
        let value = json!({"device": device.to_string(), "name": name, "query": query, "set": set});
        return json_object("link_type", value);
    }
    let mut lines = vec![format!("show it:  sudo {query}")];
    match set {
        Some(commands) => {
            lines.extend(commands.iter().map(|command| format!("set it:   sudo {command}")));
            lines.push(
                "a card without this setting has ports of one kind only; while mstflint writes, the card must have the kernel's driver or none"
                    .to_owned(),
            );
        }
        None => lines.push(format!("set it:   bareverbs link-type eth --device {device} says how")),
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_arguments::{parse, parsed};

    fn shown(words: &[&str]) -> String {
        execute(&parsed(words)).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    #[test]
    fn a_setting_is_kept_and_the_others_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("card");
        let file = path.to_str().expect("text");
        assert_eq!(shown(&["--settings", file]), "LINK_TYPE_P1  not set (--link of serve decides)");
        let text = shown(&["eth", "--settings", file]);
        assert!(text.starts_with("LINK_TYPE_P1  ETH(2)  (was not set"), "{text}");
        shown(&["ib", "--settings", file, "--port", "2"]);
        assert_eq!(shown(&["--settings", file]), "LINK_TYPE_P1  ETH(2)");
        let text = shown(&["--settings", file, "--port", "2", "--json"]);
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["schema"], "bareverbs.link_type.v1");
        assert_eq!(
            (&value["link_type"]["name"], &value["link_type"]["next_power_on"]),
            (&"LINK_TYPE_P2".into(), &1.into())
        );
    }

    #[test]
    fn for_a_real_card_the_mstflint_commands_are_printed() {
        let text = shown(&["eth", "--device", "3b:00.0"]);
        assert!(text.contains("mstconfig -d 0000:3b:00.0 set LINK_TYPE_P1=2"), "{text}");
        assert!(text.contains("mstfwreset -d 0000:3b:00.0 reset"), "{text}");
    }

    #[test]
    fn a_card_that_this_machine_does_not_have_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let words = ["--device", "3b:00.0", "--root", root.path().to_str().expect("text")];
        let arguments = parse(&words).expect("arguments");
        let Err(Failure::Input(error)) = run(&arguments) else { panic!("there is no card") };
        assert!(error.to_string().starts_with("there is no PCI function 0000:3b:00.0"), "{error}");
        let device = root.path().join("sys/bus/pci/devices/0000:3b:00.0");
        std::fs::create_dir_all(&device).expect("a directory");
        for (name, text) in [("vendor", "0x15b3"), ("device", "0x1017"), ("class", "0x020000")] {
            std::fs::write(device.join(name), text).expect("written");
        }
        assert!(run(&arguments).is_ok_and(|good| good));
    }

    #[test]
    fn impossible_options_are_refused() {
        for words in [
            &[][..],
            &["eth"],
            &["token-ring", "--settings", "x"],
            &["--settings", "x", "--device", "3b:00.0"],
            &["--settings", "x", "--port", "3"],
            &["--device", "mlx5_0"],
        ] {
            assert!(parse::<LinkTypeArguments>(words).is_err(), "{words:?}");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("card");
        std::fs::write(&path, "LINK_TYPE_P1=7\n").expect("written");
        let arguments: LinkTypeArguments = parsed(&["--settings", path.to_str().expect("text")]);
        let Err(Failure::Input(error)) = execute(&arguments) else { panic!("read") };
        assert!(error.to_string().contains("line 1: LINK_TYPE_P1=7"), "{error}");
    }
}
