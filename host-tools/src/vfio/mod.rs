//! `bareverbs vfio`: what mlx5 devices this machine has, what stands in the way of driving one from user space, and
//! giving one to `vfio-pci` and back.

mod bind;
mod check;
mod list;

use crate::Failure;
use bareverbs_hal::pci::{Address, Tree};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// PCI functions for user space.
#[derive(Debug, Args)]
pub struct VfioArguments {
    #[command(subcommand)]
    what: What,
    /// One JSON object instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Another root of the file system, for tests.
    #[arg(long, global = true, hide = true, default_value = "/")]
    root: PathBuf,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List mlx5 functions with driver, IOMMU group and NUMA node; huge pages and locked memory.
    List,
    /// Look at everything that must be right before a function can be opened.
    Check(check::CheckArguments),
    /// Give a function to vfio-pci.
    Bind(bind::BindArguments),
    /// Take a function from vfio-pci and let the kernel choose its driver.
    Unbind(bind::UnbindArguments),
}

/// Where a function is.
#[derive(Debug, Args)]
struct Which {
    /// PCI address, as 0000:3b:00.0 or 3b:00.0.
    #[arg(value_name = "BDF")]
    address: Address,
}

/// Carries a subcommand out. False if a check found an obstacle.
pub fn run(arguments: &VfioArguments) -> Result<bool, Failure> {
    let tree = Tree::at(&arguments.root);
    let (text, good) = match &arguments.what {
        What::List => (list::run(&tree, arguments.json)?, true),
        What::Check(wanted) => check::run(&tree, wanted, arguments.json)?,
        What::Bind(wanted) => (bind::bind(&tree, wanted, arguments.json)?, true),
        What::Unbind(wanted) => (bind::unbind(&tree, wanted, arguments.json)?, true),
    };
    println!("{text}");
    Ok(good)
}

/// A JSON object with the version of its shape.
fn json(kind: &'static str, value: serde_json::Value) -> Result<String, Failure> {
    let object = serde_json::json!({"schema": format!("bareverbs.{kind}.v1"), kind: value});
    serde_json::to_string_pretty(&object).map_err(|error| Failure::Run(error.into()))
}

#[cfg(test)]
mod tests;
