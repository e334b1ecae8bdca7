//! `bareverbs vfio bind BDF` and `bareverbs vfio unbind BDF`.

use super::common::FunctionArgument;
use super::list;
use crate::Failure;
use crate::output::json_object;
use bareverbs_hal::pci::{BindError, Function, Tree};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct BindArguments {
    #[command(flatten)]
    which: FunctionArgument,
    /// Even for a function that the running system needs or that is not supported.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(super) struct UnbindArguments {
    #[command(flatten)]
    which: FunctionArgument,
}

pub(super) fn bind(tree: &Tree, arguments: &BindArguments, as_json: bool) -> Result<String, Failure> {
    let function = tree.bind(arguments.which.address, arguments.force).map_err(failure)?;
    told(tree, &function, as_json)
}

pub(super) fn unbind(tree: &Tree, arguments: &UnbindArguments, as_json: bool) -> Result<String, Failure> {
    let function = tree.unbind(arguments.which.address).map_err(failure)?;
    told(tree, &function, as_json)
}

/// An impossible request is an input error; a failure on the way is not.
fn failure(error: BindError) -> Failure {
    match error {
        BindError::Write { .. } | BindError::NotTaken { .. } => Failure::Run(error.into()),
        _ => Failure::Input(error.into()),
    }
}

fn told(tree: &Tree, function: &Function, as_json: bool) -> Result<String, Failure> {
    if as_json {
        return json_object("function", list::describe(tree, function));
    }
    let driver = function.driver.as_deref().unwrap_or("no driver");
    let group = function.group.map_or("no IOMMU group".to_owned(), |group| format!("IOMMU group {group}"));
    Ok(format!("{} ({}) is bound to {driver}, {group}", function.address, function.name()))
}
