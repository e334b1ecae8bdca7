//! A hostile client of `bareverbs serve`: `attacker SOCKET ATTACK`. It is a process of its own so that a test
//! can kill it at any moment.

use anyhow::{Context, Result, bail};
use bareverbs_tests::attack::ATTACKS;
use std::path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, name] = arguments.as_slice() else { bail!("attacker SOCKET ATTACK") };
    let (_, attack) = ATTACKS.iter().find(|(known, _)| known == name).context("no such attack")?;
    match attack(Path::new(socket))? {}
}
