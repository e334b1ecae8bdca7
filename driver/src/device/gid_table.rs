//! The RoCE address table of the device (RoCEv2 A17.8): the GIDs of the port.

use super::Device;
use super::control::GIDS;
use crate::command::{CommandError, CommandFailure, Request};
use crate::gid::{GidEntry, entry_of, query_address, set_address, version_name};
use crate::hal::Hal;
use bareverbs_prm::command::port::QueryRoceAddressOut;
use bareverbs_prm::numbering::RoceVersion;
use core::fmt;

impl<H: Hal> Device<H> {
    /// Sets entry `index` of the RoCE address table. An entry whose GID is all zero clears it.
    #[doc(alias = "ibv_query_gid")]
    pub fn set_gid(&self, index: u16, entry: GidEntry) -> Result<(), GidError> {
        let entries = self.capabilities().roce_addresses.min(GIDS as u16);
        if index >= entries {
            return Err(GidError::IndexOutOfRange { index, entries });
        }
        if !entry.gid.is_zero() && !self.capabilities().speaks(entry.version) {
            return Err(GidError::Version { index, version: entry.version });
        }
        let input = set_address(index, &entry);
        let request = Request::new(&input);
        let done = self.control(|control, hal| {
            control.run(hal, &request)?;
            control.gids[index as usize] = (!entry.gid.is_zero()).then_some(entry);
            Ok(())
        });
        done.map_err(|busy| request.error(CommandFailure::InterfaceBusy(busy)))?.map_err(GidError::Command)
    }

    /// Reads the RoCE address table from the device and adopts the entries that somebody else has set: the kernel, on a device that it
    /// owns. Returns them with their indices; [`Self::gid`] knows them from now on.
    ///
    /// # Errors
    /// A command failed.
    pub fn adopt_gids(&self) -> Result<impl Iterator<Item = (u16, GidEntry)>, CommandError> {
        let entries = self.capabilities().roce_addresses.min(GIDS as u16);
        let mut found = [None; GIDS];
        for index in 0..entries {
            let output: QueryRoceAddressOut = self.call(&Request::new(&query_address(index)))?;
            found[index as usize] = entry_of(output.roce_address());
        }
        let request = query_address(0);
        self.control(|control, _| control.gids = found)
            .map_err(|busy| Request::new(&request).error(CommandFailure::InterfaceBusy(busy)))?;
        Ok((0..).zip(found).filter_map(|(index, entry)| Some((index, entry?))))
    }

    /// Entry `index` of the RoCE address table, as last set or adopted.
    pub fn gid(&self, index: u16) -> Option<GidEntry> {
        self.control(|control, _| control.gids.get(index as usize).copied().flatten()).ok().flatten()
    }
}

/// Why an entry of the RoCE address table could not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidError {
    /// The index is beyond the end of the table.
    IndexOutOfRange {
        /// The index.
        index: u16,
        /// Number of usable entries.
        entries: u16,
    },
    /// The device does not support this RoCE version.
    Version {
        /// The index.
        index: u16,
        /// The version.
        version: RoceVersion,
    },
    /// The command failed.
    Command(CommandError),
}

impl From<CommandError> for GidError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl fmt::Display for GidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IndexOutOfRange { index, entries } => {
                write!(f, "address index {index}: the RoCE address table has {entries} entries")
            }
            Self::Version { index, version } => write!(
                f,
                "address index {index}: the device does not speak {}; see Capabilities::roce_v1 and roce_v2",
                version_name(version)
            ),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for GidError {}
