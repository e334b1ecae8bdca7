//! The images: the script that CI uses builds them, and this module inspects them.

use super::super::{Skipped, table::Verdict};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A processor for which there is an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// A PC.
    X86,
    /// Arm, 64 bits.
    Arm,
}

impl Processor {
    /// Both processors.
    pub const ALL: [Self; 2] = [Self::X86, Self::Arm];

    /// The name that compilers use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }
}

/// A built image.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) processor: Processor,
    pub(super) path: PathBuf,
}

/// Exit status of the script if the targets' core library is not installed.
const CANNOT_RUN: i32 = 77;
/// Names of the allocator's symbols; they occur in mangled names too.
const ALLOCATOR: [&[u8]; 3] = [b"__rust_alloc", b"__rust_realloc", b"__rg_alloc"];
/// A symbol that every image has. An image without it was stripped, and a search for other names would prove
/// nothing.
const KNOWN: &[u8] = b"handle_exception";

/// Builds both images.
pub(super) fn build() -> Result<Vec<Image>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the crate has no parent")?;
    eprintln!("guest: building the images");
    let mut command = Command::new("timeout");
    command.args(["600", ".ci/bare-metal"]).current_dir(top);
    let output = command.output().context("cannot run .ci/bare-metal")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => {}
        Some(CANNOT_RUN) => return Err(Skipped(text.lines().last().unwrap_or_default().into()).into()),
        _ => bail!("the images could not be built: {text}{}", String::from_utf8_lossy(&output.stderr)),
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| top.join("target"), PathBuf::from);
    let path = |processor: Processor| {
        target.join(format!("{}-unknown-none/release/bareverbs-bare-metal", processor.name()))
    };
    Ok(Processor::ALL.map(|processor| Image { processor, path: path(processor) }).into())
}

impl Image {
    /// Whether the image has no allocator in it.
    pub(super) fn without_allocator(&self) -> Verdict {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) => return Verdict::Fail(format!("cannot read {}: {error}", self.path.display())),
        };
        if !holds(&bytes, KNOWN) {
            return Verdict::Skip("the image was stripped of its symbols".into());
        }
        match ALLOCATOR.iter().find(|name| holds(&bytes, name)) {
            None => Verdict::Pass(format!("{} KiB, no symbol of an allocator", bytes.len() / 1024)),
            Some(name) => Verdict::Fail(format!("the image holds {}", String::from_utf8_lossy(name))),
        }
    }
}

fn holds(bytes: &[u8], name: &[u8]) -> bool {
    bytes.windows(name.len()).any(|window| window == name)
}
