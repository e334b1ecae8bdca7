//! Headers of the InfiniBand transport, common to all links. IBTA v1.4 §9.2 and §9.3.

use super::bth::Bth;
use super::extension::Extension;
use super::parse_error::ParseError;
use super::service::ServiceHeader;

/// Everything after the link's headers, without the ICRC.
pub(super) struct Transport<'a> {
    pub(super) bth: Bth,
    pub(super) service_header: ServiceHeader,
    pub(super) extension: Extension,
    pub(super) payload: &'a [u8],
}

/// Splits the transport headers; `body` runs from the BTH to the end of the padding.
pub(super) fn split_transport(body: &[u8]) -> Result<Transport<'_>, ParseError> {
    let (header, rest) = body.split_first_chunk::<{ Bth::SIZE }>().ok_or(ParseError::Truncated)?;
    let (bth, version) = Bth::from_bytes(header);
    if version != Bth::VERSION {
        return Err(ParseError::TransportVersion(version));
    }
    let short = ParseError::Extension(bth.opcode);
    let (service_header, rest) = ServiceHeader::split_from(bth.service, bth.opcode, rest).ok_or(short)?;
    let (extension, padded) = Extension::split_from(bth.opcode.extension(), rest).ok_or(short)?;
    let pad = ParseError::Pad(bth.pad_count);
    if padded.len() & 3 != 0 {
        return Err(pad);
    }
    let length = padded.len().checked_sub(usize::from(bth.pad_count)).ok_or(pad)?;
    Ok(Transport { bth, service_header, extension, payload: &padded[..length] })
}
