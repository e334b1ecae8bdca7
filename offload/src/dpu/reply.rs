//! Posts a reply from where its answer lies.

use super::places::staging_offset;
use crate::endpoint::{Endpoint, Part, PostError, Remote, Work};
use crate::runtime::Reply;
use crate::wire::{Immediate, TRAILER_SIZE, Trailer};

/// Work request ids of replies: the kind in the two highest bits.
pub(super) const REPLY: u64 = 2 << 62;
const REFUSAL: u64 = 3 << 62;

/// Posts the WRITE of answer and trailer, or of the trailer alone. It grants this many credits.
pub(super) fn post_reply<const CONNECTIONS: usize, const RECEIVES: usize>(
    endpoint: &mut impl Endpoint,
    connection: usize,
    reply: &Reply,
    credits: u8,
) -> Result<(), PostError> {
    let to = Remote { address: reply.address, rkey: reply.rkey };
    let immediate = Immediate { slot: reply.slot, status: reply.trailer.status, credits }.encode();
    let trailer = Trailer { credits: credits.into(), ..reply.trailer }.encode();
    let id = reply.ticket.map_or(REFUSAL, |tag| REPLY | tag.to_bits());
    let Some(body) = reply.body else {
        return endpoint.post(connection, id, Work::WriteBytesImmediate { bytes: &trailer, to, immediate });
    };
    let offset = staging_offset::<CONNECTIONS, RECEIVES>(body.buffer) + body.place as usize;
    endpoint.copy_in(offset + body.length as usize, &trailer)?;
    let from = Part { offset, length: body.length + TRAILER_SIZE as u32 };
    endpoint.post(connection, id, Work::WriteImmediate { from, to, immediate })
}
