//! Writes `tests/conformance.md` from the annotations of the tests, or checks that it is up to date.

use anyhow::{Context as _, Result, bail};
use bareverbs_tests::conformance::{Proof, TABLE, render, scan_workspace};
use clap::Parser;
use std::path::Path;

#[derive(Parser)]
#[command(about = "Makes the table of requirements and tests from the annotations of the tests")]
struct Arguments {
    /// Change nothing; fail when the table is out of date.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    let proofs = annotations(root)?;
    let (path, text) = (root.join(TABLE), render(&proofs));
    if !arguments.check {
        std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    } else if std::fs::read_to_string(&path).unwrap_or_default() != text {
        bail!("{TABLE} is out of date: run 'cargo run -p bareverbs-tests --bin conformance' and commit it");
    }
    println!("{TABLE}: {} annotations", proofs.len());
    Ok(())
}

fn annotations(root: &Path) -> Result<Vec<Proof>> {
    let (proofs, faults) = scan_workspace(root)?;
    for fault in &faults {
        eprintln!("{}:{}: {}", fault.file, fault.line, fault.reason);
    }
    if !faults.is_empty() {
        bail!("{} annotations prove nothing", faults.len());
    }
    Ok(proofs)
}
