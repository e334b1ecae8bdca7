//! `bareverbs serve` by itself.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    bareverbs_tools::serve::run(&bareverbs_tools::serve::ServeArguments::parse())
}
