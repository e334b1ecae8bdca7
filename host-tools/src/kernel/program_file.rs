//! A program in a file, as the arguments of `bareverbs kernel` name it.

use crate::Failure;
use crate::input_file::read_at_most;
use crate::program_object::load;
use anyhow::{Context, anyhow};
use bareverbs_offload::program::Program;
use clap::Args;
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes: an object, or the memory of a trial.
const LARGEST: u64 = 1 << 28;

/// A program as arguments name it.
#[derive(Debug, Clone, Args)]
pub(super) struct ProgramFile {
    /// An object file from `clang -target bpf -mcpu=v3 -O2 -c`, or raw instructions.
    file: PathBuf,
    /// Section with the code, if the object has several.
    #[arg(long, value_name = "NAME")]
    section: Option<String>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
}

impl ProgramFile {
    /// The bytes of its instructions.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let bytes = read(&self.file)?;
        load(&bytes, self.section.as_deref())
            .with_context(|| format!("{} cannot be deployed", self.file.display()))
            .map_err(Failure::Input)
    }

    /// The program, if the verifier accepts it.
    pub(super) fn program(&self) -> Result<Program, Failure> {
        let verified = Program::verify(&self.bytes()?);
        verified
            .map_err(|error| Failure::Input(anyhow!("{} cannot be deployed: {error}", self.file.display())))
    }
}

/// The contents of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_at_most(path, LARGEST).with_context(|| format!("reading {}", path.display())).map_err(Failure::Input)
}
