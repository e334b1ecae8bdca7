//! What the subcommands share: how a function is named.

use bareverbs_hal::pci::Address;
use clap::Args;

/// Where a function is.
#[derive(Debug, Args)]
pub(super) struct FunctionArgument {
    /// PCI address, as 0000:3b:00.0 or 3b:00.0.
    #[arg(value_name = "BDF")]
    pub(super) address: Address,
}
