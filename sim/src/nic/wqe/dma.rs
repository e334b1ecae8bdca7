//! Work requests that copy memory (MMO with `opmod` DMA): control, metadata, source and destination, one basic block (rdma-core
//! `providers/mlx5/wqe.h`, `mlx5_mmo_wqe`).

use super::fault::{DATA_KEY, DMA_RANGES, MESSAGE, OPCODE, OPMOD, SEGMENTS, WorkFault};
use super::segments::{FetchContext, SegmentReader, byte_count};
use crate::nic::card::DmaCopy;
use crate::nic::mkey::{Access, DmaEnd};
use bareverbs_prm::wqe::{ControlSegment, DataSegment, MmoMetadataSegment, mmo};

/// log2 of the longest copy (`log_dma_mmo_max_size`): the value of a BlueField-3, according to UCX.
pub(crate) const LOG_MAX_DMA: u8 = 21;

pub(super) fn parse_mmo(
    control: &ControlSegment,
    cursor: &mut SegmentReader<'_>,
    context: &FetchContext<'_>,
) -> Result<DmaCopy, WorkFault> {
    if !context.mmo {
        return Err(OPCODE);
    }
    if control.opmod() != mmo::DMA {
        return Err(OPMOD);
    }
    check_metadata(cursor.segment()?, context)?;
    let (source, destination): (&DataSegment, &DataSegment) = (cursor.segment()?, cursor.segment()?);
    if !cursor.is_at_end() {
        return Err(SEGMENTS);
    }
    if byte_count(source) != byte_count(destination) {
        return Err(DMA_RANGES);
    }
    if byte_count(source) > 1 << LOG_MAX_DMA {
        return Err(MESSAGE);
    }
    let source = check_end(source, context, Access::LocalRead)?;
    let destination = check_end(destination, context, Access::LocalWrite)?;
    Ok(DmaCopy { source, destination })
}

/// A copy has no control bits. The metadata must name memory for the device, as rdma-core and UCX provide it.
fn check_metadata(metadata: &MmoMetadataSegment, context: &FetchContext<'_>) -> Result<(), WorkFault> {
    if metadata.mmo_control_31_0() != 0 {
        return Err(OPMOD);
    }
    let (key, address) = (metadata.local_key(), metadata.local_address());
    let opaque = context.mkeys.check(&context.accessor, key, Access::LocalWrite, address, mmo::OPAQUE as u64);
    opaque.map(|_| ()).map_err(|_| DATA_KEY)
}

fn check_end(segment: &DataSegment, context: &FetchContext<'_>, access: Access) -> Result<DmaEnd, WorkFault> {
    let (address, length) = (segment.address(), byte_count(segment).into());
    context.mkeys.check_dma(context.accessor, segment.lkey(), access, address, length).map_err(|_| DATA_KEY)
}
