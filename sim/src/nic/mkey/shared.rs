//! Memory keys shared between functions of one card: the owner's shared keys, the users' aliases, and the two
//! ends of a DMA work request, each of which may be in another function's memory.
//!
//! A device only accesses its own function's memory. So a foreign end stays unchecked until the bytes move, when its
//! owner checks it.

use super::shared_key::SharedKey;
use super::translation::Translation;
use super::{ANY_QP, Access, Accessor, DmaFault, HostMemory, HostRange, KeyFault, MemoryKey, MkeyTable};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, MkeyIndex, Pdn, Qpn, VhcaId};
use core::fmt;

/// One end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaEnd {
    place: DmaPlace,
    length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DmaPlace {
    /// In this function's memory, already checked.
    Own(HostRange),
    /// In another function's memory, to be checked by that function.
    Foreign { key: SharedKey, address: u64 },
}

impl DmaEnd {
    /// The owning function; `None` for the requesting function itself.
    pub const fn owner(&self) -> Option<VhcaId> {
        match &self.place {
            DmaPlace::Own(_) => None,
            DmaPlace::Foreign { key, .. } => Some(key.owner),
        }
    }

    /// Length in bytes.
    pub const fn length(&self) -> u64 {
        self.length
    }
}

/// Why an end of a copy was refused when the bytes were about to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmaRefused {
    /// The key was destroyed or changed, lacks the right, or the range exceeds it.
    Key,
    /// Host memory faulted.
    Memory(DmaFault),
    /// No function of the card has this VHCA ID.
    NoFunction(VhcaId),
}

impl fmt::Display for DmaRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("the key was taken back, lacks the right, or does not cover the range"),
            Self::Memory(fault) => write!(f, "{fault}"),
            Self::NoFunction(id) => write!(f, "no function of the card has VHCA id {id}"),
        }
    }
}

impl core::error::Error for DmaRefused {}

impl From<DmaFault> for DmaRefused {
    fn from(fault: DmaFault) -> Self {
        Self::Memory(fault)
    }
}

impl MkeyTable {
    /// The name under which other functions know a key, if there is such a key and it is not an alias.
    pub(crate) fn shared_name(&self, owner: VhcaId, index: u32) -> Option<SharedKey> {
        let key = self.keys.get(index).filter(|key| key.alias().is_none())?;
        Some(SharedKey { owner, index, generation: key.generation })
    }

    /// Creates an alias in protection domain `pd` and returns its index, unless there are `limit` keys
    /// already.
    pub(crate) fn create_alias(&mut self, pd: Pdn, target: SharedKey, limit: u64) -> Option<u32> {
        let mut context = MkeyContext::new();
        // The owner checks rights and range. With a length of zero, an alias is of use only to a DMA work
        // request.
        context.set_pd(pd).set_qpn(Qpn::from_low_bits(ANY_QP)).set_lr(true).set_lw(true);
        let index = self.create(context, Vec::new(), limit)?;
        if let Some(key) = self.keys.get_mut(index) {
            key.translation = Translation::Alias(target);
        }
        Some(index)
    }

    /// The target of an alias.
    pub(crate) fn alias(&self, index: u32) -> Option<SharedKey> {
        self.keys.get(index)?.alias()
    }

    /// Checks one end of a DMA work request. For an alias, checks the user's key, domain and right; for a key
    /// of this function, checks everything.
    pub(crate) fn check_dma(
        &self,
        who: Accessor,
        key: Mkey,
        access: Access,
        address: u64,
        length: u64,
    ) -> Result<DmaEnd, KeyFault> {
        let object = self.find(key)?;
        let place = match object.alias() {
            Some(target) => {
                object.check_use(&who, access)?;
                DmaPlace::Foreign { key: target, address }
            }
            None => DmaPlace::Own(self.check(&who, key, access, address, length)?),
        };
        Ok(DmaEnd { place, length })
    }

    /// Reads the source of a copy from the memory of this function.
    pub(crate) fn read_end<M: HostMemory>(
        &self,
        memory: &mut M,
        end: &DmaEnd,
        bytes: &mut [u8],
    ) -> Result<(), DmaRefused> {
        let range = self.own_range(end, Access::LocalRead)?;
        Ok(self.read(memory, &range, 0, bytes)?)
    }

    /// Writes the destination of a copy to the memory of this function.
    pub(crate) fn write_end<M: HostMemory>(
        &self,
        memory: &mut M,
        end: &DmaEnd,
        bytes: &[u8],
    ) -> Result<(), DmaRefused> {
        let range = self.own_range(end, Access::LocalWrite)?;
        Ok(self.write(memory, &range, 0, bytes)?)
    }

    /// The owner's check of an end. It uses only the rights of the key, because protection domain numbers
    /// have no meaning across functions.
    fn own_range(&self, end: &DmaEnd, access: Access) -> Result<HostRange, DmaRefused> {
        let (key, address) = match end.place {
            DmaPlace::Own(range) => return Ok(range),
            DmaPlace::Foreign { key, address } => (key, address),
        };
        let object = self.keys.get(key.index).filter(|object| object.generation == key.generation);
        let object = object.ok_or(DmaRefused::Key)?;
        let (pd, qpn) = (object.pd, Qpn::from_low_bits(ANY_QP));
        let who = Accessor { pd, qpn, privileged: false, reserved_lkey: false };
        let name = Mkey::from_parts(MkeyIndex::from_low_bits(key.index), object.variant);
        self.check(&who, name, access, address, end.length).map_err(|_| DmaRefused::Key)
    }
}

impl MemoryKey {
    /// Its target, if it is an alias.
    pub(crate) const fn alias(&self) -> Option<SharedKey> {
        match &self.translation {
            Translation::Alias(target) => Some(*target),
            _ => None,
        }
    }

    /// Whether it is an indirect key.
    pub(crate) const fn is_indirect(&self) -> bool {
        self.translation.is_indirect()
    }
}

#[cfg(test)]
#[path = "../tests/shared_keys.rs"]
mod tests;
