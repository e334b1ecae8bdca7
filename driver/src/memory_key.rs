//! Memory keys as objects of the device: CREATE_MKEY and DESTROY_MKEY for regions, windows and lists.

use crate::command::{CommandError, Request, Tail, WordList};
use crate::device::Device;
use crate::device::control::Doomed;
use crate::dma::Dma;
use crate::hal::Hal;
use crate::memory_region::MemorySlice;
use crate::translation::PageRun;
use crate::work_request::slice_words;
use bareverbs_prm::command::entry::CommandHeaderIn;
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Pdn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, MkeyAccessMode};

/// Low bits of a page entry: present for writing, present for reading.
const PRESENT: u64 = 3;
/// The queue pair number that stands for all of them.
pub(crate) const ANY_QUEUE_PAIR: Qpn = Qpn::from_low_bits(0xff_ffff);

/// A key that is to be made.
pub(crate) struct KeyWish {
    pub(crate) context: MkeyContext,
}

impl KeyWish {
    /// A key of every queue pair of a domain.
    pub(crate) fn new(domain: Pdn, mode: MkeyAccessMode) -> Self {
        let mut context = MkeyContext::new();
        context.set_pd(domain).set_qpn(ANY_QUEUE_PAIR).set_access_mode_1_0(mode.raw());
        Self { context }
    }

    /// A key that gives nothing until a work request says what.
    pub(crate) fn free(domain: Pdn, mode: MkeyAccessMode) -> Self {
        let mut wish = Self::new(domain, mode);
        wish.context.set_free(true).set_umr_en(true).set_lr(true);
        wish
    }
}

/// What stands behind a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Translations<'a> {
    /// Pages.
    Pages(PageRun),
    /// Pieces of other keys.
    Slices(&'a Slices<'a>),
    /// Nothing yet, with room for so many octwords.
    Room(u32),
}

/// Pieces of memory keys as a list of them: length, key and address of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slices<'a>(pub(crate) &'a [MemorySlice]);

impl WordList for Slices<'_> {
    fn count(&self) -> usize {
        self.0.len() * 2
    }
    fn word(&self, index: usize) -> u64 {
        self.0.get(index / 2).map_or(0, |slice| slice_words(slice)[index % 2])
    }
}

impl<'a> Translations<'a> {
    /// Octwords of the list, as the device counts them.
    fn octwords(&self) -> u32 {
        match self {
            Self::Pages(run) => run.count.div_ceil(2),
            Self::Slices(Slices(slices)) => slices.len().try_into().unwrap_or(u32::MAX),
            Self::Room(octwords) => *octwords,
        }
    }

    fn tail(&self) -> Tail<'a> {
        match self {
            Self::Pages(run) => run.list(PRESENT),
            Self::Slices(slices) => Tail::Words(*slices),
            Self::Room(_) => Tail::None,
        }
    }
}

/// CREATE_MKEY, with a variant that the index did not have last.
pub(crate) fn create_key<H: Hal>(
    device: &Device<H>,
    wish: KeyWish,
    translations: Translations<'_>,
) -> Result<Mkey, CommandError> {
    let nothing = CommandHeaderIn::new();
    let variant = device.control(&Request::new(&nothing), |control, _| control.next_variant())?;
    let mut input = CreateMkeyIn::new();
    let (octwords, tail) = (translations.octwords(), translations.tail());
    let given = if matches!(tail, Tail::None) { 0 } else { octwords };
    input
        .set_opcode(CommandOpcode::CreateMkey)
        .set_pg_access(true)
        .set_translations_octword_actual_size(given);
    input.memory_key_mkey_entry_mut().clone_from(&wish.context);
    input.memory_key_mkey_entry_mut().set_mkey_7_0(variant).set_translations_octword_size(octwords);
    let request = Request::with_tail(&input, tail);
    let request = request.padded_to(CreateMkeyIn::KLM_PAS_MTT_OFFSET + given as usize * 16);
    let output: CreateMkeyOut = device.call(&request)?;
    Ok(Mkey::from_parts(output.mkey_index(), variant))
}

fn doomed(key: Mkey) -> Doomed {
    Doomed { opcode: CommandOpcode::DestroyMkey, number: key.index().value() }
}

/// DESTROY_MKEY; `memory` is freed when the device has let it go.
pub(crate) fn destroy_key<H: Hal>(device: &Device<H>, key: Mkey, memory: Option<Dma<H::Dma>>) {
    device.destroy(doomed(key), memory);
}

/// DESTROY_MKEY now or not at all.
pub(crate) fn destroy_key_now<H: Hal>(device: &Device<H>, key: Mkey) -> Result<(), CommandError> {
    let nothing = CommandHeaderIn::new();
    device.control(&Request::new(&nothing), |control, hal| control.destroy_now(hal, doomed(key)))?
}
