//! `bareverbs vfio`: the mlx5 devices of this machine, the obstacles to driving one from user space, and binding one to
//! `vfio-pci` and back.

mod bind;
mod check;
mod common;
mod list;

#[cfg(test)]
pub(crate) use check::id_of;

use crate::Failure;
use bareverbs_hal::pci::Tree;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// PCI functions for user space.
#[derive(Debug, Args)]
pub struct VfioArguments {
    #[command(subcommand)]
    action: VfioAction,
    /// One JSON object instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Another root of the file system, for tests.
    #[arg(long, global = true, hide = true, default_value = "/")]
    root: PathBuf,
}

#[derive(Debug, Subcommand)]
enum VfioAction {
    /// List mlx5 functions with driver, IOMMU group and NUMA node; huge pages and locked memory.
    List,
    /// Look at everything that must be right before a function can be opened.
    Check(check::CheckArguments),
    /// Give a function to vfio-pci.
    Bind(bind::BindArguments),
    /// Take a function from vfio-pci and let the kernel choose its driver.
    Unbind(bind::UnbindArguments),
}

/// Carries a subcommand out. False if a check found an obstacle.
pub fn run(arguments: &VfioArguments) -> Result<bool, Failure> {
    let tree = Tree::at(&arguments.root);
    let (text, good) = match &arguments.action {
        VfioAction::List => (list::run(&tree, arguments.json)?, true),
        VfioAction::Check(wanted) => check::run(&tree, wanted, arguments.json)?,
        VfioAction::Bind(wanted) => (bind::bind(&tree, wanted, arguments.json)?, true),
        VfioAction::Unbind(wanted) => (bind::unbind(&tree, wanted, arguments.json)?, true),
    };
    crate::output::print(&text)?;
    Ok(good)
}

#[cfg(test)]
mod tests;
