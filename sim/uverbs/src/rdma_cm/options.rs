//! SET_OPTION.

use super::call::CmCall;
use super::identifier::Stage;
use crate::Errno;
use crate::connection_names::ConnectionFileId;
use crate::process::Process;
use crate::uapi::*;

/// Longest ACK timeout, as a code of 5 bits.
const LONGEST_TIMEOUT: u8 = 31;

impl<P: Process> CmCall<'_, P> {
    pub(super) fn set_option(&mut self, file: ConnectionFileId, wish: &CmSetOption) -> Result<(), Errno> {
        self.identifier(file, wish.id)?;
        match (wish.level, wish.optname) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
                let [class] = self.value(wish)?;
                self.identifier(file, wish.id)?.traffic_class = class;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
                let shares = u32::from_ne_bytes(self.value(wish)?) != 0;
                let known = self.identifier(file, wish.id)?;
                if known.stage != Stage::Idle && known.shares_port != shares {
                    return Err(Errno::Invalid);
                }
                known.shares_port = shares;
            }
            // Families never share ports here, whatever is requested, so nothing changes.
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
                let _: [u8; 4] = self.value(wish)?;
                if !matches!(self.identifier(file, wish.id)?.stage, Stage::Idle | Stage::Bound) {
                    return Err(Errno::Invalid);
                }
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
                let [code] = self.value(wish)?;
                if code > LONGEST_TIMEOUT || self.identifier(file, wish.id)?.is_datagram() {
                    return Err(Errno::Invalid);
                }
                self.identifier(file, wish.id)?.ack_timeout = Some(code);
            }
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
                let length = wish.optlen as usize;
                if length == 0 || !length.is_multiple_of(size_of::<PathRecordData>()) {
                    return Err(Errno::Invalid);
                }
                // RoCE has a single path, so other paths of the program are ignored.
                return self.take_route(wish.id);
            }
            _ => return Err(Errno::NoCommand),
        }
        Ok(())
    }

    /// The value of an option, which has a fixed length.
    fn value<const N: usize>(&mut self, wish: &CmSetOption) -> Result<[u8; N], Errno> {
        if wish.optlen as usize != N {
            return Err(Errno::Invalid);
        }
        let mut value = [0; N];
        self.process.read(wish.optval, &mut value)?;
        Ok(value)
    }
}
