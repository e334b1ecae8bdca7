//! PCI functions of this machine as sysfs shows them: what they are, who drives them, and whether we can use them.
//!
//! **What this is.** [`Tree`] reads a file system tree (the root, or a fake one in tests). [`ids`] knows which
//! functions are mlx5 and how well each is supported. [`preflight`](Tree::preflight) finds the obstacles to opening a
//! device and the commands that remove them. [`bind`](Tree::bind) binds a function to `vfio-pci` and back.
//!
//! **What it may not do.** It opens no device. Only [`Tree::bind`] and [`Tree::unbind`] write.
//!
//! **Where to read first.** [`Tree::function`].

mod bind;
mod carries;
mod function;
pub use bareverbs_prm::pci as ids;
mod preflight;

pub use bind::BindError;
pub use carries::SystemUse;
pub use function::{Address, AddressError, Function, FunctionError, GroupMember};
pub use preflight::{Check, Finding, Need, State};

use std::path::{Path, PathBuf};

/// The kernel driver that hands a function to user space.
pub const VFIO_PCI: &str = "vfio-pci";

/// A file system tree with `sys`, `proc` and `dev`.
///
/// ```
/// use bareverbs_hal::pci::Tree;
///
/// for function in Tree::default().functions() {
///     let driver = function.driver.as_deref().unwrap_or("no driver");
///     println!("{} {}: {driver}", function.address, function.name());
/// }
/// assert_eq!(Tree::at("/nowhere").functions(), []);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
}

impl Default for Tree {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Tree {
    /// The tree with root `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root of the tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    fn read(&self, relative: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.path(relative)).ok().map(|text| text.trim().to_owned())
    }
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
