//! A region of another function of the same card, accessed through an alias: how DMA work requests on the Arm cores of
//! a DPU name their host's memory.

use crate::command::{CommandError, CommandFailure, Request};
use crate::device::{DestroyCommand, DeviceRef};
use crate::memory_slice::{MemorySlice, RangeError};
use crate::protection_domain::ProtectionDomain;
use crate::shared_region::SharedRegion;
use bareverbs_prm::command::general_object::{AliasOut, CreateAliasIn, GeneralObjectIn, OBJECT_TYPE_MKEY};
use bareverbs_prm::ids::{Mkey, MkeyIndex, Pdn, VhcaId};
use bareverbs_prm::numbering::CommandOpcode;
use core::fmt;

/// A region of another function. The owner may revoke it at any time; work requests that use it then fail.
///
/// ```
/// use bareverbs_core::{DeviceRef, MemorySlice, ProtectionDomain, RemoteVhcaRegion, SharedRegion};
/// use std::error::Error;
///
/// /// On the Arm cores: the first line of a table that the host shares, for a [`DmaCopy`](bareverbs_core::DmaCopy).
/// fn first_line<D: DeviceRef>(
///     domain: &ProtectionDomain<D>,
///     shared: &SharedRegion,
/// ) -> Result<(RemoteVhcaRegion<D>, MemorySlice), Box<dyn Error>> {
///     let table = RemoteVhcaRegion::open(domain, shared)?;
///     let line = table.slice(0, 64)?;
///     Ok((table, line))
/// }
/// ```
pub struct RemoteVhcaRegion<D: DeviceRef> {
    device: D,
    domain: Pdn,
    number: MkeyIndex,
    owner: VhcaId,
    address: u64,
    length: u64,
}

/// Why an alias could not be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AliasError {
    /// The device refused: the secret is wrong, or the function does not share such a key or has destroyed it.
    Refused {
        /// The owning function.
        owner: VhcaId,
        /// The memory key.
        key: MkeyIndex,
        /// The device's answer.
        error: CommandError,
    },
    /// The command failed.
    Command(CommandError),
    /// The alias was created but is unusable.
    Unusable {
        /// `alias_context.status`.
        status: u8,
    },
}

impl fmt::Display for AliasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { owner, key, error } => write!(
                f,
                "alias of memory key {key} of VHCA {owner}: {error}; check that the owner is on the same card, still has the region, and \
                 handed over its latest access key"
            ),
            Self::Command(error) => write!(f, "{error}"),
            Self::Unusable { status } => {
                write!(
                    f,
                    "the alias has status {status}: the owner took the region back; ask it to share one again"
                )
            }
        }
    }
}

impl core::error::Error for AliasError {}

impl<D: DeviceRef> RemoteVhcaRegion<D> {
    /// Creates an alias of `shared` in `domain`.
    ///
    /// # Errors
    /// The device refuses, or the owner has revoked the region.
    #[doc(alias = "CREATE_GENERAL_OBJECT")]
    pub fn open(domain: &ProtectionDomain<D>, shared: &SharedRegion) -> Result<Self, AliasError> {
        let device = domain.device().clone();
        let mut input = CreateAliasIn::new();
        input
            .header_mut()
            .set_opcode(CommandOpcode::CreateGeneralObject)
            .set_obj_type(OBJECT_TYPE_MKEY)
            .set_alias_object(true);
        input
            .alias_mut()
            .set_vhca_id_to_be_accessed(shared.vhca_id)
            .set_object_id_to_be_accessed(shared.key.value())
            .set_access_key(*shared.access_key.as_bytes())
            .set_metadata_1(domain.number().value());
        let made = device.device().call::<AliasOut>(&Request::new(&input));
        let output = made.map_err(|error| blame(error, shared))?;
        let region = Self {
            device,
            domain: domain.number(),
            number: MkeyIndex::from_low_bits(output.header().obj_id()),
            owner: shared.vhca_id,
            address: shared.address,
            length: shared.length,
        };
        match output.alias().status() {
            0 => Ok(region),
            status => Err(AliasError::Unusable { status }),
        }
    }

    /// The owning function.
    pub fn owner(&self) -> VhcaId {
        self.owner
    }

    /// Protection domain of the alias.
    pub fn domain(&self) -> Pdn {
        self.domain
    }

    /// Key of the alias.
    pub fn lkey(&self) -> Mkey {
        Mkey::from_parts(self.number, 0)
    }

    /// First address, as stated by the owner.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Length in bytes, as stated by the owner.
    #[allow(clippy::len_without_is_empty, reason = "a region has at least one byte")]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// A slice of `length` bytes at `offset` for a DMA work request. Only some devices accept aliases in other work
    /// requests.
    ///
    /// # Errors
    /// The range exceeds the region.
    pub fn slice(&self, offset: u64, length: u32) -> Result<MemorySlice, RangeError> {
        let outside = RangeError { offset, length: length.into(), region: self.length };
        if offset > self.length || u64::from(length) > self.length - offset {
            return Err(outside);
        }
        let address = self.address.checked_add(offset).ok_or(outside)?;
        Ok(MemorySlice::from_raw(address, length, self.lkey()))
    }

    /// Asks the device whether the owner still shares the region.
    ///
    /// # Errors
    /// The command failed.
    #[doc(alias = "QUERY_GENERAL_OBJECT")]
    pub fn is_usable(&self) -> Result<bool, CommandError> {
        let mut input = GeneralObjectIn::new();
        input
            .set_opcode(CommandOpcode::QueryGeneralObject)
            .set_obj_type(OBJECT_TYPE_MKEY)
            .set_obj_id(self.number.value());
        let output: AliasOut = self.device.device().call(&Request::new(&input))?;
        Ok(output.alias().status() == 0)
    }
}

fn blame(error: CommandError, shared: &SharedRegion) -> AliasError {
    match error.failure {
        CommandFailure::Refused { .. } => {
            AliasError::Refused { owner: shared.vhca_id, key: shared.key, error }
        }
        _ => AliasError::Command(error),
    }
}

impl<D: DeviceRef> fmt::Debug for RemoteVhcaRegion<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("RemoteVhcaRegion");
        s.field("owner", &self.owner).field("lkey", &self.lkey()).field("length", &self.length);
        s.finish_non_exhaustive()
    }
}

impl<D: DeviceRef> Drop for RemoteVhcaRegion<D> {
    #[doc(alias = "DESTROY_GENERAL_OBJECT")]
    fn drop(&mut self) {
        let opcode = CommandOpcode::DestroyGeneralObject;
        let command = DestroyCommand::new(opcode, self.number.value()).of_type(OBJECT_TYPE_MKEY);
        self.device.device().destroy(command, None);
    }
}
