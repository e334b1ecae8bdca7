//! A memory region shared with other functions of the same card: the host's side when a DPU accesses its memory.
//!
//! The owner sets a secret and passes it on with the rest of [`SharedRegion`], over a channel of its own. No command
//! revokes it: dropping or re-registering the region, or resetting the device, ends all aliases.

use crate::capability_page::CapabilityValues;
use crate::command::{CommandError, CommandFailure, Request};
use crate::device::{Device, DeviceRef};
use crate::hal::Hal;
use crate::indirect_region::IndirectRegion;
use crate::memory_region::MemoryRegion;
use bareverbs_prm::command::caps::GeneralCapabilities2;
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::general_object::{
    ACCESS_KEY, ALLOWED_MKEY, AllowOtherVhcaAccessIn, LOCAL_MKEY_TO_REMOTE_MKEY, OBJECT_TYPE_MKEY,
};
use bareverbs_prm::ids::{MkeyIndex, VhcaId};
use bareverbs_prm::numbering::CommandOpcode;
use core::fmt;

/// Syndrome with which firmware refuses to share a key although its capabilities offer it (UCX pull request 10980).
const NOT_SHAREABLE: u32 = 0x17_2df6;

/// The secret of a shared region, set by its owner and required from its users. Draw all 32 bytes from a random source.
///
/// ```
/// use bareverbs_core::AccessKey;
///
/// assert!(AccessKey::new([0; 32]).is_err(), "a secret that is none");
/// assert!(AccessKey::new(core::array::from_fn(|i| i as u8 * 7)).is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccessKey([u8; ACCESS_KEY]);

/// An invalid secret: all its bytes are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstantAccessKey;

impl AccessKey {
    /// A secret made of these bytes.
    ///
    /// # Errors
    /// All bytes are equal, which random bytes never are.
    pub fn new(bytes: [u8; ACCESS_KEY]) -> Result<Self, ConstantAccessKey> {
        if bytes.iter().all(|byte| *byte == bytes[0]) { Err(ConstantAccessKey) } else { Ok(Self(bytes)) }
    }

    /// The bytes, to pass to a user.
    pub const fn as_bytes(&self) -> &[u8; ACCESS_KEY] {
        &self.0
    }
}

impl fmt::Debug for AccessKey {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(..)")
    }
}

impl fmt::Display for ConstantAccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an access key of 32 equal bytes protects nothing: draw them from a source of randomness")
    }
}

impl core::error::Error for ConstantAccessKey {}

/// What a user on another function needs to know about a shared region. The device checks it when an alias is created,
/// and again with every access.
///
/// ```
/// use bareverbs_core::{AccessKey, DeviceRef, MemoryRegion, SharedRegion};
/// use std::error::Error;
///
/// /// On the host: what the Arm cores of its card need to know. `random` comes from the system.
/// fn share<D: DeviceRef>(table: &MemoryRegion<D>, random: [u8; 32]) -> Result<SharedRegion, Box<dyn Error>> {
///     Ok(SharedRegion::share(table, AccessKey::new(random)?)?)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedRegion {
    /// VHCA ID of the owner.
    pub vhca_id: VhcaId,
    /// Index of the memory key.
    pub key: MkeyIndex,
    /// First address, as used by work requests.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// The secret.
    pub access_key: AccessKey,
}

/// Why a region could not be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareError {
    /// The device does not support it.
    NotOffered {
        /// `allowed_object_for_other_vhca_access`; keys are bit 2.
        allowed: u64,
        /// `cross_vhca_object_to_object_supported`; keys for keys are bit 8.
        supported: u32,
    },
    /// The device supports it but refuses this key.
    NotShareable(CommandError),
    /// The command failed.
    Command(CommandError),
}

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered { allowed, supported } => write!(
                f,
                "the device shares no memory keys with other functions of its card (allowed objects {allowed:#x}, supported pairs \
                 {supported:#x}): use a BlueField-3, or RDMA"
            ),
            Self::NotShareable(error) => write!(
                f,
                "{error}: the device offers to share memory keys but not this one; share a region of pages that is not made of others, \
                 or use RDMA"
            ),
            Self::Command(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for ShareError {}

impl SharedRegion {
    /// Lets functions of the same card that know the secret use `region`, within its local access rights. Another call
    /// replaces the secret for aliases created later.
    ///
    /// # Errors
    /// The device does not support it, or refuses it for this region.
    #[doc(alias = "ALLOW_OTHER_VHCA_ACCESS")]
    pub fn share<D: DeviceRef>(region: &MemoryRegion<D>, access_key: AccessKey) -> Result<Self, ShareError> {
        let (device, key) = (region.device().device(), region.lkey().index());
        allow(device, key, access_key)?;
        let (address, length) = (region.address(), region.len() as u64);
        Ok(Self { vhca_id: device.capabilities().vhca_id, key, address, length, access_key })
    }

    /// The same for a region made of others, whose addresses start at zero. A ConnectX-7 refuses it.
    ///
    /// # Errors
    /// [`ShareError::NotShareable`] from a device that does not follow keys of keys for other functions; and those of [`Self::share`].
    pub fn share_indirect<D: DeviceRef>(
        region: &IndirectRegion<D>,
        access_key: AccessKey,
    ) -> Result<Self, ShareError> {
        let (device, key) = (region.device().device(), region.lkey().index());
        allow(device, key, access_key)?;
        Ok(Self { vhca_id: device.capabilities().vhca_id, key, address: 0, length: region.len(), access_key })
    }
}

/// Lets functions that know the secret make aliases of a memory key.
fn allow<H: Hal>(device: &Device<H>, key: MkeyIndex, access_key: AccessKey) -> Result<(), ShareError> {
    check_offer(device)?;
    let mut input = AllowOtherVhcaAccessIn::new();
    input
        .set_opcode(CommandOpcode::AllowOtherVhcaAccess)
        .set_object_type_to_be_accessed(OBJECT_TYPE_MKEY)
        .set_object_id_to_be_accessed(key.value())
        .set_access_key(access_key.0);
    device.call::<CommandHeaderOut>(&Request::new(&input)).map_err(blame).map(drop)
}

/// The capabilities are necessary but not sufficient.
fn check_offer<H: Hal>(device: &Device<H>) -> Result<(), ShareError> {
    let page: GeneralCapabilities2 =
        device.capability_page(CapabilityValues::Current).map_err(ShareError::Command)?;
    let allowed = page.allowed_object_for_other_vhca_access();
    let supported = page.cross_vhca_object_to_object_supported();
    if allowed & ALLOWED_MKEY == 0 || supported & LOCAL_MKEY_TO_REMOTE_MKEY == 0 {
        return Err(ShareError::NotOffered { allowed, supported });
    }
    Ok(())
}

fn blame(error: CommandError) -> ShareError {
    match error.failure {
        CommandFailure::Refused { syndrome: NOT_SHAREABLE, .. } => ShareError::NotShareable(error),
        _ => ShareError::Command(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_secrets_are_refused_and_no_secret_is_shown() {
        assert_eq!(AccessKey::new([1; 32]), Err(ConstantAccessKey));
        let mut bytes = [1; 32];
        bytes[31] = 77;
        let key = AccessKey::new(bytes).unwrap();
        assert_eq!(key.as_bytes(), &bytes);
        let (vhca_id, index) = (VhcaId::from_low_bits(1), MkeyIndex::from_low_bits(2));
        let shared = SharedRegion { vhca_id, key: index, address: 0, length: 1, access_key: key };
        extern crate std;
        assert!(!std::format!("{shared:?}").contains("77"));
    }
}
