//! Whether `bareverbs devinfo` and `bareverbs gids` show the same of a host's device as programs see through
//! the kernel's interface.
//!
//! All look at the same simulated device: `ibv_devinfo -v` through libibverbs, our tools through our driver, which has the device to itself or
//! shares it with the simulated kernel (`--devx`).

use crate::device_fields::{LINKS, compare_fields, compare_gids};
use crate::installation::{HostedProgram, Installation, ProgramEnd};
use anyhow::{Context, Result, bail};
use serde_json::Value;

const HOST: &str = "a";

/// Compares every field of the list, on a port of each link layer.
pub fn judge_fields(installation: &Installation) -> Result<()> {
    judge(installation, "devinfo", compare_fields)
}

/// Compares both GID tables entry by entry, on a port of each link layer.
pub fn judge_gids(installation: &Installation) -> Result<()> {
    judge(installation, "gids", |text, own, _| compare_gids(text, own))
}

fn judge(
    installation: &Installation,
    tool: &str,
    compare: impl Fn(&str, &Value, &str) -> Result<()>,
) -> Result<()> {
    for link in LINKS {
        let printed = said(installation, "ibv_devinfo -v", link)?;
        let itself = said(installation, &format!("bareverbs {tool} --json"), link)?;
        let shared = format!(
            "bareverbs run --devx --host {HOST} --link {link} -- bareverbs {tool} --json --device uverbs:mlx5_0"
        );
        let of_kernel = good(installation.run_shell(&shared)?)?;
        for (text, place) in [(itself, "the device itself"), (of_kernel, "the kernel's device")] {
            let mut object: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
            let compared = compare(&printed, &object[tool].take(), link);
            compared.with_context(|| format!("{tool} of {place}, --link {link}"))?;
        }
    }
    Ok(())
}

fn said(installation: &Installation, command: &str, link: &str) -> Result<String> {
    let command = command.split(' ').map(str::to_owned).collect();
    let options = ["--link", link].map(str::to_owned);
    good(installation.run(&HostedProgram { host: HOST.into(), command }, &options)?)
}

fn good(ended: ProgramEnd) -> Result<String> {
    if !ended.status.success() {
        bail!("{}: {}", ended.status, ended.said);
    }
    Ok(ended.said)
}
