//! Memory keys as device objects: CREATE_MKEY and DESTROY_MKEY for regions, windows and lists.

use crate::command::{CommandError, Request, Tail, WordList};
use crate::device::{DestroyCommand, Device};
use crate::dma::Dma;
use crate::hal::Hal;
use crate::memory_slice::MemorySlice;
use crate::translation::PageRun;
use crate::wqe::segment;
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, Pdn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, MkeyAccessMode};

/// Low bits of a page entry: present for writing, present for reading.
const PRESENT: u64 = 3;
/// The queue pair number that means every queue pair.
pub(crate) const ANY_QUEUE_PAIR: Qpn = Qpn::from_low_bits(0xff_ffff);

/// The parameters of CREATE_MKEY.
pub(crate) struct KeyTemplate {
    pub(crate) context: MkeyContext,
}

impl KeyTemplate {
    /// A key for every queue pair of a domain.
    pub(crate) fn new(domain: Pdn, mode: MkeyAccessMode) -> Self {
        let mut context = MkeyContext::new();
        context.set_pd(domain).set_qpn(ANY_QUEUE_PAIR).set_access_mode_1_0(mode.raw());
        Self { context }
    }

    /// A key without access until a work request sets it up.
    pub(crate) fn free(domain: Pdn, mode: MkeyAccessMode) -> Self {
        let mut template = Self::new(domain, mode);
        template.context.set_free(true).set_umr_en(true).set_lr(true);
        template
    }
}

/// What a key translates its addresses to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Translations<'a> {
    /// Pages.
    Pages(PageRun),
    /// Pieces of other keys.
    Slices(&'a Slices<'a>),
    /// Nothing yet, with room for this many octwords.
    Room(u32),
}

/// A list of pieces of memory keys: length, key and address of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slices<'a>(pub(crate) &'a [MemorySlice]);

impl WordList for Slices<'_> {
    fn count(&self) -> usize {
        self.0.len() * 2
    }
    fn word(&self, index: usize) -> u64 {
        self.0.get(index / 2).map_or(0, |slice| u64::from_be(segment::data(slice)[index % 2]))
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

/// CREATE_MKEY, with a variant that differs from the last one of the index.
pub(crate) fn create_key<H: Hal>(
    device: &Device<H>,
    template: KeyTemplate,
    translations: Translations<'_>,
) -> Result<Mkey, CommandError> {
    let variant = device.next_key_variant();
    let mut input = CreateMkeyIn::new();
    let (octwords, tail) = (translations.octwords(), translations.tail());
    let given = if matches!(tail, Tail::None) { 0 } else { octwords };
    input
        .set_opcode(CommandOpcode::CreateMkey)
        .set_pg_access(true)
        .set_translations_octword_actual_size(given);
    input.memory_key_mkey_entry_mut().clone_from(&template.context);
    input.memory_key_mkey_entry_mut().set_mkey_7_0(variant).set_translations_octword_size(octwords);
    let request = Request::with_tail(&input, tail);
    let request = request.padded_to(CreateMkeyIn::KLM_PAS_MTT_OFFSET + given as usize * 16);
    let output: CreateMkeyOut = device.call(&request)?;
    Ok(Mkey::from_parts(output.mkey_index(), variant))
}

fn destroy_command(key: Mkey) -> DestroyCommand {
    DestroyCommand::new(CommandOpcode::DestroyMkey, key.index().value())
}

/// DESTROY_MKEY; `memory` is freed when the device has released it.
pub(crate) fn destroy_key<H: Hal>(device: &Device<H>, key: Mkey, memory: Option<Dma<H::Dma>>) {
    device.destroy(destroy_command(key), memory);
}

/// DESTROY_MKEY at once, without retrying later.
pub(crate) fn destroy_key_now<H: Hal>(device: &Device<H>, key: Mkey) -> Result<(), CommandError> {
    device.destroy_now(destroy_command(key))
}
