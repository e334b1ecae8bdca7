//! CQE compression: a run of similar entries is written as a title entry and arrays of eight mini entries (PRM, CQE
//! compression, basic layout).
//!
//! A run of `n` entries occupies `n` slots. The first is the title: an ordinary entry with format 3 whose byte count is
//! `n`. The first array follows it, and the others are at every eighth slot of the run. Slots in between are not
//! written; software sets their owner bits. The title is written last. A run never wraps around the end of the ring.

use bareverbs_prm::cqe::{CQE_FORMAT_COMPRESSED, CQE_SIZE, CompletionEntry, MINI_CQES, MiniEntry};
use bareverbs_prm::field::Field;
use bareverbs_prm::numbering::CqeOpcode;
use zerocopy::IntoBytes;

/// The maximum number of entries in a run, as reported by the capability `cqe_compression_max_num`.
pub(crate) const LONGEST_RUN: usize = 64;

/// An entry that is held back because similar ones may follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) entry: CompletionEntry,
    pub(super) solicited: bool,
}

/// Whether an entry can be part of a run: a mini entry has room for everything in which entries of this kind
/// may differ.
pub(super) fn is_compressible(entry: &CompletionEntry) -> bool {
    entry.format() == 0 && matches!(entry.opcode(), CqeOpcode::Requester | CqeOpcode::ResponderSend)
}

/// Fields of an entry that come from its mini entry or from its place in the run.
const OWN_FIELDS: [Field; 6] = [
    CompletionEntry::FIELDS.rss_hash,
    CompletionEntry::FIELDS.checksum,
    CompletionEntry::FIELDS.byte_count,
    CompletionEntry::FIELDS.timestamp,
    CompletionEntry::FIELDS.send_opcode,
    CompletionEntry::FIELDS.wqe_counter,
];
/// `mini_cqe_res_format`: mini entries of receives hold a checksum, others a hash.
const FORMAT_CHECKSUM: u8 = 1;

/// Whether `next` may follow `last` in a run: they differ only in what a mini entry holds.
pub(super) fn follows(last: &CompletionEntry, next: &CompletionEntry) -> bool {
    let in_order =
        next.opcode() == CqeOpcode::Requester || next.wqe_counter() == last.wqe_counter().wrapping_add(1);
    is_compressible(next) && in_order && shared(last) == shared(next)
}

fn shared(entry: &CompletionEntry) -> [u8; CQE_SIZE] {
    let mut bytes = [0; CQE_SIZE];
    bytes.copy_from_slice(entry.as_bytes());
    OWN_FIELDS.into_iter().for_each(|own| bytes[own.bytes()].fill(0));
    bytes
}

fn mini(entry: &CompletionEntry, format: u8) -> [u8; MiniEntry::SIZE] {
    let mut mini = MiniEntry::new();
    mini.set_byte_count(entry.byte_count());
    match (entry.opcode(), format) {
        (CqeOpcode::Requester, _) => {
            mini.set_wqe_counter(entry.wqe_counter()).set_send_opcode(entry.send_opcode())
        }
        (_, FORMAT_CHECKSUM) => mini.set_checksum(entry.checksum()),
        _ => mini.set_rss_hash(entry.rss_hash()),
    };
    zerocopy::transmute!(mini)
}

/// The title of a run of `count` entries that begins with `first`.
pub(super) fn title(first: &CompletionEntry, count: u32) -> CompletionEntry {
    let mut title = *first;
    title.set_byte_count(count).set_format(CQE_FORMAT_COMPRESSED);
    title
}

/// The arrays of a run, each with its position relative to the title.
pub(super) fn arrays(run: &[Waiting], format: u8) -> impl Iterator<Item = (u32, [u8; CQE_SIZE])> + '_ {
    run.chunks(MINI_CQES).enumerate().map(move |(number, minis)| {
        let mut bytes = [0; CQE_SIZE];
        for (place, waiting) in bytes.chunks_exact_mut(MiniEntry::SIZE).zip(minis) {
            place.copy_from_slice(&mini(&waiting.entry, format));
        }
        (if number == 0 { 1 } else { (number * MINI_CQES) as u32 }, bytes)
    })
}
